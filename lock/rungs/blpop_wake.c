/* SPDX-License-Identifier: Apache-2.0
 *
 * blpop_wake -- the hash, and a signal on a list that waiters block on.
 * ADDS   waiters sleep until a release pushes its signal
 * FLAW   a signal wakes one waiter: when its sender or its receiver dies, the others sleep on
 * SHOW   scripts/rung break blpop_wake
 * CURE   notify
 * NEXT   notify
 * COST   2 round trips, and one every TTL/3; to wait, a BLPOP, then one attempt per signal
 */
#include "redis_rung.h"

#include <stdio.h>

#define SIGNALS "%s:signals" /* the lock's list of signals */
#define AGAIN_MS 30000       /* without a signal a waiter tries again then: a usual BLPOP timeout */

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_reentrant_acquire, "1", hold->key, hold->owner, hold->ttl, hold->count);
}

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    dlock_status status = take_acquired(hold, answer, busy);
    if (status == DLOCK_BUSY) {
        busy->kind = WAIT_SIGNALS;
        busy->again_ms = AGAIN_MS;
        snprintf(busy->source, sizeof busy->source, SIGNALS, hold->key);
    }
    return status;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_blpop_wake_release, "2", hold->key,
         request_text(request, SIGNALS, hold->key), hold->owner);
}

/* A slot, not a send/take pair: the hold's release then waits for the renewal's answer. It must,
 * because an owner of a flawed rung uses its name again. */
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
