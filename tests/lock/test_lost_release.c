/* SPDX-License-Identifier: Apache-2.0
 *
 * Releases whose replies are lost: "not answered" is never taken for "not done".
 */
#include "calls.h"
#include "must.h"
#include "recorded_stage.h"

#include <stdatomic.h>

static const struct {
    const char *rung;
    const char *release;
} releasing[] = {
    {"setnx", "DEL"},          {"setnx_expire", "DEL"},       {"setnx_multi", "DEL"},
    {"set_nx_ex", "DEL"},      {"owner_check", "GET"},        {"owner_check", "DEL"},
    {"owner_lua", "EVALSHA"},  {"reentrant_tls", "EVALSHA"},  {"reentrant_getset", "EVALSHA"},
    {"reentrant", "EVALSHA"},  {"watchdog_timer", "EVALSHA"}, {"watchdog", "EVALSHA"},
    {"blpop_wake", "EVALSHA"}, {"notify", "EVALSHA"},         {"fair", "EVALSHA"},
    {"rw_counter", "DEL"},     {"read_write", "EVALSHA"},
};

/* Flawed rungs send what they send, once. The others send the release once more, which counts once.
 */
static void a_release_whose_reply_is_lost(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (size_t i = 0; i < sizeof releasing / sizeof releasing[0]; i++)
        for (size_t j = 0; j < 2; j++) {
            struct stage stage;
            stage_set_warm(&stage, releasing[i].rung, (struct dlock_options){0});
            dlock_hold *hold = acquired(stage.lock);
            bool sure = !dlock_rung_of(stage.lock)->flawed;
            proxy_plan(stage.proxy, acts[j], releasing[i].release, NULL, 0);
            dlock_status status = dlock_release(hold, NULL);
            assert_int_equal(status, sure ? DLOCK_OK : DLOCK_UNKNOWN);
            assert_true(proxy_done(stage.proxy));
            assert_int_equal(stats_of(stage.client).unknown, sure ? 0 : 1);
            bool done =
                sure || (acts[j] == PROXY_CUT_REPLY && strcmp(releasing[i].release, "GET") != 0);
            assert_int_equal(exists(), done ? 0 : 1);
            if (dlock_rung_of(stage.lock)->expires &&
                !done) /* it frees itself, and nobody renews it meanwhile */
                assert_true(server_integer(server, "PTTL " LOCK) > 0);
            stage_clear(&stage);
        }
}

/* The inner release's reply is lost: the outer hold is none the worse for it. */
static void a_nested_release_counts_once(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog", "notify"};
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        stage_set_warm(&stage, rungs[i / 2], (struct dlock_options){0});
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        dlock_hold *inner = acquired_by(stage.lock, OWNER);
        proxy_plan(stage.proxy, acts[i % 2], "EVALSHA", NULL, 0);
        assert_status(dlock_release(inner, NULL), OK);
        assert_true(proxy_done(stage.proxy));
        assert_string_equal(server_text(server, "HGET " LOCK " %s", dlock_owner(outer)), "1");
        assert_status(dlock_release(outer, NULL), OK);
        assert_int_equal(exists(), 0);
        stage_clear(&stage);
    }
}

/* Somebody else has the lock by the time the release is sent once more: it stays theirs. */
struct later {
    dlock *lock; /* of another client, on a wire of its own */
    dlock_hold *mine;
    dlock_hold *theirs;
    bool over; /* my time is over as well by then */
};

static void acquire_behind_it(void *arg, const struct dlock_trace *trace)
{
    struct later *later = arg;
    if (strcmp(trace->reply, "(lost)") != 0 || later->theirs != NULL)
        return;
    must(tried(later->lock, &later->theirs) == DLOCK_OK);
    if (later->over)
        eventually(!dlock_valid(later->mine));
}

static dlock_hold *mine_as(dlock *lock, enum dlock_mode mode)
{
    dlock_hold *hold;
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER, .mode = mode};
    dlock_status status = dlock_acquire(lock, &want, &hold);
    if (status != DLOCK_UNSUPPORTED)
        assert_status(status, OK);
    return hold;
}

static void release_behind_a_later_holder(const char *rung, enum dlock_mode mode, bool nested,
                                          bool over)
{
    struct stage stage;
    struct later later = {.over = over};
    stage_set_warm(&stage, rung,
                   (struct dlock_options){.ttl_ms = over ? 1000 : 0,
                                          .on_trace = acquire_behind_it,
                                          .on_trace_arg = &later});
    dlock_client *other = client_of(server_url(server), (struct dlock_options){0});
    later.lock = lock_of(other, rung, LOCK);
    later.mine = mine_as(stage.lock, mode);
    if (later.mine != NULL) {
        if (nested)
            assert_status(dlock_release(mine_as(stage.lock, mode), NULL), OK);
        proxy_plan(stage.proxy, PROXY_CUT_REPLY, "", NULL, 0);
        dlock_status status = dlock_release(later.mine, NULL);
        if (status !=
            DLOCK_OK) /* that it was released before its time was over can't be known then */
            assert_true(over && (status == DLOCK_UNKNOWN || status == DLOCK_LOST));
        assert_true(proxy_done(stage.proxy));
        assert_non_null(later.theirs);
        struct dlock_holder holder = {.size = sizeof holder};
        assert_status(dlock_inspect(later.lock, &holder), OK);
        assert_memory_equal(holder.owner, dlock_client_id(other), 36);
        assert_status(dlock_release(later.theirs, NULL), OK);
        assert_int_equal(exists(), 0);
    }
    dlock_close(later.lock);
    dlock_client_close(other);
    stage_clear(&stage);
}

static void a_later_holder_keeps_the_lock(void **state)
{
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED};
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < 8 * count; i++) {
        const struct dlock_rung *rung = &rungs[i / 8];
        bool nested = (i & 1) != 0;
        if (!rung->flawed && (rung->reentrant || !nested))
            release_behind_a_later_holder(rung->name, modes[i >> 1 & 1], nested, (i >> 2 & 1) != 0);
    }
}

/* What rode with a nested release may still come, and nobody can end its connection: no release of
 * the owner's frees the lock, else it would meet the next holder. */
static void what_may_come_late_keeps_the_lock(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog", "notify"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        dlock_batch *last = dlock_batch_new();
        assert_status(dlock_batch_add(last, 1, (const char *const[]){"PING"}, NULL), OK);
        stage_set_warm(&stage, rungs[i], (struct dlock_options){0});
        server_text(server, "ACL SETUSER default -client|kill");
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        dlock_hold *inner = acquired_by(stage.lock, OWNER);
        proxy_plan(stage.proxy, PROXY_CUT_REQUEST, "PING", NULL, 0);
        assert_status(dlock_release(inner, last), UNKNOWN);
        assert_string_equal(server_text(server, "HGET " LOCK " %s", dlock_owner(outer)), "2");
        assert_status(dlock_release(outer, NULL), UNKNOWN);
        assert_int_equal(exists(), 1);
        assert_true(server_integer(server, "PTTL " LOCK) > 0);
        assert_int_equal(server_integer(server, "DEL " LOCK), 1);
        server_text(server, "ACL SETUSER default +client|kill");
        dlock_batch_free(last);
        stage_clear(&stage);
    }
}

/* The same where another hold of the owner is over, before or after: its release does not free the
 * lock. */
static void what_may_come_late_keeps_what_is_over(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog", "notify", "fair", "read_write"};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER, .ttl_ms = 600000};
        dlock_hold *outer, *inner;
        dlock_batch *last = dlock_batch_new();
        assert_status(dlock_batch_add(last, 1, (const char *const[]){"PING"}, NULL), OK);
        stage_set_warm(&stage, rungs[i / 2], (struct dlock_options){0});
        server_text(server, "ACL SETUSER default -client|kill");
        assert_status(dlock_acquire(stage.lock, &want, &outer), OK);
        want.hold_max_ms = 600;
        assert_status(dlock_acquire(stage.lock, &want, &inner), OK);
        if (i % 2 == 0)
            eventually(!dlock_valid(inner));
        proxy_plan(stage.proxy, PROXY_CUT_REQUEST, "PING", NULL, 0);
        assert_status(dlock_release(outer, last), UNKNOWN);
        eventually(!dlock_valid(inner));
        assert_status(dlock_release(inner, NULL), LOST);
        assert_int_equal(exists(), 1);
        assert_int_equal(server_integer(server, "DEL " LOCK), 1);
        server_text(server, "ACL SETUSER default +client|kill");
        dlock_batch_free(last);
        stage_clear(&stage);
    }
}

/* Releases a hold with a command before the release, and cuts that request off, or its reply. The
 * command is sent once. */
static void release_cut_off(struct stage *stage, enum proxy_act act)
{
    dlock_batch *last = dlock_batch_new();
    assert_status(dlock_batch_add(last, 2, (const char *const[]){"INCR", "ridden"}, NULL), OK);
    dlock_hold *hold = acquired(stage->lock);
    proxy_plan(stage->proxy, act, "INCR", NULL, 0);
    assert_status(dlock_release(hold, last), UNKNOWN);
    assert_true(proxy_done(stage->proxy));
    assert_int_equal(proxy_requests(stage->proxy, "INCR"), 1);
    dlock_batch_free(last);
}

/* Commands rode ahead of the release. They are never sent twice. The release is sent once more
 * where the server has ended the broken connection, so that they can't come behind it; else the
 * lock is kept for its time to live. */
static void a_release_with_riders(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct stage stage;
        bool may_kill = i / 2 == 0, carried_out = acts[i % 2] == PROXY_CUT_REPLY;
        stage_set_warm(&stage, "watchdog", (struct dlock_options){0});
        server_text(server, "ACL SETUSER default %sclient|kill", may_kill ? "+" : "-");
        release_cut_off(&stage, acts[i % 2]);
        assert_int_equal(exists(), may_kill || carried_out ? 0 : 1);
        assert_string_equal(server_text(server, "GET ridden"), carried_out ? "1" : "");
        assert_int_equal(proxy_requests(stage.proxy, "INCR"), 1);
        server_text(server, "ACL SETUSER default +client|kill");
        stage_clear(&stage);
    }
}

/* No server has the lock. It is released, and the answer is about the last commands. */
static void a_release_without_a_server(void **state)
{
    static const char *const rungs[] = {"none", "local"};
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct stage stage;
        stage_set_warm(&stage, rungs[i / 2], (struct dlock_options){0});
        release_cut_off(&stage, acts[i % 2]);
        assert_status(dlock_release(acquired(stage.lock), NULL), OK);
        stage_clear(&stage);
    }
}

/* The release never arrived. It is not renewed any more: the key goes by itself. */
static void what_was_not_released_frees_itself(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_warm(&stage, "watchdog", (struct dlock_options){.ttl_ms = 2000});
    server_text(server, "ACL SETUSER default -client|kill");
    dlock_hold *hold = acquired(stage.lock);
    dlock_batch *last = dlock_batch_new();
    assert_status(dlock_batch_add(last, 1, (const char *const[]){"PING"}, NULL), OK);
    proxy_plan(stage.proxy, PROXY_CUT_REQUEST, "EVALSHA", NULL, 0);
    dlock_status status = dlock_release(hold, last);
    uint64_t renewals = stats_of(stage.client).renewals;
    if (status != DLOCK_LOST) /* as on a machine that stalls */
        assert_status(status, UNKNOWN);
    dlock_batch_free(last);
    eventually(exists() == 0);
    assert_int_equal(stats_of(stage.client).renewals, renewals);
    server_text(server, "ACL SETUSER default +client|kill");
    stage_clear(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_release_whose_reply_is_lost),
        cmocka_unit_test(a_nested_release_counts_once),
        cmocka_unit_test(a_later_holder_keeps_the_lock),
        cmocka_unit_test(what_may_come_late_keeps_the_lock),
        cmocka_unit_test(what_may_come_late_keeps_what_is_over),
        cmocka_unit_test(a_release_with_riders),
        cmocka_unit_test(a_release_without_a_server),
        cmocka_unit_test(what_was_not_released_frees_itself),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("lost_release", tests, start_server, stop_server);
}
