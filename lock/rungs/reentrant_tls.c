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
#define MINE_MAX 8
static _Thread_local struct mine {
    char key[DLOCK_NAME_MAX + 1];
    char id[HOLD_ID_MAX];
    unsigned count;
} mine[MINE_MAX];

static struct mine *find(const char *key)
{
    for (struct mine *held = mine; held < mine + MINE_MAX; held++)
        if (strcmp(held->key, key) == 0)
            return held;
    return NULL;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct mine *held = find(hold->key);
    if (held != NULL) {
        held->count++;
        return DLOCK_OK;
    }
    held = find("");
    if (held == NULL)
        return fail(DLOCK_LIMIT, "a thread holds at most %d locks of this rung", MINE_MAX);
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.kind == DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    *held = (struct mine){.count = 1};
    strcpy(held->key, hold->key);
    strcpy(held->id, hold->id);
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    struct mine *held = find(hold->key);
    if (held == NULL)
        return fail(DLOCK_LOST, "this thread does not hold '%s'; another does", hold->key);
    if (--held->count > 0)
        return DLOCK_OK;
    held->key[0] = '\0';
    point(env, "before_release");
    struct answer del = EVAL(env, &lua_delete_if_owner, "1", hold->key, held->id);
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
