/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of many calls that share a connection: how few writes they take, that each gets its own
 * answer, and what lost replies lead to. And what is sent inside a hold, or left behind by a call.
 */
#include "calls.h"
#include "child.h"
#include "client.h"
#include "far.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "sends.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define CROWD 400
#define LOCK "lock:{exchange}"
#define OTHER "lock:{other}"
#define OWNER 7

/* Rungs whose requests share. */
static const char *const sharing[] = {"reentrant", "watchdog", "notify", "fair", "read_write"};
#define SHARING (sizeof sharing / sizeof sharing[0])

/* ---- The stage ------------------------------------------------------------------------------- */

struct stage {
    struct proxy *proxy; /* or NULL */
    dlock_client *client;
    dlock *locks[CROWD];
    struct started *crowd;
    _Atomic int over;
};

/* A client that has connected and whose scripts the server knows. */
static void stage_set(struct stage *stage, const char *rung, bool by_proxy,
                      struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    *stage = (struct stage){.proxy = by_proxy ? proxy_start(server) : NULL};
    if (options.ttl_ms == 0)
        options.ttl_ms = 3600000; /* renewed never */
    stage->client = client_of(by_proxy ? proxy_url(stage->proxy) : server_url(server), options);
    for (int i = 0; i < CROWD; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%d}", i);
        stage->locks[i] = lock_of(stage->client, rung, name);
    }
    assert_status(dlock_release(acquired(stage->locks[0]), NULL), OK);
    stage->crowd = crowd_new(CROWD, false, &stage->over);
}

static void stage_clear(struct stage *stage)
{
    for (int i = 0; i < CROWD; i++)
        dlock_close(stage->locks[i]);
    dlock_client_close(stage->client);
    if (stage->proxy != NULL)
        proxy_free(stage->proxy);
    free(stage->crowd);
}

/* The crowd's first so many answers. */
static void all_answered(struct stage *stage, int count)
{
    eventually(atomic_load(&stage->over) == count);
    atomic_store(&stage->over, 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(atomic_exchange(&stage->crowd[i].answers, 0), 1);
}

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
        start(stage.locks[i], (struct dlock_want){.wait_ms = PATIENCE_MS, .limit_ms = 50000},
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

/* ---- What a call leaves behind --------------------------------------------------------------- */

struct pair {
    dlock_client *client;
    dlock *lock;
};

static struct pair pair_of(const char *url, const char *rung, struct dlock_options options)
{
    struct pair pair = {.client = client_of(url, options)};
    pair.lock = lock_of(pair.client, rung, LOCK);
    return pair;
}

static void pair_free(struct pair *pair)
{
    dlock_close(pair->lock);
    dlock_client_close(pair->client);
}

/* What is left behind is released long before that is over. On `fair` the client itself holds, and
 * keeps it for its next waiter: there it expires. */
static int64_t long_ttl_ms(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "fair") == 0 ? 1000 : 3600000;
}

/* Nothing of it is left on the server. */
static void nothing_stays(void)
{
    eventually(server_integer(server, "EXISTS " LOCK " dlock:queue:" LOCK " dlock:holds:" LOCK
                                      " dlock:writers:" LOCK " dlock:readers:" LOCK) == 0);
}

static dlock_batch *a_read(void)
{
    dlock_batch *reads = dlock_batch_new();
    must(dlock_batch_add(reads, 2, (const char *const[]){"GET", "read"}, NULL) == DLOCK_OK);
    return reads;
}

static bool needs_a_server(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "local") != 0;
}

/* The server stands still longer than the call may last. The caller frees what rode at once; what
 * the request locks when the server goes on is released in the background. */
static void what_a_limit_cut_off_is_released(void **state)
{
    const struct dlock_rung *rung = *state;
    if (!needs_a_server(rung))
        return;
    for (int started = 0; started < 2; started++) {
        server_text(server, "FLUSHALL");
        struct started late = {0};
        dlock_hold *hold = NULL;
        struct dlock_options options = {
            .ttl_ms = long_ttl_ms(rung), .connect_timeout_ms = 60000, .command_timeout_ms = 60000};
        struct pair pair = pair_of(server_url(server), rung->name, options);
        assert_status(dlock_release(acquired(pair.lock), NULL), OK);
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .limit_ms = 200, .reads = a_read()};
        server_pause(server);
        if (started) {
            start(pair.lock, want, &late);
            started_answered(&late);
            assert_int_equal(late.status, DLOCK_TIMED_OUT);
        } else {
            assert_status(dlock_acquire(pair.lock, &want, &hold), TIMED_OUT);
        }
        dlock_batch_free(want.reads);
        assert_null(hold);
        assert_null(late.hold);
        server_resume(server);
        nothing_stays();
        assert_status(dlock_release(acquired(pair.lock), NULL), OK);
        pair_free(&pair);
    }
}

/* The same of a cancel, which awaits a request under way no longer than the bound. */
static void what_a_cancel_cut_off_is_released(void **state)
{
    const struct dlock_rung *rung = *state;
    if (!needs_a_server(rung))
        return;
    for (int started = 0; started < 2; started++) {
        server_text(server, "FLUSHALL");
        struct started late = {0};
        struct dlock_options options = {
            .ttl_ms = long_ttl_ms(rung), .connect_timeout_ms = 200, .command_timeout_ms = 200};
        struct pair pair = pair_of(server_url(server), rung->name, options);
        assert_status(dlock_release(acquired(pair.lock), NULL), OK);
        struct waiter waiter = {.lock = pair.lock,
                                .want = {.wait_ms = DLOCK_WAIT_FOREVER,
                                         .cancel = dlock_cancel_new(),
                                         .reads = a_read()}};
        server_pause(server);
        if (started)
            start(pair.lock, waiter.want, &late);
        else
            waiter_start(&waiter);
        eventually(stats_of(pair.client).attempts >= 2);
        dlock_cancel_now(waiter.want.cancel);
        if (started)
            started_answered(&late);
        else
            late.status = waiter_end(&waiter);
        assert_int_equal(late.status, DLOCK_CANCELLED);
        dlock_batch_free(waiter.want.reads);
        dlock_cancel_free(waiter.want.cancel);
        server_resume(server);
        nothing_stays();
        pair_free(&pair);
    }
}

/* Scripts hang. What many waiters leave behind is taken back in the background: all are told while
 * it still hangs. */
static void many_leave_while_scripts_hang(void **state)
{
    enum { COUNT = 30 };
    (void)state;
    struct stage stage;
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    dlock_hold *holds[COUNT];
    dlock *theirs[COUNT];
    stage_set(&stage, "read_write", false, (struct dlock_options){0});
    dlock_client *other = client_of(server_url(server), (struct dlock_options){.ttl_ms = 3600000});
    for (int i = 0; i < COUNT; i++) {
        theirs[i] = lock_of(other, "read_write", dlock_name(stage.locks[i]));
        holds[i] = acquired(theirs[i]);
    }
    want.cancel = dlock_cancel_new();
    for (int i = 0; i < COUNT; i++)
        start(stage.locks[i], want, &stage.crowd[i]);
    eventually(stats_of(stage.client).attempts >= 1 + 2 * COUNT); /* again once it listened */
    server_text(server, "CLIENT PAUSE 3600000 WRITE");
    dlock_cancel_now(want.cancel);
    all_answered(&stage, COUNT);
    server_text(server, "CLIENT UNPAUSE");
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(stage.crowd[i].status, DLOCK_CANCELLED);
        eventually(server_integer(server, "EXISTS dlock:writers:lock:{%d}", i) == 0);
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(theirs[i]);
    }
    dlock_cancel_free(want.cancel);
    dlock_client_close(other);
    stage_clear(&stage);
}

static void looks_on(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    (void)trace;
}

/* Scripts hang, and many calls have left something behind. The client closes with the requests that
 * are under way, and begins none. */
static void a_close_begins_nothing(void **state)
{
    enum { COUNT = 40 };
    (void)state;
    struct stage stage;
    /* A hook looks on: each request goes by itself. */
    stage_set(&stage, "watchdog", true,
              (struct dlock_options){
                  .on_trace = looks_on, .command_timeout_ms = 100, .connect_timeout_ms = 100});
    server_text(server, "CLIENT PAUSE 3600000 WRITE");
    for (int i = 0; i < COUNT; i++)
        start(stage.locks[i], waiting(0), &stage.crowd[i]);
    all_answered(&stage, COUNT);
    size_t before = proxy_requests(stage.proxy, "EVALSHA");
    for (int i = 0; i < CROWD; i++)
        dlock_close(stage.locks[i]);
    dlock_client_close(stage.client);
    /* Two threads ask, and each sends what it began once more. */
    assert_in_range(proxy_requests(stage.proxy, "EVALSHA") - before, 0, 4);
    server_text(server, "CLIENT UNPAUSE");
    proxy_free(stage.proxy);
    free(stage.crowd);
}

/* ---- Inside a hold --------------------------------------------------------------------------- */

/* The release waits for the client's one connection until the hold's validity is over, and another
 * has the lock: what was to be sent before it is not sent. */
static void what_rides_comes_never_after_its_hold(void **state)
{
    const struct dlock_rung *rung = *state;
    if (!needs_a_server(rung))
        return;
    for (int started = 0; started < 2; started++) {
        server_text(server, "FLUSHALL");
        struct proxy *proxy = proxy_start(server);
        struct pair pair =
            pair_of(proxy_url(proxy), rung->name,
                    (struct dlock_options){
                        .ttl_ms = 1000, .connections_max = 1, .command_timeout_ms = 60000});
        struct pair other = pair_of(server_url(server), rung->name, (struct dlock_options){0});
        struct waiter keeper = {.lock = lock_of(pair.client, "owner_lua", OTHER),
                                .want = {.wait_ms = PATIENCE_MS}};
        struct releaser releaser = {.hold = acquired(pair.lock), .last = dlock_batch_new()};
        struct started late = {0};
        static const char *const set[] = {"SET", "resource", "ours"};
        assert_status(dlock_batch_add(releaser.last, 3, set, NULL), OK);
        proxy_plan(proxy, PROXY_HOLD_REPLY, OTHER, NULL, 0);
        waiter_start(&keeper);
        eventually(proxy_done(proxy));
        if (started)
            start_release(releaser.hold, releaser.last, &late);
        else
            releaser_start(&releaser);
        dlock_hold *hold = acquired(other.lock); /* once it has expired */
        server_text(server, "SET resource theirs");
        proxy_let_go(proxy);
        if (started)
            started_answered(&late);
        assert_int_equal(started ? late.status : releaser_end(&releaser), DLOCK_LOST);
        assert_string_equal(server_text(server, "GET resource"), "theirs");
        assert_status(waiter_end(&keeper), OK);
        assert_status(dlock_release(keeper.hold, NULL), OK);
        dlock_release(hold, NULL);
        dlock_batch_free(releaser.last);
        dlock_close(keeper.lock);
        pair_free(&other);
        pair_free(&pair);
        proxy_free(proxy);
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
        SCENARIO(what_a_limit_cut_off_is_released, EACH_SOUND),
        SCENARIO(what_a_cancel_cut_off_is_released, EACH_SOUND),
        SCENARIO(many_leave_while_scripts_hang, ONCE),
        SCENARIO(a_close_begins_nothing, ONCE),
        SCENARIO(what_rides_comes_never_after_its_hold, EACH_SOUND),
    };
    return run_scenarios("exchange", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
