/* SPDX-License-Identifier: Apache-2.0
 *
 * fair -- first come, first served: a release grants the lock to the next client, and wakes it.
 * ADDS   order: clients queue in Redis, the waiters of a client in its memory
 * FLAW   while a process is frozen, it cannot notice that it lost the lock; it writes late
 * SHOW   scripts/rung break fair
 * CURE   fenced
 * NEXT   read_write
 * COST   2 round trips; handed off inside the client 0; one every TTL/3
 */
#include "redis_rung.h"

#include <stdio.h>

#define OPERATORS_GRANT_MS "1000" /* a tenth of the grant note's ttl, if no client waits */

static const char *number(struct request *request, uint64_t value)
{
    return request_text(request, "%llu", (unsigned long long)value);
}

static void say(struct request *request, const struct dlock_hold *hold, const char *what,
                const char *ttl)
{
    int64_t grant_ms = rung_grant_ms(hold);
    SEND(request, &lua_fair, "4", hold->key, hold->beside[0], hold->beside[1], hold->beside[2],
         what, rung_client_id(hold), ttl, number(request, (uint64_t)grant_ms),
         number(request, hold->handoff->grant), hold->handoff->more ? "1" : "0",
         number(request, hold->handoff->try),
         hold->handoff->newest != 0 ? number(request, hold->handoff->newest) : NULL);
}

/* Reads the script's answer, a list of integers. UNKNOWN: it is something else. */
static dlock_status take(const struct dlock_hold *hold, const struct answer *answer,
                         long long numbers[3])
{
    if (!are_integers(answer, 1))
        return DLOCK_UNKNOWN;
    for (size_t i = 0; i < 3; i++)
        numbers[i] = i < answer->reply->elements ? answer->reply->element[i]->integer : 0;
    if (numbers[2] == 1)
        rung_count_expired_grant(hold);
    return DLOCK_OK;
}

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    say(request, hold, "acquire", hold->ttl);
}

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    long long numbers[3];
    dlock_status status = take(hold, answer, numbers);
    if (status != DLOCK_OK)
        return status;
    if (numbers[0] == 1) {
        hold->token = hold->handoff->grant = (uint64_t)numbers[1];
        return DLOCK_OK;
    }
    int64_t poll_ms = rung_grant_ms(hold) / 2;
    busy->kind = WAIT_LIST;
    busy->again_ms = numbers[1] >= 0 && numbers[1] + 2 < poll_ms ? numbers[1] + 2 : poll_ms;
    snprintf(busy->source, sizeof busy->source, "dlock:wake:%s", rung_client_id(hold));
    return DLOCK_BUSY;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    say(request, hold, "release", hold->ttl);
}

static dlock_status take_release(struct dlock_hold *hold, const struct answer *answer)
{
    long long numbers[3];
    dlock_status status = take(hold, answer, numbers);
    if (status != DLOCK_OK)
        return status;
    hold->handoff->kept = numbers[0] == 2;
    if (hold->handoff->kept)
        hold->token = (uint64_t)numbers[1];
    return numbers[0] == 0 ? DLOCK_LOST : DLOCK_OK;
}

static void send_renew(struct request *request, const struct dlock_hold *hold, const char *ttl)
{
    say(request, hold, "renew", ttl);
}

static dlock_status take_renew(struct dlock_hold *hold, const struct answer *answer)
{
    long long numbers[3];
    dlock_status status = take(hold, answer, numbers);
    if (status != DLOCK_OK)
        return status;
    return numbers[0] == 1 ? DLOCK_OK : DLOCK_LOST;
}

static void send_give_up(struct request *request, const struct dlock_hold *hold)
{
    say(request, hold, "leave", hold->ttl);
}

/* The operator is not a client: its id is empty, and it has no token and no waiters. */
static struct answer force_release(struct rung_env *env, const char *key, const char *const *beside)
{
    return EVAL(env, &lua_fair, "4", key, beside[0], beside[1], beside[2], "break", "", "0",
                OPERATORS_GRANT_MS, "0", "0");
}

const struct rung_ops rung_fair = {
    .name = "fair",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_TOKEN | TRAIT_HANDOFF,
    .contend = CONTEND_ONE_PER_CLIENT,
    .ttl_ms = 3000,
    .beside = {{"queue", "list"}, {"token", "string"}, {"grant", "string"}},
    .send_acquire = send_acquire,
    .take_acquire = take_acquire,
    .send_release = send_release,
    .take_release = take_release,
    .send_renew = send_renew,
    .take_renew = take_renew,
    .send_give_up = send_give_up,
    .force_release = force_release,
};
