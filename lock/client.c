/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients: their options and members.
 */
#include "client.h"
#include "cleanup.h"
#include "structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define REPLICAS_MOST 1000

const char *dlock_version(void)
{
    return DLOCK_VERSION;
}

/* Replaces 0 by the default, then checks the range. */
static dlock_status set_number(int64_t *value, const char *name, int64_t fallback, int64_t most,
                               int64_t least)
{
    if (*value == 0)
        *value = fallback;
    if (*value >= least && *value <= most)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "%s is %lld; it must be %lld to %lld, or 0 for %lld", name,
                (long long)*value, (long long)least, (long long)most, (long long)fallback);
}

static dlock_status set_count(size_t *value, const char *name, size_t fallback, size_t most)
{
    if (*value == 0)
        *value = fallback;
    if (*value <= most)
        return DLOCK_OK;
    return fail(DLOCK_INVALID, "%s is %zu; it must be 1 to %zu, or 0 for %zu", name, *value, most,
                fallback);
}

static dlock_status check_replicas(const struct dlock_options *options)
{
    if (options->replicas_ack < DLOCK_REPLICAS_NONE || options->replicas_ack > DLOCK_REPLICAS_ALL)
        return fail(DLOCK_INVALID,
                    "replicas_ack is %d; it must be DLOCK_REPLICAS_NONE (%d) to "
                    "DLOCK_REPLICAS_ALL (%d)",
                    (int)options->replicas_ack, DLOCK_REPLICAS_NONE, DLOCK_REPLICAS_ALL);
    if (options->replicas > REPLICAS_MOST)
        return fail(DLOCK_INVALID,
                    "replicas is %zu; it must be 1 to %d, or 0 with "
                    "DLOCK_REPLICAS_NONE or sentinel://",
                    options->replicas, REPLICAS_MOST);
    if (options->replicas_ack == DLOCK_REPLICAS_NONE)
        return DLOCK_OK;
    if (options->server_count > 1)
        return fail(DLOCK_INVALID,
                    "replicas_ack works with one server, and there are %zu; use "
                    "DLOCK_REPLICAS_NONE with several independent servers",
                    options->server_count);
    return DLOCK_OK;
}

static dlock_status check_options(struct dlock_options *options)
{
    dlock_status status;
    if ((status = set_number(&options->connect_timeout_ms, "connect_timeout_ms", 1000, 60000, 1)) !=
            DLOCK_OK ||
        (status = set_number(&options->command_timeout_ms, "command_timeout_ms", 1000, 60000, 1)) !=
            DLOCK_OK ||
        (options->ttl_ms != 0 && /* 0 stays 0: the rung has a default */
         (status = set_number(&options->ttl_ms, "ttl_ms", TTL_MS_DEFAULT, TTL_MS_MOST,
                              TTL_MS_LEAST)) != DLOCK_OK) ||
        (status = set_number(&options->retry_ms, "retry_ms", 20, 60000, 1)) != DLOCK_OK ||
        (status = set_count(&options->connections_max, "connections_max", 64, 10000)) != DLOCK_OK ||
        (status = set_count(&options->contenders, "contenders", 16, CONTENDERS_MOST)) != DLOCK_OK ||
        (status = set_count(&options->waiters_max, "waiters_max", 100000, 1000000)) != DLOCK_OK ||
        (status = set_count(&options->handoff_max, "handoff_max", 64, 1000)) != DLOCK_OK ||
        (status = set_number(&options->handoff_ms, "handoff_ms", 10, 60000, 1)) != DLOCK_OK ||
        (status = set_number(&options->grant_ms, "grant_ms", 200, 60000, 10)) != DLOCK_OK)
        return status;
    if ((status = check_replicas(options)) != DLOCK_OK)
        return status;
    if (options->server_count > SERVERS_MAX)
        return fail(DLOCK_INVALID, "%zu servers; at most %d", options->server_count, SERVERS_MAX);
    if (options->server_count > 0 && options->servers == NULL)
        return fail(DLOCK_INVALID, "server_count is %zu, but servers is NULL",
                    options->server_count);
    if (options->server_count == 0 && options->servers != NULL)
        return fail(DLOCK_INVALID, "server_count is 0, but servers is given; set server_count to "
                                   "the number of URLs in it, or servers to NULL for the default");
    if (options->sentinel_user != NULL && options->sentinel_password == NULL)
        return fail(DLOCK_INVALID, "sentinel_user is given without sentinel_password; give both, "
                                   "or only the password of the user 'default'");
    return DLOCK_OK;
}

/* A version 4 UUID, RFC 9562. */
static dlock_status make_id(char id[37])
{
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != sizeof b)
        return fail(DLOCK_NO_MEMORY, "the system gives no random bytes");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    for (int i = 0, at = 0; i < 16; i++)
        at += snprintf(id + at, 37 - (size_t)at,
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", b[i]);
    return DLOCK_OK;
}

static void client_free(struct dlock_client *client)
{
    completions_free(&client->completions);
    if (client->engine_state != NULL)
        client->engine->close(client);
    pthread_cond_destroy(&client->cleanup_over);
    pthread_cond_destroy(&client->exchange_over);
    pthread_mutex_destroy(&client->mutex);
    free(client);
}

/* An engine is of a package of its own, and shares the library's private structures. */
static dlock_status check_engine(const struct dlock_engine *engine)
{
    if (strcmp(engine->version, DLOCK_VERSION) == 0)
        return DLOCK_OK;
    return fail(DLOCK_INVALID,
                "options.engine is of version %s, and libdlock of " DLOCK_VERSION
                "; install both of one version",
                engine->version);
}

static dlock_status open_engine(struct dlock_client *client)
{
    struct dlock_options *options = &client->options;
    const char *const *urls = options->servers;
    size_t count = options->server_count;
    if (count == 0) {
        urls = &client->engine->fallback_url;
        count = 1;
    }
    options->servers = NULL;
    dlock_status status = client->engine->open(client, urls, count);
    options->sentinel_user = options->sentinel_password = NULL; /* they are the caller's */
    return status;
}

dlock_status dlock_client_open(const struct dlock_options *options, dlock_client **client)
{
    if (!GIVEN(client))
        return DLOCK_INVALID;
    *client = NULL;
    watch_forks();
    struct dlock_client *made = calloc(1, sizeof *made);
    if (made == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = struct_take(&made->options, sizeof made->options, options, "options");
    if (status == DLOCK_OK)
        status = check_options(&made->options);
    if (status == DLOCK_OK && made->options.engine != NULL)
        status = check_engine(made->options.engine);
    if (status != DLOCK_OK) {
        free(made);
        return status;
    }
    made->engine = made->options.engine != NULL ? made->options.engine : &engine_redis;
    made->now_ns = boot_ns;
    made->closes_ns = INT64_MAX;
    made->fork_generation = fork_generation();
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->cleanup_over, NULL);
    pthread_cond_init(&made->exchange_over, NULL);
    status = loop_init(&made->loop, made);
    if (!completions_init(&made->completions, made->options.own_loop))
        status = fail(DLOCK_NO_MEMORY, "no memory or descriptor is left");
    if (status == DLOCK_OK)
        status = make_id(made->id); /* an engine may choose a server by it */
    if (status == DLOCK_OK)
        status = open_engine(made);
    if (status == DLOCK_OK)
        status = timekeeper_start(&made->timekeeper, made);
    if (status != DLOCK_OK) {
        loop_stop(&made->loop);
        client_free(made);
        return status;
    }
    *client = made;
    return DLOCK_OK;
}

const char *dlock_client_id(const dlock_client *client)
{
    return client != NULL ? client->id : "";
}

void dlock_client_stats(const dlock_client *client, struct dlock_stats *stats)
{
    if (client == NULL || stats == NULL)
        return;
    struct dlock_stats all = {
        .acquired = client->acquired,
        .attempts = client->attempts,
        .released = client->released,
        .renewals = client->renewals,
        .renewals_failed = client->renewals_failed,
        .lost = client->lost,
        .unknown = client->unknown,
        .abandoned = client->abandoned,
        .scripts_loaded = client->scripts_loaded,
        .contended = client->contended,
        .handoffs = client->handoffs,
        .grants_expired = client->grants_expired,
        .missed_wakeups = client->missed_wakeups,
    };
    client->engine->stats(client, &all);
    struct_give(stats, &all, sizeof all);
}

void dlock_client_close(dlock_client *client)
{
    if (client == NULL || check_fork(client) != DLOCK_OK)
        return;
    cleanups_end(client);
    locks_end(client);
    if (client->engine->stop != NULL)
        client->engine->stop(client);
    loop_stop(&client->loop); /* before the timekeeper, to which the loop reports outages */
    timekeeper_stop(&client->timekeeper);
    client_free(client);
}
