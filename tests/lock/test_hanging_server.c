/* SPDX-License-Identifier: Apache-2.0
 *
 * A server that hangs blocks the threads that ask it, and no call for longer than its own time.
 * And want.call_max_ms, which limits a whole call.
 */
#include "background.h"
#include "calls.h"
#include "client.h"
#include "loop_stage.h"
#include "must.h"
#include "own_server.h"
#include "sound.h"
#include "started.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- Servers that hang ----------------------------------------------------------------------- */

/* The server stands, and each thread that asks waits for it: calls without a limit. */
static void keep_all_who_ask(struct stage *stage, struct started *plugs)
{
    server_pause(server);
    for (int i = 0; i < ASKERS; i++) {
        plugs[i] = (struct started){.release = true};
        uint64_t attempts = stats_of(stage->client).attempts;
        start(stage->locks[i], waiting(DLOCK_WAIT_FOREVER), &plugs[i]);
        eventually(stats_of(stage->client).attempts == attempts + 1);
    }
}

static void let_them_go(struct started *plugs)
{
    for (int i = 0; i < ASKERS; i++)
        assert_int_equal(atomic_load(&plugs[i].answers), 0);
    server_resume(server);
    for (int i = 0; i < ASKERS; i++)
        started_answered(&plugs[i]);
}

/* Each waits at a lock of its own, and its time is over: it is told while the server still
 * stands. */
static void no_time_out_waits_for_a_server(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started plugs[ASKERS];
    _Atomic int over = 0;
    if (strcmp(rung->name, "local") == 0)
        return;
    stage_set(&stage, rung->name, patient);
    struct started *crowd = crowd_new(LOCKS, true, &over);
    keep_all_who_ask(&stage, plugs);
    for (int i = 0; i < LOCKS; i++)
        start(stage.locks[i], waiting(20), &crowd[i]);
    eventually(atomic_load(&over) == LOCKS);
    for (int i = 0; i < LOCKS; i++) {
        assert_int_equal(atomic_load(&crowd[i].answers), 1);
        assert_true(crowd[i].status == DLOCK_TIMED_OUT || crowd[i].status == DLOCK_UNREACHABLE);
    }
    let_them_go(plugs);
    for (int i = 0; i < LOCKS; i++) /* whatever was sent holds nothing */
        assert_status(dlock_release(acquired(stage.locks[i]), NULL), OK);
    free(crowd);
    stage_clear(&stage);
}

/* So are cancels. */
static void no_cancel_waits_for_a_server(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started plugs[ASKERS];
    _Atomic int over = 0;
    if (strcmp(rung->name, "local") == 0)
        return;
    stage_set(&stage, rung->name, patient);
    struct started *crowd = crowd_new(LOCKS, true, &over);
    keep_all_who_ask(&stage, plugs);
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = dlock_cancel_new();
    for (int i = ASKERS; i < LOCKS; i++)
        start(stage.locks[i], want, &crowd[i]);
    dlock_cancel_now(want.cancel);
    eventually(atomic_load(&over) == LOCKS - ASKERS);
    crowd_answered(crowd + ASKERS, LOCKS - ASKERS, DLOCK_CANCELLED);
    let_them_go(plugs);
    dlock_cancel_free(want.cancel);
    free(crowd);
    stage_clear(&stage);
}

/* The lock's one waiter sleeps, and is woken: somebody who is free to ask must run it. left_ms: so
 * soon its time is over; 0: it has all it was given. */
static void make_due(dlock *lock, int64_t left_ms)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    struct wait *wait = TAILQ_FIRST(&lock->queue.waits);
    if (left_ms != 0)
        wait->deadline_ns = mono_deadline_ns(left_ms);
    wait_wake(lock, WAKE_ALL);
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* Nor do those that were woken when nobody was free to go on with them: some run out of time, the
 * others are cancelled. */
static void what_is_due_ends_in_time(void **state)
{
    (void)state;
    struct stage stage;
    struct started plugs[ASKERS];
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    _Atomic int over = 0;
    struct dlock_options options = patient;
    options.retry_ms = 60000;
    stage_set(&stage, "watchdog", options);
    struct started *crowd = crowd_new(LOCKS, false, &over);
    want.cancel = dlock_cancel_new();
    for (int i = ASKERS; i < LOCKS; i++) {
        hold(&stage, i);
        start(stage.locks[i], want, &crowd[i]);
    }
    eventually(stats_of(stage.client).contended == LOCKS - ASKERS);
    keep_all_who_ask(&stage, plugs);
    for (int i = ASKERS; i < LOCKS; i++)
        make_due(stage.locks[i], i % 2 == 0 ? 20 : 0);
    eventually(atomic_load(&over) == (LOCKS - ASKERS) / 2);
    dlock_cancel_now(want.cancel);
    eventually(atomic_load(&over) == LOCKS - ASKERS);
    for (int i = ASKERS; i < LOCKS; i++) {
        assert_int_equal(atomic_load(&crowd[i].answers), 1);
        assert_int_equal(crowd[i].status, i % 2 == 0 ? DLOCK_TIMED_OUT : DLOCK_CANCELLED);
    }
    let_them_go(plugs);
    dlock_cancel_free(want.cancel);
    free(crowd);
    stage_clear(&stage);
}

/* The client has the lock already: it is passed on, or acquired once more by its owner. Who gets it
 * so has it while the server still stands; where it has something to read, when its time is over,
 * and without the replies. */
static void what_the_client_has_waits_for_no_server(void **state)
{
    enum { PASSED_ON, PASSED_ON_TO_READ, NESTED, CASES };
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct stage stage;
        struct started plugs[ASKERS], next = {0};
        struct dlock_want own = {.size = sizeof own, .owner_id = 7}, want = {0};
        struct dlock_reply reply = {.size = sizeof reply};
        struct dlock_options options = patient;
        dlock_hold *hold;
        options.ttl_ms = 3600000;
        options.handoff_ms = 60000;
        stage_set(&stage, "fair", options);
        assert_status(dlock_acquire(stage.locks[ASKERS], &own, &hold), OK);
        dlock_batch *reads = dlock_batch_new();
        assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "stock"}, NULL), OK);
        want.owner_id = i == NESTED ? 7 : 0;
        want.wait_ms = i == NESTED ? 20 : DLOCK_WAIT_FOREVER;
        want.call_max_ms = i == PASSED_ON_TO_READ ? 1000 : 0;
        want.reads = i == PASSED_ON ? NULL : reads;
        keep_all_who_ask(&stage, plugs);
        start(stage.locks[ASKERS], want, &next);
        if (i != NESTED)
            assert_status(dlock_release(hold, NULL), OK);
        started_answered(&next);
        assert_int_equal(next.status, DLOCK_OK);
        assert_true(dlock_valid(next.hold));
        assert_status(dlock_batch_reply(reads, 0, &reply), OK);
        assert_int_equal(reply.kind, DLOCK_REPLY_NONE);
        let_them_go(plugs);
        assert_status(dlock_release(next.hold, NULL), OK);
        if (i == NESTED)
            assert_status(dlock_release(hold, NULL), OK);
        dlock_batch_free(reads);
        stage_clear(&stage);
    }
}

/* Nor does a started release: the lock is passed on, or the hold was lost before. */
static void a_started_release_waits_for_no_server(void **state)
{
    enum { PASSED_ON, LOST, CASES };
    (void)state;
    for (int i = 0; i < CASES; i++) {
        struct stage stage;
        struct started plugs[ASKERS], next = {0}, released = {0};
        struct dlock_options options = patient;
        struct dlock_want want = {.hold_max_ms = i == LOST ? 100 : 0};
        options.ttl_ms = 3600000;
        options.handoff_ms = 60000;
        stage_set(&stage, i == LOST ? "watchdog" : "fair", options);
        dlock_hold *hold = wanted(stage.locks[ASKERS], want);
        keep_all_who_ask(&stage, plugs);
        if (i == PASSED_ON)
            start(stage.locks[ASKERS], waiting(DLOCK_WAIT_FOREVER), &next);
        else
            eventually(!dlock_valid(hold));
        start_release(hold, NULL, &released);
        started_answered(&released);
        assert_int_equal(released.status, i == LOST ? DLOCK_LOST : DLOCK_OK);
        if (i == PASSED_ON)
            started_answered(&next);
        let_them_go(plugs);
        if (i == PASSED_ON)
            assert_status(dlock_release(next.hold, NULL), OK);
        stage_clear(&stage);
    }
}

static _Atomic bool hook_is_in, hook_may_leave;

static void stay_in_the_hook(void *arg, const struct dlock_event *event)
{
    (void)arg;
    if (event->kind != DLOCK_EVENT_LOST)
        return;
    atomic_store(&hook_is_in, true);
    eventually(atomic_load(&hook_may_leave));
}

/* Nor does one that has to wait until a hook has been told of its hold. */
static void a_started_release_waits_for_its_hook_alone(void **state)
{
    (void)state;
    struct stage stage;
    struct started plugs[ASKERS], released = {0};
    struct dlock_options options = patient;
    options.on_event = stay_in_the_hook;
    stage_set(&stage, "watchdog", options);
    dlock_hold *hold = wanted(stage.locks[ASKERS], (struct dlock_want){.hold_max_ms = 100});
    eventually(atomic_load(&hook_is_in));
    keep_all_who_ask(&stage, plugs);
    uint64_t lost = stats_of(stage.client).connections_lost;
    start_release(hold, NULL, &released);
    assert_int_equal(atomic_load(&released.answers), 0);
    atomic_store(&hook_may_leave, true);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_LOST);
    assert_int_equal(stats_of(stage.client).connections_lost, lost); /* they are still kept */
    let_them_go(plugs);
    stage_clear(&stage);
}

/* Nor does one of `local`, whose lock is in this process. */
static void a_started_release_needs_no_server(void **state)
{
    (void)state;
    struct stage stage;
    struct started plugs[ASKERS], released = {0};
    stage_set(&stage, "watchdog", patient);
    dlock *here = lock_of(stage.client, "local", "here");
    dlock_hold *hold = acquired(here);
    keep_all_who_ask(&stage, plugs);
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_OK);
    let_them_go(plugs);
    assert_status(dlock_release(acquired(here), NULL), OK);
    dlock_close(here);
    stage_clear(&stage);
}

/* The sentence of a call that failed is not changed by a started release that goes on here. */
static void a_started_release_says_nothing_here(void **state)
{
    (void)state;
    struct stage stage;
    struct started released = {0};
    stage_set(&stage, "watchdog", patient);
    dlock_hold *hold = wanted(stage.locks[0], (struct dlock_want){.hold_max_ms = 100});
    eventually(!dlock_valid(hold));
    assert_status(dlock_release(NULL, NULL), INVALID);
    char said[512];
    snprintf(said, sizeof said, "%s", dlock_error());
    start_release(hold, NULL, &released);
    assert_string_equal(dlock_error(), said);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_LOST);
    stage_clear(&stage);
}

/* The lock's first waiter was not answered, and those behind it never asked: that is no
 * contention. */
static void behind_one_that_is_not_answered(void **state)
{
    static const char *const rungs[] = {"watchdog", "notify", "fair", "read_write"};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        struct started first = {.release = true}, behind = {0};
        struct dlock_want want = i % 2 == 0 ? waiting(20) : waiting(3600000);
        want.call_max_ms = i % 2 == 0 ? 0 : 20;
        stage_set(&stage, rungs[i / 2],
                  (struct dlock_options){
                      .contenders = 1, .connect_timeout_ms = 100, .command_timeout_ms = 100});
        assert_status(dlock_release(acquired(stage.locks[0]), NULL), OK);
        uint64_t attempts = stats_of(stage.client).attempts;
        server_pause(server);
        start(stage.locks[0], waiting(DLOCK_WAIT_FOREVER), &first);
        eventually(stats_of(stage.client).attempts >= attempts + 2); /* the first was in vain */
        start(stage.locks[0], want, &behind);
        started_answered(&behind);
        assert_int_equal(behind.status, DLOCK_UNREACHABLE);
        assert_says(behind.error, "other calls of this client were first");
        server_resume(server);
        started_answered(&first);
        stage_clear(&stage);
    }
}

/* ---- Limits of a call ------------------------------------------------------------------------ */

static void limits_that_are_none(void **state)
{
    static const int64_t wrong[] = {-1, INT64_MIN, 31536000001};
    (void)state;
    struct stage stage;
    struct started none = {0};
    dlock_hold *hold;
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    for (size_t i = 0; i < 3; i++) {
        struct dlock_want want = {.size = sizeof want, .call_max_ms = wrong[i]};
        assert_status(dlock_acquire(stage.locks[0], &want, &hold), INVALID);
        assert_says(dlock_error(), "want.call_max_ms");
        assert_says(dlock_error(), "it must be 1 to 31536000000, or 0 for wait_ms and the bound");
        assert_says(dlock_error(), "1 to 31536000000");
        assert_status(dlock_acquire_start(stage.locks[0], &want, started_done, &none), INVALID);
    }
    struct dlock_want most = {.size = sizeof most, .call_max_ms = 31536000000};
    assert_status(dlock_acquire(stage.locks[0], &most, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(atomic_load(&none.answers), 0);
    stage_clear(&stage);
}

/* Another has the lock: the call ends with its limit, long before wait_ms. */
static void a_limit_ends_a_longer_wait(void **state)
{
    static const int64_t waits[] = {DLOCK_WAIT_FOREVER, 3600000};
    const struct dlock_rung *rung = *state;
    struct stage stage;
    bool local = strcmp(rung->name, "local") == 0;
    stage_set(&stage, rung->name, (struct dlock_options){.retry_ms = 60000});
    dlock_hold *ours = local ? acquired(stage.locks[0]) : NULL;
    if (!local)
        hold(&stage, 0);
    for (size_t i = 0; i < 2; i++) {
        struct started late = {0};
        dlock_hold *none;
        struct dlock_want want = {.size = sizeof want, .wait_ms = waits[i], .call_max_ms = 300};
        assert_status(dlock_acquire(stage.locks[0], &want, &none), TIMED_OUT);
        assert_says(dlock_error(), "in 300 ms");
        assert_null(none);
        start(stage.locks[0], want, &late);
        started_answered(&late);
        assert_int_equal(late.status, DLOCK_TIMED_OUT);
    }
    if (local)
        assert_status(dlock_release(ours, NULL), OK);
    stage_clear(&stage);
}

/* The server stands. The call is over while it still does, though a request was sent that has much
 * time: of a call that tries once its fate is not known. */
static void a_limit_cuts_a_request_off(void **state)
{
    static const int64_t waits[] = {0, DLOCK_WAIT_FOREVER, 3600000};
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (strcmp(rung->name, "local") == 0)
        return;
    stage_set(&stage, rung->name, patient);
    for (int i = 0; i < 6; i++) {
        struct started late = {0};
        dlock_hold *none;
        struct dlock_want want = {.size = sizeof want, .wait_ms = waits[i % 3], .call_max_ms = 50};
        dlock_status expected = i % 3 == 0 ? DLOCK_UNKNOWN : DLOCK_TIMED_OUT;
        uint64_t commands = stats_of(stage.client).commands;
        eventually(kept_in_the_background(stage.client) ==
                   0); /* else a connection is not its own */
        assert_status(dlock_release(acquired(stage.locks[i]), NULL), OK);
        server_pause(server);
        if (i < 3) {
            late.status = dlock_acquire(stage.locks[i], &want, &none);
            snprintf(late.error, sizeof late.error, "%s", dlock_error());
        } else {
            start(stage.locks[i], want, &late);
            started_answered(&late);
        }
        if (late.status != expected)
            failed("number %d was answered %s: %s", i, dlock_status_name(late.status), late.error);
        server_resume(server);
        assert_true(stats_of(stage.client).commands > commands);
        assert_status(dlock_release(acquired(stage.locks[i]), NULL), OK);
    }
    stage_clear(&stage);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

/* Nobody asks for those who stand in line at a lock, since others keep all who ask; and as the time
 * of one is over, so that the next moves up, that of the next is soon. That is no contention. */
static void one_after_the_other_behind_a_silent_server(void **state)
{
    enum { MANY = 5, STEP_MS = 50 };
    static const char *const rungs[] = {"notify", "fair"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        struct started plugs[ASKERS] = {{0}}, many[MANY] = {{0}};
        stage_set(&stage, rungs[i], (struct dlock_options){0});
        assert_status(dlock_release(acquired(stage.locks[0]), NULL), OK);
        server_pause(server);
        for (int k = 0; k < ASKERS; k++) {
            uint64_t attempts = stats_of(stage.client).attempts;
            start(stage.locks[k], waiting(PATIENCE_MS), &plugs[k]);
            eventually(stats_of(stage.client).attempts > attempts);
        }
        for (int k = 0; k < MANY; k++)
            start(stage.locks[ASKERS], waiting(300 + k * STEP_MS), &many[k]);
        for (int k = 0; k < MANY; k++) {
            started_answered(&many[k]);
            assert_int_equal(many[k].status, DLOCK_UNREACHABLE);
        }
        server_resume(server);
        for (int k = 0; k < ASKERS; k++) {
            started_answered(&plugs[k]);
            assert_status(dlock_release(plugs[k].hold, NULL), OK);
        }
        stage_clear(&stage);
    }
}

/* An outage is over, and the server has answered at another lock: who stands in line is not told of
 * it, though the server stands again. */
static void behind_another_after_an_outage(void **state)
{
    (void)state;
    struct stage stage;
    struct started first = {0}, behind = {0};
    struct dlock_want cut_off = {
        .size = sizeof cut_off, .wait_ms = PATIENCE_MS, .call_max_ms = 100};
    dlock_hold *other;
    stage_set(&stage, "notify", (struct dlock_options){0});
    server_pause(server);
    assert_int_not_equal(dlock_acquire(stage.locks[0], &cut_off, &other), DLOCK_OK);
    server_resume(server);
    eventually(tried(stage.locks[1], &other) == DLOCK_OK);
    assert_status(dlock_release(other, NULL), OK);
    server_pause(server);
    start(stage.locks[0], waiting(DLOCK_WAIT_FOREVER), &first);
    start(stage.locks[0], waiting(20), &behind);
    started_answered(&behind);
    assert_int_not_equal(behind.status, DLOCK_OK);
    assert_null(strstr(behind.error, "in vain"));
    server_resume(server);
    started_answered(&first);
    assert_status(dlock_release(first.hold, NULL), OK);
    stage_clear(&stage);
}

/* The server stands. The first two are given up with their connections; the others share a write
 * and connect together, for longer than they wait. Nothing is asked for them after that. */
static void none_begins_after_its_limit(void **state)
{
    (void)state;
    struct stage stage;
    struct started late[LOCKS] = {{0}};
    struct dlock_want cut_off = {.wait_ms = PATIENCE_MS, .call_max_ms = 100};
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    server_pause(server);
    for (int i = 0; i < LOCKS; i++)
        start(stage.locks[i], i < ASKERS ? cut_off : waiting(300), &late[i]);
    long_pause(600);
    server_resume(server);
    for (int i = 0; i < LOCKS; i++) {
        started_answered(&late[i]);
        assert_int_equal(late[i].status, DLOCK_UNREACHABLE);
    }
    assert_int_equal(stats_of(stage.client).acquired, 0);
    stage_clear(&stage);
}

/* The server stands. A waiter's time is over, and its thread asks who has the lock, to say so: who
 * moved up behind it has an end of its own. */
static void who_explains_keeps_nobody(void **state)
{
    (void)state;
    struct stage stage;
    struct started first = {0}, second = {0};
    stage_set(&stage, "notify", (struct dlock_options){.contenders = 1});
    hold(&stage, 0);
    start(stage.locks[0], waiting(500), &first);
    start(stage.locks[0], (struct dlock_want){.wait_ms = PATIENCE_MS, .call_max_ms = 1000},
          &second);
    eventually(stats_of(stage.client).contended == 1);
    long_pause(100);
    server_pause(server);
    started_answered(&second);
    assert_int_equal(atomic_load(&first.answers), 0);
    server_resume(server);
    started_answered(&first);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(no_time_out_waits_for_a_server, EACH_SOUND),
        SCENARIO(no_cancel_waits_for_a_server, EACH_SOUND),
        SCENARIO(what_is_due_ends_in_time, ONCE),
        SCENARIO(what_the_client_has_waits_for_no_server, ONCE),
        SCENARIO(a_started_release_waits_for_no_server, ONCE),
        SCENARIO(a_started_release_waits_for_its_hook_alone, ONCE),
        SCENARIO(a_started_release_needs_no_server, ONCE),
        SCENARIO(a_started_release_says_nothing_here, ONCE),
        SCENARIO(behind_one_that_is_not_answered, ONCE),
        SCENARIO(one_after_the_other_behind_a_silent_server, ONCE),
        SCENARIO(behind_another_after_an_outage, ONCE),
        SCENARIO(limits_that_are_none, ONCE),
        SCENARIO(a_limit_ends_a_longer_wait, EACH_SOUND),
        SCENARIO(a_limit_cuts_a_request_off, EACH_SOUND),
        SCENARIO(none_begins_after_its_limit, ONCE),
        SCENARIO(who_explains_keeps_nobody, ONCE),
    };
    return run_scenarios("hanging_server", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
