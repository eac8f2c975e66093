/* SPDX-License-Identifier: Apache-2.0
 *
 * reentrant_getset -- write my name, and read which name it replaced.
 * ADDS   the same owner may acquire again, in one plain command
 * FLAW   each attempt overwrites the holder's name: a client that asks twice acquires the lock
 * SHOW   scripts/rung break reentrant_getset
 * CURE   reentrant
 * NEXT   reentrant
 * COST   3 round trips
 */
#include "redis_rung.h"

#include <string.h>

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer was = CALL(env, "GETSET", hold->key, hold->owner);
    if (was.status != DLOCK_OK)
        return was.status;
    if (was.kind != DLOCK_REPLY_NIL && strcmp(was.text, hold->owner) != 0)
        return DLOCK_BUSY;
    if (CALL(env, "PEXPIRE", hold->key, hold->ttl).status != DLOCK_OK)
        return DLOCK_UNKNOWN; /* the key is set, perhaps without an expiry */
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    if (hold->depth > 1)
        return DLOCK_OK; /* only the outermost release frees the lock */
    point(env, "before_release");
    struct answer del = EVAL(env, &lua_delete_if_owner, "1", hold->key, hold->owner);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

const struct rung_ops rung_reentrant_getset = {
    .name = "reentrant_getset",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .key_type = "string",
    .try_acquire = try_acquire,
    .release = release,
};
