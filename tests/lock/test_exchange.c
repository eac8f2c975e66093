/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of many calls that share a connection: how few writes they take, that each gets its own
 * answer, and what lost replies lead to.
 */
#include "calls.h"
#include "client.h"
#include "exchange_stage.h"
#include "far.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "sends.h"
#include "sound.h"
#include "started.h"

#include <stdatomic.h>
#include <stdio.h>

#define OTHER "lock:{other}"

/* Rungs whose requests share. */
static const char *const sharing[] = {"reentrant", "watchdog", "notify", "fair", "read_write"};
#define SHARING (sizeof sharing / sizeof sharing[0])

/* ---- The crowd ------------------------------------------------------------------------------- */

static void all_answered_ok(struct stage *stage)
{
    all_answered(stage, CROWD);
    for (int i = 0; i < CROWD; i++)
        if (stage->crowd[i].status != DLOCK_OK)
            failed("number %d: %s", i, stage->crowd[i].error);
}

static void start_all(struct stage *stage)
{
    for (int i = 0; i < CROWD; i++)
        start(stage->locks[i], waiting(PATIENCE_MS), &stage->crowd[i]);
}

static void start_all_releases(struct stage *stage)
{
    for (int i = 0; i < CROWD; i++) {
        dlock_hold *hold = stage->crowd[i].hold;
        start_release(hold, NULL, &stage->crowd[i]);
    }
}

/* ---- How few writes -------------------------------------------------------------------------- */

/* Two threads ask: each begins with the few that are there first, and while the server stands still
 * the others gather. Then they go 128 at a time. */
#define WRITES_MOST (2 + CROWD / 128 + 1 + 2)

static void few_writes_take_many(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHARING; i++) {
        struct stage stage;
        stage_set(&stage, sharing[i], false, (struct dlock_options){.command_timeout_ms = 60000});
        uint64_t connects = stats_of(stage.client).connects;
        server_pause(server);
        atomic_store(&sends, 0);
        start_all(&stage);
        server_resume(server);
        all_answered_ok(&stage);
        assert_in_range(atomic_load(&sends), 1, WRITES_MOST + 2); /* a login is two */
        server_pause(server);
        atomic_store(&sends, 0);
        start_all_releases(&stage);
        server_resume(server);
        all_answered_ok(&stage);
        assert_in_range(atomic_load(&sends), 1, WRITES_MOST + 2);
        assert_in_range(stats_of(stage.client).connects - connects, 0, 1);
        assert_int_equal(stats_of(stage.client).released, CROWD + 1);
        assert_int_equal(server_integer(server, "EXISTS lock:{0} lock:{1} lock:{399}"), 0);
        stage_clear(&stage);
    }
}

/* Those that must end sooner than a lost reply may take share, too, if they end together. */
static void few_writes_take_many_that_end_soon(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", false, (struct dlock_options){.command_timeout_ms = 60000});
    server_pause(server);
    atomic_store(&sends, 0);
    for (int i = 0; i < CROWD; i++)
        start(stage.locks[i], (struct dlock_want){.wait_ms = PATIENCE_MS, .call_max_ms = 50000},
              &stage.crowd[i]);
    server_resume(server);
    all_answered_ok(&stage);
    assert_in_range(atomic_load(&sends), 1, WRITES_MOST + 2);
    start_all_releases(&stage);
    all_answered_ok(&stage);
    stage_clear(&stage);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

#define TRIES_MOST 60000

/* A try that is begun anew from its answer, until enough were answered. */
struct restless {
    dlock *lock;
    _Atomic long *tries;
    _Atomic int *under_way;
};

static void try_again(void *arg, dlock_status status, dlock_hold *hold)
{
    struct restless *restless = arg;
    struct dlock_want want = {.size = sizeof want};
    must(status == DLOCK_BUSY && hold == NULL);
    if (atomic_fetch_add(restless->tries, 1) < TRIES_MOST)
        must(dlock_acquire_start(restless->lock, &want, try_again, restless) == DLOCK_OK);
    else
        atomic_fetch_sub(restless->under_way, 1);
}

/* More calls ask, each at once anew, than go into the writes of a round. A release and a wait that
 * are due come to their turn all the same, long before the tries end. */
static void what_is_due_gets_its_turn(void **state)
{
    (void)state;
    struct stage other;
    static _Atomic long tries;
    static _Atomic int under_way;
    struct started released = {0}, waits = {0};
    atomic_store(&tries, 0);
    stage_set(&other, "watchdog", false, (struct dlock_options){0});
    struct far *far = far_start(server, 5);
    dlock_client *client = client_of(far_url(far), (struct dlock_options){
                                                       .ttl_ms = 3600000,
                                                       .command_timeout_ms = 60000,
                                                   });
    dlock *busy = lock_of(client, "watchdog", "lock:{1}");
    dlock *lock = lock_of(client, "watchdog", OTHER);
    dlock_hold *theirs = acquired(other.locks[1]), *ours = acquired(lock);
    struct restless restless = {busy, &tries, &under_way};
    struct dlock_want want = {.size = sizeof want};
    for (int i = 0; i < 8 * EXCHANGES_MAX; i++) {
        atomic_fetch_add(&under_way, 1);
        assert_status(dlock_acquire_start(busy, &want, try_again, &restless), OK);
    }
    eventually(atomic_load(&tries) > 0);
    start_release(ours, NULL, &released);
    start(busy, waiting(500), &waits);
    started_answered(&released);
    started_answered(&waits);
    assert_int_equal(released.status, DLOCK_OK);
    assert_int_equal(waits.status, DLOCK_TIMED_OUT);
    assert_true(atomic_load(&tries) < TRIES_MOST);
    atomic_store(&tries, TRIES_MOST);
    eventually(atomic_load(&under_way) == 0);
    assert_status(dlock_release(theirs, NULL), OK);
    dlock_close(busy);
    dlock_close(lock);
    dlock_client_close(client);
    far_free(far);
    stage_clear(&other);
}

/* ---- Scripts --------------------------------------------------------------------------------- */

/* The server does not know the script: one request of each write brings it in full. While the
 * threads that ask wait with others of another rung, all of them gather. */
static void a_script_is_sent_once_for_all(void **state)
{
    (void)state;
    struct stage stage;
    struct started plugs[2] = {{.release = true}, {.release = true}};
    stage_set(&stage, "watchdog", false, (struct dlock_options){.command_timeout_ms = 60000});
    dlock *apart = lock_of(stage.client, "owner_lua", OTHER);
    server_text(server, "SCRIPT FLUSH");
    uint64_t loaded = stats_of(stage.client).scripts_loaded;
    server_pause(server);
    for (int i = 0; i < 2; i++) {
        start(apart, waiting(PATIENCE_MS), &plugs[i]);
        eventually(stats_of(stage.client).attempts == 2 + (uint64_t)i);
    }
    start_all(&stage);
    server_resume(server);
    all_answered_ok(&stage);
    assert_in_range(stats_of(stage.client).scripts_loaded - loaded, 1, WRITES_MOST);
    for (int i = 0; i < 2; i++)
        started_answered(&plugs[i]);
    start_all_releases(&stage);
    all_answered_ok(&stage);
    dlock_close(apart);
    stage_clear(&stage);
}

/* Of two releases in a write one hears that its script is unknown, and the other hears nothing.
 * What is sent again meanwhile makes nobody forget that the other's commands may still come. */
static void a_doubt_beside_an_unknown_script(void **state)
{
    (void)state;
    static const char answers[] = ":1\r\n-NOSCRIPT no matching script\r\n";
    struct stage stage;
    dlock_batch *last[2];
    struct exchange exchanges[2];
    stage_set(&stage, "watchdog", true, (struct dlock_options){.command_timeout_ms = 1000});
    for (int i = 0; i < 2; i++) {
        last[i] = dlock_batch_new();
        assert_status(dlock_batch_add(last[i], 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
        int64_t ends_ns = mono_deadline_ns(PATIENCE_MS);
        exchanges[i] = (struct exchange){.step = STEP_RELEASE,
                                         .hold = acquired(stage.locks[i]),
                                         .last = last[i],
                                         .limit_ns = ends_ns,
                                         .ends_ns = ends_ns};
    }
    size_t kills = proxy_requests(stage.proxy, "KILL");
    server_text(server, "SCRIPT FLUSH SYNC");
    proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "sold", answers, sizeof answers - 1);
    exchange_begin(stage.client, (struct exchange *[]){&exchanges[0], &exchanges[1]}, 2);
    assert_int_equal(proxy_requests(stage.proxy, "KILL"), kills + 1);
    assert_int_equal(exchanges[0].status, DLOCK_OK); /* what rode with it was answered */
    assert_int_equal(exchanges[1].status, DLOCK_UNKNOWN);
    assert_false(exchanges[1].open);
    for (int i = 0; i < 2; i++) {
        dlock_release(exchanges[i].hold, NULL);
        dlock_batch_free(last[i]);
    }
    stage_clear(&stage);
}

/* It was lost before it arrived, and its release is sent once more to a server that does not know
 * the script: that has an answer, what rode has none. */
static void what_rode_is_not_forgotten(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHARING; i++) {
        struct stage stage;
        dlock_batch *last = dlock_batch_new();
        stage_set(&stage, sharing[i], true, (struct dlock_options){0});
        assert_status(dlock_batch_add(last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
        dlock_hold *hold = acquired(stage.locks[0]);
        server_text(server, "SCRIPT FLUSH");
        proxy_plan(stage.proxy, PROXY_CUT_REQUEST, "sold", NULL, 0);
        assert_status(dlock_release(hold, last), UNKNOWN);
        assert_int_equal(server_integer(server, "EXISTS sold lock:{0}"), 0);
        dlock_batch_free(last);
        stage_clear(&stage);
    }
}

/* ---- Each its own answer --------------------------------------------------------------------- */

static void each_has_its_own_answer(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", false, (struct dlock_options){.command_timeout_ms = 60000});
    dlock_client *other = client_of(server_url(server), (struct dlock_options){.ttl_ms = 3600000});
    dlock *theirs = lock_of(other, "watchdog", "lock:{5}");
    dlock_hold *hold = acquired(theirs);
    server_text(server, "SET lock:{7} text");
    dlock_batch *reads = dlock_batch_new();
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "read"}, NULL), OK);
    server_text(server, "SET read 9");
    server_pause(server);
    for (int i = 0; i < 10; i++)
        start(stage.locks[i], (struct dlock_want){.reads = i == 8 ? reads : NULL}, &stage.crowd[i]);
    server_resume(server);
    all_answered(&stage, 10);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(stage.crowd[i].status, i == 5   ? DLOCK_BUSY
                                                : i == 7 ? DLOCK_WRONG_TYPE
                                                         : DLOCK_OK);
        if (stage.crowd[i].hold == NULL)
            continue;
        char owner[128];
        snprintf(owner, sizeof owner, "%s", dlock_owner(stage.crowd[i].hold));
        assert_string_equal(server_text(server, "HGET lock:{%d} %s", i, owner), "1");
        assert_status(dlock_release(stage.crowd[i].hold, NULL), OK);
    }
    assert_says(stage.crowd[7].error, "lock:{7}");
    struct dlock_reply reply = {.size = sizeof reply};
    assert_status(dlock_batch_reply(reads, 0, &reply), OK);
    assert_string_equal(reply.text, "9");
    dlock_batch_free(reads);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(theirs);
    dlock_client_close(other);
    stage_clear(&stage);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* Starts all but the first while the first one's reply is kept, and each thread that asks waits. */
static void start_behind_one_that_waits(struct stage *stage, enum proxy_act act)
{
    server_pause(server);
    start(stage->locks[0], waiting(PATIENCE_MS), &stage->crowd[0]);
    eventually(stats_of(stage->client).attempts == 2);
    start(stage->locks[1], waiting(PATIENCE_MS), &stage->crowd[1]);
    eventually(stats_of(stage->client).attempts == 3);
    proxy_plan(stage->proxy, act, "lock:{150}", NULL, 0);
    for (int i = 2; i < CROWD; i++)
        start(stage->locks[i], waiting(PATIENCE_MS), &stage->crowd[i]);
    server_resume(server);
}

/* All that shared the connection lost their replies: one kill ends the doubt of all, and each is
 * sent once more, and counts once. */
static void one_kill_for_all_that_shared(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REQUEST, PROXY_CUT_REPLY};
    (void)state;
    for (size_t i = 0; i < 2 * SHARING; i++) {
        struct stage stage;
        stage_set(&stage, sharing[i / 2], true, (struct dlock_options){0});
        start_behind_one_that_waits(&stage, acts[i % 2]);
        all_answered_ok(&stage);
        assert_true(proxy_done(stage.proxy));
        assert_in_range(proxy_requests(stage.proxy, "KILL"), 1, 2);
        assert_int_equal(stats_of(stage.client).acquired, CROWD + 1);
        start_all_releases(&stage);
        all_answered_ok(&stage);
        for (int j = 0; j < CROWD; j++)
            assert_int_equal(server_integer(server, "EXISTS lock:{%d}", j), 0);
        stage_clear(&stage);
    }
}

/* The same of releases. */
static void releases_that_shared_count_once(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REQUEST, PROXY_CUT_REPLY};
    (void)state;
    for (size_t i = 0; i < 2 * SHARING; i++) {
        struct stage stage;
        stage_set(&stage, sharing[i / 2], true, (struct dlock_options){0});
        start_all(&stage);
        all_answered_ok(&stage);
        server_pause(server);
        proxy_plan(stage.proxy, acts[i % 2], "lock:{150}", NULL, 0);
        start_all_releases(&stage);
        server_resume(server);
        all_answered_ok(&stage);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(stats_of(stage.client).released, CROWD + 1);
        for (int j = 0; j < CROWD; j++)
            assert_int_equal(server_integer(server, "EXISTS lock:{%d}", j), 0);
        stage_clear(&stage);
    }
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(few_writes_take_many, ONCE),
        SCENARIO(few_writes_take_many_that_end_soon, ONCE),
        SCENARIO(what_is_due_gets_its_turn, ONCE),
        SCENARIO(a_doubt_beside_an_unknown_script, ONCE),
        SCENARIO(what_rode_is_not_forgotten, ONCE),
        SCENARIO(a_script_is_sent_once_for_all, ONCE),
        SCENARIO(each_has_its_own_answer, ONCE),
        SCENARIO(one_kill_for_all_that_shared, ONCE),
        SCENARIO(releases_that_shared_count_once, ONCE),
    };
    return run_scenarios("exchange", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
