/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients of `fair`: waiters in the queue at the server, and started acquires that note their
 * order.
 */
#ifndef TESTS_FAIR_STAGE_H
#define TESTS_FAIR_STAGE_H

#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "redis_rung.h"
#include "started.h"
#include "waiter.h"

#define LOCK "lock:{fair}"
#define QUEUE "dlock:queue:" LOCK
#define OWNER 7

extern const struct rung_ops rung_fair;

struct member {
    dlock_client *client;
    dlock *lock;
    struct waiter waiter;
};

/* Grants run out after so long: far from what a busy machine needs, unless a test is about it. */
#define GRANT_MS 60000

static inline void join_with(struct member *member, const char *url, struct dlock_options options)
{
    if (options.grant_ms == 0)
        options.grant_ms = GRANT_MS;
    if (options.ttl_ms == 0)
        options.ttl_ms = 60000;
    *member = (struct member){.client = client_of(url, options)};
    assert_status(dlock_open_ops(member->client, &rung_fair, LOCK, &member->lock), OK);
    member->waiter = (struct waiter){.lock = member->lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
}

static inline void join(struct member *member)
{
    join_with(member, server_url(server), (struct dlock_options){0});
}

static inline void part(struct member *member)
{
    dlock_close(member->lock);
    dlock_client_close(member->client);
}

static inline uint64_t attempts(const struct member *member)
{
    return stats_of(member->client).attempts;
}

/* Stands in the queue at the server, and hears of its grant. */
static inline void line_up(struct member *member, long long place)
{
    waiter_start(&member->waiter);
    eventually(server_integer(server, "LLEN " QUEUE) == place && attempts(member) == 2);
}

/* A client leaves the queue in the background. */
static inline void nothing_is_left(void)
{
    eventually(server_integer(server, "EXISTS " LOCK " " QUEUE) == 0);
}

/* Started acquires that note in what order they were had. */
struct queue {
    dlock *lock;
    _Atomic int turns;
    _Atomic int had; /* and let go again */
    int order[64];
    uint64_t tokens[64];
    struct place {
        struct queue *queue;
        int number;
        dlock_hold *hold;
    } places[64];
};

static inline void noted(void *arg, dlock_status status, dlock_hold *hold)
{
    struct place *place = arg;
    struct queue *queue = place->queue;
    must(status == DLOCK_OK);
    /* Before the release: another thread may tell of the next while this one is in it. */
    int turn = atomic_fetch_add(&queue->turns, 1);
    queue->order[turn] = place->number;
    queue->tokens[turn] = dlock_token(hold);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    atomic_fetch_add(&queue->had, 1);
}

static inline void enqueue(struct queue *queue, dlock *lock, int count)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    queue->lock = lock;
    for (int i = 0; i < count; i++) {
        queue->places[i] = (struct place){.queue = queue, .number = i};
        assert_status(dlock_acquire_start(lock, &want, noted, &queue->places[i]), OK);
    }
}

#endif
