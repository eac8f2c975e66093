/* SPDX-License-Identifier: Apache-2.0
 *
 * Nothing that an application's own loop calls waits for a server or for a hook.
 */
#include "calls.h"
#include "child.h"
#include "client.h"
#include "cleanup.h"
#include "must.h"
#include "owner.h"
#include "pair_stage.h"
#include "sound.h"
#include "started.h"

#include <stdatomic.h>
#include <stdio.h>

struct caller {
    struct stage *stage;
    dlock_hold *hold;
    dlock_cancel *cancel;
    struct started had, released;
    _Atomic int calls;
};

/* All that an own loop calls. */
static void *call_all(void *arg)
{
    struct caller *caller = arg;
    struct stage *stage = caller->stage;
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .cancel = caller->cancel};
    for (int i = 0; i < 3; i++)
        dlock_valid(caller->hold);
    must(dlock_acquire_start(stage->lock, &want, started_done, &caller->had) == DLOCK_OK);
    atomic_fetch_add(&caller->calls, 1);
    must(dlock_release_start(caller->hold, stage->last, started_done, &caller->released) ==
         DLOCK_OK);
    atomic_fetch_add(&caller->calls, 1);
    dlock_process(stage->client);
    atomic_fetch_add(&caller->calls, 1);
    dlock_cancel_now(caller->cancel);
    atomic_fetch_add(&caller->calls, 1);
    dlock_process(stage->client);
    atomic_fetch_add(&caller->calls, 1);
    return NULL;
}

static void processed(dlock_client *client, struct started *started)
{
    eventually((dlock_process(client), atomic_load(&started->answers) == 1));
}

/* The calls return while the server still stands. */
static void nothing_waits_for_a_server_that_hangs(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name,
              (struct dlock_options){.own_loop = true,
                                     .connect_timeout_ms = 60000,
                                     .command_timeout_ms = 60000,
                                     .ttl_ms = is_local(rung) ? 0 : 3600000});
    struct caller caller = {.stage = &stage, .cancel = dlock_cancel_new()};
    caller.hold = acquired(stage.lock);
    server_pause(server);
    pthread_t thread = thread_start(call_all, &caller);
    eventually(atomic_load(&caller.calls) == 5);
    server_resume(server);
    thread_wait(thread);
    processed(stage.client, &caller.had);
    processed(stage.client, &caller.released);
    assert_int_equal(caller.released.status, DLOCK_OK);
    assert_int_equal(sold(), 1);
    assert_true(caller.had.status == DLOCK_CANCELLED || caller.had.status == DLOCK_OK);
    if (caller.had.status == DLOCK_OK)
        assert_status(dlock_release(caller.had.hold, NULL), OK);
    dlock_cancel_free(caller.cancel);
    stage_clear(&stage);
}

/* A release has waited in vain for another request of its owner, and all that may ask are kept by a
 * server that hangs: it is over all the same before they are. */
static void in_vain_while_others_ask(void **state)
{
    enum { TIMEOUT_MS = 400, BOUND_MS = 3 * TIMEOUT_MS };
    (void)state;
    bool in_time = false;
    for (int i = 0; i < 10 && !in_time; i++) { /* once more on a machine that stood still */
        struct stage stage;
        struct started released = {0},
                       others[] = {{.release = true}, {.release = true}, {.release = true}};
        stage_set(&stage, "watchdog",
                  (struct dlock_options){.connect_timeout_ms = TIMEOUT_MS,
                                         .command_timeout_ms = TIMEOUT_MS});
        dlock_hold *hold = acquired_by(stage.lock, 1);
        struct dlock_hold asking = {.lock = stage.lock,
                                    .key = stage.lock->name,
                                    .beside = stage.lock->beside,
                                    .named_by = 'x',
                                    .number = 1};
        snprintf(asking.owner, sizeof asking.owner, "%s", dlock_owner(hold));
        assert_true(owner_begin_release(&asking, 0));
        server_pause(server);
        assert_status(dlock_release_start(hold, NULL, started_done, &released), OK);
        long_pause(BOUND_MS * 2 / 3);
        for (size_t j = 0; j < 3; j++) {
            uint64_t attempts = stats_of(stage.client).attempts;
            start(stage.lock, (struct dlock_want){.wait_ms = PATIENCE_MS}, &others[j]);
            for (int k = 0; k < 10 && stats_of(stage.client).attempts == attempts; k++)
                short_pause();
        }
        uint64_t attempts = stats_of(stage.client).attempts;
        started_answered(&released);
        in_time = stats_of(stage.client).attempts == attempts;
        assert_int_equal(released.status, DLOCK_UNREACHABLE);
        if (owner_end(&asking))
            cleanup_release_name(&asking, 1);
        server_resume(server);
        for (size_t j = 0; j < 3; j++) {
            started_answered(&others[j]);
            assert_int_equal(others[j].status, DLOCK_OK);
        }
        stage_clear(&stage);
    }
    assert_true(in_time);
}

static void kept_by_a_gate(void *arg, const struct dlock_event *event)
{
    if (event->kind == DLOCK_EVENT_LOST)
        gate_pass(arg);
}

/* The calls return while a hook keeps the timekeeper that names the very hold. */
static void nothing_waits_for_a_hook(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (is_local(rung))
        return;
    struct gate *gate = gate_new("");
    stage_set(
        &stage, rung->name,
        (struct dlock_options){.own_loop = true, .on_event = kept_by_a_gate, .on_event_arg = gate});
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .hold_max_ms = 100};
    struct caller caller = {.stage = &stage, .cancel = dlock_cancel_new()};
    assert_status(dlock_acquire(stage.lock, &want, &caller.hold), OK);
    eventually(gate_arrived(gate) == 1);
    pthread_t thread = thread_start(call_all, &caller);
    eventually(atomic_load(&caller.calls) == 5);
    gate_open(gate);
    thread_wait(thread);
    processed(stage.client, &caller.had);
    processed(stage.client, &caller.released);
    assert_int_equal(caller.released.status, DLOCK_LOST);
    if (caller.had.status == DLOCK_OK)
        assert_status(dlock_release(caller.had.hold, NULL), OK);
    dlock_cancel_free(caller.cancel);
    stage_clear(&stage);
    gate_free(gate);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(nothing_waits_for_a_server_that_hangs, EACH_SOUND),
        SCENARIO(in_vain_while_others_ask, ONCE),
        SCENARIO(nothing_waits_for_a_hook, EACH_SOUND),
    };
    return run_scenarios("nonblocking", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
