/* SPDX-License-Identifier: Apache-2.0
 *
 * See renewals.h.
 */
#include "renewals.h"

#include "client.h"

#include <stdio.h>

/* Another attempt takes as long as this many answers: to connect, log in, renew, and one more. */
#define TRY_ANSWERS 4

static const struct renewal *renewals_oldest(const struct renewals *renewals)
{
    return &renewals->all[renewals->first];
}

bool renewals_init(struct renewals *renewals, struct dlock_client *client)
{
    renewals->client = client;
    renewals->ops = client->engine->renewer;
    if (renewals->ops != NULL)
        renewals->renewer = renewals->ops->make(client);
    return renewals->ops == NULL || renewals->renewer != NULL;
}

void renewals_end(struct renewals *renewals)
{
    if (renewals->renewer != NULL)
        renewals->ops->free(renewals->renewer);
}

/* ---- Sending --------------------------------------------------------------------------------- */

void renewals_begin(struct renewals *renewals)
{
    int64_t connect_ns = renewals->ops->begin(renewals->renewer);
    if (renewals->answer_ns == 0)
        renewals->answer_ns = connect_ns; /* an answer takes as long as that, or half */
}

void renewals_add(struct renewals *renewals, struct dlock_hold *hold, int64_t ttl_ms,
                  int64_t sent_ns)
{
    size_t place = (renewals->first + renewals->count++) % RENEWALS_UNDER_WAY_MAX;
    struct renewal *renewal = &renewals->all[place];
    bool in_full = renewals->ops->add(renewals->renewer, hold, ttl_ms);
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

/* Since when the connection owes an answer, and nothing has come. */
static int64_t silent_since_ns(const struct renewals *renewals)
{
    return max_ns(renewals_oldest(renewals)->sent_ns, renewals->heard_ns);
}

/* The server has carried out the renewals, and waits for its replicas. An attempt on another
 * connection would wait for them, too. */
static bool are_confirming(const struct renewals *renewals, int64_t now_ns)
{
    int64_t silence_ns = renewals->client->options.command_timeout_ms * NS_PER_MS;
    return renewals->ops->is_confirming(renewals->renewer) &&
           now_ns < silent_since_ns(renewals) + silence_ns;
}

/* Keeps half of a hold's remaining validity for another attempt: at half, the connection is given
 * up, unless only replicas are awaited. If half is too short for an attempt, the hold waits for its
 * answer. Such a hold does not count here. */
int64_t renewals_limit_ns(const struct renewals *renewals, const struct heap *due)
{
    int64_t since_ns = silent_since_ns(renewals);
    int64_t silence_ns = renewals->client->options.command_timeout_ms * NS_PER_MS;
    int64_t enough_ns = since_ns + 2 * TRY_ANSWERS * renewals->answer_ns;
    if (are_confirming(renewals, renewals->client->now_ns()))
        return since_ns + silence_ns;
    int64_t end_ns = min_ns(heap_soonest_from_ns(&renewals->under_way, enough_ns),
                            heap_soonest_from_ns(due, enough_ns));
    return since_ns + min_ns(silence_ns, (end_ns - since_ns) / 2);
}

/* The renewals that were under way are uncertain. From now on an answer is assumed to take longer
 * than this one was awaited. So a slow server is not given up again and again. */
static void renewals_give_up(struct renewals *renewals, int64_t now_ns)
{
    renewals->status = renewals->ops->give_up(renewals->renewer);
    snprintf(renewals->why, sizeof renewals->why, "%s", dlock_error());
    renewals->answer_ns = max_ns(renewals->answer_ns, now_ns - silent_since_ns(renewals));
    renewals->broke = true;
}

void renewals_wait(struct renewals *renewals, int wake_fd, bool late)
{
    dlock_status waited = renewals->ops->wait(renewals->renewer, wake_fd, late);
    int64_t now_ns = renewals->client->now_ns();
    if (waited == DLOCK_CANCELLED)
        return;
    if (late && are_confirming(renewals, now_ns)) /* the server has answered in the meantime */
        return;
    if (!renewals->ops->has_answer(renewals->renewer)) {
        renewals_give_up(renewals, now_ns);
        return;
    }
    /* The estimate rises at once, and falls slowly. */
    int64_t took_ns = now_ns - renewals_oldest(renewals)->sent_ns;
    renewals->answer_ns = max_ns(took_ns, (took_ns + renewals->answer_ns) / 2);
    renewals->heard_ns = now_ns;
}

/* ---- Answers --------------------------------------------------------------------------------- */

bool renewals_take(struct renewals *renewals, struct renewed *renewed)
{
    if (renewals->count == 0)
        return false;
    bool answered = renewals->ops->has_answer(renewals->renewer);
    if (!answered && !renewals->broke)
        return false;
    struct renewal renewal = *renewals_oldest(renewals);
    struct dlock_hold *hold = renewal.hold;
    *renewed = (struct renewed){.hold = hold,
                                .sent_ns = renewal.sent_ns,
                                .ttl_ms = renewal.ttl_ms,
                                .status = renewals->status,
                                .why = renewals->why};
    renewals->first = (renewals->first + 1) % RENEWALS_UNDER_WAY_MAX;
    if (--renewals->count == 0)
        renewals->broke = false;
    if (hold != NULL)
        renewals_drop(hold);
    if (!answered)
        return true;
    bool distrusted = false;
    renewed->status =
        renewals->ops->take(renewals->renewer, hold, renewal.in_full, &renewed->again, &distrusted);
    renewals->distrusted |= distrusted;
    renewed->why = dlock_error();
    return true;
}
