/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's connections: a bounded number, each lent for one request.
 */
#ifndef DLOCK_POOL_H
#define DLOCK_POOL_H

#include "redis.h"

struct errand;

/* A caller that waits for a connection. */
struct taker {
    TAILQ_ENTRY(taker) in_queue;
    uint32_t servers; /* it needs a connection that is up to these: see redis_up_to */
    pthread_cond_t woken;
    struct redis *given; /* another caller has returned it */
};

struct pool {
    struct redis_config *config;
    pthread_mutex_t mutex; /* protects what is below */
    STAILQ_HEAD(, errand) errands;
    size_t errand_count;
    TAILQ_HEAD(takers, taker) queue; /* callers that wait; the first is served next */
    struct redis **idle;
    size_t idle_count;
    size_t made;
    size_t max;
    size_t connecting; /* lent to be connected */
    bool refused;      /* the latest attempt of a caller in the queue has failed */
    int64_t grow_ns;   /* CLOCK_MONOTONIC: no caller in the queue connects one more before */
    bool keeps;        /* pool_send_kept is to be called */
};

bool pool_init(struct pool *pool, struct redis_config *config, size_t max);
void pool_destroy(struct pool *pool);

/* Lends a connection, connected as by redis_ready: `wanted` if it is idle and connected; else
 * another such one, first of all one that keeps a release for a server that was down; else one that
 * it connects, if fewer than `max` exist. With one server it does not wait for a new connection
 * while others are lent. It waits in the queue for the first that is returned, for
 * connect_timeout_ms at most. The callers in the queue connect one more meanwhile, and one each
 * after 100 ms, unless the server has just refused one. So if no connection can be made, those that
 * exist serve all callers.
 * LIMIT: all were still lent at the deadline; NO_MEMORY; CANCELLED: wake_fd is readable. *redis may
 * be NULL then. Otherwise what redis_ready says. If *redis is not NULL, it must be returned. */
dlock_status pool_take(struct pool *pool, const struct redis *wanted, int64_t deadline_ns,
                       int wake_fd, struct redis **redis);
/* Lends one that is connected to a majority among these servers (see redis_up_to), for a renewal.
 * While others are lent, it is the first in the queue for one, until the deadline, or until wake_fd
 * is readable. OK; LIMIT: there is none; CANCELLED. The thread's sentence is not set. */
dlock_status pool_take_up(struct pool *pool, uint32_t servers, int64_t deadline_ns, int wake_fd,
                          struct redis **redis);
/* Whether an idle one is connected to a majority among these servers. */
bool pool_has_up(struct pool *pool, uint32_t servers);
void pool_give(struct pool *pool, struct redis *redis);
/* Takes the late replies that have come on that connection, if it is idle. Else its borrower does.
 * Does not wait. */
void pool_catch_up(struct pool *pool, const struct redis *redis);
/* Goes on with what idle connections keep for a server that was away, was silent, or refused it:
 * takes replies, connects, and sends. Does not wait. After config->keeps was called: again and
 * again, until it returns that nothing is kept any more. */
bool pool_send_kept(struct pool *pool);
/* Sends a command to some of the servers (a bit each) on that connection, one of this pool's: when
 * it is returned. So the command follows what its borrower sends, and what was sent before. No
 * answer is awaited; the command is kept as by redis_keep. Without memory, or beyond 4096, it is
 * dropped. */
void pool_send_later(struct pool *pool, const struct redis *redis, uint32_t servers, int argc,
                     const char *const *argv);

#endif
