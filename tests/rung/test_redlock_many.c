/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: many holds that the timekeeper renews in one write to each server. Each is decided by
 * its own answers.
 */
#include "extender.h"
#include "redlock_stage.h"

#include <stdio.h>

#define HOUR_MS 3600000     /* a third of it is longer than any test waits */
#define LONG_MS 60000       /* no limit ends a wait in a test */
#define SHORT_NS 4000000000 /* half of it is waited for, the other half is in reserve */
#define HOLDS 20
#define BARE_MS "600000" /* the keys' time to live before they are renewed */

static struct record *events;
static uint64_t renewed_before;
/* A renewal may fail as long as the timekeeper is not connected to all servers. */
static uint64_t failed_before;
static dlock_client *client;
static dlock *locks[HOLDS];
static dlock_hold *holds[HOLDS];

static void key_of(size_t hold, char key[64])
{
    snprintf(key, 64, "lock:many:%zu", hold);
}

static long long ask_key(size_t server, const char *command, size_t hold)
{
    char key[64];
    key_of(hold, key);
    return server_integer(servers[server], "%s %s", command, key);
}

static size_t renewed(void)
{
    return stats_of(client).renewals - renewed_before;
}

static void count_anew(void)
{
    renewed_before = stats_of(client).renewals;
    record_clear(events);
}

static void all_are_due(void)
{
    count_anew();
    are_due(holds, HOLDS, holds[1]);
}

static size_t asked(size_t server)
{
    return proxy_requests(proxies[server], "PEXPIRE");
}

/* No answer to what was sent on the connections of the pool is due. */
static bool pool_is_quiet(void)
{
    const struct redis *redis = holds[0]->acquired_on;
    pool_catch_up(&redis_of(client)->pool, redis);
    return !redis_owes(redis, 0) && !redis_owes(redis, 1) && !redis_owes(redis, 2);
}

/* It has nothing to do but to renew: nothing else ends its wait for an answer. */
static bool timekeeper_is_quiet(void)
{
    struct timekeeper *timekeeper = timekeeper_of(holds[0]);
    pthread_mutex_lock(&timekeeper->mutex);
    const bool quiet = timekeeper->sends_kept_ns == INT64_MAX && STAILQ_EMPTY(&timekeeper->notices);
    pthread_mutex_unlock(&timekeeper->mutex);
    return quiet;
}

static void shorten_keys(void)
{
    for (size_t i = 0; i < HOLDS; i++) {
        char key[64];
        key_of(i, key);
        for (size_t server = 0; server < 3; server++)
            server_integer(servers[server], "PEXPIRE %s " BARE_MS, key);
    }
}

/* How many keys of that server have been renewed since shorten_keys. */
static size_t prolonged(size_t server)
{
    size_t count = 0;
    for (size_t i = 0; i < HOLDS; i++)
        count += ask_key(server, "PTTL", i) > 1000000;
    return count;
}

/* Renews all until the timekeeper is connected to all servers, and each has carried out its part.
 * So what a proxy sees next is the test's. */
static void renew_on_all(void)
{
    shorten_keys();
    while (prolonged(0) + prolonged(1) + prolonged(2) < 3 * HOLDS) {
        all_are_due();
        eventually(renewed() == HOLDS);
        long_pause(20); /* the last answers pass the proxies */
    }
}

/* Holds for which all three servers count. */
static void hold_many_with(struct dlock_options options)
{
    events = record_new();
    options.ttl_ms = HOUR_MS;
    options.on_event_arg = events;
    client = client_behind_proxies(3, options);
    dlock_close(connected(client));
    for (size_t i = 0; i < HOLDS; i++) {
        char key[64];
        key_of(i, key);
        assert_status(dlock_open_ops(client, &rung_redlock, key, &locks[i]), OK);
        holds[i] = acquired(locks[i]);
    }
    for (size_t i = 0; i < HOLDS; i++)
        counted_by(holds[i], 3);
    eventually(pool_is_quiet() && timekeeper_is_quiet());
    renew_on_all();
    failed_before = stats_of(client).renewals_failed;
}

static void hold_many(void)
{
    hold_many_with((struct dlock_options){.on_event = record_event});
}

static void release(size_t hold)
{
    assert_status(dlock_release(holds[hold], NULL), OK);
    holds[hold] = NULL;
}

static void end_many(void)
{
    for (size_t i = 0; i < HOLDS; i++)
        if (holds[i] != NULL)
            release(i);
    for (size_t i = 1; i < HOLDS; i++)
        dlock_close(locks[i]);
    end_behind_proxies(client, locks[0]);
    record_free(events);
    flush_all();
}

static void assert_nothing_failed(void)
{
    assert_int_equal(stats_of(client).renewals_failed, failed_before);
    assert_int_equal(stats_of(client).lost, 0);
}

/* ---- One write ------------------------------------------------------------------------------- */

/* All are carried out before the client has read one answer. */
static void one_write_renews_them_all(void **state)
{
    (void)state;
    hold_many();
    shorten_keys();
    const size_t before[] = {asked(0), asked(1), asked(2)};
    for (int i = 0; i < 3; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    for (size_t i = 0; i < 3; i++) {
        eventually(proxy_done(proxies[i]) && prolonged(i) == HOLDS);
        assert_true(asked(i) - before[i] < HOLDS / 4); /* pieces of one write */
    }
    assert_int_equal(renewed(), 0);
    for (int i = 0; i < 3; i++)
        proxy_let_go(proxies[i]);
    eventually(renewed() == HOLDS);
    assert_nothing_failed();
    end_many();
}

/* What becomes due while answers are missing is sent all the same. */
static void what_becomes_due_later_does_not_wait(void **state)
{
    (void)state;
    hold_many();
    for (int i = 1; i < 3; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    dlock_hold *last = holds[HOLDS - 1];
    holds[HOLDS - 1] = NULL;
    all_are_due();
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]));
    holds[HOLDS - 1] = last;
    shorten_keys();
    are_due(&last, 1, last);
    eventually(ask_key(0, "PTTL", HOLDS - 1) > 1000000);
    assert_int_equal(renewed(), 0);
    for (int i = 1; i < 3; i++)
        proxy_let_go(proxies[i]);
    eventually(renewed() == HOLDS);
    assert_nothing_failed();
    end_many();
}

/* No server knows the script any more. */
static void the_scripts_are_flushed(void **state)
{
    (void)state;
    hold_many();
    for (int i = 0; i < 3; i++)
        server_text(servers[i], "SCRIPT FLUSH");
    all_are_due();
    eventually(renewed() == HOLDS);
    assert_nothing_failed();
    end_many();
}

/* ---- Each by its own answers ----------------------------------------------------------------- */

static void each_is_decided_by_its_own_majority(void **state)
{
    (void)state;
    hold_many();
    ask_key(0, "DEL", 7);
    ask_key(1, "DEL", 7);
    ask_key(0, "DEL", 8);
    all_are_due();
    eventually(renewed() == HOLDS - 1 && record_told(events, "LOST", holds[7]) == 1);
    assert_int_equal(stats_of(client).lost, 1);
    assert_false(dlock_valid(holds[7]));
    assert_status(dlock_release(holds[7], NULL), LOST);
    holds[7] = NULL;
    for (size_t i = 0; i < HOLDS; i++)
        if (i != 7)
            counted_by(holds[i], 3); /* also the eighth, whose key was set again */
    end_many();
}

/* One server has answered two, another none: those two are not kept waiting by the others. */
static void a_decided_hold_does_not_wait_for_others(void **state)
{
    (void)state;
    static const char two[] = ":1\r\n:1\r\n";
    hold_many();
    proxy_plan(proxies[0], PROXY_REPLACE_REPLY, "PEXPIRE", two, sizeof two - 1);
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    eventually(proxy_done(proxies[0]) && proxy_done(proxies[2]));
    eventually(renewed() >= 2);
    assert_int_equal(renewed(), 2);
    proxy_let_go(proxies[2]);
    eventually(renewed() == HOLDS);
    assert_nothing_failed();
    end_many();
}

/* It has answered two, and is cut. What it answers to on the next connection is not mistaken. */
static void a_connection_breaks_in_between(void **state)
{
    (void)state;
    hold_many();
    proxy_plan(proxies[0], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    eventually(proxy_done(proxies[0]) && renewed() == HOLDS);
    assert_nothing_failed();
    size_t before = asked(0);
    do {
        all_are_due();
        eventually(renewed() == HOLDS);
    } while (asked(0) == before);
    ask_key(1, "DEL", 3); /* server 0 counts on, and so does the third */
    all_are_due();
    eventually(renewed() == HOLDS);
    for (size_t i = 0; i < HOLDS; i++)
        counted_by(holds[i], 3);
    assert_nothing_failed();
    end_many();
}

/* The rounds fail as soon as no majority can answer any more, and the holds stay. */
static void the_answers_of_two_are_lost(void **state)
{
    (void)state;
    hold_many();
    for (int i = 0; i < 2; i++)
        proxy_plan(proxies[i], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    eventually(record_count(events, "RENEWAL_FAILED") == HOLDS);
    assert_int_equal(renewed(), 0);
    assert_int_equal(stats_of(client).lost, 0);
    for (size_t i = 0; i < HOLDS; i++)
        counted_by(holds[i], 3);
    end_many();
}

/* A round of all that is decided without server 2. */
static void renew_without_2(void)
{
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    eventually(proxy_done(proxies[2]) && renewed() == HOLDS);
}

/* Its answers come after the rounds, and each is noted for its own hold: before the next round. */
static void a_silent_server_is_heard_later(void **state)
{
    (void)state;
    hold_many();
    ask_key(2, "DEL", 5);
    renew_without_2();
    for (size_t i = 0; i < HOLDS; i++)
        assert_int_equal(holds[i]->servers & 0xffff, 7);
    proxy_let_go(proxies[2]);
    renew_without_2();
    for (size_t i = 0; i < HOLDS; i++)
        assert_int_equal(holds[i]->servers & 0xffff, i == 5 ? 3 : 7);
    proxy_let_go(proxies[2]);
    assert_nothing_failed();
    eventually(dlock_extend(holds[5]) == DLOCK_OK && ask_key(2, "EXISTS", 5) == 1);
    end_many();
}

/* Once two answers are lost the third one can renew nothing, and is not awaited. */
static void a_silent_server_that_is_of_no_use(void **state)
{
    (void)state;
    hold_many_with((struct dlock_options){.on_event = record_event, .command_timeout_ms = LONG_MS});
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    for (int i = 0; i < 2; i++)
        proxy_plan(proxies[i], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    eventually(record_count(events, "RENEWAL_FAILED") == HOLDS);
    assert_int_equal(renewed(), 0);
    proxy_let_go(proxies[2]);
    end_many();
}

/* The others wait for a silent server, and the client has lost its connections to the other two. */
static void what_becomes_due_is_sent_once_they_are_connected_again(void **state)
{
    (void)state;
    hold_many_with((struct dlock_options){.command_timeout_ms = LONG_MS}); /* no event wakes it */
    dlock_hold *last = holds[HOLDS - 1];
    holds[HOLDS - 1] = NULL;
    proxy_plan(proxies[1], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    all_are_due();
    eventually(proxy_done(proxies[1]) && proxy_done(proxies[2]));
    long_pause(50); /* server 0's answers have been read */
    assert_int_equal(renewed(), 0);
    holds[HOLDS - 1] = last;
    shorten_keys();
    for (int i = 0; i < 2; i++)
        server_integer(servers[i], "CLIENT KILL TYPE normal");
    long_pause(50); /* the client has seen it */
    are_due(&last, 1, last);
    /* The first of both makes a majority of connections, with the silent one. */
    eventually(ask_key(0, "PTTL", HOLDS - 1) > 1000000 || ask_key(1, "PTTL", HOLDS - 1) > 1000000);
    proxy_let_go(proxies[2]);
    eventually(renewed() == HOLDS);
    end_many();
}

/* ---- Holds whose round is under way ---------------------------------------------------------- */

static void keep_requests(void)
{
    for (int i = 0; i < 3; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, "PEXPIRE", NULL, 0);
    all_are_due();
    for (int i = 0; i < 3; i++)
        eventually(proxy_done(proxies[i]));
}

static void let_requests_go(void)
{
    for (int i = 0; i < 3; i++)
        proxy_let_go(proxies[i]);
}

static void released_while_its_round_is_under_way(void **state)
{
    (void)state;
    hold_many();
    keep_requests();
    release(0);
    holds[0] = acquired(locks[0]); /* a new hold of the same lock */
    let_requests_go();
    eventually(renewed() >= HOLDS - 1 && ask_key(1, "EXISTS", 0) == 1);
    assert_true(dlock_valid(holds[0]));
    assert_status(dlock_extend(holds[0]), OK);
    assert_nothing_failed();
    end_many();
}

static void extended_while_its_round_is_under_way(void **state)
{
    (void)state;
    hold_many();
    keep_requests();
    struct extender extender = {.hold = holds[4]};
    size_t before = asked(0);
    extender_start(&extender);
    long_pause(200);
    assert_int_equal(asked(0), before);
    let_requests_go();
    assert_status(extender_end(&extender), OK);
    eventually(renewed() >= HOLDS && asked(0) == before + 1);
    assert_nothing_failed();
    end_many();
}

/* It becomes due while a call renews it: its turn comes right after that. */
static void due_while_a_call_renews_it(void **state)
{
    (void)state;
    hold_many();
    struct timekeeper *timekeeper = timekeeper_of(holds[0]);
    begin_round_of(holds[0]);
    shorten_keys();
    pthread_mutex_lock(&timekeeper->mutex);
    heap_put(&timekeeper->waiting, &holds[0]->turn, 1);
    pthread_mutex_unlock(&timekeeper->mutex);
    count_anew();
    are_due(&holds[1], 1, holds[1]);
    eventually(renewed() == 1);
    assert_true(ask_key(0, "PTTL", 0) < 1000000);
    assert_null(holds[0]->renewal_sent);
    timekeeper_end_round(timekeeper, holds[0]);
    eventually(renewed() == 2 && ask_key(0, "PTTL", 0) > 1000000);
    assert_nothing_failed();
    end_many();
}

static void they_take_clients(int most)
{
    for (size_t i = 0; i < 3; i++)
        server_text(servers[i], "CONFIG SET maxclients %d", most);
}

/* The next renewal, which is of that hold. */
static void plan_renewal(enum proxy_act act, size_t hold)
{
    for (size_t i = 0; i < 2; i++)
        proxy_plan(proxies[i], act, "PEXPIRE", NULL, 0);
    are_due(&holds[hold], 1, holds[hold]);
    eventually(proxy_done(proxies[0]) && proxy_done(proxies[1]));
}

/* The timekeeper loses its own connection, which is then refused, so it renews on the only one of
 * the pool. There is always a round under way. Once it has its own again, no more begin there. */
static void a_lent_connection_goes_back(void **state)
{
    (void)state;
    hold_many_with((struct dlock_options){.on_event = record_event, .connections_max = 1});
    they_take_clients(1); /* no more than there are */
    plan_renewal(PROXY_CUT_REPLY, 0);
    plan_renewal(PROXY_HOLD_REPLY, 0);
    they_take_clients(1000);
    count_anew();
    size_t due = 1, sent;
    do {
        assert_true(due < HOLDS);
        sent = asked(2);
        are_due(&holds[due], 1, holds[due]);
        due++;
        long_pause(200);
    } while (asked(2) > sent);
    assert_int_equal(renewed(), 0);
    proxy_let_go(proxies[0]);
    proxy_let_go(proxies[1]);
    eventually(renewed() == due);
    release(0); /* on the pool's */
    assert_int_equal(stats_of(client).lost, 0);
    end_many();
}

/* Another key is in the way at that server, so it does not count for the hold. */
static void count_without(size_t server, size_t hold)
{
    char key[64];
    key_of(hold, key);
    server_text(servers[server], "SET %s another", key);
    assert_status(dlock_extend(holds[hold]), OK);
    counted_by(holds[hold], 2);
}

/* The timekeeper loses its own connection to server 0, which is then refused. Hold 0 counts on that
 * server and server 1, and only the connection of the pool is open to both. Hold 1 counts on the
 * others, and is renewed all the same. */
static void hold_where_most_of_their_servers_are(void)
{
    hold_many_with((struct dlock_options){.on_event = record_event, .connections_max = 1});
    count_without(2, 0);
    count_without(0, 1);
    eventually(pool_is_quiet());
    record_clear(events);
    server_text(servers[0], "CONFIG SET maxclients 1"); /* no more than there are */
    proxy_plan(proxies[0], PROXY_CUT_REPLY, "PEXPIRE", NULL, 0);
    are_due(&holds[0], 1, holds[0]);
    eventually(proxy_done(proxies[0]) && record_count(events, "RENEWAL_FAILED") == 1);
    count_anew();
}

static void renewed_where_most_of_its_servers_are(void **state)
{
    (void)state;
    hold_where_most_of_their_servers_are();
    for (size_t due = 0; due < 2; due++) {
        are_due(&holds[due], 1, holds[due]);
        eventually(renewed() == due + 1);
    }
    assert_int_equal(record_count(events, "RENEWAL_FAILED"), 0);
    server_text(servers[0], "CONFIG SET maxclients 1000");
    end_many();
}

/* Server 2 is silent, and the round of hold 1 waits for it. Hold 0 has to wait until that round has
 * ended, which is at half of its own validity. */
static void others_wait_for_a_silent_server_only_shortly(void **state)
{
    (void)state;
    hold_where_most_of_their_servers_are();
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PEXPIRE", NULL, 0);
    are_due(&holds[1], 1, holds[1]);
    eventually(proxy_done(proxies[2]));
    atomic_store(&holds[0]->valid_until_ns, client->now_ns() + SHORT_NS);
    are_due(&holds[0], 1, holds[0]);
    eventually(renewed() == 1);
    assert_int_equal(record_count(events, "RENEWAL_FAILED"), 1);
    assert_int_equal(stats_of(client).lost, 0);
    proxy_let_go(proxies[2]);
    server_text(servers[0], "CONFIG SET maxclients 1000");
    end_many();
}

/* The client is closed after the last release, and the answers come after that, or never. */
static void closed_while_rounds_are_under_way(void **state)
{
    (void)state;
    hold_many();
    keep_requests();
    end_many();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_write_renews_them_all),
        cmocka_unit_test(what_becomes_due_later_does_not_wait),
        cmocka_unit_test(the_scripts_are_flushed),
        cmocka_unit_test(each_is_decided_by_its_own_majority),
        cmocka_unit_test(a_decided_hold_does_not_wait_for_others),
        cmocka_unit_test(a_connection_breaks_in_between),
        cmocka_unit_test(the_answers_of_two_are_lost),
        cmocka_unit_test(a_silent_server_is_heard_later),
        cmocka_unit_test(a_silent_server_that_is_of_no_use),
        cmocka_unit_test(what_becomes_due_is_sent_once_they_are_connected_again),
        cmocka_unit_test(released_while_its_round_is_under_way),
        cmocka_unit_test(extended_while_its_round_is_under_way),
        cmocka_unit_test(due_while_a_call_renews_it),
        cmocka_unit_test(a_lent_connection_goes_back),
        cmocka_unit_test(renewed_where_most_of_its_servers_are),
        cmocka_unit_test(others_wait_for_a_silent_server_only_shortly),
        cmocka_unit_test(closed_while_rounds_are_under_way),
    };
    return cmocka_run_group_tests_name("redlock_many", tests, servers_start, servers_stop);
}
