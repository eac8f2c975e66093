/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: which refusals end a waiter, and which are only for now. In whatever order the servers
 * are named.
 */
#include "redlock_stage.h"

#define COUNT 3
#define KEPT 20

/* The servers in another order for each turn: each of them is the first, and the last, once. */
static dlock_client *client_in_turn(int turn)
{
    const char *urls[COUNT];
    for (int i = 0; i < COUNT; i++)
        urls[i] = server_url(servers[(i + turn) % COUNT]);
    return client_of_urls(urls, COUNT, (struct dlock_options){0});
}

static void waits_long(struct waiter *waiter, dlock *lock)
{
    *waiter = (struct waiter){.lock = lock, .want = {.wait_ms = PATIENCE_MS}};
    waiter_start(waiter);
}

static void acquires(struct waiter *waiter)
{
    if (waiter_end(waiter) != DLOCK_OK)
        failed("it is not acquired: %s", waiter->error);
    assert_status(dlock_release(waiter->hold, NULL), OK);
}

/* It has all the time that it wants, and does not use it. */
static void is_refused_for_good(dlock *lock, const char *why)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    dlock_hold *hold;
    assert_status(dlock_acquire(lock, &want, &hold), REFUSED);
    assert_says(dlock_error(), why);
    assert_null(strstr(dlock_error(), "was not acquired within"));
}

static void make_replica(size_t server, bool replica)
{
    if (replica)
        server_text(servers[server], "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    else
        server_text(servers[server], "REPLICAOF NO ONE");
}

static void permit_set(size_t server, bool permitted)
{
    server_text(servers[server], "ACL SETUSER default %s", permitted ? "+@all" : "-set");
}

/* ---- None is connected ----------------------------------------------------------------------- */

static void two_restart_and_one_is_a_replica(void **state)
{
    (void)state;
    make_replica(2, true);
    for (int turn = 0; turn < COUNT; turn++) {
        dlock_client *client = client_in_turn(turn);
        dlock *lock = redlock_of(client);
        struct waiter waiter;
        server_kill(servers[0]);
        server_kill(servers[1]);
        waits_long(&waiter, lock);
        eventually(stats_of(client).connects_failed >= COUNT);
        server_restart(servers[0], NULL);
        server_restart(servers[1], NULL);
        acquires(&waiter);
        end(client, lock);
    }
    make_replica(2, false);
}

static void two_are_replicas(void **state)
{
    (void)state;
    make_replica(0, true);
    make_replica(1, true);
    server_kill(servers[2]);
    for (int turn = 0; turn < COUNT; turn++) {
        dlock_client *client = client_in_turn(turn);
        dlock *lock = redlock_of(client);
        is_refused_for_good(lock, "it is a replica");
        end(client, lock);
    }
    server_restart(servers[2], NULL);
    make_replica(0, false);
    make_replica(1, false);
}

/* A script runs that ends only when it is killed. */
static redisContext *keep_busy(struct server *one)
{
    int done = 0;
    server_text(one, "CONFIG SET busy-reply-threshold 1");
    redisContext *other = redisConnect("127.0.0.1", server_port(one));
    redisAppendCommand(other, "EVAL %s 0", "while true do end");
    while (done == 0)
        assert_int_equal(redisBufferWrite(other, &done), REDIS_OK);
    eventually(server_ask(one, "PING")->type == REDIS_REPLY_ERROR);
    return other;
}

static void let_go(struct server *one, redisContext *other)
{
    server_text(one, "SCRIPT KILL");
    redisFree(other);
    eventually(server_ask(one, "PING")->type != REDIS_REPLY_ERROR);
    server_text(one, "CONFIG SET busy-reply-threshold 5000");
}

static void all_are_busy(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(COUNT, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    redisContext *others[COUNT];
    struct waiter waiter;
    for (int i = 0; i < COUNT; i++)
        others[i] = keep_busy(servers[i]);
    waits_long(&waiter, lock);
    eventually(stats_of(client).connects_failed >= COUNT);
    for (int i = 0; i < COUNT; i++)
        let_go(servers[i], others[i]);
    acquires(&waiter);
    end(client, lock);
}

/* While a server refuses what it is to do later, it is asked about one of these at a time. */
static void one_is_busy_and_much_is_kept_for_it(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client = client_of_first(
        COUNT, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    record_clear(trace);
    redisContext *other = keep_busy(servers[2]);
    for (int i = 0; i < KEPT; i++)
        assert_status(dlock_release(acquired(lock), NULL), OK);
    eventually(record_count(trace, "had the lock") >= (size_t)COUNT * KEPT);
    const uint64_t before = stats_of(client).commands;
    eventually(stats_of(client).commands > before);
    assert_in_range(stats_of(client).commands - before, 1, KEPT / 2);
    record_clear(trace);
    let_go(servers[2], other);
    eventually(record_count(trace, "-> (integer) 0") >= KEPT);
    end(client, lock);
    record_free(trace);
}

/* So is one alone, when it is asked for another database. */
static void one_alone_is_busy(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d/1", server_port(servers[0]));
    dlock_client *client = client_of_urls((const char *const[]){url}, 1, (struct dlock_options){0});
    dlock *lock = lock_of(client, "watchdog", LOCK);
    struct waiter waiter;
    redisContext *other = keep_busy(servers[0]);
    waits_long(&waiter, lock);
    eventually(stats_of(client).connects_failed >= 1);
    let_go(servers[0], other);
    acquires(&waiter);
    end(client, lock);
}

/* ---- Some answer ----------------------------------------------------------------------------- */

static void one_refuses_for_now_and_one_for_good(void **state)
{
    (void)state;
    permit_set(2, false);
    for (int turn = 0; turn < COUNT; turn++) {
        dlock_client *client = client_in_turn(turn);
        dlock *lock = redlock_of(client);
        struct waiter waiter;
        server_refuse_writes(servers[0], true);
        waits_long(&waiter, lock);
        eventually(stats_of(client).attempts >= 2 || waiter.over);
        server_refuse_writes(servers[0], false);
        acquires(&waiter);
        end(client, lock);
    }
    permit_set(2, true);
}

/* In whatever order the servers are named. */
static void are_refused_for_good(void)
{
    for (int turn = 0; turn < COUNT; turn++) {
        dlock_client *client = client_in_turn(turn);
        dlock *lock = redlock_of(client);
        is_refused_for_good(lock, "NOPERM");
        end(client, lock);
    }
}

static void two_refuse_for_good(void **state)
{
    (void)state;
    permit_set(0, false);
    permit_set(1, false);
    are_refused_for_good();
    permit_set(0, true);
    permit_set(1, true);
}

/* One of them does not even let it connect. */
static void a_replica_and_one_that_refuses_for_good(void **state)
{
    (void)state;
    permit_set(0, false);
    make_replica(1, true);
    are_refused_for_good();
    permit_set(0, true);
    make_replica(1, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_restart_and_one_is_a_replica),
        cmocka_unit_test(two_are_replicas),
        cmocka_unit_test(all_are_busy),
        cmocka_unit_test(one_is_busy_and_much_is_kept_for_it),
        cmocka_unit_test(one_alone_is_busy),
        cmocka_unit_test(one_refuses_for_now_and_one_for_good),
        cmocka_unit_test(two_refuse_for_good),
        cmocka_unit_test(a_replica_and_one_that_refuses_for_good),
    };
    return cmocka_run_group_tests_name("redlock_refused", tests, servers_start, servers_stop);
}
