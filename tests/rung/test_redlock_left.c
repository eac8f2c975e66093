/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: what an attempt, a renewal or a release leaves to do on a server, and what becomes of
 * it.
 */
#include "redlock_stage.h"

#include <stdio.h>

/* ---- Kept releases --------------------------------------------------------------------------- */

/* A server that was not asked for the lock has nothing of it: no release is kept for it. */
static void only_what_was_asked_is_kept(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_of_first(
        SERVERS, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    server_kill(servers[LATE]);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    for (int i = 0; i < 20; i++)
        assert_status(dlock_release(acquired(lock), NULL), OK);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, SERVERS - 1); /* so the late answers to earlier releases have come */
    server_restart(servers[LATE], NULL);
    record_clear(trace);
    counted_by(hold, SERVERS);
    assert_true(record_count(trace, "EVAL") > 0);
    assert_true(record_count(trace, "had the lock") <= 1);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(record_count(trace, "had the lock") >= SERVERS / 2 + 1); /* so a release is shown */
    end(client, lock);
    record_free(trace);
}

/* A release that a server refuses for now is sent again. late: its answer comes after the call. */
static void a_refused_release(bool late)
{
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        SERVERS, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, SERVERS);
    record_clear(trace);
    char refused[HOLD_ID_MAX + 32]; /* a release; a renewal has the time to live behind the id */
    snprintf(refused, sizeof refused, "%s -> (error) NOREPLICAS", hold->id);
    server_refuse_writes(servers[LATE], true);
    const int first = late ? LATE : 0, last = late ? LATE : 2;
    for (int i = first; i <= last; i++)
        proxy_plan(proxies[i], PROXY_HOLD_REPLY, "DEL", NULL, 0);
    struct releaser releaser = {.hold = hold};
    releaser_start(&releaser);
    if (late)
        assert_int_equal(releaser_end(&releaser), DLOCK_OK);
    else
        eventually(record_count(trace, refused) == 1); /* and a majority has not answered */
    for (int i = first; i <= last; i++) {
        eventually(proxy_done(proxies[i]));
        proxy_let_go(proxies[i]);
    }
    if (!late)
        assert_int_equal(releaser_end(&releaser), DLOCK_OK);
    for (int i = 0; i < SERVERS; i++)
        eventually(exists_on((size_t)i) == (i == LATE));
    assert_false(holder_of(lock).held);
    server_refuse_writes(servers[LATE], false);
    eventually(!holder_of(lock).held && exist() == 0);
    end_behind_proxies(client, lock);
    record_free(trace);
}

static void a_refused_release_is_sent_again(void **state)
{
    (void)state;
    a_refused_release(false);
}

static void a_late_refused_release_is_sent_again(void **state)
{
    (void)state;
    a_refused_release(true);
}

/* The client makes no other call: its timekeeper sends what the release left. */
static void an_idle_client_sends_what_it_keeps(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, SERVERS);
    server_refuse_writes(servers[0], true);
    proxy_plan(proxies[LATE], PROXY_CUT_REQUEST, "DEL", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(proxy_done(proxies[LATE]));
    server_refuse_writes(servers[0], false);
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

/* ---- Which connection ------------------------------------------------------------------------ */

static struct other_call *_Atomic blocker; /* has the first connection */
static pthread_t acquires;
static _Atomic bool granted;

static void note_granted(void *arg, const char *rung, const char *point)
{
    (void)arg;
    (void)rung;
    granted |= blocker != NULL && strcmp(point, "acquired") == 0;
}

/* After the grant the acquire's connection is idle. Then the blocker's becomes the next to be used,
 * and the grant has come too late. */
static int64_t late_clock(void)
{
    struct other_call *ends = blocker;
    if (!pthread_equal(pthread_self(), acquires) || !granted)
        return boot_ns();
    granted = false;
    blocker = NULL;
    other_call_end(ends);
    return boot_ns() + 20LL * PATIENCE_MS * NS_PER_MS;
}

static void a_cleanup_uses_the_connection_of_its_acquire(void **state)
{
    (void)state;
    dlock_client *client =
        client_behind_proxies(SERVERS, (struct dlock_options){.on_point = note_granted});
    dlock *lock = connected(client);
    struct other_call first;
    other_call_start(&first, client);
    dlock_hold *hold = acquired(lock); /* a second connection to each */
    counted_by(hold, SERVERS);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    struct monitor *monitor = monitor_start(servers[LATE]);
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    blocker = &first;
    acquires = pthread_self();
    pthread_mutex_lock(&client->timekeeper.mutex); /* its thread may be reading the clock */
    client->now_ns = late_clock;
    pthread_mutex_unlock(&client->timekeeper.mutex);
    assert_status(tried(lock, &hold), BUSY);
    assert_says(dlock_error(), "longer than the time to live");
    eventually(proxy_done(proxies[LATE]));
    eventually(kept_in_the_background(client) == 0);
    proxy_let_go(proxies[LATE]);
    eventually(monitor_count(monitor, "SET\" \"" LOCK) == 1 && exist() == 0);
    assert_status(dlock_release(first.waiter.hold, NULL), OK);
    monitor_free(monitor);
    other_call_free(&first);
    end_behind_proxies(client, lock);
    flush_all();
}

static struct dlock_options brief(void)
{
    return (struct dlock_options){.command_timeout_ms = 500, .connect_timeout_ms = PATIENCE_MS};
}

/* The key is set again on a server, and the request is still under way when the hold is released.
 * The release has the server end its connection first. */
static void what_is_set_again_does_not_come_after_the_release(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, brief());
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 9000};
    assert_status(dlock_release(hold, NULL), OK);
    hold = wanted(lock, want);
    counted_by(hold, 3);
    proxy_plan(proxies[1], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    server_text(servers[1], "FLUSHALL");
    eventually(hold->quorum->again == 2 && proxy_done(proxies[1])); /* by the timekeeper */
    struct monitor *monitor = monitor_start(servers[1]);
    assert_status(dlock_release(hold, NULL), OK);   /* of a majority */
    eventually(monitor_count(monitor, "EVAL") > 0); /* and of this server */
    proxy_let_go(proxies[1]); /* the proxy's server has closed that connection */
    counted_by(hold = acquired(lock), 3);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    assert_int_equal(monitor_count(monitor, "PX\" \"9000"), 0);
    monitor_free(monitor);
    end_behind_proxies(client, lock);
    flush_all();
}

/* ---- Lost answers ---------------------------------------------------------------------------- */

/* The request of an acquire is lost with its connection. The server gets the key all the same, and
 * counts. */
static void a_lost_acquire_is_made_up_for(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, brief());
    dlock *lock = connected(client);
    proxy_plan(proxies[2], PROXY_CUT_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]));
    counted_by(hold, 3);
    assert_true(exists_on(2));
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
}

/* The connection of an acquire broke. The next one, which was to tell the server so, breaks as
 * well, before the server has heard it. */
static void a_lost_acquire_does_not_come_after_the_release(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        3, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    proxy_plan(proxies[2], PROXY_DELAY_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]));
    char released[HOLD_ID_MAX + 32];
    snprintf(released, sizeof released, "%s -> (integer) 0", hold->id);
    proxy_plan(proxies[2], PROXY_CUT_REQUEST, "KILL", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(proxy_done(proxies[2]) && record_count(trace, released) == 1);
    proxy_let_go(proxies[2]);
    assert_false(exists_on(2));
    end_behind_proxies(client, lock);
    record_free(trace);
    flush_all();
}

/* A connection to three servers that no call uses. */
static struct redis *own_connection(dlock_client *client)
{
    struct redis *redis = redis_new(&redis_of(client)->config);
    must(redis != NULL);
    return redis;
}

static bool is_connected(struct redis *redis)
{
    return redis_ready(redis, mono_deadline_ns(PATIENCE_MS), -1) == DLOCK_OK &&
           redis_count_up(redis) == 3;
}

/* All that it was to do first is answered. */
static bool has_answers(struct redis *redis)
{
    return is_connected(redis) && (redis_catch_up(redis), !redis_owes(redis, 2));
}

/* Server 2's part breaks while an answer is missing. */
static void lose_answer(struct redis *redis)
{
    proxy_plan(proxies[2], PROXY_CUT_REPLY, "PING", NULL, 0);
    redis_begin(redis);
    redis_append(redis, 2, 1, (const char *const[]){"PING"}, NULL);
    assert_status(redis_gather(redis, INT64_MAX, -1), UNKNOWN);
}

/* Two connections broke. Of the first one the server says that it cannot end it now, so it is asked
 * again. The second one has been ended. */
static void each_broken_connection_is_ended(void **state)
{
    (void)state;
    static const char answers[] = "-BUSY a script runs\r\n:0\r\n";
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        3, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    struct redis *redis = own_connection(client);
    char first[40];
    eventually(is_connected(redis));
    snprintf(first, sizeof first, "CLIENT KILL ID %lld ", redis_connection(redis, 2).id);
    lose_answer(redis);
    proxy_plan(proxies[2], PROXY_CUT_REPLY, "KILL", NULL, 0);
    eventually(is_connected(redis));
    eventually(proxy_done(proxies[2]));
    proxy_plan(proxies[2], PROXY_REPLACE_REPLY, "KILL", answers, strlen(answers));
    eventually(has_answers(redis) && proxy_done(proxies[2]));
    record_clear(trace);
    server_integer(servers[2], "CLIENT KILL TYPE normal");
    eventually(has_answers(redis) && record_count(trace, "CLIENT KILL ID") > 0);
    assert_int_equal(record_count(trace, "CLIENT KILL ID"), 1);
    assert_int_equal(record_count(trace, first), 1);
    redis_free(redis);
    end_behind_proxies(client, NULL);
    record_free(trace);
}

/* Each refusal adds a line to the server's ACL LOG. */
static void a_server_that_ends_no_connection_is_asked_once(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_behind_proxies(
        3, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    struct redis *redis = own_connection(client);
    server_text(servers[2], "ACL SETUSER default -client|kill");
    for (int i = 0; i < 3; i++) {
        eventually(has_answers(redis));
        lose_answer(redis);
    }
    eventually(has_answers(redis));
    assert_int_equal(record_count(trace, "NOPERM"), 1);
    assert_int_equal(record_count(trace, "CLIENT KILL ID"), 1);
    server_text(servers[2], "ACL SETUSER default +client|kill");
    redis_free(redis);
    end_behind_proxies(client, NULL);
    record_free(trace);
}

/* The acquire came late, and its key was lost before anyone saw it. A renewal on the same
 * connection shows that, and needs no CLIENT KILL. */
static void a_request_that_was_followed_is_over(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    proxy_plan(proxies[2], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]));
    assert_int_equal(hold->servers, 3 + (4 << 16));
    proxy_let_go(proxies[2]);
    eventually(exists_on(2));
    server_text(servers[2], "FLUSHALL");
    server_text(servers[2], "ACL SETUSER default -client|kill");
    counted_by(hold, 3);
    assert_int_equal(hold->servers, 7);
    server_text(servers[2], "ACL SETUSER default +client|kill");
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

/* The server has ended, and with it the connection of the acquire. */
static void a_request_to_an_earlier_process_is_over(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) /* so no later connection has the id of the acquire's */
        redisFree(redisConnect("127.0.0.1", server_port(servers[2])));
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    proxy_plan(proxies[2], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = acquired(lock);
    eventually(proxy_done(proxies[2]));
    assert_int_equal(hold->servers, 3 + (4 << 16));
    server_kill(servers[2]);
    server_restart(servers[2], NULL);
    counted_by(hold, 3);
    assert_int_equal(hold->servers, 7);
    assert_true(exists_on(2));
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    end_behind_proxies(client, lock);
}

/* The same for a request that sets the key again. */
static void what_is_lost_is_set_again_once_more(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, brief());
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    proxy_plan(proxies[2], PROXY_CUT_REQUEST, "NX", NULL, 0);
    server_text(servers[2], "FLUSHALL");
    eventually(dlock_extend(hold) == DLOCK_OK && proxy_done(proxies[2]));
    assert_false(exists_on(2));
    counted_by(hold, 3);
    assert_true(exists_on(2));
    assert_int_equal(hold->quorum->again, 0);
    assert_status(dlock_release(hold, NULL), OK);
    end_behind_proxies(client, lock);
}

/* An acquire is on its way for too long, on a connection that another call uses. The timekeeper has
 * the server end that connection, and sets the key. */
static void an_overdue_acquire_is_ended(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, brief());
    dlock *lock = connected(client);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 9000};
    proxy_plan(proxies[2], PROXY_HOLD_REQUEST, "NX", NULL, 0);
    dlock_hold *hold = wanted(lock, want);
    eventually(proxy_done(proxies[2]));
    eventually(hold->servers == 7); /* by the timekeeper */
    struct monitor *monitor = monitor_start(servers[2]);
    proxy_let_go(proxies[2]);
    assert_status(dlock_extend(hold), OK);
    assert_int_equal(hold->servers, 7);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    assert_int_equal(monitor_count(monitor, "NX"), 0);
    monitor_free(monitor);
    end_behind_proxies(client, lock);
}

/* ---- Attempts -------------------------------------------------------------------------------- */

/* An attempt was refused, and what takes it back is late on one server. A later attempt of the same
 * call acquires the lock by another connection. The late release finds no key of its own name. */
static void a_late_take_back_meets_a_later_attempt(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(SERVERS, (struct dlock_options){0});
    dlock *lock = connected(client);
    struct other_call first;
    for (int i = 0; i < 3; i++)
        server_text(servers[i], "SET " LOCK " another PX 600000");
    struct monitor *monitor = monitor_start(servers[LATE]);
    proxy_plan(proxies[LATE], PROXY_HOLD_REQUEST, "NX", NULL, 0); /* and what follows it */
    struct waiter waiter = {.lock = lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    eventually(proxy_done(proxies[LATE]));
    other_call_start(&first, client); /* while the call waits, this takes its connection */
    for (int i = 0; i < 3; i++)
        server_integer(servers[i], "DEL " LOCK);
    assert_status(waiter_end(&waiter), OK);
    eventually(exists_on(LATE) || waiter.hold->servers >> 16 != 0);
    size_t before = monitor_count(monitor, "EVAL");
    proxy_let_go(proxies[LATE]);
    eventually(monitor_count(monitor, "EVAL") > before);
    eventually(exists_on(LATE));
    other_call_end(&first);
    assert_true(exists_on(LATE));
    assert_status(dlock_release(first.waiter.hold, NULL), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    monitor_free(monitor);
    other_call_free(&first);
    end_behind_proxies(client, lock);
    flush_all();
}

/* Two of three servers, not the first. */
static void cut_most_replies_to(const char *word)
{
    for (int i = 1; i < 3; i++)
        proxy_plan(proxies[i], PROXY_CUT_REPLY, word, NULL, 0);
}

static bool most_replies_are_cut(void)
{
    return proxy_done(proxies[1]) && proxy_done(proxies[2]);
}

/* After lost answers an attempt is taken back. The caller's reads go with acquires only. */
static void reads_go_with_acquires(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_batch *reads = batch_of("GET", "stock");
    cut_most_replies_to("NX");
    dlock_hold *hold = wanted(lock, (struct dlock_want){.reads = reads});
    assert_true(most_replies_are_cut());
    assert_int_equal(reply_of(reads, 0).kind, DLOCK_REPLY_NIL);
    assert_int_equal(proxy_requests(proxies[0], "stock"), 2); /* each attempt read once */
    assert_status(dlock_release(hold, NULL), OK);
    dlock_batch_free(reads);
    end_behind_proxies(client, lock);
    flush_all();
}

/* The last commands are answered, and then most answers to the release are lost. It is sent again,
 * and nothing of the last commands is uncertain. */
static void answered_last_commands_are_certain(void **state)
{
    (void)state;
    dlock_client *client = client_behind_proxies(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_batch *last = batch_of("DECR", "stock");
    dlock_hold *hold = acquired(lock);
    cut_most_replies_to("DEL");
    assert_status(dlock_release(hold, last), OK);
    assert_true(most_replies_are_cut());
    assert_int_equal(reply_of(last, 0).integer, -1);
    eventually(exist() == 0);
    dlock_batch_free(last);
    end_behind_proxies(client, lock);
    flush_all();
}

/* A majority has lost the key, and the others would keep every other client out. noticed: by a
 * renewal. */
static void release_lost_hold(bool noticed)
{
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_text(servers[0], "FLUSHALL");
    server_text(servers[1], "FLUSHALL");
    if (noticed)
        assert_status(dlock_extend(hold), LOST);
    assert_int_equal(exist(), 1);
    assert_status(dlock_release(hold, NULL), LOST);
    eventually(exist() == 0);
    end(client, lock);
}

static void a_lost_hold_is_released_where_its_key_is(void **state)
{
    (void)state;
    release_lost_hold(true);
}

static void a_release_finds_that_the_hold_was_lost(void **state)
{
    (void)state;
    release_lost_hold(false);
}

/* One of three has released it: that cannot be taken back. The others may have it, and with them a
 * majority. */
static void a_release_of_too_few_is_not_ok(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_kill(servers[1]);
    server_kill(servers[2]);
    assert_status(dlock_release(hold, NULL), UNKNOWN);
    assert_says(dlock_error(), "released on 1 of 3 servers; a majority may still have it");
    server_restart(servers[1], NULL);
    server_restart(servers[2], NULL);
    eventually(kept_in_the_background(client) == 0);
    end(client, lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_was_asked_is_kept),
        cmocka_unit_test(a_refused_release_is_sent_again),
        cmocka_unit_test(a_late_refused_release_is_sent_again),
        cmocka_unit_test(an_idle_client_sends_what_it_keeps),
        cmocka_unit_test(a_cleanup_uses_the_connection_of_its_acquire),
        cmocka_unit_test(what_is_set_again_does_not_come_after_the_release),
        cmocka_unit_test(a_lost_acquire_is_made_up_for),
        cmocka_unit_test(a_lost_acquire_does_not_come_after_the_release),
        cmocka_unit_test(each_broken_connection_is_ended),
        cmocka_unit_test(a_server_that_ends_no_connection_is_asked_once),
        cmocka_unit_test(a_request_that_was_followed_is_over),
        cmocka_unit_test(a_request_to_an_earlier_process_is_over),
        cmocka_unit_test(what_is_lost_is_set_again_once_more),
        cmocka_unit_test(an_overdue_acquire_is_ended),
        cmocka_unit_test(a_lost_hold_is_released_where_its_key_is),
        cmocka_unit_test(a_release_finds_that_the_hold_was_lost),
        cmocka_unit_test(a_release_of_too_few_is_not_ok),
        cmocka_unit_test(a_late_take_back_meets_a_later_attempt),
        cmocka_unit_test(reads_go_with_acquires),
        cmocka_unit_test(answered_last_commands_are_certain),
    };
    return cmocka_run_group_tests_name("redlock_left", tests, servers_start, servers_stop);
}
