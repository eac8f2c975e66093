/* SPDX-License-Identifier: Apache-2.0
 *
 * setnx_expire -- SETNX, then EXPIRE.
 * ADDS   a lock that frees itself when its holder dies
 * FLAW   two commands: if the holder dies between them, the lock stays for ever
 * SHOW   scripts/rung break setnx_expire
 * CURE   set_nx_ex
 * NEXT   set_nx_ex
 * COST   3 round trips
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
    point(env, "between_setnx_and_expire");
    if (CALL(env, "PEXPIRE", hold->key, hold->ttl).status != DLOCK_OK)
        return DLOCK_UNKNOWN; /* the key is set, perhaps without an expiry */
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

const struct rung_ops rung_setnx_expire = {
    .name = "setnx_expire",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
};
