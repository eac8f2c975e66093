/* SPDX-License-Identifier: Apache-2.0
 *
 * Renewals whose answers are slow or never come, from a server that is busy, full or far away:
 * which are awaited, and which are sent again in time.
 */
#include "calls.h"
#include "child.h"
#include "far.h"
#include "must.h"
#include "proxy.h"
#include "redis_rung.h"
#include "renewals_stage.h"

#include <stdatomic.h>
#include <stdio.h>

extern const struct rung_ops rung_watchdog;

/* ---- A reply that does not come -------------------------------------------------------------- */

/* It is unknown whether the renewal was carried out; there is time for another, which works. A
 * silent connection is given up for that, though commands may take a minute. */
static void a_lost_answer_leaves_time_for_another(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REQUEST, PROXY_CUT_REPLY, PROXY_MUTE};
    enum { ACTS = sizeof acts / sizeof acts[0] };
    (void)state;
    for (size_t i = 0; i < 2 * ACTS; i++) {
        struct stage stage;
        if (i < ACTS)
            stage_set(&stage);
        else
            stage_set_patient(&stage);
        dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
        dlock_hold *hold = acquired(lock);
        proxy_plan(stage.proxy, acts[i % ACTS], "lock:{a}", NULL, 0);
        eventually(record_told(stage.events, "RENEWED", hold) >= 1);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(record_told(stage.events, "RENEWAL_FAILED", hold), 1);
        assert_true(dlock_valid(hold));
        assert_int_equal(record_count(stage.events, "LOST"), 0);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
        stage_clear(&stage);
    }
}

/* An answer took so long that the connection was given up. The next may take as long: what is left
 * is not halved again, but waited for. */
static void a_slow_answer_is_waited_for_next_time(void **state)
{
    enum { LONG_MS = 3 * TTL_MS / 2 };
    (void)state;
    struct stage stage;
    stage_set_patient(&stage);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock_hold *hold = acquired_for(lock, 0, LONG_MS);
    proxy_plan(stage.proxy, PROXY_MUTE, "lock:{a}", NULL, 0);
    eventually(record_told(stage.events, "RENEWAL_FAILED", hold) == 1);
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{a}", NULL, 0);
    eventually(dlock_remaining_ms(hold) < LONG_MS / 8);
    assert_true(proxy_done(stage.proxy));
    proxy_let_go(stage.proxy);
    assert_renewed(stage.events, hold, 1);
    assert_int_equal(record_told(stage.events, "RENEWAL_FAILED", hold), 1);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    stage_clear(&stage);
}

/* ---- A server that is slow ------------------------------------------------------------------- */

#define RENEWAL_MS 20

static const struct script slow_script = {
    .text = "for i = 1, redis.call('GET', 'loops') or 0 do end "
            "return redis.call('PEXPIRE', KEYS[1], ARGV[1])",
    .sha1 = "372311fe2d3e4dd1670d490007e0048a1312f068",
};

/* A script's clock stands, from Redis 7.2 on: it takes its time by counting. */
static void slow_down(void)
{
    static const int loops = 3000000;
    server_text(server, "SET loops %d", loops);
    int64_t begin_ns = mono_ns();
    for (int i = 0; i < 3; i++)
        server_integer(server, "EVAL %s 1 none 1", slow_script.text);
    int64_t took_ns = (mono_ns() - begin_ns) / 3;
    server_text(server, "SET loops %lld",
                (long long)((int64_t)loops * RENEWAL_MS * NS_PER_MS / took_ns));
}

static void send_slow_renew(struct request *request, const struct dlock_hold *hold, const char *ttl)
{
    SEND(request, &slow_script, "1", hold->key, ttl);
}

/* How many renewals fail. For the answers of all it takes longer than a command may. As long as
 * some come, none is given up. */
static size_t fail_at_slow_server(void)
{
    enum { COUNT = 150, ENDS_MS = 2 * TTL_MS };
    struct stage stage;
    struct rung_ops slow = rung_watchdog;
    dlock *locks[COUNT];
    dlock_hold *holds[COUNT];
    char name[400];
    slow.send_renew = send_slow_renew;
    stage_set_by(&stage, proxy_start(server), NULL, 2000);
    slow_down();
    stop_timekeeper(&stage);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "{%0390d}", i); /* Redis reads 16 KiB of them at a time */
        assert_status(dlock_open_ops(stage.client, &slow, name, &locks[i]), OK);
        holds[i] = acquired_for(locks[i], 0, ENDS_MS);
    }
    eventually(dlock_remaining_ms(holds[COUNT - 1]) < ENDS_MS * 6 / 10);
    let_timekeeper_go(&stage);
    for (int i = 0; i < COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) > 0 ||
                   record_count(stage.events, "RENEWAL_FAILED") > 0);
    size_t failed = record_count(stage.events, "RENEWAL_FAILED");
    server_integer(server, "DEL loops");
    for (int i = 0; i < COUNT; i++) {
        dlock_status status = dlock_release(holds[i], NULL);
        must(status == DLOCK_OK || failed > 0);
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
    return failed;
}

/* A machine that stands still for two seconds is no slow server: one of three tries is enough. */
static void a_server_that_answers_is_waited_for(void **state)
{
    (void)state;
    size_t failed = 1;
    for (int try = 0; try < 3 && failed > 0; try++)
        failed = fail_at_slow_server();
    assert_int_equal(failed, 0);
}

/* ---- A server that is far away --------------------------------------------------------------- */

/* Half of what is left is less than an answer takes: it is waited for all the same, since there is
 * no time for another try. False: the machine has stalled for longer than there was time. */
static bool one_try_is_waited_for(void)
{
    struct stage stage;
    stage_set_far(&stage, 1400);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock_hold *first = acquired_for(lock, 0, PATIENCE_MS); /* so that its script is known */
    assert_status(dlock_release(first, NULL), OK);
    stalled_ms();
    dlock_hold *hold = acquired(lock);
    eventually(record_told(stage.events, "RENEWED", hold) >= 2 ||
               record_told(stage.events, "RENEWAL_FAILED", hold) > 0 ||
               record_told(stage.events, "LOST", hold) > 0);
    bool waited_for = record_told(stage.events, "RENEWAL_FAILED", hold) == 0 && dlock_valid(hold);
    assert_true(waited_for || stalled_ms() > 500);
    dlock_status status = dlock_release(hold, NULL);
    if (waited_for)
        assert_status(status, OK);
    dlock_close(lock);
    stage_clear(&stage);
    return waited_for;
}

static void who_has_time_for_one_try_waits_for_it(void **state)
{
    (void)state;
    bool waited_for = one_try_is_waited_for();
    for (int try = 1; try < 5 && !waited_for; try++)
        waited_for = one_try_is_waited_for();
    assert_true(waited_for);
}

struct hasty {
    dlock *lock;
    _Atomic size_t times;
    _Atomic bool stop;
};

/* Holds whose whole time to live is not much more than an answer takes, until it is over. */
static void *acquire_and_release(void *arg)
{
    struct hasty *hasty = arg;
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 300};
    while (!atomic_load(&hasty->stop)) {
        dlock_hold *hold;
        if (dlock_acquire(hasty->lock, &want, &hold) != DLOCK_OK)
            continue;
        while (dlock_remaining_ms(hold) > 10)
            short_pause();
        dlock_release(hold, NULL);
        atomic_fetch_add(&hasty->times, 1);
    }
    return NULL;
}

/* Their renewals have no time for another try. On their behalf nothing is given up, so that the
 * long hold's are answered. */
static void short_holds_cost_a_long_one_nothing(void **state)
{
    enum { COUNT = 4 };
    (void)state;
    struct stage stage;
    struct hasty hasty[COUNT];
    pthread_t threads[COUNT];
    char name[32];
    size_t times = 0;
    stage_set_far(&stage, 150);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock_hold *hold = acquired(lock);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "short:{%d}", i);
        hasty[i] = (struct hasty){.lock = lock_of(stage.client, "watchdog", name)};
        threads[i] = thread_start(acquire_and_release, &hasty[i]);
    }
    eventually(record_told(stage.events, "RENEWED", hold) >= 3 ||
               record_told(stage.events, "LOST", hold) > 0 ||
               record_count(stage.events, "SERVER_GONE") > 0);
    for (int i = 0; i < COUNT; i++) {
        atomic_store(&hasty[i].stop, true);
        thread_wait(threads[i]);
        times += atomic_load(&hasty[i].times);
        dlock_close(hasty[i].lock);
    }
    assert_true(times > 0);
    assert_int_equal(stats_of(stage.client).connections_lost, 0);
    assert_int_equal(record_told(stage.events, "RENEWAL_FAILED", hold), 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    stage_clear(&stage);
}

/* ---- A connection of its own that can't be made ---------------------------------------------- */

static void renewed_on_lent_ones(struct stage *stage)
{
    dlock *other = lock_of(stage->client, "watchdog", "lock:{b}");
    dlock *lock = lock_of(stage->client, "watchdog", "lock:{a}");
    dlock_hold *hold = acquired(lock);
    if (stage->proxy != NULL) /* its login */
        proxy_plan(stage->proxy, PROXY_MUTE, "INFO", NULL, 0);
    else
        server_text(server, "CONFIG SET maxclients 1");
    for (size_t renewals = 1; renewals <= 2; renewals++) {
        assert_renewed(stage->events, hold, renewals);
        /* It was given back, and is as it was. */
        assert_status(dlock_release(acquired(other), NULL), OK);
    }
    assert_int_equal(stats_of(stage->client).renewals_failed, 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_close(other);
}

/* The server has no room for one more client, but answers those that it has. */
static void a_full_server_renews(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_by(&stage, NULL, NULL, PATIENCE_MS);
    renewed_on_lent_ones(&stage);
    server_text(server, "CONFIG SET maxclients 1000");
    stage_clear(&stage);
}

/* A new connection gets no answer, but those that there are live. */
static void a_connection_that_takes_too_long(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_patient(&stage);
    renewed_on_lent_ones(&stage);
    stage_clear(&stage);
}

/* A long hold has time to wait for that connection; a short one that is due meanwhile has not. */
static void a_short_hold_does_not_wait_with_a_long_one(void **state)
{
    enum { LONG_MS = 5 * TTL_MS / 2, SHORT_MS = 2 * TTL_MS / 3 };
    (void)state;
    struct stage stage;
    stage_set_patient(&stage);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock *other = lock_of(stage.client, "watchdog", "lock:{b}");
    dlock_hold *longer = acquired_for(lock, 0, LONG_MS);
    proxy_plan(stage.proxy, PROXY_MUTE, "INFO", NULL, 0);
    eventually(proxy_done(stage.proxy)); /* for the long one, which has time for a long silence */
    dlock_hold *hold = acquired_for(other, 0, SHORT_MS);
    assert_renewed(stage.events, hold, 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_release(longer, NULL), OK);
    dlock_close(lock);
    dlock_close(other);
    stage_clear(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_answer_leaves_time_for_another),
        cmocka_unit_test(a_slow_answer_is_waited_for_next_time),
        cmocka_unit_test(a_server_that_answers_is_waited_for),
        cmocka_unit_test(who_has_time_for_one_try_waits_for_it),
        cmocka_unit_test(short_holds_cost_a_long_one_nothing),
        cmocka_unit_test(a_full_server_renews),
        cmocka_unit_test(a_connection_that_takes_too_long),
        cmocka_unit_test(a_short_hold_does_not_wait_with_a_long_one),
    };
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("slow_renewals", tests, start_server, stop_server);
}
