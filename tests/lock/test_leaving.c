/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiters of `fair` that leave, by their limit or a cancel, while the holder passes the lock on to
 * them. No waiter is left behind, and the lock is free in the end. For minutes instead of seconds:
 *     lock_leaving --minutes 10
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "waiter.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOCK "lock:{leaving}"
#define AT_LAST_MS 10000 /* a free lock is acquired long before */

static int64_t minutes; /* 0: the short form */

struct stage {
    dlock_client *client;
    dlock *lock;
};

static void stage_set(struct stage *stage)
{
    server_text(server, "FLUSHALL");
    stage->client = client_of(server_url(server), (struct dlock_options){0});
    stage->lock = lock_of(stage->client, "fair", LOCK);
}

/* Nobody is left who has the lock or waits for it, in the client or at the server. */
static void stage_clear(struct stage *stage)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = AT_LAST_MS};
    assert_status(dlock_acquire(stage->lock, &want, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
}

/* A command that rides on a release: whoever passes the lock on sends it in between. */
static dlock_batch *rider(void)
{
    dlock_batch *batch = dlock_batch_new();
    must(batch != NULL);
    must(dlock_batch_add(batch, 2, (const char *const[]){"INCR", "ridden"}, NULL) == DLOCK_OK);
    return batch;
}

static void sleep_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

/* This thread's release was answered: it is slow from here on. */
static _Thread_local bool slow;

/* A thread may lose its processor after any unlock. Here it often does, so that what it has decided
 * under the mutex meets what others do before it acts on that. */
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    static _Thread_local unsigned unlocks;
    int error = __real_pthread_mutex_unlock(mutex);
    if (++unlocks % 7 == 0)
        sleep_us(100);
    if (slow)
        sleep_us(20000);
    return error;
}

/* ---- Limits ---------------------------------------------------------------------------------- */

#define THREADS_MAX 200

/* Threads that acquire again and again, most of them with a limit too short for their turn. */
struct crew {
    int threads;
    int64_t wait_ms;
    long section_us;
    int tries; /* of each thread */
    bool rides;
    /* Its own. */
    dlock *lock;
    int64_t ends_ms; /* instead of `tries`; 0: not by time */
    _Atomic int inside;
    _Atomic uint64_t overlaps;
    _Atomic uint64_t lost;
    _Atomic uint64_t sections;
    _Atomic uint64_t timed_out;
};

/* UNREACHABLE: it was still connecting, as on a machine that stalls. */
static bool is_too_late(dlock_status status)
{
    return status == DLOCK_TIMED_OUT || status == DLOCK_UNREACHABLE;
}

static void *work(void *arg)
{
    struct crew *crew = arg;
    struct dlock_want want = {.size = sizeof want, .wait_ms = crew->wait_ms};
    dlock_batch *last = crew->rides ? rider() : NULL;
    for (int i = 0; crew->ends_ms != 0 ? clock_ms() < crew->ends_ms : i < crew->tries; i++) {
        dlock_hold *hold;
        dlock_status status = dlock_acquire(crew->lock, &want, &hold);
        if (status != DLOCK_OK) {
            must(is_too_late(status));
            atomic_fetch_add(&crew->timed_out, 1);
            continue;
        }
        bool alone = atomic_fetch_add(&crew->inside, 1) == 0;
        sleep_us(crew->section_us);
        atomic_fetch_add(&crew->overlaps, !alone);
        atomic_fetch_add(&crew->lost, !dlock_valid(hold));
        atomic_fetch_sub(&crew->inside, 1);
        atomic_fetch_add(&crew->sections, 1);
        dlock_release(hold, last);
    }
    dlock_batch_free(last);
    return NULL;
}

static void limits_end(struct crew crew)
{
    struct stage stage;
    pthread_t threads[THREADS_MAX];
    stage_set(&stage);
    crew.lock = stage.lock;
    if (minutes > 0)
        crew.ends_ms = clock_ms() + minutes * 60000;
    for (int i = 0; i < crew.threads; i++)
        threads[i] = thread_start(work, &crew);
    for (int i = 0; i < crew.threads; i++)
        thread_wait(threads[i]);
    print_message("%llu sections, %llu timed out\n", (unsigned long long)crew.sections,
                  (unsigned long long)crew.timed_out);
    assert_true(crew.sections > 0);
    assert_true(crew.timed_out > 0);
    assert_true(crew.overlaps <= crew.lost);
    stage_clear(&stage);
}

static void limits_that_end_while_first_in_line(void **state)
{
    (void)state;
    limits_end((struct crew){.threads = 8, .wait_ms = 2, .section_us = 300, .tries = 400});
}

static void limits_that_end_while_a_rider_is_sent(void **state)
{
    (void)state;
    limits_end(
        (struct crew){.threads = 8, .wait_ms = 2, .section_us = 300, .tries = 400, .rides = true});
}

/* The short form is a tenth in every time. */
static void limits_of_a_crowd(void **state)
{
    (void)state;
    int64_t scale = minutes > 0 ? 10 : 1;
    limits_end((struct crew){
        .threads = THREADS_MAX, .wait_ms = 100 * scale, .section_us = 550 * scale, .tries = 20});
}

/* Another client has the lock. Several leave at the same moment, so that each may take another for
 * the one that stays and answers for their client's place in the queue. */
static void limits_that_end_together(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage);
    /* A place that is left in the queue is not forgotten soon. */
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.grant_ms = 60000});
    dlock *lock = lock_of(client, "fair", LOCK);
    for (int round = 0; round < 100; round++) {
        struct waiter waiters[4];
        dlock_hold *hold = acquired(stage.lock);
        for (int i = 0; i < 4; i++) {
            waiters[i] = (struct waiter){.lock = lock, .want = {.wait_ms = 10}};
            waiter_start(&waiters[i]);
        }
        for (int i = 0; i < 4; i++)
            assert_true(is_too_late(waiter_end(&waiters[i])));
        eventually(server_integer(server, "EXISTS dlock:queue:" LOCK) == 0);
        assert_status(dlock_release(hold, NULL), OK);
    }
    dlock_close(lock);
    dlock_client_close(client);
    stage_clear(&stage);
}

/* ---- Cancels --------------------------------------------------------------------------------- */

#define ROUNDS 400
#define STARTED 4 /* every second one is cancelled */

struct started {
    dlock_cancel *cancel; /* NULL: it stays */
    _Atomic int answers;
    dlock_status status;
};

static void answered(void *arg, dlock_status status, dlock_hold *hold)
{
    struct started *started = arg;
    started->status = status;
    if (status == DLOCK_OK)
        dlock_release(hold, NULL);
    atomic_fetch_add(&started->answers, 1);
}

static void *cancel_them(void *arg)
{
    struct started *started = arg;
    for (int i = 0; i < STARTED; i++)
        if (started[i].cancel != NULL)
            dlock_cancel_now(started[i].cancel);
    return NULL;
}

/* In time, or the assertion says that it never was. */
static bool all_answered(struct started *started)
{
    for (int i = 0; i < STARTED; i++)
        for (int64_t ends_ms = clock_ms() + AT_LAST_MS; atomic_load(&started[i].answers) == 0;) {
            if (clock_ms() > ends_ms)
                return false;
            short_pause();
        }
    return true;
}

/* The holder releases a little later in each round, with a command that rides: some release meets
 * the cancel on its way. Those that stay get the lock. */
static void cancels_that_meet_a_release(void **state)
{
    (void)state;
    struct stage stage;
    dlock_batch *last = rider();
    stage_set(&stage);
    for (int round = 0; round < ROUNDS; round++) {
        struct started started[STARTED] = {0};
        dlock_hold *hold;
        struct dlock_want want = {.size = sizeof want, .wait_ms = AT_LAST_MS};
        assert_status(dlock_acquire(stage.lock, &want, &hold), OK);
        for (int i = 0; i < STARTED; i++) {
            started[i].cancel = i % 2 == 0 ? dlock_cancel_new() : NULL;
            want = (struct dlock_want){
                .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .cancel = started[i].cancel};
            assert_status(dlock_acquire_start(stage.lock, &want, answered, &started[i]), OK);
        }
        pthread_t canceller = thread_start(cancel_them, started);
        for (int64_t i = 0; i < round % 40 * 100; i++)
            (void)clock_ms();
        assert_status(dlock_release(hold, last), OK);
        thread_wait(canceller);
        assert_true(all_answered(started));
        for (int i = 0; i < STARTED; i++) {
            assert_int_equal(started[i].answers, 1);
            assert_true(started[i].status == DLOCK_OK ||
                        (started[i].cancel != NULL && started[i].status == DLOCK_CANCELLED));
            dlock_cancel_free(started[i].cancel);
        }
    }
    dlock_batch_free(last);
    stage_clear(&stage);
}

/* ---- Of one owner ---------------------------------------------------------------------------- */

#define OWNER 7

static _Thread_local bool releases;

static void slow_from_here(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    slow |= releases && strstr(trace->sent, "release") != NULL;
}

struct turns {
    dlock *lock;
    uint64_t owner_id;
    int count;
    _Atomic int *left; /* threads of the owner that are not over */
};

/* Takes turns with the other client, until the owner's threads are over. */
static void *take_turns(void *arg)
{
    const struct turns *turns = arg;
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = turns->owner_id};
    for (int i = 0; turns->owner_id != 0 ? i < turns->count : atomic_load(turns->left) > 0; i++) {
        dlock_hold *hold;
        dlock_status status = dlock_acquire(turns->lock, &want, &hold);
        must(status == DLOCK_OK);
        sleep_us(turns->owner_id != 0 ? 2000 : 100000);
        releases = turns->owner_id != 0;
        must(dlock_release(hold, NULL) == DLOCK_OK);
        releases = slow = false;
    }
    if (turns->owner_id != 0)
        atomic_fetch_sub(turns->left, 1);
    return NULL;
}

/* The lock goes to the other client while the holder's release is not over, and another waiter of
 * the same owner asks: it waits like any other, and is not told that its owner lost the lock. */
static void a_waiter_meets_its_owners_release(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int left = 2;
    pthread_t threads[3];
    stage_set(&stage);
    dlock_client *client = client_of(
        server_url(server), (struct dlock_options){.handoff_max = 1, .on_trace = slow_from_here});
    struct turns mine = {lock_of(client, "fair", LOCK), OWNER, 8, &left};
    struct turns theirs = {stage.lock, 0, 0, &left};
    for (int i = 0; i < 3; i++)
        threads[i] = thread_start(take_turns, i < 2 ? &mine : &theirs);
    for (int i = 0; i < 3; i++)
        thread_wait(threads[i]);
    dlock_close(mine.lock);
    dlock_client_close(client);
    stage_clear(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_that_end_while_first_in_line),
        cmocka_unit_test(limits_that_end_while_a_rider_is_sent),
        cmocka_unit_test(limits_that_end_together),
        cmocka_unit_test(cancels_that_meet_a_release),
        cmocka_unit_test(limits_of_a_crowd),
        cmocka_unit_test(a_waiter_meets_its_owners_release),
    };
    const struct CMUnitTest crowd[] = {cmocka_unit_test(limits_of_a_crowd)};
    if (argc == 1)
        return cmocka_run_group_tests_name("leaving", tests, start_server, stop_server);
    if (argc == 3 && strcmp(argv[1], "--minutes") == 0)
        minutes = strtoll(argv[2], NULL, 10);
    if (minutes <= 0) {
        fprintf(stderr, "usage: %s [--minutes N], N from 1\n", argv[0]);
        return 2;
    }
    return cmocka_run_group_tests_name("leaving", crowd, start_server, stop_server);
}
