/* SPDX-License-Identifier: Apache-2.0
 *
 * The timekeeper: renews what is to be renewed, stops at the release, tells of what is lost, once
 * and in time, also when Redis hangs. Nothing here is timed: the order of causes is what counts.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "recorded_stage.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>

#define SURVIVES_MS 2400 /* a time to live that a busy machine does not outlast by stalling */
#define EXPIRES_MS 300   /* one that is meant to end */

/* Another hold of the same client lives through so many renewals: what the timekeeper was to do in
 * that time it has done. */
static void let_renewals_pass(struct stage *stage, size_t count)
{
    dlock *control = lock_of(stage->client, "watchdog", "lock:{control}");
    dlock_hold *hold = acquired(control);
    eventually(record_told(stage->events, "RENEWED", hold) >= count ||
               record_told(stage->events, "LOST", hold) > 0);
    dlock_release(hold, NULL);
    dlock_close(control);
}

/* ---- Renewal --------------------------------------------------------------------------------- */

/* Held for longer than its time to live, by renewals alone: the first ones cover one TTL. */
static void renewed_while_held(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){.ttl_ms = SURVIVES_MS});
    dlock_hold *hold = acquired(stage.lock);
    for (size_t renewals = 1; renewals <= 4; renewals++) {
        eventually(record_told(stage.events, "RENEWED", hold) >= renewals);
        assert_true(dlock_valid(hold));
        assert_true(dlock_remaining_ms(hold) > 0 && dlock_remaining_ms(hold) < SURVIVES_MS);
        assert_string_equal(server_text(server, "HGET " LOCK " %s", dlock_owner(hold)), "1");
        assert_true(left_on_server() > 0);
    }
    char line[256], begins[256];
    snprintf(begins, sizeof begins, "RENEWED #%llu %s watchdog %s ",
             (unsigned long long)dlock_acquisition(hold), LOCK, dlock_owner(hold));
    record_line(stage.events, "RENEWED", 0, line, sizeof line);
    assert_memory_equal(line, begins, strlen(begins));
    assert_int_equal(record_count(stage.events, "LOST"), 0);
    assert_true(stats_of(stage.client).renewals >= 4);
    assert_int_equal(stats_of(stage.client).lost, 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* From the release on nothing is renewed: the server sees no command for the lock any more, while
 * another hold of the client is renewed twice. */
static void no_renewal_after_the_release(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){.ttl_ms = SURVIVES_MS / 2});
    dlock_hold *hold = acquired(stage.lock);
    eventually(
        record_told(stage.events, "RENEWED", hold) + record_told(stage.events, "LOST", hold) >= 1);
    dlock_release(hold, NULL);
    struct monitor *monitor = monitor_start(server);
    record_clear(stage.events);
    let_renewals_pass(&stage, 2);
    assert_int_equal(monitor_count(monitor, LOCK), 0);
    assert_int_equal(record_count(stage.events, LOCK), 0);
    monitor_free(monitor);
    stage_clear(&stage);
}

static void many_at_once(void **state)
{
    enum { HOLDS_COUNT = 50 };
    (void)state;
    struct stage stage;
    dlock *locks[HOLDS_COUNT];
    dlock_hold *holds[HOLDS_COUNT];
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){.ttl_ms = 2 * SURVIVES_MS});
    for (int i = 0; i < HOLDS_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%d}", i);
        locks[i] = lock_of(stage.client, NULL, name);
        holds[i] = acquired(locks[i]);
    }
    for (int i = 0; i < HOLDS_COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) >= 1);
    assert_int_equal(record_count(stage.events, "LOST"), 0);
    for (int i = 0; i < HOLDS_COUNT; i++) {
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    assert_int_equal(server_integer(server, "DBSIZE"), 0);
    stage_clear(&stage);
}

/* Its connection is cut: it makes another and goes on. */
static void renewed_after_its_connection_was_killed(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){.ttl_ms = SURVIVES_MS});
    dlock_hold *hold = acquired(stage.lock);
    eventually(record_told(stage.events, "RENEWED", hold) >= 1);
    assert_true(server_integer(server, "CLIENT KILL TYPE normal") >= 1);
    server_text(server, "SCRIPT FLUSH");
    size_t renewed = record_told(stage.events, "RENEWED", hold);
    eventually(record_told(stage.events, "RENEWED", hold) >= renewed + 2);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Redis hangs for less than the time to live: a renewal fails, is tried again, and works. */
static void renewed_after_a_short_hang(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){
                 .ttl_ms = 2 * SURVIVES_MS, .connect_timeout_ms = 200, .command_timeout_ms = 200});
    dlock_hold *hold = acquired(stage.lock);
    eventually(record_told(stage.events, "RENEWED", hold) >= 1);
    server_pause(server);
    size_t renewed = record_told(stage.events, "RENEWED", hold);
    eventually(record_told(stage.events, "RENEWAL_FAILED", hold) >= 2);
    server_resume(server);
    eventually(record_told(stage.events, "RENEWED", hold) > renewed);
    assert_true(dlock_valid(hold));
    assert_true(stats_of(stage.client).renewals_failed >= 2);
    assert_int_equal(record_count(stage.events, "LOST"), 0);
    char line[256];
    record_line(stage.events, "RENEWAL_FAILED", 0, line, sizeof line);
    assert_says(line, "no answer in time");
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* ---- Loss ------------------------------------------------------------------------------------ */

static const struct {
    const char *rung;
    bool flawed;
    const char *release; /* what a flawed rung sends all the same */
} expiring[] = {
    {"setnx_expire", true, "DEL"},
    {"setnx_multi", true, "DEL"},
    {"set_nx_ex", true, "DEL"},
    {"owner_check", true, "GET"},
    {"owner_lua", false, ""},
    {"reentrant_tls", true, "EVALSHA"},
    {"reentrant_getset", true, "EVALSHA"},
    {"reentrant", false, ""},
    {"watchdog", false, ""},
    {"blpop_wake", true, "EVALSHA"},
    {"notify", false, ""},
    {"fair", false, ""},
    {"read_write", false, ""},
};
#define EXPIRING (sizeof expiring / sizeof expiring[0])

/* Redis hangs. The loss is told while it still does, so before it could give the lock to anybody:
 * its clock goes on, but it frees nothing before it runs again. */
static void lost_while_redis_hangs(void **state)
{
    (void)state;
    for (size_t i = 0; i < EXPIRING; i++) {
        struct stage stage;
        stage_at(&stage, expiring[i].rung, server_url(server),
                 (struct dlock_options){.ttl_ms = EXPIRES_MS});
        dlock_hold *hold = acquired(stage.lock);
        server_pause(server);
        eventually(record_told(stage.events, "LOST", hold) == 1);
        assert_false(dlock_valid(hold));
        assert_int_equal(dlock_remaining_ms(hold), 0);
        assert_int_equal(stats_of(stage.client).lost, 1);
        server_resume(server);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

/* The one that renews: the renewal under way in the hung server does not delay the telling, though
 * commands may take a minute. */
static void lost_in_the_middle_of_a_renewal(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){.ttl_ms = 1000, .command_timeout_ms = 60000});
    dlock_hold *hold = acquired(stage.lock);
    eventually(
        record_told(stage.events, "RENEWED", hold) + record_told(stage.events, "LOST", hold) >= 1);
    server_pause(server);
    eventually(record_told(stage.events, "LOST", hold) == 1);
    assert_false(dlock_valid(hold));
    server_resume(server);
    char line[256];
    record_line(stage.events, "LOST", 0, line, sizeof line);
    assert_says(line, " 0 ms: it could not be renewed in time");
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
}

/* Each hold is told of when its own time is over, the one that ends first, first: what is tried for
 * the other meanwhile does not delay it. */
static void told_of_in_the_order_of_their_ends(void **state)
{
    static const char *const names[] = {"lock:{a}", "lock:{b}", "lock:{c}"};
    (void)state;
    struct stage stage;
    dlock *locks[3];
    dlock_hold *holds[3];
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){.ttl_ms = SURVIVES_MS, .command_timeout_ms = 60000});
    for (int i = 0; i < 3; i++) {
        locks[i] = lock_of(stage.client, NULL, names[i]);
        holds[i] = acquired(locks[i]);
    }
    server_pause(server);
    eventually(record_count(stage.events, "LOST") == 3);
    server_resume(server);
    for (int i = 0; i < 3; i++) {
        char line[256];
        record_line(stage.events, "LOST", (size_t)i, line, sizeof line);
        assert_says(line, names[i]);
        assert_status(dlock_release(holds[i], NULL), LOST);
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
}

/* Not renewed, or not renewable: told when the time is over, with the reason, once. After it sound
 * rungs send nothing, flawed ones what they always send. */
static void lost_when_the_time_is_over(void **state)
{
    (void)state;
    for (size_t i = 0; i < EXPIRING; i++) {
        if (dlock_rung_find(expiring[i].rung)->renewed)
            continue;
        struct stage stage;
        char line[256], begins[256];
        stage_at(&stage, expiring[i].rung, server_url(server),
                 (struct dlock_options){.ttl_ms = EXPIRES_MS});
        dlock_hold *hold = acquired(stage.lock);
        eventually(record_told(stage.events, "LOST", hold) == 1);
        assert_false(dlock_valid(hold));
        snprintf(begins, sizeof begins, "LOST #%llu %s %s %s 0 ms: its time to live has ended",
                 (unsigned long long)dlock_acquisition(hold), LOCK, expiring[i].rung,
                 dlock_owner(hold));
        record_line(stage.events, "LOST", 0, line, sizeof line);
        assert_string_equal(line, begins);
        eventually(exists() == 0);

        record_clear(stage.trace);
        assert_status(dlock_release(hold, NULL), LOST);
        if (expiring[i].flawed)
            assert_int_equal(record_count(stage.trace, expiring[i].release), 1);
        else
            assert_int_equal(record_count(stage.trace, ""), 0);
        assert_int_equal(record_count(stage.events, "LOST"), 1);
        assert_int_equal(stats_of(stage.client).lost, 1);
        stage_clear(&stage);
    }
}

/* What rides with the release of a lost hold is not sent either on a sound rung. */
static void nothing_rides_after_the_loss(void **state)
{
    (void)state;
    struct stage stage;
    dlock_batch *last = dlock_batch_new();
    struct dlock_reply reply = {.size = sizeof reply};
    dlock_batch_add(last, 2, (const char *const[]){"INCR", "late"}, NULL);
    stage_at(&stage, "owner_lua", server_url(server), (struct dlock_options){.ttl_ms = EXPIRES_MS});
    dlock_hold *hold = acquired(stage.lock);
    eventually(record_told(stage.events, "LOST", hold) == 1);
    assert_status(dlock_release(hold, last), LOST);
    assert_int_equal(server_integer(server, "EXISTS late"), 0);
    assert_status(dlock_batch_reply(last, 0, &reply), OK);
    assert_int_equal(reply.kind, DLOCK_REPLY_NONE);
    dlock_batch_free(last);
    stage_clear(&stage);
}

/* Another has it: seen at the next renewal, before the time is over, and said as what it is. */
static void lost_to_another(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){.ttl_ms = SURVIVES_MS});
    dlock_hold *hold = acquired(stage.lock);
    server_integer(server, "DEL " LOCK);
    server_integer(server, "HSET " LOCK " another 1");
    eventually(record_told(stage.events, "LOST", hold) == 1);
    assert_false(dlock_valid(hold));
    assert_int_equal(dlock_remaining_ms(hold), 0);
    char line[256];
    record_line(stage.events, "LOST", 0, line, sizeof line);
    assert_says(line, "the lock no longer belongs to this owner");
    record_clear(stage.trace);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_int_equal(record_count(stage.trace, ""), 0);
    assert_string_equal(server_text(server, "HGET " LOCK " another"), "1");
    assert_int_equal(left_on_server(), -1); /* and it was not renewed */
    stage_clear(&stage);
}

/* Told once: while another hold is renewed time and again nothing more is said of the lost one, and
 * nothing of it is sent. */
static void told_once(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){.ttl_ms = SURVIVES_MS / 2});
    dlock_hold *hold = acquired(stage.lock);
    server_integer(server, "DEL " LOCK);
    eventually(record_told(stage.events, "LOST", hold) == 1);
    size_t events = record_count(stage.events, LOCK);
    record_clear(stage.trace);
    let_renewals_pass(&stage, 3);
    assert_int_equal(record_count(stage.events, LOCK), events);
    assert_int_equal(record_count(stage.trace, LOCK), 0);
    assert_int_equal(record_told(stage.events, "LOST", hold), 1);
    assert_false(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
}

/* Both holds of an owner are lost with the one key, each is told of. */
static void lost_with_all_its_depths(void **state)
{
    (void)state;
    struct stage stage;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){.ttl_ms = SURVIVES_MS});
    dlock_hold *outer = acquired_by(stage.lock, 7);
    dlock_hold *inner = acquired_by(stage.lock, 7);
    server_integer(server, "DEL " LOCK);
    eventually(record_told(stage.events, "LOST", outer) == 1 &&
               record_told(stage.events, "LOST", inner) == 1);
    assert_false(dlock_valid(outer));
    assert_false(dlock_valid(inner));
    assert_status(dlock_release(inner, NULL), LOST);
    assert_status(dlock_release(outer, NULL), LOST);
    stage_clear(&stage);
}

/* ---- The hook -------------------------------------------------------------------------------- */

struct seen {
    _Atomic int calls;
    _Atomic int at_once; /* calls running at this moment */
    _Atomic int most_at_once;
    void *user;
    int *mark;
};

static void look(void *arg, const struct dlock_event *event)
{
    struct seen *seen = arg;
    int now = atomic_fetch_add(&seen->at_once, 1) + 1;
    if (now > atomic_load(&seen->most_at_once))
        atomic_store(&seen->most_at_once, now);
    must(event->user == seen->user);
    must(event->remaining_ms >= 0);
    *seen->mark += 1; /* a race unless the calls are one at a time */
    atomic_fetch_sub(&seen->at_once, 1);
    atomic_fetch_add(&seen->calls, 1);
}

static void the_hook_is_called_one_at_a_time(void **state)
{
    enum { HOLDS_COUNT = 12 };
    (void)state;
    int mark = 0;
    int user = 0;
    struct seen seen = {.user = &user, .mark = &mark};
    dlock_client *client = client_of(
        server_url(server),
        (struct dlock_options){.ttl_ms = EXPIRES_MS, .on_event = look, .on_event_arg = &seen});
    dlock *locks[HOLDS_COUNT];
    dlock_hold *holds[HOLDS_COUNT];
    for (int i = 0; i < HOLDS_COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%d}", i);
        struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .user = &user};
        locks[i] = lock_of(client, "owner_lua", name);
        assert_status(dlock_acquire(locks[i], &want, &holds[i]), OK);
    }
    eventually(atomic_load(&seen.calls) == HOLDS_COUNT);
    for (int i = 0; i < HOLDS_COUNT; i++) {
        assert_status(dlock_release(holds[i], NULL), LOST);
        dlock_close(locks[i]);
    }
    dlock_client_close(client);
    assert_int_equal(mark, HOLDS_COUNT);
    assert_int_equal(atomic_load(&seen.most_at_once), 1);
}

/* A release waits for the hook that is told of its hold: after it the hold's memory is free. */
static _Atomic bool hook_is_in, hook_may_leave, release_is_over;

static void stay_in_the_hook(void *arg, const struct dlock_event *event)
{
    (void)arg;
    atomic_store(&hook_is_in, true);
    eventually(atomic_load(&hook_may_leave));
    must(strlen(event->owner) > 36 && strcmp(event->name, LOCK) == 0);
    must(!atomic_load(&release_is_over));
}

static void *release_it(void *hold)
{
    must(dlock_release(hold, NULL) == DLOCK_LOST);
    atomic_store(&release_is_over, true);
    return NULL;
}

static void a_release_waits_for_the_hook(void **state)
{
    (void)state;
    dlock_client *client =
        client_of(server_url(server),
                  (struct dlock_options){.ttl_ms = EXPIRES_MS, .on_event = stay_in_the_hook});
    dlock *lock = lock_of(client, "owner_lua", LOCK);
    dlock_hold *hold = acquired(lock);
    eventually(atomic_load(&hook_is_in));
    pthread_t thread = thread_start(release_it, hold);
    for (int i = 0; i < 20; i++)
        short_pause(); /* time for a release that would not wait */
    atomic_store(&hook_may_leave, true);
    thread_wait(thread);
    dlock_close(lock);
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(renewed_while_held),
        cmocka_unit_test(no_renewal_after_the_release),
        cmocka_unit_test(many_at_once),
        cmocka_unit_test(renewed_after_its_connection_was_killed),
        cmocka_unit_test(renewed_after_a_short_hang),
        cmocka_unit_test(lost_while_redis_hangs),
        cmocka_unit_test(lost_in_the_middle_of_a_renewal),
        cmocka_unit_test(told_of_in_the_order_of_their_ends),
        cmocka_unit_test(lost_when_the_time_is_over),
        cmocka_unit_test(nothing_rides_after_the_loss),
        cmocka_unit_test(lost_to_another),
        cmocka_unit_test(told_once),
        cmocka_unit_test(lost_with_all_its_depths),
        cmocka_unit_test(the_hook_is_called_one_at_a_time),
        cmocka_unit_test(a_release_waits_for_the_hook),
    };
    return cmocka_run_group_tests_name("timekeeper", tests, start_server, stop_server);
}
