/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: servers that answer late, lose answers, or do not answer at all. A round does not wait
 * for them, and nothing of it stays on them.
 */
#include "cleanup.h"
#include "redlock_stage.h"

/* ---- Late answers ---------------------------------------------------------------------------- */

/* The timekeeper has a connection of its own. */
static void timekeeper_connects(dlock_client *client, dlock *lock)
{
    while (stats_of(client).renewals == 0) {
        dlock_hold *hold = wanted(lock, (struct dlock_want){.ttl_ms = 900});
        eventually(stats_of(client).renewals > 0 || !dlock_valid(hold));
        dlock_release(hold, NULL);
    }
    eventually(exist() == 0);
}

/* The release follows the late acquire on the same connection, and neither is awaited. */
static void a_late_grant_is_released(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    timekeeper_connects(client, lock);
    uint64_t connects = stats_of(client).connects;
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    eventually(proxy_done(proxies[LATE]));
    assert_status(dlock_release(acquired(lock), NULL), OK);
    assert_false(exists_on(LATE));
    proxy_let_go(proxies[LATE]);
    dlock_hold *hold = acquired(lock); /* it votes again, on the connection that it had */
    eventually(exist() == SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    assert_int_equal(stats_of(client).connects, connects);
    end_behind_proxies(client, lock);
    flush_all();
}

static void a_late_refused_acquire_is_released(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    for (int i = 0; i < 3; i++)
        server_text(servers[i], "SET " LOCK " another PX 600000");
    proxy_plan(proxies[LATE], PROXY_HOLD_REPLY, "NX", NULL, 0);
    assert_status(tried(lock, &hold), BUSY);
    eventually(proxy_done(proxies[LATE]));
    eventually(exist() == 3); /* carried out, though no answer has come */
    proxy_let_go(proxies[LATE]);
    flush_all();
    assert_status(dlock_release(acquired(lock), NULL), OK);
    end_behind_proxies(client, lock);
}

/* What takes an attempt back may reach a server after the next attempt's request, on another
 * connection. It must not find that attempt's name there. */
static void each_attempt_has_a_name_of_its_own(void **state)
{
    (void)state;
    char first[160], second[160];
    struct record *trace = record_new();
    dlock_client *client = client_of_first(
        SERVERS, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    for (int i = 0; i < 3; i++)
        server_text(servers[i], "SET " LOCK " another PX 600000");
    uint64_t attempts = stats_of(client).attempts;
    record_clear(trace);
    struct waiter waiter = {.lock = lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    eventually(stats_of(client).attempts >= attempts + 2);
    for (int i = 0; i < 3; i++) /* each key once: the next attempt may be granted in between */
        server_integer(servers[i], "DEL " LOCK);
    assert_status(waiter_end(&waiter), OK);
    record_line(trace, "NX PX 600000 -> ", 0, first, sizeof first);
    record_line(trace, "NX PX 600000 -> OK", record_count(trace, "NX PX 600000 -> OK") - 1, second,
                sizeof second);
    assert_int_equal(strncmp(first, "SET " LOCK " ", strlen("SET " LOCK " ")), 0);
    *strstr(first, " NX") = *strstr(second, " NX") = '\0';
    assert_string_not_equal(first, second);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    end(client, lock);
    record_free(trace);
}

/* The server loses its scripts after the acquire: the late release is carried out all the same. */
static void a_late_server_has_lost_its_scripts(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[LATE]));
    assert_status(dlock_release(hold, NULL), OK);
    server_text(servers[LATE], "SCRIPT FLUSH");
    proxy_let_go(proxies[LATE]);
    hold = acquired(lock);
    eventually(exists_on(LATE));
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

/* A late answer is shown with its own command. */
static void a_late_answer_is_traced(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        SERVERS, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    eventually(exist() == SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    hold = acquired(lock); /* all earlier answers have been taken */
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    proxy_plan(proxies[LATE], PROXY_HOLD_REPLY, "NX", NULL, 0);
    hold = acquired(lock);
    eventually(proxy_done(proxies[LATE]));
    record_clear(trace);
    proxy_let_go(proxies[LATE]);
    eventually(dlock_extend(hold) == DLOCK_OK && record_count(trace, "NX PX 600000 -> OK") > 0);
    assert_int_equal(record_count(trace, "-> OK"), record_count(trace, "NX PX 600000 -> OK"));
    assert_int_equal(record_count(trace, "NX"), record_count(trace, "NX PX 600000 -> OK"));
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
    record_free(trace);
}

/* ---- No answers ------------------------------------------------------------------------------ */

static void one_is_marked_down_and_comes_back(void **state)
{
    (void)state;
    struct record *events = record_new();
    dlock_client *client = client_of_first(5, (struct dlock_options){.command_timeout_ms = 300,
                                                                     .on_event = record_event,
                                                                     .on_event_arg = events});
    dlock *lock = connected(client);
    server_pause(servers[LATE]);
    eventually(dlock_release(acquired(lock), NULL) == DLOCK_OK &&
               record_count(events, "SERVER_GONE") == 1);
    assert_int_equal(record_count(events, "no answer in time"), 1);
    server_resume(servers[LATE]);
    eventually(dlock_release(acquired(lock), NULL) == DLOCK_OK &&
               record_count(events, "SERVER_BACK") == 1);
    eventually(exist() == 0);
    end(client, lock);
    record_free(events);
}

/* It is decided without the third, whose answer is kept back. It is not said to be slow. */
static void one_is_not_awaited(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    server_text(servers[0], "SET " LOCK " another");
    server_text(servers[1], "SET " LOCK " another");
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "NX", NULL, 0);
    assert_status(tried(lock, &hold), BUSY);
    assert_says(dlock_error(), ": not awaited");
    proxy_let_go(proxies[2]);
    flush_all();
    end_behind_proxies(client, lock);
}

/* The same of a renewal. */
static void one_is_not_awaited_in_a_round(void **state)
{
    (void)state;
    struct record *events = record_new();
    dlock_client *client = client_behind_proxies(
        3,
        (struct dlock_options){.ttl_ms = 3000, .on_event = record_event, .on_event_arg = events});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    proxy_plan(proxies[2], PROXY_HOLD_REPLY, "PTTL", NULL, 0);
    server_refuse_writes(servers[0], true);
    server_refuse_writes(servers[1], true);
    eventually(record_count(events, "RENEWAL_FAILED") > 0);
    assert_true(record_count(events, ": not awaited") > 0);
    assert_int_equal(record_count(events, "no answer in time"), 0);
    server_refuse_writes(servers[0], false);
    server_refuse_writes(servers[1], false);
    proxy_let_go(proxies[2]);
    dlock_release(hold, NULL);
    end_behind_proxies(client, lock);
    flush_all();
    record_free(events);
}

/* Three of five hang: the two that answered keep nothing, and the three carry out the release after
 * the acquire. */
static void three_hang(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(5, (struct dlock_options){.command_timeout_ms = 300});
    dlock *lock = connected(client);
    dlock_hold *hold;
    for (int i = 2; i < 5; i++)
        server_pause(servers[i]);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "2 of 5 servers granted it, and 3 are needed");
    assert_says(dlock_error(), "no answer in time");
    assert_false(exists_on(0) || exists_on(1));
    for (int i = 2; i < 5; i++)
        server_resume(servers[i]);
    eventually(exist() == 0);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    eventually(exist() == 0);
    end(client, lock);
}

/* The connections to three of five break after the acquire was carried out, and before its answers.
 * So no other client could have a majority. The client gives all of it back. */
static void three_lose_their_answers(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    for (int i = 2; i < 5; i++)
        proxy_plan(proxies[i], PROXY_CUT_REPLY, "NX", NULL, 0);
    dlock_hold *hold;
    assert_status(tried(lock, &hold), OK); /* it is sent again at once, under another name */
    for (int i = 2; i < 5; i++)
        assert_true(proxy_done(proxies[i]));
    eventually(exist() == SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(kept_in_the_background(client) == 0);
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

/* One connection breaks, and the server has granted the lock. The release reaches that server on
 * its next connection. */
static void one_that_lost_its_answer_is_released(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    proxy_plan(proxies[LATE], PROXY_CUT_REPLY, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[LATE]) && exist() == SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(!holder_of(lock).held && exist() == 0);
    end_behind_proxies(client, lock);
}

/* The release is lost with its connection. It is sent again on the next one. */
static void a_lost_release_is_sent_again(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    eventually(exist() == SERVERS);
    proxy_plan(proxies[LATE], PROXY_CUT_REQUEST, "DEL", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(proxy_done(proxies[LATE]));
    eventually(!holder_of(lock).held && exist() == 0);
    end_behind_proxies(client, lock);
}

/* The late acquire was sent on another connection than the one that the next call would use. The
 * release follows it all the same. */
static void a_release_uses_the_connection_of_its_acquire(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    eventually(exist() == SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    struct monitor *monitor = monitor_start(servers[LATE]);
    struct other_call first;
    other_call_start(&first, client);
    assert_status(dlock_release(acquired(lock), NULL), OK); /* a second connection to each */
    eventually(monitor_count(monitor, "SET\" \"" LOCK) == 1 && !exists_on(LATE));
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    hold = acquired(lock);
    eventually(proxy_done(proxies[LATE]));
    other_call_end(&first); /* its connection is now the next to be used */
    assert_status(dlock_release(hold, NULL), OK);
    proxy_let_go(proxies[LATE]);
    eventually(monitor_count(monitor, "SET\" \"" LOCK) == 2 && !exists_on(LATE));
    assert_status(dlock_release(first.waiter.hold, NULL), OK);
    monitor_free(monitor);
    other_call_free(&first);
    end_behind_proxies(client, lock);
    flush_all();
}

/* Another call uses the connection of the late acquire. The release goes on at once by another one,
 * and follows the acquire on its own when that call is over. */
static void a_release_follows_its_acquire_on_a_busy_connection(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    struct other_call second;
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[LATE]));
    other_call_start(&second, client);
    assert_status(dlock_release(hold, NULL), OK);
    for (size_t i = 1; i < LATE; i++)
        eventually(!exists_on(i));
    struct monitor *monitor = monitor_start(servers[LATE]);
    proxy_let_go(proxies[LATE]);
    eventually(monitor_count(monitor, "SET\" \"" LOCK) == 1);
    other_call_end(&second);
    eventually(!exists_on(LATE));
    assert_status(dlock_release(second.waiter.hold, NULL), OK);
    eventually(exist() == 0);
    monitor_free(monitor);
    other_call_free(&second);
    end_behind_proxies(client, lock);
    flush_all();
}

/* The grant came too late, and is given back under the same name. That, too, follows the acquire's
 * request to the server that has not carried it out. */
static void a_grant_that_is_given_back_follows_its_acquire(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    struct other_call second;
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[LATE]));
    other_call_start(&second, client);
    cleanup_release_name(hold, 1);
    for (size_t i = 1; i < LATE; i++)
        eventually(!exists_on(i));
    eventually(kept_in_the_background(client) == 0);
    struct monitor *monitor = monitor_start(servers[LATE]);
    proxy_let_go(proxies[LATE]);
    eventually(monitor_count(monitor, "SET\" \"" LOCK) == 1);
    other_call_end(&second);
    eventually(!exists_on(LATE));
    assert_status(dlock_release(hold, NULL), LOST);
    assert_status(dlock_release(second.waiter.hold, NULL), OK);
    eventually(exist() == 0);
    monitor_free(monitor);
    other_call_free(&second);
    end_behind_proxies(client, lock);
    flush_all();
}

/* The connection broke, and the acquire that was sent on it has not arrived. The next connection
 * makes the server end that one, so it never will. */
static void a_lost_acquire_does_not_come_late(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    proxy_plan(proxies[LATE], PROXY_DELAY_REQUEST, "NX", NULL, 0);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    eventually(proxy_done(proxies[LATE]));
    eventually(dlock_release(acquired(lock), NULL) == DLOCK_OK &&
               proxy_requests(proxies[LATE], "KILL") > 0);
    dlock_hold *hold = acquired(lock);
    eventually(exists_on(LATE)); /* it votes again: the kill was carried out before that */
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    proxy_let_go(proxies[LATE]);
    assert_false(exists_on(LATE));
    end_behind_proxies(client, lock);
}

/* ---- Too slow -------------------------------------------------------------------------------- */

static void *let_go_late(void *arg)
{
    (void)arg;
    eventually(proxy_done(proxies[3]) && proxy_done(proxies[4]) && proxy_done(proxies[2]));
    long_pause(150); /* longer than the time to live */
    for (int i = 2; i < 5; i++)
        proxy_let_go(proxies[i]);
    return NULL;
}

static void a_majority_grants_it_too_late(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 100};
    dlock_hold *hold;
    for (int i = 2; i < 5; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    pthread_t thread = thread_start(let_go_late, NULL);
    assert_status(dlock_acquire(lock, &want, &hold), BUSY);
    assert_says(dlock_error(), "longer than the time to live");
    thread_wait(thread);
    eventually(kept_in_the_background(client) == 0);
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

/* ---- Riding commands ------------------------------------------------------------------------- */

static void riding_goes_to_the_first(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_batch *reads = batch_of("GET", "stock"), *last = batch_of("DECR", "stock");
    server_text(servers[0], "SET stock 7");
    dlock_hold *hold = wanted(lock, (struct dlock_want){.reads = reads});
    assert_string_equal(reply_of(reads, 0).text, "7");
    assert_status(dlock_release(hold, last), OK);
    assert_int_equal(reply_of(last, 0).integer, 6);
    assert_int_equal(server_integer(servers[1], "EXISTS stock"), 0);
    dlock_batch_free(reads);
    dlock_batch_free(last);
    end(client, lock);
    flush_all();
}

/* A majority has granted it, and the first server is late: its answers are awaited. */
static void riding_reads_are_awaited(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        SERVERS, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    dlock_batch *reads = batch_of("GET", "stock");
    struct waiter waiter = {.lock = lock, .want = {.reads = reads}};
    server_text(servers[0], "SET stock 7");
    proxy_plan(proxies[0], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    record_clear(trace);
    waiter_start(&waiter);
    eventually(proxy_done(proxies[0]) && record_count(trace, "NX") == SERVERS - 1);
    long_pause(50);
    proxy_let_go(proxies[0]);
    assert_status(waiter_end(&waiter), OK);
    assert_string_equal(reply_of(reads, 0).text, "7");
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_batch_free(reads);
    end_behind_proxies(client, lock);
    record_free(trace);
    flush_all();
}

/* The last commands are carried out before any server frees the lock. */
static void the_lock_is_kept_until_the_last_commands(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_batch *last = batch_of("DECR", "stock");
    dlock_hold *hold = acquired(lock);
    eventually(exist() == SERVERS);
    proxy_plan(proxies[0], PROXY_CUT_REPLY, "DECR", NULL, 0);
    assert_status(dlock_release(hold, last), UNKNOWN);
    assert_says(dlock_error(), "is released, but what was sent with it was not answered");
    assert_string_equal(server_text(servers[0], "GET stock"), "-1");
    eventually(exist() == 0);
    dlock_batch_free(last);
    end_behind_proxies(client, lock);
    flush_all();
}

/* They may still arrive: the lock is left to expire. */
static void last_commands_that_may_arrive_keep_the_lock(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){.ttl_ms = 600000});
    dlock *lock = connected(client);
    dlock_batch *last = batch_of("DECR", "stock");
    server_text(servers[0], "ACL SETUSER default -client|kill");
    dlock_hold *hold = acquired(lock);
    eventually(exist() == SERVERS);
    proxy_plan(proxies[0], PROXY_DELAY_REQUEST, "DECR", NULL, 0);
    assert_status(dlock_release(hold, last), UNKNOWN);
    assert_int_equal(exist(), SERVERS);
    proxy_let_go(proxies[0]);
    assert_string_equal(server_text(servers[0], "GET stock"), "-1");
    server_text(servers[0], "ACL SETUSER default +client|kill");
    dlock_batch_free(last);
    end_behind_proxies(client, lock);
    flush_all();
}

/* The first server is dead: nothing of them was sent, and the answer says so. */
static void the_first_server_is_dead(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(5, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_batch *last = batch_of("DECR", "stock");
    dlock_hold *hold = acquired(lock);
    server_kill(servers[0]);
    assert_status(dlock_release(hold, last), UNREACHABLE);
    assert_says(dlock_error(), "what was to be sent before was not");
    assert_int_equal(reply_of(last, 0).kind, DLOCK_REPLY_NONE);
    for (size_t i = 1; i < 5; i++)
        eventually(!exists_on(i));
    server_restart(servers[0], NULL);
    dlock_batch_free(last);
    end(client, lock);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_grant_is_released),
        cmocka_unit_test(a_late_refused_acquire_is_released),
        cmocka_unit_test(each_attempt_has_a_name_of_its_own),
        cmocka_unit_test(a_late_server_has_lost_its_scripts),
        cmocka_unit_test(a_late_answer_is_traced),
        cmocka_unit_test(one_is_marked_down_and_comes_back),
        cmocka_unit_test(one_is_not_awaited),
        cmocka_unit_test(one_is_not_awaited_in_a_round),
        cmocka_unit_test(three_hang),
        cmocka_unit_test(three_lose_their_answers),
        cmocka_unit_test(one_that_lost_its_answer_is_released),
        cmocka_unit_test(a_lost_release_is_sent_again),
        cmocka_unit_test(a_release_uses_the_connection_of_its_acquire),
        cmocka_unit_test(a_release_follows_its_acquire_on_a_busy_connection),
        cmocka_unit_test(a_grant_that_is_given_back_follows_its_acquire),
        cmocka_unit_test(a_lost_acquire_does_not_come_late),
        cmocka_unit_test(a_majority_grants_it_too_late),
        cmocka_unit_test(riding_goes_to_the_first),
        cmocka_unit_test(riding_reads_are_awaited),
        cmocka_unit_test(the_lock_is_kept_until_the_last_commands),
        cmocka_unit_test(last_commands_that_may_arrive_keep_the_lock),
        cmocka_unit_test(the_first_server_is_dead),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("redlock_late", tests, servers_start, servers_stop);
}
