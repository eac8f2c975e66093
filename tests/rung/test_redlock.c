/* SPDX-License-Identifier: Apache-2.0
 *
 * `redlock`: who grants the lock, what a refused acquire leaves, and which servers are accepted.
 */
#include "redlock_stage.h"
#include "validate.h"
#include "waiter.h"

#include <unistd.h>

/* ---- The oracle ------------------------------------------------------------------------------ */

static void oracle_over(size_t count)
{
    const char *urls[SERVERS + 1] = {NULL};
    for (size_t i = 0; i < count; i++)
        urls[i] = server_url(servers[i]);
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &rung_redlock,
        .servers = urls,
        .expected = HOLDS,
        .processes = 2,
        .threads = 3,
        .rounds = 8,
    }));
}

static void oracle_of_three(void **state)
{
    (void)state;
    oracle_over(3);
}

static void oracle_of_five(void **state)
{
    (void)state;
    oracle_over(5);
}

static void oracle_with_two_dead(void **state)
{
    (void)state;
    server_kill(servers[0]);
    server_kill(servers[3]);
    oracle_over(5);
    server_restart(servers[0], NULL);
    server_restart(servers[3], NULL);
}

static void oracle_with_one_that_hangs(void **state)
{
    (void)state;
    server_pause(servers[1]);
    oracle_over(3);
    server_resume(servers[1]);
    flush_all();
}

/* ---- A majority of all ----------------------------------------------------------------------- */

static void all_are_asked(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(5, (struct dlock_options){.ttl_ms = 10000});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    eventually(exist() == 5);
    assert_true(dlock_remaining_ms(hold) <= 10000 - 100 - 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    end(client, lock);
}

static void two_of_five_are_dead(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(5, (struct dlock_options){0});
    dlock *lock = connected(client);
    server_kill(servers[0]);
    server_kill(servers[4]);
    dlock_hold *hold = acquired(lock);
    for (int i = 1; i < 4; i++)
        assert_true(exists_on((size_t)i));
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK); /* all three had to answer */
    for (int i = 1; i < 4; i++)
        assert_false(exists_on((size_t)i));
    server_restart(servers[0], NULL);
    server_restart(servers[4], NULL);
    end(client, lock);
}

/* Three of five: a majority of those that can be reached is none of all. They are not even asked.
 */
static void three_of_five_are_dead(void **state)
{
    (void)state;
    struct record *trace = record_new();
    dlock_client *client =
        client_of_first(5, (struct dlock_options){.on_trace = record_trace, .on_trace_arg = trace});
    dlock *lock = connected(client);
    dlock_hold *hold;
    for (int i = 2; i < 5; i++)
        server_kill(servers[i]);
    record_clear(trace);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_int_equal(record_count(trace, "NX"), 0);
    assert_says(dlock_error(), "3 are needed");
    for (int i = 0; i < 5; i++)
        assert_says(dlock_error(), server_url(servers[i]));
    assert_false(exists_on(0) || exists_on(1));
    server_restart(servers[3], NULL);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    assert_true(record_count(trace, "NX") > 0);
    server_restart(servers[2], NULL);
    server_restart(servers[4], NULL);
    end(client, lock);
    record_free(trace);
}

static void another_has_the_majority(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(5, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    for (int i = 0; i < 3; i++)
        server_text(servers[i], "SET " LOCK " another PX 600000");
    assert_status(tried(lock, &hold), BUSY);
    assert_says(dlock_error(), "of 5 servers granted it, and 3 are needed");
    assert_says(dlock_error(), "held by 'another'");
    eventually(exist() == 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(server_text(servers[i], "GET " LOCK), "another");
    server_integer(servers[0], "DEL " LOCK);
    assert_status(tried(lock, &hold), OK);
    eventually(exist() == 5);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 2);
    flush_all();
    end(client, lock);
}

/* Two are dead, and one of the other three says no: two of three is not enough. */
static void a_split_vote_leaves_nothing(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(5, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    server_kill(servers[3]);
    server_kill(servers[4]);
    server_text(servers[0], "SET " LOCK " another PX 600000");
    assert_status(tried(lock, &hold), BUSY);
    eventually(!exists_on(1) && !exists_on(2));
    server_restart(servers[3], NULL);
    server_restart(servers[4], NULL);
    flush_all();
    end(client, lock);
}

static int64_t pause_of(dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    int64_t pause_ms = lock->queue.again_ms;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return pause_ms;
}

static void a_waiter_pauses_at_random(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    for (int i = 0; i < 3; i++)
        server_text(servers[i], "SET " LOCK " another PX 600000");
    struct waiter waiter = {.lock = lock, .want = {.wait_ms = PATIENCE_MS}};
    waiter_start(&waiter);
    eventually(pause_of(lock) != 0);
    int64_t first_ms = pause_of(lock);
    assert_in_range(first_ms, 50, 200);
    eventually(pause_of(lock) != first_ms);
    assert_in_range(pause_of(lock), 50, 200);
    flush_all();
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    end(client, lock);
}

static void errors_are_no_votes(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold;
    server_refuse_writes(servers[0], true);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    server_refuse_writes(servers[1], true);
    assert_status(tried(lock, &hold), REFUSED);
    eventually(!exists_on(2));
    server_refuse_writes(servers[0], false);
    server_refuse_writes(servers[1], false);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    end(client, lock);
}

/* ---- Which servers --------------------------------------------------------------------------- */

static void number_of_servers(void **state)
{
    (void)state;
    static const size_t wrong[] = {1, 2, 4};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        dlock_client *client = client_of_first(wrong[i], (struct dlock_options){0});
        dlock *lock;
        assert_status(dlock_open_ops(client, &rung_redlock, LOCK, &lock), INVALID);
        assert_says(dlock_error(), "odd number of servers, 3 to 15");
        dlock_client_close(client);
    }
}

static void refuses(const char *third, const char *part, const char *other)
{
    const char *urls[] = {server_url(servers[0]), server_url(servers[1]), third};
    dlock_client *client = client_of_urls(urls, 3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    struct dlock_holder holder = {.size = sizeof holder};
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    dlock_hold *hold;
    assert_status(dlock_acquire(lock, &want, &hold), REFUSED);
    assert_says(dlock_error(), part);
    assert_says(dlock_error(), third);
    assert_says(dlock_error(), other);
    assert_false(exists_on(0) || exists_on(1));
    assert_status(dlock_inspect(lock, &holder), REFUSED);
    assert_int_equal(stats_of(client).connections_refused, 1); /* reported once */
    end(client, lock);
}

static void the_same_server_twice(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "redis://localhost:%d", server_port(servers[0]));
    refuses(url, "are the same server", server_url(servers[0]));
    snprintf(url, sizeof url, "unix:%s", server_socket(servers[1]));
    refuses(url, "are the same server", server_url(servers[1]));
}

/* It counts as one that does not answer: the other two are enough, and both are needed. */
static void has_no_vote(struct server *third, const char *why)
{
    const char *urls[] = {server_url(servers[0]), server_url(servers[1]), server_url(third)};
    struct record *events = record_new();
    dlock_client *client = client_of_urls(
        urls, 3, (struct dlock_options){.on_event = record_event, .on_event_arg = events});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    assert_true(exists_on(0) && exists_on(1));
    assert_int_equal(hold->servers, 3);
    assert_true(holder_of(lock).held);
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(record_count(events, why) > 0);
    server_kill(servers[1]);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "2 are needed");
    assert_says(dlock_error(), "it is a");
    server_restart(servers[1], NULL);
    end(client, lock);
    record_free(events);
    server_free(third);
}

static void a_replica(void **state)
{
    (void)state;
    char port[16];
    snprintf(port, sizeof port, "%d", server_port(servers[0]));
    has_no_vote(server_start((const char *const[]){"--replicaof", "127.0.0.1", port, NULL}),
                "it is a replica");
}

static void a_node_of_a_cluster(void **state)
{
    (void)state;
    has_no_vote(server_start((const char *const[]){"--cluster-enabled", "yes", NULL}),
                "it is a node of a cluster");
}

/* One of the servers becomes a replica, and later a master again. The lock goes on. */
static void one_becomes_a_replica(void **state)
{
    (void)state;
    dlock_client *client = client_of_first(3, (struct dlock_options){0});
    dlock *lock = connected(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    server_text(servers[2], "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    for (int i = 0; i < 3; i++) {
        hold = acquired(lock);
        assert_int_equal(hold->servers & 4, 0);
        assert_status(dlock_release(hold, NULL), OK);
    }
    server_text(servers[2], "REPLICAOF NO ONE");
    eventually(holder_of(lock).held || !exists_on(2)); /* what the first release left there */
    hold = acquired(lock);
    counted_by(hold, 3);
    assert_status(dlock_release(hold, NULL), OK);
    end(client, lock);
    flush_all();
}

/* A name that leads to another server of the client, from some moment on, gives it no second voice.
 * Nor does it say that the server is free to which it led before. */
static void two_become_the_same_server(void **state)
{
    (void)state;
    char path[108], url[128];
    snprintf(path, sizeof path, "%.80s/leads-to", server_folder(servers[0]));
    snprintf(url, sizeof url, "unix://%s", path);
    assert_int_equal(symlink(server_socket(servers[1]), path), 0);
    dlock_client *client =
        client_of_urls((const char *const[]){server_url(servers[0]), url, server_url(servers[2])},
                       3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    dlock *other;
    assert_status(dlock_open_ops(client, &rung_redlock, OTHER, &other), OK);
    dlock_hold *brief =
        wanted(other, (struct dlock_want){.size = sizeof(struct dlock_want), .ttl_ms = 3000});
    server_kill(servers[2]);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(server_socket(servers[0]), path), 0);
    server_integer(servers[1], "CLIENT KILL TYPE normal SKIPME yes");
    eventually(dlock_extend(hold) != DLOCK_OK && stats_of(client).connections_refused > 0);
    assert_int_not_equal(dlock_extend(hold), DLOCK_OK);
    assert_says(dlock_error(), "the same server");
    assert_status(dlock_release(hold, NULL), UNKNOWN);
    assert_true(exists_on(1));
    eventually(!dlock_valid(brief)); /* the timekeeper could not renew it */
    dlock_release(brief, NULL);
    dlock_close(other);
    server_restart(servers[2], NULL);
    assert_int_equal(unlink(path), 0);
    end(client, lock);
    flush_all();
}

static void lead_to(const char *path, int server, int former)
{
    if (former >= 0)
        assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(server_socket(servers[server]), path), 0);
    if (former >= 0)
        server_integer(servers[former], "CLIENT KILL TYPE normal SKIPME yes");
}

/* A name leads to another server of the client when the lock is released. The release is kept for
 * it until the name leads to its own server again. */
static void a_release_is_kept_for_a_name(void **state)
{
    (void)state;
    char path[108], url[128];
    snprintf(path, sizeof path, "%.80s/leads-to", server_folder(servers[0]));
    snprintf(url, sizeof url, "unix://%s", path);
    lead_to(path, 1, -1);
    dlock_client *client =
        client_of_urls((const char *const[]){server_url(servers[0]), url, server_url(servers[2])},
                       3, (struct dlock_options){0});
    dlock *lock = redlock_of(client);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, 3);
    lead_to(path, 0, 1);
    eventually(dlock_extend(hold) == DLOCK_OK && stats_of(client).connections_refused > 0);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(exists_on(1));
    lead_to(path, 1, 0);
    eventually(exist() == 0);
    assert_int_equal(unlink(path), 0);
    end(client, lock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle_of_three), /* these fork: before any client */
        cmocka_unit_test(oracle_of_five),
        cmocka_unit_test(oracle_with_two_dead),
        cmocka_unit_test(oracle_with_one_that_hangs),
        cmocka_unit_test(all_are_asked),
        cmocka_unit_test(two_of_five_are_dead),
        cmocka_unit_test(three_of_five_are_dead),
        cmocka_unit_test(another_has_the_majority),
        cmocka_unit_test(a_split_vote_leaves_nothing),
        cmocka_unit_test(a_waiter_pauses_at_random),
        cmocka_unit_test(errors_are_no_votes),
        cmocka_unit_test(number_of_servers),
        cmocka_unit_test(the_same_server_twice),
        cmocka_unit_test(a_replica),
        cmocka_unit_test(a_node_of_a_cluster),
        cmocka_unit_test(one_becomes_a_replica),
        cmocka_unit_test(two_become_the_same_server),
        cmocka_unit_test(a_release_is_kept_for_a_name),
    };
    return cmocka_run_group_tests_name("redlock", tests, servers_start, servers_stop);
}
