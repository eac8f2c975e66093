/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine for Redis: its state for a client and for each lock, and its table of functions.
 */
#include "redis_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Clients --------------------------------------------------------------------------------- */

static void engine_free(struct redis_engine *engine)
{
    subscriber_free(&engine->channels);
    subscriber_free(&engine->lists);
    subscriber_free(&engine->signals);
    pool_destroy(&engine->pool);
    redis_free_servers(&engine->config);
    free(engine->config.servers);
    free(engine);
}

static dlock_status read_servers(struct redis_config *config, const char *const *urls, size_t count,
                                 const struct dlock_options *options)
{
    dlock_status status = DLOCK_OK;
    config->servers = calloc(count, sizeof *config->servers);
    if (config->servers == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < count && status == DLOCK_OK; i++) {
        atomic_init(&config->servers[i].replicas, options->replicas);
        status =
            redis_add_server(config, urls[i], options->sentinel_user, options->sentinel_password);
    }
    return status;
}

static dlock_status redis_engine_open(struct dlock_client *client, const char *const *urls,
                                      size_t count)
{
    const struct dlock_options *options = &client->options;
    struct redis_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    engine->config.connect_timeout_ms = options->connect_timeout_ms;
    engine->config.command_timeout_ms = options->command_timeout_ms;
    engine->config.replicas_ack = options->replicas_ack;
    engine->config.on_trace = options->on_trace;
    engine->config.on_trace_arg = options->on_trace_arg;
    engine->config.keeps = timekeeper_send_kept;
    engine->config.outages.tell = timekeeper_notice;
    engine->config.outages.arg = &client->timekeeper;
    subscriber_init(&engine->channels, WAIT_CHANNEL);
    subscriber_init(&engine->lists, WAIT_LIST);
    subscriber_init(&engine->signals, WAIT_SIGNALS);
    dlock_status status = DLOCK_OK;
    if (!pool_init(&engine->pool, &engine->config, options->connections_max))
        status = fail(DLOCK_NO_MEMORY, "out of memory");
    if (status == DLOCK_OK)
        status = read_servers(&engine->config, urls, count, options);
    if (status == DLOCK_OK)
        client->engine_state = engine;
    else
        engine_free(engine);
    return status;
}

static void redis_engine_stop(struct dlock_client *client)
{
    redis_stop_servers(&redis_of(client)->config);
}

static void redis_engine_close(struct dlock_client *client)
{
    engine_free(redis_of(client));
    client->engine_state = NULL;
}

static void redis_engine_stats(const struct dlock_client *client, struct dlock_stats *stats)
{
    const struct redis_config *config = &redis_of(client)->config;
    stats->commands = config->commands;
    stats->connects = config->connects;
    stats->connects_failed = config->outages.connects_failed;
    stats->connections_lost = config->outages.lost;
    stats->connections_refused = config->outages.refused;
    stats->connections_restored = config->outages.back;
}

static bool redis_engine_send_kept(struct dlock_client *client)
{
    return pool_send_kept(&redis_of(client)->pool);
}

static int64_t redis_engine_pause_ms(struct dlock_client *client)
{
    return redis_pause_ms(&redis_of(client)->config);
}

static bool begin_batch(struct dlock_batch *batch)
{
    batch_forget(batch);
    return batch->count > 0;
}

/* ---- Locks ----------------------------------------------------------------------------------- */

/* Redis's rule for a hash tag: the first '{' and the next '}', with text between them. */
static bool has_tag(const char *name)
{
    const char *open = strchr(name, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    return close != NULL && close > open + 1;
}

static dlock_status check_lock(const struct dlock_client *client, const struct rung_ops *ops,
                               const char *name)
{
    size_t servers = redis_of(client)->config.server_count;
    const bool has_slot = (ops->traits & TRAIT_QUORUM) == 0; /* several servers are no cluster */
    if (strncmp(name, "dlock:", 6) == 0)
        return fail(
            DLOCK_INVALID,
            "'%s' begins with 'dlock:', which is reserved for the library's own keys; choose "
            "another beginning",
            name);
    if (has_slot && ops->beside[0].kind != NULL && strpbrk(name, "{}") != NULL && !has_tag(name))
        return fail(
            DLOCK_INVALID,
            "'%s' has a brace but no hash tag, so the other keys of rung '%s' would not be in "
            "its slot; use a tag, as in lock:{phone}, or no brace",
            name, ops->name);
    if (ops->engine != NULL && ops->engine != &engine_redis)
        return fail(DLOCK_INVALID, "rung '%s' works with %s, and the client's servers are Redis",
                    ops->name, ops->engine->name);
    if (servers > 1 && (ops->traits & (TRAIT_QUORUM | TRAIT_SERVERLESS)) == 0)
        return fail(DLOCK_INVALID,
                    "'%s' works with one server, and the client has %zu; open a client with one of "
                    "them for it",
                    ops->name, servers);
    if ((servers < 3 || servers % 2 == 0) && (ops->traits & TRAIT_QUORUM) != 0)
        return fail(DLOCK_INVALID,
                    "'%s' needs an odd number of servers, 3 to %d, and the client has %zu; open a "
                    "client with so many for it",
                    ops->name, SERVERS_MAX - 1, servers);
    return DLOCK_OK;
}

/* Names the keys beside the lock's own: in its slot, and no other lock's. False: out of memory. */
static bool name_beside(const struct dlock *lock, struct redis_lock *kept)
{
    const struct beside *beside = lock->ops->beside;
    size_t room = strlen(lock->name) + 32;
    if (beside[0].kind == NULL)
        return true;
    kept->beside_text = malloc(BESIDE_MAX * room);
    for (size_t i = 0; kept->beside_text != NULL && beside[i].kind != NULL; i++) {
        char *key = kept->beside_text + i * room;
        snprintf(key, room, has_tag(lock->name) ? "dlock:%s:%s" : "dlock:%s={%s}", beside[i].kind,
                 lock->name);
        kept->beside[i] = key;
    }
    return kept->beside_text != NULL;
}

static void redis_engine_close_lock(struct dlock *lock)
{
    struct redis_lock *kept = redis_lock_of(lock);
    free(kept->beside_text);
    free(kept);
}

static bool redis_engine_open_lock(struct dlock *lock)
{
    struct redis_lock *kept = calloc(1, sizeof *kept);
    if (kept == NULL || !name_beside(lock, kept)) {
        free(kept);
        return false;
    }
    kept->source.lock = lock;
    lock->engine_state = kept;
    lock->beside = kept->beside;
    return true;
}

static unsigned redis_engine_abilities(const struct rung_ops *ops)
{
    unsigned able = 0;
    if (ops->send_acquire != NULL || ops->resolve != NULL)
        able |= ABLE_TO_ASK_AGAIN;
    if (ops->send_give_up != NULL)
        able |= ABLE_TO_GIVE_UP;
    return able;
}

/* ---- The table ------------------------------------------------------------------------------- */

const struct dlock_engine engine_redis = {
    .version = DLOCK_VERSION,
    .name = "Redis",
    .fallback_url = "redis://127.0.0.1:6379/0",
    .open = redis_engine_open,
    .stop = redis_engine_stop,
    .close = redis_engine_close,
    .stats = redis_engine_stats,
    .check_lock = check_lock,
    .open_lock = redis_engine_open_lock,
    .close_lock = redis_engine_close_lock,
    .abilities = redis_engine_abilities,
    .begin_batch = begin_batch,
    .shares = redis_shares,
    .exchange = redis_exchange,
    .send_kept = redis_engine_send_kept,
    .pause_ms = redis_engine_pause_ms,
    .listen = subscriber_listen,
    .forget = subscriber_forget,
    .tend = subscriber_tend,
    .extend = redis_extend,
    .inspect = redis_inspect,
    .break_lock = redis_break,
    .check_beside = redis_check_beside,
    .renewer = &redis_renewer,
};
