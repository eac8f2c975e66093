/* SPDX-License-Identifier: Apache-2.0
 *
 * See timer.h.
 */
#include "timer.h"

#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void timers_begin(void *lock_state)
{
    struct timers *timers = lock_state;
    LIST_INIT(&timers->running);
    pthread_mutex_init(&timers->mutex, NULL);
    pthread_cond_init(&timers->changed, NULL);
}

/* Waits until the next call is due. False: the timer was ended. */
static bool timer_wait_turn(struct timer *timer)
{
    struct timers *timers = timer->timers;
    int64_t until_ns = mono_deadline_ns(timer->every_ms);
    struct timespec until = timespec_of(until_ns);
    pthread_mutex_lock(&timers->mutex);
    while (!timer->ended && pthread_cond_clockwait(&timers->changed, &timers->mutex,
                                                   CLOCK_MONOTONIC, &until) != ETIMEDOUT)
        ;
    bool ended = timer->ended;
    pthread_mutex_unlock(&timers->mutex);
    return !ended;
}

/* Makes the call, or skips it if no connection is available. */
static bool timer_take_turn(struct timer *timer)
{
    struct rung_env env;
    bool goes_on = true;
    if (env_begin(timer->lock, mono_deadline_ns(timer->ttl_ms), INT64_MAX, -1, NULL, &env) ==
        DLOCK_OK) {
        goes_on = timer->call(&env, timer);
        timer->calls++;
    }
    env_end(timer->lock, &env);
    return goes_on;
}

static void *timer_run(void *arg)
{
    struct timer *timer = arg;
    struct timers *timers = timer->timers;
    while (timer_wait_turn(timer) && timer_take_turn(timer))
        ;
    pthread_mutex_lock(&timers->mutex);
    LIST_REMOVE(timer, of_lock);
    timers->count--;
    pthread_cond_broadcast(&timers->changed);
    pthread_mutex_unlock(&timers->mutex); /* after this, timers_end may have freed them */
    free(timer);
    return NULL;
}

/* False: too many timers run, or no thread is left. */
static bool timer_begin(struct timer *timer)
{
    struct timers *timers = timer->timers;
    pthread_t thread;
    pthread_mutex_lock(&timers->mutex);
    bool begun = timers->count < TIMERS_MAX && thread_begin(&thread, timer_run, timer);
    if (begun) {
        pthread_detach(thread);
        LIST_INSERT_HEAD(&timers->running, timer, of_lock);
        timers->count++;
    }
    pthread_mutex_unlock(&timers->mutex);
    return begun;
}

dlock_status timer_start(const struct dlock_hold *hold, int64_t every_ms,
                         bool (*call)(struct rung_env *env, const struct timer *timer))
{
    struct timer *timer = calloc(1, sizeof *timer);
    if (timer != NULL) {
        *timer = (struct timer){.key = hold->key,
                                .lock = hold->lock,
                                .ttl_ms = hold->ttl_ms,
                                .every_ms = every_ms,
                                .acquisition = hold->acquisition,
                                .call = call,
                                .timers = hold->lock_state};
        strcpy(timer->owner, hold->owner);
        strcpy(timer->ttl, hold->ttl);
        if (timer_begin(timer))
            return DLOCK_OK;
    }
    free(timer);
    return fail(
        DLOCK_LIMIT,
        "no timer can be started: at most %d run, fewer if threads or memory are short, and none "
        "ends before its turn",
        TIMERS_MAX);
}

/* The mutex is held. acquisition 0: all timers. */
static void timers_mark_ended(struct timers *timers, uint64_t acquisition)
{
    struct timer *timer;
    LIST_FOREACH(timer, &timers->running, of_lock)
        timer->ended |= acquisition == 0 || timer->acquisition == acquisition;
    pthread_cond_broadcast(&timers->changed);
}

void timer_end(const struct dlock_hold *hold)
{
    struct timers *timers = hold->lock_state;
    pthread_mutex_lock(&timers->mutex);
    timers_mark_ended(timers, hold->acquisition);
    pthread_mutex_unlock(&timers->mutex);
}

void timers_end(void *lock_state)
{
    struct timers *timers = lock_state;
    pthread_mutex_lock(&timers->mutex);
    timers_mark_ended(timers, 0);
    while (timers->count > 0)
        pthread_cond_wait(&timers->changed, &timers->mutex);
    pthread_mutex_unlock(&timers->mutex);
    pthread_cond_destroy(&timers->changed);
    pthread_mutex_destroy(&timers->mutex);
}
