/* SPDX-License-Identifier: Apache-2.0
 *
 * See server.h.
 */
#include "server.h"

#include "child.h"
#include "must.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGS_MAX 48
#define FOLDER_MAX 96 /* a socket's path has 108 bytes at most */
#define FOLDER "/dlock-test-XXXXXX"
#define MARK "the-monitor's-mark"

struct server {
    pid_t pid; /* 0 if it does not run */
    int port;
    bool sentinel;
    char folder[FOLDER_MAX];
    char socket[FOLDER_MAX + sizeof "/redis.sock"];
    char url[64];
    redisContext *own; /* the test's connection; NULL if it must be opened */
    redisReply *reply;
};

/* ---- The process ----------------------------------------------------------------------------- */

/* The names of the last ports are held while this process lives: a server may be away for a while,
 * and another process must not draw its port then. */
static bool reserve(int port)
{
    static int held[64];
    static size_t next;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int size = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "lockladder-port-%d", port);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)size);
    if (bind(fd, (struct sockaddr *)&name, length) != 0) {
        close(fd);
        return false;
    }
    if (held[next] > 0)
        close(held[next]);
    held[next] = fd;
    next = (next + 1) % (sizeof held / sizeof held[0]);
    return true;
}

int free_port(void)
{
    static unsigned seed;
    if (seed == 0)
        seed = (unsigned)getpid() * 2654435761u;
    for (;;) {
        int port = 12000 + rand_r(&seed) % 10000;
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        must(fd >= 0);
        bool is_free = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
        if (is_free && reserve(port))
            return port;
    }
}

/* The program to start: REDIS_SERVER can name another one. */
static const char *program(void)
{
    const char *named = getenv("REDIS_SERVER");
    return named != NULL && *named != '\0' ? named : "redis-server";
}

static void become(const char *const *argv)
{
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    fprintf(stderr, "cannot start %s: %s; install its package, or name another in REDIS_SERVER\n",
            argv[0], strerror(errno));
    _exit(127);
}

static void become_sentinel(const struct server *server)
{
    char file[FOLDER_MAX + sizeof "/sentinel.conf"];
    snprintf(file, sizeof file, "%s/sentinel.conf", server->folder);
    become((const char *const[]){program(), file, "--sentinel", NULL});
}

static void become_redis(const struct server *server, const char *const *args)
{
    char port[16];
    if (server->sentinel)
        become_sentinel(server);
    snprintf(port, sizeof port, "%d", server->port);
    const char *argv[ARGS_MAX] = {
        program(),      "--port",    port,           "--bind", "127.0.0.1", "--unixsocket",
        server->socket, "--dir",     server->folder, "--save", "",          "--appendonly",
        "no",           "--logfile", "log"};
    size_t count = 15;
    for (; args != NULL && *args != NULL; args++) {
        must(count < ARGS_MAX - 1);
        argv[count++] = *args;
    }
    become(argv);
}

static bool running(struct server *server)
{
    if (server->pid != 0 && waitpid(server->pid, NULL, WNOHANG) == server->pid)
        server->pid = 0;
    return server->pid != 0;
}

static void forget_connection(struct server *server)
{
    if (server->reply != NULL)
        freeReplyObject(server->reply);
    if (server->own != NULL)
        redisFree(server->own);
    server->reply = NULL;
    server->own = NULL;
}

/* Whether the server has closed the test's connection: Sentinel's commands do, at a fail-over. */
static bool is_closed(const struct server *server)
{
    char byte;
    return recv(server->own->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN;
}

static bool connected(struct server *server)
{
    if (server->own != NULL && server->own->err == 0 && !is_closed(server))
        return true;
    forget_connection(server);
    server->own = redisConnectUnix(server->socket);
    must(server->own != NULL);
    redisSetTimeout(server->own, (struct timeval){.tv_sec = PATIENCE_MS / 1000});
    return server->own->err == 0;
}

/* Whether it answers at all: it may be loading, or require a password. */
static bool answers(struct server *server)
{
    if (!connected(server))
        return false;
    if (server->reply != NULL)
        freeReplyObject(server->reply);
    server->reply = redisCommand(server->own, "PING");
    return server->reply != NULL;
}

static void begin(struct server *server, const char *const *args)
{
    fflush(NULL);
    server->pid = child_fork();
    if (server->pid == 0)
        become_redis(server, args);
}

static void launch(struct server *server, const char *const *args)
{
    begin(server, args);
    /* If another process took the port meanwhile, redis-server ends, and is not `running`. */
    eventually(!running(server) || answers(server));
}

static struct server *server_prepare(void)
{
    struct server *server = calloc(1, sizeof *server);
    must(server != NULL);
    const char *where = getenv("TMPDIR");
    bool fits = where != NULL && strlen(where) <= FOLDER_MAX - sizeof FOLDER;
    snprintf(server->folder, sizeof server->folder, "%s" FOLDER, fits ? where : "/tmp");
    must(mkdtemp(server->folder) != NULL);
    snprintf(server->socket, sizeof server->socket, "%s/redis.sock", server->folder);
    return server;
}

static void write_sentinel_file(const struct server *server, int master_port)
{
    char path[FOLDER_MAX + sizeof "/sentinel.conf"];
    snprintf(path, sizeof path, "%s/sentinel.conf", server->folder);
    FILE *file = fopen(path, "w");
    must(file != NULL);
    fprintf(file,
            "port %d\nbind 127.0.0.1\nunixsocket %s\ndir %s\nlogfile log\n"
            "sentinel monitor shop 127.0.0.1 %d 2\n"
            "sentinel down-after-milliseconds shop 20000\n"
            "sentinel failover-timeout shop 10000\n",
            server->port, server->socket, server->folder, master_port);
    must(fclose(file) == 0);
}

struct server *server_start_sentinel(int master_port)
{
    struct server *server = server_prepare();
    server->sentinel = true;
    for (int tries = 0; server->pid == 0; tries++) {
        must(tries < 10);
        server->port = free_port();
        write_sentinel_file(server, master_port);
        launch(server, NULL);
    }
    snprintf(server->url, sizeof server->url, "sentinel://127.0.0.1:%d/shop", server->port);
    return server;
}

struct server *server_start(const char *const *args)
{
    struct server *server = server_prepare();
    for (int tries = 0; server->pid == 0; tries++) {
        must(tries < 10);
        server->port = free_port();
        launch(server, args);
    }
    snprintf(server->url, sizeof server->url, "redis://127.0.0.1:%d", server->port);
    return server;
}

void server_restart_unready(struct server *server, const char *const *args)
{
    server_kill(server);
    launch(server, args);
    must(server->pid != 0);
}

void server_restart_begin(struct server *server, const char *const *args)
{
    server_kill(server);
    begin(server, args);
}

bool server_restarted(struct server *server)
{
    must(running(server));
    return answers(server) && server->reply->type == REDIS_REPLY_STATUS;
}

void server_restart(struct server *server, const char *const *args)
{
    server_restart_unready(server, args);
    server_text(server, "PING");
}

void server_kill(struct server *server)
{
    forget_connection(server);
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
    unlink(server->socket);
}

void server_pause(struct server *server)
{
    int status = 0;
    kill(server->pid, SIGSTOP);
    must(waitpid(server->pid, &status, WUNTRACED) == server->pid && WIFSTOPPED(status));
}

void server_resume(struct server *server)
{
    int status = 0;
    kill(server->pid, SIGCONT);
    must(waitpid(server->pid, &status, WCONTINUED) == server->pid && WIFCONTINUED(status));
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where)
{
    (void)info, (void)kind, (void)where;
    return remove(path);
}

void server_free(struct server *server)
{
    if (server == NULL)
        return;
    server_kill(server);
    nftw(server->folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(server);
}

int server_port(const struct server *server)
{
    return server->port;
}

const char *server_url(const struct server *server)
{
    return server->url;
}

const char *server_socket(const struct server *server)
{
    return server->socket;
}

const char *server_folder(const struct server *server)
{
    return server->folder;
}

/* ---- The test's own commands ----------------------------------------------------------------- */

static const redisReply *ask(struct server *server, const char *format, va_list arguments)
{
    must(connected(server));
    if (server->reply != NULL)
        freeReplyObject(server->reply);
    server->reply = redisvCommand(server->own, format, arguments);
    if (server->reply == NULL)
        fprintf(stderr, "%s: %s\n", format, server->own->errstr);
    must(server->reply != NULL);
    return server->reply;
}

const redisReply *server_try(struct server *server, const char *command)
{
    if (!connected(server))
        return NULL;
    if (server->reply != NULL)
        freeReplyObject(server->reply);
    server->reply = redisCommand(server->own, command);
    return server->reply;
}

const redisReply *server_ask(struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const redisReply *reply = ask(server, format, arguments);
    va_end(arguments);
    return reply;
}

long long server_integer(struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const redisReply *reply = ask(server, format, arguments);
    va_end(arguments);
    if (reply->type != REDIS_REPLY_INTEGER)
        fprintf(stderr, "%s: %s\n", format, reply->str != NULL ? reply->str : "(no integer)");
    must(reply->type == REDIS_REPLY_INTEGER);
    return reply->integer;
}

const char *server_text(struct server *server, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const redisReply *reply = ask(server, format, arguments);
    va_end(arguments);
    if (reply->type == REDIS_REPLY_NIL)
        return "";
    if (reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "%s: %s\n", format, reply->str);
    must(reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_STATUS);
    return reply->str;
}

long long server_us(struct server *server)
{
    const redisReply *now = server_ask(server, "TIME");
    return atoll(now->element[0]->str) * 1000000 + atoll(now->element[1]->str);
}

void server_refuse_writes(struct server *server, bool refuse)
{
    server_text(server, "CONFIG SET min-replicas-to-write %d", refuse);
}

/* ---- What the server carries out ------------------------------------------------------------- */

struct monitor {
    struct server *server;
    redisContext *context;
    char **lines;
    size_t count;
};

struct monitor *monitor_start(struct server *server)
{
    struct monitor *monitor = calloc(1, sizeof *monitor);
    must(monitor != NULL);
    monitor->server = server;
    monitor->context = redisConnectUnix(server->socket);
    must(monitor->context != NULL && monitor->context->err == 0);
    redisSetTimeout(monitor->context, (struct timeval){.tv_sec = PATIENCE_MS / 1000});
    redisReply *reply = redisCommand(monitor->context, "MONITOR");
    must(reply != NULL && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    return monitor;
}

/* Reads up to a mark that is sent now: it then has all commands that were carried out before. */
static void catch_up(struct monitor *monitor)
{
    server_text(monitor->server, "ECHO %s", MARK);
    for (;;) {
        redisReply *reply = NULL;
        must(redisGetReply(monitor->context, (void **)&reply) == REDIS_OK);
        bool mark = strstr(reply->str, MARK) != NULL;
        if (!mark) {
            monitor->lines = realloc(monitor->lines, (monitor->count + 1) * sizeof *monitor->lines);
            must(monitor->lines != NULL);
            monitor->lines[monitor->count++] = strdup(reply->str);
        }
        freeReplyObject(reply);
        if (mark)
            return;
    }
}

size_t monitor_count(struct monitor *monitor, const char *text)
{
    size_t count = 0;
    catch_up(monitor);
    for (size_t i = 0; i < monitor->count; i++)
        count += strcasestr(monitor->lines[i], text) != NULL;
    return count;
}

void monitor_free(struct monitor *monitor)
{
    for (size_t i = 0; i < monitor->count; i++)
        free(monitor->lines[i]);
    free(monitor->lines);
    redisFree(monitor->context);
    free(monitor);
}
