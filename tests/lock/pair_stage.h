/* SPDX-License-Identifier: Apache-2.0
 *
 * One client behind a wire that can be cut, and another on a wire of its own.
 */
#ifndef TESTS_PAIR_STAGE_H
#define TESTS_PAIR_STAGE_H

#include "calls.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"

#include <stdlib.h>

#define LOCK "lock:{stage}"
#define OWNER 7

struct stage {
    struct proxy *proxy;
    struct record *events; /* unless on_event is the test's */
    dlock_client *client;
    dlock *lock;
    dlock_client *other_client;
    dlock *other;
    dlock_batch *last; /* counts in "sold" how often it was carried out */
};

static inline void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    stage->proxy = proxy_start(server);
    stage->events = record_new();
    if (options.on_event == NULL) {
        options.on_event = record_event;
        options.on_event_arg = stage->events;
    }
    stage->client = client_of(proxy_url(stage->proxy), options);
    stage->lock = lock_of(stage->client, rung, LOCK);
    stage->other_client =
        client_of(server_url(server), (struct dlock_options){.ttl_ms = options.ttl_ms});
    stage->other = lock_of(stage->other_client, rung, LOCK);
    stage->last = dlock_batch_new();
    assert_status(dlock_batch_add(stage->last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
}

/* The same, warmed up: connected, its scripts known to the server. */
static inline void stage_set_warm(struct stage *stage, const struct dlock_rung *rung,
                                  int64_t ttl_ms)
{
    stage_set(stage, rung->name, (struct dlock_options){.ttl_ms = ttl_ms});
    assert_status(dlock_release(acquired(stage->lock), NULL), OK);
}

static inline void stage_clear(struct stage *stage)
{
    dlock_batch_free(stage->last);
    dlock_close(stage->other);
    dlock_client_close(stage->other_client);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->events);
    proxy_free(stage->proxy);
}

static inline long long sold(void)
{
    return atoll(server_text(server, "GET sold"));
}

/* Nobody else gets it while the hold is valid. */
static inline void kept_from_others(const struct stage *stage, const dlock_hold *hold)
{
    dlock_hold *theirs;
    assert_true(dlock_valid(hold));
    assert_status(tried(stage->other, &theirs), BUSY);
}

static inline void free_for_others(const struct stage *stage)
{
    dlock_hold *theirs;
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    assert_status(tried(stage->other, &theirs), OK);
    assert_status(dlock_release(theirs, NULL), OK);
}

#endif
