/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies that are lost, late, or no replies at all: "not answered" is never taken for "not done".
 */
#include "background.h"
#include "calls.h"
#include "client.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{reply}"
#define TTL_MS 300 /* one that is meant to end */

/* A client whose wire can be cut, warmed up: connected, its scripts known to the server. */
struct stage {
    struct proxy *proxy;
    struct record *trace;
    dlock_client *client;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    stage->proxy = proxy_start(server);
    stage->trace = record_new();
    if (options.on_trace == NULL) {
        options.on_trace = record_trace;
        options.on_trace_arg = stage->trace;
    }
    stage->client = client_of(proxy_url(stage->proxy), options);
    stage->lock = lock_of(stage->client, rung, LOCK);
    dlock_hold *hold = acquired(stage->lock);
    assert_status(dlock_release(hold, NULL), OK);
    record_clear(stage->trace);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->trace);
    proxy_free(stage->proxy);
}

static long long exists(void)
{
    return server_integer(server, "EXISTS " LOCK);
}

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
        stage_set(&stage, rungs[i][0], (struct dlock_options){0});
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
#define OWNER 7

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
        stage_set(&stage, resolving[i].rung, (struct dlock_options){0});
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
            stage_set(&stage, resolving[i].rung, (struct dlock_options){0});
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
        stage_set(&stage, resolving[i].rung, (struct dlock_options){.ttl_ms = 2000});
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
        stage_set(&stage, resolving[i].rung, (struct dlock_options){0});
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
    const struct dlock_rung *rungs = dlock_rungs(&count);
    for (size_t i = 0; i < 2 * count; i++) {
        struct stage stage;
        struct started started = {0};
        struct dlock_want want = {.size = sizeof want, .wait_ms = 60000};
        if (rungs[i / 2].flawed)
            continue;
        stage_set(&stage, rungs[i / 2].name, (struct dlock_options){0});
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

static void a_question_whose_reply_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < RESOLVING; i++)
        for (int waits = 0; waits < 2; waits++) {
            struct stage stage;
            struct persistent persistent = {.ask = resolving[i].ask};
            struct dlock_want want = {.size = sizeof want, .wait_ms = waits * 60000};
            dlock_hold *hold;
            stage_set(&stage, resolving[i].rung,
                      (struct dlock_options){
                          .on_trace = cut_the_question_too,
                          .on_trace_arg = &persistent,
                      });
            persistent.proxy = stage.proxy;
            atomic_store(&persistent.cuts_left, 3);
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
        stage_set(&stage, resolving[i].rung,
                  (struct dlock_options){
                      .on_trace = cut_the_question_too,
                      .on_trace_arg = &persistent,
                  });
        persistent.proxy = stage.proxy;
        atomic_store(&persistent.cuts_left, 1);
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
        stage_set(&stage, resolving[i].rung,
                  (struct dlock_options){
                      .on_trace = cut_the_question_too,
                      .on_trace_arg = &persistent,
                  });
        persistent.proxy = stage.proxy;
        atomic_store(&persistent.cuts_left, 1000000);
        proxy_plan(stage.proxy, PROXY_CUT_REPLY, resolving[i].acquire, NULL, 0);
        dlock_status status = dlock_acquire(stage.lock, &want, &hold);
        bool flawed = dlock_rung_of(stage.lock)->flawed;
        assert_int_equal(status, flawed ? DLOCK_UNKNOWN : DLOCK_TIMED_OUT);
        assert_says(dlock_error(), "50 ms");
        stage_clear(&stage);
    }
}

/* ---- Release --------------------------------------------------------------------------------- */

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
            stage_set(&stage, releasing[i].rung, (struct dlock_options){0});
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
        stage_set(&stage, rungs[i / 2], (struct dlock_options){0});
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
    stage_set(&stage, rung,
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
    const struct dlock_rung *rungs = dlock_rungs(&count);
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
        stage_set(&stage, rungs[i], (struct dlock_options){0});
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
        stage_set(&stage, rungs[i / 2], (struct dlock_options){0});
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
        stage_set(&stage, "watchdog", (struct dlock_options){0});
        server_text(server, "ACL SETUSER default %sclient|kill", may_kill ? "+" : "-");
        dlock_batch *last = dlock_batch_new();
        assert_status(dlock_batch_add(last, 2, (const char *const[]){"INCR", "ridden"}, NULL), OK);
        dlock_hold *hold = acquired(stage.lock);
        proxy_plan(stage.proxy, acts[i % 2], "INCR", NULL, 0);
        assert_status(dlock_release(hold, last), UNKNOWN);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(exists(), may_kill || carried_out ? 0 : 1);
        assert_string_equal(server_text(server, "GET ridden"), carried_out ? "1" : "");
        assert_int_equal(proxy_requests(stage.proxy, "INCR"), 1);
        server_text(server, "ACL SETUSER default +client|kill");
        dlock_batch_free(last);
        stage_clear(&stage);
    }
}

/* The release never arrived. It is not renewed any more: the key goes by itself. */
static void what_was_not_released_frees_itself(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", (struct dlock_options){.ttl_ms = 2000});
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
        stage_set(&stage, rungs[i][0],
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

/* ---- No replies at all ----------------------------------------------------------------------- */

struct bytes {
    const char *bytes;
    size_t size;
};
#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

static const struct bytes garbage[] = {
    BYTES("\r\n"),
    BYTES("\0"),
    BYTES("\xff\xff\xff\xff"),
    BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"),
    BYTES("+"),
    BYTES("+\r\n"),
    BYTES("+OK\r\n+OK\r\n"),
    BYTES("-\r\n"),
    BYTES("-ERR\r\n"),
    BYTES("-NOSCRIPT \r\n"),
    BYTES("-BUSY\r\n"),
    BYTES(":\r\n"),
    BYTES(":1x\r\n"),
    BYTES(":-1\r\n"),
    BYTES(":9223372036854775807\r\n"),
    BYTES(":99999999999999999999999999\r\n"),
    BYTES("$-1\r\n"),
    BYTES("$-2\r\n"),
    BYTES("$0\r\n\r\n"),
    BYTES("$3\r\nabc"),
    BYTES("$3\r\nabcde"),
    BYTES("$1000000000000\r\nabc\r\n"),
    BYTES("$99999999999999999999999\r\n"),
    BYTES("*-1\r\n"),
    BYTES("*0\r\n"),
    BYTES("*-9\r\n"),
    BYTES("*1\r\n"),
    BYTES("*1\r\n$1\r\n"),
    BYTES("*3\r\n:1\r\n:2\r\n:3\r\n"),
    BYTES("*3\r\n$-1\r\n*0\r\n:3\r\n"),
    BYTES("*3\r\n$6\r\nstring\r\n$-1\r\n:3\r\n"),
    BYTES("*3\r\n-ERR\r\n-ERR\r\n-ERR\r\n"),
    BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"),
    BYTES("*4294967297\r\n:1\r\n"),
    BYTES("*4611686018427387904\r\n:1\r\n"),
    BYTES("%1\r\n+a\r\n+b\r\n"),
    BYTES(">2\r\n+a\r\n+b\r\n"),
    BYTES("#t\r\n"),
    BYTES("_\r\n"),
};

static const char *const all_keyed[] = {
    "setnx",       "setnx_expire",   "setnx_multi",   "set_nx_ex",
    "owner_check", "owner_lua",      "reentrant_tls", "reentrant_getset",
    "reentrant",   "watchdog_timer", "watchdog",      "blpop_wake",
    "notify",      "fair",           "rw_counter",    "read_write"};

/* Whatever comes instead of the first reply of a call: the call ends, with a status. */
static void survive(struct stage *stage, const struct bytes *bytes, int call)
{
    dlock_hold *hold = NULL;
    struct dlock_holder holder = {.size = sizeof holder};
    if (call == 1)
        hold = acquired(stage->lock);
    else
        /* connected: the next reply is the call's */
        eventually(dlock_inspect(stage->lock, &holder) == DLOCK_OK);
    proxy_plan(stage->proxy, PROXY_REPLACE_REPLY, "", bytes->bytes, bytes->size);
    dlock_status status;
    if (call == 0)
        status = tried(stage->lock, &hold);
    else
        status = call == 1 ? dlock_release(hold, NULL) : dlock_inspect(stage->lock, &holder);
    assert_string_not_equal(dlock_status_name(status), "?");
    if (call == 0 && status == DLOCK_OK)
        dlock_release(hold, NULL);
    server_text(server, "FLUSHALL");
}

static void garbage_instead_of_a_reply(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_keyed / sizeof all_keyed[0]; i++) {
        struct stage stage;
        stage_set(&stage, all_keyed[i], (struct dlock_options){0});
        dlock_close(stage.lock);
        dlock_client_close(stage.client);
        /* Many of these are the beginning of something: not waited for any longer than this. */
        stage.client = client_of(proxy_url(stage.proxy), (struct dlock_options){
                                                             .command_timeout_ms = 10,
                                                             .on_trace = record_trace,
                                                             .on_trace_arg = stage.trace,
                                                         });
        stage.lock = lock_of(stage.client, all_keyed[i], LOCK);
        for (size_t j = 0; j < sizeof garbage / sizeof garbage[0]; j++)
            survive(&stage, &garbage[j], 0);
        stage_clear(&stage);
    }
}

static void garbage_instead_of_the_login(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    for (size_t j = 0; j < sizeof garbage / sizeof garbage[0]; j++) {
        dlock_client *client =
            client_of(proxy_url(stage.proxy), (struct dlock_options){.connect_timeout_ms = 200});
        dlock *lock = lock_of(client, "watchdog", LOCK);
        dlock_hold *hold;
        proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "INFO", garbage[j].bytes, garbage[j].size);
        dlock_status status = tried(lock, &hold);
        assert_true(status == DLOCK_OK || status == DLOCK_UNREACHABLE);
        assert_true(proxy_done(stage.proxy));
        if (status == DLOCK_OK)
            assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
        dlock_client_close(client);
    }
    stage_clear(&stage);
}

static void garbage_instead_of_other_replies(void **state)
{
    (void)state;
    struct stage stage;
    for (int call = 1; call <= 2; call++) {
        stage_set(&stage, "watchdog", (struct dlock_options){.command_timeout_ms = 200});
        for (size_t j = 0; j < sizeof garbage / sizeof garbage[0]; j++)
            survive(&stage, &garbage[j], call);
        /* the wire is whole again and so is the client */
        dlock_hold *hold = acquired(stage.lock);
        assert_status(dlock_release(hold, NULL), OK);
        stage_clear(&stage);
    }
}

static void random_bytes_instead_of_a_reply(void **state)
{
    static const char alphabet[] = "+-:$*0123456789\r\n\r\n\r\nOKabc\xff";
    (void)state;
    struct stage stage;
    unsigned seed = 20240502;
    stage_set(&stage, "owner_lua", (struct dlock_options){.command_timeout_ms = 10});
    for (int i = 0; i < 150; i++) {
        char text[48];
        size_t size = 1 + (unsigned)rand_r(&seed) % sizeof text;
        for (size_t at = 0; at < size; at++)
            text[at] = alphabet[(unsigned)rand_r(&seed) % (sizeof alphabet - 1)];
        survive(&stage, &(struct bytes){text, size}, 0);
    }
    stage_clear(&stage);
}

static void a_reply_without_end(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    size_t size = 3 << 20;
    char *bytes = malloc(size);
    must(bytes != NULL);
    memset(bytes, 'x', size);
    memcpy(bytes, "$900000000\r\n", 12);
    stage_set(&stage, "setnx", (struct dlock_options){.command_timeout_ms = 60000});
    proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "SETNX", bytes, size);
    assert_status(tried(stage.lock, &hold), UNKNOWN);
    assert_says(dlock_error(), "larger than 1 MiB");
    free(bytes);
    stage_clear(&stage);
}

/* A second reply that nobody asked for is not taken for the next command's. */
static void one_reply_too_many(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    struct bytes two = BYTES("+OK\r\n:0\r\n");
    stage_set(&stage, "owner_lua", (struct dlock_options){0});
    proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "SET", two.bytes, two.size);
    assert_status(tried(stage.lock, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(exists(), 0);
    stage_clear(&stage);
}

/* What comes instead is no answer to the command, or one answer too many, as if the replies of the
 * connection had shifted: it is not believed, on another connection the same is asked again. */
static void replies_that_have_shifted(void **state)
{
    static const char *const rungs[][2] = {{"owner_lua", "SET"},    {"reentrant", "EVALSHA"},
                                           {"watchdog", "EVALSHA"}, {"notify", "EVALSHA"},
                                           {"fair", "EVALSHA"},     {"read_write", "EVALSHA"}};
    static const struct bytes shifted[] = {
        BYTES("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n"),
        BYTES("*2\r\n$1\r\n1\r\n:1\r\n"),
        BYTES("$1\r\nx\r\n"),
        BYTES("+QUEUED\r\n"),
        BYTES("*0\r\n"),
        BYTES("$-1\r\n:1\r\n"),
        BYTES(":1\r\n:1\r\n"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        stage_set(&stage, rungs[i][0], (struct dlock_options){0});
        dlock_client *other = client_of(server_url(server), (struct dlock_options){0});
        dlock *theirs = lock_of(other, rungs[i][0], LOCK);
        for (size_t j = 0; j < sizeof shifted / sizeof shifted[0]; j++) {
            dlock_hold *hold, *their_hold = acquired(theirs);
            uint64_t connects = stats_of(stage.client).connects;
            proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, rungs[i][1], shifted[j].bytes,
                       shifted[j].size);
            assert_status(tried(stage.lock, &hold), BUSY);
            assert_true(proxy_done(stage.proxy));
            assert_int_equal(stats_of(stage.client).connects, connects + 1);
            assert_status(dlock_release(their_hold, NULL), OK);

            hold = acquired(stage.lock);
            connects = stats_of(stage.client).connects;
            proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "EVALSHA", shifted[j].bytes,
                       shifted[j].size);
            assert_status(dlock_release(hold, NULL), OK);
            assert_int_equal(stats_of(stage.client).connects, connects + 1);
            server_text(server, "FLUSHALL");
        }
        dlock_close(theirs);
        dlock_client_close(other);
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
        cmocka_unit_test(a_release_whose_reply_is_lost),
        cmocka_unit_test(a_nested_release_counts_once),
        cmocka_unit_test(a_later_holder_keeps_the_lock),
        cmocka_unit_test(what_may_come_late_keeps_the_lock),
        cmocka_unit_test(what_may_come_late_keeps_what_is_over),
        cmocka_unit_test(a_release_with_riders),
        cmocka_unit_test(what_was_not_released_frees_itself),
        cmocka_unit_test(a_grant_that_comes_too_late),
        cmocka_unit_test(garbage_instead_of_a_reply),
        cmocka_unit_test(garbage_instead_of_the_login),
        cmocka_unit_test(garbage_instead_of_other_replies),
        cmocka_unit_test(random_bytes_instead_of_a_reply),
        cmocka_unit_test(a_reply_without_end),
        cmocka_unit_test(one_reply_too_many),
        cmocka_unit_test(replies_that_have_shifted),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("lost reply", tests, start_server, stop_server);
}
