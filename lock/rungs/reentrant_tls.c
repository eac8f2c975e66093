/* SPDX-License-Identifier: Apache-2.0
 *
 * reentrant_tls -- a count of holds in the thread's memory.
 * ADDS   the same thread may acquire again, without asking Redis
 * FLAW   the count outlives the key: the owner still enters after its key has expired
 * SHOW   scripts/rung break reentrant_tls
 * CURE   reentrant
 * NEXT   reentrant
 * COST   2 round trips, 0 when nested
 */
#include "redis_rung.h"

#include <string.h>

/* What this thread believes that it holds. */
static _Thread_local struct {
    const struct dlock *lock;
    char id[HOLD_ID_MAX];
    unsigned count;
    int process; /* a forked child inherits this memory, but not the lock */
} mine;

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    if (mine.lock == hold->lock) {
        mine.count++;
        return DLOCK_OK;
    }
    if (mine.lock != NULL && mine.process == hold->fork_generation)
        return fail(DLOCK_LIMIT, "a thread holds one lock of this rung at a time");
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.kind == DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    mine.lock = hold->lock;
    strcpy(mine.id, hold->id);
    mine.count = 1;
    mine.process = hold->fork_generation;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    if (mine.lock != hold->lock)
        return fail(DLOCK_LOST, "this thread does not hold '%s'; another does", hold->key);
    if (--mine.count > 0)
        return DLOCK_OK;
    mine.lock = NULL;
    point(env, "before_release");
    struct answer del = EVAL(env, &lua_delete_if_owner, "1", hold->key, mine.id);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

const struct rung_ops rung_reentrant_tls = {
    .name = "reentrant_tls",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_THREAD,
    .key_type = "string",
    .try_acquire = try_acquire,
    .release = release,
};
