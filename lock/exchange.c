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

void exchange_all(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    client->engine->exchange(client, all, count);
    int64_t now_ns = mono_ns();
    for (size_t i = 0; i < count; i++) {
        if (exchange_settles(all[i]->status))
            atomic_store_explicit(&client->answered_ns, now_ns, memory_order_relaxed);
        else if (all[i]->step == STEP_ACQUIRE && all[i]->unresolved)
            all[i]->status = DLOCK_UNKNOWN;
    }
}

dlock_status send_alone(struct dlock_hold *hold, struct dlock_batch *last,
                        struct dlock_batch *reads, int64_t ends_ns, bool *open)
{
    struct exchange exchange = {.step = STEP_ALONE, .hold = hold, .last = last, .reads = reads,
                                .limit_ns = ends_ns, .ends_ns = ends_ns};
    *open = false;
    if (last == NULL && reads == NULL)
        return DLOCK_OK;
    dlock_status status = exchange_one(hold->lock->client, &exchange);
    *open = exchange.open;
    return status;
}
