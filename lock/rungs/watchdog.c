/* SPDX-License-Identifier: Apache-2.0
 *
 * watchdog -- the hash, renewed every third of its time to live.
 * ADDS   work may take longer than the TTL
 * FLAW   a frozen process loses the lock unaware; every waiter polls
 * SHOW   scripts/rung break watchdog
 * NEXT   notify
 * COST   2 round trips, and one every TTL/3
 */
#include "../rung.h"

#include <stdlib.h>

extern const struct script lua_reentrant_acquire;
extern const struct script lua_reentrant_release;
extern const struct script lua_reentrant_renew;

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer had =
        EVAL(env, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl);
    if (had.status != DLOCK_OK)
        return had.status;
    if (had.kind != DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct answer left =
        EVAL(env, &lua_reentrant_release, "1", hold->key, hold->owner, hold->count);
    if (left.status != DLOCK_OK)
        return left.status;
    return left.kind == DLOCK_REPLY_NIL ? DLOCK_LOST : DLOCK_OK;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer renewed = EVAL(env, &lua_reentrant_renew, "1", hold->key, hold->owner, hold->ttl);
    if (renewed.status != DLOCK_OK)
        return renewed.status;
    return renewed.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer count = CALL(env, "HGET", hold->key, hold->owner);
    if (count.status != DLOCK_OK)
        return count.status;
    return strtoull(count.text, NULL, 10) == hold->depth ? DLOCK_OK : DLOCK_BUSY;
}

const struct rung_ops rung_watchdog = {
    .name = "watchdog",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
};
