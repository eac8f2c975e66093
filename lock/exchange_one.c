/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange_one.h.
 */
#include "exchange_one.h"

#include "client.h"

/* exchange.answered: wakes the thread that waits. */
static void wake_thread(struct exchange *exchange)
{
    struct dlock_client *client = exchange->hold->lock->client;
    pthread_mutex_lock(&client->loop.mutex);
    exchange->over = true;
    pthread_cond_broadcast(&client->exchange_over);
    pthread_mutex_unlock(&client->loop.mutex);
}

static void exchange_one_wait(struct dlock_client *client, const struct exchange *exchange)
{
    loop_may_block(&client->loop);
    pthread_mutex_lock(&client->loop.mutex);
    while (!exchange->over)
        pthread_cond_wait(&client->exchange_over, &client->loop.mutex);
    pthread_mutex_unlock(&client->loop.mutex);
}

dlock_status exchange_one(struct dlock_client *client, struct exchange *exchange)
{
    exchange->over = false;
    exchange->answered = wake_thread;
    exchange_begin(client, &exchange, 1);
    if (client->engine->answers_later)
        exchange_one_wait(client, exchange);
    return exchange_says(exchange);
}

dlock_status send_alone(struct dlock_hold *hold, struct dlock_batch *last,
                        struct dlock_batch *reads, int64_t ends_ns)
{
    struct exchange exchange = {.step = STEP_ALONE,
                                .hold = hold,
                                .last = last,
                                .reads = reads,
                                .limit_ns = ends_ns,
                                .ends_ns = ends_ns};
    bool empty = last == NULL && reads == NULL;
    return empty ? DLOCK_OK : exchange_one(hold->lock->client, &exchange);
}
