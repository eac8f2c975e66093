/* SPDX-License-Identifier: Apache-2.0
 *
 * See zookeeper_server.h.
 */
#include "zookeeper_server.h"

#include "child.h"
#include "must.h"
#include "server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define JARS "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar"

struct zookeeper {
    pid_t pid;
    int port;
    const char *argument;
    char folder[64];
    char url[64], hosts[32];
};

/* Short ticks, since sessions end by them; nothing is forced to the disk. */
static void configure(const struct zookeeper *zookeeper)
{
    char path[96];
    snprintf(path, sizeof path, "%s/zoo.cfg", zookeeper->folder);
    FILE *file = fopen(path, "w");
    must(file != NULL);
    fprintf(file,
            "tickTime=%d\nminSessionTimeout=100\nmaxSessionTimeout=600000\nmaxClientCnxns=0\n"
            "forceSync=no\nadmin.enableServer=false\n4lw.commands.whitelist=*\n"
            "dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n",
            ZOOKEEPER_TICK_MS, zookeeper->folder, zookeeper->port);
    must(fclose(file) == 0);
}

static _Noreturn void become_zookeeper(const struct zookeeper *zookeeper)
{
    char config[96], log[96];
    snprintf(config, sizeof config, "%s/zoo.cfg", zookeeper->folder);
    snprintf(log, sizeof log, "%s/log", zookeeper->folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    must(fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    execlp("java", "java", "-Xms16m", "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
           zookeeper->argument, "-cp", JARS, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
           config, (char *)NULL);
    _exit(127);
}

/* To the word `srvr` it says its mode, once it serves. */
static bool serves(const struct zookeeper *zookeeper)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)zookeeper->port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct timeval patience = {.tv_sec = 1};
    char said[2048] = "";
    size_t used = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, "srvr", 4, MSG_NOSIGNAL) == 4)
        for (ssize_t got; used < sizeof said - 1 &&
                          (got = recv(fd, said + used, sizeof said - 1 - used, 0)) > 0;)
            used += (size_t)got;
    close(fd);
    return strstr(said, "Mode:") != NULL;
}

static bool runs(struct zookeeper *zookeeper)
{
    if (zookeeper->pid != 0 && waitpid(zookeeper->pid, NULL, WNOHANG) == zookeeper->pid)
        zookeeper->pid = 0;
    return zookeeper->pid != 0;
}

static void launch(struct zookeeper *zookeeper)
{
    configure(zookeeper);
    fflush(NULL);
    zookeeper->pid = child_fork();
    if (zookeeper->pid == 0)
        become_zookeeper(zookeeper);
    eventually(!runs(zookeeper) || serves(zookeeper));
}

struct zookeeper *zookeeper_start(void)
{
    return zookeeper_start_with("-XX:-UsePerfData");
}

struct zookeeper *zookeeper_start_with(const char *argument)
{
    struct zookeeper *zookeeper = calloc(1, sizeof *zookeeper);
    must(zookeeper != NULL);
    zookeeper->argument = argument;
    strcpy(zookeeper->folder, "/tmp/dlock-test-XXXXXX");
    must(mkdtemp(zookeeper->folder) != NULL);
    for (int tries = 0; zookeeper->pid == 0; tries++) {
        must(tries < 3);
        zookeeper->port = free_port();
        launch(zookeeper);
    }
    snprintf(zookeeper->hosts, sizeof zookeeper->hosts, "127.0.0.1:%d", zookeeper->port);
    snprintf(zookeeper->url, sizeof zookeeper->url, "zk://%s?tick_ms=%d", zookeeper->hosts,
             ZOOKEEPER_TICK_MS);
    return zookeeper;
}

void zookeeper_pause(struct zookeeper *zookeeper)
{
    int status = 0;
    kill(zookeeper->pid, SIGSTOP);
    must(waitpid(zookeeper->pid, &status, WUNTRACED) == zookeeper->pid && WIFSTOPPED(status));
}

void zookeeper_resume(struct zookeeper *zookeeper)
{
    int status = 0;
    kill(zookeeper->pid, SIGCONT);
    must(waitpid(zookeeper->pid, &status, WCONTINUED) == zookeeper->pid && WIFCONTINUED(status));
}

static void end(struct zookeeper *zookeeper)
{
    kill(zookeeper->pid, SIGKILL);
    waitpid(zookeeper->pid, NULL, 0);
    zookeeper->pid = 0;
}

void zookeeper_restart(struct zookeeper *zookeeper)
{
    end(zookeeper);
    launch(zookeeper);
    must(zookeeper->pid != 0);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

void zookeeper_forget(struct zookeeper *zookeeper)
{
    char data[96];
    end(zookeeper);
    snprintf(data, sizeof data, "%s/version-2", zookeeper->folder);
    nftw(data, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    launch(zookeeper);
    must(zookeeper->pid != 0);
}

void zookeeper_free(struct zookeeper *zookeeper)
{
    end(zookeeper);
    nftw(zookeeper->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(zookeeper);
}

const char *zookeeper_url(const struct zookeeper *zookeeper)
{
    return zookeeper->url;
}

const char *zookeeper_hosts(const struct zookeeper *zookeeper)
{
    return zookeeper->hosts;
}
