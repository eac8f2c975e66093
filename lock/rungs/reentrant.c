/* SPDX-License-Identifier: Apache-2.0
 *
 * reentrant -- a hash {owner -> count}, kept by scripts.
 * ADDS   the same owner may acquire again; the last release frees the lock
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

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_release, "1", hold->key, hold->owner, hold->count);
}

const struct rung_ops rung_reentrant = {
    .name = "reentrant",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .send_acquire = send_acquire,
    .take_acquire = take_acquired,
    .send_release = send_release,
    .take_release = take_ours,
};
