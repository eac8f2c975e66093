/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: who holds a lock of three servers, and how an operator breaks it.
 */
#include "redlock_stage.h"

#define COUNT 3

/* Who holds it is whom a majority names; the longest time for which one does is left. */
static void a_majority_says_who_holds_it(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){.ttl_ms = 600000});
    dlock *lock = redlock_of(client);
    assert_false(holder_of(lock).held);
    dlock_hold *hold = acquired(lock);
    assert_string_equal(holder_of(lock).owner, hold->id);
    server_integer(servers[0], "PEXPIRE " LOCK " 100000");
    assert_true(holder_of(lock).ttl_ms > 0);
    server_text(servers[2], "SET " LOCK " another PX 300000");
    assert_true(holder_of(lock).held);
    assert_true(holder_of(lock).ttl_ms <= 100000);
    server_text(servers[0], "SET " LOCK " a-third");
    assert_false(holder_of(lock).held);
    server_text(servers[0], "SET " LOCK " another");
    assert_string_equal(holder_of(lock).owner, "another");
    assert_true(holder_of(lock).ttl_ms > 200000 && holder_of(lock).ttl_ms <= 300000);
    assert_status(dlock_break(lock, NULL), OK);
    assert_status(dlock_release(hold, NULL), LOST);
    dlock_close(lock);
    dlock_client_close(client);
}

static void who_holds_it_is_not_known(void **state)
{
    (void)state;
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    server_kill(servers[2]);
    assert_true(holder_of(lock).held);
    server_integer(servers[1], "DEL " LOCK);
    assert_status(dlock_inspect(lock, &holder), UNREACHABLE); /* the dead one may be for it */
    assert_says(dlock_error(), "2 of 3 servers");
    server_integer(servers[0], "DEL " LOCK);
    assert_false(holder_of(lock).held);
    server_restart(servers[2], NULL);
    for (int i = 0; i < COUNT; i++)
        server_integer(servers[i], "RPUSH " LOCK " a");
    assert_status(dlock_inspect(lock, &holder), WRONG_TYPE);
    assert_status(dlock_break(lock, NULL), WRONG_TYPE);
    eventually(exist() == COUNT);
    for (int i = 0; i < COUNT; i++)
        server_integer(servers[i], "DEL " LOCK);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* OK: no majority is left. */
static void broken_on_all(void **state)
{
    (void)state;
    struct dlock_holder broken = {.size = sizeof broken};
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_break(lock, &broken), OK);
    assert_string_equal(broken.owner, hold->id);
    assert_int_equal(exist(), 0);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    server_kill(servers[0]);
    assert_status(dlock_break(lock, NULL), OK);
    server_kill(servers[1]);
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_says(dlock_error(), "freed on 1 of 3 servers");
    server_kill(servers[2]);
    assert_status(dlock_break(lock, NULL), UNREACHABLE);
    for (int i = 0; i < COUNT; i++)
        server_restart(servers[i], NULL);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* A break waits for a server that hangs, but not for longer than for one. The next does not wait
 * for it. */
static void a_break_meets_one_that_hangs(void **state)
{
    (void)state;
    struct dlock_options options = {.connect_timeout_ms = 300, .command_timeout_ms = 300};
    int64_t bound_ms = options.connect_timeout_ms + 2 * options.command_timeout_ms;
    dlock_client *client = client_of_first(3, options);
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    server_pause(servers[1]);
    int64_t begun_ms = clock_ms();
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_says(dlock_error(), "1 of 3 servers did not answer");
    assert_true(clock_ms() - begun_ms >= options.command_timeout_ms);
    assert_true(clock_ms() - begun_ms < bound_ms + 5000);
    /* It is not connected: nothing was sent to it. A stall is as long as the time of all. */
    eventually(dlock_break(lock, NULL) == DLOCK_OK);
    server_resume(servers[1]);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Two of the servers do not answer, and one frees it: what the two were sent
 * must not free the next holder's keys. */
static void a_break_does_not_come_late(void **state)
{
    (void)state;
    dlock_client *client =
        client_behind_proxies(3, (struct dlock_options){.command_timeout_ms = 300});
    dlock *lock = redlock_of(client);
    eventually(dlock_break(lock, NULL) == DLOCK_OK); /* connected */
    for (int i = 1; i < COUNT; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, LOCK, NULL, 0);
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_says(dlock_error(), "2 of 3 servers did not answer");
    for (int i = 0; i < COUNT; i++)
        server_text(servers[i], "SET " LOCK " next");
    for (int i = 1; i < COUNT; i++) {
        assert_true(proxy_done(proxies[i]));
        proxy_let_go(proxies[i]);
    }
    eventually(exist() == COUNT);
    for (int i = 0; i < COUNT; i++)
        server_integer(servers[i], "DEL " LOCK);
    end_behind_proxies(client, lock);
}

static void *let_go_late(void *arg)
{
    struct proxy *proxy = arg;
    eventually(proxy_done(proxy));
    long_pause(200);
    proxy_let_go(proxy);
    return NULL;
}

/* One that answers late is waited for as one alone would be, and so is one that connects late. */
static void a_break_waits_for_each(void **state)
{
    (void)state;
    static const char *const late[] = {LOCK, "INFO"};
    for (size_t i = 0; i < sizeof late / sizeof late[0]; i++) {
        dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
        dlock *lock = redlock_of(client);
        if (i == 0)
            assert_status(dlock_break(lock, NULL), OK); /* connected */
        for (int j = 0; j < COUNT; j++)
            server_text(servers[j], "SET " LOCK " gone");
        proxy_plan(proxies[1], PROXY_HOLD_REPLY, late[i], NULL, 0);
        pthread_t thread = thread_start(let_go_late, proxies[1]);
        assert_status(dlock_break(lock, NULL), OK);
        thread_wait(thread);
        assert_int_equal(exist(), 0);
        end_behind_proxies(client, lock);
    }
}

/* A string of another program, larger than what the library reads of one reply. */
static void a_large_value(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    dlock_hold *hold;
    for (int i = 0; i < COUNT; i++)
        server_integer(servers[i], "SETRANGE " LOCK " 3000000 x");
    assert_status(tried(lock, &hold), BUSY);
    assert_true(holder_of(lock).held);
    assert_status(dlock_break(lock, NULL), OK);
    assert_int_equal(exist(), 0);
    assert_int_equal(stats_of(client).connections_lost, 0);
    end(client, lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_majority_says_who_holds_it),
        cmocka_unit_test(who_holds_it_is_not_known),
        cmocka_unit_test(broken_on_all),
        cmocka_unit_test(a_large_value),
        cmocka_unit_test(a_break_meets_one_that_hangs),
        cmocka_unit_test(a_break_does_not_come_late),
        cmocka_unit_test(a_break_waits_for_each),
    };
    return cmocka_run_group_tests_name("redlock_operator", tests, servers_start, servers_stop);
}
