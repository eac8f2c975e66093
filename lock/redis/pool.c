/* SPDX-License-Identifier: Apache-2.0
 *
 * See pool.h. Last in, first out: when few connections are needed, the same few are used.
 */
#include "pool.h"

#include "clock.h"
#include "script.h"
#include "status.h"

#include <stdlib.h>
#include <string.h>

#define ERRANDS_MAX 4096

struct errand {
    STAILQ_ENTRY(errand) of_pool;
    const struct redis *redis;
    uint32_t servers;
    int argc;
    const char *argv[COMMAND_WORDS_MAX]; /* in `text` */
    char text[];
};

bool pool_init(struct pool *pool, struct redis_config *config, size_t max)
{
    *pool = (struct pool){.config = config, .max = max};
    pool->idle = calloc(max, sizeof *pool->idle);
    STAILQ_INIT(&pool->errands);
    pthread_mutex_init(&pool->mutex, NULL);
    cond_init(&pool->returned);
    return pool->idle != NULL;
}

/* The mutex is held, or the pool ends. NULL: there is none for this connection. */
static struct errand *take_errand(struct pool *pool, const struct redis *redis)
{
    struct errand *errand;
    STAILQ_FOREACH(errand, &pool->errands, of_pool)
        if (errand->redis == redis)
            break;
    if (errand == NULL)
        return NULL;
    STAILQ_REMOVE(&pool->errands, errand, errand, of_pool);
    pool->errand_count--;
    return errand;
}

void pool_destroy(struct pool *pool)
{
    for (size_t i = 0; i < pool->idle_count; i++)
        redis_free(pool->idle[i]);
    free(pool->idle);
    while (!STAILQ_EMPTY(&pool->errands))
        free(take_errand(pool, STAILQ_FIRST(&pool->errands)->redis));
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->returned);
}

static bool is_idle(const struct pool *pool, const struct redis *redis)
{
    for (size_t i = 0; i < pool->idle_count; i++)
        if (pool->idle[i] == redis)
            return true;
    return false;
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

/* It stays in its place, with the mutex held: a call that found no idle connection would make
 * another one. */
void pool_catch_up(struct pool *pool, const struct redis *redis)
{
    pthread_mutex_lock(&pool->mutex);
    for (size_t i = 0; i < pool->idle_count; i++)
        if (pool->idle[i] == redis)
            redis_catch_up(pool->idle[i]);
    pthread_mutex_unlock(&pool->mutex);
}

static void run_errand(struct redis *redis, struct errand *errand)
{
    redis_go_on(redis);
    for (size_t i = 0; i < redis_nodes(redis); i++)
        if ((errand->servers >> i & 1) != 0)
            redis_append(redis, i, errand->argc, errand->argv, NULL);
    redis_send(redis);
    redis_go_on(redis); /* no answer is awaited */
    for (size_t i = 0; i < redis_nodes(redis); i++)
        if ((errand->servers >> i & 1) != 0)
            redis_keep(redis, i, errand->argc, errand->argv, false);
    free(errand);
}

void pool_give(struct pool *pool, struct redis *redis)
{
    struct errand *errand;
    pthread_mutex_lock(&pool->mutex);
    while ((errand = take_errand(pool, redis)) != NULL) {
        pthread_mutex_unlock(&pool->mutex);
        run_errand(redis, errand);
        pthread_mutex_lock(&pool->mutex);
    }
    size_t slot = pool->idle_count++;
    if (!redis_up(redis)) { /* at the bottom, so that connected ones are taken first */
        memmove(pool->idle + 1, pool->idle, slot * sizeof *pool->idle);
        slot = 0;
    }
    pool->idle[slot] = redis;
    pthread_cond_signal(&pool->returned);
    pthread_mutex_unlock(&pool->mutex);
}

static struct errand *errand_new(const struct redis *redis, uint32_t servers, int argc,
                                 const char *const *argv)
{
    size_t size = 0;
    for (int i = 0; i < argc; i++)
        size += strlen(argv[i]) + 1;
    struct errand *errand = argc <= COMMAND_WORDS_MAX ? calloc(1, sizeof *errand + size) : NULL;
    if (errand == NULL)
        return NULL;
    errand->redis = redis;
    errand->servers = servers;
    errand->argc = argc;
    char *text = errand->text;
    for (int i = 0; i < argc; i++) {
        errand->argv[i] = strcpy(text, argv[i]);
        text += strlen(text) + 1;
    }
    return errand;
}

void pool_send_later(struct pool *pool, const struct redis *redis, uint32_t servers, int argc,
                     const char *const *argv)
{
    struct errand *errand = errand_new(redis, servers, argc, argv);
    struct redis *idle = NULL;
    if (errand == NULL)
        return;
    pthread_mutex_lock(&pool->mutex);
    if (pool->errand_count < ERRANDS_MAX) {
        STAILQ_INSERT_TAIL(&pool->errands, errand, of_pool);
        pool->errand_count++;
        errand = NULL;
    }
    if (is_idle(pool, redis)) /* it came back meanwhile */
        idle = pool_pick(pool, redis);
    pthread_mutex_unlock(&pool->mutex);
    free(errand);
    if (idle != NULL)
        pool_give(pool, idle);
}
