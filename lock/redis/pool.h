/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's connections: a bounded number, each lent for one request.
 */
#ifndef DLOCK_POOL_H
#define DLOCK_POOL_H

#include "redis.h"

struct errand;

struct pool {
    struct redis_config *config;
    pthread_mutex_t mutex; /* protects what is below */
    STAILQ_HEAD(, errand) errands;
    size_t errand_count;
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
/* Takes the late replies that have come on that connection, if it is idle. Else its borrower does.
 * Does not wait. */
void pool_catch_up(struct pool *pool, const struct redis *redis);
/* Sends a command to some of the servers (a bit each) on that connection, one of this pool's: when
 * it is returned. So the command follows what its borrower sends, and what was sent before. No
 * answer is awaited; the command is kept as by redis_keep. Without memory, or beyond 4096, it is
 * dropped. */
void pool_send_later(struct pool *pool, const struct redis *redis, uint32_t servers, int argc,
                     const char *const *argv);

#endif
