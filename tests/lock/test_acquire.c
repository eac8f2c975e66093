/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquire and release as the header promises them: tries, limits, names, owners.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>

#define LOCK "lock:{acquire}"

static const char *const keyed[] = {"setnx",          "setnx_expire", "setnx_multi",   "set_nx_ex",
                                    "owner_check",    "owner_lua",    "reentrant_tls", "reentrant",
                                    "watchdog_timer", "watchdog",     "blpop_wake",    "notify",
                                    "fair",           "rw_counter",   "read_write"};
#define KEYED (sizeof keyed / sizeof keyed[0])

static dlock_status limited(dlock *lock, int64_t wait_ms, dlock_hold **hold)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    return dlock_acquire(lock, &want, hold);
}

/* ---- Tries and limits ------------------------------------------------------------------------ */

static void one_try_and_a_limit(void **state)
{
    (void)state;
    dlock_client *one = new_client();
    dlock_client *two = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        if (strcmp(keyed[i], "reentrant_tls") == 0)
            continue; /* a thread holds one lock of it, and answers LIMIT of another client's */
        dlock *mine = lock_of(one, keyed[i], LOCK);
        dlock *theirs = lock_of(two, keyed[i], LOCK);
        dlock_hold *hold;
        dlock_hold *none = (dlock_hold *)&none;
        assert_status(tried(mine, &hold), OK);
        uint64_t before = stats_of(two).attempts;
        assert_status(tried(theirs, &none), BUSY);
        assert_null(none);
        assert_says(dlock_error(), LOCK);
        assert_int_equal(stats_of(two).attempts, before + 1);
        assert_status(limited(theirs, 100, &none), TIMED_OUT);
        assert_null(none);
        assert_says(dlock_error(), "100 ms");
        assert_true(stats_of(two).attempts >= before + 2);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(tried(theirs, &hold), OK);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(mine);
        dlock_close(theirs);
    }
    dlock_client_close(one);
    dlock_client_close(two);
}

static void a_waiter_gets_it_when_it_is_free(void **state)
{
    (void)state;
    dlock_client *one = new_client();
    dlock_client *two = new_client();
    dlock *mine = lock_of(one, NULL, LOCK);
    struct waiter waiter = {.lock = lock_of(two, NULL, LOCK),
                            .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    dlock_hold *hold = acquired(mine);
    waiter_start(&waiter);
    eventually(stats_of(two).attempts >= 3);
    assert_false(atomic_load(&waiter.over));
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_close(mine);
    dlock_close(waiter.lock);
    dlock_client_close(one);
    dlock_client_close(two);
}

/* Whether the waiter has it. If not, the lock is had and released once more: it may not have been
 * asleep yet. */
static bool has_it_by_now(const struct waiter *waiter)
{
    dlock_hold *hold;
    if (atomic_load(&waiter->over))
        return true;
    if (tried(waiter->lock, &hold) == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    return false;
}

/* Its pause is 30 s at least, longer than it waits: what wakes it is a release of its own process.
 */
static void a_waiter_that_polls_looks_after_a_local_release(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.retry_ms = 60000});
    /* Without reentrant_tls, whose hold only the waiter's own thread could release. */
    const char *const polling[] = {"setnx",       "setnx_expire", "setnx_multi", "set_nx_ex",
                                   "owner_check", "owner_lua",    "reentrant",   "watchdog_timer",
                                   "watchdog",    "rw_counter"};
    for (size_t i = 0; i < sizeof polling / sizeof polling[0]; i++) {
        struct waiter waiter = {.lock = lock_of(client, polling[i], LOCK),
                                .want = {.wait_ms = 20000}};
        dlock_hold *hold = acquired(waiter.lock);
        const uint64_t before = stats_of(client).attempts;
        waiter_start(&waiter);
        eventually(stats_of(client).attempts > before);
        assert_status(dlock_release(hold, NULL), OK);
        eventually(has_it_by_now(&waiter));
        assert_status(waiter_end(&waiter), OK);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        dlock_close(waiter.lock);
    }
    dlock_client_close(client);
}

/* The only connection is in use: the wait for it ends with the call's own limit. */
static void the_limit_counts_while_a_connection_is_awaited(void **state)
{
    (void)state;
    struct gate *gate = gate_new("setnx.acquired");
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .connections_max = 1,
                                                             .connect_timeout_ms = 60000,
                                                             .command_timeout_ms = 60000,
                                                             .on_point = gate_point,
                                                             .on_point_arg = gate,
                                                         });
    struct waiter parked = {.lock = lock_of(client, "setnx", LOCK)};
    struct waiter limited_one = {.lock = lock_of(client, "setnx", "lock:{other}"),
                                 .want = {.wait_ms = 50}};
    waiter_start(&parked);
    eventually(gate_arrived(gate) == 1);
    waiter_start(&limited_one);
    assert_status(waiter_end(&limited_one), TIMED_OUT);
    assert_says(limited_one.error, "connections_max");
    gate_open(gate);
    assert_status(waiter_end(&parked), OK);
    assert_status(dlock_release(parked.hold, NULL), OK);
    dlock_close(parked.lock);
    dlock_close(limited_one.lock);
    dlock_client_close(client);
    gate_free(gate);
}

/* A server that accepts and says nothing: logging in ends with the call's own limit. */
static void the_limit_counts_while_connecting(void **state)
{
    (void)state;
    char url[80];
    snprintf(url, sizeof url, "%s/1", server_url(server));
    dlock_client *client = client_of(url, (struct dlock_options){.connect_timeout_ms = 60000});
    struct waiter waiter = {.lock = lock_of(client, "setnx", LOCK), .want = {.wait_ms = 50}};
    server_pause(server);
    waiter_start(&waiter);
    dlock_status status = waiter_end(&waiter);
    server_resume(server);
    assert_status(status, UNREACHABLE);
    assert_says(waiter.error, "connecting took too long");
    dlock_close(waiter.lock);
    dlock_client_close(client);
}

static void all_connections_in_use(void **state)
{
    (void)state;
    struct gate *gate = gate_new("setnx.acquired");
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .connections_max = 2,
                                                             .connect_timeout_ms = 20,
                                                             .command_timeout_ms = 2000,
                                                             .on_point = gate_point,
                                                             .on_point_arg = gate,
                                                         });
    struct waiter parked[2];
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:%d", i);
        parked[i] =
            (struct waiter){.lock = lock_of(client, "setnx", name), .want = {.wait_ms = 60000}};
        waiter_start(&parked[i]);
        eventually(gate_arrived(gate) == (size_t)i + 1);
    }
    uint64_t connects = stats_of(client).connects; /* a slow one was given up and made anew */
    struct waiter third = {.lock = lock_of(client, "setnx", LOCK)};
    waiter_start(&third);
    assert_status(waiter_end(&third), LIMIT);
    assert_says(third.error, "all 2 connections (connections_max) are in use");
    gate_open(gate);
    for (int i = 0; i < 2; i++) {
        assert_status(waiter_end(&parked[i]), OK);
        assert_status(dlock_release(parked[i].hold, NULL), OK);
        dlock_close(parked[i].lock);
    }
    assert_int_equal(stats_of(client).connects, connects);
    dlock_close(third.lock);
    dlock_client_close(client);
    gate_free(gate);
}

/* ---- Holds and locks ------------------------------------------------------------------------- */

static void *release_it(void *hold)
{
    must(dlock_release(hold, NULL) == DLOCK_OK);
    return NULL;
}

static void released_from_another_thread(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        if (strcmp(keyed[i], "reentrant_tls") == 0)
            continue; /* its count is the thread's: see below */
        dlock *lock = lock_of(client, keyed[i], LOCK);
        thread_wait(thread_start(release_it, acquired(lock)));
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        dlock_close(lock);
    }
    dlock *lock = lock_of(client, "local", LOCK);
    thread_wait(thread_start(release_it, acquired(lock)));
    dlock_hold *hold;
    assert_status(tried(lock, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

static void one_name_is_one_lock(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *one = lock_of(client, "local", LOCK);
    dlock *same = lock_of(client, "local", LOCK);
    dlock *other = lock_of(client, "local", LOCK "2");
    dlock *rung = lock_of(client, "setnx", LOCK);
    dlock_hold *holds[3];
    dlock_hold *none;
    assert_ptr_equal(one, same);
    assert_status(tried(one, &holds[0]), OK);
    assert_status(tried(same, &none), BUSY);
    assert_status(tried(other, &holds[1]), OK);
    assert_status(tried(rung, &holds[2]), OK);
    dlock_close(same);
    for (int i = 0; i < 3; i++)
        assert_status(dlock_release(holds[i], NULL), OK);
    assert_status(tried(one, &holds[0]), OK);
    assert_status(dlock_release(holds[0], NULL), OK);
    dlock_close(one);
    dlock_close(other);
    dlock_close(rung);
    dlock_client_close(client);
}

static void a_rung_with_tokens_gives_every_hold_one(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        uint64_t last = 0;
        for (int times = 0; times < 2; times++) {
            dlock *lock = lock_of(client, keyed[i], LOCK);
            dlock_hold *hold = acquired(lock);
            assert_int_equal(dlock_rung_of(lock)->tokens, dlock_token(hold) > last);
            last = dlock_token(hold);
            assert_status(dlock_release(hold, NULL), OK);
            dlock_close(lock);
        }
    }
    assert_true(dlock_rung_find("fair")->tokens);
    assert_false(dlock_rung_find("none")->tokens);
    dlock_client_close(client);
}

static void a_rung_is_shared_that_has_a_read_lock(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    struct dlock_want want = {.size = sizeof want, .mode = DLOCK_SHARED};
    for (size_t i = 0; i < KEYED; i++) {
        dlock *lock = lock_of(client, keyed[i], LOCK);
        bool shared = dlock_rung_of(lock)->shared;
        dlock_hold *hold = NULL;
        assert_int_equal(dlock_acquire(lock, &want, &hold), shared ? DLOCK_OK : DLOCK_UNSUPPORTED);
        assert_true(hold == NULL || dlock_release(hold, NULL) == DLOCK_OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* "<client id>", and what the format says behind it. */
static void assert_owner(const dlock_hold *hold, const dlock_client *client, const char *behind)
{
    char expected[80];
    snprintf(expected, sizeof expected, "%s%s", dlock_client_id(client), behind);
    assert_string_equal(dlock_owner(hold), expected);
}

/* A name is used once, whoever asks; on a flawed rung who is named keeps it. */
static void holds_have_numbers_and_owners(void **state)
{
    static const char *const rungs[] = {"setnx", "owner_lua", "watchdog"};
    (void)state;
    dlock_client *client = new_client();
    uint64_t last = 0;
    for (size_t i = 0; i < 9; i++) {
        dlock *lock = lock_of(client, rungs[i / 3], LOCK);
        uint64_t owner_id = i % 3 == 0 ? 0 : i % 3 == 1 ? 7 : DLOCK_THIS_THREAD;
        for (int times = 0; times < 2; times++) {
            dlock_hold *hold = acquired_by(lock, owner_id);
            char number[24] = "", behind[48];
            unsigned long long thread = 0;
            assert_true(dlock_acquisition(hold) > last);
            assert_int_equal(dlock_token(hold), 0);
            last = dlock_acquisition(hold);
            if (i / 3 > 0)
                snprintf(number, sizeof number, ".%llu", (unsigned long long)last);
            if (owner_id == 0)
                snprintf(behind, sizeof behind, ":%llu", (unsigned long long)last);
            else if (owner_id == 7)
                snprintf(behind, sizeof behind, ":x7%s", number);
            else if (sscanf(dlock_owner(hold) + 36, ":t%llu", &thread) == 1)
                snprintf(behind, sizeof behind, ":t%llu%s", thread, number);
            assert_owner(hold, client, behind);
            assert_status(dlock_release(hold, NULL), OK);
        }
        dlock_close(lock);
    }
    dlock *lock = lock_of(client, "setnx", LOCK);
    dlock_hold *hold = acquired_by(lock, UINT64_MAX - 1);
    assert_owner(hold, client, ":x18446744073709551614");
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_want want = {.size = 0};
    assert_status(dlock_acquire(lock, &want, &hold), INVALID);
    assert_says(dlock_error(), "want.size");
    dlock_close(lock);
    dlock_client_close(client);
}

/* How many keys it keeps beside the lock's: while it is held, and behind its release. */
static int keys_beside(const char *rung, bool held)
{
    if (strcmp(rung, "notify") == 0)
        return 1; /* its token */
    if (strcmp(rung, "fair") == 0)
        return held ? 1 : 2; /* its token; and what the release notes down */
    if (strcmp(rung, "read_write") == 0)
        return held ? 2 : 1; /* its token; and how it is held */
    return strcmp(rung, "blpop_wake") == 0 && !held ? 1 : 0;
}

static bool has_keys_beside(const char *rung)
{
    return strcmp(rung, "notify") == 0 || strcmp(rung, "fair") == 0 ||
           strcmp(rung, "read_write") == 0;
}

/* The name is the key, byte for byte. */
static void odd_names(void **state)
{
    static const char *const names[] = {
        " ", "a b", "\r\n", "\"'\\", "{}", "%s%n", "\xff\xfe\x01\x7f", "l\xc3\xb6", "*?[a]",
    };
    (void)state;
    dlock_client *client = new_client();
    server_text(server, "FLUSHALL");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t j = 0; j < KEYED; j++) {
            if (has_keys_beside(keyed[j]) && strpbrk(names[i], "{}") != NULL)
                continue; /* it refuses a brace without a hash tag */
            dlock *lock = lock_of(client, keyed[j], names[i]);
            dlock_hold *hold = acquired(lock);
            assert_int_equal(server_integer(server, "EXISTS %b", names[i], strlen(names[i])), 1);
            assert_int_equal(server_integer(server, "DBSIZE"), 1 + keys_beside(keyed[j], true));
            assert_status(dlock_release(hold, NULL), OK);
            assert_int_equal(server_integer(server, "EXISTS %b", names[i], strlen(names[i])), 0);
            assert_int_equal(server_integer(server, "DBSIZE"), keys_beside(keyed[j], false));
            server_text(server, "FLUSHALL");
            dlock_close(lock);
        }
    char name[DLOCK_NAME_MAX + 1];
    memset(name, '\x80', sizeof name);
    name[DLOCK_NAME_MAX] = '\0';
    for (size_t j = 0; j < KEYED; j++) {
        dlock *lock = lock_of(client, keyed[j], name);
        dlock_hold *hold = acquired(lock);
        assert_int_equal(server_integer(server, "EXISTS %s", name), 1);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_try_and_a_limit),
        cmocka_unit_test(a_waiter_gets_it_when_it_is_free),
        cmocka_unit_test(a_waiter_that_polls_looks_after_a_local_release),
        cmocka_unit_test(the_limit_counts_while_a_connection_is_awaited),
        cmocka_unit_test(the_limit_counts_while_connecting),
        cmocka_unit_test(all_connections_in_use),
        cmocka_unit_test(released_from_another_thread),
        cmocka_unit_test(one_name_is_one_lock),
        cmocka_unit_test(a_rung_with_tokens_gives_every_hold_one),
        cmocka_unit_test(a_rung_is_shared_that_has_a_read_lock),
        cmocka_unit_test(holds_have_numbers_and_owners),
        cmocka_unit_test(odd_names),
    };
    return cmocka_run_group_tests_name("acquire", tests, start_server, stop_server);
}
