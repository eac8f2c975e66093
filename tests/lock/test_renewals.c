/* SPDX-License-Identifier: Apache-2.0
 *
 * Many renewals: what ends first is renewed first, all that is due goes in one write, each answer
 * is taken for its own hold, and a key that holds share is renewed once for all of them.
 *
 *     lock_renewals <holds> <round trip in ms> <time to live in ms>
 *
 * measures instead: how many of so many holds are kept, each renewed ten times.
 */
#include "calls.h"
#include "child.h"
#include "far.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "redis_rung.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define TTL_MS 6000 /* a third of it is no long wait, the rest outlasts a busy machine's stalls */

extern const struct rung_ops rung_watchdog;

/* ---- The stage ------------------------------------------------------------------------------- */

/* A client whose timekeeper can be stopped: it stays in the hook that is told of a loss. */
struct stage {
    struct proxy *proxy; /* or */
    struct far *far;     /* or neither */
    struct record *events;
    struct record *trace;
    dlock_client *client;
    dlock *control;
    dlock_hold *control_hold;
    _Atomic bool stop;
    _Atomic bool stopped;
};

static void told_of(void *arg, const struct dlock_event *event)
{
    struct stage *stage = arg;
    record_event(stage->events, event);
    if (event->name == NULL || strcmp(event->name, "control") != 0)
        return;
    atomic_store(&stage->stopped, true);
    eventually(!atomic_load(&stage->stop));
    atomic_store(&stage->stopped, false);
}

/* By one of the two wires, or by none. */
static void stage_set_by(struct stage *stage, struct proxy *proxy, struct far *far,
                         int64_t timeout_ms)
{
    server_text(server, "FLUSHALL");
    server_text(server, "SCRIPT FLUSH");
    *stage =
        (struct stage){.proxy = proxy, .far = far, .events = record_new(), .trace = record_new()};
    stage->client = client_of(proxy != NULL ? proxy_url(proxy)
                              : far != NULL ? far_url(far)
                                            : server_url(server),
                              (struct dlock_options){
                                  .ttl_ms = TTL_MS,
                                  .connect_timeout_ms = timeout_ms,
                                  .command_timeout_ms = timeout_ms,
                                  .on_event = told_of,
                                  .on_event_arg = stage,
                                  .on_trace = record_trace,
                                  .on_trace_arg = stage->trace,
                              });
    stage->control = lock_of(stage->client, "owner_lua", "control");
}

static void stage_set(struct stage *stage)
{
    stage_set_by(stage, proxy_start(server), NULL, 0);
}

/* Nothing is given up because of a time limit of its own. */
static void stage_set_patient(struct stage *stage)
{
    stage_set_by(stage, proxy_start(server), NULL, PATIENCE_MS);
}

static void stage_set_far(struct stage *stage, int64_t round_trip_ms)
{
    stage_set_by(stage, NULL, far_start(server, round_trip_ms), PATIENCE_MS);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->control);
    dlock_client_close(stage->client);
    record_free(stage->events);
    record_free(stage->trace);
    if (stage->proxy != NULL)
        proxy_free(stage->proxy);
    if (stage->far != NULL)
        far_free(stage->far);
}

static void stop_timekeeper(struct stage *stage)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .ttl_ms = 200};
    atomic_store(&stage->stop, true);
    assert_status(dlock_acquire(stage->control, &want, &stage->control_hold), OK);
    eventually(atomic_load(&stage->stopped));
}

static void let_timekeeper_go(struct stage *stage)
{
    atomic_store(&stage->stop, false);
    assert_status(dlock_release(stage->control_hold, NULL), LOST);
}

static dlock_hold *acquired_for(dlock *lock, uint64_t owner_id, int64_t ttl_ms)
{
    return wanted(lock, (struct dlock_want){.owner_id = owner_id, .ttl_ms = ttl_ms});
}

/* A third of its time to live is over. */
static void until_due(const dlock_hold *hold)
{
    eventually(dlock_remaining_ms(hold) < TTL_MS * 6 / 10);
}

/* ---- Together -------------------------------------------------------------------------------- */

/* What came due while the timekeeper was stopped goes in one write, those that end first first. */
static void all_that_is_due_goes_in_one_write(void **state)
{
    enum { COUNT = 40 };
    (void)state;
    struct stage stage;
    dlock *locks[COUNT];
    dlock_hold *holds[COUNT];
    char name[32];
    stage_set(&stage);
    dlock *ready = lock_of(stage.client, "watchdog", "ready"); /* the script is known by now */
    dlock_hold *first = acquired_for(ready, 0, 900);
    eventually(record_told(stage.events, "RENEWED", first) > 0);
    dlock_release(first, NULL);
    stop_timekeeper(&stage);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "lock:{%02d}", i);
        locks[i] = lock_of(stage.client, "watchdog", name);
        int64_t ttl_ms = i == 0 ? TTL_MS : dlock_remaining_ms(holds[i - 1]) - 20;
        holds[i] = acquired_for(locks[i], 0, ttl_ms); /* the last to come ends first */
    }
    for (int i = 0; i < COUNT; i++)
        until_due(holds[i]);
    size_t requests = proxy_requests(stage.proxy, "");
    record_clear(stage.trace);
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{00}", NULL, 0);
    let_timekeeper_go(&stage);
    eventually(proxy_done(stage.proxy));
    assert_int_equal(proxy_requests(stage.proxy, ""), requests + 1);
    proxy_let_go(stage.proxy);
    for (int i = 0; i < COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) == 1);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "lock:{%02d}", i);
        assert_int_equal(record_position(stage.trace, name), COUNT - 1 - i);
        assert_int_equal(record_count(stage.trace, name), 1);
        assert_true(dlock_valid(holds[i]));
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    dlock_close(ready);
    stage_clear(&stage);
}

/* Each answer is for its own hold: of those in one write one was lost, one's key is of another
 * type, and one is renewed. */
static void each_answer_is_for_its_own_hold(void **state)
{
    (void)state;
    struct stage stage;
    static const char *const names[] = {"lock:{a}", "lock:{b}", "lock:{c}"};
    dlock *locks[3];
    dlock_hold *holds[3];
    stage_set(&stage);
    stop_timekeeper(&stage);
    for (int i = 0; i < 3; i++) {
        locks[i] = lock_of(stage.client, "watchdog", names[i]);
        holds[i] = acquired_for(locks[i], 0, TTL_MS);
    }
    server_integer(server, "DEL lock:{a}");
    server_text(server, "SET lock:{b} x");
    for (int i = 0; i < 3; i++)
        until_due(holds[i]);
    let_timekeeper_go(&stage);
    eventually(record_told(stage.events, "LOST", holds[0]) == 1);
    eventually(record_told(stage.events, "RENEWAL_FAILED", holds[1]) >= 1);
    eventually(record_told(stage.events, "RENEWED", holds[2]) >= 1);
    assert_false(dlock_valid(holds[0]));
    char line[256];
    record_line(stage.events, "RENEWAL_FAILED", 0, line, sizeof line);
    assert_says(line, "WRONGTYPE");
    assert_int_equal(record_told(stage.events, "RENEWED", holds[0]) +
                         record_told(stage.events, "RENEWED", holds[1]),
                     0);
    assert_int_equal(record_told(stage.events, "RENEWAL_FAILED", holds[2]), 0);
    for (int i = 0; i < 3; i++) {
        dlock_release(holds[i], NULL);
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
}

/* One answer does not come for a while: what is due meanwhile is sent all the same, and the answers
 * are taken in their order. */
static void no_renewal_waits_for_another(void **state)
{
    enum { COUNT = 300 };
    (void)state;
    struct stage stage;
    dlock *locks[COUNT];
    dlock_hold *holds[COUNT];
    char name[32];
    stage_set_patient(&stage);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "lock:{%03d}", i);
        locks[i] = lock_of(stage.client, "watchdog", name);
        holds[i] = acquired_for(locks[i], 0, 2 * TTL_MS);
        if (i == 0)
            eventually(dlock_remaining_ms(holds[0]) < 2 * TTL_MS - 300);
    }
    struct monitor *monitor = monitor_start(server);
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{000}", NULL, 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "lock:{%03d}", i);
        eventually(monitor_count(monitor, name) > 0 ||
                   record_count(stage.events, "RENEWAL_FAILED") > 0);
    }
    assert_int_equal(record_count(stage.events, ""), 0);
    proxy_let_go(stage.proxy);
    for (int i = 0; i < COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) == 1);
    assert_int_equal(record_count(stage.events, ""), COUNT);
    for (int i = 0; i < COUNT; i++) {
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    monitor_free(monitor);
    stage_clear(&stage);
}

/* Each script goes with the first renewal that needs it, and only with that. If the server forgets
 * them, they go once more, whatever number of renewals needs them. */
static void each_script_is_sent_once(void **state)
{
    static const char *const rungs[] = {"watchdog", "notify", "fair", "read_write"};
    enum { EACH = 5, COUNT = 4 * EACH };
    (void)state;
    struct stage stage;
    dlock *locks[COUNT];
    dlock_hold *holds[COUNT];
    stage_set(&stage);
    stop_timekeeper(&stage);
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%02d}", i);
        locks[i] = lock_of(stage.client, rungs[i / EACH], name);
        holds[i] = acquired_for(locks[i], 0, TTL_MS);
    }
    for (int i = 0; i < COUNT; i++)
        until_due(holds[i]);
    server_text(server, "SCRIPT FLUSH");
    record_clear(stage.trace);
    uint64_t loaded = stats_of(stage.client).scripts_loaded;
    let_timekeeper_go(&stage);
    for (int i = 0; i < COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) >= 1);
    assert_int_equal(stats_of(stage.client).scripts_loaded, loaded + 3); /* two share one */
    assert_int_equal(record_count(stage.trace, "NOSCRIPT"), 0);

    stop_timekeeper(&stage);
    for (int i = 0; i < COUNT; i++)
        until_due(holds[i]);
    server_text(server, "SCRIPT FLUSH");
    let_timekeeper_go(&stage);
    for (int i = 0; i < COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) >= 2);
    assert_int_equal(stats_of(stage.client).scripts_loaded, loaded + 6);
    assert_int_equal(record_count(stage.trace, "NOSCRIPT"), COUNT);
    assert_int_equal(stats_of(stage.client).renewals_failed, 0);
    for (int i = 0; i < COUNT; i++) {
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
}

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
    eventually(record_told(stage.events, "RENEWED", hold) >= 1 ||
               record_told(stage.events, "LOST", hold) > 0);
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

/* For the answers of all it takes longer than a command may. As long as some come, none is
 * given up. */
static void a_server_that_answers_is_waited_for(void **state)
{
    enum { COUNT = 150, ENDS_MS = 2 * TTL_MS };
    (void)state;
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
    assert_int_equal(record_count(stage.events, "RENEWAL_FAILED"), 0);
    server_integer(server, "DEL loops");
    for (int i = 0; i < COUNT; i++) {
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
}

/* ---- A server that is far away --------------------------------------------------------------- */

/* Half of what is left is less than an answer takes: it is waited for all the same, since there is
 * no time for another try. */
static void who_has_time_for_one_try_waits_for_it(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_far(&stage, 1400);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock_hold *first = acquired_for(lock, 0, PATIENCE_MS); /* so that its script is known */
    assert_status(dlock_release(first, NULL), OK);
    dlock_hold *hold = acquired(lock);
    eventually(record_told(stage.events, "RENEWED", hold) >= 2 ||
               record_told(stage.events, "LOST", hold) > 0);
    assert_int_equal(record_told(stage.events, "LOST", hold), 0);
    assert_int_equal(record_told(stage.events, "RENEWAL_FAILED", hold), 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    stage_clear(&stage);
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

/* ---- Meanwhile ------------------------------------------------------------------------------- */

/* While an answer is waited for, another hold's loss is told of; then the answer still counts, on
 * the same connection. */
static void a_loss_is_told_of_meanwhile(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock *short_lock = lock_of(stage.client, "owner_lua", "lock:{b}");
    dlock_hold *hold = acquired(lock);
    eventually(record_told(stage.events, "RENEWED", hold) == 1);
    uint64_t connects = stats_of(stage.client).connects;
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{a}", NULL, 0);
    eventually(proxy_done(stage.proxy));
    for (int i = 0; i < 3; i++) {
        dlock_hold *lost = acquired_for(short_lock, 0, 100);
        eventually(record_told(stage.events, "LOST", lost) == 1);
        assert_status(dlock_release(lost, NULL), LOST);
        assert_int_equal(record_told(stage.events, "RENEWED", hold), 1);
    }
    proxy_let_go(stage.proxy);
    eventually(record_told(stage.events, "RENEWED", hold) == 2);
    assert_int_equal(stats_of(stage.client).connects, connects);
    assert_int_equal(stats_of(stage.client).renewals_failed, 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(short_lock);
    dlock_close(lock);
    stage_clear(&stage);
}

/* A release does not wait for the renewal under way: the answer is nobody's then, and the others in
 * the same write get theirs. */
static void a_release_waits_for_no_answer(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage);
    dlock *locks[] = {lock_of(stage.client, "watchdog", "lock:{a}"),
                      lock_of(stage.client, "watchdog", "lock:{b}")};
    stop_timekeeper(&stage);
    dlock_hold *holds[] = {acquired(locks[0]), acquired(locks[1])};
    until_due(holds[0]);
    until_due(holds[1]);
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{b}", NULL, 0);
    let_timekeeper_go(&stage);
    eventually(proxy_done(stage.proxy));
    uint64_t number = dlock_acquisition(holds[0]);
    assert_status(dlock_release(holds[0], NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS lock:{a}"), 0);
    dlock_hold *next = acquired(locks[0]);
    proxy_let_go(stage.proxy);
    eventually(record_told(stage.events, "RENEWED", holds[1]) >= 1);
    assert_true(dlock_valid(next) && dlock_acquisition(next) != number);
    assert_int_equal(record_count(stage.events, "lock:{a}"), 0);
    assert_status(dlock_release(next, NULL), OK);
    assert_status(dlock_release(holds[1], NULL), OK);
    dlock_close(locks[0]);
    dlock_close(locks[1]);
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
        eventually(record_told(stage->events, "RENEWED", hold) >= renewals ||
                   record_told(stage->events, "LOST", hold) > 0);
        assert_int_equal(record_told(stage->events, "LOST", hold), 0);
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
    eventually(record_told(stage.events, "RENEWED", hold) >= 1 ||
               record_told(stage.events, "LOST", hold) > 0);
    assert_int_equal(record_told(stage.events, "LOST", hold), 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_release(longer, NULL), OK);
    dlock_close(lock);
    dlock_close(other);
    stage_clear(&stage);
}

/* ---- A key that holds share ------------------------------------------------------------------ */

static const char *const sharing[] = {"watchdog", "notify", "fair", "read_write"};

/* Three holds of one owner: one renewal, and all of them live on by it. */
static void a_shared_key_is_renewed_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sharing / sizeof sharing[0]; i++) {
        struct stage stage;
        dlock_hold *holds[3];
        stage_set(&stage);
        stop_timekeeper(&stage);
        dlock *lock = lock_of(stage.client, sharing[i], "lock:{a}");
        for (int j = 0; j < 3; j++)
            holds[j] = acquired_for(lock, 7, TTL_MS);
        for (int j = 0; j < 3; j++)
            until_due(holds[j]);
        record_clear(stage.trace);
        let_timekeeper_go(&stage);
        for (int j = 0; j < 3; j++)
            eventually(dlock_remaining_ms(holds[j]) > TTL_MS * 7 / 10);
        assert_int_equal(stats_of(stage.client).renewals, 1);
        for (int j = 3; j-- > 0;)
            assert_status(dlock_release(holds[j], NULL), OK);
        dlock_close(lock);
        stage_clear(&stage);
    }
}

/* Whichever of them the renewal under way was sent for: it is released, and the other one is
 * renewed all the same. */
static void a_release_leaves_the_others_renewed(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * sizeof sharing / sizeof sharing[0]; i++) {
        struct stage stage;
        dlock_hold *holds[2];
        stage_set(&stage);
        stop_timekeeper(&stage);
        dlock *lock = lock_of(stage.client, sharing[i / 2], "lock:{a}");
        for (int j = 0; j < 2; j++)
            holds[j] = acquired_for(lock, 7, TTL_MS);
        for (int j = 0; j < 2; j++)
            until_due(holds[j]);
        proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{a}", NULL, 0);
        let_timekeeper_go(&stage);
        eventually(proxy_done(stage.proxy));
        assert_status(dlock_release(holds[i % 2], NULL), OK);
        proxy_let_go(stage.proxy);
        dlock_hold *left = holds[1 - i % 2];
        eventually(record_told(stage.events, "RENEWED", left) >= 1);
        assert_true(dlock_valid(left));
        assert_int_equal(record_count(stage.events, "LOST #"), 1); /* the control */
        assert_status(dlock_release(left, NULL), OK);
        dlock_close(lock);
        stage_clear(&stage);
    }
}

/* A nested hold ends long before the outer one, whose renewal is for both: on a connection that is
 * silent it leaves the nested one time for another try. */
static void a_short_nested_hold_has_time_for_another_try(void **state)
{
    enum { OUTER_MS = 3 * TTL_MS / 2, INNER_MS = OUTER_MS * 3 / 10 };
    (void)state;
    for (int meanwhile = 0; meanwhile < 2; meanwhile++) {
        struct stage stage;
        dlock_hold *inner = NULL;
        stage_set_patient(&stage);
        dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
        dlock_hold *outer = acquired_for(lock, 7, OUTER_MS);
        eventually(dlock_remaining_ms(outer) < OUTER_MS * 7 / 10);
        if (meanwhile == 0)
            inner = acquired_for(lock, 7, INNER_MS);
        proxy_plan(stage.proxy, PROXY_MUTE, "lock:{a}", NULL, 0);
        eventually(proxy_done(stage.proxy));
        if (meanwhile == 1) /* its renewal is under way */
            inner = acquired_for(lock, 7, INNER_MS);
        eventually(record_count(stage.events, "RENEWED") > 0 ||
                   record_told(stage.events, "LOST", inner) > 0);
        assert_int_equal(record_count(stage.events, "LOST #"), 0);
        assert_int_equal(record_count(stage.events, "RENEWAL_FAILED"), 1);
        assert_status(dlock_release(inner, NULL), OK);
        assert_status(dlock_release(outer, NULL), OK);
        dlock_close(lock);
        stage_clear(&stage);
    }
}

/* On `fair` an owner nests without a request, here far more often than a renewal's answer takes.
 * The renewal that is under way is waited for. */
static void an_owner_that_nests_all_the_time(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_far(&stage, 50);
    dlock *lock = lock_of(stage.client, "fair", "lock:{nests}");
    dlock_hold *outer = acquired_for(lock, 7, 3000);
    while (record_told(stage.events, "RENEWED", outer) == 0) {
        assert_status(dlock_release(acquired_for(lock, 7, 3000), NULL), OK);
        assert_true(dlock_valid(outer));
        poll(NULL, 0, 5); /* it may nest 1000 times */
    }
    assert_status(dlock_release(outer, NULL), OK);
    dlock_close(lock);
    stage_clear(&stage);
}

/* ---- Many ------------------------------------------------------------------------------------ */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY = 200, FAR_MS = 60 };
#else
enum { MANY = 1000, FAR_MS = 20 };
#endif
#define MANY_TTL_MS 9000 /* one after the other, the renewals of all take longer than that */
#define HANDS 60

struct crowd {
    dlock_client *client;
    size_t count;
    dlock **locks;
    dlock_hold **holds;
    _Atomic size_t next;
};

struct kept {
    _Atomic size_t renewals;
};

static _Atomic size_t lost_count;

static void count_event(void *arg, const struct dlock_event *event)
{
    (void)arg;
    struct kept *kept = event->user;
    if (event->kind == DLOCK_EVENT_RENEWED)
        atomic_fetch_add(&kept->renewals, 1);
    else if (event->kind == DLOCK_EVENT_LOST)
        atomic_fetch_add(&lost_count, 1);
}

static struct kept *all_kept;

static void *acquire_some(void *arg)
{
    struct crowd *crowd = arg;
    for (size_t i; (i = atomic_fetch_add(&crowd->next, 1)) < crowd->count;) {
        char name[32];
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = PATIENCE_MS, .user = &all_kept[i]};
        snprintf(name, sizeof name, "lock:{%zu}", i);
        must(dlock_open(crowd->client, "watchdog", name, &crowd->locks[i]) == DLOCK_OK);
        must(dlock_acquire(crowd->locks[i], &want, &crowd->holds[i]) == DLOCK_OK);
    }
    return NULL;
}

static void *release_some(void *arg)
{
    struct crowd *crowd = arg;
    for (size_t i; (i = atomic_fetch_add(&crowd->next, 1)) < crowd->count;) {
        dlock_release(crowd->holds[i], NULL);
        dlock_close(crowd->locks[i]);
    }
    return NULL;
}

static void by_many_hands(struct crowd *crowd, void *(*body)(void *arg))
{
    pthread_t threads[HANDS];
    atomic_store(&crowd->next, 0);
    for (int i = 0; i < HANDS; i++)
        threads[i] = thread_start(body, crowd);
    for (int i = 0; i < HANDS; i++)
        thread_wait(threads[i]);
}

static bool all_renewed(const struct crowd *crowd, size_t times)
{
    for (size_t i = 0; i < crowd->count; i++)
        if (atomic_load(&all_kept[i].renewals) < times)
            return false;
    return true;
}

/* Holds so many locks until each was renewed so often, or one is lost. */
static struct dlock_stats keep_many(size_t count, int64_t round_trip_ms, int64_t ttl_ms,
                                    size_t times)
{
    server_text(server, "FLUSHALL");
    struct far *far = round_trip_ms > 0 ? far_start(server, round_trip_ms) : NULL;
    struct crowd crowd = {
        .count = count,
        .client = client_of(far != NULL ? far_url(far) : server_url(server),
                            (struct dlock_options){.ttl_ms = ttl_ms, .on_event = count_event}),
        .locks = calloc(count, sizeof *crowd.locks),
        .holds = calloc(count, sizeof *crowd.holds),
    };
    all_kept = calloc(count, sizeof *all_kept);
    must(crowd.locks != NULL && crowd.holds != NULL && all_kept != NULL);
    atomic_store(&lost_count, 0);
    by_many_hands(&crowd, acquire_some);
    eventually(all_renewed(&crowd, times) || atomic_load(&lost_count) > 0);
    struct dlock_stats stats = stats_of(crowd.client);
    by_many_hands(&crowd, release_some);
    dlock_client_close(crowd.client);
    if (far != NULL)
        far_free(far);
    free(crowd.locks);
    free(crowd.holds);
    free(all_kept);
    return stats;
}

static void many_are_kept_far_away(void **state)
{
    (void)state;
    struct dlock_stats stats = keep_many(MANY, FAR_MS, MANY_TTL_MS, 2);
    assert_int_equal(stats.lost, 0);
    assert_int_equal(stats.renewals_failed, 0);
    assert_true(stats.renewals >= 2 * MANY);
}

static int measure(char **argv)
{
    size_t count = strtoul(argv[1], NULL, 10);
    long round_trip_ms = strtol(argv[2], NULL, 10);
    long ttl_ms = strtol(argv[3], NULL, 10);
    server = server_start(NULL);
    int64_t begun_ms = clock_ms();
    struct dlock_stats stats = keep_many(count, round_trip_ms, ttl_ms, 10);
    printf("%zu holds, TTL %ld ms, round trip %ld ms: %llu lost, %llu renewals, %llu failed, in "
           "%lld ms\n",
           count, ttl_ms, round_trip_ms, (unsigned long long)stats.lost,
           (unsigned long long)stats.renewals, (unsigned long long)stats.renewals_failed,
           (long long)(clock_ms() - begun_ms));
    server_free(server);
    return stats.lost != 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_is_due_goes_in_one_write),
        cmocka_unit_test(each_answer_is_for_its_own_hold),
        cmocka_unit_test(no_renewal_waits_for_another),
        cmocka_unit_test(each_script_is_sent_once),
        cmocka_unit_test(a_lost_answer_leaves_time_for_another),
        cmocka_unit_test(a_slow_answer_is_waited_for_next_time),
        cmocka_unit_test(a_server_that_answers_is_waited_for),
        cmocka_unit_test(who_has_time_for_one_try_waits_for_it),
        cmocka_unit_test(short_holds_cost_a_long_one_nothing),
        cmocka_unit_test(a_loss_is_told_of_meanwhile),
        cmocka_unit_test(a_release_waits_for_no_answer),
        cmocka_unit_test(a_full_server_renews),
        cmocka_unit_test(a_connection_that_takes_too_long),
        cmocka_unit_test(a_short_hold_does_not_wait_with_a_long_one),
        cmocka_unit_test(a_shared_key_is_renewed_once),
        cmocka_unit_test(a_release_leaves_the_others_renewed),
        cmocka_unit_test(a_short_nested_hold_has_time_for_another_try),
        cmocka_unit_test(an_owner_that_nests_all_the_time),
        cmocka_unit_test(many_are_kept_far_away),
    };
    if (argc == 4)
        return measure(argv);
    if (argc == 2)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("renewals", tests, start_server, stop_server);
}
