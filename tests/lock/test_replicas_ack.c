/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires and renewals that replicas must confirm.
 */
#include "client.h"
#include "far.h"
#include "redis_engine.h"
#include "replicas_stage.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdlib.h>

#define TOO_FEW "0 of 2 replicas confirmed the write in time; 2 must"

/* ---- What is sent ---------------------------------------------------------------------------- */

static void how_many_must_confirm(void **state)
{
    static const struct {
        enum dlock_replicas_ack ack;
        size_t replicas;
        const char *sent;
    } all[] = {
        {DLOCK_REPLICAS_ONE, 1, "WAIT 1 "},      {DLOCK_REPLICAS_ONE, 5, "WAIT 1 "},
        {DLOCK_REPLICAS_MAJORITY, 1, "WAIT 1 "}, {DLOCK_REPLICAS_MAJORITY, 2, "WAIT 1 "},
        {DLOCK_REPLICAS_MAJORITY, 3, "WAIT 2 "}, {DLOCK_REPLICAS_MAJORITY, 4, "WAIT 2 "},
        {DLOCK_REPLICAS_MAJORITY, 5, "WAIT 3 "}, {DLOCK_REPLICAS_ALL, 1, "WAIT 1 "},
        {DLOCK_REPLICAS_ALL, 3, "WAIT 3 "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct stage stage;
        dlock_hold *hold;
        struct dlock_options options = needing(all[i].ack);
        options.replicas = all[i].replicas;
        options.command_timeout_ms = 300; /* more than there are: it is refused after half of it */
        stage_at(&stage, "owner_lua", server_url(server), options);
        if (tried(stage.lock, &hold) == DLOCK_OK)
            dlock_release(hold, NULL);
        assert_int_equal(record_count(stage.trace, all[i].sent), 1);
        stage_clear(&stage);
    }
}

static void options_that_are_not_valid(void **state)
{
    static const char *const two[] = {"redis://h", "redis://i"};
    const struct {
        struct dlock_options options;
        const char *says;
    } bad[] = {
        {{.replicas_ack = DLOCK_REPLICAS_ONE},
         "replicas_ack needs replicas, which is 0; set replicas to how many the server has"},
        {{.replicas_ack = DLOCK_REPLICAS_ONE, .replicas = 1001}, "replicas is 1001"},
        {{.replicas_ack = (enum dlock_replicas_ack)4, .replicas = 1},
         "replicas_ack is 4; it must be DLOCK_REPLICAS_NONE (0) to DLOCK_REPLICAS_ALL (3)"},
        {{.replicas_ack = DLOCK_REPLICAS_ALL, .replicas = 1, .servers = two, .server_count = 2},
         "replicas_ack works with one server, and there are 2"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dlock_client *client;
        struct dlock_options options = bad[i].options;
        options.size = sizeof options;
        assert_status(dlock_client_open(&options, &client), INVALID);
        assert_says(dlock_error(), bad[i].says);
    }
}

/* Without the option nothing more is sent. */
static void nothing_is_asked_without_the_option(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    long long before = waits();
    stage_at(&stage, rung->name, server_url(server), (struct dlock_options){.replicas = REPLICAS});
    dlock_hold *hold = acquired(stage.lock);
    if (rung->expires)
        assert_status(dlock_extend(hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(record_count(stage.trace, "WAIT"), 0);
    assert_int_equal(waits(), before);
    stage_clear(&stage);
}

/* The time-out of the index-th WAIT. */
static long long wait_ms_of(struct stage *stage, size_t index)
{
    char line[160];
    record_line(stage->trace, "WAIT 2 ", index, line, sizeof line);
    return strlen(line) > 7 ? strtoll(line + 7, NULL, 10) : -1;
}

/* It would confirm what is no longer valid. */
static void wait_is_no_longer_than_what_it_confirms(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (is_local(rung) || !rung->expires)
        return;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.ttl_ms = 400;
    stage_at(&stage, rung->name, server_url(server), options);
    dlock_hold *hold;
    if (tried(stage.lock, &hold) == DLOCK_OK) {
        dlock_extend(hold);
        dlock_release(hold, NULL);
    }
    size_t count = record_count(stage.trace, "WAIT 2 ");
    assert_true(count >= 1);
    for (size_t i = 0; i < count; i++)
        assert_true(wait_ms_of(&stage, i) >= 1 && wait_ms_of(&stage, i) <= 200);
    stage_clear(&stage);
}

/* One WAIT after each acquire and each renewal, none after a release. */
static void what_is_asked(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (is_local(rung))
        return;
    stage_needs(&stage, rung->name, DLOCK_REPLICAS_ALL);
    works(&stage); /* the scripts are known from here on */
    long long before = waits();
    dlock_hold *hold = acquired(stage.lock);
    assert_int_equal(waits(), before + 1);
    assert_status(dlock_extend(hold), OK);
    assert_status(dlock_extend(hold), OK);
    long long after = waits();
    assert_true(after == before + 3 || after == before + 4); /* the script is new once */
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(waits(), after);
    stage_clear(&stage);
}

/* The flawed rungs that send several commands ask after each. */
static void flawed_rungs_ask_too(void **state)
{
    static const char *const rungs[] = {
        "setnx",         "setnx_expire", "setnx_multi",      "set_nx_ex",      "owner_check",
        "reentrant_tls", "blpop_wake",   "reentrant_getset", "watchdog_timer", "rw_counter"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        dlock_hold *hold;
        stage_needs(&stage, rungs[i], DLOCK_REPLICAS_ALL);
        works(&stage);
        assert_true(record_count(stage.trace, "WAIT 2 ") >= 1);
        freeze(1);
        assert_status(tried(stage.lock, &hold), REFUSED);
        assert_says(dlock_error(), "1 of 2 replicas confirmed the write in time; 2 must");
        assert_int_equal(exists(), 0); /* a flawed rung releases at once */
        thaw(1);
        works(&stage);
        stage_clear(&stage);
    }
}

/* Requests that share a write share its WAIT, a release among them. What one of them answers is its
 * own. */
static void one_wait_for_a_shared_write(void **state)
{
    enum { LOCKS = 100, BUSY = 7 };
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    dlock *locks[LOCKS];
    struct started started[LOCKS];
    (void)state;
    server_text(server, "FLUSHALL");
    dlock_client *client = client_of(server_url(server), options);
    for (size_t i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%zu}", i);
        locks[i] = lock_of(client, "watchdog", name);
    }
    assert_int_equal(server_integer(server, "HSET lock:{7} another 1"), 1);
    for (int frozen = 0; frozen < 2; frozen++) {
        long long before = waits();
        for (size_t i = 0; i < LOCKS; i++) {
            started[i] = (struct started){0};
            start(locks[i], waiting(0), &started[i]);
        }
        for (size_t i = 0; i < LOCKS; i++) {
            started_answered(&started[i]);
            dlock_status status = i == BUSY ? DLOCK_BUSY : frozen > 0 ? DLOCK_REFUSED : DLOCK_OK;
            assert_int_equal(started[i].status, status);
            if (status == DLOCK_REFUSED)
                assert_says(started[i].error, TOO_FEW);
        }
        assert_true(waits() - before < LOCKS / 2);
        for (size_t i = 0; i < LOCKS; i++)
            if (started[i].hold != NULL)
                assert_status(dlock_release(started[i].hold, NULL), OK);
        eventually(server_integer(server, "DBSIZE") == 1);
        if (frozen == 0)
            freeze(2);
    }
    thaw(2);
    for (size_t i = 0; i < LOCKS; i++)
        dlock_close(locks[i]);
    dlock_client_close(client);
}

/* ---- Acquire --------------------------------------------------------------------------------- */

/* A write that a frozen replica finds later is on its way in the meantime: the lock is released
 * all the same. */
static void an_acquire_that_too_few_confirm(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    dlock_hold *hold = (dlock_hold *)&hold;
    if (is_local(rung))
        return;
    stage_needs(&stage, rung->name, DLOCK_REPLICAS_ALL);
    works(&stage);
    freeze(2);
    assert_status(tried(stage.lock, &hold), REFUSED);
    assert_null(hold);
    assert_says(dlock_error(), TOO_FEW);
    assert_says(dlock_error(), "; the lock is released");
    eventually(exists() == 0);
    assert_int_equal(stats_of(stage.client).acquired, 1);
    assert_int_equal(stats_of(stage.client).unknown, 0);
    thaw(2);
    works(&stage);
    stage_clear(&stage);
}

/* One of two is enough for `one`, and with the master for a majority. */
static void one_replica_confirms(void **state)
{
    static const enum dlock_replicas_ack enough[] = {DLOCK_REPLICAS_ONE, DLOCK_REPLICAS_MAJORITY};
    const struct dlock_rung *rung = *state;
    if (is_local(rung))
        return;
    freeze(1);
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        stage_needs(&stage, rung->name, enough[i]);
        works(&stage);
        stage_clear(&stage);
    }
    thaw(1);
}

/* It tries again while it has time, and acquires when the replicas answer again. */
static void a_waiter_acquires_when_they_are_back(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (is_local(rung))
        return;
    stage_needs(&stage, rung->name, DLOCK_REPLICAS_MAJORITY);
    works(&stage);
    freeze(2);
    struct started started = {.release = true};
    start(stage.lock, waiting(PATIENCE_MS), &started);
    eventually(stats_of(stage.client).attempts >= 3);
    assert_int_equal(started.answers, 0);
    thaw(2);
    started_answered(&started);
    assert_status(started.status, OK);
    eventually(exists() == 0);
    stage_clear(&stage);
}

/* A whole wait without enough replicas: the status says why. */
static void a_wait_in_vain(void **state)
{
    struct stage stage;
    (void)state;
    stage_needs(&stage, "owner_lua", DLOCK_REPLICAS_ALL);
    cut_off();
    dlock_status status = within(stage.lock, 1500);
    assert_true(status == DLOCK_REFUSED || status == DLOCK_TIMED_OUT);
    assert_says(dlock_error(), "was not acquired within 1500 ms: ");
    join_again();
    works(&stage);
    stage_clear(&stage);
}

/* Replicas that are down count among the known ones: two servers of three are no majority. */
static void dead_replicas_count(void **state)
{
    struct stage stage;
    dlock_hold *hold;
    (void)state;
    stage_needs(&stage, "watchdog", DLOCK_REPLICAS_ALL);
    server_kill(replicas[0]);
    eventually(replicas_online() == 1);
    assert_status(tried(stage.lock, &hold), REFUSED);
    assert_says(dlock_error(), "1 of 2 replicas confirmed");
    stage_clear(&stage);
    stage_needs(&stage, "watchdog", DLOCK_REPLICAS_MAJORITY);
    works(&stage);
    server_kill(replicas[1]);
    eventually(replicas_online() == 0);
    assert_status(tried(stage.lock, &hold), REFUSED);
    assert_says(dlock_error(), "0 of 2 replicas confirmed the write in time; 1 must");
    for (size_t i = 0; i < REPLICAS; i++)
        server_restart(replicas[i], replica_args);
    eventually(replicas_confirm(REPLICAS));
    works(&stage);
    stage_clear(&stage);
}

/* The recipe by which a failover loses a lock: the replicas are cut off, and the master answers OK.
 * No client gets a hold that they do not have. */
static void replicas_that_are_cut_off(void **state)
{
    struct stage stage;
    dlock_hold *hold;
    (void)state;
    stage_needs(&stage, "watchdog", DLOCK_REPLICAS_ONE);
    works(&stage);
    cut_off();
    assert_status(tried(stage.lock, &hold), REFUSED);
    assert_says(dlock_error(), "0 of 2 replicas confirmed the write in time; 1 must");
    eventually(exists() == 0);
    join_again();
    works(&stage);
    stage_clear(&stage);
}

/* Its user may not WAIT, so nothing can be confirmed. That is not tried again. */
static void a_user_that_may_not_wait(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (is_local(rung))
        return;
    stage_needs(&stage, rung->name, DLOCK_REPLICAS_ONE);
    server_text(server, "ACL SETUSER default -wait");
    assert_status(within(stage.lock, PATIENCE_MS), REFUSED);
    assert_says(dlock_error(), "WAIT was answered: NOPERM");
    assert_int_equal(stats_of(stage.client).attempts, 1);
    eventually(exists() == 0);
    server_text(server, "ACL SETUSER default +wait");
    works(&stage);
    stage_clear(&stage);
}

/* The connection ends while WAIT blocks it: the lock was granted, and its holder is not told. */
static void wait_is_not_answered(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (is_local(rung))
        return;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.command_timeout_ms = PATIENCE_MS;
    stage_at(&stage, rung->name, server_url(server), options);
    works(&stage);
    freeze(2);
    struct waiter waiter = {.lock = stage.lock, .want = {.size = sizeof waiter.want}};
    waiter_start(&waiter);
    eventually(strstr(server_text(server, "INFO clients"), "blocked_clients:1") != NULL);
    assert_true(server_integer(server, "CLIENT KILL TYPE normal SKIPME yes") >= 1);
    assert_int_equal(waiter_end(&waiter), DLOCK_REFUSED);
    assert_says(waiter.error, "WAIT was not answered");
    eventually(exists() == 0);
    thaw(2);
    works(&stage);
    stage_clear(&stage);
}

/* A command and its WAIT, which ends after 10 minutes, on a connection of their own. The replicas
 * are frozen. */
static struct redis *waits_for_replicas(struct redis_config *config, struct server *at)
{
    *config = (struct redis_config){
        .servers = at, .connect_timeout_ms = PATIENCE_MS, .command_timeout_ms = FROZEN_MS};
    *at = (struct server){0};
    assert_status(redis_add_server(config, server_url(server), NULL, NULL), OK);
    struct redis *redis = redis_new(config);
    assert_status(redis_ready(redis, INT64_MAX, -1), OK);
    redis_begin(redis);
    redis_append(redis, 0, 3, (const char *const[]){"SET", "probe", "1"}, NULL);
    redis_append_wait(redis, 0, "2", "600000");
    return redis;
}

/* The connection is healthy, and goes on. */
static void a_late_wait_breaks_no_connection(void **state)
{
    struct redis_config config;
    struct server at;
    struct connection_id id;
    (void)state;
    freeze(2);
    struct redis *redis = waits_for_replicas(&config, &at);
    assert_status(redis_gather(redis, INT64_MAX, -1), OK);
    assert_string_equal(redis_reply(redis, 0, 0)->str, "OK");
    assert_null(redis_reply(redis, 0, 1));
    assert_false(redis_broken_connection(redis, 0, &id));
    assert_true(redis_owes(redis, 0));
    thaw(2);
    assert_status(redis_ready(redis, INT64_MAX, -1), OK);
    redis_begin(redis);
    redis_append(redis, 0, 2, (const char *const[]){"GET", "probe"}, NULL);
    assert_status(redis_gather(redis, INT64_MAX, -1), OK);
    assert_string_equal(redis_reply(redis, 0, 0)->str, "1");
    assert_int_equal(config.connects, 1);
    assert_int_equal(config.outages.lost, 0);
    redis_free(redis);
    redis_free_servers(&config);
}

/* What was sent before it was answered, so no request is uncertain. */
static void a_lost_wait_makes_nothing_uncertain(void **state)
{
    struct redis_config config;
    struct server at;
    struct connection_id id;
    (void)state;
    freeze(2);
    struct redis *redis = waits_for_replicas(&config, &at);
    redis_send(redis);
    eventually(strstr(server_text(server, "INFO clients"), "blocked_clients:1") != NULL);
    assert_true(server_integer(server, "CLIENT KILL TYPE normal SKIPME yes") >= 1);
    assert_status(redis_wait(redis, INT64_MAX, -1), OK);
    assert_false(redis_up(redis));
    assert_status(redis_finish(redis), OK);
    assert_string_equal(redis_reply(redis, 0, 0)->str, "OK");
    assert_false(redis_broken_connection(redis, 0, &id));
    thaw(2);
    redis_free(redis);
    redis_free_servers(&config);
}

/* The acquire's own answer is lost. What finds out about it is a write of its own: otherwise WAIT
 * would be about nothing. */
static void an_acquire_whose_reply_is_lost(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    dlock_hold *hold;
    const char *sent = strcmp(rung->name, "owner_lua") == 0 ? "SET" : "EVALSHA";
    if (is_local(rung))
        return;
    stage_set(&stage, rung->name, needing(DLOCK_REPLICAS_ALL));
    works(&stage);
    proxy_plan(stage.proxy, PROXY_CUT_REPLY, sent, NULL, 0);
    assert_status(tried(stage.lock, &hold), OK);
    assert_true(proxy_done(stage.proxy));
    assert_status(dlock_release(hold, NULL), OK);

    proxy_plan(stage.proxy, PROXY_CUT_REPLY, sent, NULL, 0);
    freeze(2);
    assert_status(tried(stage.lock, &hold), REFUSED);
    assert_true(proxy_done(stage.proxy));
    assert_says(dlock_error(), TOO_FEW);
    eventually(exists() == 0);
    thaw(2);
    stage_clear(&stage);
}

/* ---- What it excludes, and what it does not -------------------------------------------------- */

/* A replica that has not confirmed may be promoted, although the other one has. Then two clients
 * hold the lock. With `all` the first one has no hold. */
static void a_stale_replica_is_promoted(void **state)
{
    static const struct {
        enum dlock_replicas_ack ack;
        dlock_status status;
    } all[] = {{DLOCK_REPLICAS_ONE, DLOCK_OK},
               {DLOCK_REPLICAS_MAJORITY, DLOCK_OK},
               {DLOCK_REPLICAS_ALL, DLOCK_REFUSED}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct stage stage;
        dlock_hold *hold;
        stage_needs(&stage, "watchdog", all[i].ack);
        freeze(1);
        server_integer(server, "CLIENT KILL TYPE replica"); /* nothing more is on its way to it */
        eventually(replicas_online() == 1);
        eventually(replicas_confirm(1));
        server_text(server, "ACL SETUSER default -psync -sync");
        assert_int_equal(tried(stage.lock, &hold), all[i].status);

        server_resume(replicas[0]);
        server_text(replicas[0], "REPLICAOF NO ONE"); /* as a failover would */
        dlock_client *next = client_of(server_url(replicas[0]), (struct dlock_options){0});
        dlock *lock = lock_of(next, "watchdog", LOCK);
        dlock_hold *other = acquired(lock);
        bool both = dlock_valid(hold) && dlock_valid(other);
        assert_int_equal(both, all[i].status == DLOCK_OK);

        assert_status(dlock_release(other, NULL), OK);
        dlock_close(lock);
        dlock_client_close(next);
        if (hold != NULL)
            assert_status(dlock_release(hold, NULL), OK);
        server_text(replicas[0], "REPLICAOF 127.0.0.1 %s", master_port);
        join_again();
        stage_clear(&stage);
    }
}

/* ---- Holds of one owner, and shared holds ---------------------------------------------------- */

/* The outer hold was confirmed. It stays valid for the time that was confirmed, and its release
 * frees the lock. */
static void a_nested_acquire_that_too_few_confirm(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    dlock_hold *inner;
    stage_needs(&stage, rung->name, DLOCK_REPLICAS_ALL);
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    int64_t ended_ms = clock_ms();
    ended_ms += dlock_remaining_ms(outer);
    freeze(2);
    assert_status(tried_by(stage.lock, OWNER, &inner), REFUSED);
    assert_says(dlock_error(), TOO_FEW);
    assert_true(dlock_valid(outer));
    int64_t ends_ms = dlock_remaining_ms(outer);
    ends_ms += clock_ms();
    assert_true(ends_ms <= ended_ms + 5);
    thaw(2);
    inner = acquired_by(stage.lock, OWNER);
    assert_status(dlock_release(inner, NULL), OK);
    assert_int_equal(exists(), 1);
    assert_status(dlock_release(outer, NULL), OK);
    eventually(exists() == 0);
    stage_clear(&stage);
}

/* It gave the key a longer time than the outer hold had. The late release of that one frees it. */
static void a_longer_nested_acquire_that_too_few_confirm(void **state)
{
    const struct dlock_rung *rung = *state;
    struct dlock_want want = {.size = sizeof want, .owner_id = OWNER, .ttl_ms = 1000};
    struct stage stage;
    dlock_hold *inner;
    stage_needs(&stage, rung->name, DLOCK_REPLICAS_ALL);
    dlock_hold *outer = wanted(stage.lock, want);
    freeze(2);
    want.ttl_ms = 600000;
    assert_status(dlock_acquire(stage.lock, &want, &inner), REFUSED);
    assert_says(dlock_error(), TOO_FEW);
    eventually(!dlock_valid(outer));
    assert_status(dlock_release(outer, NULL), LOST);
    eventually(exists() == 0);
    thaw(2);
    works(&stage);
    stage_clear(&stage);
}

static void a_second_reader(void **state)
{
    struct stage stage;
    struct dlock_want read = {.size = sizeof read, .mode = DLOCK_SHARED};
    dlock_hold *second;
    (void)state;
    stage_needs(&stage, "read_write", DLOCK_REPLICAS_ALL);
    dlock_hold *first = wanted(stage.lock, read);
    freeze(2);
    assert_status(dlock_acquire(stage.lock, &read, &second), REFUSED);
    assert_says(dlock_error(), TOO_FEW);
    eventually(server_integer(server, "ZCARD " LOCK) == 1);
    assert_true(dlock_valid(first));
    thaw(2);
    assert_status(dlock_release(first, NULL), OK);
    works(&stage);
    stage_clear(&stage);
}

/* `fair`: a hold that nests, or is handed over inside the client, sends nothing. */
static void a_hand_off_relies_on_what_was_confirmed(void **state)
{
    struct stage stage;
    (void)state;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.handoff_ms = 60000;
    stage_at(&stage, "fair", server_url(server), options);
    struct dlock_want long_want = {.owner_id = OWNER, .ttl_ms = PATIENCE_MS * 20};
    dlock_hold *outer = wanted(stage.lock, long_want);
    struct started waiter = {.release = true};
    start(stage.lock, waiting(PATIENCE_MS), &waiter);
    freeze(2);
    record_clear(stage.trace);
    dlock_hold *inner = wanted(stage.lock, long_want);
    assert_int_equal(record_count(stage.trace, ""), 0);
    assert_true(dlock_remaining_ms(inner) <= dlock_remaining_ms(outer));
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    started_answered(&waiter);
    assert_status(waiter.status, OK);
    assert_int_equal(stats_of(stage.client).handoffs, 1);
    assert_int_equal(record_count(stage.trace, "WAIT"), 0);
    thaw(2);
    stage_clear(&stage);
}

/* `fair`: a release may keep the lock for the client's waiters. That is an acquire: what is not
 * confirmed is no waiter's, and is released. */
static void a_release_that_keeps_the_lock(void **state)
{
    struct stage stage;
    (void)state;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.handoff_max = 1;
    stage_at(&stage, "fair", server_url(server), options);
    dlock_hold *hold = acquired(stage.lock);
    struct started waiter = {0};
    start(stage.lock, waiting(PATIENCE_MS), &waiter);
    long long before = waits();
    assert_status(dlock_release(hold, NULL), OK); /* it is confirmed */
    started_answered(&waiter);
    assert_status(waiter.status, OK);
    assert_int_equal(waits(), before + 1);

    hold = waiter.hold;
    waiter = (struct started){.release = true};
    start(stage.lock, waiting(PATIENCE_MS), &waiter);
    freeze(2);
    record_clear(stage.trace);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(record_count(stage.trace, " release "), 2);
    assert_int_equal(waiter.answers, 0);
    thaw(2);
    started_answered(&waiter);
    assert_status(waiter.status, OK);
    assert_int_equal(stats_of(stage.client).handoffs, 0);
    eventually(exists() == 0);
    stage_clear(&stage);
}

/* ---- Renewals -------------------------------------------------------------------------------- */

/* No renewal that too few have confirmed extends a hold: it ends in time, though the key lives.
 * False: the machine has stalled until the end of the hold. */
static bool is_not_confirmed(const struct dlock_rung *rung)
{
    struct stage stage;
    char line[512];
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.ttl_ms = 3000;
    stage_at(&stage, rung->name, server_url(server), options);
    stalled_ms();
    dlock_hold *hold = acquired(stage.lock);
    int64_t ended_ms = clock_ms();
    ended_ms += dlock_remaining_ms(hold);
    freeze(2);
    eventually(record_told(stage.events, "RENEWAL_FAILED", hold) > 0 ||
               record_told(stage.events, "LOST", hold) == 1);
    bool told = record_told(stage.events, "RENEWAL_FAILED", hold) > 0;
    assert_true(told || stalled_ms() > 500);
    record_line(stage.events, "RENEWAL_FAILED", 0, line, sizeof line);
    if (told)
        assert_says(line, TOO_FEW);
    eventually(!dlock_valid(hold));
    assert_true(clock_ms() <= ended_ms + 60000);
    eventually(record_told(stage.events, "LOST", hold) == 1);
    assert_int_equal(record_told(stage.events, "RENEWED", hold), 0);
    assert_int_equal(stats_of(stage.client).renewals, 0);
    assert_status(dlock_release(hold, NULL), LOST);
    thaw(2);
    stage_clear(&stage);
    return told;
}

static void a_renewal_that_too_few_confirm(void **state)
{
    const struct dlock_rung *rung = *state;
    if (rung->renewed)
        eventually(is_not_confirmed(rung));
}

/* It is tried again while the hold is valid. */
static void a_renewal_is_tried_again(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->renewed)
        return;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.ttl_ms = 12000;
    stage_at(&stage, rung->name, server_url(server), options);
    dlock_hold *hold = acquired(stage.lock);
    freeze(1);
    eventually(record_told(stage.events, "RENEWAL_FAILED", hold) > 0);
    assert_int_equal(record_told(stage.events, "RENEWED", hold), 0);
    thaw(1);
    eventually(record_told(stage.events, "RENEWED", hold) > 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Many holds, whose renewals share connection and writes: each answer is about its own hold, and a
 * hold that was lost is found among them. */
static void renewals_of_many_holds(void **state)
{
    enum { HOLDS = 40 };
    struct stage stage;
    dlock *locks[HOLDS];
    dlock_hold *holds[HOLDS];
    (void)state;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.ttl_ms = 6000;
    stage_at(&stage, "watchdog", server_url(server), options);
    for (size_t i = 0; i < HOLDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%zu}", i);
        locks[i] = lock_of(stage.client, "watchdog", name);
        holds[i] = acquired(locks[i]);
    }
    server_integer(server, "DEL lock:{7}");
    freeze(1);
    eventually(record_told(stage.events, "LOST", holds[7]) == 1);
    eventually(record_count(stage.events, "RENEWAL_FAILED") > 0);
    thaw(1);
    for (size_t i = 0; i < HOLDS; i++) /* on a slow machine some have ended by now */
        eventually(record_told(stage.events, "RENEWED", holds[i]) > 0 || !dlock_valid(holds[i]));
    for (size_t i = 0; i < HOLDS; i++) {
        bool ended = !dlock_valid(holds[i]);
        dlock_status status = dlock_release(holds[i], NULL);
        assert_true(status == DLOCK_LOST || (status == DLOCK_OK && !ended && i != 7));
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
}

/* The replica is healthy and far away. Renewals that become due one after another, while WAIT
 * blocks the connection, share a write and its WAIT. So the WAITs do not grow with the holds, and
 * none waits for those of the others. */
static void renewals_share_a_wait(void **state)
{
    enum { HOLDS = 60, LAG_MS = 400, TTL_MS = 6000, APART_MS = 20 };
    struct stage stage;
    dlock *locks[HOLDS];
    struct started started[HOLDS];
    (void)state;
    struct far *far = far_start(server, LAG_MS);
    server_text(replicas[0], "REPLICAOF 127.0.0.1 %s", strrchr(far_url(far), ':') + 1);
    eventually(replicas_confirm(REPLICAS));
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.command_timeout_ms = PATIENCE_MS; /* no WAIT ends because the machine stalls */
    stage_at(&stage, "watchdog", server_url(server), options);
    for (size_t i = 0; i < HOLDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%zu}", i);
        locks[i] = lock_of(stage.client, "watchdog", name);
        started[i] = (struct started){0};
        struct dlock_want want = waiting(PATIENCE_MS);
        want.ttl_ms = TTL_MS + (int64_t)i * 3 * APART_MS;
        start(locks[i], want, &started[i]);
    }
    for (size_t i = 0; i < HOLDS; i++) {
        started_answered(&started[i]);
        assert_status(started[i].status, OK);
    }
    size_t before = record_count(stage.trace, "WAIT 2 ");
    for (size_t i = 0; i < HOLDS; i++)
        eventually(record_told(stage.events, "RENEWED", started[i].hold) >= 3 ||
                   record_count(stage.events, "LOST #") > 0);
    size_t asked = record_count(stage.trace, "WAIT 2 ") - before;
    assert_int_equal(record_count(stage.events, "LOST #"), 0);
    assert_int_equal(record_count(stage.events, "RENEWAL_FAILED"), 0);
    assert_in_range(asked, 1, stats_of(stage.client).renewals / 4);
    for (size_t i = 0; i < HOLDS; i++) {
        assert_true(dlock_valid(started[i].hold));
        assert_status(dlock_release(started[i].hold, NULL), OK);
        dlock_close(locks[i]);
    }
    stage_clear(&stage);
    server_text(replicas[0], "REPLICAOF 127.0.0.1 %s", master_port);
    eventually(replicas_confirm(REPLICAS));
    far_free(far);
}

/* A renewal that is due waits for the write under way. If that is not answered at all, the
 * connection is given up in time for the hold that waits. */
static void a_silent_connection_is_given_up_for_who_waits(void **state)
{
    enum { LONG_MS = 15000, SHORT_MS = 4000 };
    struct stage stage;
    (void)state;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.command_timeout_ms = PATIENCE_MS;
    stage_set(&stage, "watchdog", options);
    dlock *other = lock_of(stage.client, "watchdog", "lock:{other}");
    dlock_hold *longer = wanted(stage.lock, (struct dlock_want){.ttl_ms = LONG_MS});
    proxy_plan(stage.proxy, PROXY_MUTE, LOCK, NULL, 0);
    eventually(proxy_done(stage.proxy));
    dlock_hold *hold = wanted(other, (struct dlock_want){.ttl_ms = SHORT_MS});
    assert_renewed(stage.events, hold, 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_release(longer, NULL), OK);
    dlock_close(other);
    stage_clear(&stage);
}

/* Two holds, and a write that is to renew both. */
struct two {
    dlock *other;
    dlock_hold *holds[2];
    struct renewer *renewer;
};

static void two_begin(struct two *two, struct stage *stage)
{
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.ttl_ms = 600000;
    options.command_timeout_ms = PATIENCE_MS;
    stage_at(stage, "watchdog", server_url(server), options);
    two->other = lock_of(stage->client, "watchdog", "lock:{other}");
    two->holds[0] = acquired(stage->lock);
    two->holds[1] = acquired(two->other);
    two->renewer = redis_renewer.make(stage->client);
    assert_status(redis_renewer.ready(two->renewer, 0, INT64_MAX, -1), OK);
    redis_renewer.begin(two->renewer);
}

/* One of the holds is nearly lost. */
static void a_hold_that_is_nearly_lost_shortens_no_wait(void **state)
{
    struct stage stage;
    struct two two;
    bool again = false, distrusted = false;
    (void)state;
    two_begin(&two, &stage);
    int64_t until_ns = two.holds[0]->valid_until_ns;
    freeze(2);
    record_clear(stage.trace);
    atomic_store(&two.holds[0]->valid_until_ns, stage.client->now_ns() + 20 * NS_PER_MS);
    bool in_full = redis_renewer.add(two.renewer, two.holds[0], 600000);
    atomic_store(&two.holds[0]->valid_until_ns, until_ns);
    redis_renewer.add(two.renewer, two.holds[1], 600000);
    /* The server is not silent while its replicas are. */
    eventually(
        (redis_renewer.wait(two.renewer, -1, true), redis_renewer.is_confirming(two.renewer)));
    assert_false(redis_renewer.has_answer(two.renewer));
    thaw(2);
    eventually((redis_renewer.wait(two.renewer, -1, true), redis_renewer.has_answer(two.renewer)));
    assert_false(redis_renewer.is_confirming(two.renewer));
    assert_status(redis_renewer.take(two.renewer, two.holds[0], in_full, &again, &distrusted), OK);
    assert_status(redis_renewer.take(two.renewer, two.holds[1], false, &again, &distrusted), OK);
    assert_int_equal(record_count(stage.trace, "WAIT 2 "), 1);
    assert_int_equal(wait_ms_of(&stage, 0), PATIENCE_MS / 2);
    redis_renewer.free(two.renewer);
    for (size_t i = 0; i < 2; i++)
        assert_status(dlock_release(two.holds[i], NULL), OK);
    dlock_close(two.other);
    stage_clear(&stage);
}

/* The replicas are not heard any more. Which hold was lost is known all the same. */
static void renewals_without_an_answer_to_wait(void **state)
{
    struct stage stage;
    struct two two;
    bool again = false, distrusted = false;
    (void)state;
    two_begin(&two, &stage);
    server_integer(server, "DEL lock:{other}");
    freeze(2);
    bool in_full = redis_renewer.add(two.renewer, two.holds[0], 600000);
    redis_renewer.add(two.renewer, two.holds[1], 600000);
    eventually(
        (redis_renewer.wait(two.renewer, -1, true), redis_renewer.is_confirming(two.renewer)));
    assert_status(redis_renewer.give_up(two.renewer), REFUSED);
    assert_true(redis_renewer.has_answer(two.renewer));
    assert_status(redis_renewer.take(two.renewer, two.holds[0], in_full, &again, &distrusted),
                  REFUSED);
    assert_says(dlock_error(), "WAIT was not answered");
    assert_true(redis_renewer.has_answer(two.renewer));
    assert_status(redis_renewer.take(two.renewer, two.holds[1], false, &again, &distrusted), LOST);
    thaw(2);
    redis_renewer.free(two.renewer);
    dlock_release(two.holds[0], NULL);
    dlock_release(two.holds[1], NULL);
    dlock_close(two.other);
    stage_clear(&stage);
}

/* The hold stays as it was. The key may live longer. */
static void an_extension_that_too_few_confirm(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->expires)
        return;
    struct dlock_options options = needing(DLOCK_REPLICAS_ALL);
    options.ttl_ms = 600000;
    stage_at(&stage, rung->name, server_url(server), options);
    dlock_hold *hold = acquired(stage.lock);
    int64_t ended_ms = clock_ms();
    ended_ms += dlock_remaining_ms(hold);
    freeze(2);
    eventually(clock_ms() + dlock_remaining_ms(hold) <= ended_ms + 1);
    assert_status(dlock_extend(hold), REFUSED);
    assert_says(dlock_error(), TOO_FEW);
    int64_t ends_ms = dlock_remaining_ms(hold);
    ends_ms += clock_ms();
    assert_true(ends_ms <= ended_ms + 5); /* the extension took at least 500 ms */
    thaw(2);
    assert_status(dlock_extend(hold), OK);
    assert_true(clock_ms() + dlock_remaining_ms(hold) > ended_ms + 100);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* The key lives longer than the renewal asks for. It is written all the same, because WAIT is about
 * the writes of its own connection. */
static void a_renewal_always_writes(void **state)
{
    static const char *const rungs[] = {"watchdog", "owner_lua", "reentrant",
                                        "notify",   "fair",      "read_write"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        stage_needs(&stage, rungs[i], DLOCK_REPLICAS_ALL);
        dlock_hold *hold = acquired(stage.lock);
        assert_int_equal(server_integer(server, "PEXPIRE " LOCK " 600000"), 1);
        struct monitor *monitor = monitor_start(replicas[0]);
        assert_status(dlock_extend(hold), OK);
        assert_true(monitor_count(monitor, "PEXPIREAT") + monitor_count(monitor, "GETEX") > 0);
        monitor_free(monitor);
        assert_true(left_on_server() > 500000);
        assert_status(dlock_release(hold, NULL), OK);
        stage_clear(&stage);
    }
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(how_many_must_confirm, ONCE),
        SCENARIO(options_that_are_not_valid, ONCE),
        SCENARIO(nothing_is_asked_without_the_option, EACH_SOUND),
        SCENARIO(wait_is_no_longer_than_what_it_confirms, EACH_SOUND),
        SCENARIO(what_is_asked, EACH_SOUND),
        SCENARIO(flawed_rungs_ask_too, ONCE),
        SCENARIO(one_wait_for_a_shared_write, ONCE),
        SCENARIO(an_acquire_that_too_few_confirm, EACH_SOUND),
        SCENARIO(one_replica_confirms, EACH_SOUND),
        SCENARIO(a_waiter_acquires_when_they_are_back, EACH_SOUND),
        SCENARIO(a_wait_in_vain, ONCE),
        SCENARIO(dead_replicas_count, ONCE),
        SCENARIO(replicas_that_are_cut_off, ONCE),
        SCENARIO(a_user_that_may_not_wait, EACH_SOUND),
        SCENARIO(wait_is_not_answered, EACH_SOUND),
        SCENARIO(a_late_wait_breaks_no_connection, ONCE),
        SCENARIO(a_lost_wait_makes_nothing_uncertain, ONCE),
        SCENARIO(an_acquire_whose_reply_is_lost, EACH_SOUND),
        SCENARIO(a_stale_replica_is_promoted, ONCE),
        SCENARIO(a_nested_acquire_that_too_few_confirm, EACH_NESTED_ASKS),
        SCENARIO(a_longer_nested_acquire_that_too_few_confirm, EACH_NESTED_ASKS),
        SCENARIO(a_second_reader, ONCE),
        SCENARIO(a_hand_off_relies_on_what_was_confirmed, ONCE),
        SCENARIO(a_release_that_keeps_the_lock, ONCE),
        SCENARIO(a_renewal_that_too_few_confirm, EACH_SOUND),
        SCENARIO(a_renewal_is_tried_again, EACH_SOUND),
        SCENARIO(renewals_of_many_holds, ONCE),
        SCENARIO(renewals_share_a_wait, ONCE),
        SCENARIO(a_silent_connection_is_given_up_for_who_waits, ONCE),
        SCENARIO(a_hold_that_is_nearly_lost_shortens_no_wait, ONCE),
        SCENARIO(renewals_without_an_answer_to_wait, ONCE),
        SCENARIO(an_extension_that_too_few_confirm, EACH_SOUND),
        SCENARIO(a_renewal_always_writes, ONCE),
    };
    return run_scenarios("replicas_ack", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_replicas, stop_replicas);
}
