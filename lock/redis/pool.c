/* SPDX-License-Identifier: Apache-2.0
 *
 * See pool.h. Last in, first out: when few connections are needed, the same few are used.
 */
#include "pool.h"

#include "clock.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

bool pool_init(struct pool *pool, struct redis_config *config, size_t max)
{
    *pool = (struct pool){.config = config, .max = max};
    pool->idle = calloc(max, sizeof *pool->idle);
    pthread_mutex_init(&pool->mutex, NULL);
    cond_init(&pool->returned);
    return pool->idle != NULL;
}

void pool_destroy(struct pool *pool)
{
    for (size_t i = 0; i < pool->idle_count; i++)
        redis_free(pool->idle[i]);
    free(pool->idle);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->returned);
}

/* Takes one of the idle connections. */
static struct redis *pool_pick(struct pool *pool, const struct redis *wanted)
{
    size_t place = pool->idle_count - 1;
    for (size_t i = 0; wanted != NULL && i < pool->idle_count; i++)
        if (pool->idle[i] == wanted)
            place = i;
    struct redis *redis = pool->idle[place];
    pool->idle_count--;
    memmove(pool->idle + place, pool->idle + place + 1,
            (pool->idle_count - place) * sizeof *pool->idle);
    return redis;
}

dlock_status pool_take(struct pool *pool, const struct redis *wanted, int64_t deadline_ns,
                       struct redis **redis)
{
    struct timespec deadline = timespec_of(deadline_ns);
    int waited = 0;
    *redis = NULL;
    pthread_mutex_lock(&pool->mutex);
    while (pool->idle_count == 0 && pool->made == pool->max && waited == 0)
        waited = pthread_cond_timedwait(&pool->returned, &pool->mutex, &deadline);
    bool may_create = false;
    if (pool->idle_count > 0)
        *redis = pool_pick(pool, wanted);
    else if (pool->made < pool->max) {
        pool->made++;
        may_create = true;
    }
    pthread_mutex_unlock(&pool->mutex);
    if (*redis != NULL)
        return DLOCK_OK;
    if (!may_create)
        return fail(DLOCK_LIMIT, "all %zu connections (connections_max) are in use", pool->max);
    *redis = redis_new(pool->config);
    if (*redis != NULL)
        return DLOCK_OK;
    pthread_mutex_lock(&pool->mutex);
    pool->made--;
    pthread_cond_signal(&pool->returned); /* a waiter may make one */
    pthread_mutex_unlock(&pool->mutex);
    return fail(DLOCK_NO_MEMORY, "out of memory");
}

struct redis *pool_take_up(struct pool *pool)
{
    struct redis *redis = NULL;
    pthread_mutex_lock(&pool->mutex);
    if (pool->idle_count > 0 && redis_up(pool->idle[pool->idle_count - 1]))
        redis = pool->idle[--pool->idle_count];
    pthread_mutex_unlock(&pool->mutex);
    return redis;
}

void pool_give(struct pool *pool, struct redis *redis)
{
    pthread_mutex_lock(&pool->mutex);
    size_t slot = pool->idle_count++;
    if (!redis_up(redis)) { /* at the bottom, so that connected ones are taken first */
        memmove(pool->idle + 1, pool->idle, slot * sizeof *pool->idle);
        slot = 0;
    }
    pool->idle[slot] = redis;
    pthread_cond_signal(&pool->returned);
    pthread_mutex_unlock(&pool->mutex);
}
