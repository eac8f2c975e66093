/* SPDX-License-Identifier: Apache-2.0
 *
 * See renewals.h.
 */
#include "renewals.h"

#include "client.h"

#include <stdio.h>

#define TRY_ANSWERS 4 /* another try takes so many answers' time: connect, log in, renew; and one */

static struct renewal *oldest(struct renewals *renewals)
{
    return &renewals->all[renewals->first];
}

/* ---- Sending --------------------------------------------------------------------------------- */

void renewals_begin(struct renewals *renewals)
{
    redis_begin(renewals->redis);
    renewals->taken = 0;
    if (renewals->answer_ns == 0)
        renewals->answer_ns = redis_connect_ns(renewals->redis, 0); /* as long, or half */
}

/* The first that needs a script carries it for those after it. */
static bool must_carry(struct renewals *renewals, const struct script *script)
{
    for (size_t i = 0; i < renewals->known_count; i++)
        if (renewals->known[i] == script)
            return false;
    if (renewals->known_count < RENEWAL_SCRIPTS_MAX)
        renewals->known[renewals->known_count++] = script;
    return true;
}

void renewals_add(struct renewals *renewals, struct dlock_hold *hold, int64_t ttl_ms,
                  int64_t sent_ns)
{
    size_t place = (renewals->first + renewals->count++) % RENEWALS_UNDER_WAY_MAX;
    struct renewal *renewal = &renewals->all[place];
    struct request request;
    char ttl[24];
    request.used = 0;
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    hold->lock->ops->send_renew(&request, hold, ttl);
    bool in_full = must_carry(renewals, request.script);
    if (in_full)
        add_one(&renewals->client->scripts_loaded);
    request_append(renewals->redis, &request, in_full);
    renewals_drop(hold);
    *renewal = (struct renewal){hold, sent_ns, ttl_ms, in_full};
    hold->renewal_sent = renewal;
}

void renewals_drop(struct dlock_hold *hold)
{
    if (hold->renewal_sent == NULL)
        return;
    hold->renewal_sent->hold = NULL;
    hold->renewal_sent = NULL;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* The connection owes an answer, and nothing has come since. */
static int64_t silent_since_ns(struct renewals *renewals)
{
    return max_ns(oldest(renewals)->sent_ns, renewals->heard_ns);
}

/* Half of what a hold has left is kept for another try, if that is enough for one. A hold for which
 * it is not waits for its answer: on its behalf nothing is given up. */
int64_t renewals_limit_ns(struct renewals *renewals)
{
    int64_t since_ns = silent_since_ns(renewals);
    int64_t silence_ns = renewals->client->config.command_timeout_ms * NS_PER_MS;
    struct heap *under_way = &renewals->under_way;
    while (under_way->first != NULL &&
           (under_way->first->at_ns - since_ns) / 2 < TRY_ANSWERS * renewals->answer_ns)
        heap_take(under_way->first);
    if (under_way->first != NULL && (under_way->first->at_ns - since_ns) / 2 < silence_ns)
        silence_ns = (under_way->first->at_ns - since_ns) / 2;
    return since_ns + silence_ns;
}

/* What was under way is unknown. An answer takes longer than it was waited for, as far as is known:
 * so a slow server is not given up time and again. */
static void give_up(struct renewals *renewals, int64_t now_ns)
{
    renewals->status = redis_finish(renewals->redis);
    snprintf(renewals->why, sizeof renewals->why, "%s", dlock_error());
    renewals->answer_ns = max_ns(renewals->answer_ns, now_ns - silent_since_ns(renewals));
    renewals->known_count = 0;
    renewals->broke = true;
}

void renewals_wait(struct renewals *renewals, int wake_fd, bool late)
{
    redis_send(renewals->redis);
    dlock_status waited =
        redis_next(renewals->redis, late ? 0 : INT64_MAX, late ? -1 : wake_fd);
    int64_t now_ns = renewals->client->now_ns();
    renewals->taken = 0;
    if (waited == DLOCK_CANCELLED)
        return;
    if (redis_reply(renewals->redis, 0, 0) == NULL) {
        give_up(renewals, now_ns);
        return;
    }
    /* It rises at once, and falls slowly. */
    int64_t took_ns = now_ns - oldest(renewals)->sent_ns;
    renewals->answer_ns = max_ns(took_ns, (took_ns + renewals->answer_ns) / 2);
    renewals->heard_ns = now_ns;
}

/* ---- Answers --------------------------------------------------------------------------------- */

/* NULL: it has none. */
static const redisReply *take_oldest(struct renewals *renewals)
{
    const redisReply *reply = redis_reply(renewals->redis, 0, renewals->taken);
    if (reply != NULL)
        renewals->taken++;
    renewals->first = (renewals->first + 1) % RENEWALS_UNDER_WAY_MAX;
    if (--renewals->count == 0)
        renewals->broke = false;
    return reply;
}

bool renewals_take(struct renewals *renewals, struct renewed *renewed)
{
    if (renewals->count == 0 || (!renewals->broke && redis_reply(renewals->redis, 0,
                                                                 renewals->taken) == NULL))
        return false;
    struct renewal renewal = *oldest(renewals);
    struct dlock_hold *hold = renewal.hold;
    const redisReply *reply = take_oldest(renewals);
    *renewed = (struct renewed){.hold = hold,
                                .sent_ns = renewal.sent_ns,
                                .ttl_ms = renewal.ttl_ms,
                                .status = renewals->status,
                                .why = renewals->why};
    if (hold == NULL)
        return true;
    renewals_drop(hold);
    if (reply == NULL)
        return true;
    struct rung_env env = {.redis = renewals->redis};
    struct answer answer = answer_of(&env, reply, redis_server(renewals->redis, 0));
    renewed->script_missing = script_is_missing(&answer) && !renewal.in_full;
    if (renewed->script_missing)
        renewals->known_count = 0;
    renewed->status = answer.status == DLOCK_OK ? hold->lock->ops->take_renew(hold, &answer)
                                                : answer.status;
    if (answer.status == DLOCK_OK && renewed->status == DLOCK_UNKNOWN) {
        renewed->status = fail(DLOCK_UNKNOWN, NOT_UNDERSTOOD, hold->key);
        renewals->distrusted = true;
    }
    renewed->why = dlock_error();
    return true;
}
