/* SPDX-License-Identifier: Apache-2.0
 *
 * Servers that are away, hang or refuse: waiters are told, no server is hammered, and all works
 * again once it is back.
 */
#include "calls.h"
#include "hole.h"
#include "must.h"
#include "proxy.h"
#include "recorded_stage.h"
#include "started.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CROWD 2000
#define CROWD_MS 2000
#define CONNECTS_PER_S 50

static void nobodys_url(char url[64])
{
    snprintf(url, 64, "redis://127.0.0.1:%d", NOBODYS_PORT);
}

/* ---- Nobody is hammered ---------------------------------------------------------------------- */

/* How many connects a client may have tried since then; as many more as it has connections. */
static uint64_t allowed(int64_t since_ms, uint64_t connections)
{
    return (uint64_t)(clock_ms() - since_ms) * CONNECTS_PER_S / 1000 + connections;
}

static _Atomic size_t answers[DLOCK_FORKED + 1];

static void count_answer(void *arg, dlock_status status, dlock_hold *hold)
{
    (void)arg, (void)hold;
    atomic_fetch_add(&answers[status], 1);
}

/* Half of them at one lock, the others at a lock each. */
static void a_crowd_at_a_closed_port(void **state)
{
    static const char *const rungs[] = {"watchdog", "notify", "fair"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct stage stage;
        char url[64];
        static dlock *locks[CROWD];
        struct dlock_want want = {.size = sizeof want, .wait_ms = CROWD_MS};
        nobodys_url(url);
        stage_at(&stage, rungs[i], url, (struct dlock_options){0});
        memset(answers, 0, sizeof answers);
        int64_t since_ms = clock_ms();
        for (int j = 0; j < CROWD; j++) {
            char name[48];
            snprintf(name, sizeof name, LOCK "%d", j % 2 == 0 ? 0 : j);
            locks[j] = lock_of(stage.client, rungs[i], name);
            assert_status(dlock_acquire_start(locks[j], &want, count_answer, NULL), OK);
        }
        eventually(atomic_load(&answers[DLOCK_UNREACHABLE]) == CROWD);
        assert_true(stats_of(stage.client).connects_failed >= 2);
        assert_true(stats_of(stage.client).connects_failed <= allowed(since_ms, 4));
        assert_int_equal(record_count(stage.events, "SERVER_GONE"), 1);
        for (int j = 0; j < CROWD; j++)
            dlock_close(locks[j]);
        stage_clear(&stage);
    }
}

/* It takes the requests of the first, and answers nobody: nobody was kept waiting by the others. */
static void a_crowd_at_a_server_that_hangs(void **state)
{
    (void)state;
    struct stage stage;
    static dlock *locks[CROWD];
    struct dlock_want want = {.size = sizeof want, .wait_ms = 300};
    stage_at(&stage, "owner_lua", server_url(server), (struct dlock_options){0});
    works(&stage);
    memset(answers, 0, sizeof answers);
    server_pause(server);
    for (int j = 0; j < CROWD; j++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%d", j);
        locks[j] = lock_of(stage.client, "owner_lua", name);
        assert_status(dlock_acquire_start(locks[j], &want, count_answer, NULL), OK);
    }
    eventually(atomic_load(&answers[DLOCK_UNREACHABLE]) + atomic_load(&answers[DLOCK_TIMED_OUT]) ==
               CROWD);
    server_resume(server);
    assert_true(atomic_load(&answers[DLOCK_TIMED_OUT]) <= 2); /* requests may be carried out */
    for (int j = 0; j < CROWD; j++)
        dlock_close(locks[j]);
    stage_clear(&stage);
}

/* In the pause after a failure it is answered as the latest attempt was. */
static void many_single_tries(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    char url[64];
    nobodys_url(url);
    stage_at(&stage, "watchdog", url, (struct dlock_options){0});
    int64_t since_ms = clock_ms();
    for (int i = 0; i < 1000; i++) {
        assert_status(tried(stage.lock, &hold), UNREACHABLE);
        assert_says(dlock_error(), "Connection refused");
    }
    assert_true(stats_of(stage.client).connects_failed >= 1);
    assert_true(stats_of(stage.client).connects_failed <= allowed(since_ms, 6));
    stage_clear(&stage);
}

static void a_crowd_at_a_read_only_server(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_want want = {.size = sizeof want, .wait_ms = CROWD_MS};
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    server_text(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    memset(answers, 0, sizeof answers);
    int64_t since_ms = clock_ms();
    for (int j = 0; j < CROWD; j++)
        assert_status(dlock_acquire_start(stage.lock, &want, count_answer, NULL), OK);
    eventually(atomic_load(&answers[DLOCK_UNREACHABLE]) + atomic_load(&answers[DLOCK_REFUSED]) ==
               CROWD);
    server_text(server, "REPLICAOF NO ONE");
    assert_true(stats_of(stage.client).connects >= 3);
    assert_true(stats_of(stage.client).connects <= allowed(since_ms, 6));
    assert_true(record_count(stage.trace, "READONLY") <= allowed(since_ms, 6));
    assert_int_equal(record_count(stage.events, "SERVER_REFUSES"), 1);
    works(&stage);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    stage_clear(&stage);
}

/* Each of its 16 contenders tries less and less often. That is counted while all wait: once one has
 * ended, the next contends in its place, and often at first. */
static void a_crowd_at_a_full_server(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_want want = {.size = sizeof want, .wait_ms = CROWD_MS};
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    server_text(server, "CONFIG SET maxmemory 1");
    memset(answers, 0, sizeof answers);
    int64_t since_ms = clock_ms();
    for (int j = 0; j < CROWD; j++)
        assert_status(dlock_acquire_start(stage.lock, &want, count_answer, NULL), OK);
    size_t tries = 0;
    int64_t took_ms = 0;
    for (bool all_wait = true; all_wait; short_pause()) {
        size_t tries_now = record_count(stage.trace, "OOM");
        int64_t now_ms = clock_ms();
        all_wait = atomic_load(&answers[DLOCK_REFUSED]) == 0;
        if (all_wait) {
            tries = tries_now;
            took_ms = now_ms - since_ms;
        }
    }
    eventually(atomic_load(&answers[DLOCK_REFUSED]) == CROWD);
    server_text(server, "CONFIG SET maxmemory 0");
    /* at first 5 tries each, then one in 150 ms at most */
    assert_true(tries <= 16 * (6 + (size_t)took_ms / 150));
    assert_true(record_count(stage.trace, "OOM") >= 16);
    works(&stage);
    stage_clear(&stage);
}

static void crowd_end(struct waiter *waiters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_not_equal(waiter_end(&waiters[i]), DLOCK_OK);
        dlock_close(waiters[i].lock);
    }
}

static void crowd_begin(struct stage *stage, const char *rung, int64_t wait_ms,
                        struct waiter *waiters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%zu", i);
        waiters[i] = (struct waiter){.lock = lock_of(stage->client, rung, name),
                                     .want = {.wait_ms = wait_ms}};
        waiter_start(&waiters[i]);
    }
}

/* Every login works, and no command is answered. */
static void a_crowd_at_a_server_that_only_lets_in(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiters[32];
    stage_at(&stage, "watchdog", server_url(server),
             (struct dlock_options){.command_timeout_ms = 50});
    server_text(server, "CLIENT PAUSE 600000 WRITE");
    int64_t since_ms = clock_ms();
    crowd_begin(&stage, "watchdog", CROWD_MS, waiters, 32);
    crowd_end(waiters, 32);
    struct dlock_stats stats = stats_of(stage.client);
    uint64_t most = allowed(since_ms, 4);
    server_text(server, "CLIENT UNPAUSE");
    assert_true(stats.connects >= 2);
    assert_true(stats.connects <= most);
    assert_int_equal(stats.connections_lost, 1);
    assert_int_equal(stats.connections_restored, 0);
    eventually(within(stage.lock, CROWD_MS) == DLOCK_OK);
    assert_true(stats_of(stage.client).connections_restored >= 1);
    stage_clear(&stage);
}

/* Of a server that never answered one connection at a time finds that out. */
static void a_crowd_at_a_black_hole(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    struct waiter waiters[64];
    char url[64];
    hole_make(&hole);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", hole.port);
    stage_at(&stage, "watchdog", url, (struct dlock_options){.connect_timeout_ms = 200});
    int64_t since_ms = clock_ms();
    crowd_begin(&stage, "watchdog", 500, waiters, 64);
    crowd_end(waiters, 64);
    assert_true(stats_of(stage.client).connects_failed >= 2);
    assert_true(stats_of(stage.client).connects_failed <= allowed(since_ms, 4));
    assert_int_equal(record_count(stage.events, "SERVER"), 1);
    stage_clear(&stage);
    hole_free(&hole);
}

static size_t count_in(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

/* All connections break in use, and the server is well: nobody's single try fails for it. */
static void all_connections_break_at_once(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiters[8];
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    works(&stage);
    server_text(server, "CLIENT PAUSE 600000 WRITE");
    crowd_begin(&stage, "watchdog", 0, waiters, 8);
    eventually(count_in(server_text(server, "CLIENT LIST"), "cmd=evalsha") == 8);
    server_integer(server, "CLIENT KILL TYPE normal");
    server_text(server, "CLIENT UNPAUSE");
    for (size_t i = 0; i < 8; i++) {
        assert_status(waiter_end(&waiters[i]), OK);
        assert_status(dlock_release(waiters[i].hold, NULL), OK);
        dlock_close(waiters[i].lock);
    }
    assert_int_equal(stats_of(stage.client).connects_failed, 0);
    stage_clear(&stage);
}

/* ---- It is told ------------------------------------------------------------------------------ */

static void lost_and_back(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    works(&stage);
    assert_int_equal(record_count(stage.events, "SERVER"), 0);
    server_kill(server);
    for (int i = 0; i < 20; i++)
        assert_status(tried(stage.lock, &hold), UNREACHABLE);
    eventually(record_count(stage.events, "SERVER_GONE") == 1);
    server_restart(server, NULL);
    works(&stage);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    assert_int_equal(record_count(stage.events, "SERVER_GONE"), 1);
    char line[256];
    record_line(stage.events, "SERVER_GONE", 0, line, sizeof line);
    assert_says(line, server_url(server));
    assert_says(line, "Connection refused");
    assert_int_equal(stats_of(stage.client).connections_lost, 1);
    assert_int_equal(stats_of(stage.client).connections_restored, 1);
    assert_int_equal(stats_of(stage.client).connections_refused, 0);
    stage_clear(&stage);
}

/* A renewal's answer is none that can come: its connection is dropped, which is told of; and
 * everything goes on. */
static void a_renewal_that_is_not_understood(void **state)
{
    (void)state;
    static const char answer[] = "+QUEUED\r\n";
    struct stage stage;
    struct proxy *proxy = proxy_start(server);
    stage_at(&stage, "watchdog", proxy_url(proxy), (struct dlock_options){.ttl_ms = 3000});
    struct waiter other = {.lock = lock_of(stage.client, "watchdog", LOCK "2"),
                           .want = {.wait_ms = PATIENCE_MS}};
    dlock_hold *hold = acquired(stage.lock);
    proxy_plan(proxy, PROXY_REPLACE_REPLY, LOCK, answer, sizeof answer - 1);
    eventually(proxy_done(proxy));
    waiter_start(&other);
    assert_status(waiter_end(&other), OK);
    eventually(record_count(stage.events, "SERVER_GONE") == 1);
    eventually(stats_of(stage.client).renewals > 0);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(other.hold, NULL), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(other.lock);
    stage_clear(&stage);
    proxy_free(proxy);
}

static void a_refused_login(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    char url[80];
    snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
    stage_at(&stage, "watchdog", url, (struct dlock_options){0});
    for (int i = 0; i < 20; i++) {
        assert_status(tried(stage.lock, &hold), REFUSED);
        assert_says(dlock_error(), "WRONGPASS");
    }
    eventually(record_count(stage.events, "SERVER_REFUSES") == 1);
    server_text(server, "ACL SETUSER app on >pass ~* +@all");
    eventually(tried(stage.lock, &hold) == DLOCK_OK);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    assert_int_equal(stats_of(stage.client).connections_refused, 1);
    assert_int_equal(stats_of(stage.client).connections_lost, 0);
    stage_clear(&stage);
    server_integer(server, "ACL DELUSER app");
}

static void too_many_clients(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    server_text(server, "CONFIG SET maxclients 1"); /* the test's own */
    assert_status(tried(stage.lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "max number of clients");
    server_text(server, "CONFIG SET maxclients 1000");
    works(&stage);
    stage_clear(&stage);
}

/* Also where the client may not ask for its connection's number, and nothing else is said at the
 * login. */
static void too_many_clients_for_one_that_may_little(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiter = {.want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    server_text(server, "ACL SETUSER default -client|id");
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    works(&stage);
    server_text(server, "CONFIG SET maxclients 1"); /* the test's own */
    server_integer(server, "CLIENT KILL TYPE normal");
    dlock_hold *hold;
    assert_status(tried(stage.lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "max number of clients");
    uint64_t attempts = stats_of(stage.client).attempts;
    waiter.lock = stage.lock;
    waiter_start(&waiter);
    eventually(stats_of(stage.client).attempts >= attempts + 3 || atomic_load(&waiter.over));
    assert_false(atomic_load(&waiter.over));
    server_text(server, "CONFIG SET maxclients 1000");
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    stage_clear(&stage);
    server_text(server, "ACL SETUSER default +client|id");
}

/* The client's own connection is well, and no other is let in: waiters that would be told poll. It
 * is seldom asked for one more connection meanwhile. */
static void no_room_for_who_listens(void **state)
{
    enum { LOCKS = 100 };
    (void)state;
    struct stage stage;
    dlock_client *holder = client_of(server_url(server), (struct dlock_options){0});
    dlock *theirs[LOCKS], *ours[LOCKS];
    dlock_hold *holds[LOCKS];
    _Atomic int over = 0;
    struct started *crowd = crowd_new(LOCKS, true, &over);
    stage_at(&stage, "notify", server_url(server), (struct dlock_options){.connections_max = 1});
    works(&stage);
    for (int i = 0; i < LOCKS; i++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%d", i);
        theirs[i] = lock_of(holder, "notify", name);
        ours[i] = lock_of(stage.client, "notify", name);
        holds[i] = acquired(theirs[i]);
    }
    server_text(server, "CONFIG SET maxclients 1"); /* no more than there are */
    for (int i = 0; i < LOCKS; i++)
        start(ours[i], waiting(DLOCK_WAIT_FOREVER), &crowd[i]);
    eventually(stats_of(stage.client).attempts > 10 * LOCKS);
    assert_true(stats_of(stage.client).connects_failed <= LOCKS);
    server_text(server, "CONFIG SET maxclients 1000");
    for (int i = 0; i < LOCKS; i++)
        assert_status(dlock_release(holds[i], NULL), OK);
    eventually(atomic_load(&over) == LOCKS);
    crowd_answered(crowd, LOCKS, DLOCK_OK);
    free(crowd);
    for (int i = 0; i < LOCKS; i++) {
        dlock_close(theirs[i]);
        dlock_close(ours[i]);
    }
    dlock_client_close(holder);
    stage_clear(&stage);
}

/* A server that answered during the wait makes it a time-out. */
static void busy_before_the_outage(void **state)
{
    (void)state;
    struct stage stage;
    struct stage other;
    stage_at(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    stage_at(&other, "watchdog", server_url(server), (struct dlock_options){0});
    dlock_hold *hold = acquired(other.lock);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = 2000}};
    waiter_start(&waiter);
    eventually(stats_of(stage.client).contended >= 1);
    server_kill(server);
    assert_status(waiter_end(&waiter), TIMED_OUT);
    assert_says(waiter.error, "Connection refused");
    server_restart(server, NULL);
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
    stage_clear(&other);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_at_a_closed_port),
        cmocka_unit_test(a_crowd_at_a_server_that_hangs),
        cmocka_unit_test(many_single_tries),
        cmocka_unit_test(a_crowd_at_a_read_only_server),
        cmocka_unit_test(a_crowd_at_a_full_server),
        cmocka_unit_test(a_crowd_at_a_server_that_only_lets_in),
        cmocka_unit_test(a_crowd_at_a_black_hole),
        cmocka_unit_test(all_connections_break_at_once),
        cmocka_unit_test(lost_and_back),
        cmocka_unit_test(a_renewal_that_is_not_understood),
        cmocka_unit_test(a_refused_login),
        cmocka_unit_test(too_many_clients),
        cmocka_unit_test(too_many_clients_for_one_that_may_little),
        cmocka_unit_test(no_room_for_who_listens),
        cmocka_unit_test(busy_before_the_outage),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("outage", tests, start_server, stop_server);
}
