/* SPDX-License-Identifier: Apache-2.0
 *
 * notify -- the hash, and a message to the waiters: the keys of Redisson's RLock.
 * ADDS   waiters sleep until the release's message; a token, which clients of Redisson do not draw
 * FLAW   no order: one waiter of each client wakes, and the fastest acquires the lock
 * SHOW   scripts/rung break notify
 * CURE   fair
 * NEXT   fair
 * COST   2 round trips, and one every TTL/3; to wait, a SUBSCRIBE, then one attempt per message
 */
#include "redis_rung.h"

#include <string.h>

#define FALLBACK_MS 5000    /* a message can be lost, so no waiter sleeps longer */
#define TOKEN_MS "86400000" /* ttl of the token key: otherwise each name would leave one for ever */

/* Redisson's channel name. Redisson looks for a brace, not for a complete hash tag. */
static const char *channel_of(struct request *request, const char *name)
{
    return request_text(request,
                        strchr(name, '{') != NULL ? "redisson_lock__channel:%s"
                                                  : "redisson_lock__channel:{%s}",
                        name);
}

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_notify_acquire, "2", hold->key, hold->beside[0], hold->owner, hold->ttl,
         hold->count, TOKEN_MS);
}

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    const redisReply *reply = answer->reply;
    struct request request = {.used = 0};
    if (!are_integers(answer, 2))
        return DLOCK_UNKNOWN;
    int64_t number = reply->element[1]->integer;
    if (reply->element[0]->integer == 1) {
        hold->token = (uint64_t)number;
        return DLOCK_OK;
    }
    busy->kind = WAIT_CHANNEL;
    busy->no_publish = reply->elements > 2; /* perhaps no message comes, so poll */
    busy->again_ms = number >= 0 && number + 2 < FALLBACK_MS ? number + 2 : FALLBACK_MS;
    strcpy(busy->source, channel_of(&request, hold->key));
    return DLOCK_BUSY;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    SEND(request, &lua_notify_release, "2", hold->key, channel_of(request, hold->key), hold->owner,
         hold->count);
}

static void send_renew(struct request *request, const struct dlock_hold *hold, const char *ttl)
{
    SEND(request, &lua_reentrant_renew, "1", hold->key, hold->owner, ttl);
}

static struct answer force_release(struct rung_env *env, const char *key, const char *const *beside)
{
    struct request request = {.used = 0};
    (void)beside;
    return EVAL(env, &lua_break, "2", key, channel_of(&request, key), env->key_type);
}

const struct rung_ops rung_notify = {
    .name = "notify",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_TOKEN,
    .contend = CONTEND_ONE_PER_CLIENT,
    .beside = {{"token", "string"}},
    .send_acquire = send_acquire,
    .take_acquire = take_acquire,
    .send_release = send_release,
    .take_release = take_ours,
    .send_renew = send_renew,
    .take_renew = take_ours,
    .force_release = force_release,
};
