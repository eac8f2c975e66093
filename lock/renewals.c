/* SPDX-License-Identifier: Apache-2.0
 *
 * See renewals.h.
 */
#include "renewals.h"

#include "client.h"

#include <stdio.h>

void renewals_begin(struct renewals *renewals, int64_t sent_ns, bool in_full)
{
    renewals->sent = false;
    renewals->count = renewals->next = renewals->script_count = 0;
    renewals->sent_ns = sent_ns;
    renewals->in_full = in_full;
    redis_begin(renewals->redis);
}

/* The first renewal that needs a script carries it for those after it. */
static bool must_carry(struct renewals *renewals, const struct script *script)
{
    if (!renewals->in_full)
        return false;
    for (size_t i = 0; i < renewals->script_count; i++)
        if (renewals->scripts[i] == script)
            return false;
    if (renewals->script_count < RENEWAL_SCRIPTS_MAX)
        renewals->scripts[renewals->script_count++] = script;
    return true;
}

bool renewals_add(struct renewals *renewals, struct dlock_hold *hold, int64_t ttl_ms)
{
    struct renewal *renewal = &renewals->all[renewals->count++];
    struct request request;
    char ttl[24];
    request.used = 0;
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    hold->lock->ops->send_renew(&request, hold, ttl);
    bool in_full = must_carry(renewals, request.script);
    if (in_full)
        add_one(&renewals->client->scripts_loaded);
    request_append(renewals->redis, &request, in_full);
    *renewal = (struct renewal){hold, ttl_ms};
    hold->renewal_sent = renewal;
    return renewals->count < RENEWALS_PER_WRITE;
}

bool renewals_wait(struct renewals *renewals, int wake_fd, bool at_once)
{
    if (!renewals->sent) {
        renewals->sent = true;
        renewals->limit_ns = mono_deadline_ns(renewals->client->config.command_timeout_ms);
        redis_send(renewals->redis);
    }
    dlock_status waited =
        redis_wait(renewals->redis, at_once ? 0 : renewals->limit_ns, at_once ? -1 : wake_fd);
    if (waited == DLOCK_CANCELLED)
        return false;
    renewals->status = redis_finish(renewals->redis);
    snprintf(renewals->why, sizeof renewals->why, "%s", dlock_error());
    return true;
}

void renewals_drop(struct dlock_hold *hold)
{
    if (hold->renewal_sent == NULL)
        return;
    hold->renewal_sent->hold = NULL;
    hold->renewal_sent = NULL;
}

bool renewals_take(struct renewals *renewals, struct renewed *renewed)
{
    if (renewals->next == renewals->count)
        return false;
    const redisReply *reply = redis_reply(renewals->redis, 0, renewals->next);
    struct renewal *renewal = &renewals->all[renewals->next++];
    struct dlock_hold *hold = renewal->hold;
    *renewed = (struct renewed){
        .hold = hold, .ttl_ms = renewal->ttl_ms, .status = renewals->status, .why = renewals->why};
    if (hold == NULL)
        return true;
    renewals_drop(hold);
    if (reply == NULL)
        return true;
    struct rung_env env = {.redis = renewals->redis};
    struct answer answer = answer_of(&env, reply, redis_server(renewals->redis, 0));
    renewed->script_missing = script_is_missing(&answer) && !renewals->in_full;
    renewed->status = answer.status == DLOCK_OK ? hold->lock->ops->take_renew(hold, &answer)
                                                : answer.status;
    if (answer.status == DLOCK_OK && renewed->status == DLOCK_UNKNOWN) {
        renewals->status = not_understood(&env, hold); /* the others' replies are gone, too */
        snprintf(renewals->why, sizeof renewals->why, "%s", dlock_error());
    }
    renewed->why = dlock_error();
    return true;
}
