/* SPDX-License-Identifier: Apache-2.0
 *
 * setnx -- a key in Redis that only one client can set.
 * ADDS   one holder across all processes
 * FLAW   if the holder dies or forgets the DEL, the lock stays for ever
 * SHOW   scripts/rung break setnx
 * CURE   setnx_expire
 * NEXT   setnx_expire
 * COST   2 round trips
 */
#include "redis_rung.h"

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer set = CALL(env, "SETNX", hold->key, "1");
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.integer == 0)
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

const struct rung_ops rung_setnx = {
    .name = "setnx",
    .try_acquire = try_acquire,
    .release = release,
};
