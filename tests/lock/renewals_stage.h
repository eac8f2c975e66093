/* SPDX-License-Identifier: Apache-2.0
 *
 * A client whose timekeeper can be stopped: it stays in the hook that reports a loss.
 */
#ifndef TESTS_RENEWALS_STAGE_H
#define TESTS_RENEWALS_STAGE_H

#include "calls.h"
#include "far.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"

#include <stdatomic.h>

#define TTL_MS 6000 /* a third of it is no long wait, the rest outlasts a busy machine's stalls */

struct stage {
    struct proxy *proxy; /* or */
    struct far *far;     /* or neither */
    struct record *events;
    struct record *trace;
    dlock_client *client;
    dlock *control;
    dlock_hold *control_hold;
    _Atomic bool stop;
    _Atomic bool stopped;
};

static inline void told_of(void *arg, const struct dlock_event *event)
{
    struct stage *stage = arg;
    record_event(stage->events, event);
    if (event->name == NULL || strcmp(event->name, "control") != 0)
        return;
    atomic_store(&stage->stopped, true);
    eventually(!atomic_load(&stage->stop));
    atomic_store(&stage->stopped, false);
}

/* By one of the two wires, or by none. */
static inline void stage_set_by(struct stage *stage, struct proxy *proxy, struct far *far,
                                int64_t timeout_ms)
{
    server_text(server, "FLUSHALL");
    server_text(server, "SCRIPT FLUSH");
    *stage =
        (struct stage){.proxy = proxy, .far = far, .events = record_new(), .trace = record_new()};
    stage->client = client_of(proxy != NULL ? proxy_url(proxy)
                              : far != NULL ? far_url(far)
                                            : server_url(server),
                              (struct dlock_options){
                                  .ttl_ms = TTL_MS,
                                  .connect_timeout_ms = timeout_ms,
                                  .command_timeout_ms = timeout_ms,
                                  .on_event = told_of,
                                  .on_event_arg = stage,
                                  .on_trace = record_trace,
                                  .on_trace_arg = stage->trace,
                              });
    stage->control = lock_of(stage->client, "owner_lua", "control");
}

static inline void stage_set(struct stage *stage)
{
    stage_set_by(stage, proxy_start(server), NULL, 0);
}

/* Nothing is given up because of a time limit of its own. */
static inline void stage_set_patient(struct stage *stage)
{
    stage_set_by(stage, proxy_start(server), NULL, PATIENCE_MS);
}

static inline void stage_set_far(struct stage *stage, int64_t round_trip_ms)
{
    stage_set_by(stage, NULL, far_start(server, round_trip_ms), PATIENCE_MS);
}

static inline void stage_clear(struct stage *stage)
{
    dlock_close(stage->control);
    dlock_client_close(stage->client);
    record_free(stage->events);
    record_free(stage->trace);
    if (stage->proxy != NULL)
        proxy_free(stage->proxy);
    if (stage->far != NULL)
        far_free(stage->far);
}

static inline void stop_timekeeper(struct stage *stage)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .ttl_ms = 200};
    atomic_store(&stage->stop, true);
    assert_status(dlock_acquire(stage->control, &want, &stage->control_hold), OK);
    eventually(atomic_load(&stage->stopped));
}

static inline void let_timekeeper_go(struct stage *stage)
{
    atomic_store(&stage->stop, false);
    assert_status(dlock_release(stage->control_hold, NULL), LOST);
}

static inline dlock_hold *acquired_for(dlock *lock, uint64_t owner_id, int64_t ttl_ms)
{
    return wanted(lock, (struct dlock_want){.owner_id = owner_id, .ttl_ms = ttl_ms});
}

#endif
