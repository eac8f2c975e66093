/* SPDX-License-Identifier: Apache-2.0
 *
 * watchdog -- the hash, renewed every third of its time to live.
 * ADDS   work may take longer than the TTL
 * FLAW   a frozen process loses the lock unaware; every waiter polls
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

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    (void)hold;
    (void)busy;
    return answer->kind == DLOCK_REPLY_NIL       ? DLOCK_OK
           : answer->kind == DLOCK_REPLY_INTEGER ? DLOCK_BUSY
                                                 : DLOCK_UNKNOWN;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_release, "1", hold->key, hold->owner, hold->count);
}

static dlock_status take_ours(struct dlock_hold *hold, const struct answer *answer)
{
    (void)hold;
    return answer->kind == DLOCK_REPLY_NIL       ? DLOCK_LOST
           : answer->kind == DLOCK_REPLY_INTEGER ? DLOCK_OK
                                                 : DLOCK_UNKNOWN;
}

static void send_renew(struct request *request, const struct dlock_hold *hold, const char *ttl)
{
    SEND(request, &lua_reentrant_renew, "1", hold->key, hold->owner, ttl);
}

const struct rung_ops rung_watchdog = {
    .name = "watchdog",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .send_acquire = send_acquire,
    .take_acquire = take_acquire,
    .send_release = send_release,
    .take_release = take_ours,
    .send_renew = send_renew,
    .take_renew = take_ours,
};
