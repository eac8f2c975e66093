/* SPDX-License-Identifier: Apache-2.0
 *
 * What a failed call says beside its status: who holds the lock, or what its key holds instead. Of
 * every rung that is not flawed; and what it costs.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOCK "lock:{explain}"
#define TTL_MS 60000
#define LIMIT_MS 300                  /* long enough for a busy server to answer */
#define NEVER_AGAIN 60000             /* retry_ms: one question in a whole test */
#define ASKED "\"TYPE\" \"" LOCK "\"" /* as the monitor shows what the question's script does */

/* ---- The stage ------------------------------------------------------------------------------- */

struct stage {
    struct proxy *proxy; /* of the one who asks */
    dlock_client *holder;
    dlock_client *client;
    dlock *held;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    options.ttl_ms = TTL_MS;
    stage->proxy = proxy_start(server);
    stage->holder = client_of(server_url(server), (struct dlock_options){.ttl_ms = TTL_MS});
    stage->client = client_of(proxy_url(stage->proxy), options);
    stage->held = lock_of(stage->holder, rung, LOCK);
    stage->lock = lock_of(stage->client, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->held);
    dlock_close(stage->lock);
    dlock_client_close(stage->holder);
    dlock_client_close(stage->client);
    proxy_free(stage->proxy);
}

/* A server too busy to answer within the limit is asked again, for longer. */
static dlock_status limited(dlock *lock, int64_t wait_ms)
{
    dlock_hold *none;
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    dlock_status status = dlock_acquire(lock, &want, &none);
    for (; status == DLOCK_UNREACHABLE && want.wait_ms < PATIENCE_MS; want.wait_ms *= 2) {
        assert_null(none);
        status = dlock_acquire(lock, &want, &none);
    }
    assert_null(none);
    return status;
}

/* A client's id stands in every owner of its. */
static void assert_says_holder(const char *said, const dlock_client *holder)
{
    const char *at = strstr(said, "held by '");
    long long left_ms = -1;
    if (at == NULL || strncmp(at + 9, dlock_client_id(holder), 36) != 0)
        failed("'%s' does not say that %s holds it", said, dlock_client_id(holder));
    at = strstr(at, " for ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, " for %lld ms more", &left_ms), 1);
    assert_in_range(left_ms, 1, TTL_MS);
}

static bool keeps_out(const struct dlock_rung *rung)
{
    static const char *const others[] = {"none", "local", "reentrant_getset", "reentrant_tls"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(rung->name, others[i]) == 0)
            return false;
    return true;
}

struct answered {
    _Atomic bool over;
    dlock_status status;
    char error[512];
};

static void done(void *arg, dlock_status status, dlock_hold *hold)
{
    struct answered *answered = arg;
    must(hold == NULL);
    answered->status = status;
    snprintf(answered->error, sizeof answered->error, "%s", dlock_error());
    atomic_store(&answered->over, true);
}

static void start(dlock *lock, int64_t wait_ms, struct answered *answered)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    assert_status(dlock_acquire_start(lock, &want, done, answered), OK);
}

static void replace_key(const char *make)
{
    server_integer(server, "DEL " LOCK);
    assert_int_not_equal(server_ask(server, make)->type, REDIS_REPLY_ERROR);
}

/* ---- Who holds it ---------------------------------------------------------------------------- */

/* One try, a wait, and both without a thread. Flawed rungs send what they send. */
static void every_rung_says_who_holds_it(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct answered once = {0}, late = {0};
        if (!keeps_out(&rungs[i]))
            continue;
        stage_set(&stage, rungs[i].name, (struct dlock_options){.retry_ms = 1});
        dlock_hold *hold = acquired(stage.held);
        struct monitor *monitor = monitor_start(server);
        char said[4][512];
        assert_status(limited(stage.lock, 0), BUSY);
        snprintf(said[0], sizeof said[0], "%s", dlock_error());
        assert_status(limited(stage.lock, 20), TIMED_OUT);
        snprintf(said[1], sizeof said[1], "%s", dlock_error());
        start(stage.lock, 0, &once);
        eventually(atomic_load(&once.over));
        assert_int_equal(once.status, DLOCK_BUSY);
        start(stage.lock, LIMIT_MS, &late);
        eventually(atomic_load(&late.over));
        assert_int_equal(late.status, DLOCK_TIMED_OUT);
        snprintf(said[2], sizeof said[2], "%s", once.error);
        snprintf(said[3], sizeof said[3], "%s", late.error);
        for (int j = 0; j < 4; j++) {
            assert_says(said[j], "another holder has the lock");
            if (!rungs[i].flawed)
                assert_says_holder(said[j], stage.holder);
            else
                assert_null(strstr(said[j], "held"));
        }
        size_t asked = monitor_count(monitor, ASKED);
        assert_true(rungs[i].flawed ? asked == 0 : asked >= 2 && asked <= 4);
        monitor_free(monitor);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

static void whose_it_is_to_who_asks(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "owner_lua", (struct dlock_options){.retry_ms = 1});
    struct waiter another = {.lock = stage.lock};
    dlock_hold *hold = acquired(stage.lock);
    assert_status(limited(stage.lock, 20), TIMED_OUT);
    assert_says(dlock_error(), "(of this thread) for ");
    assert_says(dlock_error(), dlock_owner(hold));
    waiter_start(&another);
    assert_status(waiter_end(&another), BUSY);
    assert_says(another.error, "(of this client) for ");
    assert_status(limited(stage.held, 0), BUSY);
    assert_null(strstr(dlock_error(), "("));
    server_text(server, "SET " LOCK " me");
    assert_status(limited(stage.held, 20), TIMED_OUT);
    assert_says(dlock_error(), "; held by 'me'; it never expires");
    assert_status(dlock_release(hold, NULL), LOST);
    assert_says(dlock_error(), "'" LOCK "' no longer belonged to this hold at its release");
    stage_clear(&stage);
}

/* The lock is freed after the try and before the question. */
static void free_it(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    if (strncmp(trace->sent, "SET ", 4) == 0)
        server_integer(server, "DEL " LOCK);
}

static void freed_meanwhile(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "owner_lua", (struct dlock_options){.on_trace = free_it});
    dlock_hold *hold = acquired(stage.held);
    assert_status(limited(stage.lock, 0), BUSY);
    assert_string_equal(dlock_error(), "'" LOCK "': another holder has the lock; it is free now");
    dlock_release(hold, NULL);
    stage_clear(&stage);
}

/* Many that fail at once, most of them in line behind others of their client, ask once. */
static void asked_once_for_many(void **state)
{
    enum { MANY = 40 };
    (void)state;
    struct stage stage;
    struct answered many[MANY] = {0};
    stage_set(&stage, "watchdog", (struct dlock_options){.retry_ms = NEVER_AGAIN, .contenders = 4});
    dlock_hold *hold = acquired(stage.held);
    struct monitor *monitor = monitor_start(server);
    for (int i = 0; i < 10; i++) {
        assert_status(limited(stage.lock, 0), BUSY);
        assert_says_holder(dlock_error(), stage.holder);
        assert_int_equal(strstr(dlock_error(), " ms ago held by") != NULL, i > 0);
    }
    for (int i = 0; i < MANY; i++)
        start(stage.lock, LIMIT_MS, &many[i]);
    for (int i = 0; i < MANY; i++) {
        eventually(atomic_load(&many[i].over));
        assert_int_equal(many[i].status, DLOCK_TIMED_OUT);
        assert_says(many[i].error, " ms ago held by");
        assert_says_holder(many[i].error, stage.holder);
    }
    assert_int_equal(monitor_count(monitor, ASKED), 1);
    monitor_free(monitor);
    dlock_release(hold, NULL);
    stage_clear(&stage);
}

/* Those that begin together stand in line until their time is over, some just first in it by then.
 * The server is well, and nobody had to ask it: that is no outage. A machine that stands still may
 * look like one, but not each time. */
static void whose_time_is_over_as_it_moves_up(void **state)
{
    enum { MANY = 50, TIMES = 5 };
    (void)state;
    struct stage stage;
    struct waiter many[MANY];
    stage_set(&stage, "notify", (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.held);
    int times_in_vain = 0;
    for (int times = 0; times < TIMES; times++) {
        bool in_vain = false;
        for (int i = 0; i < MANY; i++) {
            many[i] = (struct waiter){.lock = stage.lock, .want = {.wait_ms = LIMIT_MS}};
            waiter_start(&many[i]);
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
        for (int i = 0; i < MANY; i++)
            in_vain |= waiter_end(&many[i]) != DLOCK_TIMED_OUT;
        times_in_vain += in_vain;
    }
    assert_in_range(times_in_vain, 0, TIMES - 3);
    dlock_release(hold, NULL);
    stage_clear(&stage);
}

/* Who stands in line when its time is over is answered by the loop's own thread, which asks
 * nobody. */
static void who_ends_in_line_asks_nobody(void **state)
{
    (void)state;
    struct stage stage;
    struct answered first = {0}, behind = {0};
    struct dlock_want forever = {
        .size = sizeof forever, .wait_ms = DLOCK_WAIT_FOREVER, .cancel = dlock_cancel_new()};
    stage_set(&stage, "watchdog", (struct dlock_options){.contenders = 1, .retry_ms = NEVER_AGAIN});
    dlock_hold *outer = acquired(stage.lock);
    struct monitor *monitor = monitor_start(server);
    assert_status(dlock_acquire_start(stage.lock, &forever, done, &first), OK);
    eventually(stats_of(stage.client).contended == 1);
    start(stage.lock, LIMIT_MS, &behind);
    eventually(atomic_load(&behind.over));
    assert_int_equal(behind.status, DLOCK_TIMED_OUT);
    assert_int_equal(monitor_count(monitor, ASKED), 0);
    dlock_cancel_now(forever.cancel);
    eventually(atomic_load(&first.over));
    dlock_cancel_free(forever.cancel);
    monitor_free(monitor);
    assert_status(dlock_release(outer, NULL), OK);
    stage_clear(&stage);
}

/* Nor does a nested acquire that finds the loss. */
static void a_nested_acquire_asks_nobody(void **state)
{
    (void)state;
    struct stage stage;
    struct answered inner = {0};
    struct dlock_want mine = {.size = sizeof mine, .wait_ms = 60000, .owner_id = 5};
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    dlock_hold *outer;
    assert_status(dlock_acquire(stage.lock, &mine, &outer), OK);
    replace_key("HSET " LOCK " another 1");
    struct monitor *monitor = monitor_start(server);
    assert_status(dlock_acquire_start(stage.lock, &mine, done, &inner), OK);
    eventually(atomic_load(&inner.over));
    assert_int_equal(inner.status, DLOCK_LOST);
    assert_says(inner.error, "'" LOCK "' was lost before its owner acquired it again");
    assert_int_equal(monitor_count(monitor, ASKED), 0);
    monitor_free(monitor);
    assert_status(dlock_release(outer, NULL), LOST);
    stage_clear(&stage);
}

/* What was seen is not told when it must be over: another may hold it by now. */
static void what_is_over_is_not_told(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "owner_lua", (struct dlock_options){.retry_ms = NEVER_AGAIN});
    server_text(server, "SET " LOCK " one PX 1000");
    assert_status(limited(stage.lock, 0), BUSY);
    assert_says(dlock_error(), "held by 'one'");
    int64_t told_ms = clock_ms(); /* the client counts from when it heard of it, the server from before */
    eventually(clock_ms() > told_ms + 1000);
    eventually(server_integer(server, "EXISTS " LOCK) == 0);
    server_text(server, "SET " LOCK " two PX 60000");
    assert_status(limited(stage.lock, 0), BUSY);
    assert_string_equal(dlock_error(), "'" LOCK "': another holder has the lock");
    stage_clear(&stage);
}

/* Whoever was seen has let go since: this client has had the lock. */
static void what_was_before_is_not_told(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "owner_lua", (struct dlock_options){.retry_ms = NEVER_AGAIN});
    dlock_hold *hold = acquired(stage.held);
    assert_status(limited(stage.lock, 0), BUSY);
    assert_says_holder(dlock_error(), stage.holder);
    assert_status(dlock_release(hold, NULL), OK);
    hold = acquired(stage.lock);
    assert_status(limited(stage.lock, 0), BUSY);
    assert_string_equal(dlock_error(),
                        "'" LOCK "': another holder has the lock; this thread holds it");
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* ---- Where the server does not say ----------------------------------------------------------- */

#define PLAIN "another holder has the lock"

static void ends_with(const char *said, const char *end)
{
    size_t size = strlen(said);
    assert_true(size > strlen(end));
    assert_string_equal(said + size - strlen(end), end);
}

static void the_answer_is_lost(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REQUEST, PROXY_CUT_REPLY};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, "owner_lua", (struct dlock_options){.retry_ms = 1});
        dlock_hold *hold = acquired(stage.held);
        proxy_plan(stage.proxy, acts[i], "EVALSHA", NULL, 0);
        assert_status(limited(stage.lock, 0), BUSY);
        assert_true(proxy_done(stage.proxy));
        assert_string_equal(dlock_error(), "'" LOCK "': " PLAIN);
        assert_int_equal(stats_of(stage.client).unknown, 0);
        assert_status(limited(stage.lock, 20), TIMED_OUT); /* and then it is asked again */
        assert_says_holder(dlock_error(), stage.holder);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

/* The answer never comes: the call ends all the same, with its time or with its cancel. */
static void the_answer_is_not_waited_for(void **state)
{
    (void)state;
    for (int cancelled = 0; cancelled < 2; cancelled++) {
        struct stage stage;
        stage_set(&stage, "owner_lua",
                  (struct dlock_options){.command_timeout_ms = cancelled ? 60000 : 200,
                                         .connect_timeout_ms = 60000,
                                         .retry_ms = 5});
        struct waiter waiter = {.lock = stage.lock,
                                .want = {.wait_ms = LIMIT_MS, .cancel = dlock_cancel_new()}};
        dlock_hold *hold = acquired(stage.held);
        proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "EVALSHA", NULL, 0);
        waiter_start(&waiter);
        eventually(proxy_done(stage.proxy));
        if (cancelled)
            dlock_cancel_now(waiter.want.cancel);
        assert_status(waiter_end(&waiter), TIMED_OUT);
        ends_with(waiter.error, PLAIN);
        dlock_cancel_free(waiter.want.cancel);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

/* ---- What the key holds instead -------------------------------------------------------------- */

static const struct {
    const char *type;
    const char *make;
} kinds[] = {{"list", "RPUSH " LOCK " x"},  {"set", "SADD " LOCK " x"},
             {"zset", "ZADD " LOCK " 1 x"}, {"stream", "XADD " LOCK " * x 1"},
             {"string", "SET " LOCK " x"},  {"hash", "HSET " LOCK " x 1"}};

static void says_the_type(struct stage *stage, const char *kind, const char *its)
{
    char expected[256];
    snprintf(expected, sizeof expected, "'%s' holds a %s; a lock of rung '%s' is a %s", LOCK, kind,
             dlock_rung_of(stage->lock)->name, its);
    assert_string_equal(dlock_error(), expected);
}

/* Twice each, since who asks in a loop shall not be told one thing and another. */
static void every_rung_says_the_type(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        char its[32];
        if (rungs[i].flawed)
            continue;
        stage_set(&stage, rungs[i].name, (struct dlock_options){.retry_ms = 5});
        dlock_hold *hold = acquired(stage.lock);
        snprintf(its, sizeof its, "%s", server_text(server, "TYPE " LOCK));
        assert_status(dlock_release(hold, NULL), OK);
        for (size_t j = 0; j < sizeof kinds / sizeof kinds[0]; j++) {
            if (strcmp(kinds[j].type, its) == 0)
                continue;
            hold = acquired(stage.lock);
            replace_key(kinds[j].make);
            assert_status(dlock_release(hold, NULL), WRONG_TYPE);
            says_the_type(&stage, kinds[j].type, its);
            for (int tries = 0; tries < 4; tries++) {
                assert_status(limited(stage.lock, tries < 2 ? 0 : 20), WRONG_TYPE);
                says_the_type(&stage, kinds[j].type, its);
            }
            server_integer(server, "DEL " LOCK);
        }
        stage_clear(&stage);
    }
}

/* Who looks at it, breaks it or extends a hold of it is told the same. */
static void every_call_says_the_type(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct dlock_holder holder = {.size = sizeof holder};
        char its[32];
        if (rungs[i].flawed)
            continue;
        stage_set(&stage, rungs[i].name, (struct dlock_options){0});
        dlock_hold *hold = acquired(stage.lock);
        snprintf(its, sizeof its, "%s", server_text(server, "TYPE " LOCK));
        for (size_t j = 0; j < sizeof kinds / sizeof kinds[0]; j++) {
            if (strcmp(kinds[j].type, its) == 0)
                continue;
            replace_key(kinds[j].make);
            assert_status(dlock_inspect(stage.lock, &holder), WRONG_TYPE);
            says_the_type(&stage, kinds[j].type, its);
            assert_false(holder.held);
            assert_string_equal(holder.owner, "");
            assert_status(dlock_break(stage.lock, &holder), WRONG_TYPE);
            says_the_type(&stage, kinds[j].type, its);
            assert_false(holder.held);
            assert_status(dlock_extend(hold), WRONG_TYPE);
            says_the_type(&stage, kinds[j].type, its);
            assert_string_equal(server_text(server, "TYPE " LOCK), kinds[j].type);
        }
        assert_status(dlock_release(hold, NULL), WRONG_TYPE);
        stage_clear(&stage);
    }
}

/* Also of a key beside it, which a break of the lock changes. */
static void a_break_says_the_type_of_a_key_beside(void **state)
{
    static const struct {
        const char *rung;
        const char *key;
        const char *type;
    } ways[] = {{"fair", "dlock:queue:" LOCK, "list"}, {"read_write", "dlock:holds:" LOCK, "hash"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        char expected[256];
        stage_set(&stage, ways[i].rung, (struct dlock_options){0});
        dlock_hold *hold = acquired(stage.held);
        server_integer(server, "DEL %s", ways[i].key);
        server_text(server, "SET %s x", ways[i].key);
        assert_status(dlock_break(stage.lock, NULL), WRONG_TYPE);
        snprintf(expected, sizeof expected,
                 "'%s' holds a string; of a lock of rung '%s' it is a %s", ways[i].key,
                 ways[i].rung, ways[i].type);
        assert_string_equal(dlock_error(), expected);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
        server_integer(server, "DEL %s", ways[i].key);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

/* What it holds instead is nobody's name. */
static void in_line_at_a_wrong_type(void **state)
{
    (void)state;
    struct stage stage;
    struct answered some[3] = {0};
    stage_set(&stage, "owner_lua",
              (struct dlock_options){.contenders = 1, .retry_ms = NEVER_AGAIN});
    replace_key("HSET " LOCK " x 1");
    assert_status(limited(stage.lock, 0), WRONG_TYPE);
    for (int i = 0; i < 3; i++)
        start(stage.lock, LIMIT_MS, &some[i]);
    for (int i = 0; i < 3; i++) {
        eventually(atomic_load(&some[i].over));
        assert_null(strstr(some[i].error, "held by"));
    }
    stage_clear(&stage);
}

/* It is as it should be by the time of the question, or the answer is lost: then Redis' own words.
 */
static void mend_it(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    if (strstr(trace->reply, "WRONGTYPE") != NULL)
        server_integer(server, "DEL " LOCK);
}

static void lose_it(void *arg, const struct dlock_trace *trace)
{
    if (strstr(trace->reply, "WRONGTYPE") != NULL)
        proxy_plan(*(struct proxy **)arg, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
}

static void redis_own_words(void **state)
{
    static const struct {
        const char *rung;
        void (*on_trace)(void *arg, const struct dlock_trace *trace);
    } ways[] = {{"watchdog", mend_it}, {"watchdog", lose_it}, {"watchdog_timer", NULL}};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct stage stage;
        stage_set(
            &stage, ways[i].rung,
            (struct dlock_options){.on_trace = ways[i].on_trace, .on_trace_arg = &stage.proxy});
        replace_key("RPUSH " LOCK " x");
        assert_status(limited(stage.lock, 20), WRONG_TYPE);
        assert_says(dlock_error(), "WRONGTYPE");
        stage_clear(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rung_says_who_holds_it),
        cmocka_unit_test(whose_it_is_to_who_asks),
        cmocka_unit_test(freed_meanwhile),
        cmocka_unit_test(asked_once_for_many),
        cmocka_unit_test(whose_time_is_over_as_it_moves_up),
        cmocka_unit_test(who_ends_in_line_asks_nobody),
        cmocka_unit_test(a_nested_acquire_asks_nobody),
        cmocka_unit_test(what_is_over_is_not_told),
        cmocka_unit_test(what_was_before_is_not_told),
        cmocka_unit_test(the_answer_is_lost),
        cmocka_unit_test(the_answer_is_not_waited_for),
        cmocka_unit_test(every_rung_says_the_type),
        cmocka_unit_test(every_call_says_the_type),
        cmocka_unit_test(a_break_says_the_type_of_a_key_beside),
        cmocka_unit_test(in_line_at_a_wrong_type),
        cmocka_unit_test(redis_own_words),
    };
    return cmocka_run_group_tests_name("explain", tests, start_server, stop_server);
}
