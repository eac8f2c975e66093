/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers that no release ends: how many there are, what they keep alive, and what ends them.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "timer.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define RUNG "watchdog_timer"
#define LOCK "lock:{timed}"
#define TTL_MS 2400 /* a busy machine does not outlast it by stalling */
#define OWNER 7

static size_t threads(void)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count;
}

static long exists(void)
{
    return server_integer(server, "EXISTS " LOCK);
}

/* The lock is had all the time; acquisitions of the same owner come and go, their timers stay. */
static void each_acquisition_leaves_one(void **state)
{
    enum { ROUNDS = 50 };
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.ttl_ms = TTL_MS});
    dlock *lock = lock_of(client, RUNG, LOCK);
    size_t before = threads();
    dlock_hold *hold = acquired_by(lock, OWNER);
    for (int i = 1; i < ROUNDS; i++)
        assert_status(dlock_release(acquired_by(lock, OWNER), NULL), OK);
    assert_int_equal(threads(), before + ROUNDS);
    eventually(stats_of(client).renewals >= 2 * ROUNDS);
    assert_int_equal(threads(), before + ROUNDS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(threads() == before); /* each asks once more, and finds nothing to renew */
    dlock_close(lock);
    dlock_client_close(client);
}

/* The release never arrived: it is renewed all the same, until the lock is closed. */
static void what_was_not_released_lives_on(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    dlock_client *client = client_of(proxy_url(proxy), (struct dlock_options){.ttl_ms = TTL_MS});
    dlock *lock = lock_of(client, RUNG, LOCK);
    dlock_hold *hold = acquired(lock);
    proxy_plan(proxy, PROXY_CUT_REQUEST, "EVALSHA", NULL, 0);
    assert_status(dlock_release(hold, NULL), UNKNOWN);
    assert_true(proxy_done(proxy));
    eventually(stats_of(client).renewals > 4); /* for longer than it could live without */
    assert_int_equal(exists(), 1);
    dlock_close(lock);
    uint64_t renewals = stats_of(client).renewals;
    eventually(exists() == 0);
    assert_int_equal(stats_of(client).renewals, renewals);
    dlock_client_close(client);
    proxy_free(proxy);
}

/* What the rung leaves out. */
extern const struct rung_ops rung_watchdog_timer;

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    timer_end(hold);
    rung_watchdog_timer.send_release(request, hold);
}

static void a_timer_that_ends_with_its_hold(void **state)
{
    (void)state;
    struct rung_ops ends = rung_watchdog_timer;
    ends.name = "ends";
    ends.send_release = send_release;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.ttl_ms = TTL_MS});
    dlock *lock;
    assert_status(dlock_open_ops(client, &ends, LOCK, &lock), OK);
    size_t before = threads();
    dlock_hold *outer = acquired_by(lock, OWNER);
    assert_status(dlock_release(acquired_by(lock, OWNER), NULL), OK);
    eventually(threads() == before + 1);
    uint64_t renewals = stats_of(client).renewals;
    eventually(stats_of(client).renewals > renewals); /* the outer hold's goes on */
    assert_int_equal(threads(), before + 1);
    assert_status(dlock_release(outer, NULL), OK);
    eventually(threads() == before);
    dlock_close(lock);
    dlock_client_close(client);
}

static void there_is_a_limit(void **state)
{
    static dlock_hold *holds[TIMERS_MAX];
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
    dlock *lock = lock_of(client, RUNG, LOCK);
    dlock_hold *none;
    for (int i = 0; i < TIMERS_MAX; i++)
        holds[i] = acquired_by(lock, OWNER);
    assert_status(tried_by(lock, OWNER, &none), LIMIT);
    assert_null(none);
    assert_says(dlock_error(), "at most 1000 run");
    assert_int_equal(atoi(server_text(server, "HGET " LOCK " %s", dlock_owner(holds[0]))),
                     TIMERS_MAX);
    for (int i = 0; i < TIMERS_MAX; i++)
        assert_status(dlock_release(holds[i], NULL), OK);
    assert_int_equal(exists(), 0);
    dlock_close(lock);
    dlock_client_close(client);
}

/* ThreadSanitizer cannot follow the threads that a forked child starts. And a thread of the parent
 * may hold a lock of AddressSanitizer's allocator at the fork: the child waits for it for ever. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FORKS 1
#else
#define FORKS 0
#endif

#if FORKS
/* It ends its own timers. The alarm ends a child that would wait for ever. */
static int acquire_and_close(void *arg)
{
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    alarm(PATIENCE_MS / 1000);
    must(client_open(arg, (struct dlock_options){.ttl_ms = 0}, &client) == DLOCK_OK);
    must(dlock_open(client, RUNG, LOCK "2", &lock) == DLOCK_OK);
    must(tried_by(lock, OWNER, &hold) == DLOCK_OK);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    dlock_close(lock);
    dlock_client_close(client);
    return 23;
}

/* The parent's timers wait, or are about to, when it forks. */
static void a_child_waits_for_none_of_its_parents(void **state)
{
    enum { TIMERS = 20, CHILDREN = 5 };
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.ttl_ms = TTL_MS});
    dlock *lock = lock_of(client, RUNG, LOCK);
    dlock_hold *hold = acquired_by(lock, OWNER);
    for (int i = 1; i < TIMERS; i++)
        assert_status(dlock_release(acquired_by(lock, OWNER), NULL), OK);
    for (int i = 0; i < CHILDREN; i++)
        assert_int_equal(
            child_wait(child_start(acquire_and_close, (void *)(uintptr_t)server_url(server))), 23);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_acquisition_leaves_one),
        cmocka_unit_test(what_was_not_released_lives_on),
        cmocka_unit_test(a_timer_that_ends_with_its_hold),
        cmocka_unit_test(there_is_a_limit),
#if FORKS
        cmocka_unit_test(a_child_waits_for_none_of_its_parents),
#endif
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
