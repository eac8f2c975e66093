/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires whose replies are lost or late: "not answered" is never taken for "not done".
 */
#include "background.h"
#include "calls.h"
#include "must.h"
#include "recorded_stage.h"
#include "waiter.h"

#include <stdatomic.h>

#define TTL_MS 300 /* one that is meant to end */

/* ---- Acquire --------------------------------------------------------------------------------- */

/* The request was carried out and its reply is lost. Rungs that cannot ask say UNKNOWN, at once
 * and whatever the limit, and the key is there. */
static void an_acquire_nobody_can_resolve(void **state)
{
    static const char *const rungs[][2] = {{"setnx", "SETNX"},
                                           {"setnx_expire", "SETNX"},
                                           {"setnx_expire", "PEXPIRE"},
                                           {"setnx_multi", "EXEC"},
                                           {"set_nx_ex", "SET"},
                                           {"reentrant_tls", "SET"},
                                           {"reentrant_getset", "GETSET"},
                                           {"reentrant_getset", "PEXPIRE"}};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        struct dlock_want want = {.size = sizeof want, .wait_ms = 60000};
        dlock_hold *hold = (dlock_hold *)&hold;
        stage_set_warm(&stage, rungs[i][0], (struct dlock_options){0});
        uint64_t attempts = stats_of(stage.client).attempts;
        proxy_plan(stage.proxy, PROXY_CUT_REPLY, rungs[i][1], NULL, 0);
        assert_status(dlock_acquire(stage.lock, &want, &hold), UNKNOWN);
        assert_null(hold);
        assert_says(dlock_error(), "the server closed the connection");
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(exists(), 1);
        assert_int_equal(stats_of(stage.client).attempts, attempts + 1);
        assert_int_equal(stats_of(stage.client).unknown, 1);
        /* a transaction's four are lost together */
        bool one = strcmp(rungs[i][1], "EXEC") != 0;
        assert_int_equal(record_count(stage.trace, "(lost)"), one ? 1 : 4);
        stage_clear(&stage);
    }
}

/* What each sends, and what it finds out with: the same script once more, which says what shall be,
 * or a question. */
static const struct {
    const char *rung;
    const char *acquire;
    const char *ask;
} resolving[] = {
    {"owner_check", "SET", "GET"},        {"owner_lua", "SET", "GET"},
    {"reentrant", "EVALSHA", "EVALSHA"},  {"watchdog_timer", "EVALSHA", "EVALSHA"},
    {"watchdog", "EVALSHA", "EVALSHA"},   {"blpop_wake", "EVALSHA", "EVALSHA"},
    {"notify", "EVALSHA", "EVALSHA"},     {"fair", "EVALSHA", "EVALSHA"},
    {"read_write", "EVALSHA", "EVALSHA"},
};
#define RESOLVING (sizeof resolving / sizeof resolving[0])

static bool asks_by_trying(size_t i)
{
    return strcmp(resolving[i].acquire, resolving[i].ask) == 0;
}

/* Those that keep a hash of counts. */
static bool counts_holds(size_t i)
{
    static const char *const others[] = {"owner_check", "owner_lua", "fair", "read_write"};
    for (size_t j = 0; j < sizeof others / sizeof others[0]; j++)
        if (strcmp(resolving[i].rung, others[j]) == 0)
            return false;
    return true;
}

/* It was had: one try, one question, and the hold is as good as any. */
static void an_acquire_that_was_had(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++) {
        struct stage stage;
        dlock_hold *hold;
        char line[256];
        stage_set_warm(&stage, resolving[i].rung, (struct dlock_options){0});
        uint64_t attempts = stats_of(stage.client).attempts;
        proxy_plan(stage.proxy, PROXY_CUT_REPLY, resolving[i].acquire, NULL, 0);
        assert_status(tried(stage.lock, &hold), OK);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(record_count(stage.trace, ""), 2);
        assert_int_equal(record_position(stage.trace, "(lost)"), 0);
        record_line(stage.trace, "", 1, line, sizeof line);
        assert_memory_equal(line, resolving[i].ask, strlen(resolving[i].ask));
        assert_int_equal(stats_of(stage.client).attempts, attempts + 1);
        assert_int_equal(stats_of(stage.client).contended, 0);
        assert_int_equal(stats_of(stage.client).unknown, 0);
        assert_true(dlock_valid(hold));
        assert_status(dlock_release(hold, NULL), OK);
        assert_int_equal(exists(), 0);
        stage_clear(&stage);
    }
}

/* Had a second time by the same owner: it counts once. */
static void a_second_acquire_that_was_had_or_not(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++) {
        if (!counts_holds(i))
            continue;
        for (size_t j = 0; j < 2; j++) {
            struct stage stage;
            stage_set_warm(&stage, resolving[i].rung, (struct dlock_options){0});
            dlock_hold *outer = acquired_by(stage.lock, OWNER);
            proxy_plan(stage.proxy, acts[j], "EVALSHA", NULL, 0);
            dlock_hold *inner = acquired_by(stage.lock, OWNER);
            assert_true(proxy_done(stage.proxy));
            assert_string_equal(server_text(server, "HGET " LOCK " %s", dlock_owner(inner)), "2");
            assert_status(dlock_release(inner, NULL), OK);
            assert_int_equal(exists(), 1);
            assert_status(dlock_release(outer, NULL), OK);
            assert_int_equal(exists(), 0);
            stage_clear(&stage);
        }
    }
}

/* The outer hold was lost long ago: it does not count any more. */
static void an_acquire_that_was_had_after_a_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++) {
        if (!counts_holds(i))
            continue;
        struct stage stage;
        stage_set_warm(&stage, resolving[i].rung, (struct dlock_options){.ttl_ms = 2000});
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        server_integer(server, "DEL " LOCK);
        eventually(!dlock_valid(outer));
        uint64_t attempts = stats_of(stage.client).attempts;
        proxy_plan(stage.proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
        dlock_hold *inner = acquired_by(stage.lock, OWNER);
        assert_int_equal(stats_of(stage.client).attempts, attempts + 1);
        dlock_release(inner, NULL);
        assert_status(dlock_release(outer, NULL), LOST);
        stage_clear(&stage);
    }
}

/* It never arrived: the question says so, and it is sent again at once. */
static void an_acquire_that_was_not_had(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++) {
        struct stage stage;
        dlock_hold *hold;
        stage_set_warm(&stage, resolving[i].rung, (struct dlock_options){0});
        uint64_t attempts = stats_of(stage.client).attempts;
        proxy_plan(stage.proxy, PROXY_CUT_REQUEST, resolving[i].acquire, NULL, 0);
        assert_status(tried(stage.lock, &hold), OK);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(stats_of(stage.client).attempts, attempts + 1);
        assert_int_equal(record_count(stage.trace, ""), asks_by_trying(i) ? 2 : 3);
        assert_int_equal(record_position(stage.trace, "(lost)"), 0);
        assert_int_equal(stats_of(stage.client).contended, 0);
        assert_status(dlock_release(hold, NULL), OK);
        assert_int_equal(exists(), 0);
        stage_clear(&stage);
    }
}

/* The same without a thread that waits, on every rung that is not flawed. */
struct started {
    _Atomic bool over;
    dlock_status status;
    dlock_hold *hold;
};

static void done(void *arg, dlock_status status, dlock_hold *hold)
{
    struct started *started = arg;
    started->status = status;
    started->hold = hold;
    atomic_store(&started->over, true);
}

static void a_started_acquire_that_was_had_or_not(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < 2 * count; i++) {
        struct stage stage;
        struct started started = {0};
        struct dlock_want want = {.size = sizeof want, .wait_ms = 60000};
        if (rungs[i / 2].flawed)
            continue;
        stage_set_warm(&stage, rungs[i / 2].name, (struct dlock_options){0});
        uint64_t attempts = stats_of(stage.client).attempts;
        proxy_plan(stage.proxy, acts[i % 2], "", NULL, 0);
        assert_status(dlock_acquire_start(stage.lock, &want, done, &started), OK);
        eventually(atomic_load(&started.over));
        assert_int_equal(started.status, DLOCK_OK);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(stats_of(stage.client).attempts, attempts + 1);
        assert_int_equal(stats_of(stage.client).unknown, 0);
        assert_true(dlock_valid(started.hold));
        assert_status(dlock_release(started.hold, NULL), OK);
        assert_int_equal(exists(), 0);
        stage_clear(&stage);
    }
}

/* The question's reply is lost as well, each time it is asked: then with a limit it is asked again,
 * once a connection, and with one try the caller hears UNKNOWN. */
struct persistent {
    struct proxy *proxy;
    const char *ask;
    _Atomic int cuts_left;
};

static void cut_the_question_too(void *arg, const struct dlock_trace *trace)
{
    struct persistent *p = arg;
    if (strcmp(trace->reply, "(lost)") == 0 && atomic_fetch_sub(&p->cuts_left, 1) > 0)
        proxy_plan(p->proxy, PROXY_CUT_REPLY, p->ask, NULL, 0);
}

/* So many questions are cut. */
static void stage_set_persistent(struct stage *stage, const char *rung,
                                 struct persistent *persistent, int cuts)
{
    stage_set_warm(stage, rung,
                   (struct dlock_options){
                       .on_trace = cut_the_question_too,
                       .on_trace_arg = persistent,
                   });
    persistent->proxy = stage->proxy;
    atomic_store(&persistent->cuts_left, cuts);
}

static void a_question_whose_reply_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++)
        for (int waits = 0; waits < 2; waits++) {
            struct stage stage;
            struct persistent persistent = {.ask = resolving[i].ask};
            struct dlock_want want = {.size = sizeof want, .wait_ms = waits * 60000};
            dlock_hold *hold;
            stage_set_persistent(&stage, resolving[i].rung, &persistent, 3);
            uint64_t attempts = stats_of(stage.client).attempts;
            proxy_plan(stage.proxy, PROXY_CUT_REPLY, resolving[i].acquire, NULL, 0);
            dlock_status status = dlock_acquire(stage.lock, &want, &hold);
            /* a try and the question behind it; two questions; the one that is answered */
            assert_int_equal(stats_of(stage.client).attempts, attempts + (waits ? 3 : 1));
            assert_int_equal(stats_of(stage.client).contended, 0);
            bool given_back = !waits && (strcmp(resolving[i].rung, "read_write") == 0 ||
                                         strcmp(resolving[i].rung, "fair") == 0);
            assert_int_equal(exists(), given_back ? 0 : 1);
            if (waits) {
                assert_int_equal(status, DLOCK_OK);
                assert_status(dlock_release(hold, NULL), OK);
            } else {
                assert_int_equal(status, DLOCK_UNKNOWN);
                assert_null(hold);
                assert_int_equal(stats_of(stage.client).unknown, 1);
            }
            stage_clear(&stage);
        }
}

/* Contended is what a try finds busy, though the one before it was lost. */
static void a_lost_try_and_then_a_busy_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++) {
        struct stage stage;
        struct persistent persistent = {.ask = resolving[i].ask};
        if (strcmp(resolving[i].rung, "fair") == 0)
            continue; /* who waits behind its own client does not try */
        stage_set_persistent(&stage, resolving[i].rung, &persistent, 1);
        dlock_hold *hold = acquired(stage.lock);
        proxy_plan(stage.proxy, PROXY_CUT_REQUEST, resolving[i].acquire, NULL, 0);
        struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = 60000}};
        waiter_start(&waiter);
        eventually(stats_of(stage.client).contended > 0);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_int_equal(stats_of(stage.client).contended, 1);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
    }
}

/* Not known until the limit: the caller holds nothing, and what may be locked for it is taken back.
 */
static void unknown_until_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++) {
        struct stage stage;
        struct persistent persistent = {.ask = resolving[i].ask};
        struct dlock_want want = {.size = sizeof want, .wait_ms = 50};
        dlock_hold *hold;
        stage_set_persistent(&stage, resolving[i].rung, &persistent, 1000000);
        proxy_plan(stage.proxy, PROXY_CUT_REPLY, resolving[i].acquire, NULL, 0);
        dlock_status status = dlock_acquire(stage.lock, &want, &hold);
        bool flawed = dlock_rung_of(stage.lock)->flawed;
        assert_int_equal(status, flawed ? DLOCK_UNKNOWN : DLOCK_TIMED_OUT);
        assert_says(dlock_error(), "50 ms");
        stage_clear(&stage);
    }
}

/* ---- Late replies ---------------------------------------------------------------------------- */

/* The grant's reply comes when the time to live is over on the server: it is not handed out. */
static void a_grant_that_comes_too_late(void **state)
{
    static const char *const rungs[][2] = {{"setnx_expire", "PEXPIRE"}, {"set_nx_ex", "SET"},
                                           {"owner_check", "SET"},      {"owner_lua", "SET"},
                                           {"reentrant", "EVALSHA"},    {"watchdog", "EVALSHA"}};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        stage_set_warm(&stage, rungs[i][0],
                       (struct dlock_options){.ttl_ms = TTL_MS, .command_timeout_ms = 60000});
        struct waiter once = {.lock = stage.lock};
        struct waiter waits = {.lock = stage.lock, .want = {.wait_ms = 60000}};
        struct waiter *const waiters[] = {&once, &waits};
        for (int j = 0; j < 2; j++) {
            uint64_t attempts = stats_of(stage.client).attempts;
            proxy_plan(stage.proxy, PROXY_HOLD_REPLY, rungs[i][1], NULL, 0);
            waiter_start(waiters[j]);
            eventually(proxy_done(stage.proxy));
            eventually(exists() == 0);
            proxy_let_go(stage.proxy);
            if (j == 0) {
                assert_status(waiter_end(waiters[j]), BUSY);
                assert_null(waiters[j]->hold);
                assert_says(waiters[j]->error, "took longer than the time to live");
                eventually(kept_in_the_background(stage.client) ==
                           0); /* it sends an EVALSHA, too */
            } else {
                assert_status(waiter_end(waiters[j]), OK);
                assert_true(stats_of(stage.client).attempts >= attempts + 2);
                dlock_release(waiters[j]->hold, NULL);
            }
        }
        assert_int_equal(stats_of(stage.client).contended, 0);
        stage_clear(&stage);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_acquire_nobody_can_resolve),
        cmocka_unit_test(an_acquire_that_was_had),
        cmocka_unit_test(a_second_acquire_that_was_had_or_not),
        cmocka_unit_test(an_acquire_that_was_had_after_a_loss),
        cmocka_unit_test(an_acquire_that_was_not_had),
        cmocka_unit_test(a_started_acquire_that_was_had_or_not),
        cmocka_unit_test(a_question_whose_reply_is_lost),
        cmocka_unit_test(a_lost_try_and_then_a_busy_one),
        cmocka_unit_test(unknown_until_the_limit),
        cmocka_unit_test(a_grant_that_comes_too_late),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("lost_acquire", tests, start_server, stop_server);
}
