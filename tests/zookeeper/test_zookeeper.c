/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: the library's core with an engine that is not Redis', on a real ZooKeeper.
 */
#include "zookeeper_stage.h"
#include "server.h"

#include "alike.h"

/* ---- Sentences ------------------------------------------------------------------------------- */

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    const char *servers[] = {"zookeeper://h:2181", zookeeper_url(zookeeper)};
    struct dlock_options options = {
        .size = sizeof options, .engine = dlock_zookeeper(), .servers = servers, .server_count = 1};
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "servers[0] does not begin with zk://");
    servers[0] = "zk:127.0.0.1";
    options.server_count = 1;
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "servers[0] does not begin with zk://");

    client = client_here((struct dlock_options){.ttl_ms = 2000});
    assert_status(dlock_open(client, "watchdog", LOCK, &lock), INVALID);
    assert_string_equal(dlock_error(),
                        "rung 'watchdog' is not one of ZooKeeper; there 'zookeeper' is "
                        "right");
    assert_status(dlock_open(client, "etcd", LOCK, &lock), INVALID);
    assert_says(dlock_error(), "rung 'etcd' is not one of ZooKeeper; there 'zookeeper' is right");
    lock = lock_at(client);
    assert_string_equal(dlock_rung_of(lock)->adds, dlock_rung_find("zookeeper")->adds);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 60000};
    assert_status(dlock_acquire(lock, &want, &hold), INVALID);
    assert_says(dlock_error(), "want.ttl_ms is 60000, but all holds of a client live as long as "
                               "its session, 2000 ms");
    want = (struct dlock_want){.size = sizeof want, .reads = dlock_batch_new()};
    assert_status(dlock_acquire(lock, &want, &hold), UNSUPPORTED);
    dlock_batch_free(want.reads);
    leave(client, lock);

    char nobody[48];
    snprintf(nobody, sizeof nobody, "zk://127.0.0.1:%d", NOBODYS_PORT);
    client = client_at(nobody, (struct dlock_options){.connect_timeout_ms = 50});
    lock = lock_at(client);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "zk://127.0.0.1:1 could not be connected to");
    leave(client, lock);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

static void note_session(struct holder *holder, dlock_client *client)
{
    const clientid_t session = zookeeper_session(client);
    memcpy(holder->noted, &session, sizeof session);
}

/* Another handle takes the session over, and closes it: its holder is told although its time is not
 * over. The process sleeps meanwhile, or it would take its session back. */
static void its_session_ends(void **state)
{
    (void)state;
    struct holder *holder;
    clientid_t session;
    pid_t pid = holder_start(&holder, 2 * PATIENCE_MS, note_session);
    stop_process(pid);
    memcpy(&session, holder->noted, sizeof session);
    zhandle_t *other = zookeeper_here(&session);
    assert_int_equal(zookeeper_close(other), ZOK);
    kill(pid, SIGCONT);
    assert_int_equal(child_wait(pid), 0);
    munmap(holder, sizeof *holder);
}

/* The server is frozen, and nobody says that the session has expired: the client counts itself. */
static void its_server_hangs(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client = client_here(
        (struct dlock_options){.ttl_ms = 1000, .on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    zookeeper_pause(zookeeper);
    eventually(record_count(record, "it could not be renewed in time") == 1);
    assert_false(dlock_valid(hold));
    zookeeper_resume(zookeeper);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* Nobody asks for anything, and ZooKeeper's client would keep the connection for long. */
static void a_hang_is_told(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client = client_here((struct dlock_options){
        .command_timeout_ms = 500, .on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    zookeeper_pause(zookeeper);
    record_clear(record);
    eventually(record_count(record, "a request was not answered in time") > 0);
    zookeeper_resume(zookeeper);
    eventually(record_count(record, "it answers") > 0);
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_stats(client, &stats);
    assert_int_equal(stats.connects, 1);
    leave(client, lock);
    record_free(record);
}

/* Its place is given up at the end of its time. The answer comes later, and the server is well. */
static void the_end_of_a_call_is_no_hang(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *holds = client_here((struct dlock_options){0});
    dlock_client *waits =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *held = lock_at(holds), *lock = lock_at(waits);
    dlock_hold *hold = acquired(held), *none;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .call_max_ms = 300};
    for (int i = 0; i < 5; i++)
        assert_status(dlock_acquire(lock, &want, &none), TIMED_OUT);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    leave(waits, lock);
    assert_int_equal(record_count(record, "SERVER_GONE"), 0);
    leave(holds, held);
    record_free(record);
}

/* The session outlives the server's process, and so does the hold. */
static void its_server_restarts(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    zookeeper_restart(zookeeper);
    eventually(record_count(record, "SERVER_BACK") == 1);
    assert_int_equal(record_count(record, "SERVER_GONE"), 1);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* The server refuses the client, which has seen more than it has, and says nothing of its session.
 * The same client makes the identity anew. */
static void its_server_loses_its_data(void **state)
{
    (void)state;
    char before[96], after[96], others[96];
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock_client *other;
    dlock *lock = lock_at(client), *others_lock;
    dlock_hold *hold = identified(lock, before);
    zookeeper_forget(zookeeper);
    other = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock_hold *next = identified(lock, after);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_status(dlock_release(next, NULL), OK);
    others_lock = lock_at(other);
    hold = identified(others_lock, others);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(strlen(before) > 0);
    assert_string_not_equal(after, before);
    assert_string_equal(after, others);
    leave(other, others_lock);
    leave(client, lock);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* The node that a lost reply told of is found again: there is no second one in the way. */
static void a_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock); /* now there is a connection, and a queue */
    assert_status(dlock_release(hold, NULL), OK);
    lose_reply(proxy, client);
    hold = acquired(lock);
    assert_true(proxy_done(proxy));
    lose_reply(proxy, client);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(proxy);
}

/* Its node holds nothing, and does not keep the client waiting: it is deleted. */
static void an_earlier_session_lives(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), next_owner(lock));
    dlock_hold *hold = acquired(lock);
    assert_int_equal(zookeeper_close(earlier), ZOK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* Nor if the client looks for its node by the owner's name. */
static void an_earlier_one_is_found(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), next_owner(lock));
    lose_reply(proxy, client);
    dlock_hold *hold = acquired(lock);
    assert_true(proxy_done(proxy));
    assert_int_equal(zookeeper_close(earlier), ZOK);
    assert_status(dlock_release(hold, NULL), OK); /* LOST, if it was the other one */
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(proxy);
}

/* Nor does its own node stay when the client leaves the queue. */
static void an_earlier_one_is_found_in_vain(void **state)
{
    (void)state;
    dlock_hold *none;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 500};
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    int number = next_owner(lock);
    dlock_hold *theirs = acquired(others);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), number);
    lose_reply(proxy, client);
    assert_status(dlock_acquire(lock, &want, &none), TIMED_OUT);
    assert_true(proxy_done(proxy));
    eventually(kept_in_the_background(client) == 0);
    assert_int_equal(zookeeper_close(earlier), ZOK);
    assert_status(dlock_release(theirs, NULL), OK);
    theirs = acquired(others); /* nothing of the other client is before it */
    assert_status(dlock_release(theirs, NULL), OK);
    leave(client, lock);
    leave(other, others);
    proxy_free(proxy);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_the_oracle), /* it forks, so it comes first */
        cmocka_unit_test(its_holder_dies),  /* likewise */
        cmocka_unit_test(its_holder_is_frozen),
        cmocka_unit_test(its_session_ends),
        cmocka_unit_test(started_calls),
        cmocka_unit_test(in_vain_and_cancelled),
        cmocka_unit_test(tokens_grow),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(holds_are_given_time),
        cmocka_unit_test(its_server_hangs),
        cmocka_unit_test(a_hang_is_told),
        cmocka_unit_test(the_end_of_a_call_is_no_hang),
        cmocka_unit_test(its_server_restarts),
        cmocka_unit_test(its_server_loses_its_data),
        cmocka_unit_test(nobody_releases),
        cmocka_unit_test(a_release_with_commands),
        cmocka_unit_test(it_is_broken),
        cmocka_unit_test(a_reply_is_lost),
        cmocka_unit_test(an_earlier_session_lives),
        cmocka_unit_test(an_earlier_one_is_found),
        cmocka_unit_test(an_earlier_one_is_found_in_vain),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("zookeeper", tests, set_up, tear_down);
}
