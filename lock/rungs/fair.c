/* SPDX-License-Identifier: Apache-2.0
 *
 * fair -- first come, first served: whoever releases hands the lock to the next, and wakes only it.
 * ADDS   order: clients queue in Redis, the waiters of a client in its memory
 * FLAW   a frozen process still writes late: the order is right, its write is not
 * SHOW   scripts/rung break fair
 * NEXT   fenced
 * COST   2 round trips; passed on inside the client 0; one every TTL/3
 */
#include "../client.h"

#include <stdio.h>

extern const struct script lua_fair;

#define OPERATORS_GRANT_MS "1000" /* to the next, when a lock is broken */

struct keys {
    char queue[DLOCK_NAME_MAX + 16];
    char token[DLOCK_NAME_MAX + 16];
    char grant[DLOCK_NAME_MAX + 16];
    char client[37];
    char grant_ms[24];
    char first[24];
    char newest[24];
};

static struct keys keys_of(const struct dlock_hold *hold)
{
    struct keys keys;
    snprintf(keys.queue, sizeof keys.queue, "%s:queue", hold->key);
    snprintf(keys.token, sizeof keys.token, "%s:token", hold->key);
    snprintf(keys.grant, sizeof keys.grant, "%s:grant", hold->key);
    snprintf(keys.client, sizeof keys.client, "%.36s", hold->owner);
    snprintf(keys.grant_ms, sizeof keys.grant_ms, "%lld",
             (long long)hold->lock->client->options.grant_ms);
    snprintf(keys.first, sizeof keys.first, "%llu", (unsigned long long)hold->tenure);
    snprintf(keys.newest, sizeof keys.newest, "%llu", (unsigned long long)hold->newest);
    return keys;
}

/* The script's answer: a list of numbers. */
struct result {
    dlock_status status;
    long long numbers[3];
};

static struct result run(struct rung_env *env, struct dlock_hold *hold, const char *what)
{
    struct keys keys = keys_of(hold);
    struct answer answer =
        EVAL(env, &lua_fair, "4", hold->key, keys.queue, keys.token, keys.grant, what, keys.client,
             hold->ttl, keys.grant_ms, keys.first, hold->more ? "1" : "0",
             hold->newest != 0 ? keys.newest : NULL);
    struct result result = {.status = answer.status};
    if (answer.status != DLOCK_OK)
        return result;
    if (answer.reply->type != REDIS_REPLY_ARRAY)
        result.status = fail(DLOCK_REFUSED, "'%s': the server's answer was not understood", hold->key);
    for (size_t i = 0; result.status == DLOCK_OK && i < answer.reply->elements && i < 3; i++)
        result.numbers[i] = answer.reply->element[i]->integer;
    if (result.numbers[2] == 1)
        add_one(&hold->lock->client->grants_expired);
    return result;
}

static void take(struct dlock_hold *hold, long long token)
{
    hold->token = hold->tenure = (uint64_t)token;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    struct result had = run(env, hold, "acquire");
    if (had.status != DLOCK_OK)
        return had.status;
    if (had.numbers[0] == 1) {
        take(hold, had.numbers[1]);
        point(env, "acquired");
        return DLOCK_OK;
    }
    int64_t poll_ms = hold->lock->client->options.grant_ms / 2;
    busy->kind = WAIT_LIST;
    busy->again_ms = had.numbers[1] >= 0 && had.numbers[1] + 2 < poll_ms ? had.numbers[1] + 2 : poll_ms;
    snprintf(busy->source, sizeof busy->source, "wake:%.36s", hold->owner);
    return DLOCK_BUSY;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct result left = run(env, hold, "release");
    if (left.status != DLOCK_OK)
        return left.status;
    hold->kept = left.numbers[0] == 2;
    if (hold->kept)
        take(hold, left.numbers[1]);
    return left.numbers[0] == 0 ? DLOCK_LOST : DLOCK_OK;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold)
{
    struct result renewed = run(env, hold, "renew");
    if (renewed.status != DLOCK_OK)
        return renewed.status;
    return renewed.numbers[0] == 1 ? DLOCK_OK : DLOCK_LOST;
}

/* To ask again is to ask what became of it: what is held already is held with a new token. */
static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct busy busy;
    return try_acquire(env, hold, &busy);
}

static void give_up(struct rung_env *env, struct dlock_hold *hold)
{
    run(env, hold, "leave");
}

/* By an operator, who is in no client's queue. */
static struct answer force_release(struct rung_env *env, const char *key)
{
    char queue[DLOCK_NAME_MAX + 16], token[DLOCK_NAME_MAX + 16], grant[DLOCK_NAME_MAX + 16];
    snprintf(queue, sizeof queue, "%s:queue", key);
    snprintf(token, sizeof token, "%s:token", key);
    snprintf(grant, sizeof grant, "%s:grant", key);
    return EVAL(env, &lua_fair, "4", key, queue, token, grant, "break", "", "0", OPERATORS_GRANT_MS, "0", "0");
}

const struct rung_ops rung_fair = {
    .name = "fair",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_TOKEN | TRAIT_HANDOFF,
    .contend = CONTEND_ONE_PER_CLIENT,
    .ttl_ms = 3000,
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
    .give_up = give_up,
    .force_release = force_release,
};
