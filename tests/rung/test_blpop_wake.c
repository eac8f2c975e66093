/* SPDX-License-Identifier: Apache-2.0
 *
 * `blpop_wake` beside its flaw: a signal reaches a waiter of its own lock, and no other.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "waiter.h"

#include <stdio.h>
#include <stdlib.h>

#define PHONE "lock:{phone}"
#define LAPTOP "lock:{laptop}"

static struct waiter waiter_for(dlock_client *client, const char *name)
{
    return (struct waiter){.lock = lock_of(client, "blpop_wake", name),
                           .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
}

static long long blocked(void)
{
    return atoll(strstr(server_text(server, "INFO clients"), "blocked_clients:") +
                 strlen("blocked_clients:"));
}

static void gone_on(struct waiter *waiter)
{
    assert_status(waiter_end(waiter), OK);
    assert_status(dlock_release(waiter->hold, NULL), OK);
    dlock_close(waiter->lock);
}

/* The client that waits for the laptop blocked first, so one list for both would serve it first. */
static void a_signal_of_another_lock(void **state)
{
    (void)state;
    dlock_client *holder = new_client(), *first = new_client(), *second = new_client();
    dlock *phone = lock_of(holder, "blpop_wake", PHONE);
    dlock *laptop = lock_of(holder, "blpop_wake", LAPTOP);
    dlock_hold *phone_hold = acquired(phone), *laptop_hold = acquired(laptop);
    struct waiter for_laptop = waiter_for(first, LAPTOP), for_phone = waiter_for(second, PHONE);
    waiter_start(&for_laptop);
    eventually(blocked() == 1);
    waiter_start(&for_phone);
    eventually(blocked() == 2);
    assert_status(dlock_release(phone_hold, NULL), OK);
    gone_on(&for_phone);
    assert_int_equal(stats_of(second).missed_wakeups, 0);
    assert_status(dlock_release(laptop_hold, NULL), OK);
    gone_on(&for_laptop);
    assert_int_equal(stats_of(first).missed_wakeups, 0);
    dlock_close(phone);
    dlock_close(laptop);
    dlock_client_close(holder);
    dlock_client_close(first);
    dlock_client_close(second);
}

/* A client that blocks for one lock comes to wait for another one, and sleeps for both. */
static void one_client_waits_for_two(void **state)
{
    (void)state;
    dlock_client *holder = new_client(), *client = new_client();
    dlock *locks[2] = {lock_of(holder, "blpop_wake", PHONE), lock_of(holder, "blpop_wake", LAPTOP)};
    dlock_hold *holds[2] = {acquired(locks[0]), acquired(locks[1])};
    struct waiter waiters[2] = {waiter_for(client, PHONE), waiter_for(client, LAPTOP)};
    waiter_start(&waiters[0]);
    eventually(blocked() == 1);
    waiter_start(&waiters[1]);
    for (int i = 0; i < 2; i++) { /* each list is read, though nothing was released */
        const char *name = i == 0 ? LAPTOP : PHONE;
        server_integer(server, "RPUSH %s:signals %s", name, name);
        eventually(server_integer(server, "EXISTS %s:signals", name) == 0);
    }
    for (int i = 1; i >= 0; i--) {
        eventually(blocked() == 1);
        assert_status(dlock_release(holds[i], NULL), OK);
        gone_on(&waiters[i]);
        dlock_close(locks[i]);
    }
    dlock_client_close(holder);
    dlock_client_close(client);
}

/* The server lets no client end a BLPOP: the second waiter polls. */
static void two_locks_without_unblock(void **state)
{
    (void)state;
    server_text(server, "ACL SETUSER default -client|unblock");
    dlock_client *holder = new_client(), *client = new_client();
    dlock *laptop = lock_of(holder, "blpop_wake", LAPTOP);
    dlock *phone = lock_of(holder, "blpop_wake", PHONE);
    dlock_hold *phone_hold = acquired(phone), *hold = acquired(laptop);
    struct waiter first = waiter_for(client, PHONE), second = waiter_for(client, LAPTOP);
    waiter_start(&first);
    eventually(blocked() == 1);
    waiter_start(&second);
    eventually(stats_of(client).contended == 2);
    assert_status(dlock_release(hold, NULL), OK);
    gone_on(&second);
    assert_int_equal(stats_of(client).missed_wakeups, 0);
    assert_status(dlock_release(phone_hold, NULL), OK);
    gone_on(&first);
    server_text(server, "ACL SETUSER default +client|unblock");
    dlock_close(phone);
    dlock_close(laptop);
    dlock_client_close(holder);
    dlock_client_close(client);
}

/* The signal cannot be given: the lock is left to expire, as the answer says. */
static void signals_of_another_type(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *phone = lock_of(client, "blpop_wake", PHONE);
    dlock_hold *hold = acquired(phone);
    char owner[128];
    snprintf(owner, sizeof owner, "%s", dlock_owner(hold));
    server_text(server, "SET " PHONE ":signals x");
    assert_status(dlock_release(hold, NULL), WRONG_TYPE);
    assert_int_equal(atoll(server_text(server, "HGET " PHONE " %s", owner)), 1);
    assert_true(server_integer(server, "PTTL " PHONE) > 0);
    assert_string_equal(server_text(server, "GET " PHONE ":signals"), "x");
    dlock_close(phone);
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_signal_of_another_lock, empty_server),
        cmocka_unit_test_setup(one_client_waits_for_two, empty_server),
        cmocka_unit_test_setup(two_locks_without_unblock, empty_server),
        cmocka_unit_test_setup(signals_of_another_type, empty_server),
    };
    return cmocka_run_group_tests_name("blpop_wake", tests, start_server, stop_server);
}
