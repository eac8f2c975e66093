/* SPDX-License-Identifier: Apache-2.0
 *
 * reentrant -- a hash {owner -> count}, kept by scripts.
 * ADDS   the same owner may acquire again; the last release frees it
 * FLAW   work that outlives the TTL loses the lock
 * SHOW   scripts/rung break reentrant
 * CURE   watchdog
 * NEXT   watchdog
 * COST   2 round trips
 */
#include "redis_rung.h"

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
}

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    (void)hold;
    (void)busy;
    return answer->kind == DLOCK_REPLY_NIL       ? DLOCK_OK
           : answer->kind == DLOCK_REPLY_INTEGER ? DLOCK_BUSY
                                                 : DLOCK_UNKNOWN;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_release, "1", hold->key, hold->owner, hold->count);
}

static dlock_status take_ours(struct dlock_hold *hold, const struct answer *answer)
{
    (void)hold;
    return answer->kind == DLOCK_REPLY_NIL       ? DLOCK_LOST
           : answer->kind == DLOCK_REPLY_INTEGER ? DLOCK_OK
                                                 : DLOCK_UNKNOWN;
}

const struct rung_ops rung_reentrant = {
    .name = "reentrant",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .send_acquire = send_acquire,
    .take_acquire = take_acquire,
    .send_release = send_release,
    .take_release = take_ours,
};
