/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks into a client of etcd.
 */
#ifndef TESTS_ETCD_INSIDE_H
#define TESTS_ETCD_INSIDE_H

#include "cleanups.h"
#include "etcd.h"

static inline struct etcd *inside(dlock_client *client)
{
    return etcd_of(session_of(client));
}

static inline uint64_t moves_of(dlock_client *client)
{
    struct etcd *in = inside(client);
    pthread_mutex_lock(&in->base.mutex);
    uint64_t moves = in->moves;
    pthread_mutex_unlock(&in->base.mutex);
    return moves;
}

/* Whether the lock's watch has begun at the servers. */
static inline bool is_watched(dlock_client *client, dlock *lock)
{
    const struct etcd_queue *queue = lock->engine_state;
    pthread_mutex_lock(&inside(client)->base.mutex);
    bool watched = queue->watch != NULL && queue->watch->answered;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return watched;
}

static inline uint64_t heard_of(dlock_client *client, dlock *lock)
{
    const struct etcd_queue *queue = lock->engine_state;
    pthread_mutex_lock(&inside(client)->base.mutex);
    uint64_t heard = queue->heard;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return heard;
}

#endif
