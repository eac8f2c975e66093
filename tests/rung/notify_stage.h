/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients of `notify`, some of a variant that does not poll, and a waiter that sleeps until it is
 * woken.
 */
#ifndef TESTS_NOTIFY_STAGE_H
#define TESTS_NOTIFY_STAGE_H

#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "patient.h"
#include "redisson.h"
#include "waiter.h"

#include <stdlib.h>
#include <string.h>

#define OWNER 7
#define TOKEN "dlock:token={" LOCK "}"

/* A client that has the lock open. */
struct side {
    dlock_client *client;
    dlock *lock;
};

static inline struct side side_of(const char *url, const struct rung_ops *ops, int64_t ttl_ms)
{
    struct side side = {.client = client_of(url, (struct dlock_options){.ttl_ms = ttl_ms})};
    assert_status(dlock_open_ops(side.client, ops, LOCK, &side.lock), OK);
    return side;
}

static inline struct side patient_side(void)
{
    return side_of(server_url(server), patient(), 0);
}

static inline void side_close(struct side *side)
{
    dlock_close(side->lock);
    dlock_client_close(side->client);
}

static inline void released(dlock_hold *hold)
{
    assert_status(dlock_release(hold, NULL), OK);
}

static inline uint64_t answered(void)
{
    return atomic_load(&patient_answered);
}

/* A first waiter of its client, that has nothing left to do but to be woken. */
static inline void let_wait(struct waiter *waiter, const struct side *side)
{
    *waiter = (struct waiter){.lock = side->lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    atomic_store(&patient_answered, 0);
    waiter_start(waiter);
    eventually(answered() >= 2 && subscribers(server) == 1);
}

static inline void must_have_it(struct waiter *waiter)
{
    assert_status(waiter_end(waiter), OK);
    released(waiter->hold);
}

static inline uint64_t newest_token(void)
{
    return strtoull(server_text(server, "GET " TOKEN), NULL, 10);
}

static inline int set_up(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    atomic_store(&patient_answered, 0);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    patient_release = NULL;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif
