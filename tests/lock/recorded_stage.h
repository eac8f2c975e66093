/* SPDX-License-Identifier: Apache-2.0
 *
 * A client whose events and requests are recorded.
 */
#ifndef TESTS_RECORDED_STAGE_H
#define TESTS_RECORDED_STAGE_H

#include "calls.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"

#define LOCK "lock:{stage}"
#define OWNER 7

struct stage {
    struct proxy *proxy; /* or NULL */
    struct record *events;
    struct record *trace;
    dlock_client *client;
    dlock *lock;
};

static inline void stage_at(struct stage *stage, const char *rung, const char *url,
                            struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    *stage = (struct stage){.events = record_new(), .trace = record_new()};
    options.on_event = record_event;
    options.on_event_arg = stage->events;
    if (options.on_trace == NULL) {
        options.on_trace = record_trace;
        options.on_trace_arg = stage->trace;
    }
    stage->client = client_of(url, options);
    stage->lock = lock_of(stage->client, rung, LOCK);
}

/* Behind a wire that can be cut. */
static inline void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    struct proxy *proxy = proxy_start(server);
    stage_at(stage, rung, proxy_url(proxy), options);
    stage->proxy = proxy;
}

/* The same, warmed up: connected, its scripts known to the server. */
static inline void stage_set_warm(struct stage *stage, const char *rung,
                                  struct dlock_options options)
{
    stage_set(stage, rung, options);
    assert_status(dlock_release(acquired(stage->lock), NULL), OK);
    record_clear(stage->trace);
}

static inline void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->events);
    record_free(stage->trace);
    if (stage->proxy != NULL)
        proxy_free(stage->proxy);
}

static inline long long exists(void)
{
    return server_integer(server, "EXISTS " LOCK);
}

/* Of its time to live. */
static inline long long left_on_server(void)
{
    return server_integer(server, "PTTL " LOCK);
}

static inline void works(struct stage *stage)
{
    assert_status(dlock_release(acquired(stage->lock), NULL), OK);
}

/* Acquires within that time, and releases. */
static inline dlock_status within(dlock *lock, int64_t wait_ms)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    dlock_status status = dlock_acquire(lock, &want, &hold);
    if (status == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    return status;
}

#endif
