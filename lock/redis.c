/* SPDX-License-Identifier: Apache-2.0
 *
 * See redis.h. A node moves DOWN -> CONNECTING -> LOGIN -> UP; whatever breaks puts it back DOWN.
 */
#include "redis.h"

#include "clock.h"
#include "reply_text.h"
#include "status.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#define REFUSED_MS INT64_C(60000)

enum state { DOWN, CONNECTING, LOGIN, UP };

struct node {
    struct server *server;
    enum state state;
    int fd;
    redisReader *reader;

    struct sockaddr_storage addresses[ADDRESSES_MAX]; /* to try, in turn */
    socklen_t address_sizes[ADDRESSES_MAX];
    size_t address_count;
    size_t address_next;

    char *out; /* not sent yet: [out_sent, out_size) */
    size_t out_size;
    size_t out_sent;
    size_t out_capacity;

    redisReply **replies; /* of this exchange */
    size_t reply_count;
    size_t reply_capacity;
    size_t reply_wanted;
    char **sent_texts; /* of this exchange, for the trace only */
    size_t sent_text_count;
    int64_t sent_ns;
    bool listens; /* messages come between its replies */

    size_t login_size;        /* replies that decide about the login; what follows may be refused */
    struct doubt identity;    /* of this connection */
    struct doubt lost;        /* of the one that broke with a reply missing */
    bool in_doubt;            /* what was sent on that one may still be carried out */

    dlock_status status; /* of this exchange */
    dlock_status down_status;
    char down_reason[128]; /* why it is DOWN */
};

struct redis {
    struct redis_config *config;
    enum resolve resolve;
    size_t node_count;
    struct node nodes[];
};

/* ---- One node -------------------------------------------------------------------------------- */

static void node_close(struct node *node, dlock_status status, const char *reason)
{
    if (node->fd >= 0)
        close(node->fd);
    if (node->reader != NULL)
        redisReaderFree(node->reader);
    if (node->state == UP && !node->listens && !node->in_doubt && node->out_sent > 0 &&
        node->reply_count < node->reply_wanted) {
        node->in_doubt = true;
        node->lost = node->identity;
    }
    node->fd = -1;
    node->reader = NULL;
    node->listens = false;
    node->state = DOWN;
    node->down_status = status;
    snprintf(node->down_reason, sizeof node->down_reason, "%s", reason);
    /* What was under way is decided now: sent and unanswered is unknown, unsent is unreachable. */
    if (node->status == DLOCK_OK && node->reply_count < node->reply_wanted)
        node->status = node->out_sent > 0 ? DLOCK_UNKNOWN : status;
    node->out_size = node->out_sent = 0;
}

static void node_forget(struct node *node)
{
    for (size_t i = 0; i < node->reply_count; i++)
        freeReplyObject(node->replies[i]);
    for (size_t i = 0; i < node->sent_text_count; i++)
        free(node->sent_texts[i]);
    node->sent_text_count = 0;
    node->reply_count = node->reply_wanted = 0;
    node->out_size = node->out_sent = 0;
    node->status = DLOCK_OK;
}

static bool node_keep_reply(struct node *node, redisReply *reply)
{
    if (node->reply_count == node->reply_capacity) {
        size_t capacity = node->reply_capacity * 2 + 8;
        redisReply **more = realloc(node->replies, capacity * sizeof *more);
        if (more == NULL) {
            freeReplyObject(reply);
            return false;
        }
        node->replies = more;
        node->reply_capacity = capacity;
    }
    node->replies[node->reply_count++] = reply;
    return true;
}

static bool node_put(struct node *node, const char *bytes, size_t size)
{
    if (node->out_size + size > node->out_capacity) {
        size_t capacity = (node->out_size + size) * 2;
        char *more = realloc(node->out, capacity);
        if (more == NULL)
            return false;
        node->out = more;
        node->out_capacity = capacity;
    }
    memcpy(node->out + node->out_size, bytes, size);
    node->out_size += size;
    return true;
}

static void node_append(struct node *node, int argc, const char *const *argv, const size_t *sizes)
{
    char *command = NULL;
    long long length =
        redisFormatCommandArgv(&command, argc, (const char **)(uintptr_t)argv, sizes);
    bool put = length > 0 && node_put(node, command, (size_t)length);
    if (length > 0)
        redisFreeCommand(command);
    node->reply_wanted++;
    if (!put)
        node_close(node, DLOCK_NO_MEMORY, "out of memory");
}

static void node_write(struct node *node)
{
    while (node->out_sent < node->out_size) {
        ssize_t sent = send(node->fd, node->out + node->out_sent, node->out_size - node->out_sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (sent < 0) {
            node_close(node, DLOCK_UNREACHABLE, strerror(errno));
            return;
        }
        node->out_sent += (size_t)sent;
    }
}

static _Thread_local void *sends_for;

void redis_send_for(void *user)
{
    sends_for = user;
}

/* index: which command's reply it is; NULL: it was lost. */
static void trace(struct redis *redis, struct node *node, size_t index, const redisReply *reply)
{
    if (index >= node->sent_text_count)
        return;
    char *text = reply_text(reply);
    struct dlock_trace event = {
        .size = sizeof event,
        .server = node->server->url.shown,
        .sent = node->sent_texts[index] != NULL ? node->sent_texts[index] : "?",
        .reply = text != NULL ? text : "?",
        .took_us = (mono_ns() - node->sent_ns) / 1000,
        .user = sends_for,
    };
    redis->config->on_trace(redis->config->on_trace_arg, &event);
    free(text);
}

/* The replies of a connection that is listened on come one by one, and messages in between. */
static void trace_heard(struct redis *redis, struct node *node, const redisReply *reply)
{
    if (node->sent_text_count == 0 ||
        (reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
         reply->element[0]->str != NULL && strcmp(reply->element[0]->str, "message") == 0))
        return;
    trace(redis, node, 0, reply);
    free(node->sent_texts[0]);
    memmove(node->sent_texts, node->sent_texts + 1,
            --node->sent_text_count * sizeof *node->sent_texts);
}

static void node_read(struct redis *redis, struct node *node)
{
    char bytes[16384];
    ssize_t size = recv(node->fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return;
    if (size <= 0) {
        node_close(node, DLOCK_UNREACHABLE,
                   size == 0 ? "the server closed the connection" : strerror(errno));
        return;
    }
    redisReaderFeed(node->reader, bytes, (size_t)size);
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(node->reader, &reply) != REDIS_OK) {
            node_close(node, DLOCK_UNREACHABLE, "the answer is not Redis' protocol");
            return;
        }
        if (reply == NULL)
            break;
        if (!node_keep_reply(node, reply)) {
            node_close(node, DLOCK_NO_MEMORY, "out of memory");
            return;
        }
        if (node->listens)
            trace_heard(redis, node, reply);
        else
            trace(redis, node, node->reply_count - 1, reply);
    }
    if (node->reader->len > REPLY_BYTES_MAX)
        node_close(node, DLOCK_UNREACHABLE, "a reply is larger than 1 MiB");
}

/* ---- Connecting ------------------------------------------------------------------------------ */

/* Finds the server's addresses and keeps them for RESOLVE_NEVER. */
static bool find_addresses(struct redis *redis, struct node *node)
{
    struct server *server = node->server;
    struct addrinfo *found = NULL;
    char reason[128];
    int error = 0;
    if (server->url.path == NULL && redis->resolve == RESOLVE) {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
        error = getaddrinfo(server->url.host, server->url.port, &hints, &found);
    }
    pthread_mutex_lock(&server->mutex);
    if (server->url.path != NULL) {
        struct sockaddr_un *address = (struct sockaddr_un *)&server->addresses[0];
        address->sun_family = AF_UNIX;
        snprintf(address->sun_path, sizeof address->sun_path, "%s", server->url.path);
        server->address_sizes[0] = sizeof *address;
        server->address_count = 1;
    }
    if (found != NULL) {
        server->address_count = 0;
        for (struct addrinfo *a = found; a != NULL && server->address_count < ADDRESSES_MAX;
             a = a->ai_next) {
            memcpy(&server->addresses[server->address_count], a->ai_addr, a->ai_addrlen);
            server->address_sizes[server->address_count++] = a->ai_addrlen;
        }
        freeaddrinfo(found);
    }
    memcpy(node->addresses, server->addresses, sizeof node->addresses);
    memcpy(node->address_sizes, server->address_sizes, sizeof node->address_sizes);
    node->address_count = error == 0 ? server->address_count : 0;
    node->address_next = 0;
    pthread_mutex_unlock(&server->mutex);
    if (node->address_count > 0)
        return true;
    snprintf(reason, sizeof reason, "its host name was not found: %s",
             error != 0 ? gai_strerror(error) : "not looked up yet");
    node_close(node, DLOCK_UNREACHABLE, reason);
    return false;
}

/* Starts to connect to the next address that lets itself be tried. */
static void connect_next(struct node *node, const char *reason)
{
    char last[128];
    snprintf(last, sizeof last, "%s", reason);
    while (node->address_next < node->address_count) {
        node_close(node, DLOCK_UNREACHABLE, last);
        const struct sockaddr *address =
            (const struct sockaddr *)&node->addresses[node->address_next];
        socklen_t size = node->address_sizes[node->address_next++];
        node->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        node->reader = redisReaderCreate();
        if (node->fd >= 0 && node->reader != NULL &&
            (connect(node->fd, address, size) == 0 || errno == EINPROGRESS)) {
            node->state = CONNECTING;
            return;
        }
        snprintf(last, sizeof last, "%s", strerror(errno));
    }
    node_close(node, DLOCK_UNREACHABLE, last);
}

/* A connection that is only listened on would never notice that the other machine is gone. */
static void set_tcp_options(int fd)
{
    static const int on = 1, idle_s = 15, between_s = 5, probes = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* A server that refuses is not asked again for a while: each time is a line in its ACL LOG. */
static bool may_ask(struct server *server, const int64_t *refused_ns)
{
    pthread_mutex_lock(&server->mutex);
    bool may = *refused_ns == 0 || mono_ns() - *refused_ns > REFUSED_MS * NS_PER_MS;
    pthread_mutex_unlock(&server->mutex);
    return may;
}

static void note_refusal(struct server *server, int64_t *refused_ns)
{
    pthread_mutex_lock(&server->mutex);
    *refused_ns = mono_ns();
    pthread_mutex_unlock(&server->mutex);
}

static void login(struct redis *redis, struct node *node)
{
    const struct url *url = &node->server->url;
    if (url->path == NULL)
        set_tcp_options(node->fd);
    atomic_fetch_add_explicit(&redis->config->connects, 1, memory_order_relaxed);
    node->state = LOGIN;
    if (url->password != NULL && url->user != NULL)
        node_append(node, 3, (const char *const[]){"AUTH", url->user, url->password}, NULL);
    else if (url->password != NULL)
        node_append(node, 2, (const char *const[]){"AUTH", url->password}, NULL);
    if (url->db != NULL)
        node_append(node, 2, (const char *const[]){"SELECT", url->db}, NULL);
    node->login_size = node->reply_wanted;
    node->identity = (struct doubt){0};
    if (!may_ask(node->server, &node->server->identity_refused_ns))
        return;
    node_append(node, 2, (const char *const[]){"CLIENT", "ID"}, NULL);
    node_append(node, 2, (const char *const[]){"INFO", "server"}, NULL);
}

/* "run_id:" and 40 hex digits, in a line of its own. */
static bool read_run_id(const redisReply *info, char run_id[41])
{
    static const char key[] = "\nrun_id:";
    const char *at = info->type == REDIS_REPLY_STRING ? strstr(info->str, key) : NULL;
    if (at == NULL || strspn(at + strlen(key), "0123456789abcdef") != 40)
        return false;
    memcpy(run_id, at + strlen(key), 40);
    run_id[40] = '\0';
    return true;
}

/* A script runs: it refuses all, and for now only. */
static bool is_busy(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSY ", 5) == 0;
}

/* What the login's last two replies say. Without it, a doubt of this connection can't be ended. */
static void identify(struct node *node)
{
    const redisReply *const *replies = (const redisReply *const *)node->replies + node->login_size;
    if (node->reply_count != node->login_size + 2)
        return;
    if (replies[0]->type == REDIS_REPLY_INTEGER &&
        read_run_id(replies[1], node->identity.run_id))
        node->identity.id = replies[0]->integer;
    else if (!is_busy(replies[0]))
        note_refusal(node->server, &node->server->identity_refused_ns);
}

/* The connection stands, or the login's replies are here: what follows from it. */
static void connected(struct redis *redis, struct node *node)
{
    if (node->state == CONNECTING) {
        int error = 0;
        socklen_t size = sizeof error;
        if (getsockopt(node->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
        if (error != 0) {
            connect_next(node, strerror(error));
            return;
        }
        login(redis, node);
    }
    if (node->state != LOGIN || node->reply_count < node->reply_wanted)
        return;
    for (size_t i = 0; i < node->login_size; i++) {
        if (node->replies[i]->type != REDIS_REPLY_ERROR)
            continue;
        char reason[128];
        snprintf(reason, sizeof reason, "the login was refused: %s", node->replies[i]->str);
        node_forget(node);
        node_close(node, DLOCK_REFUSED, reason);
        return;
    }
    identify(node);
    node_forget(node);
    node->state = UP;
}

/* ---- All nodes ------------------------------------------------------------------------------- */

static bool settled(const struct node *node)
{
    return node->state == DOWN ||
           (node->state == UP && node->reply_count >= node->reply_wanted);
}

static void step(struct redis *redis, struct node *node, short events)
{
    if (node->state == CONNECTING) {
        if (events != 0)
            connected(redis, node);
        if (node->state != LOGIN)
            return;
    }
    if (node->state != DOWN && node->out_sent < node->out_size)
        node_write(node);
    if (node->state != DOWN && (events & (POLLIN | POLLHUP | POLLERR)) != 0)
        node_read(redis, node);
    if (node->state == LOGIN)
        connected(redis, node);
}

static short interest(const struct node *node)
{
    if (node->state == CONNECTING)
        return POLLOUT;
    return (short)(POLLIN | (node->out_sent < node->out_size ? POLLOUT : 0));
}

/* Lets all nodes go on until they are settled. OK, TIMED_OUT or CANCELLED. What is there already
 * when the deadline has passed still counts. */
static dlock_status pump(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    for (bool over = false;;) {
        struct pollfd polls[SERVERS_MAX + 1];
        struct node *polled[SERVERS_MAX + 1];
        nfds_t count = 0;
        for (size_t i = 0; i < redis->node_count; i++) {
            struct node *node = &redis->nodes[i];
            if (settled(node))
                continue;
            polled[count] = node;
            polls[count++] = (struct pollfd){.fd = node->fd, .events = interest(node)};
        }
        if (count == 0)
            return DLOCK_OK;
        polls[count] = (struct pollfd){.fd = wake_fd, .events = POLLIN};
        int64_t left_ns = deadline_ns - mono_ns();
        if (over)
            return DLOCK_TIMED_OUT;
        over = left_ns <= 0;
        struct timespec left = {0};
        if (!over)
            left = (struct timespec){left_ns / 1000000000, left_ns % 1000000000};
        if (ppoll(polls, count + 1, &left, NULL) <= 0)
            continue;
        for (nfds_t i = 0; i < count; i++)
            if (polls[i].revents != 0)
                step(redis, polled[i], polls[i].revents);
        if (polls[count].revents != 0)
            return DLOCK_CANCELLED;
    }
}

struct redis *redis_new(struct redis_config *config, enum resolve resolve)
{
    struct redis *redis =
        calloc(1, sizeof *redis + config->server_count * sizeof redis->nodes[0]);
    if (redis == NULL)
        return NULL;
    redis->config = config;
    redis->resolve = resolve;
    redis->node_count = config->server_count;
    for (size_t i = 0; i < redis->node_count; i++) {
        redis->nodes[i].server = &config->servers[i];
        redis->nodes[i].fd = -1;
    }
    return redis;
}

void redis_free(struct redis *redis)
{
    if (redis == NULL)
        return;
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        node_forget(node);
        node_close(node, DLOCK_UNREACHABLE, "closed");
        free(node->sent_texts);
        free(node->replies);
        free(node->out);
    }
    free(redis);
}

size_t redis_nodes(const struct redis *redis)
{
    return redis->node_count;
}

void redis_disconnect(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++)
        node_close(&redis->nodes[i], DLOCK_UNREACHABLE, "closed");
}

/* Whether the server has closed the connection, or says something that nobody asked for. */
static bool stale(const struct node *node)
{
    char byte;
    ssize_t size = recv(node->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return size >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

dlock_status redis_ready(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    bool all_up = true;
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        node_forget(node);
        if (node->state == UP && stale(node))
            node_close(node, DLOCK_UNREACHABLE, "the server closed the connection");
        if (node->state == UP)
            continue;
        all_up = false;
        if (find_addresses(redis, node))
            connect_next(node, "no address");
    }
    if (all_up)
        return DLOCK_OK;

    int64_t limit_ns = mono_deadline_ns(redis->config->connect_timeout_ms);
    dlock_status pumped = pump(redis, limit_ns < deadline_ns ? limit_ns : deadline_ns, wake_fd);
    size_t up = 0;
    const struct node *down = NULL;
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        if (node->state != UP && node->state != DOWN) {
            node_forget(node);
            node_close(node, DLOCK_UNREACHABLE,
                       pumped == DLOCK_CANCELLED ? "cancelled" : "connecting took too long");
        }
        if (node->state == UP)
            up++;
        else
            down = node;
    }
    if (up > 0)
        return DLOCK_OK;
    if (pumped == DLOCK_CANCELLED)
        return fail(DLOCK_CANCELLED, "cancelled while connecting to %s", down->server->url.shown);
    return fail(down->down_status, "%s: %s", down->server->url.shown, down->down_reason);
}

void redis_begin(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++) {
        node_forget(&redis->nodes[i]);
        redis->nodes[i].in_doubt = false;
    }
}

void redis_append(struct redis *redis, size_t index, int argc, const char *const *argv,
                  const size_t *sizes)
{
    struct node *node = &redis->nodes[index];
    node_append(node, argc, argv, sizes);
    if (node->state != UP)
        return; /* it will not be sent */
    atomic_fetch_add_explicit(&redis->config->commands, 1, memory_order_relaxed);
    if (redis->config->on_trace == NULL)
        return;
    char **texts = realloc(node->sent_texts, (node->sent_text_count + 1) * sizeof *texts);
    if (texts == NULL)
        return;
    node->sent_texts = texts;
    texts[node->sent_text_count++] = command_text(argc, argv, sizes);
}

void redis_send(struct redis *redis)
{
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        node->sent_ns = mono_ns();
        if (node->state == UP)
            node_write(node);
        else if (node->reply_wanted > 0)
            node->status = node->down_status;
    }
}

dlock_status redis_wait(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    return pump(redis, deadline_ns, wake_fd);
}

static dlock_status settle(struct redis *redis, dlock_status pumped)
{
    dlock_status worst = DLOCK_OK;
    for (size_t i = 0; i < redis->node_count; i++) {
        struct node *node = &redis->nodes[i];
        if (!settled(node))
            node_close(node, DLOCK_UNREACHABLE,
                       pumped == DLOCK_CANCELLED ? "cut off" : "no answer in time");
        if (node->status == DLOCK_OK)
            continue;
        for (size_t lost = node->reply_count; lost < node->reply_wanted; lost++)
            trace(redis, node, lost, NULL);
        if (worst != DLOCK_UNKNOWN)
            worst = fail(node->status, "%s: %s", node->server->url.shown, node->down_reason);
    }
    return worst;
}

dlock_status redis_finish(struct redis *redis)
{
    return settle(redis, DLOCK_TIMED_OUT);
}

dlock_status redis_gather(struct redis *redis, int64_t deadline_ns, int wake_fd)
{
    int64_t limit_ns = mono_deadline_ns(redis->config->command_timeout_ms);
    redis_send(redis);
    return settle(redis, pump(redis, limit_ns < deadline_ns ? limit_ns : deadline_ns, wake_fd));
}

/* ---- Doubts ---------------------------------------------------------------------------------- */

bool redis_doubt(const struct redis *redis, struct doubt *doubt)
{
    for (size_t i = 0; i < redis->node_count; i++) {
        if (!redis->nodes[i].in_doubt)
            continue;
        *doubt = redis->nodes[i].lost;
        doubt->node = i;
        return true;
    }
    return false;
}

/* Whether the node is connected to the very process that the lost connection was to, and that may
 * be asked to end it. Of another process the number may be an innocent's. */
static bool may_kill(const struct node *node, const struct doubt *doubt)
{
    return doubt->id != 0 && node->identity.id != 0 &&
           strcmp(doubt->run_id, node->identity.run_id) == 0 &&
           may_ask(node->server, &node->server->kill_refused_ns);
}

/* 1: it was ended now; 0: it had ended before. What it brought is carried out, or gone. */
static enum doubt_end killed(const struct node *node)
{
    if (node->state != UP || node->reply_count != 1)
        return DOUBT_STAYS;
    if (node->replies[0]->type == REDIS_REPLY_INTEGER)
        return DOUBT_ENDED;
    if (is_busy(node->replies[0]))
        return DOUBT_STAYS;
    note_refusal(node->server, &node->server->kill_refused_ns);
    return DOUBT_FOR_EVER;
}

static enum doubt_end kill_connection(struct redis *redis, struct node *node, long long id,
                                      int64_t deadline_ns, int wake_fd)
{
    char text[24];
    int64_t limit_ns = mono_deadline_ns(redis->config->command_timeout_ms);
    snprintf(text, sizeof text, "%lld", id);
    node_forget(node);
    node_append(node, 4, (const char *const[]){"CLIENT", "KILL", "ID", text}, NULL);
    node_write(node);
    pump(redis, limit_ns < deadline_ns ? limit_ns : deadline_ns, wake_fd);
    enum doubt_end end = killed(node);
    if (!settled(node))
        node_close(node, DLOCK_UNREACHABLE, "no answer in time");
    node_forget(node);
    return end;
}

enum doubt_end redis_end_doubt(struct redis *redis, const struct doubt *doubt, int64_t deadline_ns,
                               int wake_fd)
{
    struct node *node = &redis->nodes[doubt->node];
    char sentence[SENTENCE_MAX];
    enum doubt_end end = DOUBT_STAYS;
    snprintf(sentence, sizeof sentence, "%s", dlock_error());
    if (node->state == UP)
        end = may_kill(node, doubt)
                  ? kill_connection(redis, node, doubt->id, deadline_ns, wake_fd)
                  : DOUBT_FOR_EVER;
    fail(DLOCK_OK, "%s", sentence); /* what went wrong is the exchange */
    return end;
}

/* ---- Listening ------------------------------------------------------------------------------- */

int redis_fd(const struct redis *redis, size_t index)
{
    return redis->nodes[index].state == UP ? redis->nodes[index].fd : -1;
}

static dlock_status listened(struct node *node)
{
    if (node->state == UP)
        return DLOCK_OK;
    node_forget(node);
    return fail(DLOCK_UNREACHABLE, "%s: %s", node->server->url.shown, node->down_reason);
}

dlock_status redis_flush(struct redis *redis, size_t index)
{
    struct node *node = &redis->nodes[index];
    node->listens = true;
    node->sent_ns = mono_ns();
    if (node->state == UP)
        node_write(node);
    if (node->out_sent == node->out_size)
        node->out_sent = node->out_size = 0;
    return listened(node);
}

dlock_status redis_pull(struct redis *redis, size_t index)
{
    struct node *node = &redis->nodes[index];
    for (size_t i = 0; i < node->reply_count; i++)
        freeReplyObject(node->replies[i]);
    node->reply_count = 0;
    if (node->state == UP)
        node_read(redis, node);
    return listened(node);
}

dlock_status redis_status(const struct redis *redis, size_t node)
{
    return redis->nodes[node].status;
}

const redisReply *redis_reply(const struct redis *redis, size_t node, size_t index)
{
    const struct node *from = &redis->nodes[node];
    return index < from->reply_count ? from->replies[index] : NULL;
}

const char *redis_server(const struct redis *redis, size_t node)
{
    return redis->nodes[node].server->url.shown;
}
