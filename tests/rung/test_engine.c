/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: an engine that answers later, on threads of its own, or before its call returns. It asks
 * Redis; the core knows only that it is an engine.
 */
#include "client.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "started.h"
#include "validate.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOCK "lock:{engine}"
#define SCHEME "later:"
#define THREADS 3

/* ---- The engine ------------------------------------------------------------------------------ */

struct job {
    struct exchange *exchange;
    STAILQ_ENTRY(job) of_jobs;
};

static pid_t started_in; /* a forked child has none of its parent's threads */
static pthread_mutex_t mutex;
static pthread_cond_t changed;
static STAILQ_HEAD(, job) jobs;
static _Atomic size_t answered_later;
static _Atomic size_t answered_at_once;

static void answer(struct exchange *exchange)
{
    struct dlock_client *client = exchange->hold->lock->client;
    engine_redis.exchange(client, &exchange, 1);
    exchange_answered(exchange);
}

static void *work(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (STAILQ_EMPTY(&jobs))
            pthread_cond_wait(&changed, &mutex);
        struct job *job = STAILQ_FIRST(&jobs);
        STAILQ_REMOVE_HEAD(&jobs, of_jobs);
        pthread_mutex_unlock(&mutex);
        struct exchange *exchange = job->exchange;
        free(job); /* before the answer, after which a test may fork: the child would leak it */
        answer(exchange);
        atomic_fetch_add(&answered_later, 1);
    }
    return NULL;
}

/* When a process opens its first client, which has one thread then. */
static void start_threads(void)
{
    if (started_in == getpid())
        return;
    started_in = getpid();
    pthread_mutex_init(&mutex, NULL);
    pthread_cond_init(&changed, NULL);
    STAILQ_INIT(&jobs);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, work, NULL), 0);
        pthread_detach(thread);
    }
}

static dlock_status open_later(struct dlock_client *client, const char *const *urls, size_t count)
{
    const char *inner[] = {urls[0] + strlen(SCHEME)};
    start_threads();
    return engine_redis.open(client, inner, count);
}

static void exchange_later(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    (void)client;
    for (size_t i = 0; i < count; i++) {
        if (all[i]->hold->acquisition % 4 == 0) {
            answer(all[i]);
            atomic_fetch_add(&answered_at_once, 1);
            continue;
        }
        struct job *job = malloc(sizeof *job);
        assert_non_null(job);
        job->exchange = all[i];
        pthread_mutex_lock(&mutex);
        STAILQ_INSERT_TAIL(&jobs, job, of_jobs);
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
}

static struct dlock_engine later;

static int set_up(void **state)
{
    later = engine_redis;
    later.name = "later";
    later.answers_later = true;
    later.open = open_later;
    later.exchange = exchange_later;
    return start_server(state);
}

static const char *url(void)
{
    static char text[80];
    snprintf(text, sizeof text, SCHEME "%s", server_url(server));
    return text;
}

static dlock_client *later_client(struct dlock_options options)
{
    const char *servers[] = {url()};
    dlock_client *client;
    options.size = sizeof options;
    options.engine = &later;
    options.servers = servers;
    options.server_count = 1;
    assert_status(dlock_client_open(&options, &client), OK);
    return client;
}

/* ---- Scenarios ------------------------------------------------------------------------------- */

static void oracle_of(const char *rung)
{
    const char *servers[] = {url(), NULL};
    server_text(server, "FLUSHALL");
    assert_true(oracle_agrees(&(struct oracle){.rung = rung,
                                               .engine = &later,
                                               .servers = servers,
                                               .expected = HOLDS,
                                               .processes = 2,
                                               .threads = 4,
                                               .rounds = 15,
                                               .riding = true}));
}

static void under_the_oracle(void **state)
{
    (void)state;
    oracle_of("owner_lua");
    oracle_of("watchdog");
    oracle_of("notify");
    oracle_of("fair");
    oracle_of("read_write");
}

/* Each is answered once, whichever thread answers, and holds alone until it releases in its
 * answer. */
static void started_calls(void **state)
{
    static const char *const rungs[] = {"owner_lua", "watchdog", "notify", "fair"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        _Atomic int over = 0;
        dlock_client *client = later_client((struct dlock_options){0});
        dlock *lock;
        assert_status(dlock_open(client, rungs[i], LOCK, &lock), OK);
        struct started *crowd = crowd_new(200, true, &over);
        for (size_t j = 0; j < 200; j++)
            start(lock, waiting(60000), &crowd[j]);
        eventually(atomic_load(&over) == 200);
        crowd_answered(crowd, 200, DLOCK_OK);
        free(crowd);
        assert_int_equal(server_integer(server, "EXISTS %s", LOCK), 0);
        dlock_close(lock);
        dlock_client_close(client);
    }
    assert_true(answered_later > 0 && answered_at_once > 0);
}

/* They are told in time, and what they left behind is taken back. */
static void in_vain_and_cancelled(void **state)
{
    (void)state;
    dlock_client *client = later_client((struct dlock_options){0});
    dlock *lock;
    assert_status(dlock_open(client, "notify", LOCK, &lock), OK);
    dlock_hold *hold;
    assert_status(dlock_acquire(lock, NULL, &hold), OK);
    dlock_cancel *cancel = dlock_cancel_new();
    struct started in_vain = {0}, cancelled = {0}, once_only = {0};
    start(lock, waiting(100), &in_vain);
    start(lock, (struct dlock_want){.wait_ms = -1, .cancel = cancel}, &cancelled);
    start(lock, (struct dlock_want){0}, &once_only);
    dlock_cancel_now(cancel);
    started_answered(&in_vain);
    started_answered(&cancelled);
    started_answered(&once_only);
    assert_int_equal(in_vain.status, DLOCK_TIMED_OUT);
    assert_int_equal(cancelled.status, DLOCK_CANCELLED);
    assert_int_equal(once_only.status, DLOCK_BUSY);
    struct started released = {0};
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_OK);
    dlock_cancel_free(cancel);
    dlock_close(lock);
    dlock_client_close(client);
    assert_int_equal(server_integer(server, "EXISTS %s", LOCK), 0);
}

static void the_wrong_engine(void **state)
{
    (void)state;
    struct rung_ops other = {.name = "other", .engine = &later};
    struct dlock_engine older = later;
    const char *servers[] = {server_url(server)};
    dlock_client *client;
    dlock *lock;
    struct dlock_options options = {.size = sizeof options, .servers = servers, .server_count = 1};
    assert_status(dlock_client_open(&options, &client), OK);
    assert_status(dlock_open_ops(client, &other, LOCK, &lock), INVALID);
    assert_string_equal(dlock_error(),
                        "rung 'other' works with later, and the client's servers are Redis");
    dlock_client_close(client);
    older.version = "0.1.9";
    options.engine = &older;
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_string_equal(dlock_error(),
                        "options.engine is of version 0.1.9, and libdlock of " DLOCK_VERSION
                        "; install both of one version");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_the_oracle), /* it forks, so it comes first */
        cmocka_unit_test(started_calls),
        cmocka_unit_test(in_vain_and_cancelled),
        cmocka_unit_test(the_wrong_engine),
    };
    return cmocka_run_group_tests_name("engine", tests, set_up, stop_server);
}
