/* SPDX-License-Identifier: Apache-2.0
 *
 * blpop_wake -- the hash, and a signal on a list: whoever waits blocks on it.
 * ADDS   waiters sleep until a release pushes its signal
 * FLAW   a signal is for one: when its sender or its receiver dies, the others sleep on
 * SHOW   scripts/rung break blpop_wake
 * CURE   notify
 * NEXT   notify
 * COST   2 round trips, and one every TTL/3; to wait, a BLPOP, then a try a signal
 */
#include "redis_rung.h"

#include <string.h>

#define SIGNALS "blpop_wake:signals" /* of all locks, by name: a process blocks on one list */
#define AGAIN_MS 30000               /* as long as one usually blocks */

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
}

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    dlock_status status = take_acquired(hold, answer, busy);
    if (status == DLOCK_BUSY) {
        busy->kind = WAIT_LIST;
        busy->again_ms = AGAIN_MS;
        strcpy(busy->source, SIGNALS);
    }
    return status;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_blpop_wake_release, "2", hold->key, SIGNALS, hold->owner);
}

/* A slot: a flawed rung uses its names again, so its release waits for the answer of a renewal. */
static dlock_status renew(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    struct answer renewed = EVAL(env, &lua_reentrant_renew, "1", hold->key, hold->owner, ttl);
    return renewed.status != DLOCK_OK ? renewed.status : take_ours(hold, &renewed);
}

const struct rung_ops rung_blpop_wake = {
    .name = "blpop_wake",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT,
    .send_acquire = send_acquire,
    .take_acquire = take_acquire,
    .send_release = send_release,
    .take_release = take_ours,
    .renew = renew,
};
