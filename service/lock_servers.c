/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_servers.h.
 */
#include "lock_servers.h"

#include "lock_meter.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum server_role lock_servers_role(const struct dlock_rung *rung)
{
    const struct engine *engine = engine_of_rung(rung);
    return engine != NULL ? (enum server_role)(ROLE_ENGINES + (engine - engines))
           : rung->quorum ? ROLE_LOCK_SERVERS
                          : ROLE_LOCK;
}

/* The URLs of those servers. */
static char *const *urls_of(const struct config *config, enum server_role role, size_t *count)
{
    if (role == ROLE_LOCK_SERVERS) {
        *count = config->lock_url_count;
        return config->lock_urls;
    }
    char *const *url =
        role == ROLE_LOCK ? &config->lock_redis : &config->engine_urls[role - ROLE_ENGINES];
    *count = *url != NULL;
    return url;
}

static bool name_one(const struct lock_servers *locks, const char *url,
                     char name[STOCK_SERVERS_MAX + 1])
{
    _Static_assert(ENGINE_NAME_MAX == STOCK_SERVERS_MAX, "both are names of servers");
    if (locks->engine != NULL)
        return engine_name(locks->engine, url, name);
    store_server_name(url, name);
    return true;
}

static int compare_names(const void *one, const void *two)
{
    return strcmp(*(char *const *)one, *(char *const *)two);
}

/* False: they are too long for `all`, or out of memory. */
static bool name_all(struct lock_servers *locks, char *const *urls)
{
    for (size_t i = 0; i < locks->count; i++) {
        char name[STOCK_SERVERS_MAX + 1];
        locks->names[i] = name_one(locks, urls[i], name) ? strdup(name) : NULL;
        if (locks->names[i] == NULL)
            return false;
    }
    char *sorted[LOCK_SERVERS_MAX];
    memcpy(sorted, locks->names, sizeof sorted);
    qsort(sorted, locks->count, sizeof *sorted, compare_names);
    locks->all[0] = '\0';
    for (size_t i = 0; i < locks->count; i++)
        if (!text_join(locks->all, sizeof locks->all, ",", sorted[i]))
            return false;
    return true;
}

bool lock_servers_init(struct lock_servers *locks, const struct config *config,
                       enum server_role role, struct store_server *stock_server, char *error,
                       size_t error_size)
{
    char *const *urls = urls_of(config, role, &locks->count);
    locks->role = role;
    locks->engine = role >= ROLE_ENGINES ? &engines[role - ROLE_ENGINES] : NULL;
    locks->apart = role != ROLE_LOCK || strcmp(config->lock_redis, config->stock_redis) != 0;
    if (!name_all(locks, urls)) {
        snprintf(error, error_size,
                 "the addresses of the lock's servers have more than %d characters together, or an "
                 "ensemble has more than %d hosts; give fewer, or shorter ones, such as names from "
                 "/etc/hosts",
                 STOCK_SERVERS_MAX, ENGINE_HOSTS_MAX);
        return false;
    }
    for (size_t i = 0; i < locks->count && locks->engine == NULL; i++) {
        struct store_options options = {.url = urls[i],
                                        .what = "lock",
                                        .timeout_ms = config->redis_timeout_ms,
                                        .votes = role == ROLE_LOCK_SERVERS,
                                        .sentinel_user = text_or_null(config->sentinel_user),
                                        .sentinel_password =
                                            text_or_null(config->sentinel_password)};
        locks->servers[i] = locks->apart ? store_server_new(&options) : stock_server;
        if (locks->servers[i] == NULL) {
            snprintf(error, error_size, "out of memory");
            return false;
        }
    }
    return true;
}

bool lock_servers_open(struct lock_servers *locks, const struct config *config,
                       const struct dlock_options *options)
{
    struct dlock_options all = *options;
    all.servers = (const char *const *)urls_of(config, locks->role, &all.server_count);
    all.on_event_arg = locks;
    if (locks->role != ROLE_LOCK) { /* no replica counts */
        all.replicas_ack = DLOCK_REPLICAS_NONE;
        all.replicas = 0;
    }
    if (locks->engine != NULL) {
        all.engine = locks->engine->get();
        all.sentinel_user = all.sentinel_password = NULL;
        all.on_trace = NULL; /* it tells commands of Redis */
    }
    return dlock_client_open(&all, &locks->client) == DLOCK_OK;
}

void lock_servers_use(struct lock_servers *locks, bool used)
{
    if (locks->engine == NULL || used == (locks->open != NULL))
        return;
    dlock_close(locks->open);
    locks->open = NULL;
    if (used && dlock_open(locks->client, locks->engine->name, "lock:{open}", &locks->open) !=
                    DLOCK_OK) /* sales say why */
        locks->open = NULL;
}

void lock_servers_close(struct lock_servers *locks)
{
    lock_servers_use(locks, false);
    dlock_client_close(locks->client);
    locks->client = NULL;
}

void lock_servers_free(struct lock_servers *locks)
{
    for (size_t i = 0; i < locks->count; i++) {
        if (locks->apart)
            store_server_free(locks->servers[i]);
        free(locks->names[i]);
    }
    locks->count = 0;
}

bool lock_servers_find_twins(const struct lock_servers *locks, char *text, size_t size)
{
    for (size_t i = 1; i < locks->count; i++) {
        const uint64_t process = store_server_process(locks->servers[i]);
        for (size_t j = 0; process != 0 && j < i; j++) {
            if (store_server_process(locks->servers[j]) != process)
                continue;
            snprintf(text, size,
                     "%s and %s are the same server; each server may be named only once",
                     store_server_shown(locks->servers[j]), store_server_shown(locks->servers[i]));
            return true;
        }
    }
    return false;
}

void lock_servers_note(struct lock_servers *locks, const dlock_hold *hold)
{
    const int64_t left_ms = dlock_remaining_ms(hold);
    if (left_ms != DLOCK_NEVER_EXPIRES && left_ms > atomic_load(&locks->valid_ms))
        atomic_store(&locks->valid_ms, left_ms);
}

/* dlock_error() without the lock's name, which says nothing to a reader. */
static const char *error_without(const char *name)
{
    const char *error = dlock_error();
    const size_t size = strlen(name);
    const bool named = error[0] == '\'' && strncmp(error + 1, name, size) == 0 &&
                       strncmp(error + 1 + size, "': ", 3) == 0;
    return named ? error + size + strlen("'': ") : error;
}

dlock_status lock_servers_try(struct lock_servers *locks, const char *who, int64_t timeout_ms,
                              dlock_cancel *cancel, char error[STOCK_ERROR_MAX])
{
    char name[96];
    struct dlock_want want = {.size = sizeof want, .call_max_ms = timeout_ms, .cancel = cancel};
    dlock *lock = NULL;
    dlock_hold *hold = NULL;
    snprintf(name, sizeof name, "lock:{%s}:%s", who, dlock_client_id(locks->client));
    dlock_status status = dlock_open(locks->client, locks->engine->name, name, &lock);
    if (status == DLOCK_OK)
        status = dlock_acquire(lock, &want, &hold);
    if (status == DLOCK_BUSY)
        snprintf(error, STOCK_ERROR_MAX, "%.400s has not confirmed a lock within %lld ms",
                 locks->all, (long long)timeout_ms);
    else if (status != DLOCK_OK)
        snprintf(error, STOCK_ERROR_MAX, "%s", error_without(name));
    if (hold != NULL) {
        lock_servers_note(locks, hold);
        lock_meter_check();
        dlock_status released = dlock_release(hold, NULL);
        if (released != DLOCK_OK && released != DLOCK_LOST) { /* they are away since */
            status = released;
            snprintf(error, STOCK_ERROR_MAX, "%s", error_without(name));
        }
    }
    dlock_close(lock);
    return status;
}

size_t lock_servers_needed(size_t count)
{
    return count / 2 + 1;
}
