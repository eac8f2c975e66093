/* SPDX-License-Identifier: Apache-2.0
 *
 * The workers' connections to the stock's server. Each worker has one, made when it first needs it.
 * While a worker rests, another one without a connection uses that of the resting one. So what
 * keeps new connections from being made, such as sentinels that are away, stops no sale.
 */
#ifndef STOCK_SHARE_H
#define STOCK_SHARE_H

#include "../lock/redis/redis.h"

/* A worker's part. The others may exchange `redis` while it rests. */
struct sharer {
    struct redis *redis;
    bool rests; /* with a connection: it is in share->resting */
    bool works; /* it does not rest, and had a connection when that was last looked at */
    bool grows; /* it makes one more connection than there are */
    bool given; /* it waited, and got another one's connection */
    TAILQ_ENTRY(sharer) place;
};

struct share {
    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t given;
    TAILQ_HEAD(sharers, sharer) resting; /* with a connection; the latest is first */
    struct sharers waiting;
    size_t working;  /* sharers that work */
    bool growing;    /* one of them grows */
    int64_t grow_ns; /* CLOCK_MONOTONIC: not before */
};

void share_init(struct share *share);
void share_destroy(struct share *share);

/* The worker begins to work, or rests. */
void share_wake(struct share *share, struct sharer *sharer);
void share_rest(struct share *share, struct sharer *sharer);

/* The sharer has no connection. TAKEN: it has one now, of a sharer that rested. CONNECT: make one.
 * GROW: make one more; if that fails, ask again. Waits for at most 100 ms, and only if others have
 * connections. grows: it may be told to GROW. */
enum share_next { SHARE_TAKEN, SHARE_CONNECT, SHARE_GROW };
enum share_next share_find(struct share *share, struct sharer *sharer, bool grows);
/* What has become of CONNECT or GROW. */
void share_connected(struct share *share, struct sharer *sharer, bool connected);

#endif
