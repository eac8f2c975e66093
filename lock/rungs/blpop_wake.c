/* SPDX-License-Identifier: Apache-2.0
 *
 * blpop_wake -- the hash, and a signal on a list: whoever waits blocks on it.
 * ADDS   waiters sleep until a release pushes its signal
 * FLAW   a signal is for one: when its sender or its receiver dies, the others sleep on
 * SHOW   scripts/rung break blpop_wake
 * CURE   notify
 * NEXT   notify
 * COST   2 round trips, and one every TTL/3; to wait, a BLPOP, then a try a signal
 */
#include "redis_rung.h"

#include <stdlib.h>
#include <string.h>

#define SIGNALS "blpop_wake:signals" /* of all locks, by name: a process blocks on one list */
#define AGAIN_MS 30000               /* as long as one usually blocks */

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    struct answer had =
        EVAL(env, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
    if (had.status != DLOCK_OK)
        return had.status;
    if (had.kind != DLOCK_REPLY_NIL) {
        busy->kind = WAIT_LIST;
        busy->again_ms = AGAIN_MS;
        strcpy(busy->source, SIGNALS);
        return DLOCK_BUSY;
    }
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct answer left = EVAL(env, &lua_blpop_wake_release, "2", hold->key, SIGNALS, hold->owner);
    if (left.status != DLOCK_OK)
        return left.status;
    return left.kind == DLOCK_REPLY_NIL ? DLOCK_LOST : DLOCK_OK;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    struct answer renewed = EVAL(env, &lua_reentrant_renew, "1", hold->key, hold->owner, ttl);
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

const struct rung_ops rung_blpop_wake = {
    .name = "blpop_wake",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
};
