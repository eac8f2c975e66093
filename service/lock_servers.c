/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_servers.h.
 */
#include "lock_servers.h"

#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The URLs of those servers. */
static char *const *urls_of(const struct config *config, enum redis_role role)
{
    return role == REDIS_LOCK_SERVERS ? config->lock_urls : &config->lock_redis;
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
        stock_server_name(urls[i], name);
        locks->names[i] = strdup(name);
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

bool lock_servers_init(struct lock_servers *locks, const struct config *config, bool several,
                       struct stock_server *stock_server, char *error, size_t error_size)
{
    locks->role = several ? REDIS_LOCK_SERVERS : REDIS_LOCK;
    locks->count = several ? config->lock_url_count : 1;
    locks->apart = several || strcmp(config->lock_redis, config->stock_redis) != 0;
    char *const *urls = urls_of(config, locks->role);
    if (!name_all(locks, urls)) {
        snprintf(error, error_size,
                 "the addresses of the lock's servers have more than %d characters together; give "
                 "shorter ones, such as names from /etc/hosts",
                 STOCK_SERVERS_MAX);
        return false;
    }
    for (size_t i = 0; i < locks->count; i++) {
        struct stock_options options = {.url = urls[i],
                                        .timeout_ms = config->redis_timeout_ms,
                                        .votes = several,
                                        .sentinel_user = text_or_null(config->sentinel_user),
                                        .sentinel_password =
                                            text_or_null(config->sentinel_password)};
        locks->servers[i] = locks->apart ? stock_server_new(&options) : stock_server;
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
    all.servers = (const char *const *)urls_of(config, locks->role);
    all.server_count = locks->count;
    all.on_event_arg = locks;
    if (locks->count > 1) { /* they are independent: no replica counts */
        all.replicas_ack = DLOCK_REPLICAS_NONE;
        all.replicas = 0;
    }
    return dlock_client_open(&all, &locks->client) == DLOCK_OK;
}

void lock_servers_close(struct lock_servers *locks)
{
    dlock_client_close(locks->client);
    locks->client = NULL;
}

void lock_servers_free(struct lock_servers *locks)
{
    for (size_t i = 0; i < locks->count; i++) {
        if (locks->apart)
            stock_server_free(locks->servers[i]);
        free(locks->names[i]);
    }
    locks->count = 0;
}

bool lock_servers_find_twins(const struct lock_servers *locks, char *text, size_t size)
{
    for (size_t i = 1; i < locks->count; i++) {
        const uint64_t process = stock_server_process(locks->servers[i]);
        for (size_t j = 0; process != 0 && j < i; j++) {
            if (stock_server_process(locks->servers[j]) != process)
                continue;
            snprintf(text, size,
                     "%s and %s are the same server; each server may be named only once",
                     stock_server_shown(locks->servers[j]), stock_server_shown(locks->servers[i]));
            return true;
        }
    }
    return false;
}

size_t lock_servers_needed(size_t count)
{
    return count / 2 + 1;
}
