/* SPDX-License-Identifier: Apache-2.0
 *
 * How a client connects: host names that move or are not found, addresses that swallow every
 * packet, connections that are slow. Host names ending in ".test" are found by this file.
 */
#include "calls.h"
#include "hole.h"
#include "must.h"
#include "recorded_stage.h"
#include "redis_engine.h"
#include "waiter.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

/* ---- Names ----------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex; /* protects what is below */
    int ports[4];          /* where "<any>.test" is found: 127.0.0.1, 0 ends the list */
    bool hangs;
    int calls;
    int under_way;
    int most;
} names = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);

static bool name_hangs(void)
{
    pthread_mutex_lock(&names.mutex);
    bool hangs = names.hangs;
    pthread_mutex_unlock(&names.mutex);
    return hangs;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    size_t size = host != NULL ? strlen(host) : 0;
    if (size < 5 || strcmp(host + size - 5, ".test") != 0 ||
        (hints->ai_flags & AI_NUMERICHOST) != 0)
        return __real_getaddrinfo(host, port, hints, found);
    pthread_mutex_lock(&names.mutex);
    names.calls++;
    if (++names.under_way > names.most)
        names.most = names.under_way;
    pthread_mutex_unlock(&names.mutex);
    eventually(!name_hangs());
    pthread_mutex_lock(&names.mutex);
    names.under_way--;
    struct addrinfo **next = found;
    *found = NULL;
    for (int i = 0; names.ports[i] != 0; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", names.ports[i]);
        must(__real_getaddrinfo("127.0.0.1", text, hints, next) == 0);
        next = &(*next)->ai_next;
    }
    pthread_mutex_unlock(&names.mutex);
    return *found != NULL ? 0 : EAI_NONAME;
}

static void name_is(bool hangs, int first, int second)
{
    pthread_mutex_lock(&names.mutex);
    names.hangs = hangs;
    names.ports[0] = first;
    names.ports[1] = second;
    names.calls = names.most = 0;
    pthread_mutex_unlock(&names.mutex);
}

static int name_calls(void)
{
    pthread_mutex_lock(&names.mutex);
    int calls = names.calls;
    pthread_mutex_unlock(&names.mutex);
    return calls;
}

/* Each of the holds is of a connection of its own, the first made at the second address. */
static bool gets_past(struct hole *hole)
{
    struct stage stage;
    dlock_hold *hold;
    name_is(false, hole->port, server_port(server));
    stage_at(&stage, "watchdog", "redis://redis.test",
             (struct dlock_options){.connect_timeout_ms = 2000});
    for (int i = 0; i < 3 && tried(stage.lock, &hold) == DLOCK_OK; i++) {
        assert_status(dlock_release(hold, NULL), OK);
        server_integer(server, "CLIENT KILL TYPE normal");
    }
    struct dlock_stats stats = stats_of(stage.client);
    stage_clear(&stage);
    return stats.acquired == 3 && stats.connects_failed == 0;
}

/* A machine that stalls may take the time of both addresses away: that is tried anew. */
static void the_first_address_swallows_all(void **state)
{
    (void)state;
    struct hole hole;
    hole_make(&hole);
    eventually(gets_past(&hole));
    hole_free(&hole);
}

/* Not even a call whose limit ends while the first address is tried is stuck with it. */
static void the_next_attempt_begins_at_the_next_address(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    hole_make(&hole);
    name_is(false, hole.port, server_port(server));
    stage_at(&stage, "watchdog", "redis://redis.test",
             (struct dlock_options){.connect_timeout_ms = 400});
    eventually(within(stage.lock, 20) == DLOCK_OK);
    stage_clear(&stage);
    hole_free(&hole);
}

/* The master is a replica now, and its name leads to another. */
static void the_name_moves(void **state)
{
    (void)state;
    struct stage stage;
    struct server *other = server_start(NULL);
    name_is(false, server_port(server), 0);
    stage_at(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    works(&stage);
    server_text(server, "REPLICAOF 127.0.0.1 %d", server_port(other));
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    eventually(record_count(stage.trace, "READONLY") >= 2);
    name_is(false, server_port(other), 0);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(server_integer(other, "EXISTS " LOCK), 1);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    server_text(server, "REPLICAOF NO ONE");
    server_free(other);
    stage_clear(&stage);
}

/* One of its addresses is of a replica: the other is tried next. */
static void one_address_is_of_a_replica(void **state)
{
    (void)state;
    struct stage stage;
    struct server *replica = server_start(NULL);
    server_text(replica, "REPLICAOF 127.0.0.1 %d", server_port(server));
    name_is(false, server_port(replica), server_port(server));
    stage_at(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    works(&stage);
    assert_int_equal(record_count(stage.trace, "READONLY"), 1);
    server_free(replica);
    stage_clear(&stage);
}

/* One look-up at a time is left behind, whatever the number of calls; then all is well again. */
static void a_resolver_that_hangs(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiters[4];
    name_is(true, server_port(server), 0);
    stage_at(&stage, "watchdog", "redis://redis.test",
             (struct dlock_options){.connect_timeout_ms = 60000});
    for (int i = 0; i < 4; i++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%d", i);
        waiters[i] = (struct waiter){.lock = lock_of(stage.client, "watchdog", name),
                                     .want = {.wait_ms = 30}};
        waiter_start(&waiters[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_status(waiter_end(&waiters[i]), UNREACHABLE);
        dlock_close(waiters[i].lock);
    }
    assert_int_equal(name_calls(), 1);
    struct waiter patient = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&patient);
    eventually(stats_of(stage.client).attempts >= 5);
    name_is(false, server_port(server), 0);
    assert_status(waiter_end(&patient), OK);
    assert_status(dlock_release(patient.hold, NULL), OK);
    stage_clear(&stage);
}

/* The look-up went on when nobody waited for it, and the time to connect is over long since. */
static void found_while_nobody_looked(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    name_is(true, server_port(server), 0);
    stage_at(&stage, "watchdog", "redis://redis.test",
             (struct dlock_options){.connect_timeout_ms = 500});
    assert_status(within(stage.lock, 20), UNREACHABLE);
    int64_t over_ms = clock_ms() + 600;
    name_is(false, server_port(server), 0);
    eventually(clock_ms() > over_ms);
    assert_status(tried(stage.lock, &hold), OK);
    assert_int_equal(stats_of(stage.client).connects_failed, 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Also when it never comes back while the client lives. */
static void closed_while_the_resolver_hangs(void **state)
{
    (void)state;
    struct stage stage;
    name_is(true, server_port(server), 0);
    stage_at(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    assert_status(within(stage.lock, 20), UNREACHABLE);
    stage_clear(&stage);
    name_is(false, server_port(server), 0);
}

/* A resolver that fails or hangs takes nothing away from a client that knew the way. */
static void the_resolver_is_down(void **state)
{
    (void)state;
    for (int hangs = 0; hangs < 2; hangs++) {
        struct stage stage;
        name_is(false, server_port(server), 0);
        stage_at(&stage, "watchdog", "redis://redis.test",
                 (struct dlock_options){.connect_timeout_ms = 2000});
        works(&stage);
        name_is(hangs != 0, 0, 0);
        server_integer(server, "CLIENT KILL TYPE normal");
        works(&stage);
        assert_int_equal(name_calls(), 1);
        name_is(false, 0, 0);
        stage_clear(&stage);
    }
}

static void a_name_nobody_knows(void **state)
{
    (void)state;
    struct stage stage;
    name_is(false, 0, 0);
    stage_at(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    dlock_hold *hold;
    assert_status(tried(stage.lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "its host name was not found");
    name_is(false, server_port(server), 0);
    works(&stage);
    stage_clear(&stage);
}

/* Every packet is lost: the call ends with its own limit. */
static void a_black_hole(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    char url[64];
    hole_make(&hole);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", hole.port);
    stage_at(&stage, "watchdog", url, (struct dlock_options){.connect_timeout_ms = 60000});
    assert_status(within(stage.lock, 30), UNREACHABLE);
    assert_says(dlock_error(), "connecting took too long");
    stage_clear(&stage);
    hole_free(&hole);
}

/* Another connection comes back meanwhile: the call takes that one. */
static void one_connection_is_slow(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    struct gate *gate = gate_new("watchdog.acquired");
    hole_make(&hole);
    name_is(false, server_port(server), 0);
    stage_at(&stage, "watchdog", "redis://redis.test",
             (struct dlock_options){
                 .connect_timeout_ms = 60000, .on_point = gate_point, .on_point_arg = gate});
    dlock *slow = lock_of(stage.client, "watchdog", LOCK "2");
    struct waiter parked = {.lock = stage.lock, .want = {.wait_ms = 60000}};
    struct waiter stuck = {.lock = slow, .want = {.wait_ms = 60000}};
    waiter_start(&parked);
    eventually(gate_arrived(gate) == 1);
    name_is(false, hole.port, 0);
    waiter_start(&stuck);
    eventually(name_calls() == 1);
    gate_open(gate);
    assert_status(waiter_end(&parked), OK);
    assert_status(waiter_end(&stuck), OK);
    assert_int_equal(stats_of(stage.client).connects, 1);
    assert_status(dlock_release(stuck.hold, NULL), OK);
    assert_status(dlock_release(parked.hold, NULL), OK);
    dlock_close(slow);
    stage_clear(&stage);
    gate_free(gate);
    hole_free(&hole);
}

/* ---- Several servers ------------------------------------------------------------------------- */

static dlock_status ask_all(struct redis *redis)
{
    redis_begin(redis);
    for (size_t i = 0; i < 3; i++)
        redis_append(redis, i, 1, (const char *const[]){"PING"}, NULL);
    return redis_gather(redis, INT64_MAX, -1);
}

/* Two of three are enough; the third is late, and comes on the connection that was begun first. */
static void one_of_three_is_late(void **state)
{
    (void)state;
    struct server *late = server_start(NULL);
    struct server three[3] = {0};
    struct redis_config config = {.servers = three,
                                  .server_count = 3,
                                  .connect_timeout_ms = PATIENCE_MS,
                                  .command_timeout_ms = PATIENCE_MS};
    for (int i = 0; i < 3; i++) {
        assert_status(url_parse(server_url(i == 1 ? late : server), &three[i].url), OK);
        reach_init(&three[i], SERVER_AT_URL, &config.outages);
    }
    struct redis *redis = redis_new(&config);
    server_pause(late);
    assert_status(redis_ready(redis, INT64_MAX, -1), OK);
    assert_status(ask_all(redis), UNREACHABLE);
    assert_says(dlock_error(), "not connected yet");
    assert_status(redis_status(redis, 0), OK);
    assert_null(redis_reply(redis, 1, 0));
    assert_status(redis_status(redis, 2), OK);
    server_resume(late);
    eventually(redis_ready(redis, INT64_MAX, -1) == DLOCK_OK && ask_all(redis) == DLOCK_OK);
    assert_int_equal(config.connects, 3);
    redis_free(redis);
    for (int i = 0; i < 3; i++) {
        reach_free(&three[i]);
        url_free(&three[i].url);
    }
    server_free(late);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_address_swallows_all),
        cmocka_unit_test(the_next_attempt_begins_at_the_next_address),
        cmocka_unit_test(the_name_moves),
        cmocka_unit_test(one_address_is_of_a_replica),
        cmocka_unit_test(a_resolver_that_hangs),
        cmocka_unit_test(found_while_nobody_looked),
        cmocka_unit_test(closed_while_the_resolver_hangs),
        cmocka_unit_test(the_resolver_is_down),
        cmocka_unit_test(a_name_nobody_knows),
        cmocka_unit_test(a_black_hole),
        cmocka_unit_test(one_connection_is_slow),
        cmocka_unit_test(one_of_three_is_late),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("connect", tests, start_server, stop_server);
}
