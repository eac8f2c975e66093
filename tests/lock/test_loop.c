/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads that serve calls without a thread: nobody who is kept by the application keeps the
 * others, and who asks gets its turn.
 */
#include "calls.h"
#include "client.h"
#include "loop_stage.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdlib.h>

#define TELLERS 2 /* threads that `done` may keep */

/* So many threads can still be made. */
static _Atomic int threads_left = 1000000;

bool __real_dlock_private_thread_begin(pthread_t *thread, void *(*body)(void *), void *arg);
bool __wrap_dlock_private_thread_begin(pthread_t *thread, void *(*body)(void *), void *arg);
bool __wrap_dlock_private_thread_begin(pthread_t *thread, void *(*body)(void *), void *arg)
{
    if (atomic_fetch_sub(&threads_left, 1) > 0)
        return __real_dlock_private_thread_begin(thread, body, arg);
    atomic_fetch_add(&threads_left, 1);
    return false;
}

/* ---- What `done` keeps ----------------------------------------------------------------------- */

/* Started waiters of one lock: the first contends, and those behind it are answered by the thread
 * that listens, when their time is over. */
struct kept {
    struct gate *gate;
    dlock_cancel *cancel;
    struct started first;
    struct started behind[TELLERS];
};

/* So many answers are kept by the application. */
static void keep_answers(struct stage *stage, struct kept *kept, int count)
{
    *kept = (struct kept){.gate = gate_new(""), .cancel = dlock_cancel_new()};
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = kept->cancel;
    hold(stage, 0);
    start(stage->locks[0], want, &kept->first);
    eventually(stats_of(stage->client).contended == 1);
    for (int i = 0; i < count; i++) {
        kept->behind[i].gate = kept->gate;
        start(stage->locks[0], waiting(20), &kept->behind[i]);
    }
    eventually(gate_arrived(kept->gate) == (size_t)count);
}

static void answers_come(struct kept *kept, int count)
{
    gate_open(kept->gate);
    dlock_cancel_now(kept->cancel);
    started_answered(&kept->first);
    for (int i = 0; i < count; i++) {
        started_answered(&kept->behind[i]);
        assert_int_equal(kept->behind[i].status, DLOCK_TIMED_OUT);
    }
    gate_free(kept->gate);
    dlock_cancel_free(kept->cancel);
}

/* One `done` is kept: another waiter hears of its lock, and a third is told that its time is
 * over. */
static void a_done_that_is_kept_keeps_nobody(void **state)
{
    (void)state;
    struct stage stage;
    struct kept kept;
    struct started had = {.release = true}, late = {0};
    stage_set(&stage, "notify", (struct dlock_options){0});
    keep_answers(&stage, &kept, 1);
    hold(&stage, 1);
    hold(&stage, 2);
    start(stage.locks[1], waiting(DLOCK_WAIT_FOREVER), &had);
    eventually(stats_of(stage.client).contended == 2);
    start(stage.locks[2], waiting(20), &late);
    started_answered(&late);
    assert_int_equal(late.status, DLOCK_TIMED_OUT);
    let_go(&stage, 1);
    started_answered(&had);
    assert_int_equal(had.status, DLOCK_OK);
    assert_int_equal(stats_of(stage.client).missed_wakeups, 0); /* it was woken */
    assert_int_equal(atomic_load(&kept.behind[0].answers), 0);
    answers_come(&kept, 1);
    stage_clear(&stage);
}

/* Every thread that tells is kept. The client still hears for those that have a thread, and the
 * others are told once one comes back. */
static void it_is_heard_while_all_who_tell_are_kept(void **state)
{
    (void)state;
    struct stage stage;
    struct kept kept;
    struct started late = {0};
    stage_set(&stage, "notify", (struct dlock_options){0});
    keep_answers(&stage, &kept, TELLERS);
    hold(&stage, 1);
    struct waiter waiter = {.lock = stage.locks[1], .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    eventually(stats_of(stage.client).contended == 2);
    start(stage.locks[1], waiting(20), &late);
    let_go(&stage, 1);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(stats_of(stage.client).missed_wakeups, 0);
    assert_int_equal(atomic_load(&late.answers), 0);
    answers_come(&kept, TELLERS);
    started_answered(&late);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    stage_clear(&stage);
}

/* ---- Threads that run out -------------------------------------------------------------------- */

/* The system gives the loop no thread but the first two: one asks, the other still listens. */
static void with_two_threads(void **state)
{
    (void)state;
    struct stage stage;
    struct started plug = {.release = true};
    _Atomic int over = 0;
    stage_set(&stage, "watchdog", patient);
    struct started *crowd = crowd_new(LOCKS, false, &over);
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = dlock_cancel_new();
    atomic_store(&threads_left, 2);
    server_pause(server);
    start(stage.locks[0], waiting(DLOCK_WAIT_FOREVER), &plug);
    eventually(stats_of(stage.client).attempts == 1);
    for (int i = 1; i < LOCKS; i++)
        start(stage.locks[i], i % 2 == 0 ? waiting(20) : want, &crowd[i]);
    dlock_cancel_now(want.cancel);
    eventually(atomic_load(&over) == LOCKS - 1);
    assert_int_equal(atomic_load(&plug.answers), 0);
    server_resume(server);
    started_answered(&plug);
    atomic_store(&threads_left, 1000000);
    dlock_cancel_free(want.cancel);
    free(crowd);
    stage_clear(&stage);
}

/* Of a lock whose last hold was abandoned, by a client that has no thread left to keep it in mind.
 */
static void closed_without_a_thread(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *none;
    stage_set(&stage, "fair", (struct dlock_options){.ttl_ms = 3600000});
    dlock *lock = lock_of(stage.client, "fair", "lock:{abandoned}");
    assert_status(dlock_abandon(acquired(lock)), OK);
    atomic_store(&threads_left, 0);
    dlock_close(lock);
    lock = lock_of(stage.client, "fair", "lock:{abandoned}");
    assert_status(tried(lock, &none), BUSY);
    dlock_close(lock);
    atomic_store(&threads_left, 1000000);
    stage_clear(&stage);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static _Atomic bool restless_stop;
static _Atomic int restless_over;

/* It is due again at once. */
static void run_again(struct wait *wait)
{
    struct loop *loop = &wait->lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    wait->running = false;
    if (!atomic_load(&restless_stop))
        loop_run(loop, wait);
    else
        atomic_fetch_add(&restless_over, 1);
    pthread_mutex_unlock(&loop->mutex);
}

/* Something is due all the time. Who asks is asked for all the same. */
static void what_asks_gets_its_turn(void **state)
{
    (void)state;
    struct stage stage;
    struct wait restless[8];
    struct started had = {.release = true};
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    struct loop *loop = &stage.client->loop;
    atomic_store(&restless_stop, false);
    atomic_store(&restless_over, 0);
    pthread_mutex_lock(&loop->mutex);
    assert_int_equal(loop_start(loop), DLOCK_OK);
    for (int i = 0; i < 8; i++) {
        restless[i] = (struct wait){.lock = stage.locks[0], .run = run_again, .wake_fd = -1};
        loop_run(loop, &restless[i]);
    }
    pthread_mutex_unlock(&loop->mutex);
    start(stage.locks[0], waiting(PATIENCE_MS), &had);
    started_answered(&had);
    assert_int_equal(had.status, DLOCK_OK);
    atomic_store(&restless_stop, true);
    eventually(atomic_load(&restless_over) == 8);
    stage_clear(&stage);
}

struct starter {
    struct stage *stage;
    struct started then;
    bool was_told; /* before the release was over */
    _Atomic bool over;
};

static void starts_and_releases(void *arg, dlock_status status, dlock_hold *hold)
{
    struct starter *starter = arg;
    must(status == DLOCK_OK);
    server_pause(server);
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .call_max_ms = 100};
    must(dlock_acquire_start(starter->stage->locks[1], &want, started_done, &starter->then) ==
         DLOCK_OK);
    dlock_release(hold, NULL);
    starter->was_told = atomic_load(&starter->then.answers) == 1;
    atomic_store(&starter->over, true);
}

/* The thread that tells of an acquire is kept by a server, and has started another before. */
static void who_waits_in_done_keeps_nobody(void **state)
{
    (void)state;
    struct stage stage;
    struct starter starter = {.stage = &stage};
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    stage_set(&stage, "watchdog", (struct dlock_options){.command_timeout_ms = 1000});
    assert_status(dlock_acquire_start(stage.locks[0], &want, starts_and_releases, &starter), OK);
    eventually(atomic_load(&starter.over));
    server_resume(server);
    assert_true(starter.was_told);
    started_answered(&starter.then);
    stage_clear(&stage);
}

/* ---- Who runs -------------------------------------------------------------------------------- */

static _Atomic int runs;

static void count_run(struct wait *wait)
{
    (void)wait;
    atomic_fetch_add(&runs, 1);
}

/* The thread that listens has begun to end a waiter, and just then it is the first in line: nobody
 * else may run it, and it is in no heap. */
static void who_is_being_ended_moves_up(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "fair", (struct dlock_options){0});
    dlock *lock = stage.locks[0];
    struct loop *loop = &stage.client->loop;
    dlock_hold *hold = acquired(lock);
    struct wait ended = {.lock = lock,
                         .hold = hold,
                         .run = count_run,
                         .wake_fd = -1,
                         .deadline_ns = mono_deadline_ns(3600000)};
    atomic_store(&runs, 0);
    assert_int_equal(wait_begin(&ended), NEXT_SLEEP);
    pthread_mutex_lock(&loop->mutex);
    bool heard = lock->subscribed;
    assert_int_equal(ended.state, WAIT_BEHIND);
    ended.running = true;
    lock->queue.again_ms = 1000;
    lock->subscribed = true;
    wait_open(lock, true, lock->queue.wakes);
    lock->subscribed = heard;
    lock->queue.contenders++; /* whoever has the lock still has a place */
    bool running = ended.running;
    wait_due(&ended);
    size_t due = loop->due_count;
    pthread_mutex_unlock(&loop->mutex);
    wait_end(&ended, false);
    assert_true(running);
    assert_int_equal(due, 0);
    assert_int_equal(atomic_load(&runs), 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(a_done_that_is_kept_keeps_nobody, ONCE),
        SCENARIO(it_is_heard_while_all_who_tell_are_kept, ONCE),
        SCENARIO(with_two_threads, ONCE),
        SCENARIO(closed_without_a_thread, ONCE),
        SCENARIO(what_asks_gets_its_turn, ONCE),
        SCENARIO(who_waits_in_done_keeps_nobody, ONCE),
        SCENARIO(who_is_being_ended_moves_up, ONCE),
    };
    return run_scenarios("loop", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
