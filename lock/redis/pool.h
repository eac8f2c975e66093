/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's connections: a bounded number, each lent for one request.
 */
#ifndef DLOCK_POOL_H
#define DLOCK_POOL_H

#include "redis.h"

struct pool {
    struct redis_config *config;
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t returned;
    struct redis **idle;
    size_t idle_count;
    size_t made;
    size_t max;
};

bool pool_init(struct pool *pool, struct redis_config *config, size_t max);
void pool_destroy(struct pool *pool);

/* Lends a connection: `wanted`, if it is idle. Makes one if all are lent and fewer than `max`
 * exist. OK; LIMIT: all were still lent at the deadline; NO_MEMORY. */
dlock_status pool_take(struct pool *pool, const struct redis *wanted, int64_t deadline_ns,
                       struct redis **redis);
/* Lends one that is idle and connected; NULL: there is none. */
struct redis *pool_take_up(struct pool *pool);
void pool_give(struct pool *pool, struct redis *redis);

#endif
