/* SPDX-License-Identifier: Apache-2.0
 *
 * Started releases: answered exactly once, with what dlock_release would say.
 */
#include "calls.h"
#include "child.h"
#include "client.h"
#include "must.h"
#include "pair_stage.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <poll.h>
#include <stdatomic.h>

#define THREAD_S "reentrant_tls" /* counts in the memory of the thread that acquires */

/* ---- What it answers ------------------------------------------------------------------------- */

static void every_rung(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct started released = {0};
        stage_set(&stage, rungs[i].name, (struct dlock_options){0});
        dlock_hold *hold = acquired(stage.lock);
        if (strcmp(rungs[i].name, THREAD_S) == 0) {
            assert_status(dlock_release_start(hold, NULL, started_done, &released), UNSUPPORTED);
            assert_says(dlock_error(), "thread");
            assert_status(dlock_release(hold, NULL), OK); /* it stayed as it was */
            stage_clear(&stage);
            continue;
        }
        start_release(hold, stage.last, &released);
        started_answered(&released);
        assert_int_equal(released.status, DLOCK_OK);
        assert_null(released.hold);
        assert_false(pthread_equal(released.thread, pthread_self()));
        assert_int_equal(stats_of(stage.client).released, 1);
        assert_int_equal(sold(), 1);
        struct dlock_reply reply = {.size = sizeof reply};
        assert_status(dlock_batch_reply(stage.last, 0, &reply), OK);
        assert_int_equal(reply.integer, 1);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

static void what_is_wrong_is_said_at_once(void **state)
{
    (void)state;
    struct stage stage;
    struct started released = {0};
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.lock);
    assert_status(dlock_release_start(NULL, NULL, started_done, &released), INVALID);
    assert_status(dlock_release_start(hold, NULL, NULL, &released), INVALID);
    assert_true(dlock_valid(hold));
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_OK);
    assert_int_equal(stats_of(stage.client).released, 1);
    stage_clear(&stage);
}

static int release_in_a_child(void *hold)
{
    struct started none = {0};
    must(dlock_release_start(hold, NULL, started_done, &none) == DLOCK_FORKED);
    must(atomic_load(&none.answers) == 0);
    return 23;
}

static void in_a_forked_child(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.lock);
    pthread_mutex_lock(&stage.client->loop.mutex); /* as a thread may at that moment */
    pid_t child = child_start(release_in_a_child, hold);
    pthread_mutex_unlock(&stage.client->loop.mutex);
    assert_int_equal(child_wait(child), 23);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* The server says that the lock is somebody else's. */
static void lost_on_the_server(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started released = {0};
    if (is_local(rung))
        return;
    stage_set(&stage, rung->name, (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.lock);
    assert_status(dlock_break(stage.other, NULL), OK);
    dlock_hold *theirs = acquired(stage.other);
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_LOST);
    assert_says(released.error, LOCK);
    assert_status(dlock_release(theirs, NULL), OK);
    stage_clear(&stage);
}

/* The key holds something else: the sentence names it, though no thread asks the server for
 * more. */
static void another_type(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started released = {0};
    if (is_local(rung))
        return;
    stage_set(&stage, rung->name, (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.lock);
    server_integer(server, "DEL " LOCK);
    server_integer(server, "SADD " LOCK " member");
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_WRONG_TYPE);
    assert_says(released.error, LOCK);
    assert_int_equal(server_integer(server, "SCARD " LOCK), 1);
    stage_clear(&stage);
}

/* The hold is over already: nothing is sent. */
static void lost_before(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started released = {0};
    if (is_local(rung))
        return;
    stage_set(&stage, rung->name, (struct dlock_options){0});
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .hold_max_ms = 100};
    assert_status(dlock_acquire(stage.lock, &want, &hold), OK);
    eventually(!dlock_valid(hold));
    size_t requests = proxy_requests(stage.proxy, "");
    start_release(hold, stage.last, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_LOST);
    assert_int_equal(sold(), 0);
    assert_int_equal(proxy_requests(stage.proxy, ""), requests);
    stage_clear(&stage);
}

/* The reply is lost. What rode may have been carried out, and is not sent again; the release is,
 * and counts once. */
static void a_reply_is_lost(void **state)
{
    const struct dlock_rung *rung = *state;
    static const enum proxy_act acts[] = {PROXY_CUT_REQUEST, PROXY_CUT_REPLY};
    if (is_local(rung))
        return;
    for (size_t i = 0; i < 4; i++) {
        struct stage stage;
        struct started released = {0};
        bool rides = i >= 2;
        stage_set(&stage, rung->name, (struct dlock_options){0});
        dlock_hold *hold = acquired(stage.lock);
        proxy_plan(stage.proxy, acts[i % 2], "", NULL, 0);
        start_release(hold, rides ? stage.last : NULL, &released);
        started_answered(&released);
        assert_true(proxy_done(stage.proxy));
        assert_int_equal(released.status, rides ? DLOCK_UNKNOWN : DLOCK_OK);
        assert_int_equal(sold(), rides && i % 2 == 1);
        assert_int_equal(stats_of(stage.client).unknown, rides);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* ---- In a loop of the caller's --------------------------------------------------------------- */

static void told_by_process(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started released = {0};
    stage_set(&stage, rung->name, (struct dlock_options){.own_loop = true});
    start_release(acquired(stage.lock), NULL, &released);
    struct pollfd ready = {.fd = dlock_fd(stage.client), .events = POLLIN};
    must(poll(&ready, 1, PATIENCE_MS) == 1);
    assert_int_equal(atomic_load(&released.answers), 0);
    assert_int_equal(dlock_process(stage.client), 1);
    assert_int_equal(released.status, DLOCK_OK);
    assert_true(pthread_equal(released.thread, pthread_self()));
    assert_int_equal(dlock_process(stage.client), 0);
    stage_clear(&stage);
}

#define ROUNDS 200

/* Acquire, release, acquire: each answer starts the next. */
struct chain {
    dlock *lock;
    _Atomic int acquired, released;
};

static void chain_acquired(void *arg, dlock_status status, dlock_hold *hold);

static void chain_released(void *arg, dlock_status status, dlock_hold *hold)
{
    struct chain *chain = arg;
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    must(status == DLOCK_OK && hold == NULL);
    if (atomic_fetch_add(&chain->released, 1) + 1 < ROUNDS)
        must(dlock_acquire_start(chain->lock, &want, chain_acquired, chain) == DLOCK_OK);
}

static void chain_acquired(void *arg, dlock_status status, dlock_hold *hold)
{
    struct chain *chain = arg;
    must(status == DLOCK_OK);
    atomic_fetch_add(&chain->acquired, 1);
    must(dlock_release_start(hold, NULL, chain_released, chain) == DLOCK_OK);
}

/* Several chains of one lock, in one loop. */
static void acquires_and_releases_in_one_loop(void **state)
{
    enum { CHAINS = 3 };
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct chain chains[CHAINS];
    stage_set(&stage, rung->name, (struct dlock_options){.own_loop = true, .retry_ms = 1});
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    for (int i = 0; i < CHAINS; i++) {
        chains[i] = (struct chain){.lock = stage.lock};
        assert_status(dlock_acquire_start(stage.lock, &want, chain_acquired, &chains[i]), OK);
    }
    for (int over = 0; over < CHAINS;) {
        struct pollfd ready = {.fd = dlock_fd(stage.client), .events = POLLIN};
        must(poll(&ready, 1, PATIENCE_MS) == 1);
        dlock_process(stage.client);
        over = 0;
        for (int i = 0; i < CHAINS; i++)
            over += atomic_load(&chains[i].released) == ROUNDS;
    }
    assert_int_equal(stats_of(stage.client).acquired, CHAINS * ROUNDS);
    assert_int_equal(stats_of(stage.client).released, CHAINS * ROUNDS);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* ---- Owners ---------------------------------------------------------------------------------- */

static struct dlock_want for_owner(int64_t wait_ms)
{
    return (struct dlock_want){.wait_ms = wait_ms, .owner_id = OWNER};
}

/* Whichever of a nested pair is released first: the lock is free with the second. */
static void nested(void **state)
{
    const struct dlock_rung *rung = *state;
    for (int inner_first = 0; inner_first < 2; inner_first++) {
        struct stage stage;
        struct started released[2] = {0};
        dlock_hold *theirs;
        stage_set(&stage, rung->name, (struct dlock_options){0});
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        dlock_hold *inner = acquired_by(stage.lock, OWNER);
        start_release(inner_first ? inner : outer, stage.last, &released[0]);
        started_answered(&released[0]);
        assert_int_equal(released[0].status, DLOCK_OK);
        assert_true(dlock_valid(inner_first ? outer : inner));
        assert_status(tried(stage.other, &theirs), BUSY);
        start_release(inner_first ? outer : inner, NULL, &released[1]);
        started_answered(&released[1]);
        assert_int_equal(released[1].status, DLOCK_OK);
        assert_int_equal(sold(), 1);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* A request of its owner is under way. What is started next is put off, keeps no thread, and is
 * served when that is answered. */
static void put_off_while_its_owner_asks(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct started had[2] = {0}, released[2] = {0}, other = {.release = true};
    stage_set(&stage, rung->name, (struct dlock_options){.command_timeout_ms = 60000});
    dlock *apart = lock_of(stage.client, rung->name, LOCK "2");
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
    start(stage.lock, for_owner(PATIENCE_MS), &had[0]);
    eventually(proxy_done(stage.proxy));
    size_t requests = proxy_requests(stage.proxy, LOCK "\r");
    start(stage.lock, for_owner(PATIENCE_MS), &had[1]);
    start(apart, waiting(PATIENCE_MS), &other);
    started_answered(&other); /* so a thread was free all the time */
    assert_int_equal(proxy_requests(stage.proxy, LOCK "\r"), requests);
    proxy_let_go(stage.proxy);
    started_answered(&had[0]);
    started_answered(&had[1]);
    assert_int_equal(had[0].status, DLOCK_OK);
    assert_int_equal(had[1].status, DLOCK_OK);

    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
    start_release(had[0].hold, NULL, &released[0]);
    eventually(proxy_done(stage.proxy));
    requests = proxy_requests(stage.proxy, LOCK "\r");
    start_release(had[1].hold, NULL, &released[1]);
    assert_false(TAILQ_EMPTY(&stage.lock->turns)); /* by the return */
    other.answers = 0;
    start(apart, waiting(PATIENCE_MS), &other);
    started_answered(&other);
    assert_int_equal(proxy_requests(stage.proxy, LOCK "\r"), requests);
    proxy_let_go(stage.proxy);
    started_answered(&released[0]);
    started_answered(&released[1]);
    assert_int_equal(released[0].status, DLOCK_OK);
    assert_int_equal(released[1].status, DLOCK_OK);
    free_for_others(&stage);
    dlock_close(apart);
    stage_clear(&stage);
}

/* On `fair` a nested release sends nothing but what rides. Until that is answered the lock is
 * neither passed on nor let go, by a started release nor by one that has a thread. */
static void what_a_nested_one_sends_comes_first(void **state)
{
    (void)state;
    for (int started = 0; started < 2; started++) {
        struct stage stage;
        struct started inner = {0}, outer = {0}, waits = {0}, other = {.release = true};
        dlock_hold *theirs;
        stage_set(&stage, "fair",
                  (struct dlock_options){
                      .command_timeout_ms = 60000, .handoff_ms = 60000, .ttl_ms = 60000000});
        dlock *apart = lock_of(stage.client, "fair", LOCK "2");
        dlock_hold *holds[] = {acquired_by(stage.lock, OWNER), acquired_by(stage.lock, OWNER)};
        start(stage.lock, waiting(PATIENCE_MS), &waits);
        proxy_plan(stage.proxy, PROXY_HOLD_REQUEST, "sold", NULL, 0);
        start_release(holds[1], stage.last, &inner);
        eventually(proxy_done(stage.proxy));
        struct releaser releaser = {.hold = holds[0]};
        if (started)
            start_release(holds[0], NULL, &outer);
        else
            releaser_start(&releaser);
        start(apart, waiting(PATIENCE_MS), &other);
        started_answered(&other);
        assert_int_equal(atomic_load(&waits.answers), 0);
        assert_status(tried(stage.other, &theirs), BUSY);
        proxy_let_go(stage.proxy);
        started_answered(&inner);
        assert_int_equal(inner.status, DLOCK_OK);
        if (started)
            started_answered(&outer);
        assert_int_equal(started ? outer.status : releaser_end(&releaser), DLOCK_OK);
        started_answered(&waits);
        assert_int_equal(waits.status, DLOCK_OK);
        assert_int_equal(sold(), 1);
        assert_status(dlock_release(waits.hold, NULL), OK);
        free_for_others(&stage);
        dlock_close(apart);
        stage_clear(&stage);
    }
}

/* ---- Passing on ------------------------------------------------------------------------------ */

/* What the holder had left to write and what the next wants to read go in one write. */
static void passed_on_with_what_rides(void **state)
{
    (void)state;
    struct stage stage;
    struct started released = {0}, next = {0};
    stage_set(&stage, "fair", (struct dlock_options){.handoff_ms = 60000, .ttl_ms = 60000000});
    dlock_hold *hold = acquired(stage.lock);
    struct dlock_want want = waiting(PATIENCE_MS);
    want.reads = dlock_batch_new();
    assert_status(dlock_batch_add(want.reads, 2, (const char *const[]){"GET", "sold"}, NULL), OK);
    start(stage.lock, want, &next);
    size_t requests = proxy_requests(stage.proxy, "");
    start_release(hold, stage.last, &released);
    started_answered(&released);
    started_answered(&next);
    assert_int_equal(released.status, DLOCK_OK);
    assert_int_equal(next.status, DLOCK_OK);
    assert_int_equal(stats_of(stage.client).handoffs, 1);
    assert_int_equal(proxy_requests(stage.proxy, ""), requests + 1);
    struct dlock_reply reply = {.size = sizeof reply};
    assert_status(dlock_batch_reply(want.reads, 0, &reply), OK);
    assert_string_equal(reply.text, "1");
    dlock_batch_free(want.reads);
    released.answers = 0;
    start_release(next.hold, NULL, &released);
    started_answered(&released);
    free_for_others(&stage);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(every_rung, ONCE),
        SCENARIO(what_is_wrong_is_said_at_once, ONCE),
        SCENARIO(in_a_forked_child, ONCE),
        SCENARIO(lost_on_the_server, EACH_SOUND),
        SCENARIO(another_type, EACH_SOUND),
        SCENARIO(lost_before, EACH_SOUND),
        SCENARIO(a_reply_is_lost, EACH_SOUND),
        SCENARIO(told_by_process, EACH_SOUND),
        SCENARIO(acquires_and_releases_in_one_loop, EACH_SOUND),
        SCENARIO(nested, EACH_REENTRANT),
        SCENARIO(put_off_while_its_owner_asks, EACH_NESTED_ASKS),
        SCENARIO(what_a_nested_one_sends_comes_first, ONCE),
        SCENARIO(passed_on_with_what_rides, ONCE),
    };
    return run_scenarios("release_start", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
