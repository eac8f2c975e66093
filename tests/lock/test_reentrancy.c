/* SPDX-License-Identifier: Apache-2.0
 *
 * Re-entrancy: which owner acquires again what it holds, and on which rungs.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "waiter.h"

#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{reentrancy}"

static void the_same_owner_again(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog_timer", "watchdog", "blpop_wake",
                                        "notify"};
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++)
        for (size_t j = 0; j < 3; j++) {
            dlock *lock = lock_of(client, rungs[i], LOCK);
            dlock_hold *holds[3];
            char owner[80];
            for (int depth = 0; depth < 3; depth++) {
                assert_status(tried_by(lock, 7, &holds[depth]), OK);
                snprintf(owner, sizeof owner, "%s", dlock_owner(holds[depth]));
                assert_int_equal(atoi(server_text(server, "HGET " LOCK " %s", owner)), depth + 1);
            }
            for (int depth = 3; depth > 0; depth--) {
                assert_int_equal(atoi(server_text(server, "HGET " LOCK " %s", owner)), depth);
                assert_status(dlock_release(holds[orders[j][3 - depth]], NULL), OK);
            }
            assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
            dlock_close(lock);
        }
    dlock_client_close(client);
}

static void *try_as_this_thread(void *lock)
{
    dlock_hold *hold;
    return (void *)(intptr_t)tried_by(lock, DLOCK_THIS_THREAD, &hold);
}

static void another_owner_is_kept_out(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog_timer", "watchdog", "blpop_wake",
                                        "notify"};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], LOCK);
        struct dlock_want seven = {.size = sizeof seven, .owner_id = 7};
        struct dlock_want eight = {.size = sizeof eight, .owner_id = 8};
        dlock_hold *holds[2];
        dlock_hold *none;
        void *status;
        assert_status(dlock_acquire(lock, &seven, &holds[0]), OK);
        assert_status(dlock_acquire(lock, &eight, &none), BUSY);
        assert_status(tried(lock, &none), BUSY);
        assert_status(dlock_acquire(lock, &seven, &holds[1]), OK);
        assert_string_equal(dlock_owner(holds[0]), dlock_owner(holds[1]));
        assert_status(dlock_release(holds[0], NULL), OK);
        assert_status(dlock_acquire(lock, &eight, &none), BUSY);
        assert_status(dlock_release(holds[1], NULL), OK);

        holds[0] = acquired_by(lock, DLOCK_THIS_THREAD);
        pthread_join(thread_start(try_as_this_thread, lock), &status);
        assert_int_equal((intptr_t)status, DLOCK_BUSY);
        assert_status(dlock_release(holds[0], NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* The limits of the rungs before: the same thread waits for itself. */
static void not_before_the_rung_that_can(void **state)
{
    static const char *const rungs[] = {"local", "setnx", "set_nx_ex", "owner_check", "owner_lua"};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], LOCK);
        dlock_hold *hold = acquired(lock);
        dlock_hold *none;
        assert_status(tried(lock, &none), BUSY);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void *release_fails(void *hold)
{
    must(dlock_release(hold, NULL) == DLOCK_LOST);
    return NULL;
}

/* Its flaw, faithfully: the count in the thread's memory outlives the key. */
static void reentrant_tls_believes_after_the_expiry(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.ttl_ms = 100});
    dlock_client *other = new_client();
    dlock *lock = lock_of(client, "reentrant_tls", LOCK);
    dlock *theirs = lock_of(other, "reentrant_tls", LOCK);
    struct waiter waiter = {.lock = theirs, .want = {.wait_ms = 60000}};
    dlock_hold *outer = acquired(lock);
    uint64_t commands = stats_of(client).commands;
    waiter_start(&waiter); /* on a thread of its own, so with a count of its own */
    assert_status(waiter_end(&waiter), OK);
    dlock_hold *inner;
    assert_status(tried(lock, &inner), OK); /* two holders now */
    assert_int_equal(stats_of(client).commands, commands);
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), LOST);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    thread_wait(thread_start(release_fails, waiter.hold));
    server_integer(server, "DEL " LOCK);
    dlock_close(lock);
    dlock_close(theirs);
    dlock_client_close(client);
    dlock_client_close(other);
}

/* The memory is of one lock of one client. */
static void reentrant_tls_counts_for_no_other_client(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock_client *other = new_client();
    dlock *lock = lock_of(client, "reentrant_tls", LOCK);
    dlock *theirs = lock_of(other, "reentrant_tls", LOCK);
    dlock_hold *hold, *none;
    assert_status(tried(lock, &hold), OK);
    assert_status(tried(theirs, &none), LIMIT);
    assert_says(dlock_error(), LOCK);
    assert_status(tried_by(lock, 7, &none), OK); /* the thread's, whatever its owner is called */
    assert_status(dlock_release(none, NULL), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    assert_status(tried(theirs, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_close(theirs);
    dlock_client_close(client);
    dlock_client_close(other);
}

/* Not with ThreadSanitizer, which cannot follow the threads that a forked child starts. */
#ifndef __SANITIZE_THREAD__
#define FORKS 1
#else
#define FORKS 0
#endif

#if FORKS
static int ask_for_the_parents(void *arg)
{
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    must(client_open(arg, (struct dlock_options){.ttl_ms = 0}, &client) == DLOCK_OK);
    must(dlock_open(client, "reentrant_tls", LOCK, &lock) == DLOCK_OK);
    must(tried(lock, &hold) == DLOCK_BUSY);
    dlock_close(lock);
    must(dlock_open(client, "reentrant_tls", LOCK "2", &lock) == DLOCK_OK);
    must(tried(lock, &hold) == DLOCK_OK); /* it holds none yet */
    must(dlock_release(hold, NULL) == DLOCK_OK);
    dlock_close(lock);
    dlock_client_close(client);
    return 23;
}

/* A forked child has a copy of the memory, and not the lock. */
static void reentrant_tls_counts_for_no_child(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "reentrant_tls", LOCK);
    dlock_hold *hold = acquired(lock);
    void *url = (void *)(uintptr_t)server_url(server);
    assert_int_equal(child_wait(child_start(ask_for_the_parents, url)), 23);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_owner_again),
        cmocka_unit_test(another_owner_is_kept_out),
        cmocka_unit_test(not_before_the_rung_that_can),
        cmocka_unit_test(reentrant_tls_believes_after_the_expiry),
        cmocka_unit_test(reentrant_tls_counts_for_no_other_client),
#if FORKS
        cmocka_unit_test(reentrant_tls_counts_for_no_child),
#endif
    };
    return cmocka_run_group_tests_name("reentrancy", tests, start_server, stop_server);
}
