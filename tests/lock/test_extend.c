/* SPDX-License-Identifier: Apache-2.0
 *
 * What extends a hold: it has its whole time to live again, or is lost.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "recorded_stage.h"
#include "sound.h"
#include "waiter.h"

#define LONG_MS 60000 /* far beyond the test's end */

/* The key was about to expire; the hold was, too. Both have a whole time to live again. */
static void a_whole_time_to_live_again(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *hold = acquired(stage.lock);
    assert_int_equal(server_integer(server, "PEXPIRE " LOCK " 20000"), 1);
    int64_t before_ms = dlock_remaining_ms(hold);
    eventually(dlock_remaining_ms(hold) < before_ms - 20);
    int64_t ended_ms = clock_ms();
    ended_ms += dlock_remaining_ms(hold);
    assert_status(dlock_extend(hold), OK);
    int64_t ends_ms = dlock_remaining_ms(hold);
    ends_ms += clock_ms();
    assert_true(ends_ms > ended_ms);
    assert_true(left_on_server() > 30000);
    assert_true(left_on_server() >= dlock_remaining_ms(hold));

    assert_int_equal(server_integer(server, "PEXPIRE " LOCK " 600000"), 1);
    assert_status(dlock_extend(hold), OK); /* and nothing is shortened */
    assert_true(left_on_server() > LONG_MS);
    assert_true(dlock_remaining_ms(hold) < LONG_MS);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* What is not renewed lives on by extending alone. */
static void extended_again_and_again(void **state)
{
    static const char *const rungs[] = {"owner_lua", "reentrant"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, rungs[i], (struct dlock_options){.ttl_ms = 2400});
        dlock_hold *hold = acquired(stage.lock);
        for (int j = 0; j < 5; j++) { /* for longer than it was given at first */
            eventually(dlock_remaining_ms(hold) < 1800);
            assert_status(dlock_extend(hold), OK);
        }
        assert_int_equal(stats_of(stage.client).renewals, 0);
        assert_int_equal(record_count(stage.events, ""), 0);
        eventually(record_told(stage.events, "LOST", hold) == 1);
        assert_status(dlock_extend(hold), LOST);
        assert_says(dlock_error(), "'" LOCK "' was lost before it was extended");
        assert_status(dlock_release(hold, NULL), LOST);
        stage_clear(&stage);
    }
}

/* Another has it, or nobody: that is a loss, of all holds of the owner. */
static void what_is_gone_is_lost(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *outer = NULL;
    if (rung->reentrant) {
        outer = hold;
        hold = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    }
    server_text(server, "FLUSHDB");
    assert_status(dlock_extend(hold), LOST);
    assert_says(dlock_error(), "'" LOCK "' was lost");
    assert_false(dlock_valid(hold));
    eventually(record_told(stage.events, "LOST", hold) == 1);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    assert_status(dlock_release(hold, NULL), LOST);
    if (outer != NULL) {
        assert_false(dlock_valid(outer));
        eventually(record_told(stage.events, "LOST", outer) == 1);
        assert_status(dlock_release(outer, NULL), LOST);
    }
    stage_clear(&stage);
}

static void rungs_without_extending(void **state)
{
    static const char *const unable[] = {"none",           "local",         "setnx",
                                         "setnx_expire",   "setnx_multi",   "set_nx_ex",
                                         "owner_check",    "reentrant_tls", "reentrant_getset",
                                         "watchdog_timer", "rw_counter"};
    (void)state;
    for (size_t i = 0; i < sizeof unable / sizeof unable[0]; i++) {
        struct stage stage;
        stage_set(&stage, unable[i], (struct dlock_options){.ttl_ms = LONG_MS});
        dlock_hold *hold = acquired(stage.lock);
        record_clear(stage.trace);
        assert_status(dlock_extend(hold), UNSUPPORTED);
        assert_says(dlock_error(), unable[i]);
        assert_int_equal(record_count(stage.trace, ""), 0);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

/* The hold stays as it was, and can be extended later. */
static void without_an_answer_it_stays_as_it_was(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *hold = acquired(stage.lock);
    assert_status(dlock_extend(hold), OK); /* the script is known by now */
    int64_t left_ms = dlock_remaining_ms(hold);
    proxy_plan(stage.proxy, PROXY_CUT_REPLY, LOCK, NULL, 0);
    assert_status(dlock_extend(hold), UNKNOWN);
    assert_true(proxy_done(stage.proxy));
    assert_true(dlock_valid(hold) && dlock_remaining_ms(hold) <= left_ms);
    assert_status(dlock_extend(hold), OK);
    server_pause(server);
    server_kill(server);
    assert_int_not_equal(dlock_extend(hold), DLOCK_OK); /* the connection was open still */
    assert_status(dlock_extend(hold), UNREACHABLE);
    assert_true(dlock_valid(hold));
    server_restart(server, NULL);
    eventually(dlock_extend(hold) == DLOCK_LOST); /* it came back empty */
    dlock_release(hold, NULL);
    stage_clear(&stage);
}

/* One request of an owner at a time: a nested acquire waits for the extension's answer, and an
 * extension for the nested acquire's. */
struct extension {
    dlock_hold *hold;
    dlock_status status;
};

static void *extend(void *arg)
{
    struct extension *extension = arg;
    extension->status = dlock_extend(extension->hold);
    return NULL;
}

static void an_owner_asks_one_thing_at_a_time(void **state)
{
    const struct dlock_rung *rung = *state;
    for (int i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
        struct extension extension = {wanted(stage.lock, (struct dlock_want){.owner_id = OWNER}),
                                      DLOCK_OK};
        struct waiter nested = {.lock = stage.lock,
                                .want = {.wait_ms = PATIENCE_MS, .owner_id = OWNER}};
        pthread_t extending;
        assert_status(dlock_extend(extension.hold), OK); /* the script is known by now */
        proxy_plan(stage.proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
        if (i == 0)
            extending = thread_start(extend, &extension);
        else
            waiter_start(&nested);
        eventually(proxy_done(stage.proxy));
        size_t requests = proxy_requests(stage.proxy, LOCK);
        if (i == 0)
            waiter_start(&nested);
        else
            extending = thread_start(extend, &extension);
        for (int j = 0; j < 20; j++)
            short_pause(); /* time for a request that would not wait */
        assert_int_equal(proxy_requests(stage.proxy, LOCK), requests);
        proxy_let_go(stage.proxy);
        thread_wait(extending);
        assert_status(extension.status, OK);
        assert_status(waiter_end(&nested), OK);
        assert_status(dlock_release(nested.hold, NULL), OK);
        assert_status(dlock_release(extension.hold, NULL), OK);
        stage_clear(&stage);
    }
}

/* Its own end comes while its extension, or its release with commands, waits for the client's one
 * connection. The server was not asked: its owner's other hold is as valid as before. */
static void its_own_end_loses_no_other_hold(void **state)
{
    const struct dlock_rung *rung = *state;
    static const char *const incr[] = {"INCR", "sold"};
    for (int extends = 0; extends < 2; extends++) {
        struct stage stage;
        stage_set(&stage, rung->name,
                  (struct dlock_options){
                      .ttl_ms = LONG_MS, .connections_max = 1, .command_timeout_ms = 60000});
        struct waiter keeper = {.lock = lock_of(stage.client, rung->name, LOCK "2"),
                                .want = {.wait_ms = PATIENCE_MS}};
        dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
        dlock_hold *inner =
            wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = 1000});
        struct extension extension = {inner, DLOCK_OK};
        struct releaser releaser = {.hold = inner, .last = dlock_batch_new()};
        pthread_t extending;
        assert_status(dlock_batch_add(releaser.last, 2, incr, NULL), OK);
        proxy_plan(stage.proxy, PROXY_HOLD_REPLY, LOCK "2", NULL, 0);
        waiter_start(&keeper);
        eventually(proxy_done(stage.proxy));
        int64_t over_ms = clock_ms() + 1000;
        if (extends)
            extending = thread_start(extend, &extension);
        else
            releaser_start(&releaser);
        eventually(clock_ms() > over_ms);
        proxy_let_go(stage.proxy);
        if (extends)
            thread_wait(extending);
        assert_int_equal(extends ? extension.status : releaser_end(&releaser), DLOCK_LOST);
        assert_true(dlock_valid(outer));
        assert_status(waiter_end(&keeper), OK);
        assert_status(dlock_release(keeper.hold, NULL), OK);
        if (extends)
            assert_status(dlock_release(inner, NULL), LOST);
        assert_status(dlock_release(outer, NULL), OK);
        dlock_batch_free(releaser.last);
        dlock_close(keeper.lock);
        stage_clear(&stage);
    }
}

static int extend_in_child(void *hold)
{
    return dlock_extend(hold) == DLOCK_FORKED ? 0 : 1;
}

static void not_in_a_child(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *hold = acquired(stage.lock);
    assert_int_equal(child_wait(child_start(extend_in_child, hold)), 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(a_whole_time_to_live_again, EACH_SOUND),
        SCENARIO(extended_again_and_again, ONCE),
        SCENARIO(what_is_gone_is_lost, EACH_SOUND),
        SCENARIO(rungs_without_extending, ONCE),
        SCENARIO(without_an_answer_it_stays_as_it_was, EACH_SOUND),
        SCENARIO(an_owner_asks_one_thing_at_a_time, EACH_NESTED_ASKS),
        SCENARIO(its_own_end_loses_no_other_hold, EACH_REENTRANT),
        SCENARIO(not_in_a_child, ONCE),
    };
    return run_scenarios("extend", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
