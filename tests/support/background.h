/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into a client of Redis.
 */
#ifndef TESTS_BACKGROUND_H
#define TESTS_BACKGROUND_H

#include "cleanups.h"
#include "redis_engine.h"

/* How many calls wait for a connection of the client's pool. */
static inline size_t wait_for_connection(dlock_client *client)
{
    struct pool *pool = &redis_of(client)->pool;
    const struct taker *taker;
    size_t count = 0;
    pthread_mutex_lock(&pool->mutex);
    TAILQ_FOREACH(taker, &pool->queue, in_queue)
        count++;
    pthread_mutex_unlock(&pool->mutex);
    return count;
}

#endif
