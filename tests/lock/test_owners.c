/* SPDX-License-Identifier: Apache-2.0
 *
 * Owners: which acquire re-enters, and what two threads of one owner do at once.
 */
#include "calls.h"
#include "child.h"
#include "client.h"
#include "must.h"
#include "pair_stage.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>

#define LIMIT_MS 300 /* long enough for a busy server to answer */

/* Several waiters of a client contend. */
static bool polls(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "reentrant") == 0 || strcmp(rung->name, "watchdog") == 0;
}

static void release_starts(struct releaser *releaser, dlock_hold *hold)
{
    *releaser = (struct releaser){.hold = hold};
    releaser_start(releaser);
}

/* Delivers what the wire keeps until the release has ended. */
static void release_ends(struct releaser *releaser, struct proxy *proxy)
{
    eventually((proxy_let_go(proxy), atomic_load(&releaser->over)));
    releaser_end(releaser);
}

/* The second of two calls may wait for the first. Where it does not, it gets the time to end. */
static void give_way(_Atomic bool *over)
{
    for (int i = 0; i < 100 && !atomic_load(over); i++)
        short_pause();
}

/* ---- Which acquire re-enters ----------------------------------------------------------------- */

/* One thread serves two requests, and neither names an owner: the second does not enter. */
static void two_requests_on_one_thread(void **state)
{
    struct stage stage;
    struct dlock_want want = {.size = sizeof want, .wait_ms = LIMIT_MS};
    dlock_hold *second;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *first = acquired(stage.lock);
    assert_status(tried(stage.lock, &second), BUSY);
    assert_status(dlock_acquire(stage.lock, &want, &second), TIMED_OUT);
    assert_says(dlock_error(), "this thread");
    assert_true(dlock_valid(first));
    assert_status(dlock_release(first, NULL), OK);
    assert_status(tried(stage.lock, &second), OK);
    assert_status(dlock_release(second, NULL), OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* The lock's key names the owner, on `fair` its client; a nested hold has the outermost's name. */
static void what_an_owner_is_called(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_hold *holds[3];
    char name[128];
    stage_set_warm(&stage, rung, 30000);
    for (int i = 0; i < 3; i++)
        holds[i] = acquired_by(stage.lock, OWNER);
    snprintf(name, sizeof name, "%s:x%d.%llu", dlock_client_id(stage.client), OWNER,
             (unsigned long long)dlock_acquisition(holds[0]));
    for (int i = 0; i < 3; i++)
        assert_string_equal(dlock_owner(holds[i]), name);
    assert_status(dlock_inspect(stage.lock, &holder), OK);
    assert_string_equal(holder.owner, queues(rung) ? dlock_client_id(stage.client) : name);
    for (int i = 0; i < 3; i++)
        assert_status(dlock_release(holds[i], NULL), OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* Another thread's wait does not blame the thread that waits. */
static void a_wait_behind_another_thread(void **state)
{
    struct stage stage;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *hold = acquired(stage.lock);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = LIMIT_MS}};
    waiter_start(&waiter);
    assert_int_equal(waiter_end(&waiter), DLOCK_TIMED_OUT);
    assert_null(strstr(waiter.error, "this thread"));
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* The thread that asks for it re-enters, and no other thread does. */
static void this_thread_re_enters(void **state)
{
    struct stage stage;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *outer = acquired_by(stage.lock, DLOCK_THIS_THREAD);
    dlock_hold *inner = acquired_by(stage.lock, DLOCK_THIS_THREAD);
    struct waiter waiter = {.lock = stage.lock, .want = {.owner_id = DLOCK_THIS_THREAD}};
    waiter_start(&waiter);
    assert_int_equal(waiter_end(&waiter), DLOCK_BUSY);
    assert_status(dlock_release(inner, NULL), OK);
    assert_true(dlock_valid(outer));
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    assert_status(dlock_release(outer, NULL), OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* A number that the caller gave re-enters from any thread, and no other number does. */
static void a_named_owner_re_enters(void **state)
{
    struct stage stage;
    dlock_hold *none;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    struct waiter waiter = {.lock = stage.lock, .want = {.owner_id = OWNER}};
    waiter_start(&waiter);
    assert_int_equal(waiter_end(&waiter), DLOCK_OK);
    assert_status(tried_by(stage.lock, OWNER + 1, &none), BUSY);
    assert_status(tried(stage.lock, &none), BUSY);
    assert_status(dlock_release(outer, NULL), OK);
    assert_true(dlock_valid(waiter.hold));
    assert_status(dlock_release(waiter.hold, NULL), OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* A thread that reads waits for nobody when it asks to write, named or not. */
static void a_reader_asks_to_write(void **state)
{
    static const uint64_t owners[] = {0, DLOCK_THIS_THREAD};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        struct dlock_want want = {.size = sizeof want,
                                  .wait_ms = PATIENCE_MS,
                                  .owner_id = owners[i],
                                  .mode = DLOCK_SHARED};
        dlock_hold *read, *write;
        stage_set_warm(&stage, dlock_rung_find("read_write"), 30000);
        assert_status(dlock_acquire(stage.lock, &want, &read), OK);
        want.mode = DLOCK_EXCLUSIVE;
        assert_status(dlock_acquire(stage.lock, &want, &write), UPGRADE);
        assert_null(write);
        assert_true(dlock_valid(read));
        assert_status(dlock_release(read, NULL), OK);
        assert_status(dlock_acquire(stage.lock, &want, &write), OK);
        /* To read as the writer it must be named. */
        want.wait_ms = 0;
        want.mode = DLOCK_SHARED;
        dlock_status status = dlock_acquire(stage.lock, &want, &read);
        assert_int_equal(status, owners[i] != 0 ? DLOCK_OK : DLOCK_BUSY);
        if (read != NULL)
            assert_status(dlock_release(read, NULL), OK);
        assert_status(dlock_release(write, NULL), OK);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* ---- Two threads of one owner at once -------------------------------------------------------- */

/* One release is on its way while the other begins, in both orders: both count. */
static void nested_holds_are_released_at_once(void **state)
{
    for (int inner_first = 0; inner_first < 2; inner_first++) {
        struct stage stage;
        struct releaser first, second;
        stage_set_warm(&stage, *state, 30000);
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        dlock_hold *inner = acquired_by(stage.lock, OWNER);
        proxy_plan(stage.proxy, PROXY_HOLD_REQUEST, "EVALSHA", NULL, 0);
        release_starts(&first, inner_first ? inner : outer);
        eventually(proxy_done(stage.proxy) || atomic_load(&first.over));
        release_starts(&second, inner_first ? outer : inner);
        give_way(&second.over);
        release_ends(&first, stage.proxy);
        release_ends(&second, stage.proxy);
        assert_int_equal(first.status, DLOCK_OK);
        assert_int_equal(second.status, DLOCK_OK);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

struct passer {
    dlock *lock;
    pthread_t thread;
    _Atomic bool over;
    dlock_status status;
};

/* A thread acquires and releases while another one's acquire is not answered yet. */
static void *enter_and_leave(void *arg)
{
    struct passer *passer = arg;
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER};
    dlock_hold *hold;
    passer->status = dlock_acquire(passer->lock, &want, &hold);
    if (hold != NULL)
        passer->status = dlock_release(hold, NULL);
    atomic_store(&passer->over, true);
    return NULL;
}

static void two_threads_acquire_at_once(void **state)
{
    struct stage stage;
    stage_set_warm(&stage, *state, 30000);
    struct passer passer = {.lock = stage.lock};
    struct waiter first = {.lock = stage.lock, .want = {.wait_ms = PATIENCE_MS, .owner_id = OWNER}};
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "EVALSHA", NULL, 0);
    waiter_start(&first);
    eventually(proxy_done(stage.proxy));
    passer.thread = thread_start(enter_and_leave, &passer);
    give_way(&passer.over);
    proxy_let_go(stage.proxy);
    assert_int_equal(waiter_end(&first), DLOCK_OK);
    kept_from_others(&stage, first.hold);
    assert_status(dlock_release(first.hold, NULL), OK);
    eventually(atomic_load(&passer.over));
    thread_wait(passer.thread);
    assert_int_equal(passer.status, DLOCK_OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* The outer hold is released while a nested acquire is not answered yet. */
static void an_outer_release_meets_a_nested_acquire(void **state)
{
    struct stage stage;
    struct releaser outer;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *hold = acquired_by(stage.lock, OWNER);
    struct waiter inner = {.lock = stage.lock, .want = {.wait_ms = PATIENCE_MS, .owner_id = OWNER}};
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "EVALSHA", NULL, 0);
    waiter_start(&inner);
    eventually(proxy_done(stage.proxy) || atomic_load(&inner.over));
    release_starts(&outer, hold);
    give_way(&outer.over);
    proxy_let_go(stage.proxy);
    assert_int_equal(waiter_end(&inner), DLOCK_OK);
    release_ends(&outer, stage.proxy);
    assert_int_equal(outer.status, DLOCK_OK);
    kept_from_others(&stage, inner.hold);
    assert_status(dlock_release(inner.hold, NULL), OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* ---- Requests that hang ---------------------------------------------------------------------- */

static int waiters_over(struct waiter *waiters, int count)
{
    int over = 0;
    for (int i = 0; i < count; i++)
        over += atomic_load(&waiters[i].over);
    return over;
}

/* Several threads wait for one owner. The server stands, so that one of them asks, and the others
 * wait for its answer. Cancelled, they end while it still stands, and send nothing more. */
static void a_cancel_ends_the_wait_for_its_owner(void **state)
{
    enum { COUNT = 6 };
    struct stage stage;
    struct waiter waiters[COUNT];
    stage_set_warm(&stage, *state, 30000);
    dlock_client *client = client_of(
        server_url(server), (struct dlock_options){.retry_ms = 1, .command_timeout_ms = 60000});
    dlock *lock = lock_of(client, ((const struct dlock_rung *)*state)->name, LOCK);
    dlock_hold *theirs = acquired(stage.other);
    dlock_cancel *cancel = dlock_cancel_new();
    for (int i = 0; i < COUNT; i++) {
        waiters[i] = (struct waiter){
            .lock = lock,
            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = OWNER, .cancel = cancel}};
        waiter_start(&waiters[i]);
    }
    eventually(stats_of(client).contended >= (polls(*state) ? 2 : 1));
    server_pause(server);
    for (uint64_t before = 0; before != stats_of(client).commands; short_pause())
        before = stats_of(client).commands;
    dlock_cancel_now(cancel);
    uint64_t attempts = stats_of(client).attempts;
    eventually(waiters_over(waiters, COUNT) >= COUNT - 1);
    server_resume(server);
    for (int i = 0; i < COUNT; i++)
        assert_status(waiter_end(&waiters[i]), CANCELLED);
    assert_in_range(stats_of(client).attempts, attempts, attempts + 1);
    dlock_cancel_free(cancel);
    assert_status(dlock_release(theirs, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    stage_clear(&stage);
}

/* ---- Two waiters of one owner ---------------------------------------------------------------- */

/* In line at the return. */
static void wait_as(struct stage *stage, uint64_t owner_id, struct started *started)
{
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .owner_id = owner_id};
    *started = (struct started){0};
    assert_status(dlock_acquire_start(stage->lock, &want, started_done, started), OK);
}

/* True once it has had the lock and released it. */
static bool has_passed(struct started *started)
{
    if (atomic_load(&started->answers) == 0)
        return false;
    if (started->hold != NULL)
        assert_status(dlock_release(started->hold, NULL), OK);
    started->hold = NULL;
    return true;
}

/* Both wait while another client holds, and a third between them. One of the two acquires, and the
 * other nests: it waits neither for that one's release nor for its own next look. */
static void two_waiters_of_one_owner(void **state)
{
    struct stage stage;
    struct started first, between, second;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *theirs = acquired(stage.other);
    wait_as(&stage, OWNER, &first);
    eventually(stats_of(stage.client).contended == 1);
    wait_as(&stage, OWNER + 1, &between);
    wait_as(&stage, OWNER, &second);
    assert_status(dlock_release(theirs, NULL), OK);
    eventually((has_passed(&between),
                atomic_load(&first.answers) == 1 && atomic_load(&second.answers) == 1));
    assert_int_equal(first.status, DLOCK_OK);
    assert_int_equal(second.status, DLOCK_OK);
    assert_int_equal(stats_of(stage.client).missed_wakeups, 0);
    assert_true(!queues(*state) || atomic_load(&between.answers) == 0);
    kept_from_others(&stage, second.hold);
    assert_status(dlock_release(first.hold, NULL), OK);
    kept_from_others(&stage, second.hold);
    assert_status(dlock_release(second.hold, NULL), OK);
    eventually(has_passed(&between));
    free_for_others(&stage);
    stage_clear(&stage);
}

/* How many wait for another one of their owner. */
static int in_turns(dlock *lock)
{
    const struct dlock_hold *hold;
    int count = 0;
    pthread_mutex_lock(&lock->mutex);
    TAILQ_FOREACH(hold, &lock->turns, of_turns)
        count++;
    pthread_mutex_unlock(&lock->mutex);
    return count;
}

static uint64_t under_way(dlock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    const struct dlock_hold *hold;
    uint64_t acquisition = 0;
    EACH_HOLD(hold, &lock->calls, of_calls)
        acquisition = hold->acquisition;
    pthread_mutex_unlock(&lock->mutex);
    return acquisition;
}

/* Three calls of one owner: the first is not answered yet, the second has no thread, the third has
 * one. They ask in that order. */
static void each_call_of_an_owner_in_its_turn(void **state)
{
    struct stage stage;
    struct started second;
    stage_set_warm(&stage, *state, 30000);
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    struct waiter first = {.lock = stage.lock, .want = {.owner_id = OWNER}};
    struct waiter third = first;
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
    waiter_start(&first);
    eventually(proxy_done(stage.proxy));
    wait_as(&stage, OWNER, &second);
    assert_int_equal(in_turns(stage.lock), 1); /* by the return */
    waiter_start(&third);
    eventually(in_turns(stage.lock) == 2);
    for (uint64_t i = 1; i <= 2; i++) {
        proxy_plan(stage.proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
        proxy_let_go(stage.proxy);
        eventually(proxy_done(stage.proxy));
        assert_int_equal(under_way(stage.lock), dlock_acquisition(outer) + 1 + i);
    }
    proxy_let_go(stage.proxy);
    assert_status(waiter_end(&first), OK);
    started_answered(&second);
    assert_int_equal(second.status, DLOCK_OK);
    assert_status(waiter_end(&third), OK);
    assert_status(dlock_release(first.hold, NULL), OK);
    assert_status(dlock_release(second.hold, NULL), OK);
    assert_status(dlock_release(third.hold, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    free_for_others(&stage);
    stage_clear(&stage);
}

/* On `fair` it nests without the server, and so at once: the release behind it leaves it the lock.
 */
static void a_started_acquire_nests_before_a_release(void **state)
{
    enum { ROUNDS = 100 };
    struct stage stage;
    (void)state;
    stage_set_warm(&stage, dlock_rung_find("fair"), 30000);
    for (int i = 0; i < ROUNDS; i++) {
        struct started nested = {0};
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        start(stage.lock, (struct dlock_want){.owner_id = OWNER}, &nested);
        assert_status(dlock_release(outer, NULL), OK);
        started_answered(&nested);
        assert_int_equal(nested.status, DLOCK_OK);
        assert_status(dlock_release(nested.hold, NULL), OK);
    }
    free_for_others(&stage);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(two_requests_on_one_thread, EACH_SOUND),
        SCENARIO(a_wait_behind_another_thread, EACH_SOUND),
        SCENARIO(this_thread_re_enters, EACH_REENTRANT),
        SCENARIO(what_an_owner_is_called, EACH_REENTRANT),
        SCENARIO(a_named_owner_re_enters, EACH_REENTRANT),
        SCENARIO(a_reader_asks_to_write, ONCE),
        SCENARIO(nested_holds_are_released_at_once, EACH_REENTRANT),
        SCENARIO(two_threads_acquire_at_once, EACH_REENTRANT),
        SCENARIO(an_outer_release_meets_a_nested_acquire, EACH_REENTRANT),
        SCENARIO(a_cancel_ends_the_wait_for_its_owner, EACH_REENTRANT),
        SCENARIO(two_waiters_of_one_owner, EACH_REENTRANT),
        SCENARIO(each_call_of_an_owner_in_its_turn, EACH_NESTED_ASKS),
        SCENARIO(a_started_acquire_nests_before_a_release, ONCE),
    };
    return run_scenarios("owners", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
