/* SPDX-License-Identifier: Apache-2.0
 *
 * A hold's own times: its time to live, what extends it, and the end that nothing extends it
 * beyond.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "sound.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>

#define LOCK "lock:{times}"
#define LONG_MS 60000 /* far beyond the test's end */
#define OWNER 7

struct stage {
    struct proxy *proxy;
    struct record *events;
    struct record *trace;
    dlock_client *client;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    stage->proxy = proxy_start(server);
    stage->events = record_new();
    stage->trace = record_new();
    options.on_event = record_event;
    options.on_event_arg = stage->events;
    options.on_trace = record_trace;
    options.on_trace_arg = stage->trace;
    stage->client = client_of(proxy_url(stage->proxy), options);
    stage->lock = lock_of(stage->client, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->events);
    record_free(stage->trace);
    proxy_free(stage->proxy);
}

static long long left_on_server(void)
{
    return server_integer(server, "PTTL " LOCK);
}

static void assert_up_to(int64_t value, int64_t most)
{
    if (value <= 0 || value > most)
        failed("%lld is not between 1 and %lld", (long long)value, (long long)most);
}

/* ---- A time to live of its own --------------------------------------------------------------- */

/* In place of the client's and the rung's, shorter or longer. */
static void each_hold_has_its_own(void **state)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        if (!rungs[i].expires)
            continue;
        stage_set(&stage, rungs[i].name, (struct dlock_options){.ttl_ms = 5000});
        dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.ttl_ms = LONG_MS});
        assert_true(dlock_remaining_ms(hold) > 5000);
        assert_up_to(dlock_remaining_ms(hold), LONG_MS);
        assert_true(left_on_server() >= dlock_remaining_ms(hold));
        dlock_release(hold, NULL);
        hold = wanted(stage.lock, (struct dlock_want){.ttl_ms = 2000});
        assert_true(dlock_remaining_ms(hold) < 2000);
        assert_up_to(left_on_server(), 2000);
        dlock_release(hold, NULL);
        hold = acquired(stage.lock);
        assert_true(dlock_remaining_ms(hold) < 5000);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

static void times_out_of_range_are_refused(void **state)
{
    static const int64_t wrong[] = {-1, 1, 99, INT64_MIN, INT64_MAX};
    static const char *const timeless[] = {"none", "local", "setnx"};
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct dlock_want ttl = {.size = sizeof ttl, .ttl_ms = wrong[i]};
        struct dlock_want most = {.size = sizeof most, .hold_max_ms = wrong[i]};
        assert_status(dlock_acquire(stage.lock, &ttl, &hold), INVALID);
        assert_says(dlock_error(), "it must be 100 to 86400000, or 0");
        assert_status(dlock_acquire(stage.lock, &most, &hold), INVALID);
        assert_says(dlock_error(), "want.hold_max_ms is ");
        assert_null(hold);
    }
    for (size_t i = 0; i < sizeof timeless / sizeof timeless[0]; i++) {
        dlock *lock = lock_of(stage.client, timeless[i], LOCK);
        struct dlock_want ttl = {.size = sizeof ttl, .ttl_ms = 1000};
        struct dlock_want most = {.size = sizeof most, .hold_max_ms = 1000};
        assert_status(dlock_acquire(lock, &ttl, &hold), UNSUPPORTED);
        assert_says(dlock_error(), "want.ttl_ms is 1000, but holds of '");
        assert_status(dlock_acquire(lock, &most, &hold), UNSUPPORTED);
        assert_says(dlock_error(), "want.hold_max_ms is 1000, but holds of '");
        dlock_close(lock);
    }
    assert_int_equal(stats_of(stage.client).attempts, 0);
    stage_clear(&stage);
}

/* The key lives as long as the longest needs; each hold is believed for its own time alone. */
static void nested_holds_have_their_own(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name, (struct dlock_options){0});
    dlock_hold *outer =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = LONG_MS});
    dlock_hold *inner = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = 900});
    assert_up_to(dlock_remaining_ms(inner), 900);
    assert_true(dlock_remaining_ms(outer) > 30000);
    assert_true(left_on_server() > 30000);
    if (rung->renewed) {
        eventually(record_told(stage.events, "RENEWED", inner) +
                       record_told(stage.events, "RENEWED", outer) >=
                   4);
        assert_true(dlock_valid(inner));
    } else {
        eventually(record_told(stage.events, "LOST", inner) == 1);
        assert_false(dlock_valid(inner));
    }
    assert_up_to(dlock_remaining_ms(outer), LONG_MS);
    assert_true(dlock_remaining_ms(outer) > 30000);
    assert_true(left_on_server() > 30000);
    dlock_release(inner, NULL);
    assert_true(dlock_valid(outer));
    assert_status(dlock_release(outer, NULL), OK);

    outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = 5000});
    inner = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = LONG_MS});
    assert_up_to(dlock_remaining_ms(outer), 5000);
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    stage_clear(&stage);
}

/* A hold that gets the lock inside the client lives by the time that the client asked for. */
static void what_is_passed_on_lives_by_what_was_asked_for(void **state)
{
    static const int64_t times[][2] = {{5000, LONG_MS}, {LONG_MS, 5000}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, "fair", (struct dlock_options){.handoff_ms = LONG_MS});
        dlock_hold *first = wanted(stage.lock, (struct dlock_want){.ttl_ms = times[i][0]});
        struct waiter waiter = {.lock = stage.lock,
                                .want = {.wait_ms = PATIENCE_MS, .ttl_ms = times[i][1]}};
        waiter_start(&waiter);
        for (int j = 0; j < 20; j++)
            short_pause(); /* so it waits, as a rule; else it asks the server */
        assert_status(dlock_release(first, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_up_to(dlock_remaining_ms(waiter.hold), left_on_server());
        if (stats_of(stage.client).passed_on > 0)
            assert_up_to(dlock_remaining_ms(waiter.hold), 5000);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
    }
}

/* ---- Extending ------------------------------------------------------------------------------- */

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
        for (int j = 0; j < 3; j++) {
            eventually(dlock_remaining_ms(hold) < 1200);
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

/* ---- The end --------------------------------------------------------------------------------- */

/* Renewed until then, the last time for what is left alone; then lost, and free by itself. */
static void nothing_reaches_beyond_the_end(void **state)
{
    enum { MAX_MS = 3000 };
    const struct dlock_rung *rung = *state;
    struct stage stage;
    char line[256];
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = 1800});
    dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.hold_max_ms = MAX_MS});
    int64_t ends_ms = clock_ms() + MAX_MS; /* at the latest */
    while (record_told(stage.events, "LOST", hold) == 0) {
        dlock_status status = dlock_extend(hold);
        assert_true(status == DLOCK_OK || status == DLOCK_LOST);
        int64_t most_ms = ends_ms - clock_ms();
        int64_t left_ms = dlock_remaining_ms(hold);
        assert_true(left_ms <= most_ms || left_ms == 0);
        short_pause();
    }
    record_line(stage.events, "LOST", 0, line, sizeof line);
    assert_says(line, "its hold_max_ms is over");
    assert_status(dlock_extend(hold), LOST);
    eventually(server_integer(server, "EXISTS " LOCK) == 0);
    assert_status(dlock_release(hold, NULL), LOST);
    dlock_hold *next;
    assert_status(tried(stage.lock, &next), OK);
    dlock_release(next, NULL);
    stage_clear(&stage);
}

/* An end before its time to live is its time to live. */
static void an_end_before_the_time_to_live(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    char line[256];
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.hold_max_ms = 900});
    assert_up_to(dlock_remaining_ms(hold), 900);
    assert_up_to(left_on_server(), 900);
    eventually(record_told(stage.events, "LOST", hold) == 1);
    record_line(stage.events, "LOST", 0, line, sizeof line);
    assert_says(line, "its hold_max_ms is over");
    assert_int_equal(stats_of(stage.client).renewals, 0);
    eventually(server_integer(server, "EXISTS " LOCK) == 0);
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
}

/* It ends that hold alone: another one of the owner lives on, and is renewed. */
static void the_end_is_the_holds_alone(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->renewed)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = 2400});
    dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *inner =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = 1000});
    eventually(record_told(stage.events, "LOST", inner) == 1);
    size_t renewed = record_told(stage.events, "RENEWED", outer);
    eventually(record_told(stage.events, "RENEWED", outer) >= renewed + 3);
    assert_true(dlock_valid(outer));
    assert_int_equal(record_told(stage.events, "LOST", outer), 0);
    assert_status(dlock_release(inner, NULL), LOST);
    assert_true(dlock_valid(outer));
    dlock_release(outer, NULL);
    stage_clear(&stage);
}

/* ---- The lock's end -------------------------------------------------------------------------- */

enum { ENDS_MS = 600 };

/* It is over, and its release says so: nothing that the caller adds is sent, and the lock is free.
 */
static void over_and_free(dlock_hold *hold)
{
    dlock_batch *last = dlock_batch_new();
    assert_status(dlock_batch_add(last, 3, (const char *const[]){"SET", "written", "1"}, NULL), OK);
    eventually(!dlock_valid(hold));
    assert_status(dlock_release(hold, last), LOST);
    assert_int_equal(server_integer(server, "EXISTS written"), 0);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    dlock_batch_free(last);
}

/* The key has the outer hold's time to live. It does not outlive the inner one by that. */
static void the_longer_hold_is_released_first(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *inner =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = ENDS_MS});
    assert_status(dlock_release(outer, NULL), OK);
    over_and_free(inner);
    stage_clear(&stage);
}

/* Nor where the outer one is over, too, and both are released late. */
static void both_are_over(void **state)
{
    const struct dlock_rung *rung = *state;
    for (int inner_first = 0; inner_first < 2; inner_first++) {
        struct stage stage;
        stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
        dlock_hold *longest = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
        struct dlock_want want = {.owner_id = OWNER, .hold_max_ms = ENDS_MS};
        dlock_hold *middle = wanted(stage.lock, want);
        dlock_hold *inner = wanted(stage.lock, want);
        assert_status(dlock_release(longest, NULL), OK);
        eventually(!dlock_valid(middle) && !dlock_valid(inner));
        assert_status(dlock_release(inner_first ? inner : middle, NULL), LOST);
        assert_status(dlock_release(inner_first ? middle : inner, NULL), LOST);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        stage_clear(&stage);
    }
}

/* One that is over leaves the owner's others alone. */
static void the_shorter_hold_is_released_first(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *inner =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = ENDS_MS});
    eventually(!dlock_valid(inner));
    assert_status(dlock_release(inner, NULL), LOST);
    assert_true(dlock_valid(outer));
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    assert_status(dlock_extend(outer), OK);
    assert_status(dlock_release(outer, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    stage_clear(&stage);
}

/* What the client was given for long is passed on to one that is over soon. */
static void what_is_passed_on_ends_soon(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "fair", (struct dlock_options){.ttl_ms = LONG_MS, .handoff_ms = LONG_MS});
    dlock_hold *first = acquired(stage.lock);
    struct waiter waiter = {.lock = stage.lock,
                            .want = {.wait_ms = PATIENCE_MS, .hold_max_ms = ENDS_MS}};
    waiter_start(&waiter);
    for (int j = 0; j < 20; j++)
        short_pause(); /* so it waits, as a rule; else it asks the server */
    assert_status(dlock_release(first, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    over_and_free(waiter.hold);
    stage_clear(&stage);
}

/* Its owner reads on: others may read, too, as soon as the write is released. */
static void a_write_that_is_over(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "read_write", (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_client *other = client_of(server_url(server), (struct dlock_options){0});
    dlock *theirs = lock_of(other, "read_write", LOCK);
    dlock_hold *write =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = ENDS_MS});
    dlock_hold *read =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .mode = DLOCK_SHARED});
    eventually(!dlock_valid(write));
    assert_status(dlock_release(write, NULL), LOST);
    assert_true(dlock_valid(read));
    dlock_hold *their_read = acquired_as(theirs, DLOCK_SHARED);
    assert_status(dlock_release(read, NULL), OK);
    assert_status(dlock_release(their_read, NULL), OK);
    dlock_close(theirs);
    dlock_client_close(other);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(each_hold_has_its_own, ONCE),
        SCENARIO(times_out_of_range_are_refused, ONCE),
        SCENARIO(nested_holds_have_their_own, EACH_REENTRANT),
        SCENARIO(what_is_passed_on_lives_by_what_was_asked_for, ONCE),
        SCENARIO(a_whole_time_to_live_again, EACH_SOUND),
        SCENARIO(extended_again_and_again, ONCE),
        SCENARIO(what_is_gone_is_lost, EACH_SOUND),
        SCENARIO(rungs_without_extending, ONCE),
        SCENARIO(without_an_answer_it_stays_as_it_was, EACH_SOUND),
        SCENARIO(an_owner_asks_one_thing_at_a_time, EACH_NESTED_ASKS),
        SCENARIO(its_own_end_loses_no_other_hold, EACH_REENTRANT),
        SCENARIO(not_in_a_child, ONCE),
        SCENARIO(nothing_reaches_beyond_the_end, EACH_SOUND),
        SCENARIO(an_end_before_the_time_to_live, EACH_SOUND),
        SCENARIO(the_end_is_the_holds_alone, EACH_REENTRANT),
        SCENARIO(the_longer_hold_is_released_first, EACH_REENTRANT),
        SCENARIO(both_are_over, EACH_REENTRANT),
        SCENARIO(the_shorter_hold_is_released_first, EACH_REENTRANT),
        SCENARIO(what_is_passed_on_ends_soon, ONCE),
        SCENARIO(a_write_that_is_over, ONCE),
    };
    return run_scenarios("extend", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
