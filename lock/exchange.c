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

static void note_answer(struct dlock_client *client, struct exchange *exchange, int64_t now_ns)
{
    if (exchange_settles(exchange->status))
        atomic_store_explicit(&client->answered_ns, now_ns, memory_order_relaxed);
    else if (exchange->step == STEP_ACQUIRE && exchange->unresolved)
        exchange->status = DLOCK_UNKNOWN;
}

void exchange_answered(struct exchange *exchange)
{
    struct dlock_client *client = exchange->hold->lock->client;
    struct loop *loop = &client->loop;
    note_answer(client, exchange, mono_ns());
    pthread_mutex_lock(&loop->mutex);
    exchange->over = true;
    if (exchange->wait != NULL)
        loop_answered(loop, exchange->wait);
    else
        pthread_cond_broadcast(&client->exchange_over);
    pthread_mutex_unlock(&loop->mutex);
}

void exchange_begin(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i]->over = false;
    client->engine->exchange(client, all, count);
}

static void wait_for(struct dlock_client *client, const struct exchange *exchange)
{
    loop_may_block(&client->loop);
    pthread_mutex_lock(&client->loop.mutex);
    while (!exchange->over)
        pthread_cond_wait(&client->exchange_over, &client->loop.mutex);
    pthread_mutex_unlock(&client->loop.mutex);
}

void exchange_all(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i]->wait = NULL;
    exchange_begin(client, all, count);
    int64_t now_ns = mono_ns();
    for (size_t i = 0; i < count; i++)
        if (client->engine->answers_later)
            wait_for(client, all[i]);
        else
            note_answer(client, all[i], now_ns);
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
