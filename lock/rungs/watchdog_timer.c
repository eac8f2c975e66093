/* SPDX-License-Identifier: Apache-2.0
 *
 * watchdog_timer -- the hash, and for each acquisition a timer that renews it.
 * ADDS   work may take longer than the TTL
 * FLAW   no release ends a timer: they pile up, and renew what nobody holds any more
 * SHOW   scripts/rung break watchdog_timer
 * CURE   watchdog
 * NEXT   watchdog
 * COST   2 round trips, and one every TTL/3 for each timer that is left
 */
#include "redis_rung.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TIMERS_MAX 1000 /* of one lock in one process: each is a thread */

/* Of one lock in this process. Protected by the mutex. */
struct timers {
    size_t running;
    bool closed;
};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct timer {
    const char *key;
    struct dlock *lock;
    struct timers *timers;
    int64_t ttl_ms;
    char owner[OWNER_MAX];
    char ttl[24];
};

/* Until a third of the TTL is over. False: the lock was closed. */
static bool wait_third(struct timer *timer)
{
    int64_t until_ns = mono_deadline_ns(timer->ttl_ms / 3);
    struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
    pthread_mutex_lock(&mutex);
    while (!timer->timers->closed &&
           pthread_cond_clockwait(&changed, &mutex, CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    bool open = !timer->timers->closed;
    pthread_mutex_unlock(&mutex);
    return open;
}

/* Renews its owner's lock, whichever acquisition it is of by then. False: the owner has none. */
static bool renew(struct timer *timer)
{
    struct answer renewed = {.status = DLOCK_UNKNOWN};
    struct rung_env env;
    if (env_begin(timer->lock, mono_deadline_ns(timer->ttl_ms), INT64_MAX, -1, &env) == DLOCK_OK)
        renewed = EVAL(&env, &lua_reentrant_renew, "1", timer->key, timer->owner, timer->ttl);
    env_end(timer->lock, &env);
    if (renewed.status == DLOCK_OK && renewed.integer == 1)
        rung_count_renewal(timer->lock);
    return renewed.status != DLOCK_OK || renewed.integer == 1;
}

static void *run(void *arg)
{
    struct timer *timer = arg;
    while (wait_third(timer) && renew(timer))
        ;
    pthread_mutex_lock(&mutex);
    timer->timers->running--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    free(timer);
    return NULL;
}

/* False: there are too many. */
static bool start_timer(const struct dlock_hold *hold)
{
    struct timers *timers = hold->lock_state;
    struct timer *timer = malloc(sizeof *timer);
    pthread_t thread;
    if (timer == NULL)
        return false;
    *timer = (struct timer){.lock = hold->lock, .timers = timers, .ttl_ms = hold->ttl_ms};
    strcpy(timer->owner, hold->owner);
    strcpy(timer->ttl, hold->ttl);
    timer->key = hold->key;
    pthread_mutex_lock(&mutex);
    bool started = timers->running < TIMERS_MAX && thread_begin(&thread, run, timer);
    if (started) {
        pthread_detach(thread);
        timers->running++;
    }
    pthread_mutex_unlock(&mutex);
    if (!started)
        free(timer);
    return started;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer had =
        EVAL(env, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
    if (had.status != DLOCK_OK)
        return had.status;
    if (had.kind != DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    if (!start_timer(hold)) {
        EVAL(env, &lua_reentrant_release, "1", hold->key, hold->owner);
        return fail(DLOCK_LIMIT,
                    "no timer can be started: at most %d run, as far as threads and "
                    "memory allow, and none ends before TTL/3",
                    TIMERS_MAX);
    }
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct answer left = EVAL(env, &lua_reentrant_release, "1", hold->key, hold->owner);
    if (left.status != DLOCK_OK)
        return left.status;
    return left.kind == DLOCK_REPLY_NIL ? DLOCK_LOST : DLOCK_OK;
}

static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer count = CALL(env, "HGET", hold->key, hold->owner);
    if (count.status != DLOCK_OK)
        return count.status;
    return strtoull(count.text, NULL, 10) == hold->depth ? DLOCK_OK : DLOCK_BUSY;
}

/* The process wants to end: only this ends them. */
static void closed(void *lock_state)
{
    struct timers *timers = lock_state;
    pthread_mutex_lock(&mutex);
    timers->closed = true;
    pthread_cond_broadcast(&changed);
    while (timers->running > 0)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

const struct rung_ops rung_watchdog_timer = {
    .name = "watchdog_timer",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .state_size = sizeof(struct timers),
    .try_acquire = try_acquire,
    .release = release,
    .resolve = resolve,
    .closed = closed,
};
