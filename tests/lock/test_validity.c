/* SPDX-License-Identifier: Apache-2.0
 *
 * How long a hold is believed, by a clock that the test sets: CLOCK_BOOTTIME of the whole process
 * stands still, or jumps as it does when the machine sleeps.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "waiter.h"

#include <stdatomic.h>
#include <time.h>

#define LOCK "lock:{validity}"
#define TTL_MS 30000
#define NS_PER_MS 1000000
/* What the header promises: the time to live less 1 % and 2 ms. */
#define VALID_NS ((int64_t)TTL_MS * NS_PER_MS / 100 * 99 - 2 * NS_PER_MS)

/* ---- The clock ------------------------------------------------------------------------------- */

static _Atomic int64_t frozen_ns; /* 0: it runs */

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    int64_t at_ns = atomic_load(&frozen_ns);
    if (id != CLOCK_BOOTTIME || at_ns == 0)
        return __real_clock_gettime(id, now);
    *now = (struct timespec){at_ns / 1000000000, at_ns % 1000000000};
    return 0;
}

static void freeze(void)
{
    struct timespec now;
    __real_clock_gettime(CLOCK_BOOTTIME, &now);
    atomic_store(&frozen_ns, (int64_t)now.tv_sec * 1000000000 + now.tv_nsec);
}

static void jump_ns(int64_t ns)
{
    atomic_fetch_add(&frozen_ns, ns);
}

static int thaw(void **state)
{
    (void)state;
    atomic_store(&frozen_ns, 0);
    return 0;
}

/* ---- The tests ------------------------------------------------------------------------------- */

struct stage {
    struct record *trace;
    dlock_client *client;
    dlock *lock;
    enum dlock_mode mode;
};

static void stage_set(struct stage *stage, const char *rung)
{
    stage->mode = DLOCK_EXCLUSIVE;
    server_text(server, "FLUSHALL");
    freeze();
    stage->trace = record_new();
    stage->client = client_of(server_url(server), (struct dlock_options){
                                                      .ttl_ms = TTL_MS,
                                                      .handoff_ms = 60000,
                                                      .on_trace = record_trace,
                                                      .on_trace_arg = stage->trace,
                                                  });
    stage->lock = lock_of(stage->client, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->trace);
}

/* Calls `body` for each rung that expires, in each mode it has. */
static void on_each(void (*body)(struct stage *stage))
{
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED};
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < 2 * count; i++) {
        struct stage stage;
        if (!rungs[i / 2].expires)
            continue;
        stage_set(&stage, rungs[i / 2].name);
        stage.mode = modes[i % 2];
        dlock_hold *hold = acquired_as(stage.lock, stage.mode);
        if (hold != NULL) {
            dlock_release(hold, NULL); /* it is connected, and its scripts are known */
            body(&stage);
        }
        stage_clear(&stage);
    }
}

/* To the nanosecond; the key is there still. */
static void ends(struct stage *stage)
{
    dlock_hold *hold = acquired_as(stage->lock, stage->mode);
    assert_true(dlock_valid(hold));
    assert_int_equal(dlock_remaining_ms(hold), VALID_NS / NS_PER_MS);
    jump_ns(10000 * (int64_t)NS_PER_MS);
    assert_int_equal(dlock_remaining_ms(hold), VALID_NS / NS_PER_MS - 10000);
    jump_ns(VALID_NS - 10000 * (int64_t)NS_PER_MS - 1);
    assert_true(dlock_valid(hold));
    jump_ns(1);
    assert_false(dlock_valid(hold));
    assert_int_equal(dlock_remaining_ms(hold), 0);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    jump_ns(INT64_C(1) << 60);
    assert_false(dlock_valid(hold));
    assert_int_equal(dlock_remaining_ms(hold), 0);
    dlock_release(hold, NULL);
}

static void ends_with_the_time_to_live(void **state)
{
    (void)state;
    on_each(ends);
}

/* What a hold believes ends before the server's key does, by more than any stall in between: 1 % of
 * an hour. */
static void before_the_servers_key(void **state)
{
    enum { HOUR_MS = 3600999 };
    static const enum dlock_mode modes[] = {DLOCK_EXCLUSIVE, DLOCK_SHARED};
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    server_text(server, "FLUSHALL");
    for (size_t i = 0; i < 2 * count; i++) {
        if (!rungs[i / 2].expires)
            continue;
        dlock_client *client =
            client_of(server_url(server), (struct dlock_options){.ttl_ms = HOUR_MS});
        dlock *lock = lock_of(client, rungs[i / 2].name, LOCK);
        dlock_hold *hold = acquired_as(lock, modes[i % 2]);
        if (hold != NULL) {
            int64_t asked_ms = clock_ms();
            int64_t key_ends_ms = asked_ms + server_integer(server, "PTTL " LOCK);
            int64_t hold_ends_ms = dlock_remaining_ms(hold) + clock_ms() + 1;
            assert_true(hold_ends_ms < key_ends_ms);
            assert_true(hold_ends_ms > asked_ms + HOUR_MS / 100 * 98);
            dlock_release(hold, NULL);
        }
        dlock_close(lock);
        dlock_client_close(client);
    }
}

static void never_ends_where_nothing_expires(void **state)
{
    static const char *const rungs[] = {"none", "local", "setnx"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct stage stage;
        stage_set(&stage, rungs[i]);
        dlock_hold *hold = acquired(stage.lock);
        jump_ns(INT64_C(1) << 60);
        assert_true(dlock_valid(hold));
        assert_true(dlock_remaining_ms(hold) == DLOCK_NEVER_EXPIRES);
        assert_status(dlock_release(hold, NULL), OK);
        stage_clear(&stage);
    }
}

/* Counted from before the request was sent: what its reply took is gone from it. The reply is on
 * its way while the clock goes on; of a try of several commands the first one's. */
static void reply_on_its_way(struct stage *stage)
{
    struct proxy *proxy = proxy_start(server);
    dlock_client *client = client_of(proxy_url(proxy), (struct dlock_options){.ttl_ms = TTL_MS});
    struct waiter waiter = {.lock = lock_of(client, dlock_rung_of(stage->lock)->name, LOCK),
                            .want = {.wait_ms = 60000, .mode = stage->mode}};
    dlock_release(acquired_as(waiter.lock, stage->mode), NULL);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "", NULL, 0);
    waiter_start(&waiter);
    eventually(proxy_done(proxy));
    jump_ns(5000 * (int64_t)NS_PER_MS); /* no renewal is due yet */
    proxy_let_go(proxy);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(dlock_remaining_ms(waiter.hold), VALID_NS / NS_PER_MS - 5000);
    dlock_release(waiter.hold, NULL);
    dlock_close(waiter.lock);
    dlock_client_close(client);
    proxy_free(proxy);
}

static void counts_from_before_the_send(void **state)
{
    (void)state;
    on_each(reply_on_its_way);
}

/* So does a renewal. The clock is set to when it is due, and jumps when its reply is there; not
 * with the reply that the script is unknown, since it is sent again then. */
static _Atomic bool jump_once;

static void slow_renewal(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    if (strstr(trace->reply, "NOSCRIPT") == NULL && atomic_exchange(&jump_once, false))
        jump_ns(100 * (int64_t)NS_PER_MS);
}

/* The server's clock runs on. */
static void lasts_on_the_server(void)
{
    server_integer(server, "PEXPIRE " LOCK " %d", PATIENCE_MS);
    server_integer(server, "PEXPIRE dlock:holds:" LOCK " %d", PATIENCE_MS); /* of read_write */
}

static void renewal_on_its_way(const char *rung)
{
    enum { SHORT_MS = 600 };
    struct record *events = record_new();
    server_text(server, "FLUSHALL");
    freeze();
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .ttl_ms = SHORT_MS,
                                                             .on_event = record_event,
                                                             .on_event_arg = events,
                                                             .on_trace = slow_renewal,
                                                         });
    dlock *lock = lock_of(client, rung, LOCK);
    dlock_hold *hold = acquired(lock);
    lasts_on_the_server();
    int64_t valid_ms = SHORT_MS / 100 * 99 - 2;
    assert_int_equal(dlock_remaining_ms(hold), valid_ms);
    atomic_store(&jump_once, true);
    jump_ns(SHORT_MS / 3 * (int64_t)NS_PER_MS);
    assert_int_equal(dlock_remaining_ms(hold), valid_ms - SHORT_MS / 3);
    eventually(record_count(events, "RENEWED") == 1);
    assert_int_equal(dlock_remaining_ms(hold), valid_ms - 100);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
    record_free(events);
}

static void a_renewal_counts_from_before_its_send(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++)
        if (rungs[i].renewed)
            renewal_on_its_way(rungs[i].name);
}

/* The machine slept: the hold is over at once, nothing is sent for it on sound rungs. */
static void sleeps(struct stage *stage)
{
    bool flawed = dlock_rung_of(stage->lock)->flawed;
    dlock_hold *hold = acquired_as(stage->lock, stage->mode);
    jump_ns(VALID_NS);
    assert_false(dlock_valid(hold));
    record_clear(stage->trace);
    dlock_status status = dlock_release(hold, NULL);
    assert_int_equal(record_count(stage->trace, "") > 0, flawed);
    assert_int_equal(status, flawed ? DLOCK_OK : DLOCK_LOST);
}

static void a_machine_that_slept(void **state)
{
    (void)state;
    on_each(sleeps);
}

/* Told of also when its validity ends on the last nanosecond of a second. */
static void ends_on_the_last_nanosecond(void **state)
{
    enum { SHORT_MS = 300 };
    (void)state;
    struct record *events = record_new();
    server_text(server, "FLUSHALL");
    freeze();
    int64_t valid_ns = SHORT_MS * (int64_t)NS_PER_MS / 100 * 99 - 2 * NS_PER_MS;
    int64_t ends_ns = (atomic_load(&frozen_ns) + valid_ns) / 1000000000 * 1000000000 + 999999999;
    atomic_store(&frozen_ns, ends_ns - valid_ns);
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .ttl_ms = SHORT_MS,
                                                             .on_event = record_event,
                                                             .on_event_arg = events,
                                                         });
    dlock *lock = lock_of(client, "owner_lua", LOCK);
    dlock_hold *hold = acquired(lock);
    atomic_store(&frozen_ns, 0);
    eventually(record_count(events, "LOST") == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    dlock_close(lock);
    dlock_client_close(client);
    record_free(events);
}

/* One key counts for all holds of an owner: the inner acquire gives the outer hold a full time to
 * live too. */
static void an_inner_acquire_extends_the_outer_hold(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, rungs[i]);
        struct dlock_want other = {.size = sizeof other, .owner_id = 9};
        dlock_hold *outer = acquired_by(stage.lock, 7);
        dlock_hold *none;
        jump_ns(9000 * (int64_t)NS_PER_MS);
        assert_int_equal(dlock_remaining_ms(outer), VALID_NS / NS_PER_MS - 9000);
        assert_status(dlock_acquire(stage.lock, &other, &none), BUSY);
        assert_int_equal(dlock_remaining_ms(outer), VALID_NS / NS_PER_MS - 9000);
        dlock_hold *inner = acquired_by(stage.lock, 7);
        assert_int_equal(dlock_remaining_ms(outer), VALID_NS / NS_PER_MS);
        assert_int_equal(dlock_remaining_ms(inner), VALID_NS / NS_PER_MS);
        assert_status(dlock_release(inner, NULL), OK);
        assert_status(dlock_release(outer, NULL), OK);
        stage_clear(&stage);
    }
}

/* A hold whose time was over stays over: others may have held the lock in between, whatever the
 * same owner acquires later. */
static void an_inner_acquire_revives_nothing(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, rungs[i]);
        dlock_hold *outer = acquired_by(stage.lock, 7);
        jump_ns(VALID_NS);
        assert_false(dlock_valid(outer));
        server_integer(server, "DEL " LOCK); /* the server's time is over as well */
        dlock_hold *inner = acquired_by(stage.lock, 7);
        assert_false(dlock_valid(outer));
        assert_true(dlock_valid(inner));
        assert_status(dlock_release(outer, NULL), LOST);
        assert_true(dlock_valid(inner));
        assert_status(dlock_release(inner, NULL), OK);
        stage_clear(&stage);
    }
}

/* ---- Passed on inside the client ------------------------------------------------------------- */

struct started {
    _Atomic bool over;
    dlock_status status;
    dlock_hold *hold;
    bool valid; /* in its callback */
};

static void answered(void *arg, dlock_status status, dlock_hold *hold)
{
    struct started *started = arg;
    started->status = status;
    started->hold = hold;
    started->valid = dlock_valid(hold);
    atomic_store(&started->over, true);
}

/* Waits behind the holder, and acquires when that one releases `later_ms` after it has begun. */
static void pass_on(struct stage *stage, struct started *started, int64_t ttl_ms, int64_t later_ms)
{
    dlock_hold *hold = acquired(stage->lock);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .ttl_ms = ttl_ms};
    *started = (struct started){0};
    assert_status(dlock_acquire_start(stage->lock, &want, answered, started), OK);
    jump_ns(later_ms / 2 * NS_PER_MS);
    assert_status(dlock_extend(hold), OK);
    jump_ns(later_ms / 2 * NS_PER_MS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&started->over));
    assert_int_equal(started->status, DLOCK_OK);
}

/* The time that the client asked the server for is over, though the holder's own is not: whoever
 * waits does not live by it, but asks the server. */
static void what_is_passed_on_is_over(void **state)
{
    (void)state;
    struct stage stage;
    struct started started;
    stage_set(&stage, "fair");
    pass_on(&stage, &started, 0, 2 * (int64_t)TTL_MS * 2 / 3);
    assert_true(started.valid);
    assert_int_equal(dlock_remaining_ms(started.hold), VALID_NS / NS_PER_MS);
    assert_status(dlock_release(started.hold, NULL), OK);
    stage_clear(&stage);
}

/* A hold that wants a shorter time has that time from when it is given the lock. */
static void what_is_passed_on_lasts_its_own_time(void **state)
{
    enum { SHORT_MS = 1000 };
    (void)state;
    struct stage stage;
    struct started started;
    stage_set(&stage, "fair");
    pass_on(&stage, &started, SHORT_MS, 2 * SHORT_MS);
    assert_true(started.valid);
    assert_int_equal(dlock_remaining_ms(started.hold), SHORT_MS - SHORT_MS / 100 - 2);
    assert_status(dlock_release(started.hold, NULL), OK);
    stage_clear(&stage);
}

/* The flaw of reentrant_tls, faithfully: its inner acquire asks nobody, and believes. */
static void reentrant_tls_extends_what_it_has_not_asked_for(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "reentrant_tls");
    dlock_hold *outer = acquired(stage.lock);
    jump_ns(VALID_NS);
    server_integer(server, "DEL " LOCK);
    record_clear(stage.trace);
    dlock_hold *inner = acquired(stage.lock);
    assert_true(dlock_valid(inner));
    assert_int_equal(record_count(stage.trace, ""), 0);
    dlock_release(inner, NULL);
    assert_status(dlock_release(outer, NULL), LOST);
    stage_clear(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(ends_with_the_time_to_live, thaw),
        cmocka_unit_test_teardown(before_the_servers_key, thaw),
        cmocka_unit_test_teardown(never_ends_where_nothing_expires, thaw),
        cmocka_unit_test_teardown(counts_from_before_the_send, thaw),
        cmocka_unit_test_teardown(a_renewal_counts_from_before_its_send, thaw),
        cmocka_unit_test_teardown(a_machine_that_slept, thaw),
        cmocka_unit_test_teardown(ends_on_the_last_nanosecond, thaw),
        cmocka_unit_test_teardown(an_inner_acquire_extends_the_outer_hold, thaw),
        cmocka_unit_test_teardown(an_inner_acquire_revives_nothing, thaw),
        cmocka_unit_test_teardown(what_is_passed_on_is_over, thaw),
        cmocka_unit_test_teardown(what_is_passed_on_lasts_its_own_time, thaw),
        cmocka_unit_test_teardown(reentrant_tls_extends_what_it_has_not_asked_for, thaw),
    };
    return cmocka_run_group_tests_name("validity", tests, start_server, stop_server);
}
