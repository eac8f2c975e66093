/* SPDX-License-Identifier: Apache-2.0
 *
 * notify -- the hash, and a message to those who wait: Redisson's RLock, key for key.
 * ADDS   waiters sleep until the release's message; a token, which C clients alone draw
 * FLAW   no order: one waiter of each client wakes, the fastest has the lock
 * SHOW   scripts/rung break notify
 * NEXT   fair
 * COST   2 round trips, and one every TTL/3; to wait, a SUBSCRIBE, then a try a message
 */
#include "../rung.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct script lua_break;
extern const struct script lua_notify_acquire;
extern const struct script lua_notify_release;
extern const struct script lua_notify_resolve;
extern const struct script lua_reentrant_renew;

#define KEY_MAX (DLOCK_NAME_MAX + 96)
#define FALLBACK_MS 5000    /* a message can be lost: no waiter sleeps longer */
#define TOKEN_MS "86400000" /* without it every name would leave a key for ever */
#define LATCH_MS "20000"    /* a release whose reply was lost is not sent again after that */

/* Of one lock in this process. */
struct state {
    _Atomic uint64_t answered; /* an acquisition whose release was: its latch can go; 0: none */
};

/* A key or channel beside the lock's, in its slot: Redisson looks for a brace, not for a tag. */
static void beside(char key[KEY_MAX], const char *prefix, const char *name)
{
    snprintf(key, KEY_MAX, strchr(name, '{') != NULL ? "%s:%s" : "%s:{%s}", prefix, name);
}

static void channel_of(char channel[KEY_MAX], const char *name)
{
    beside(channel, "redisson_lock__channel", name);
}

/* Where a release leaves its answer: 32 hex digits name it, half the client's, half the hold's. */
static void latch_of(char latch[KEY_MAX], const struct dlock_hold *hold, uint64_t acquisition)
{
    const char *uuid = hold->owner;
    beside(latch, "redisson_unlock_latch", hold->key);
    size_t size = strlen(latch);
    snprintf(latch + size, KEY_MAX - size, ":%.8s%.4s%.4s%016llx", uuid, uuid + 9, uuid + 14,
             (unsigned long long)acquisition);
}

static void token_of(char token[KEY_MAX], const char *name)
{
    snprintf(token, KEY_MAX, "%s:token", name);
}

/* Redis' rule: the first '{', the next '}', and something between them. */
static bool has_tag(const char *name)
{
    const char *open = strchr(name, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    return close != NULL && close > open + 1;
}

/* Two values of that type are all that the scripts answer with. */
static bool is_pair(const struct answer *answer, int type)
{
    const redisReply *reply = answer->reply;
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == type && reply->element[1]->type == type;
}

static dlock_status not_understood(const struct dlock_hold *hold)
{
    return fail(DLOCK_UNKNOWN, "'%s': the server's answer was not understood", hold->key);
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    char token[KEY_MAX];
    if (strpbrk(hold->key, "{}") != NULL && !has_tag(hold->key))
        return fail(DLOCK_INVALID,
                    "'%s' has a brace but no hash tag, so its keys would not lie "
                    "together; a tag as in lock:{phone} or no brace would be right",
                    hold->key);
    token_of(token, hold->key);
    struct answer had =
        EVAL(env, &lua_notify_acquire, "2", hold->key, token, hold->owner, hold->ttl, TOKEN_MS);
    if (had.status != DLOCK_OK)
        return had.status;
    if (!is_pair(&had, REDIS_REPLY_INTEGER))
        return not_understood(hold);
    int64_t number = had.reply->element[1]->integer;
    if (had.reply->element[0]->integer == 0) {
        busy->kind = WAIT_CHANNEL;
        busy->again_ms = number >= 0 && number + 2 < FALLBACK_MS ? number + 2 : FALLBACK_MS;
        channel_of(busy->source, hold->key);
        return DLOCK_BUSY;
    }
    hold->token = (uint64_t)number;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    struct state *state = hold->lock_state;
    char channel[KEY_MAX];
    char latch[KEY_MAX];
    char before[KEY_MAX];
    channel_of(channel, hold->key);
    latch_of(latch, hold, hold->acquisition);
    latch_of(before, hold, atomic_exchange(&state->answered, 0));
    point(env, "before_release");
    struct answer left = EVAL(env, &lua_notify_release, "4", hold->key, channel, latch, before,
                              hold->owner, hold->ttl, LATCH_MS);
    if (left.status != DLOCK_OK)
        return left.status;
    atomic_store(&state->answered, hold->acquisition);
    return left.kind == DLOCK_REPLY_NIL ? DLOCK_LOST : DLOCK_OK;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer renewed = EVAL(env, &lua_reentrant_renew, "1", hold->key, hold->owner, hold->ttl);
    if (renewed.status != DLOCK_OK)
        return renewed.status;
    return renewed.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

/* While the lock is this hold's, no other C client has drawn a token. Asked one after the other,
 * the lock could expire in between, and the next holder's token be taken for this one's. */
static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    char token[KEY_MAX];
    token_of(token, hold->key);
    struct answer count = EVAL(env, &lua_notify_resolve, "2", hold->key, token, hold->owner);
    if (count.status != DLOCK_OK)
        return count.status;
    if (!is_pair(&count, REDIS_REPLY_STRING))
        return not_understood(hold);
    hold->token = strtoull(count.reply->element[1]->str, NULL, 10);
    return strtoull(count.reply->element[0]->str, NULL, 10) == hold->depth ? DLOCK_OK : DLOCK_BUSY;
}

static struct answer force_release(struct rung_env *env, const char *key)
{
    char channel[KEY_MAX];
    channel_of(channel, key);
    return EVAL(env, &lua_break, "2", key, channel);
}

const struct rung_ops rung_notify = {
    .name = "notify",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_TOKEN,
    .contend = CONTEND_ONE_PER_CLIENT,
    .state_size = sizeof(struct state),
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
    .force_release = force_release,
};
