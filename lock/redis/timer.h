/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers, for a rung that renews its lock by itself: one for each acquisition. Each is a thread,
 * and is lent a connection for each call.
 */
#ifndef DLOCK_TIMER_H
#define DLOCK_TIMER_H

#include "redis_rung.h"

#define TIMERS_MAX 1000 /* of one lock in one process */

/* Of one lock in one process: a rung's lock_state. */
struct timers {
    LIST_HEAD(, timer) running;
    size_t count;
};

struct timer {
    /* Of its acquisition, and constant. */
    const char *key;
    char owner[OWNER_MAX];
    char ttl[24];
    struct dlock *lock;

    uint64_t calls; /* how many came before the present one */

    /* timer.c's own */
    int64_t ttl_ms;
    int64_t every_ms;
    uint64_t acquisition;
    bool (*call)(struct rung_env *env, const struct timer *timer);
    struct timers *timers;
    LIST_ENTRY(timer) of_lock;
    bool ended;
};

/* Calls `call` every every_ms, until it returns false or the timer is ended. LIMIT, with a
 * sentence: too many run, or no memory or no thread is left. */
dlock_status timer_start(const struct dlock_hold *hold, int64_t every_ms,
                         bool (*call)(struct rung_env *env, const struct timer *timer));

/* Ends this hold's timer: it calls no more, but for a call whose time has just come. */
void timer_end(const struct dlock_hold *hold);

/* rung_ops.closed: ends the lock's timers, and waits for calls that are under way. */
void timers_end(void *lock_state);

#endif
