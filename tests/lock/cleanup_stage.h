/* SPDX-License-Identifier: Apache-2.0
 *
 * A client, and another that has no trouble. Holds last for a day, so nothing but a release frees
 * them.
 */
#ifndef TESTS_LEFTOVER_STAGE_H
#define TESTS_LEFTOVER_STAGE_H

#include "calls.h"
#include "must.h"
#include "own_proxy.h"
#include "waiter.h"

#define LOCK "lock:{leftover}"
#define OWNER 7
#define DAY_MS 86400000
#define SHORT_MS 300 /* of a client that gives up soon, and of a hold that is over soon */
#define SHORT_BOUND_MS (3 * SHORT_MS)

struct stage {
    dlock_client *client;
    dlock *lock;
    dlock_client *other_client;
    dlock *other;
    dlock_batch *last;
};

static inline void stage_set(struct stage *stage, const struct dlock_rung *rung, const char *url,
                             int64_t timeout_ms)
{
    server_text(server, "FLUSHALL");
    stage->client = client_of(url, (struct dlock_options){.ttl_ms = DAY_MS,
                                                          .connect_timeout_ms = timeout_ms,
                                                          .command_timeout_ms = timeout_ms});
    stage->lock = lock_of(stage->client, rung->name, LOCK);
    stage->other_client = client_of(server_url(server), (struct dlock_options){.ttl_ms = DAY_MS});
    stage->other = lock_of(stage->other_client, rung->name, LOCK);
    stage->last = dlock_batch_new();
    assert_status(dlock_batch_add(stage->last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
}

static inline void stage_clear(struct stage *stage)
{
    dlock_batch_free(stage->last);
    dlock_close(stage->other);
    dlock_client_close(stage->other_client);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
}

/* Nobody is connected, and who connects is not answered. */
static inline void go_away(void)
{
    server_integer(server, "CLIENT KILL TYPE normal");
    server_pause(server);
}

/* In the end. */
static inline void comes_to_another(const struct stage *stage)
{
    struct waiter other = {.lock = stage->other, .want = {.wait_ms = PATIENCE_MS}};
    waiter_start(&other);
    assert_status(waiter_end(&other), OK);
    assert_status(dlock_release(other.hold, NULL), OK);
}

static inline dlock_hold *acquired_for(dlock *lock, struct dlock_want want)
{
    want.owner_id = OWNER;
    return wanted(lock, want);
}

#endif
