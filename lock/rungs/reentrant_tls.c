/* SPDX-License-Identifier: Apache-2.0
 *
 * reentrant_tls -- a count of holds in the thread's memory.
 * ADDS   the same thread may acquire again, without asking Redis
 * FLAW   the count outlives the key: after an expiry it believes that it still holds
 * SHOW   scripts/rung break reentrant_tls
 * CURE   reentrant
 * NEXT   reentrant
 * COST   2 round trips, 0 when nested
 */
#include "redis_rung.h"

#include <string.h>

/* What this thread believes to hold. */
static _Thread_local struct {
    char key[DLOCK_NAME_MAX + 1];
    char id[HOLD_ID_MAX];
    unsigned count;
} mine;

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    if (strcmp(mine.key, hold->key) == 0) {
        mine.count++;
        return DLOCK_OK;
    }
    if (mine.count > 0)
        return fail(DLOCK_LIMIT, "a thread holds one lock of this rung: '%s' here", mine.key);
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.kind == DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    strcpy(mine.key, hold->key);
    strcpy(mine.id, hold->id);
    mine.count = 1;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    if (strcmp(mine.key, hold->key) != 0)
        return fail(DLOCK_LOST, "this thread does not hold '%s'; another does", hold->key);
    if (--mine.count > 0)
        return DLOCK_OK;
    mine.key[0] = '\0';
    point(env, "before_release");
    struct answer del = EVAL(env, &lua_delete_if_owner, "1", hold->key, mine.id);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

const struct rung_ops rung_reentrant_tls = {
    .name = "reentrant_tls",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_THREAD,
    .try_acquire = try_acquire,
    .release = release,
};
