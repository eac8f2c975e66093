/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock_redis.h.
 */
#include "stock_redis.h"

#include "../lock/redis/acks.h"
#include "../lock/redis/pool.h"
#include "../lock/redis/redis.h"
#include "../lock/redis/reply_text.h"
#include "../lock/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_MAX 2048 /* more than there are workers */

struct stock_server {
    struct redis_config config;
    struct server server; /* config's only server */
    struct pool pool;     /* of the connections that workers share */
    void (*on_connection)(void *arg, bool works);
    void *on_connection_arg;
    _Atomic uint64_t process; /* see stock_server_process */
};

struct stock {
    struct redis *redis; /* NULL: it shares, and has borrowed none */
    struct stock_server *server;
    bool shares; /* see stock_new_shared */
    int64_t timeout_ms;
    int end_fd;                          /* see stock_end_by; -1: none */
    bool refused;                        /* see stock_refused */
    bool asks_replicas;                  /* see stock_ask_replicas */
    struct acks acks;                    /* of the latest command */
    bool unconfirmed;                    /* see stock_is_unconfirmed */
    uint64_t pinned;                     /* see stock_pin; 0: to no master */
    uint64_t lost_count;                 /* see stock_lost_count */
    struct stock_broken_connection lost; /* the latest connection on which a reply was lost */
    char code[16];                       /* see stock_code */
    bool other_type;                     /* see stock_was_of_other_type */
    char fault[128];                     /* the key that was refused; "": not known */
    uint64_t newest;                     /* see stock_newest */
    int segments;                        /* see stock_segments */
    char error[STOCK_ERROR_MAX];
};

/* ---- Servers and connections ----------------------------------------------------------------- */

static void stock_notify(void *arg, enum outage outage, const char *reason)
{
    const struct stock_server *server = arg;
    (void)reason;
    if (server->on_connection != NULL)
        server->on_connection(server->on_connection_arg, outage == OUTAGE_RESTORED);
}

struct stock_server *stock_server_new(const struct stock_options *options)
{
    struct stock_server *server = calloc(1, sizeof *server);
    if (server == NULL)
        return NULL;
    bool complete = pool_init(&server->pool, &server->config, SHARED_MAX);
    server->config.servers = &server->server;
    server->config.connect_timeout_ms = options->timeout_ms;
    server->config.command_timeout_ms = options->timeout_ms;
    server->config.replicas_ack = options->replicas_ack;
    server->config.checks_votes = options->votes;
    atomic_init(&server->server.replicas, options->replicas);
    server->config.on_trace = options->on_trace;
    server->config.on_trace_arg = options->on_trace_arg;
    server->config.outages.tell = stock_notify;
    server->config.outages.arg = server;
    server->on_connection = options->on_connection;
    server->on_connection_arg = options->on_connection_arg;
    if (complete && redis_add_server(&server->config, options->url, options->sentinel_user,
                                     options->sentinel_password) == DLOCK_OK)
        return server;
    stock_server_free(server);
    return NULL;
}

uint64_t stock_server_process(const struct stock_server *server)
{
    return atomic_load(&server->process);
}

const char *stock_server_shown(const struct stock_server *server)
{
    return server->server.url.shown;
}

void stock_server_stop(struct stock_server *server)
{
    redis_stop_servers(&server->config);
}

void stock_server_free(struct stock_server *server)
{
    if (server == NULL)
        return;
    pool_destroy(&server->pool);
    redis_free_servers(&server->config);
    free(server);
}

void stock_server_name(const char *url, char name[STOCK_SERVERS_MAX + 1])
{
    struct url parts;
    name[0] = '\0';
    if (url_parse(url, &parts) != DLOCK_OK)
        return;
    const char *db = parts.db != NULL ? parts.db : "0";
    if (parts.master != NULL)
        snprintf(name, STOCK_SERVERS_MAX + 1, "%s", parts.shown);
    else if (parts.host != NULL)
        snprintf(name, STOCK_SERVERS_MAX + 1, "%s:%s/%s", parts.host, parts.port, db);
    else
        snprintf(name, STOCK_SERVERS_MAX + 1, "unix:%s?db=%s", parts.path, db);
    url_free(&parts);
}

bool stock_server_is_same(const char *one, const char *two)
{
    struct url first, second;
    if (url_parse(one, &first) != DLOCK_OK)
        return false;
    bool parsed = url_parse(two, &second) == DLOCK_OK;
    bool same = parsed && url_is_same_server(&first, &second);
    if (parsed)
        url_free(&second);
    url_free(&first);
    return same;
}

struct stock *stock_new_shared(struct stock_server *server)
{
    struct stock *stock = calloc(1, sizeof *stock);
    if (stock == NULL)
        return NULL;
    stock->server = server;
    stock->shares = true;
    stock->timeout_ms = server->config.command_timeout_ms;
    stock->end_fd = -1;
    return stock;
}

struct stock *stock_new(struct stock_server *server)
{
    struct stock *stock = stock_new_shared(server);
    if (stock == NULL || (stock->redis = redis_new(&server->config)) == NULL) {
        free(stock);
        return NULL;
    }
    stock->shares = false;
    return stock;
}

/* An attempt to connect that this call left unfinished would tell a later call an old state. */
static void leave_attempt(struct stock *stock)
{
    if (!redis_up(stock->redis))
        redis_disconnect(stock->redis);
}

void stock_rest(struct stock *stock)
{
    if (!stock->shares || stock->redis == NULL)
        return;
    leave_attempt(stock);
    pool_give(&stock->server->pool, stock->redis);
    stock->redis = NULL;
}

void stock_free(struct stock *stock)
{
    if (stock == NULL)
        return;
    stock_rest(stock);
    redis_free(stock->redis);
    free(stock);
}

void stock_limit(struct stock *stock, int64_t timeout_ms)
{
    stock->timeout_ms = timeout_ms;
}

void stock_end_by(struct stock *stock, int fd)
{
    stock->end_fd = fd;
}

static bool stock_is_connected(const struct stock *stock)
{
    return stock->redis != NULL && redis_up(stock->redis);
}

const char *stock_code(const struct stock *stock)
{
    return stock->code;
}

const char *stock_shown(const struct stock *stock)
{
    return stock_server_shown(stock->server);
}

const char *stock_error(const struct stock *stock)
{
    return stock->error;
}

bool stock_refused(const struct stock *stock)
{
    return stock->refused;
}

bool stock_was_of_other_type(const struct stock *stock, const char *key)
{
    return stock->other_type && (stock->fault[0] == '\0' || strcmp(stock->fault, key) == 0);
}

int stock_segments(const struct stock *stock)
{
    return stock->segments;
}

uint64_t stock_newest(const struct stock *stock)
{
    return stock->newest;
}

enum stock_status stock_failed(struct stock *stock, enum stock_status status, const char *format,
                               ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(stock->error, sizeof stock->error, format, args);
    va_end(args);
    return status;
}

/* ---- Commands -------------------------------------------------------------------------------- */

static int64_t deadline_ns(const struct stock *stock)
{
    return mono_ns() + stock->timeout_ms * NS_PER_MS;
}

/* Whether the server answered, and refused this connection. If it is no master now, it is away. */
static bool is_refusal(const struct redis *redis, dlock_status status, const char *reason)
{
    return (status == DLOCK_REFUSED && !redis_refused_for_now(redis)) ||
           (status == DLOCK_UNREACHABLE && strstr(reason, ": ERR max number of clients") != NULL);
}

/* One that shares gives up a connection that has broken: another one may be there. */
enum stock_status stock_connect(struct stock *stock)
{
    dlock_status status = DLOCK_OK;
    if (!stock->shares) {
        leave_attempt(stock);
        status = redis_ready(stock->redis, deadline_ns(stock), stock->end_fd);
    } else if (stock->redis == NULL ||
               !redis_still_up(stock->redis, deadline_ns(stock), stock->end_fd)) {
        stock_rest(stock);
        status =
            pool_take(&stock->server->pool, NULL, deadline_ns(stock), stock->end_fd, &stock->redis);
    }
    stock->refused = is_refusal(stock->redis, status, dlock_error());
    if (status == DLOCK_OK)
        atomic_store(&stock->server->process, redis_connection(stock->redis, 0).process);
    return status == DLOCK_OK ? STOCK_OK
                              : stock_failed(stock, STOCK_UNAVAILABLE, "%s", dlock_error());
}

static void stock_redis_note_broken(struct stock *stock)
{
    struct connection_id broken = {.id = 0};
    stock->lost_count++;
    redis_broken_connection(stock->redis, 0, &broken);
    stock->lost.id = broken.id;
    stock->lost.process = broken.process;
}

/* Sends one command and waits for its reply. STOCK_UNAVAILABLE: the command was not sent.
 * STOCK_LOST: it was. */
static enum stock_status stock_redis_exchange(struct stock *stock, int argc,
                                              const char *const *argv, const redisReply **reply)
{
    redis_begin(stock->redis);
    redis_append(stock->redis, 0, argc, argv, NULL);
    const int64_t ends_ns = deadline_ns(stock);
    stock->acks = (struct acks){0};
    if (stock->asks_replicas)
        acks_append(&stock->acks, stock->redis, 1, ends_ns, ACKS_ALWAYS);
    dlock_status status = redis_gather(stock->redis, ends_ns, stock->end_fd);
    acks_take(&stock->acks, stock->redis);
    *reply = status == DLOCK_OK ? redis_reply(stock->redis, 0, 0) : NULL;
    if (*reply != NULL)
        return STOCK_OK;
    const bool sent = status == DLOCK_UNKNOWN;
    if (sent)
        stock_redis_note_broken(stock);
    stock_failed(stock, sent ? STOCK_LOST : STOCK_UNAVAILABLE, "%s", dlock_error());
    return sent ? STOCK_LOST : STOCK_UNAVAILABLE;
}

/* Whether the error is about the value of the key. */
static bool blames_key(const char *error)
{
    return strncmp(error, "WRONGTYPE", 9) == 0 || strstr(error, "not an integer") != NULL ||
           strstr(error, "overflow") != NULL;
}

static enum stock_status status_of(const char *error)
{
    if (strncmp(error, "STALE ", 6) == 0)
        return STOCK_STALE;
    if (strncmp(error, "EPOCH ", 6) == 0)
        return STOCK_EPOCH;
    if (strncmp(error, "SEGMENTS ", 9) == 0)
        return STOCK_SEGMENTED;
    return blames_key(error) ? STOCK_INVALID : STOCK_UNAVAILABLE;
}

/* The token in the text; 0: there is none. UINT64_MAX: no lock has given it. */
static uint64_t to_token(const char *text)
{
    return strtod(text, NULL) > STOCK_MOST ? UINT64_MAX : strtoull(text, NULL, 10);
}

/* Keeps the parts of an error reply that are asked for later. They cannot be taken from
 * stock->error. That text may be cut off, and begins with a host's name, which may be any word. */
static enum stock_status take_refusal(struct stock *stock, const char *error)
{
    const char *cause = error_cause(error);
    const enum stock_status status = status_of(cause);
    const char *last_word = strrchr(cause, ' ');
    snprintf(stock->code, sizeof stock->code, "%.*s", (int)strcspn(cause, " "), cause);
    stock->other_type = strcmp(stock->code, "WRONGTYPE") == 0;
    if (status == STOCK_STALE)
        stock->newest = last_word != NULL ? to_token(last_word) : 0;
    if (status == STOCK_SEGMENTED)
        stock->segments = last_word != NULL ? atoi(last_word) : 0;
    stock_failed(stock, status, "%s: %s", stock_shown(stock), error);
    return status;
}

uint64_t stock_master(const struct stock *stock)
{
    return stock->redis != NULL ? redis_generation(stock->redis, 0) : 0;
}

void stock_pin(struct stock *stock, uint64_t master)
{
    stock->pinned = master;
}

static enum stock_status check_master(struct stock *stock)
{
    if (stock->pinned == 0 || stock->pinned == stock_master(stock))
        return STOCK_OK;
    return stock_failed(stock, STOCK_UNAVAILABLE,
                        "%s: the sentinels have named another master since the stock was read",
                        stock_shown(stock));
}

enum stock_status stock_command(struct stock *stock, int argc, const char *const *argv,
                                const redisReply **reply)
{
    *reply = NULL;
    stock->code[0] = '\0';
    stock->other_type = false;
    enum stock_status status = stock_connect(stock);
    if (status == STOCK_OK)
        status = check_master(stock);
    if (status == STOCK_OK)
        status = stock_redis_exchange(stock, argc, argv, reply);
    if (status != STOCK_OK || (*reply)->type != REDIS_REPLY_ERROR)
        return status;
    status = take_refusal(stock, (*reply)->str);
    if (argc > 1) /* a script names its keys elsewhere: see find_fault */
        snprintf(stock->fault, sizeof stock->fault, "%s", argv[1]);
    *reply = NULL;
    return status;
}

enum stock_status stock_ask_each(struct stock *stock, const char *command, const char *const *keys,
                                 size_t count, const redisReply **replies)
{
    enum stock_status status = stock_connect(stock);
    if (status != STOCK_OK || count == 0)
        return status;
    redis_begin(stock->redis);
    stock->acks = (struct acks){0};
    for (size_t i = 0; i < count; i++)
        redis_append(stock->redis, 0, 2, (const char *const[]){command, keys[i]}, NULL);
    if (redis_gather(stock->redis, deadline_ns(stock), stock->end_fd) != DLOCK_OK)
        return stock_failed(stock, STOCK_UNAVAILABLE, "%s", dlock_error());
    for (size_t i = 0; i < count; i++)
        replies[i] = redis_reply(stock->redis, 0, i);
    return STOCK_OK;
}

void stock_ask_replicas(struct stock *stock, bool ask)
{
    stock->asks_replicas = ask;
}

bool stock_is_confirmed(struct stock *stock)
{
    if (stock->acks.status != DLOCK_OK)
        stock_failed(stock, STOCK_OK, "%s", stock->acks.why);
    return stock->acks.status == DLOCK_OK;
}

/* ---- Scripts --------------------------------------------------------------------------------- */

#define FAULT_MAX 96

static bool is_token_key(const char *key)
{
    const char *last = strrchr(key, ':');
    return strncmp(key, "dlock:token", 11) == 0 || (last != NULL && strcmp(last, ":fence") == 0);
}

/* See admission_keys. */
static bool is_admission_key(const char *key)
{
    static const char *const ends[] = {"}:set", "}:bucket", "}:window"};
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t size = strlen(key), end = strlen(ends[i]);
        if (size > end && strcmp(key + size - end, ends[i]) == 0)
            return true;
    }
    return false;
}

/* What the server says about the key, if it is of that type; else NULL. */
static const redisReply *ask_about(struct stock *stock, const char *command, const char *key,
                                   int type)
{
    const redisReply *reply;
    stock_command(stock, 2, (const char *const[]){command, key}, &reply);
    return reply != NULL && reply->type == type ? reply : NULL;
}

/* Whether the key is why a script was refused. what: what is wrong with it. */
static bool is_at_fault(struct stock *stock, const char *key, char what[FAULT_MAX])
{
    const char *last_part = strrchr(key, ':');
    const char *needs = strcmp(key, STOCK_EPOCH_KEY) == 0                       ? "hash"
                        : strcmp(key, STOCK_QUEUES_KEY) == 0                    ? "zset"
                        : last_part != NULL && strcmp(last_part, ":queue") == 0 ? "stream"
                                                                                : "string";
    const redisReply *reply = ask_about(stock, "TYPE", key, REDIS_REPLY_STATUS);
    if (reply == NULL || strcmp(reply->str, "none") == 0)
        return false;
    snprintf(what, FAULT_MAX, "is a %.20s, where a %s is needed", reply->str, needs);
    if (strcmp(reply->str, needs) != 0)
        return true;
    reply = is_token_key(key) ? ask_about(stock, "GET", key, REDIS_REPLY_STRING) : NULL;
    if (reply == NULL)
        return false;
    const char *last = strrchr(reply->str, ' ');
    last = last != NULL ? last + 1 : reply->str;
    snprintf(what, FAULT_MAX, "holds %.30s, above all tokens that a lock gives", last);
    return to_token(last) == UINT64_MAX;
}

static void say_cure(const char *key, char *text, size_t size)
{
    static const char tokens[] = "dlock:token";
    const size_t prefix = strlen(tokens);
    if (strcmp(key, STOCK_EPOCH_KEY) == 0)
        snprintf(text, size, "delete it (DEL %s): the next sale or PUT /lock makes a new epoch",
                 key);
    else if (strncmp(key, tokens, prefix) == 0) /* the next token is above both */
        snprintf(text, size, "delete it and its note (DEL %.100s dlock:grant%.100s)", key,
                 key + prefix);
    else
        snprintf(text, size,
                 is_token_key(key) || is_admission_key(key) ? "delete it (DEL %.100s)"
                                                            : "look at it",
                 key);
}

/* A script's error names no key. Finds the one that an operator must mend, if there is one. Then
 * the status is STOCK_INVALID, because to wait does not help. argv: as of stock_run. */
static enum stock_status find_fault(struct stock *stock, enum stock_status status,
                                    const char *const *argv)
{
    const bool asks_replicas = stock->asks_replicas;
    const int count = atoi(argv[0]);
    const char *key = NULL;
    char said[STOCK_ERROR_MAX], what[FAULT_MAX], cure[STOCK_ERROR_MAX / 2];
    const bool other_type = stock->other_type;
    if (!other_type && !(status == STOCK_STALE && stock->newest == UINT64_MAX))
        return status;
    snprintf(said, sizeof said, "%s", stock->error);
    stock_ask_replicas(stock, false);
    /* the stock comes first: of a hash of segments the segment is at fault */
    for (int i = count; i >= 1 && key == NULL; i--)
        key = is_at_fault(stock, argv[i], what) ? argv[i] : NULL;
    stock_ask_replicas(stock, asks_replicas);
    stock->other_type = other_type;
    snprintf(stock->fault, sizeof stock->fault, "%s", key != NULL ? key : "");
    if (key == NULL)
        return stock_failed(stock, status, "%s", said);
    say_cure(key, cure, sizeof cure);
    return stock_failed(stock, STOCK_INVALID, "%s: %.100s %s; an operator must %s",
                        stock_shown(stock), key, what, cure);
}

enum stock_status stock_run(struct stock *stock, const struct script *script,
                            const char *const *argv, const redisReply **reply)
{
    const char *command[COMMAND_WORDS_MAX];
    int argc = script_command(command, script, argv, false);
    enum stock_status status = stock_command(stock, argc, command, reply);
    if (status == STOCK_UNAVAILABLE && strcmp(stock->code, "NOSCRIPT") == 0) {
        argc = script_command(command, script, argv, true);
        status = stock_command(stock, argc, command, reply);
    }
    return find_fault(stock, status, argv);
}

/* ---- Uncertain outcomes ---------------------------------------------------------------------- */

enum stock_status stock_unreadable(struct stock *stock)
{
    redis_distrust(stock->redis, 0);
    stock_redis_note_broken(stock);
    return stock_failed(stock, STOCK_LOST, "%s: the reply to a write cannot be read",
                        stock_shown(stock));
}

struct stock_broken_connection stock_broken_connection(const struct stock *stock)
{
    return stock->lost;
}

uint64_t stock_lost_count(const struct stock *stock)
{
    return stock->lost_count;
}

enum stock_status stock_kill_broken(struct stock *stock, const struct stock_broken_connection *of)
{
    struct connection_id broken = {.id = of->id, .process = of->process};
    if (stock_connect(stock) != STOCK_OK)
        return STOCK_UNAVAILABLE;
    switch (redis_kill_broken(stock->redis, &broken, deadline_ns(stock), stock->end_fd)) {
    case KILL_DONE:
        return STOCK_OK;
    case KILL_UNANSWERED:
        return stock_failed(stock, STOCK_UNAVAILABLE, "%s did not end the connection of the write",
                            stock_shown(stock));
    case KILL_IMPOSSIBLE:
        break;
    }
    return stock_failed(stock, STOCK_LOST,
                        "%s cannot end the connection of the write: another process answers there "
                        "now, or it refuses CLIENT ID, INFO or CLIENT KILL",
                        stock_shown(stock));
}

/* ---- Replies --------------------------------------------------------------------------------- */

bool stock_is_counted(int64_t value)
{
    return value >= -STOCK_MOST && value <= STOCK_MOST;
}

enum stock_status stock_to_number(struct stock *stock, const char *key, const redisReply *reply,
                                  int64_t *value)
{
    int64_t number = 0;
    char text[24] = ""; /* the number as Redis writes it: "05", "-0" and " 5" are none to it */
    if (reply->type == REDIS_REPLY_NIL)
        return stock_failed(stock, STOCK_MISSING, "there is no key %s", key);
    if (reply->type == REDIS_REPLY_STRING) {
        number = strtoll(reply->str, NULL, 10);
        snprintf(text, sizeof text, "%" PRId64, number);
    }
    if (text[0] == '\0' || reply->len != strlen(text) || memcmp(reply->str, text, reply->len) != 0)
        return stock_failed(stock, STOCK_INVALID, "%s does not hold a whole number", key);
    if (!stock_is_counted(number))
        return stock_failed(stock, STOCK_INVALID, "%s holds a number beyond %" PRId64, key,
                            (int64_t)STOCK_MOST);
    *value = number;
    return STOCK_OK;
}

enum stock_status stock_to_few(struct stock *stock, const char *key, int64_t quantity,
                               const redisReply *reply, int64_t *found)
{
    enum stock_status status =
        reply->type == REDIS_REPLY_STRING ? stock_to_number(stock, key, reply, found) : STOCK_LOST;
    return status != STOCK_OK ? status : *found < quantity ? STOCK_INSUFFICIENT : STOCK_LOST;
}

/* Whether INFO says that the server may evict keys. A server that does not say it is trusted. */
static bool may_evict(const redisReply *info)
{
    const char *text = info->type == REDIS_REPLY_STRING ? info->str : "";
    return strstr(text, "maxmemory_policy:") != NULL &&
           strstr(text, "maxmemory_policy:noeviction") == NULL &&
           strstr(text, "maxmemory:0\r") == NULL;
}

/* Sends a write that changes nothing. If an idle connection breaks, sends it once more on a new
 * one. */
static enum stock_status stock_redis_touch(struct stock *stock, const char *key)
{
    const char *words[] = {"SETRANGE", key, "0", ""};
    const bool was_idle = stock_is_connected(stock);
    const redisReply *reply;
    stock->unconfirmed = false;
    enum stock_status status = stock_command(stock, 4, words, &reply);
    if (was_idle && !stock_is_connected(stock))
        status = stock_command(stock, 4, words, &reply);
    return status == STOCK_INVALID ? STOCK_OK : status;
}

/* Replicas are not sent a write that changes nothing. So they are asked about another key. */
static enum stock_status stock_redis_ask(struct stock *stock, const char *key)
{
    char asked[64];
    const redisReply *reply;
    const int64_t timeout_ms = stock->timeout_ms;
    if (acks_needed(stock->redis) == 0)
        return STOCK_OK;
    snprintf(asked, sizeof asked, "%s:acks", key);
    /* So they may take as long as after a sale's write. */
    stock->timeout_ms = redis_config_of(stock->redis)->command_timeout_ms;
    stock_ask_replicas(stock, true);
    enum stock_status status =
        stock_command(stock, 5, (const char *const[]){"SET", asked, "", "PX", "1000"}, &reply);
    stock_ask_replicas(stock, false);
    stock->timeout_ms = timeout_ms;
    if (status == STOCK_UNAVAILABLE && strcmp(stock->code, "NOPERM") == 0)
        stock_failed(stock, status, "%s: its user may not SET %s, by which replicas are asked",
                     stock_shown(stock), asked);
    stock->unconfirmed = status == STOCK_OK && !stock_is_confirmed(stock);
    return stock->unconfirmed ? STOCK_UNAVAILABLE : status; /* stock_error() says why */
}

bool stock_is_unconfirmed(const struct stock *stock)
{
    return stock->unconfirmed;
}

enum stock_status stock_takes_writes(struct stock *stock, const char *key)
{
    const int64_t timeout_ms = stock->timeout_ms;
    if (stock_is_connected(stock))
        stock->timeout_ms = timeout_ms / 2 + 1;
    enum stock_status status = stock_redis_touch(stock, key);
    stock->timeout_ms = timeout_ms;
    bool refuses_key = status == STOCK_UNAVAILABLE && strcmp(stock->code, "NOPERM") == 0;
    return status == STOCK_OK || refuses_key ? stock_redis_ask(stock, key) : status;
}

enum stock_status stock_check(struct stock *stock, const char *key)
{
    const redisReply *reply;
    enum stock_status status = stock_redis_touch(stock, key);
    if (status == STOCK_OK)
        status = stock_redis_ask(stock, key);
    if (status != STOCK_OK)
        return status;
    status = stock_command(stock, 2, (const char *const[]){"INFO", "memory"}, &reply);
    if (status != STOCK_OK)
        return stock_is_connected(stock) ? STOCK_OK : status;
    if (may_evict(reply))
        status =
            stock_failed(stock, STOCK_UNAVAILABLE,
                         "%s drops keys when its memory is full: set maxmemory-policy noeviction",
                         stock_shown(stock));
    return status;
}
