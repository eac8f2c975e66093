/* SPDX-License-Identifier: Apache-2.0
 *
 * owner_lua -- compare and delete in one script.
 * ADDS   nothing can happen between compare and delete
 * FLAW   an owner that acquires again waits for itself
 * SHOW   scripts/rung break owner_lua
 * CURE   reentrant
 * NEXT   reentrant
 * COST   2 round trips
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
    struct answer del = EVAL(env, &lua_delete_if_owner, "1", hold->key, hold->id);
    if (del.status != DLOCK_OK)
        return del.status;
    if (del.kind != DLOCK_REPLY_INTEGER)
        return not_understood(env, hold);
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer get = CALL(env, "GET", hold->key);
    if (get.status != DLOCK_OK)
        return get.status;
    return strcmp(get.text, hold->id) == 0 ? DLOCK_OK : DLOCK_BUSY;
}

const struct rung_ops rung_owner_lua = {
    .name = "owner_lua",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
    .resolve = resolve,
};
