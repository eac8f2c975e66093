/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange.h.
 */
#include "exchange.h"

#include "client.h"

#include <stdio.h>

bool exchange_shares(const struct exchange *exchange, const struct exchange *other)
{
    return exchange->hold->lock->client->engine->shares(exchange, other);
}

bool exchange_settles(dlock_status status)
{
    return status == DLOCK_OK || status == DLOCK_BUSY || status == DLOCK_LOST ||
           status == DLOCK_UPGRADE || status == DLOCK_WRONG_TYPE;
}

void exchange_set(struct exchange *exchange, dlock_status status)
{
    exchange->status = status;
    exchange->why[0] = '\0';
    if (status != DLOCK_OK)
        snprintf(exchange->why, sizeof exchange->why, "%s", dlock_error());
}

static void exchange_note_answer(struct dlock_client *client, struct exchange *exchange,
                                 int64_t now_ns)
{
    if (exchange_settles(exchange->status))
        atomic_store_explicit(&client->answered_ns, now_ns, memory_order_relaxed);
    else if (exchange->step == STEP_ACQUIRE && exchange->unresolved)
        exchange->status = DLOCK_UNKNOWN;
}

void exchange_begin(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    client->engine->exchange(client, all, count);
    if (client->engine->answers_later)
        return; /* some may have been freed by now */
    int64_t now_ns = mono_ns();
    for (size_t i = 0; i < count; i++)
        exchange_note_answer(client, all[i], now_ns);
}

void exchange_answered(struct exchange *exchange)
{
    exchange_note_answer(exchange->hold->lock->client, exchange, mono_ns());
    exchange->answered(exchange);
}
