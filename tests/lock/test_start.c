/* SPDX-License-Identifier: Apache-2.0
 *
 * Started acquires: answered exactly once, whatever happens, without a thread for each.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "started.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOCK "lock:{start}"
#define CROWD 10000
#define THREAD_S "reentrant_tls" /* counts in the memory of the thread that acquires */

/* ---- The stage ------------------------------------------------------------------------------- */

struct stage {
    dlock_client *holder;
    dlock_client *client;
    dlock *held;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    /* It renews nothing: what a test counts is of the other. */
    stage->holder = client_of(server_url(server), (struct dlock_options){.ttl_ms = 3600000});
    stage->client = client_of(server_url(server), options);
    stage->held = lock_of(stage->holder, rung, LOCK);
    stage->lock = lock_of(stage->client, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->held);
    dlock_close(stage->lock);
    dlock_client_close(stage->holder);
    dlock_client_close(stage->client);
}

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    must(tasks != NULL);
    while (readdir(tasks) != NULL)
        count++;
    closedir(tasks);
    return count - 2; /* . and .. */
}

static long long connections(void)
{
    const redisReply *info = server_ask(server, "INFO clients");
    const char *line = strstr(info->str, "connected_clients:");
    must(line != NULL);
    return atoll(line + strlen("connected_clients:"));
}

/* ---- One ------------------------------------------------------------------------------------- */

static void every_rung(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct started had = {.release = true};
        stage_set(&stage, rungs[i].name, (struct dlock_options){0});
        if (strcmp(rungs[i].name, THREAD_S) == 0) {
            assert_status(dlock_acquire_start(stage.lock, NULL, started_done, &had), UNSUPPORTED);
            assert_says(dlock_error(), "thread");
            stage_clear(&stage);
            continue;
        }
        start(stage.lock, waiting(60000), &had);
        started_answered(&had);
        assert_int_equal(had.status, DLOCK_OK);
        assert_false(pthread_equal(had.thread, pthread_self()));
        assert_int_equal(stats_of(stage.client).released, 1);
        stage_clear(&stage);
    }
}

/* Held by another: one try is BUSY, a wait ends in time, or with the release. */
static void every_rung_that_keeps_out(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct started once = {0}, late = {0}, had = {.release = true};
        if (strcmp(rungs[i].name, "none") == 0 || strcmp(rungs[i].name, "local") == 0 ||
            strcmp(rungs[i].name, THREAD_S) == 0 ||
            strcmp(rungs[i].name, "reentrant_getset") == 0) /* whoever asks twice has it */
            continue;
        stage_set(&stage, rungs[i].name, (struct dlock_options){0});
        dlock_hold *hold = acquired(stage.held);
        start(stage.lock, waiting(0), &once);
        started_answered(&once);
        assert_int_equal(once.status, DLOCK_BUSY);
        assert_says(once.error, LOCK);
        start(stage.lock, waiting(30), &late);
        started_answered(&late);
        assert_int_equal(late.status, DLOCK_TIMED_OUT);
        uint64_t contended = stats_of(stage.client).contended;
        start(stage.lock, waiting(DLOCK_WAIT_FOREVER), &had);
        eventually(stats_of(stage.client).contended > contended);
        assert_int_equal(atomic_load(&had.answers), 0);
        dlock_release(hold, NULL);
        started_answered(&had);
        assert_int_equal(had.status, DLOCK_OK);
        stage_clear(&stage);
    }
}

static void the_local_mutex(void **state)
{
    (void)state;
    struct stage stage;
    struct started had = {.release = true};
    stage_set(&stage, "local", (struct dlock_options){.retry_ms = 60000});
    dlock_hold *hold = acquired(stage.lock);
    start(stage.lock, waiting(DLOCK_WAIT_FOREVER), &had);
    eventually(stats_of(stage.client).contended == 1);
    assert_status(dlock_release(hold, NULL), OK);
    started_answered(&had);
    assert_int_equal(had.status, DLOCK_OK);
    stage_clear(&stage);
}

static void cancelled(void **state)
{
    (void)state;
    struct stage stage;
    struct started before = {0}, during = {0};
    stage_set(&stage, "watchdog", (struct dlock_options){.retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    dlock_cancel *cancel = dlock_cancel_new();
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = cancel;
    start(stage.lock, want, &during);
    eventually(stats_of(stage.client).contended == 1);
    dlock_cancel_now(cancel);
    started_answered(&during);
    assert_int_equal(during.status, DLOCK_CANCELLED);
    start(stage.lock, want, &before);
    started_answered(&before);
    assert_int_equal(before.status, DLOCK_CANCELLED);
    dlock_cancel_free(cancel);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Cancels that are freed and made anew at the same place do not end what they are not for. */
static void a_cancel_of_its_own(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", (struct dlock_options){.retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    for (int i = 0; i < 200; i++) {
        struct started one = {0}, other = {0};
        dlock_cancel *cancel = dlock_cancel_new(), *stays = dlock_cancel_new();
        struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
        want.cancel = stays;
        start(stage.lock, want, &other);
        want.cancel = cancel;
        start(stage.lock, want, &one);
        dlock_cancel_now(cancel);
        started_answered(&one);
        assert_int_equal(one.status, DLOCK_CANCELLED);
        assert_int_equal(atomic_load(&other.answers), 0);
        dlock_cancel_now(stays);
        started_answered(&other);
        dlock_cancel_free(cancel);
        dlock_cancel_free(stays);
    }
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Each has a cancel of its own: each throw ends one, in any order. */
static void many_cancels(void **state)
{
    enum { COUNT = 500, STEP = 77 }; /* which has no factor in common: it comes to all */
    (void)state;
    struct stage stage;
    struct started *crowd = crowd_new(COUNT, false, NULL);
    dlock_cancel *cancels[COUNT];
    stage_set(&stage, "watchdog", (struct dlock_options){.retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    for (size_t i = 0; i < COUNT; i++) {
        struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
        want.cancel = cancels[i] = dlock_cancel_new();
        start(stage.lock, want, &crowd[i]);
    }
    for (size_t i = 0; i < COUNT; i++) {
        size_t next = i * STEP % COUNT;
        dlock_cancel_now(cancels[next]);
        started_answered(&crowd[next]);
        dlock_cancel_free(cancels[next]);
    }
    crowd_answered(crowd, COUNT, DLOCK_CANCELLED);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
    free(crowd);
}

static void what_is_wrong_is_said_at_once(void **state)
{
    (void)state;
    struct stage stage;
    struct started one = {0};
    stage_set(&stage, "watchdog", (struct dlock_options){.waiters_max = 1, .retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    struct dlock_want wrong = {.size = 0};
    assert_status(dlock_acquire_start(stage.lock, &wrong, started_done, &one), INVALID);
    wrong = (struct dlock_want){.size = sizeof wrong, .mode = DLOCK_SHARED};
    assert_status(dlock_acquire_start(stage.lock, &wrong, started_done, &one), UNSUPPORTED);
    dlock_cancel *cancel = dlock_cancel_new();
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = cancel;
    start(stage.lock, want, &one);
    assert_status(dlock_acquire_start(stage.lock, NULL, started_done, &one), LIMIT);
    assert_says(dlock_error(), "waiters_max");
    dlock_cancel_now(cancel);
    started_answered(&one);
    dlock_cancel_free(cancel);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Those that wait keep out one more, but not the owner whom they wait for. */
static void who_has_it_nests_beyond_waiters_max(void **state)
{
    static const char *const rungs[] = {"watchdog", "fair"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        struct started next = {.release = true}, nested = {.release = true};
        struct dlock_want of_owner = {.size = sizeof of_owner, .owner_id = 7};
        dlock_hold *hold;
        stage_set(&stage, rungs[i], (struct dlock_options){.waiters_max = 1});
        assert_status(dlock_acquire(stage.lock, &of_owner, &hold), OK);
        start(stage.lock, waiting(DLOCK_WAIT_FOREVER), &next);
        assert_status(dlock_acquire_start(stage.lock, NULL, started_done, &nested), LIMIT);
        start(stage.lock, of_owner, &nested);
        started_answered(&nested);
        assert_int_equal(nested.status, DLOCK_OK);
        assert_status(dlock_release(hold, NULL), OK);
        started_answered(&next);
        assert_int_equal(next.status, DLOCK_OK);
        stage_clear(&stage);
    }
}

/* Reads that ride with it have their replies when it is answered. */
static void with_riding_reads(void **state)
{
    (void)state;
    struct stage stage;
    struct started had = {.release = true};
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    server_text(server, "SET stock 7");
    dlock_batch *reads = dlock_batch_new();
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "stock"}, NULL), OK);
    struct dlock_want want = waiting(60000);
    want.reads = reads;
    start(stage.lock, want, &had);
    started_answered(&had);
    struct dlock_reply reply = {.size = sizeof reply};
    assert_status(dlock_batch_reply(reads, 0, &reply), OK);
    assert_string_equal(reply.text, "7");
    dlock_batch_free(reads);
    stage_clear(&stage);
}

/* ---- Many ------------------------------------------------------------------------------------ */

/* What the process and the server have beside a client that was opened just now: its one thread is
 * the timekeeper. */
struct beside {
    int threads;
    long long connections;
};

static struct beside beside_a_new_client(void)
{
    return (struct beside){.threads = threads() - 1, .connections = connections()};
}

static void at_most_six_threads(struct beside beside)
{
    assert_in_range(threads() - beside.threads, 2, 6);
    assert_in_range(connections() - beside.connections, 1, 4);
}

/* Some are granted the lock, until one keeps it: the others are cancelled. */
static void ten_thousand_wait_on(const char *rung, uint64_t attempts)
{
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(CROWD, true, &over), *keeper = &crowd[CROWD / 20];
    stage_set(&stage, rung, (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.held);
    struct beside beside = beside_a_new_client();
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = dlock_cancel_new();
    keeper->release = false;
    for (size_t i = 0; i < CROWD; i++)
        start(stage.lock, want, &crowd[i]);
    eventually(stats_of(stage.client).attempts >= attempts);
    assert_int_equal(atomic_load(&over), 0);
    at_most_six_threads(beside);
    assert_status(dlock_release(hold, NULL), OK);
    started_answered(keeper);
    at_most_six_threads(beside);
    dlock_cancel_now(want.cancel);
    eventually(atomic_load(&over) == CROWD);
    uint64_t had = 0;
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(atomic_load(&crowd[i].answers), 1);
        assert_true(crowd[i].status == DLOCK_OK || crowd[i].status == DLOCK_CANCELLED);
        had += crowd[i].status == DLOCK_OK;
    }
    assert_in_range(had, 1, CROWD - 1);
    assert_int_equal(stats_of(stage.client).acquired, had);
    assert_status(dlock_release(keeper->hold, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK " " LOCK ":queue"), 0);
    dlock_cancel_free(want.cancel);
    stage_clear(&stage);
    free(crowd);
}

static void ten_thousand_wait_on_six_threads(void **state)
{
    (void)state;
    ten_thousand_wait_on("watchdog", 100); /* they poll */
    ten_thousand_wait_on("notify", 2);     /* one more when it is heard */
    ten_thousand_wait_on("fair", 2);
}

static void all_are_served(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(300, true, &over);
    stage_set(&stage, "watchdog", (struct dlock_options){.retry_ms = 1});
    dlock_hold *hold = acquired(stage.held);
    for (size_t i = 0; i < 300; i++)
        start(stage.lock, waiting(DLOCK_WAIT_FOREVER), &crowd[i]);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == 300);
    crowd_answered(crowd, 300, DLOCK_OK);
    assert_int_equal(stats_of(stage.client).acquired, 300);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    stage_clear(&stage);
    free(crowd);
}

/* Of a rung that polls so many try, the others stand behind them. */
static void so_many_contend(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(50, true, &over);
    stage_set(&stage, "watchdog", (struct dlock_options){.contenders = 3, .retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    dlock_cancel *cancel = dlock_cancel_new();
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = cancel;
    for (size_t i = 0; i < 50; i++)
        start(stage.lock, want, &crowd[i]);
    eventually(stats_of(stage.client).contended == 3);
    short_pause();
    assert_int_equal(stats_of(stage.client).attempts, 3);
    dlock_cancel_now(cancel);
    eventually(atomic_load(&over) == 50);
    dlock_cancel_free(cancel);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
    free(crowd);
}

/* An acquire may ask for fewer contenders than its client has. What comes after it stands behind
 * it, also if that alone would find room; once it has left, all that find room contend. */
static void one_may_want_fewer_contenders(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0, first_over = 0;
    struct started *crowd = crowd_new(5, true, &over);
    stage_set(&stage, "watchdog", (struct dlock_options){.contenders = 3, .retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    dlock_cancel *first = dlock_cancel_new(), *others = dlock_cancel_new();
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = first;
    crowd[0].over = &first_over;
    start(stage.lock, want, &crowd[0]);
    eventually(stats_of(stage.client).contended == 1);
    want.cancel = others;
    want.size = sizeof want;
    want.contenders = 10001;
    dlock_hold *none;
    assert_status(dlock_acquire(stage.lock, &want, &none), INVALID);
    assert_says(dlock_error(), "want.contenders is 10001; it must be 1 to 10000, or 0");
    want.contenders = 1;
    start(stage.lock, want, &crowd[1]);
    want.contenders = 0;
    for (size_t i = 2; i < 5; i++)
        start(stage.lock, want, &crowd[i]);
    short_pause();
    assert_int_equal(stats_of(stage.client).attempts, 1);
    dlock_cancel_now(first);
    eventually(atomic_load(&first_over) == 1);
    eventually(stats_of(stage.client).attempts == 4); /* it, and the two that find room beside it */
    short_pause();
    assert_int_equal(stats_of(stage.client).attempts, 4);
    dlock_cancel_now(others);
    eventually(atomic_load(&over) == 4);
    dlock_cancel_free(first);
    dlock_cancel_free(others);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
    free(crowd);
}

/* One that may contend only alone stands behind a contender, and all later ones behind it. Once it
 * leaves without a try, those that have room contend. */
static void one_that_wanted_fewer_contenders_leaves(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0, left = 0;
    struct started *crowd = crowd_new(5, true, &over);
    stage_set(&stage, "watchdog", (struct dlock_options){.contenders = 3, .retry_ms = 60000});
    dlock_hold *hold = acquired(stage.held);
    dlock_cancel *alone = dlock_cancel_new(), *others = dlock_cancel_new();
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    want.cancel = others;
    start(stage.lock, want, &crowd[0]);
    eventually(stats_of(stage.client).contended == 1);
    want.contenders = 1;
    want.cancel = alone;
    crowd[1].over = &left;
    start(stage.lock, want, &crowd[1]);
    want.contenders = 0;
    want.cancel = others;
    for (size_t i = 2; i < 5; i++)
        start(stage.lock, want, &crowd[i]);
    short_pause();
    assert_int_equal(stats_of(stage.client).attempts, 1);
    dlock_cancel_now(alone);
    eventually(atomic_load(&left) == 1);
    assert_int_equal(crowd[1].status, DLOCK_CANCELLED);
    eventually(stats_of(stage.client).attempts == 3); /* the two that find room */
    short_pause();
    assert_int_equal(stats_of(stage.client).attempts, 3);
    dlock_cancel_now(others);
    eventually(atomic_load(&over) == 4);
    dlock_cancel_free(alone);
    dlock_cancel_free(others);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
    free(crowd);
}

/* The server hangs, and with it all workers: whoever stands in line is answered all the same. */
static void a_server_that_hangs_delays_no_answer(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(20, true, &over), *line = crowd + 4;
    stage_set(&stage, "watchdog", (struct dlock_options){.contenders = 4, .retry_ms = 1});
    dlock_hold *hold = acquired(stage.held);
    for (size_t i = 0; i < 4; i++)
        start(stage.lock, waiting(DLOCK_WAIT_FOREVER), &crowd[i]);
    eventually(stats_of(stage.client).contended == 4);
    server_pause(server);
    for (size_t i = 0; i < 16; i++)
        start(stage.lock, waiting(20), &line[i]);
    eventually(atomic_load(&over) == 16);
    crowd_answered(line, 16, DLOCK_TIMED_OUT);
    server_resume(server);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == 20);
    crowd_answered(crowd, 4, DLOCK_OK);
    stage_clear(&stage);
    free(crowd);
}

/* What they left behind is taken back in the background; it keeps nobody out who waits. */
static void what_is_over_is_no_waiter(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(30, true, &over);
    stage_set(&stage, "read_write",
              (struct dlock_options){.waiters_max = 10, .command_timeout_ms = 100});
    dlock_release(acquired(stage.lock), NULL);
    dlock_hold *hold = acquired(stage.held);
    server_pause(server);
    for (int some = 10; some <= 30; some += 10) { /* the third ten find no room for theirs */
        for (int i = some - 10; i < some; i++)
            start(stage.lock, waiting(20), &crowd[i]);
        eventually(atomic_load(&over) == some);
    }
    server_resume(server);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_release(acquired(stage.lock), NULL);
    stage_clear(&stage);
    free(crowd);
}

/* It hangs when their time is over: no try begins then, so each knows that it was not had. */
static void no_try_begins_after_the_limit(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(8, true, &over);
    stage_set(
        &stage, "watchdog",
        (struct dlock_options){.contenders = 8, .retry_ms = 60000, .command_timeout_ms = 300});
    dlock_hold *hold = acquired(stage.held);
    for (size_t i = 0; i < 8; i++)
        start(stage.lock, waiting(500), &crowd[i]);
    eventually(stats_of(stage.client).contended == 8);
    server_pause(server);
    eventually(atomic_load(&over) == 8);
    server_resume(server);
    crowd_answered(crowd, 8, DLOCK_TIMED_OUT);
    assert_int_equal(stats_of(stage.client).attempts, 8);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
    free(crowd);
}

/* No server is there: who stands in line hears why those before it did not have the lock. */
static void in_line_at_no_server(void **state)
{
    (void)state;
    static const char *const rungs[] = {"watchdog", "notify", "fair"};
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", NOBODYS_PORT);
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct started first = {0}, behind = {0};
        dlock_client *client = client_of(url, (struct dlock_options){.contenders = 1});
        dlock *lock = lock_of(client, rungs[i], LOCK);
        struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
        want.cancel = dlock_cancel_new();
        start(lock, want, &first);
        eventually(stats_of(client).attempts >= 2);
        start(lock, waiting(5), &behind);
        started_answered(&behind);
        assert_int_equal(behind.status, DLOCK_UNREACHABLE);
        assert_says(behind.error, "other calls of this client were first");
        assert_says(behind.error, "Connection refused");
        dlock_cancel_now(want.cancel);
        started_answered(&first);
        dlock_cancel_free(want.cancel);
        dlock_close(lock);
        dlock_client_close(client);
    }
}

struct chain {
    dlock *lock;
    _Atomic int left;
};

static void link_done(void *arg, dlock_status status, dlock_hold *hold)
{
    struct chain *chain = arg;
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    must(status == DLOCK_OK && dlock_release(hold, NULL) == DLOCK_OK);
    if (atomic_fetch_sub(&chain->left, 1) > 1)
        must(dlock_acquire_start(chain->lock, &want, link_done, chain) == DLOCK_OK);
}

static void an_answer_may_start_the_next(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    struct chain chain = {.lock = stage.lock, .left = 500};
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    assert_status(dlock_acquire_start(stage.lock, &want, link_done, &chain), OK);
    eventually(atomic_load(&chain.left) == 0);
    assert_int_equal(stats_of(stage.client).acquired, 500);
    stage_clear(&stage);
}

/* ---- A loop of the caller's ------------------------------------------------------------------ */

static void in_a_loop_of_the_callers(void **state)
{
    (void)state;
    struct stage stage;
    _Atomic int over = 0;
    struct started *crowd = crowd_new(100, true, &over), late = {0};
    stage_set(&stage, "watchdog", (struct dlock_options){.own_loop = true, .retry_ms = 1});
    assert_int_equal(dlock_fd(stage.holder), -1);
    assert_int_equal(dlock_process(stage.client), 0);
    for (size_t i = 0; i < 100; i++)
        start(stage.lock, waiting(DLOCK_WAIT_FOREVER), &crowd[i]);
    while (atomic_load(&over) < 100) {
        struct pollfd ready = {.fd = dlock_fd(stage.client), .events = POLLIN};
        must(poll(&ready, 1, PATIENCE_MS) == 1);
        dlock_process(stage.client);
    }
    crowd_answered(crowd, 100, DLOCK_OK);
    for (size_t i = 0; i < 100; i++)
        assert_true(pthread_equal(crowd[i].thread, pthread_self()));
    dlock_hold *hold = acquired(stage.held);
    start(stage.lock, waiting(5), &late);
    struct pollfd ready = {.fd = dlock_fd(stage.client), .events = POLLIN};
    must(poll(&ready, 1, PATIENCE_MS) == 1);
    assert_int_equal(atomic_load(&late.answers), 0);
    assert_int_equal(dlock_process(stage.client), 1);
    assert_int_equal(late.status, DLOCK_TIMED_OUT);
    assert_says(late.error, LOCK);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
    free(crowd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rung),
        cmocka_unit_test(every_rung_that_keeps_out),
        cmocka_unit_test(the_local_mutex),
        cmocka_unit_test(cancelled),
        cmocka_unit_test(a_cancel_of_its_own),
        cmocka_unit_test(many_cancels),
        cmocka_unit_test(what_is_wrong_is_said_at_once),
        cmocka_unit_test(who_has_it_nests_beyond_waiters_max),
        cmocka_unit_test(with_riding_reads),
        cmocka_unit_test(ten_thousand_wait_on_six_threads),
        cmocka_unit_test(all_are_served),
        cmocka_unit_test(so_many_contend),
        cmocka_unit_test(one_may_want_fewer_contenders),
        cmocka_unit_test(one_that_wanted_fewer_contenders_leaves),
        cmocka_unit_test(a_server_that_hangs_delays_no_answer),
        cmocka_unit_test(what_is_over_is_no_waiter),
        cmocka_unit_test(no_try_begins_after_the_limit),
        cmocka_unit_test(in_line_at_no_server),
        cmocka_unit_test(an_answer_may_start_the_next),
        cmocka_unit_test(in_a_loop_of_the_callers),
    };
    return cmocka_run_group_tests_name("start", tests, start_server, stop_server);
}
