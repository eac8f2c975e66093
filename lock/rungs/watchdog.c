/* SPDX-License-Identifier: Apache-2.0
 *
 * watchdog -- the hash, renewed every third of its time to live.
 * ADDS   work may take longer than the TTL
 * FLAW   while a process is frozen, it cannot notice that it lost the lock; every waiter polls
 * SHOW   scripts/rung break watchdog
 * CURE   fenced
 * NEXT   notify
 * COST   2 round trips, and one every TTL/3
 */
#include "redis_rung.h"

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_release, "1", hold->key, hold->owner, hold->count);
}

static void send_renew(struct request *request, const struct dlock_hold *hold, const char *ttl)
{
    SEND(request, &lua_reentrant_renew, "1", hold->key, hold->owner, ttl);
}

const struct rung_ops rung_watchdog = {
    .name = "watchdog",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .send_acquire = send_acquire,
    .take_acquire = take_acquired,
    .send_release = send_release,
    .take_release = take_ours,
    .send_renew = send_renew,
    .take_renew = take_ours,
};
