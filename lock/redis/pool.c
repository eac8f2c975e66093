/* SPDX-License-Identifier: Apache-2.0
 *
 * See pool.h. Last in, first out: when few connections are needed, the same few are used.
 */
#include "pool.h"

#include "clock.h"
#include "script.h"
#include "status.h"

#include <poll.h>
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
    TAILQ_INIT(&pool->queue);
    pthread_mutex_init(&pool->mutex, NULL);
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
}

/* ---- Lending --------------------------------------------------------------------------------- */

#define STEP_MS 1     /* how long a caller in the queue goes on connecting one more */
#define LOOK_MS 10    /* the pause after such a step */
#define CANCEL_MS 100 /* how often a caller in the queue looks whether it is cancelled */
#define PAUSE_MS 1000 /* after an attempt to connect one more that failed */
#define LAST_MS 50    /* at least, for a caller to connect one after it has waited in vain */
#define ALONE_MS 100  /* in the queue, until a caller connects one of its own meanwhile */
#define ALONE_PART 4  /* at most this part of connect_timeout_ms */

/* The functions below are called with the mutex held, up to pool_await. */

static struct redis *pool_pick(struct pool *pool, size_t place)
{
    struct redis *redis = pool->idle[place];
    pool->idle_count--;
    memmove(pool->idle + place, pool->idle + place + 1,
            (pool->idle_count - place) * sizeof *pool->idle);
    return redis;
}

/* Connected ones are lent first. Below them, the one that was put last comes first: its attempt to
 * connect is the latest. Above them are those that keep a release, because the next call sends it.
 * They take turns: the server of one may be back, and that of another not. */
static void pool_put(struct pool *pool, struct redis *redis)
{
    size_t place = redis_up(redis) ? pool->idle_count : 0;
    while (place > 0 && redis_up(pool->idle[place - 1]) &&
           redis_keeps_unsent(pool->idle[place - 1]))
        place--;
    memmove(pool->idle + place + 1, pool->idle + place,
            (pool->idle_count - place) * sizeof *pool->idle);
    pool->idle[place] = redis;
    pool->idle_count++;
}

static size_t pool_find(const struct pool *pool, const struct redis *redis, size_t otherwise)
{
    for (size_t i = 0; redis != NULL && i < pool->idle_count; i++)
        if (pool->idle[i] == redis)
            return i;
    return otherwise;
}

static void wake_first(struct pool *pool)
{
    if (!TAILQ_EMPTY(&pool->queue))
        pthread_cond_signal(&TAILQ_FIRST(&pool->queue)->woken);
}

/* The first in the queue that can use this connection; NULL: there is none. */
static struct taker *first_for(const struct pool *pool, const struct redis *redis)
{
    struct taker *taker;
    TAILQ_FOREACH(taker, &pool->queue, in_queue)
        if (redis_up_to(redis, taker->servers))
            break;
    return taker;
}

/* A caller that needs one again at once must not take it from one in the queue. */
static void hand_on(struct pool *pool, struct redis *redis)
{
    struct taker *first = first_for(pool, redis);
    if (first == NULL) {
        pool_put(pool, redis);
        wake_first(pool); /* it may have to connect this one */
        return;
    }
    TAILQ_REMOVE(&pool->queue, first, in_queue);
    first->given = redis;
    pthread_cond_signal(&first->woken);
}

/* The place of an idle connection that is up to these servers: `wanted`, or else the one to be lent
 * first. idle_count: there is none. */
static size_t find_up(const struct pool *pool, const struct redis *wanted, uint32_t servers)
{
    const size_t place = pool_find(pool, wanted, pool->idle_count);
    if (place < pool->idle_count && redis_up_to(pool->idle[place], servers))
        return place;
    for (size_t i = pool->idle_count; i > 0; i--)
        if (redis_up_to(pool->idle[i - 1], servers))
            return i - 1;
    return pool->idle_count;
}

/* NULL: there is none. */
static struct redis *pick_up(struct pool *pool, const struct redis *wanted, uint32_t servers)
{
    const size_t place = find_up(pool, wanted, servers);
    return place < pool->idle_count ? pool_pick(pool, place) : NULL;
}

/* One that must be connected; NULL: `max` are lent, or no memory is left. */
static struct redis *pick_down(struct pool *pool, const struct redis *wanted)
{
    struct redis *redis = NULL;
    if (pool->idle_count > 0)
        redis = pool_pick(pool, pool_find(pool, wanted, 0));
    else if (pool->made < pool->max && (redis = redis_new(pool->config)) != NULL)
        pool->made++;
    pool->connecting += redis != NULL;
    return redis;
}

/* Goes on connecting it; the mutex is free meanwhile. */
static void pool_step(struct pool *pool, struct redis *redis)
{
    pthread_mutex_unlock(&pool->mutex);
    redis_ready(redis, mono_deadline_ns(STEP_MS), -1);
    pthread_mutex_lock(&pool->mutex);
    if (!redis_connecting(redis))
        pool->refused = !redis_up(redis);
}

/* Goes on connecting one more; one caller at a time does. NULL: it is not up to these servers. */
static struct redis *pool_grow(struct pool *pool, uint32_t servers)
{
    struct redis *redis = mono_ns() >= pool->grow_ns ? pick_down(pool, NULL) : NULL;
    if (redis == NULL)
        return NULL;
    pool->grow_ns = INT64_MAX;
    pool_step(pool, redis);
    pool->connecting--;
    pool->grow_ns = redis_up(redis)           ? 0
                    : redis_connecting(redis) ? mono_deadline_ns(LOOK_MS)
                                              : mono_deadline_ns(PAUSE_MS);
    if (redis_up_to(redis, servers))
        return redis;
    hand_on(pool, redis);
    return NULL;
}

/* Returns the one that its caller has begun to connect. */
static void put_own(struct pool *pool, struct redis **own)
{
    if (*own == NULL)
        return;
    pool->connecting--;
    pool_put(pool, *own);
    *own = NULL;
}

/* As pool_grow, for a caller that has waited long: on a slow link one at a time takes too long.
 * *own: what it connects; NULL: nothing yet, or the server has refused one. */
static struct redis *grow_own(struct pool *pool, const struct redis *wanted, struct redis **own)
{
    struct redis *redis = NULL;
    if (*own == NULL && (pool->refused || (*own = pick_down(pool, wanted)) == NULL))
        return NULL;
    pool_step(pool, *own);
    if (redis_up(*own)) {
        pool->connecting--;
        redis = *own;
        *own = NULL;
    } else if (!redis_connecting(*own)) {
        put_own(pool, own);
    }
    return redis;
}

/* Whether others have a connection that may come back soon. */
static bool pool_has_lent(const struct pool *pool)
{
    return pool->made > pool->idle_count + pool->connecting;
}

static void sleep_in_queue(struct pool *pool, struct taker *taker, int64_t deadline_ns,
                           bool connects)
{
    const bool may_grow = connects || pool->idle_count > 0 || pool->made < pool->max;
    const int64_t look_ns = mono_deadline_ns(may_grow ? LOOK_MS : CANCEL_MS);
    const struct timespec until = timespec_of(min_ns(deadline_ns, look_ns));
    pthread_cond_timedwait(&taker->woken, &pool->mutex, &until);
}

static bool is_readable(int fd)
{
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    return poll(&polled, 1, 0) > 0;
}

/* When a caller in the queue begins to connect one of its own. */
static int64_t alone_ns(const struct pool *pool)
{
    return mono_deadline_ns(min_ns(ALONE_MS, pool->config->connect_timeout_ms / ALONE_PART));
}

/* How long a caller that has waited may connect: an attempt says why none can be made. */
static int64_t last_ns(int64_t hopes_until_ns)
{
    return max_ns(hopes_until_ns, mono_deadline_ns(LAST_MS));
}

/* Waits in the queue for a connection that is returned, while one more is connected, and later one
 * of its own; no longer than it would take to connect one. If none may come back, or it is late,
 * takes one that is not connected: *connect_by_ns says until when the caller may connect it.
 * connect_by_ns NULL, for a renewal: takes no such one, waits until the deadline, and is the first
 * in the queue. NULL: there is none. */
static struct redis *queue_up(struct pool *pool, const struct redis *wanted, int64_t deadline_ns,
                              int wake_fd, int64_t *connect_by_ns, uint32_t servers)
{
    struct taker taker = {.servers = servers};
    struct redis *redis = NULL, *own = NULL;
    const bool renews = connect_by_ns == NULL;
    const int64_t own_from_ns = renews ? INT64_MAX : alone_ns(pool);
    const int64_t hopes_until_ns =
        renews ? deadline_ns
               : min_ns(deadline_ns, mono_deadline_ns(pool->config->connect_timeout_ms));
    bool hoped = false;
    cond_init(&taker.woken);
    if (renews)
        TAILQ_INSERT_HEAD(&pool->queue, &taker, in_queue);
    else
        TAILQ_INSERT_TAIL(&pool->queue, &taker, in_queue);
    while (taker.given == NULL) {
        const bool cancelled = is_readable(wake_fd);
        const bool late = mono_ns() >= deadline_ns || cancelled;
        const bool hopes = !late && mono_ns() < hopes_until_ns && pool_has_lent(pool) &&
                           (renews || pool->config->server_count == 1);
        if (hopes && mono_ns() >= own_from_ns)
            redis = grow_own(pool, wanted, &own);
        if (hopes && redis == NULL && own == NULL && taker.given == NULL)
            redis = pool_grow(pool, servers);
        else if (!hopes && !renews && !(hoped && cancelled) &&
                 (redis = own != NULL ? own : pick_down(pool, wanted)) != NULL)
            *connect_by_ns = hoped ? min_ns(deadline_ns, last_ns(hopes_until_ns)) : deadline_ns;
        own = redis == own ? NULL : own; /* it is lent now */
        if (redis != NULL || late || (renews && !hopes))
            break;
        hoped |= hopes;
        if (taker.given == NULL)
            sleep_in_queue(pool, &taker, hopes ? hopes_until_ns : deadline_ns, own != NULL);
    }
    put_own(pool, &own);
    if (taker.given == NULL) {
        TAILQ_REMOVE(&pool->queue, &taker, in_queue);
        wake_first(pool); /* it may connect one more now */
    } else if (redis != NULL) {
        hand_on(pool, redis);
    }
    pthread_cond_destroy(&taker.woken);
    return taker.given != NULL ? taker.given : redis;
}

/* Lends one that is up to these servers, unless it sets *connect_by_ns. NULL: there is none. */
static struct redis *pool_await(struct pool *pool, const struct redis *wanted, int64_t deadline_ns,
                                int wake_fd, int64_t *connect_by_ns, uint32_t servers)
{
    pthread_mutex_lock(&pool->mutex);
    struct redis *redis = pick_up(pool, wanted, servers);
    if (redis == NULL)
        redis = queue_up(pool, wanted, deadline_ns, wake_fd, connect_by_ns, servers);
    pthread_mutex_unlock(&pool->mutex);
    return redis;
}

static dlock_status say_none(struct pool *pool, int wake_fd)
{
    pthread_mutex_lock(&pool->mutex);
    const bool is_full = pool->made == pool->max;
    pthread_mutex_unlock(&pool->mutex);
    if (is_readable(wake_fd))
        return fail(DLOCK_CANCELLED, "cancelled while waiting for a connection");
    if (!is_full)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    return fail(DLOCK_LIMIT, "all %zu connections (connections_max) are in use", pool->max);
}

dlock_status pool_take(struct pool *pool, const struct redis *wanted, int64_t deadline_ns,
                       int wake_fd, struct redis **redis)
{
    const bool several = pool->config->server_count > 1;
    int64_t connect_by_ns = 0;
    while ((*redis = pool_await(pool, wanted, deadline_ns, wake_fd, &connect_by_ns, SERVERS_ALL)) !=
           NULL) {
        if (several || connect_by_ns != 0)
            break;
        if (redis_still_up(*redis, deadline_ns, wake_fd))
            return DLOCK_OK;
        pool_give(pool, *redis);
    }
    if (*redis == NULL)
        return say_none(pool, wake_fd);
    if (connect_by_ns == 0)
        return redis_ready(*redis, deadline_ns, wake_fd);
    dlock_status status = redis_ready(*redis, connect_by_ns, wake_fd);
    pthread_mutex_lock(&pool->mutex);
    pool->connecting--;
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

dlock_status pool_take_up(struct pool *pool, uint32_t servers, int64_t deadline_ns, int wake_fd,
                          struct redis **redis)
{
    *redis = pool_await(pool, NULL, deadline_ns, wake_fd, NULL, servers);
    if (*redis != NULL)
        return DLOCK_OK;
    return is_readable(wake_fd) ? DLOCK_CANCELLED : DLOCK_LIMIT;
}

bool pool_has_up(struct pool *pool, uint32_t servers)
{
    pthread_mutex_lock(&pool->mutex);
    const bool has = find_up(pool, NULL, servers) < pool->idle_count;
    pthread_mutex_unlock(&pool->mutex);
    return has;
}

/* ---- Returning ------------------------------------------------------------------------------- */

/* It stays in its place, with the mutex held: a call that found no idle connection would make
 * another one. */
void pool_catch_up(struct pool *pool, const struct redis *redis)
{
    pthread_mutex_lock(&pool->mutex);
    const size_t place = pool_find(pool, redis, pool->idle_count);
    if (place < pool->idle_count) {
        const bool kept = redis_keeps_unsent(redis);
        redis_catch_up(pool->idle[place]);
        if (!redis_up(redis) || redis_keeps_unsent(redis) != kept) /* another is lent first */
            pool_put(pool, pool_pick(pool, place));
    }
    pthread_mutex_unlock(&pool->mutex);
}

/* They stay in their places, as above. One that moves may be looked at twice, and the one after it
 * not at all, this time. */
bool pool_send_kept(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    pool->keeps = false;
    for (size_t i = 0; i < pool->idle_count; i++) {
        struct redis *redis = pool->idle[i];
        const bool up = redis_up(redis), unsent = redis_keeps_unsent(redis);
        if (!redis_keeps(redis))
            continue;
        redis_ready(redis, 0, -1);
        pool->keeps |= redis_keeps(redis);
        if (redis_up(redis) != up || redis_keeps_unsent(redis) != unsent)
            hand_on(pool, pool_pick(pool, i));
    }
    const bool keeps = pool->keeps;
    pthread_mutex_unlock(&pool->mutex);
    return keeps;
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
            redis_keep(redis, i, errand->argc, errand->argv, KEEP_UNANSWERED);
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
    const bool first = redis_keeps(redis) && !pool->keeps && pool->config->keeps != NULL;
    pool->keeps |= first;
    hand_on(pool, redis);
    pthread_mutex_unlock(&pool->mutex);
    if (first)
        pool->config->keeps(pool->config->outages.arg);
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
    const size_t place = pool_find(pool, redis, pool->idle_count);
    if (place < pool->idle_count) /* it came back meanwhile */
        idle = pool_pick(pool, place);
    pthread_mutex_unlock(&pool->mutex);
    free(errand);
    if (idle != NULL)
        pool_give(pool, idle);
}
