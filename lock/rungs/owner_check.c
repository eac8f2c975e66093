/* SPDX-License-Identifier: Apache-2.0
 *
 * owner_check -- the value is the holder's name, which is compared before the DEL.
 * ADDS   a slow holder leaves the next holder's lock alone
 * FLAW   compare and delete are two steps: the lock may expire between them
 * SHOW   scripts/rung break owner_check
 * CURE   owner_lua
 * NEXT   owner_lua
 * COST   3 round trips
 */
#include "redis_rung.h"

#include <string.h>

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
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
    struct answer get = CALL(env, "GET", hold->key);
    if (get.status != DLOCK_OK)
        return get.status;
    if (strcmp(get.text, hold->id) != 0)
        return DLOCK_LOST;
    point(env, "between_get_and_del");
    struct answer del = CALL(env, "DEL", hold->key);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer get = CALL(env, "GET", hold->key);
    if (get.status != DLOCK_OK)
        return get.status;
    return strcmp(get.text, hold->id) == 0 ? DLOCK_OK : DLOCK_BUSY;
}

const struct rung_ops rung_owner_check = {
    .name = "owner_check",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
    .resolve = resolve,
};
