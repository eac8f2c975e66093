/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers, for a rung that renews its lock by itself: one for each acquisition. A timer is a thread.
 * It is lent a connection for each call.
 */
#ifndef DLOCK_TIMER_H
#define DLOCK_TIMER_H

#include "redis_rung.h"

#include <pthread.h>

#define TIMERS_MAX 1000 /* per lock and process */

/* The timers of one lock in one process: the rung's lock_state. Each lock has its own mutex, so a
 * lock of a forked child never waits for a mutex that a timer of its parent held at the fork. */
struct timers {
    pthread_mutex_t mutex; /* protects what is below, and timer.ended */
    pthread_cond_t changed;
    LIST_HEAD(, timer) running;
    size_t count;
};

struct timer {
    /* Its acquisition's; constant. */
    const char *key;
    char owner[OWNER_MAX];
    char ttl[24];
    struct dlock *lock;

    uint64_t calls; /* how many were made before the present one */

    /* timer.c's own */
    int64_t ttl_ms;
    int64_t every_ms;
    uint64_t acquisition;
    bool (*call)(struct rung_env *env, const struct timer *timer);
    struct timers *timers;
    LIST_ENTRY(timer) of_lock;
    bool ended;
};

/* rung_ops.opened. */
void timers_begin(void *lock_state);

/* Starts a timer, which calls `call` every every_ms until it returns false or the timer is ended.
 * LIMIT, with a sentence: too many timers run, or no memory or thread is left. */
dlock_status timer_start(const struct dlock_hold *hold, int64_t every_ms,
                         bool (*call)(struct rung_env *env, const struct timer *timer));

/* Ends this hold's timer. A call that was just due may still be made. */
void timer_end(const struct dlock_hold *hold);

/* rung_ops.closed: ends the lock's timers, and waits until none runs. */
void timers_end(void *lock_state);

#endif
