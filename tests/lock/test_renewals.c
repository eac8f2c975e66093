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
#include "client.h"
#include "far.h"
#include "must.h"
#include "proxy.h"
#include "renewals_stage.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LASTING_MS 3600000 /* a third of it is longer than any test waits */

/* As if a third of their times to live had ended. The timekeeper is stopped. */
static void are_due(dlock_hold *const *holds, size_t count)
{
    struct timekeeper *timekeeper = &holds[0]->lock->client->timekeeper;
    pthread_mutex_lock(&timekeeper->mutex);
    for (size_t i = 0; i < count; i++) {
        must(holds[i]->turn.in == &timekeeper->waiting);
        heap_put(&timekeeper->waiting, &holds[i]->turn, 1);
    }
    pthread_mutex_unlock(&timekeeper->mutex);
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
    stage_set_patient(&stage);
    dlock *ready = lock_of(stage.client, "watchdog", "ready"); /* the script is known by now */
    stop_timekeeper(&stage);
    dlock_hold *first = acquired_for(ready, 0, LASTING_MS);
    are_due(&first, 1);
    let_timekeeper_go(&stage);
    eventually(record_told(stage.events, "RENEWED", first) > 0);
    dlock_release(first, NULL);
    stop_timekeeper(&stage);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "lock:{%02d}", i);
        locks[i] = lock_of(stage.client, "watchdog", name);
        int64_t ttl_ms = i == 0 ? LASTING_MS : dlock_remaining_ms(holds[i - 1]) - 20;
        holds[i] = acquired_for(locks[i], 0, ttl_ms); /* the last to come ends first */
    }
    are_due(holds, COUNT);
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
    stage_set_patient(&stage);
    stop_timekeeper(&stage);
    for (int i = 0; i < 3; i++) {
        locks[i] = lock_of(stage.client, "watchdog", names[i]);
        holds[i] = acquired_for(locks[i], 0, LASTING_MS);
    }
    server_integer(server, "DEL lock:{a}");
    server_text(server, "SET lock:{b} x");
    are_due(holds, 3);
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
    stage_set_patient(&stage);
    stop_timekeeper(&stage);
    for (int i = 0; i < COUNT; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%02d}", i);
        locks[i] = lock_of(stage.client, rungs[i / EACH], name);
        holds[i] = acquired_for(locks[i], 0, LASTING_MS);
    }
    are_due(holds, COUNT);
    server_text(server, "SCRIPT FLUSH");
    record_clear(stage.trace);
    uint64_t loaded = stats_of(stage.client).scripts_loaded;
    let_timekeeper_go(&stage);
    for (int i = 0; i < COUNT; i++)
        eventually(record_told(stage.events, "RENEWED", holds[i]) >= 1);
    assert_int_equal(stats_of(stage.client).scripts_loaded, loaded + 3); /* two share one */
    assert_int_equal(record_count(stage.trace, "NOSCRIPT"), 0);

    stop_timekeeper(&stage);
    are_due(holds, COUNT);
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

/* ---- Meanwhile ------------------------------------------------------------------------------- */

/* While an answer is waited for, another hold's loss is told of; then the answer still counts, on
 * the same connection. */
static void a_loss_is_told_of_meanwhile(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_patient(&stage);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    dlock *short_lock = lock_of(stage.client, "owner_lua", "lock:{b}");
    stop_timekeeper(&stage);
    dlock_hold *hold = acquired_for(lock, 0, LASTING_MS);
    are_due(&hold, 1);
    let_timekeeper_go(&stage);
    eventually(record_told(stage.events, "RENEWED", hold) == 1);
    uint64_t connects = stats_of(stage.client).connects;
    stop_timekeeper(&stage);
    are_due(&hold, 1);
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "lock:{a}", NULL, 0);
    let_timekeeper_go(&stage);
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
    stage_set_patient(&stage);
    dlock *locks[] = {lock_of(stage.client, "watchdog", "lock:{a}"),
                      lock_of(stage.client, "watchdog", "lock:{b}")};
    stop_timekeeper(&stage);
    dlock_hold *holds[] = {acquired_for(locks[0], 0, LASTING_MS),
                           acquired_for(locks[1], 0, LASTING_MS)};
    are_due(holds, 2);
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

/* ---- A key that holds share ------------------------------------------------------------------ */

static const char *const sharing[] = {"watchdog", "notify", "fair", "read_write"};

/* Three holds of one owner: one renewal, and all of them live on by it. */
static void a_shared_key_is_renewed_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sharing / sizeof sharing[0]; i++) {
        struct stage stage;
        dlock_hold *holds[3];
        int64_t ends_ns[3];
        stage_set_patient(&stage);
        stop_timekeeper(&stage);
        dlock *lock = lock_of(stage.client, sharing[i], "lock:{a}");
        for (int j = 0; j < 3; j++)
            holds[j] = acquired_for(lock, 7, LASTING_MS);
        are_due(holds, 3);
        record_clear(stage.trace);
        for (int j = 0; j < 3; j++)
            ends_ns[j] = holds[j]->valid_until_ns;
        let_timekeeper_go(&stage);
        for (int j = 0; j < 3; j++)
            eventually(holds[j]->valid_until_ns > ends_ns[j]);
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
        stage_set_patient(&stage);
        stop_timekeeper(&stage);
        dlock *lock = lock_of(stage.client, sharing[i / 2], "lock:{a}");
        for (int j = 0; j < 2; j++)
            holds[j] = acquired_for(lock, 7, LASTING_MS);
        are_due(holds, 2);
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
 * silent it leaves the nested one time for another try. meanwhile: the nested one comes when that
 * renewal is under way. False: the machine has stalled for longer than there was time. */
static bool has_time_for_another_try(bool meanwhile)
{
    enum { OUTER_MS = 3 * TTL_MS / 2, INNER_MS = OUTER_MS * 3 / 10 };
    struct stage stage;
    dlock_hold *inner = NULL;
    stage_set_patient(&stage);
    dlock *lock = lock_of(stage.client, "watchdog", "lock:{a}");
    stalled_ms();
    dlock_hold *outer = acquired_for(lock, 7, OUTER_MS);
    eventually(dlock_remaining_ms(outer) < OUTER_MS * 7 / 10);
    if (!meanwhile)
        inner = acquired_for(lock, 7, INNER_MS);
    proxy_plan(stage.proxy, PROXY_MUTE, "lock:{a}", NULL, 0);
    eventually(proxy_done(stage.proxy));
    if (meanwhile)
        inner = acquired_for(lock, 7, INNER_MS);
    eventually(record_count(stage.events, "RENEWED") > 0 ||
               record_told(stage.events, "LOST", inner) > 0);
    bool had_time = record_count(stage.events, "LOST #") == 0 &&
                    record_count(stage.events, "RENEWAL_FAILED") == 1;
    assert_true(had_time || stalled_ms() > INNER_MS / 5);
    dlock_status statuses[] = {dlock_release(inner, NULL), dlock_release(outer, NULL)};
    for (int i = 0; had_time && i < 2; i++)
        assert_status(statuses[i], OK);
    dlock_close(lock);
    stage_clear(&stage);
    return had_time;
}

static void a_short_nested_hold_has_time_for_another_try(void **state)
{
    (void)state;
    for (int meanwhile = 0; meanwhile < 2; meanwhile++) {
        bool had_time = has_time_for_another_try(meanwhile);
        for (int try = 1; try < 5 && !had_time; try++)
            had_time = has_time_for_another_try(meanwhile);
        assert_true(had_time);
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
        cmocka_unit_test(a_loss_is_told_of_meanwhile),
        cmocka_unit_test(a_release_waits_for_no_answer),
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
