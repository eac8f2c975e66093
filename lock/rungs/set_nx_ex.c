/* SPDX-License-Identifier: Apache-2.0
 *
 * set_nx_ex -- key and time to live in one command.
 * ADDS   no gap between the key and its expiry
 * FLAW   a holder slower than the TTL deletes the next holder's lock
 * SHOW   scripts/rung break set_nx_ex
 * CURE   owner_check
 * NEXT   owner_check
 * COST   2 round trips
 */
#include "redis_rung.h"

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer set = CALL(env, "SET", hold->key, "1", "NX", "PX", hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.kind == DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct answer del = CALL(env, "DEL", hold->key);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

const struct rung_ops rung_set_nx_ex = {
    .name = "set_nx_ex",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
};
