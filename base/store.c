/* SPDX-License-Identifier: Apache-2.0
 *
 * See store.h.
 */
#include "store.h"

#include "../lock/clock.h"
#include "../lock/redis/acks.h"
#include "../lock/redis/pool.h"
#include "../lock/redis/redis.h"
#include "../lock/redis/reply_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARED_MAX 2048 /* more than there are workers */

struct store_server {
    struct redis_config config;
    struct server server; /* config's only server */
    struct pool pool;     /* of the connections that workers share */
    const char *what;
    void (*on_connection)(void *arg, bool works);
    void *on_connection_arg;
    _Atomic uint64_t process; /* see store_server_process */
};

struct store {
    struct redis *redis; /* NULL: it shares, and has borrowed none */
    struct store_server *server;
    bool shares; /* see store_new_shared */
    int64_t timeout_ms;
    int end_fd;               /* see store_end_by; -1: none */
    bool refused;             /* see store_refused */
    bool asks_replicas;       /* see store_ask_replicas */
    struct acks acks;         /* of the latest command */
    bool unconfirmed;         /* see store_is_unconfirmed */
    uint64_t pinned;          /* see store_pin; 0: to no master */
    uint64_t lost_count;      /* see store_lost_count */
    struct store_broken lost; /* the latest connection on which a reply was lost */
    char code[16];            /* see store_code */
    char last_word[24];       /* see store_last_word */
    char error[STORE_ERROR_MAX];
};

/* ---- Servers and connections ----------------------------------------------------------------- */

static void store_notify(void *arg, enum outage outage, const char *reason)
{
    const struct store_server *server = arg;
    (void)reason;
    if (server->on_connection != NULL)
        server->on_connection(server->on_connection_arg, outage == OUTAGE_RESTORED);
}

struct store_server *store_server_new(const struct store_options *options)
{
    struct store_server *server = calloc(1, sizeof *server);
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
    server->config.outages.tell = store_notify;
    server->config.outages.arg = server;
    server->what = options->what;
    server->on_connection = options->on_connection;
    server->on_connection_arg = options->on_connection_arg;
    if (complete && redis_add_server(&server->config, options->url, options->sentinel_user,
                                     options->sentinel_password) == DLOCK_OK)
        return server;
    store_server_free(server);
    return NULL;
}

uint64_t store_server_process(const struct store_server *server)
{
    return atomic_load(&server->process);
}

const char *store_server_shown(const struct store_server *server)
{
    return server->server.url.shown;
}

void store_server_stop(struct store_server *server)
{
    redis_stop_servers(&server->config);
}

void store_server_free(struct store_server *server)
{
    if (server == NULL)
        return;
    pool_destroy(&server->pool);
    redis_free_servers(&server->config);
    free(server);
}

void store_server_name(const char *url, char name[STORE_SERVERS_MAX + 1])
{
    struct url parts;
    name[0] = '\0';
    if (url_parse(url, &parts) != DLOCK_OK)
        return;
    const char *db = parts.db != NULL ? parts.db : "0";
    if (parts.master != NULL)
        snprintf(name, STORE_SERVERS_MAX + 1, "%s", parts.shown);
    else if (parts.host != NULL)
        snprintf(name, STORE_SERVERS_MAX + 1, "%s:%s/%s", parts.host, parts.port, db);
    else
        snprintf(name, STORE_SERVERS_MAX + 1, "unix:%s?db=%s", parts.path, db);
    url_free(&parts);
}

bool store_server_is_same(const char *one, const char *two)
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

struct store *store_new_shared(struct store_server *server)
{
    struct store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return NULL;
    store->server = server;
    store->shares = true;
    store->timeout_ms = server->config.command_timeout_ms;
    store->end_fd = -1;
    return store;
}

struct store *store_new(struct store_server *server)
{
    struct store *store = store_new_shared(server);
    if (store == NULL || (store->redis = redis_new(&server->config)) == NULL) {
        free(store);
        return NULL;
    }
    store->shares = false;
    return store;
}

/* An attempt to connect that this call left unfinished would tell a later call an old state. */
static void leave_attempt(struct store *store)
{
    if (!redis_up(store->redis))
        redis_disconnect(store->redis);
}

void store_rest(struct store *store)
{
    if (!store->shares || store->redis == NULL)
        return;
    leave_attempt(store);
    pool_give(&store->server->pool, store->redis);
    store->redis = NULL;
}

void store_free(struct store *store)
{
    if (store == NULL)
        return;
    store_rest(store);
    redis_free(store->redis);
    free(store);
}

void store_limit(struct store *store, int64_t timeout_ms)
{
    store->timeout_ms = timeout_ms;
}

void store_end_by(struct store *store, int fd)
{
    store->end_fd = fd;
}

static bool store_is_connected(const struct store *store)
{
    return store->redis != NULL && redis_up(store->redis);
}

const char *store_code(const struct store *store)
{
    return store->code;
}

const char *store_last_word(const struct store *store)
{
    return store->last_word;
}

const char *store_shown(const struct store *store)
{
    return store_server_shown(store->server);
}

const char *store_error(const struct store *store)
{
    return store->error;
}

bool store_refused(const struct store *store)
{
    return store->refused;
}

void store_say(struct store *store, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(store->error, sizeof store->error, format, args);
    va_end(args);
}

/* Sets store_error(), and returns the status. */
static enum store_status store_failed(struct store *store, enum store_status status,
                                      const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static enum store_status store_failed(struct store *store, enum store_status status,
                                      const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(store->error, sizeof store->error, format, args);
    va_end(args);
    return status;
}

/* ---- Commands -------------------------------------------------------------------------------- */

static int64_t deadline_ns(const struct store *store)
{
    return mono_ns() + store->timeout_ms * NS_PER_MS;
}

/* Whether the server answered, and refused this connection. If it is no master now, it is away. */
static bool is_refusal(const struct redis *redis, dlock_status status, const char *reason)
{
    return (status == DLOCK_REFUSED && !redis_refused_for_now(redis)) ||
           (status == DLOCK_UNREACHABLE && strstr(reason, ": ERR max number of clients") != NULL);
}

/* One that shares gives up a connection that has broken: another one may be there. */
enum store_status store_connect(struct store *store)
{
    dlock_status status = DLOCK_OK;
    if (!store->shares) {
        leave_attempt(store);
        status = redis_ready(store->redis, deadline_ns(store), store->end_fd);
    } else if (store->redis == NULL ||
               !redis_still_up(store->redis, deadline_ns(store), store->end_fd)) {
        store_rest(store);
        status =
            pool_take(&store->server->pool, NULL, deadline_ns(store), store->end_fd, &store->redis);
    }
    store->refused = is_refusal(store->redis, status, dlock_error());
    if (status == DLOCK_OK)
        atomic_store(&store->server->process, redis_connection(store->redis, 0).process);
    return status == DLOCK_OK ? STORE_OK
                              : store_failed(store, STORE_UNAVAILABLE, "%s", dlock_error());
}

static void store_note_broken(struct store *store)
{
    struct connection_id broken = {.id = 0};
    store->lost_count++;
    redis_broken_connection(store->redis, 0, &broken);
    store->lost.id = broken.id;
    store->lost.process = broken.process;
}

/* Sends one command and waits for its reply. STORE_UNAVAILABLE: the command was not sent.
 * STORE_LOST: it was. */
static enum store_status store_exchange(struct store *store, int argc, const char *const *argv,
                                        const redisReply **reply)
{
    redis_begin(store->redis);
    redis_append(store->redis, 0, argc, argv, NULL);
    const int64_t ends_ns = deadline_ns(store);
    store->acks = (struct acks){0};
    if (store->asks_replicas)
        acks_append(&store->acks, store->redis, 1, ends_ns, ACKS_ALWAYS);
    dlock_status status = redis_gather(store->redis, ends_ns, store->end_fd);
    acks_take(&store->acks, store->redis);
    *reply = status == DLOCK_OK ? redis_reply(store->redis, 0, 0) : NULL;
    if (*reply != NULL)
        return STORE_OK;
    const bool sent = status == DLOCK_UNKNOWN;
    if (sent)
        store_note_broken(store);
    store_failed(store, sent ? STORE_LOST : STORE_UNAVAILABLE, "%s", dlock_error());
    return sent ? STORE_LOST : STORE_UNAVAILABLE;
}

/* Whether the error is about the value of the key. */
static bool blames_key(const char *error)
{
    return strncmp(error, "WRONGTYPE", 9) == 0 || strstr(error, "not an integer") != NULL ||
           strstr(error, "overflow") != NULL;
}

/* Keeps the words of an error reply that are asked for later. */
static enum store_status take_refusal(struct store *store, const char *error)
{
    const char *cause = error_cause(error);
    const char *last_word = strrchr(cause, ' ');
    snprintf(store->code, sizeof store->code, "%.*s", (int)strcspn(cause, " "), cause);
    snprintf(store->last_word, sizeof store->last_word, "%s",
             last_word != NULL ? last_word + 1 : "");
    store_say(store, "%s: %s", store_shown(store), error);
    return blames_key(cause) ? STORE_INVALID : STORE_UNAVAILABLE;
}

uint64_t store_master(const struct store *store)
{
    return store->redis != NULL ? redis_generation(store->redis, 0) : 0;
}

void store_pin(struct store *store, uint64_t master)
{
    store->pinned = master;
}

static enum store_status check_master(struct store *store)
{
    if (store->pinned == 0 || store->pinned == store_master(store))
        return STORE_OK;
    return store_failed(store, STORE_UNAVAILABLE,
                        "%s: the sentinels have named another master since the %s was read",
                        store_shown(store), store->server->what);
}

enum store_status store_command(struct store *store, int argc, const char *const *argv,
                                const redisReply **reply)
{
    *reply = NULL;
    store->code[0] = store->last_word[0] = '\0';
    enum store_status status = store_connect(store);
    if (status == STORE_OK)
        status = check_master(store);
    if (status == STORE_OK)
        status = store_exchange(store, argc, argv, reply);
    if (status != STORE_OK || (*reply)->type != REDIS_REPLY_ERROR)
        return status;
    status = take_refusal(store, (*reply)->str);
    *reply = NULL;
    return status;
}

enum store_status store_ask_each(struct store *store, const char *command, const char *const *keys,
                                 size_t count, const redisReply **replies)
{
    enum store_status status = store_connect(store);
    if (status != STORE_OK || count == 0)
        return status;
    redis_begin(store->redis);
    store->acks = (struct acks){0};
    for (size_t i = 0; i < count; i++)
        redis_append(store->redis, 0, 2, (const char *const[]){command, keys[i]}, NULL);
    if (redis_gather(store->redis, deadline_ns(store), store->end_fd) != DLOCK_OK)
        return store_failed(store, STORE_UNAVAILABLE, "%s", dlock_error());
    for (size_t i = 0; i < count; i++)
        replies[i] = redis_reply(store->redis, 0, i);
    return STORE_OK;
}

bool store_ask_replicas(struct store *store, bool ask)
{
    const bool asked = store->asks_replicas;
    store->asks_replicas = ask;
    return asked;
}

bool store_is_confirmed(struct store *store)
{
    if (store->acks.status != DLOCK_OK)
        store_failed(store, STORE_OK, "%s", store->acks.why);
    return store->acks.status == DLOCK_OK;
}

enum store_status store_run(struct store *store, const struct script *script,
                            const char *const *argv, const redisReply **reply)
{
    const char *command[COMMAND_WORDS_MAX];
    int argc = script_command(command, script, argv, false);
    enum store_status status = store_command(store, argc, command, reply);
    if (status == STORE_UNAVAILABLE && strcmp(store->code, "NOSCRIPT") == 0) {
        argc = script_command(command, script, argv, true);
        status = store_command(store, argc, command, reply);
    }
    return status;
}

/* ---- Uncertain outcomes ---------------------------------------------------------------------- */

enum store_status store_unreadable(struct store *store)
{
    redis_distrust(store->redis, 0);
    store_note_broken(store);
    return store_failed(store, STORE_LOST, "%s: the reply to a write cannot be read",
                        store_shown(store));
}

struct store_broken store_broken(const struct store *store)
{
    return store->lost;
}

uint64_t store_lost_count(const struct store *store)
{
    return store->lost_count;
}

enum store_status store_kill_broken(struct store *store, const struct store_broken *of)
{
    struct connection_id broken = {.id = of->id, .process = of->process};
    if (store_connect(store) != STORE_OK)
        return STORE_UNAVAILABLE;
    switch (redis_kill_broken(store->redis, &broken, deadline_ns(store), store->end_fd)) {
    case KILL_DONE:
        return STORE_OK;
    case KILL_UNANSWERED:
        return store_failed(store, STORE_UNAVAILABLE, "%s did not end the connection of the write",
                            store_shown(store));
    case KILL_IMPOSSIBLE:
        break;
    }
    return store_failed(store, STORE_LOST,
                        "%s cannot end the connection of the write: another process answers there "
                        "now, or it refuses CLIENT ID, INFO or CLIENT KILL",
                        store_shown(store));
}

/* ---- Checks --------------------------------------------------------------------------------- */

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
static enum store_status store_touch(struct store *store, const char *key)
{
    const char *words[] = {"SETRANGE", key, "0", ""};
    const bool was_idle = store_is_connected(store);
    const redisReply *reply;
    store->unconfirmed = false;
    enum store_status status = store_command(store, 4, words, &reply);
    if (was_idle && !store_is_connected(store))
        status = store_command(store, 4, words, &reply);
    return status == STORE_INVALID ? STORE_OK : status;
}

/* Replicas are not sent a write that changes nothing. So they are asked about another key. */
static enum store_status store_ask(struct store *store, const char *key)
{
    char asked[64];
    const redisReply *reply;
    const int64_t timeout_ms = store->timeout_ms;
    if (acks_needed(store->redis) == 0)
        return STORE_OK;
    snprintf(asked, sizeof asked, "%s:acks", key);
    /* So they may take as long as after a sale's write. */
    store->timeout_ms = redis_config_of(store->redis)->command_timeout_ms;
    store_ask_replicas(store, true);
    enum store_status status =
        store_command(store, 5, (const char *const[]){"SET", asked, "", "PX", "1000"}, &reply);
    store_ask_replicas(store, false);
    store->timeout_ms = timeout_ms;
    if (status == STORE_UNAVAILABLE && strcmp(store->code, "NOPERM") == 0)
        store_failed(store, status, "%s: its user may not SET %s, by which replicas are asked",
                     store_shown(store), asked);
    store->unconfirmed = status == STORE_OK && !store_is_confirmed(store);
    return store->unconfirmed ? STORE_UNAVAILABLE : status; /* store_error() says why */
}

bool store_is_unconfirmed(const struct store *store)
{
    return store->unconfirmed;
}

enum store_status store_takes_writes(struct store *store, const char *key)
{
    const int64_t timeout_ms = store->timeout_ms;
    if (store_is_connected(store))
        store->timeout_ms = timeout_ms / 2 + 1;
    enum store_status status = store_touch(store, key);
    store->timeout_ms = timeout_ms;
    bool refuses_key = status == STORE_UNAVAILABLE && strcmp(store->code, "NOPERM") == 0;
    return status == STORE_OK || refuses_key ? store_ask(store, key) : status;
}

enum store_status store_check(struct store *store, const char *key)
{
    const redisReply *reply;
    enum store_status status = store_touch(store, key);
    if (status == STORE_OK)
        status = store_ask(store, key);
    if (status != STORE_OK)
        return status;
    status = store_command(store, 2, (const char *const[]){"INFO", "memory"}, &reply);
    if (status != STORE_OK)
        return store_is_connected(store) ? STORE_OK : status;
    if (may_evict(reply))
        status =
            store_failed(store, STORE_UNAVAILABLE,
                         "%s drops keys when its memory is full: set maxmemory-policy noeviction",
                         store_shown(store));
    return status;
}
