/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock.h. hiredis does the talking, blocking.
 */
#include "stock.h"

#include "../lock/redis/reply_text.h"
#include "clock.h"
#include "host.h"
#include "script.h"
#include "stock_url.h"

#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define ARGUMENTS_MAX 12 /* of a script, its keys included */
#define STOCK_MOST 9007199254740991 /* 2^53 - 1: a double, which Lua counts in, is exact up to here */

struct stock_server {
    struct stock_url url;
    struct host *host; /* NULL: a unix socket */
    int64_t timeout_ms;
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;
    void (*on_connection)(void *arg, bool works);
    void *on_connection_arg;
};

struct stock {
    struct stock_server *server;
    redisContext *context; /* NULL: not connected */
    bool ready;            /* connected and logged in */
    bool refused;          /* see stock_refused */
    int64_t timeout_ms;
    int end_fd; /* see stock_end_by; -1: none */
    struct stock_doubt self; /* this connection */
    struct stock_doubt lost; /* the one whose reply was lost last */
    char code[16];   /* the first word of the error that answered the latest command; "": none */
    uint64_t newest; /* see stock_newest */
    char error[256];
};

/* ---- Servers and connections ----------------------------------------------------------------- */

struct stock_server *stock_server_new(const struct stock_options *options)
{
    struct stock_server *server = calloc(1, sizeof *server);
    if (server == NULL || !stock_url_parse(options->url, &server->url))
        goto failed;
    if (server->url.host != NULL &&
        (server->host = host_new(server->url.host, server->url.port)) == NULL)
        goto failed;
    server->timeout_ms = options->timeout_ms;
    server->on_trace = options->on_trace;
    server->on_trace_arg = options->on_trace_arg;
    server->on_connection = options->on_connection;
    server->on_connection_arg = options->on_connection_arg;
    return server;
failed:
    stock_server_free(server);
    return NULL;
}

void stock_server_free(struct stock_server *server)
{
    if (server == NULL)
        return;
    host_free(server->host);
    stock_url_free(&server->url);
    free(server);
}

struct stock *stock_new(struct stock_server *server)
{
    struct stock *stock = calloc(1, sizeof *stock);
    if (stock == NULL)
        return NULL;
    stock->server = server;
    stock->timeout_ms = server->timeout_ms;
    stock->end_fd = -1;
    return stock;
}

void stock_limit(struct stock *stock, int64_t timeout_ms)
{
    stock->timeout_ms = timeout_ms;
}

void stock_end_by(struct stock *stock, int fd)
{
    stock->end_fd = fd;
}

static void disconnect(struct stock *stock)
{
    if (stock->context != NULL)
        redisFree(stock->context);
    stock->context = NULL;
    stock->ready = false;
}

void stock_free(struct stock *stock)
{
    if (stock == NULL)
        return;
    disconnect(stock);
    free(stock);
}

const char *stock_error(const struct stock *stock)
{
    return stock->error;
}

static enum stock_status failed(struct stock *stock, enum stock_status status, const char *format,
                                ...) __attribute__((format(printf, 3, 4)));
static enum stock_status failed(struct stock *stock, enum stock_status status, const char *format,
                                ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(stock->error, sizeof stock->error, format, args);
    va_end(args);
    return status;
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* What hiredis says of a time-out is "Resource temporarily unavailable". */
static const char *reason_of(const redisContext *context)
{
    bool timed_out = context->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK);
    return timed_out ? "no answer within the time-out" : context->errstr;
}

/* sent_ns: when it was sent; 0: it was not, or nobody asks. The login is nobody's business: it has
 * a password. */
static void trace(const struct stock *stock, int argc, const char **argv, const redisReply *reply,
                  int64_t sent_ns)
{
    const struct stock_server *server = stock->server;
    if (sent_ns == 0 || !stock->ready)
        return;
    char *sent = command_text(argc, argv, NULL), *text = reply_text(reply);
    struct dlock_trace event = {
        .size = sizeof event,
        .server = server->url.shown,
        .sent = sent != NULL ? sent : "",
        .reply = text != NULL ? text : "",
        .took_us = (now_ns() - sent_ns) / 1000,
    };
    server->on_trace(server->on_trace_arg, &event);
    free(sent);
    free(text);
}

/* The whole reply by then, however slowly it comes. False: the context says why. */
static bool receive(redisContext *context, int end_fd, int64_t by_ns, redisReply **reply)
{
    struct pollfd readable[] = {{.fd = context->fd, .events = POLLIN}, {.fd = end_fd, .events = POLLIN}};
    while (redisGetReplyFromReader(context, (void **)reply) == REDIS_OK) {
        if (*reply != NULL)
            return true;
        int64_t left_ns = by_ns - now_ns();
        int ready = left_ns > 0 ? poll(readable, 2, (int)(left_ns / NS_PER_MS) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready == 0 || readable[1].revents != 0) {
            ready = 0;
            context->err = REDIS_ERR_IO;
            errno = EAGAIN;
        }
        if (ready <= 0 || redisBufferRead(context) != REDIS_OK)
            return false;
    }
    return false;
}

static void tell(const struct stock_server *server, bool works)
{
    if (server->on_connection != NULL)
        server->on_connection(server->on_connection_arg, works);
}

/* The connection is of no use any more. What was sent on it may still be carried out. */
static void give_up(struct stock *stock)
{
    stock->lost = stock->self;
    disconnect(stock);
    tell(stock->server, false);
}

/* hiredis has read more than the replies to what was sent: the rest answers nothing. */
static bool has_surplus(const redisContext *context)
{
    return context->reader->pos < context->reader->len;
}

/* Sends one command and waits for its reply. UNAVAILABLE: nothing was sent; LOST: it was. */
static enum stock_status exchange(struct stock *stock, int argc, const char **argv,
                                  redisReply **reply)
{
    redisContext *context = stock->context;
    const char *shown = stock->server->url.shown;
    const int64_t by_ns = now_ns() + stock->timeout_ms * NS_PER_MS;
    int done = 0;
    bool sent = false;
    int64_t sent_ns = 0;
    *reply = NULL;
    if (has_surplus(context)) {
        give_up(stock);
        return failed(stock, STOCK_UNAVAILABLE, "%s: it sent more replies than it got commands",
                      shown);
    }
    if (redisAppendCommandArgv(context, argc, argv, NULL) != REDIS_OK)
        goto broken;
    while (!done) {
        if (redisBufferWrite(context, &done) != REDIS_OK)
            goto broken;
        if (!sent && stock->server->on_trace != NULL)
            sent_ns = now_ns();
        sent = true;
    }
    if (!receive(context, stock->end_fd, by_ns, reply))
        goto broken;
    trace(stock, argc, argv, *reply, sent_ns);
    return STOCK_OK;
broken:
    failed(stock, STOCK_LOST, "%s: %s", shown, reason_of(context));
    trace(stock, argc, argv, NULL, sent_ns);
    give_up(stock);
    return sent ? STOCK_LOST : STOCK_UNAVAILABLE;
}

/* It runs somebody's script, and answers nothing else until that is done. */
static bool is_busy(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "BUSY ", 5) == 0;
}

/* A setup command: anything but success is "not available". */
static bool set_up(struct stock *stock, int argc, const char **argv)
{
    redisReply *reply;
    if (exchange(stock, argc, argv, &reply) != STOCK_OK)
        return false;
    bool accepted = reply->type != REDIS_REPLY_ERROR;
    if (!accepted)
        failed(stock, STOCK_UNAVAILABLE, "%s: the login was refused: %s", stock->server->url.shown,
               reply->str);
    stock->refused = !accepted && !is_busy(reply);
    freeReplyObject(reply);
    return accepted;
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

/* Instead of an answer: who is here has not logged in, or is one too many. */
static bool is_refusal(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR &&
           (strncmp(reply->str, "NOAUTH ", 7) == 0 || strncmp(reply->str, "ERR max number of clients", 25) == 0);
}

/* Learns the connection's number, for stock_end_doubt. A server that does not tell is used without. False: it did not
 * answer, or refuses this connection. */
static bool identify(struct stock *stock)
{
    redisReply *id = NULL, *info = NULL;
    stock->self = (struct stock_doubt){0};
    bool answered = exchange(stock, 2, (const char *[]){"CLIENT", "ID"}, &id) == STOCK_OK;
    stock->refused = answered && is_refusal(id);
    if (answered && (stock->refused || is_busy(id))) {
        failed(stock, STOCK_UNAVAILABLE, "%s: %s", stock->server->url.shown, id->str);
        answered = false;
    }
    answered = answered && exchange(stock, 2, (const char *[]){"INFO", "server"}, &info) == STOCK_OK;
    if (answered && id->type == REDIS_REPLY_INTEGER && id->integer > 0 && read_run_id(info, stock->self.run_id))
        stock->self.id = id->integer;
    freeReplyObject(id);
    freeReplyObject(info);
    return answered;
}

static bool log_in(struct stock *stock)
{
    const struct stock_url *url = &stock->server->url;
    bool ready = true;
    if (url->password != NULL && url->user != NULL)
        ready = set_up(stock, 3, (const char *[]){"AUTH", url->user, url->password});
    else if (url->password != NULL)
        ready = set_up(stock, 2, (const char *[]){"AUTH", url->password});
    if (ready && url->db != NULL)
        ready = set_up(stock, 2, (const char *[]){"SELECT", url->db});
    return ready && identify(stock);
}

static struct timeval timeval_of(int64_t ms)
{
    return (struct timeval){.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
}

static bool is_made(const redisContext *context)
{
    return context != NULL && context->err == 0;
}

/* Tries the addresses in turn. Each has an equal share of the time that is left: one that swallows
 * everything leaves some for the next. NULL: *why says why there is no address, if it is set. */
static redisContext *make_tcp(struct stock *stock, const char **why)
{
    const int64_t by_ns = now_ns() + stock->timeout_ms * NS_PER_MS;
    struct host_addresses found;
    redisContext *context = NULL;
    *why = host_find(stock->server->host, by_ns, stock->end_fd, &found);
    for (int i = 0; *why == NULL && i < found.count && !is_made(context); i++) {
        int64_t left_ms = (by_ns - now_ns()) / NS_PER_MS / (found.count - i);
        if (context != NULL)
            redisFree(context);
        context = redisConnectWithTimeout(found.list[i], stock->server->url.port,
                                          timeval_of(left_ms > 1 ? left_ms : 1));
    }
    return context;
}

static bool reach(struct stock *stock)
{
    const struct stock_url *url = &stock->server->url;
    const struct timeval timeout = timeval_of(stock->timeout_ms);
    const char *why = NULL;
    redisContext *context = url->path != NULL ? redisConnectUnixWithTimeout(url->path, timeout)
                                              : make_tcp(stock, &why);
    stock->context = context;
    stock->refused = false;
    if (is_made(context) && redisSetTimeout(context, timeout) == REDIS_OK)
        return log_in(stock);
    if (context != NULL)
        why = reason_of(context);
    failed(stock, STOCK_UNAVAILABLE, "%s: %s", url->shown, why != NULL ? why : "out of memory");
    return false;
}

static bool connect_now(struct stock *stock)
{
    stock->ready = reach(stock);
    if (!stock->ready)
        disconnect(stock);
    tell(stock->server, stock->ready);
    return stock->ready;
}

/* A server that restarted has closed its end: seen here, a write is not lost to it. */
static bool is_stale(const struct stock *stock)
{
    char byte;
    ssize_t size = recv(stock->context->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return size >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* An error that says that the key is to blame. */
static bool blames_key(const char *error)
{
    return strncmp(error, "WRONGTYPE", 9) == 0 || strstr(error, "not an integer") != NULL ||
           strstr(error, "overflow") != NULL;
}

static enum stock_status status_of(const char *error)
{
    if (strncmp(error, "STALE", 5) == 0)
        return STOCK_STALE;
    return blames_key(error) ? STOCK_INVALID : STOCK_UNAVAILABLE;
}

/* To a connection that is not known to be dead, and on which no reply is left that the next command
 * would take for its own. */
static bool connected(struct stock *stock)
{
    if (stock->context != NULL && (has_surplus(stock->context) || is_stale(stock)))
        disconnect(stock);
    return stock->context != NULL || connect_now(stock);
}

/* What of an error reply is asked for later. The message in stock->error may be cut off, and begins
 * with a host's name, which may be any word. */
static void take_refusal(struct stock *stock, enum stock_status status, const char *error)
{
    const char *last_word = strrchr(error, ' ');
    snprintf(stock->code, sizeof stock->code, "%.*s", (int)strcspn(error, " "), error);
    if (status == STOCK_STALE)
        stock->newest = last_word != NULL ? strtoull(last_word, NULL, 10) : 0;
    failed(stock, status, "%s: %s", stock->server->url.shown, error);
}

/* One command. Unless OK there is no reply. */
static enum stock_status command(struct stock *stock, int argc, const char **argv,
                                 redisReply **reply)
{
    *reply = NULL;
    stock->code[0] = '\0';
    if (!connected(stock))
        return STOCK_UNAVAILABLE;
    enum stock_status status = exchange(stock, argc, argv, reply);
    if (status != STOCK_OK || (*reply)->type != REDIS_REPLY_ERROR)
        return status;
    status = status_of((*reply)->str);
    take_refusal(stock, status, (*reply)->str);
    freeReplyObject(*reply);
    *reply = NULL;
    return status;
}

/* A script by its SHA1, and in full when the server does not know it. argv: the number of its keys, they, and
 * its arguments. */
static enum stock_status run(struct stock *stock, const struct script *script, int argc,
                             const char **argv, redisReply **reply)
{
    const char *words[ARGUMENTS_MAX + 2] = {"EVALSHA", script->sha1};
    memcpy(words + 2, argv, (size_t)argc * sizeof *argv);
    enum stock_status status = command(stock, argc + 2, words, reply);
    if (status != STOCK_UNAVAILABLE || strcmp(stock->code, "NOSCRIPT") != 0)
        return status;
    words[0] = "EVAL";
    words[1] = script->text;
    return command(stock, argc + 2, words, reply);
}

/* ---- What the shop asks for ------------------------------------------------------------------ */

static bool is_counted(int64_t value)
{
    return value >= -STOCK_MOST && value <= STOCK_MOST;
}

/* What the key holds, from the reply to a read. */
static enum stock_status to_number(struct stock *stock, const char *key, const redisReply *reply,
                                   int64_t *value)
{
    char *end = NULL;
    if (reply->type == REDIS_REPLY_NIL)
        return failed(stock, STOCK_MISSING, "there is no key %s", key);
    errno = 0;
    if (reply->type == REDIS_REPLY_STRING)
        *value = strtoll(reply->str, &end, 10);
    if (end == NULL || end == reply->str || end != reply->str + reply->len || errno != 0 ||
        strchr(" \t\n\v\f\r+", reply->str[0]) != NULL)
        return failed(stock, STOCK_INVALID, "%s holds something that is no whole number", key);
    if (!is_counted(*value))
        return failed(stock, STOCK_INVALID, "%s holds a number beyond %" PRId64, key, (int64_t)STOCK_MOST);
    return STOCK_OK;
}

/* The reply to a write cannot be read: what the write did is not known, as if no reply had come. */
static enum stock_status unreadable(struct stock *stock)
{
    give_up(stock);
    return failed(stock, STOCK_LOST, "%s: the reply to a write cannot be read", stock->server->url.shown);
}

/* Whether INFO says so: a server that does not tell is believed. */
static bool may_evict(const redisReply *info)
{
    const char *text = info->type == REDIS_REPLY_STRING ? info->str : "";
    return strstr(text, "maxmemory_policy:") != NULL &&
           strstr(text, "maxmemory_policy:noeviction") == NULL && strstr(text, "maxmemory:0\r") == NULL;
}

enum stock_status stock_connect(struct stock *stock)
{
    return connected(stock) ? STOCK_OK : STOCK_UNAVAILABLE;
}

bool stock_refused(const struct stock *stock)
{
    return stock->refused;
}

/* A write that writes nothing; once more on a new connection, if this one breaks. */
static enum stock_status touch(struct stock *stock, const char *key)
{
    const char *words[] = {"SETRANGE", key, "0", ""};
    const bool was_idle = stock->context != NULL;
    redisReply *reply;
    enum stock_status status = command(stock, 4, words, &reply);
    if (was_idle && stock->context == NULL)
        status = command(stock, 4, words, &reply);
    freeReplyObject(reply);
    return status == STOCK_INVALID ? STOCK_OK : status;
}

enum stock_status stock_takes_writes(struct stock *stock, const char *key)
{
    const int64_t timeout_ms = stock->timeout_ms;
    if (stock->context != NULL)
        stock->timeout_ms = timeout_ms / 2 + 1;
    enum stock_status status = touch(stock, key);
    stock->timeout_ms = timeout_ms;
    bool refuses_key = status == STOCK_UNAVAILABLE && strcmp(stock->code, "NOPERM") == 0;
    return refuses_key ? STOCK_OK : status;
}

enum stock_status stock_check(struct stock *stock, const char *key)
{
    redisReply *reply;
    enum stock_status status = touch(stock, key);
    if (status != STOCK_OK)
        return status;
    status = command(stock, 2, (const char *[]){"INFO", "memory"}, &reply);
    if (status != STOCK_OK)
        return stock->context != NULL ? STOCK_OK : status;
    if (may_evict(reply))
        status = failed(stock, STOCK_UNAVAILABLE, "%s drops keys when its memory is full: set maxmemory-policy noeviction",
                        stock->server->url.shown);
    freeReplyObject(reply);
    return status;
}

/* What the scripts of the fence begin with: the number of their keys, they, and the token. */
static int fence_words(const char *key, const struct stock_fence *fence, char token[24],
                       const char **words)
{
    int count = 0;
    words[count++] = fence->kind == FENCE_LAST_READ ? "3" : "2";
    words[count++] = key;
    words[count++] = fence->key;
    if (fence->kind == FENCE_LAST_READ)
        words[count++] = fence->lock_key;
    snprintf(token, 24, "%" PRIu64, fence->token);
    words[count++] = token;
    return count;
}

/* A command about one key, argv[1]. With a fence it is carried out in the step in which that lets it in. */
static enum stock_status guarded(struct stock *stock, int argc, const char **argv,
                                 const struct stock_fence *fence, redisReply **reply)
{
    static const struct script *const scripts[] = {[FENCE_NEWEST] = &lua_fenced,
                                                   [FENCE_LAST_READ] = &lua_fenced_apart,
                                                   [FENCE_LAST_WRITE] = &lua_fenced_textbook};
    const char *words[ARGUMENTS_MAX];
    char token[24];
    if (fence == NULL)
        return command(stock, argc, argv, reply);
    int count = fence_words(argv[1], fence, token, words);
    words[count++] = argv[0];
    memcpy(words + count, argv + 2, (size_t)(argc - 2) * sizeof *argv);
    return run(stock, scripts[fence->kind], count + argc - 2, words, reply);
}

uint64_t stock_newest(const struct stock *stock)
{
    return stock->newest;
}

/* What the stock is after a write, if that was carried out. */
static enum stock_status take_after(struct stock *stock, enum stock_status status, redisReply *reply, int64_t *after)
{
    if (status != STOCK_OK)
        return status;
    bool readable = reply->type == REDIS_REPLY_INTEGER && is_counted(reply->integer);
    if (readable)
        *after = reply->integer;
    freeReplyObject(reply);
    return readable ? STOCK_OK : unreadable(stock);
}

enum stock_status stock_read(struct stock *stock, const char *key, const struct stock_fence *fence,
                             int64_t *value)
{
    const char *words[ARGUMENTS_MAX];
    char token[24];
    redisReply *reply;
    enum stock_status status;
    if (fence != NULL && fence->kind == FENCE_LAST_READ)
        status = run(stock, &lua_fenced_read, fence_words(key, fence, token, words), words, &reply);
    else
        status = command(stock, 2, (const char *[]){"GET", key}, &reply);
    if (status == STOCK_OK)
        status = to_number(stock, key, reply, value);
    freeReplyObject(reply);
    return status;
}

enum stock_status stock_decrement(struct stock *stock, const char *key, int64_t quantity,
                                  const struct stock_fence *fence, int64_t *after)
{
    char number[24];
    redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, quantity);
    const char *argv[] = {quantity == 1 ? "DECR" : "DECRBY", key, number};
    enum stock_status status = guarded(stock, quantity == 1 ? 2 : 3, argv, fence, &reply);
    return take_after(stock, status, reply, after);
}

/* SET takes over whatever the key holds. */
static enum stock_status set(struct stock *stock, const char *key, int64_t value,
                             const struct stock_fence *fence)
{
    char number[24];
    redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, value);
    enum stock_status status =
        guarded(stock, 3, (const char *[]){"SET", key, number}, fence, &reply);
    if (status != STOCK_OK)
        return status;
    bool readable = reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
    freeReplyObject(reply);
    return readable ? STOCK_OK : unreadable(stock);
}

enum stock_status stock_write(struct stock *stock, const char *key, int64_t value)
{
    return set(stock, key, value, NULL);
}

enum stock_status stock_replace(struct stock *stock, const char *key, int64_t value,
                                const struct stock_fence *fence, int64_t *before)
{
    char number[24];
    redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, value);
    const char *argv[] = {"SET", key, number, "GET"};
    enum stock_status status = guarded(stock, 4, argv, fence, &reply);
    if (status != STOCK_OK || to_number(stock, key, reply, before) != STOCK_OK)
        *before = STOCK_NONE;
    bool readable = status != STOCK_OK || reply->type == REDIS_REPLY_STRING || reply->type == REDIS_REPLY_NIL;
    freeReplyObject(reply);
    if (!readable)
        return unreadable(stock);
    /* SET with GET refuses a key of another type; a plain SET takes it over. */
    return status == STOCK_INVALID ? set(stock, key, value, fence) : status;
}

enum stock_status stock_add(struct stock *stock, const char *key, int64_t quantity,
                            const struct stock_fence *fence, int64_t *after)
{
    char number[24];
    redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, quantity);
    enum stock_status status =
        guarded(stock, 3, (const char *[]){"INCRBY", key, number}, fence, &reply);
    return take_after(stock, status, reply, after);
}

struct stock_doubt stock_doubt(const struct stock *stock)
{
    return stock->lost;
}

enum stock_status stock_end_doubt(struct stock *stock, const struct stock_doubt *doubt)
{
    char id[24];
    redisReply *reply;
    const char *shown = stock->server->url.shown;
    if (!connected(stock))
        return STOCK_UNAVAILABLE;
    if (doubt->id == 0 || stock->self.id == 0)
        return failed(stock, STOCK_LOST, "%s does not tell the numbers of its connections", shown);
    if (strcmp(doubt->run_id, stock->self.run_id) != 0) /* the write may be in what it was started with, or replicated */
        return failed(stock, STOCK_LOST, "%s is another process by now", shown);
    snprintf(id, sizeof id, "%lld", doubt->id);
    if (exchange(stock, 4, (const char *[]){"CLIENT", "KILL", "ID", id}, &reply) != STOCK_OK)
        return STOCK_UNAVAILABLE;
    /* 1: now; 0: it had ended before */
    bool ended = reply->type == REDIS_REPLY_INTEGER && (reply->integer == 0 || reply->integer == 1);
    bool busy = is_busy(reply);
    if (!ended)
        failed(stock, STOCK_LOST, "%s does not end connections: %s", shown,
               reply->type == REDIS_REPLY_ERROR ? reply->str : "it answered something else");
    freeReplyObject(reply);
    return ended ? STOCK_OK : busy ? STOCK_UNAVAILABLE : STOCK_LOST;
}

enum stock_status stock_shut_out(struct stock *stock, const struct stock_fence *fence)
{
    char token[24], why[sizeof stock->error];
    redisReply *reply;
    memcpy(why, stock->error, sizeof why);
    snprintf(token, sizeof token, "%" PRIu64, fence->token);
    enum stock_status status =
        run(stock, &lua_fenced_off, 3, (const char *[]){"1", fence->key, token}, &reply);
    if (status == STOCK_OK && reply->type != REDIS_REPLY_NIL)
        status = unreadable(stock);
    freeReplyObject(reply);
    memcpy(stock->error, why, sizeof why);
    return status;
}

/* The step that sells says that it found too little. Unless that is so, nothing that it says is believed. */
static enum stock_status to_few(struct stock *stock, const char *key, int64_t quantity, const redisReply *reply,
                                int64_t *found)
{
    enum stock_status status = reply->type == REDIS_REPLY_STRING ? to_number(stock, key, reply, found) : STOCK_LOST;
    return status != STOCK_OK ? status : *found < quantity ? STOCK_TOO_FEW : STOCK_LOST;
}

/* What is left, {what was too few}, or nil. LOST: anything else. */
static enum stock_status to_taken(struct stock *stock, const char *key, int64_t quantity, const redisReply *reply,
                                  int64_t *before)
{
    if (reply->type == REDIS_REPLY_NIL)
        return to_number(stock, key, reply, before);
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements == 1)
        return to_few(stock, key, quantity, reply->element[0], before);
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0 || reply->integer > STOCK_MOST - quantity)
        return STOCK_LOST;
    *before = reply->integer + quantity;
    return STOCK_OK;
}

enum stock_status stock_take(struct stock *stock, const char *key, int64_t quantity,
                             int64_t *before)
{
    char number[24];
    redisReply *reply;
    snprintf(number, sizeof number, "%" PRId64, quantity);
    enum stock_status status = run(stock, &lua_sell, 3, (const char *[]){"1", key, number}, &reply);
    if (status != STOCK_OK)
        return status;
    status = to_taken(stock, key, quantity, reply, before);
    freeReplyObject(reply);
    return status == STOCK_LOST ? unreadable(stock) : status;
}

/* ---- Sales with a key ------------------------------------------------------------------------ */

/* The number at the beginning of *text, which goes behind the space that ends it. */
static bool take_word(const char **text, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(*text, &end, 10);
    bool taken = end != *text && **text != ' ' && *end == ' ' && errno == 0;
    *text = end + 1;
    return taken;
}

/* Whether sell_once.lua keeps such an answer: nobody is told that it is sold out while there is something. */
static bool is_answer(int64_t code, int64_t left)
{
    return is_counted(left) && ((code == 200 && left >= 0) || (code == 409 && left <= 0));
}

/* "SELLER MARK" or "SELLER", to the end. */
static bool take_seller(const char *text, struct stock_record *record)
{
    size_t size = strcspn(text, " ");
    const char *mark = text + size + (text[size] == ' ');
    if (size == 0 || size > STOCK_SELLER_MAX || (text[size] == ' ') != (mark[0] != '\0') ||
        strspn(mark, "0123456789abcdef") != strlen(mark) || strlen(mark) > 16)
        return false;
    snprintf(record->seller, sizeof record->seller, "%.*s", (int)size, text);
    record->mark = strtoull(mark, NULL, 16);
    return true;
}

/* "200 QUANTITY LEFT SELLER MARK" or "409 QUANTITY LEFT SELLER MARK", as sell_once.lua writes it. */
static enum stock_status to_record(struct stock *stock, const char *record_key,
                                   const redisReply *reply, struct stock_record *record)
{
    const char *text = reply->type == REDIS_REPLY_STRING ? reply->str : "";
    int64_t code = 0;
    bool whole = take_word(&text, &code) && take_word(&text, &record->quantity) &&
                 take_word(&text, &record->left) && is_answer(code, record->left) &&
                 take_seller(text, record) && strlen(reply->str) == reply->len;
    if (!whole)
        return failed(stock, STOCK_INVALID, "%s holds something that no sale has left there",
                      record_key);
    record->code = (int)code;
    return STOCK_OK;
}

enum stock_status stock_recall(struct stock *stock, const char *record_key,
                               struct stock_record *record)
{
    redisReply *reply;
    enum stock_status status = command(stock, 2, (const char *[]){"GET", record_key}, &reply);
    if (status != STOCK_OK)
        return status;
    bool none = reply->type == REDIS_REPLY_NIL ||
                (reply->type == REDIS_REPLY_STRING && reply->len == 0); /* as lua/sell_once.lua leaves it */
    status = none ? STOCK_MISSING : to_record(stock, record_key, reply, record);
    freeReplyObject(reply);
    return status;
}

static bool is_pair(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->type == REDIS_REPLY_STRING &&
           reply->element[1]->type == REDIS_REPLY_STRING;
}

/* {what, text}, or nil. LOST: anything else. */
static enum stock_status to_once(struct stock *stock, const struct stock_once *once,
                                 const redisReply *reply, struct stock_record *record, bool *kept)
{
    if (reply->type == REDIS_REPLY_NIL)
        return failed(stock, STOCK_MISSING, "there is no key %s", once->key);
    if (!is_pair(reply))
        return STOCK_LOST;
    const char *what = reply->element[0]->str;
    if (strcmp(what, "few") == 0)
        return to_few(stock, once->key, once->quantity, reply->element[1], &record->left);
    *kept = strcmp(what, "kept") == 0;
    enum stock_status status = to_record(stock, once->record_key, reply->element[1], record);
    if (*kept)
        return status;
    bool made = strcmp(what, "made") == 0 && status == STOCK_OK && record->mark == once->mark;
    return !made ? STOCK_LOST : record->code == 409 ? STOCK_TOO_FEW : STOCK_OK;
}

enum stock_status stock_sell_once(struct stock *stock, const struct stock_once *once,
                                  struct stock_record *record, bool *kept)
{
    const struct stock_fence *fence = once->fence;
    bool apart = fence != NULL && fence->kind == FENCE_LAST_READ;
    const char *words[ARGUMENTS_MAX];
    char quantity[24], seller[STOCK_SELLER_MAX + 24], keep_ms[24], token[24];
    int count = 0;
    redisReply *reply;
    snprintf(seller, sizeof seller, "%s %016" PRIx64, once->seller, once->mark);
    snprintf(quantity, sizeof quantity, "%" PRId64, once->quantity);
    snprintf(keep_ms, sizeof keep_ms, "%" PRId64, once->keep_ms);
    snprintf(token, sizeof token, "%" PRIu64, fence != NULL ? fence->token : 0);
    words[count++] = fence == NULL ? "2" : apart ? "4" : "3";
    words[count++] = once->key;
    words[count++] = once->record_key;
    if (fence != NULL)
        words[count++] = fence->key;
    if (apart)
        words[count++] = fence->lock_key;
    words[count++] = quantity;
    words[count++] = seller;
    words[count++] = keep_ms;
    words[count++] = token;
    enum stock_status status = run(stock, &lua_sell_once, count, words, &reply);
    if (status != STOCK_OK)
        return status;
    status = to_once(stock, once, reply, record, kept);
    freeReplyObject(reply);
    return status == STOCK_LOST ? unreadable(stock) : status;
}
