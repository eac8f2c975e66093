/* SPDX-License-Identifier: Apache-2.0
 *
 * See etcd_server.h.
 */
#include "etcd_server.h"

#include "child.h"
#include "must.h"
#include "server.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 40
#define SAID_MAX 65536

struct etcd_server {
    pid_t pid;
    int port, peer_port;
    bool tls;
    char folder[64];
    char url[64];
    const char *more[ARGS_MAX / 2];
    char login[160]; /* the header with the token; "": none */
    char said[SAID_MAX];
    size_t said_size;
};

/* Short elections: leases may be as short as they last. Nothing is forced to the disk. */
static _Noreturn void become_etcd(const struct etcd_server *server)
{
    char log[96], data[96], client[64], peer[64], cluster[80];
    const char *args[ARGS_MAX] = {"etcd",        "--name",
                                  "n1",          "--heartbeat-interval",
                                  "10",          "--election-timeout",
                                  "100",         "--unsafe-no-fsync",
                                  "--logger",    "zap",
                                  "--log-level", "warn"};
    int count = 12;
    snprintf(log, sizeof log, "%s/log", server->folder);
    snprintf(data, sizeof data, "%s/data", server->folder);
    snprintf(client, sizeof client, "http%s://127.0.0.1:%d", server->tls ? "s" : "", server->port);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", server->peer_port);
    snprintf(cluster, sizeof cluster, "n1=%s", peer);
    const char *where[] = {"--data-dir",
                           data,
                           "--listen-client-urls",
                           client,
                           "--advertise-client-urls",
                           client,
                           "--listen-peer-urls",
                           peer,
                           "--initial-advertise-peer-urls",
                           peer,
                           "--initial-cluster",
                           cluster};
    for (size_t i = 0; i < sizeof where / sizeof where[0]; i++)
        args[count++] = where[i];
    for (size_t i = 0; server->more[i] != NULL; i++)
        args[count++] = server->more[i];
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    must(fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    execvp("etcd", (char *const *)(uintptr_t)args);
    _exit(127);
}

/* ---- Requests -------------------------------------------------------------------------------- */

static size_t take(char *bytes, size_t one, size_t count, void *arg)
{
    struct etcd_server *server = arg;
    must(server->said_size + one * count < sizeof server->said);
    memcpy(server->said + server->said_size, bytes, one * count);
    server->said_size += one * count;
    server->said[server->said_size] = '\0';
    return one * count;
}

/* The response's status; 0: none. body NULL: GET. */
static long request(struct etcd_server *server, const char *path, const char *body)
{
    char url[128];
    long status = 0;
    struct curl_slist *headers = NULL;
    CURL *easy = curl_easy_init();
    must(easy != NULL);
    server->said_size = 0;
    server->said[0] = '\0';
    snprintf(url, sizeof url, "http%s://127.0.0.1:%d%s", server->tls ? "s" : "", server->port,
             path);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, 10000L);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, server);
    if (body != NULL)
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    if (server->login[0] != '\0')
        must((headers = curl_slist_append(NULL, server->login)) != NULL);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    if (curl_easy_perform(easy) == CURLE_OK)
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(easy);
    curl_slist_free_all(headers);
    return status;
}

const char *etcd_server_ask(struct etcd_server *server, const char *path, const char *format, ...)
{
    char body[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(body, sizeof body, format, args);
    va_end(args);
    if (request(server, path, body) != 200)
        broken(__FILE__, __LINE__, server->said);
    return server->said;
}

void etcd_server_log_in(struct etcd_server *server, const char *user, const char *password)
{
    static const char before[] = "\"token\":\"";
    char token[128];
    const char *said = etcd_server_ask(server, "/v3/auth/authenticate",
                                       "{\"name\":\"%s\",\"password\":\"%s\"}", user, password);
    said = strstr(said, before);
    must(said != NULL && sscanf(said + strlen(before), "%127[^\"]", token) == 1);
    snprintf(server->login, sizeof server->login, "Authorization: %s", token);
}

void etcd_server_pass(struct etcd_server *server, int revisions)
{
    for (int i = 0; i < revisions; i++)
        etcd_server_ask(server, "/v3/kv/put", "{\"key\":\"%s\"}", base64("/nobody"));
}

const char *base64(const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    static char made[8][512];
    static int turn;
    char *start = made[turn++ % 8], *to = start;
    size_t size = strlen(text);
    for (size_t i = 0; i < size; i += 3) {
        unsigned group = 0;
        for (size_t j = 0; j < 3; j++)
            group = group << 8 | (i + j < size ? (unsigned char)text[i + j] : 0);
        for (size_t j = 0; j < 4; j++)
            *to++ = i + j > size ? '=' : digits[group >> (18 - 6 * j) & 63];
    }
    *to = '\0';
    return start;
}

/* ---- Its process ----------------------------------------------------------------------------- */

static bool runs(struct etcd_server *server)
{
    if (server->pid != 0 && waitpid(server->pid, NULL, WNOHANG) == server->pid)
        server->pid = 0;
    return server->pid != 0;
}

static void launch(struct etcd_server *server)
{
    fflush(NULL);
    server->pid = child_fork();
    if (server->pid == 0)
        become_etcd(server);
    eventually(!runs(server) ||
               (request(server, "/health", NULL) == 200 && strstr(server->said, "true") != NULL));
}

struct etcd_server *etcd_server_start(const char *const *more)
{
    struct etcd_server *server = calloc(1, sizeof *server);
    must(server != NULL);
    for (size_t i = 0; more != NULL && more[i] != NULL; i++) {
        server->more[i] = more[i];
        server->tls |= strstr(more[i], "tls") != NULL;
    }
    strcpy(server->folder, "/tmp/dlock-test-XXXXXX");
    must(mkdtemp(server->folder) != NULL);
    for (int tries = 0; server->pid == 0; tries++) {
        must(tries < 3);
        server->port = free_port();
        server->peer_port = free_port();
        launch(server);
    }
    snprintf(server->url, sizeof server->url, "etcd%s://127.0.0.1:%d", server->tls ? "s" : "",
             server->port);
    return server;
}

void etcd_server_pause(struct etcd_server *server)
{
    int status = 0;
    kill(server->pid, SIGSTOP);
    must(waitpid(server->pid, &status, WUNTRACED) == server->pid && WIFSTOPPED(status));
}

void etcd_server_resume(struct etcd_server *server)
{
    int status = 0;
    kill(server->pid, SIGCONT);
    must(waitpid(server->pid, &status, WCONTINUED) == server->pid && WIFCONTINUED(status));
}

void etcd_server_kill(struct etcd_server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void etcd_server_restart(struct etcd_server *server)
{
    etcd_server_kill(server);
    launch(server);
    must(server->pid != 0);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

static void remove_all(const struct etcd_server *server, const char *name)
{
    char path[96];
    snprintf(path, sizeof path, "%s/%s", server->folder, name);
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void etcd_server_forget(struct etcd_server *server)
{
    etcd_server_kill(server);
    remove_all(server, "data");
    etcd_server_restart(server);
}

void etcd_server_replace(struct etcd_server *server)
{
    etcd_server_kill(server);
    remove_all(server, "data");
    server->peer_port = free_port();
    etcd_server_restart(server);
}

static void copy(const struct etcd_server *server, const char *from, const char *to)
{
    char paths[2][96];
    int status;
    snprintf(paths[0], sizeof paths[0], "%s/%s", server->folder, from);
    snprintf(paths[1], sizeof paths[1], "%s/%s", server->folder, to);
    fflush(NULL);
    pid_t pid = child_fork();
    if (pid == 0) {
        execlp("cp", "cp", "-a", paths[0], paths[1], (char *)NULL);
        _exit(127);
    }
    must(waitpid(pid, &status, 0) == pid && status == 0);
}

void etcd_server_save(struct etcd_server *server)
{
    etcd_server_kill(server);
    remove_all(server, "saved");
    copy(server, "data", "saved");
    etcd_server_restart(server);
}

void etcd_server_restore(struct etcd_server *server)
{
    etcd_server_kill(server);
    remove_all(server, "data");
    copy(server, "saved", "data");
    etcd_server_restart(server);
}

void etcd_server_free(struct etcd_server *server)
{
    etcd_server_kill(server);
    nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(server);
}

int etcd_server_port(const struct etcd_server *server)
{
    return server->port;
}

const char *etcd_server_folder(const struct etcd_server *server)
{
    return server->folder;
}

const char *etcd_server_url(const struct etcd_server *server)
{
    return server->url;
}
