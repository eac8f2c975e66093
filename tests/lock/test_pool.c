/* SPDX-License-Identifier: Apache-2.0
 *
 * Which connection the pool lends, and to which caller.
 */
#include "background.h"
#include "must.h"
#include "own_server.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define FULL "CONFIG SET maxclients 1" /* no more than there are */
#define ROOM "CONFIG SET maxclients 1000"

static dlock_client *patient_client(void)
{
    return client_of(server_url(server), (struct dlock_options){.connect_timeout_ms = PATIENCE_MS});
}

static struct pool *pool_of(dlock_client *client)
{
    return &redis_of(client)->pool;
}

/* A caller that waits for a connection, on a thread of its own. */
struct caller {
    dlock_client *client;
    uint32_t renews_on; /* servers, a bit each; 0: it renews nothing */
    int wake_fd;
    pthread_t thread;
    dlock_status status;
    struct redis *redis;
};

static void *call(void *arg)
{
    struct caller *caller = arg;
    const int64_t limit_ns = mono_deadline_ns(PATIENCE_MS);
    struct pool *pool = pool_of(caller->client);
    caller->status =
        caller->renews_on != 0
            ? pool_take_up(pool, caller->renews_on, limit_ns, caller->wake_fd, &caller->redis)
            : pool_take(pool, NULL, limit_ns, caller->wake_fd, &caller->redis);
    return NULL;
}

static void starts_to_wait(struct caller *caller)
{
    const size_t before = wait_for_connection(caller->client);
    must(pthread_create(&caller->thread, NULL, call, caller) == 0);
    eventually(wait_for_connection(caller->client) == before + 1);
}

static void is_served(struct caller *caller, struct redis *redis)
{
    must(pthread_join(caller->thread, NULL) == 0);
    assert_int_equal(caller->status, DLOCK_OK);
    assert_ptr_equal(caller->redis, redis);
}

/* ---- The queue ------------------------------------------------------------------------------- */

/* A renewal comes before other calls, and those in the queue before a call that comes later. */
static void who_is_first_in_the_queue(void **state)
{
    (void)state;
    dlock_client *client = patient_client();
    struct pool *pool = pool_of(client);
    struct caller first = {.client = client, .wake_fd = -1}, second = first, renewal = first;
    struct redis *only, *none;
    renewal.renews_on = SERVERS_ALL;
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &only), OK);
    server_text(server, FULL);
    starts_to_wait(&first);
    starts_to_wait(&second);
    starts_to_wait(&renewal);
    pool_give(pool, only);
    is_served(&renewal, only);
    pool_give(pool, only);
    assert_int_equal(pool_take_up(pool, SERVERS_ALL, 0, -1, &none), DLOCK_LIMIT);
    is_served(&first, only);
    pool_give(pool, only);
    is_served(&second, only);
    pool_give(pool, only);
    server_text(server, ROOM);
    dlock_client_close(client);
}

/* As soon as there is room, those in the queue connect one more. */
static void those_in_the_queue_connect_one_more(void **state)
{
    (void)state;
    dlock_client *client = patient_client();
    struct pool *pool = pool_of(client);
    struct caller caller = {.client = client, .wake_fd = -1};
    struct redis *only;
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &only), OK);
    server_text(server, FULL);
    starts_to_wait(&caller);
    server_text(server, ROOM);
    must(pthread_join(caller.thread, NULL) == 0);
    assert_int_equal(caller.status, DLOCK_OK);
    assert_ptr_not_equal(caller.redis, only);
    pool_give(pool, caller.redis);
    pool_give(pool, only);
    dlock_client_close(client);
}

static size_t connecting(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    const size_t count = pool->connecting;
    pthread_mutex_unlock(&pool->mutex);
    return count;
}

/* The server is slow. Those that have waited connect side by side: one after the other would take
 * too long. */
static void those_that_have_waited_connect_one_each(void **state)
{
    enum { CALLERS = 3 };
    (void)state;
    dlock_client *client = patient_client();
    struct pool *pool = pool_of(client);
    struct caller callers[CALLERS];
    struct redis *only;
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &only), OK);
    server_pause(server);
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){.client = client, .wake_fd = -1};
        starts_to_wait(&callers[i]);
    }
    eventually(connecting(pool) == CALLERS);
    server_resume(server);
    for (size_t i = 0; i < CALLERS; i++) {
        must(pthread_join(callers[i].thread, NULL) == 0);
        assert_int_equal(callers[i].status, DLOCK_OK);
    }
    assert_int_equal(connecting(pool), 0);
    for (size_t i = 0; i < CALLERS; i++)
        pool_give(pool, callers[i].redis);
    pool_give(pool, only);
    dlock_client_close(client);
}

static bool is_taken(struct pool *pool, struct redis **redis)
{
    const bool taken = pool_take(pool, NULL, INT64_MAX, -1, redis) == DLOCK_OK;
    if (!taken)
        pool_give(pool, *redis);
    return taken;
}

/* The only one does not come back, and there is no room for another. */
static void a_call_waits_no_longer_than_it_may_connect(void **state)
{
    (void)state;
    dlock_client *client =
        client_of(server_url(server), (struct dlock_options){.connect_timeout_ms = 200});
    struct pool *pool = pool_of(client);
    struct redis *only, *second;
    eventually(is_taken(pool, &only));
    server_text(server, FULL);
    assert_false(is_taken(pool, &second));
    assert_says(dlock_error(), server_url(server));
    pool_give(pool, only);
    server_text(server, ROOM);
    dlock_client_close(client);
}

static void a_cancelled_call_leaves_the_queue(void **state)
{
    (void)state;
    dlock_client *client = patient_client();
    struct pool *pool = pool_of(client);
    struct caller caller = {.client = client, .wake_fd = eventfd(0, EFD_CLOEXEC)}, renewal = caller;
    struct redis *only;
    renewal.renews_on = SERVERS_ALL;
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &only), OK);
    server_text(server, FULL);
    starts_to_wait(&caller);
    starts_to_wait(&renewal);
    eventfd_write(caller.wake_fd, 1);
    must(pthread_join(caller.thread, NULL) == 0 && pthread_join(renewal.thread, NULL) == 0);
    assert_int_equal(caller.status, DLOCK_CANCELLED);
    assert_int_equal(renewal.status, DLOCK_CANCELLED);
    assert_int_equal(wait_for_connection(client), 0);
    if (caller.redis != NULL)
        pool_give(pool, caller.redis);
    pool_give(pool, only);
    close(caller.wake_fd);
    server_text(server, ROOM);
    dlock_client_close(client);
}

static void all_are_lent(void **state)
{
    (void)state;
    dlock_client *client =
        client_of(server_url(server), (struct dlock_options){.connections_max = 1});
    struct pool *pool = pool_of(client);
    struct redis *only, *none;
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &only), OK);
    assert_status(pool_take(pool, NULL, mono_deadline_ns(20), -1, &none), LIMIT);
    assert_says(dlock_error(), "all 1 connections (connections_max) are in use");
    assert_null(none);
    pool_give(pool, only);
    dlock_client_close(client);
}

/* The server has closed the one that is idle, and has room for one more: it is connected anew. */
static void one_that_the_server_has_closed(void **state)
{
    (void)state;
    dlock_client *client = patient_client();
    struct pool *pool = pool_of(client);
    struct redis *first, *second;
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &first), OK);
    pool_give(pool, first);
    server_integer(server, "CLIENT KILL TYPE normal");
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &second), OK);
    assert_ptr_equal(first, second);
    pool_give(pool, second);
    assert_int_equal(pool->made, 1);
    dlock_client_close(client);
}

/* ---- Several servers ------------------------------------------------------------------------- */

enum { SERVERS = 3 };

/* Starts them, and opens a client of all. */
static dlock_client *client_of_all(struct server *all[SERVERS])
{
    const char *urls[SERVERS];
    dlock_client *client;
    for (int i = 0; i < SERVERS; i++) {
        all[i] = server_start(NULL);
        urls[i] = server_url(all[i]);
    }
    struct dlock_options options = {
        .size = sizeof options, .servers = urls, .server_count = SERVERS};
    assert_status(dlock_client_open(&options, &client), OK);
    return client;
}

/* Two of three servers have room for one connection only. The next one is made at one server. */
static void one_to_a_majority_is_lent_first(void **state)
{
    (void)state;
    struct server *all[SERVERS];
    struct redis *first, *second, *lent;
    dlock_client *client = client_of_all(all);
    struct pool *pool = pool_of(client);
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &first), OK);
    eventually(redis_ready(first, INT64_MAX, -1) == DLOCK_OK && redis_count_up(first) == SERVERS);
    server_text(all[0], FULL);
    server_text(all[1], FULL);
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &second), OK);
    assert_int_equal(redis_count_up(second), 1);
    pool_give(pool, first);
    pool_give(pool, second);
    assert_status(pool_take(pool, NULL, INT64_MAX, -1, &lent), OK);
    assert_ptr_equal(lent, first);
    assert_int_equal(pool_take_up(pool, SERVERS_ALL, 0, -1, &second), DLOCK_LIMIT);
    pool_give(pool, lent);
    dlock_client_close(client);
    for (int i = 0; i < SERVERS; i++)
        server_free(all[i]);
}

/* A renewal needs one that is connected to a majority of its hold's servers. */
static void one_to_the_servers_of_a_hold(void **state)
{
    (void)state;
    static const uint32_t holds[2] = {1 | 2, 2 | 4};
    struct server *all[SERVERS];
    struct redis *each[2], *lent;
    dlock_client *client = client_of_all(all);
    struct pool *pool = pool_of(client);
    for (int i = 0; i < 2; i++) { /* server 0 takes only the first one, server 2 only the other */
        server_text(all[i == 0 ? 2 : 0], FULL);
        assert_status(pool_take(pool, NULL, INT64_MAX, -1, &each[i]), OK);
        eventually(redis_ready(each[i], INT64_MAX, -1) == DLOCK_OK &&
                   redis_up_to(each[i], holds[i]));
        server_text(all[2], "CONFIG SET maxclients 1000");
    }
    assert_int_equal(redis_count_up(each[0]), 2);
    assert_int_equal(redis_count_up(each[1]), 2);
    for (int last = 0; last < 2; last++) {
        pool_give(pool, each[!last]);
        pool_give(pool, each[last]);
        for (int i = 0; i < 2; i++) {
            assert_true(pool_has_up(pool, holds[i]));
            assert_int_equal(pool_take_up(pool, holds[i], 0, -1, &lent), DLOCK_OK);
            assert_ptr_equal(lent, each[i]);
            assert_false(pool_has_up(pool, holds[i]));
            assert_int_equal(pool_take_up(pool, holds[i], 0, -1, &lent), DLOCK_LIMIT);
        }
    }
    struct caller renewal = {.client = client, .renews_on = holds[0], .wake_fd = -1};
    starts_to_wait(&renewal);
    pool_give(pool, each[1]);
    pool_give(pool, each[0]);
    is_served(&renewal, each[0]);
    pool_give(pool, each[0]);
    dlock_client_close(client);
    for (int i = 0; i < SERVERS; i++)
        server_free(all[i]);
}

/* A server is down, and two of three connections keep a release for it. */
static void those_that_keep_a_release_are_lent_first(void **state)
{
    (void)state;
    static const char *const releases[2][2] = {{"DEL", "one"}, {"DEL", "two"}};
    struct server *all[SERVERS];
    struct redis *each[3], *lent;
    dlock_client *client = client_of_all(all);
    struct pool *pool = pool_of(client);
    for (int i = 0; i < 3; i++) {
        assert_status(pool_take(pool, NULL, INT64_MAX, -1, &each[i]), OK);
        eventually(redis_ready(each[i], INT64_MAX, -1) == DLOCK_OK &&
                   redis_count_up(each[i]) == SERVERS);
    }
    server_kill(all[2]);
    for (int i = 0; i < 3; i++)
        eventually(redis_ready(each[i], INT64_MAX, -1) == DLOCK_OK &&
                   redis_count_up(each[i]) == SERVERS - 1);
    for (int i = 0; i < 2; i++)
        redis_keep(each[i], 2, 2, releases[i], false);
    for (int i = 0; i < 3; i++)
        pool_give(pool, each[i]);
    for (int i = 0; i < 4; i++) { /* they take turns */
        assert_status(pool_take(pool, NULL, INT64_MAX, -1, &lent), OK);
        assert_ptr_equal(lent, each[i % 2]);
        pool_give(pool, lent);
    }
    server_restart(all[2], NULL);
    server_text(all[2], "MSET one 1 two 2");
    eventually(pool_take(pool, NULL, INT64_MAX, -1, &lent) == DLOCK_OK &&
               (pool_give(pool, lent), server_integer(all[2], "EXISTS one two") == 0));
    assert_int_equal(pool->made, 3);
    dlock_client_close(client);
    for (int i = 0; i < SERVERS; i++)
        server_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_is_first_in_the_queue),
        cmocka_unit_test(those_in_the_queue_connect_one_more),
        cmocka_unit_test(those_that_have_waited_connect_one_each),
        cmocka_unit_test(a_call_waits_no_longer_than_it_may_connect),
        cmocka_unit_test(a_cancelled_call_leaves_the_queue),
        cmocka_unit_test(all_are_lent),
        cmocka_unit_test(one_that_the_server_has_closed),
        cmocka_unit_test(one_to_a_majority_is_lent_first),
        cmocka_unit_test(one_to_the_servers_of_a_hold),
        cmocka_unit_test(those_that_keep_a_release_are_lent_first),
    };
    return cmocka_run_group_tests_name("pool", tests, start_server, stop_server);
}
