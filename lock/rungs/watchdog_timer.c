/* SPDX-License-Identifier: Apache-2.0
 *
 * watchdog_timer -- the hash, and for each acquisition a timer that renews it.
 * ADDS   work may take longer than the TTL
 * FLAW   no release ends a timer: timers pile up, and renew a lock that nobody holds
 * SHOW   scripts/rung break watchdog_timer
 * CURE   watchdog
 * NEXT   watchdog
 * COST   2 round trips, and one every TTL/3 for each timer that is left
 */
#include "redis_rung.h"
#include "timer.h"

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_release, "1", hold->key, hold->owner, hold->count);
}

/* False: the owner no longer holds the lock, by this acquisition or a later one. */
static bool renew(struct rung_env *env, const struct timer *timer)
{
    struct answer renewed =
        EVAL(env, &lua_reentrant_renew, "1", timer->key, timer->owner, timer->ttl);
    if (renewed.kind == DLOCK_REPLY_INTEGER)
        rung_count_renewal(timer->lock);
    return renewed.kind != DLOCK_REPLY_NIL;
}

static dlock_status acquired(const struct dlock_hold *hold)
{
    return timer_start(hold, hold->ttl_ms / 3, renew);
}

const struct rung_ops rung_watchdog_timer = {
    .name = "watchdog_timer",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .state_size = sizeof(struct timers),
    .send_acquire = send_acquire,
    .take_acquire = take_acquired,
    .send_release = send_release,
    .take_release = take_ours,
    .acquired = acquired,
    .opened = timers_begin,
    .closed = timers_end,
};
