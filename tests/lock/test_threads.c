/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads: the stacks and signals of the library's own, and many of the application's that open,
 * use and close at once.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "record.h"

#include <dirent.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{threads}"
/* Far from what a busy machine needs. */
#define PATIENT .connect_timeout_ms = 10000, .command_timeout_ms = 10000

/* ---- Stacks ---------------------------------------------------------------------------------- */

#define SMALL_STACK ((size_t)64 << 10)

/* A sanitizer makes frames larger. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PLAIN 1
#else
#define PLAIN 0
#endif

static size_t stack_size(void)
{
    pthread_attr_t attributes;
    void *at;
    size_t size;
    must(pthread_getattr_np(pthread_self(), &attributes) == 0);
    must(pthread_attr_getstack(&attributes, &at, &size) == 0);
    pthread_attr_destroy(&attributes);
    return size;
}

static void measure_event(void *arg, const struct dlock_event *event)
{
    (void)event;
    atomic_store((_Atomic size_t *)arg, stack_size());
}

static void measure_done(void *arg, dlock_status status, dlock_hold *hold)
{
    must(status == DLOCK_OK);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    atomic_store((_Atomic size_t *)arg, stack_size());
}

/* The process gives its threads little. The library's have what it needs, and what `done` needs. */
static void its_threads_have_a_stack(void **state)
{
    (void)state;
    pthread_attr_t before, small;
    _Atomic size_t timekeepers = 0, tellers = 0;
    must(pthread_getattr_default_np(&before) == 0 && pthread_getattr_default_np(&small) == 0);
    must(pthread_attr_setstacksize(&small, SMALL_STACK) == 0);
    must(pthread_setattr_default_np(&small) == 0);
    dlock_client *client =
        client_of(server_url(server), (struct dlock_options){.ttl_ms = 300,
                                                             .on_event = measure_event,
                                                             .on_event_arg = &timekeepers});
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock *other = lock_of(client, NULL, LOCK "2");
    assert_status(dlock_acquire_start(other, NULL, measure_done, &tellers), OK);
    dlock_hold *hold = acquired(lock);
    eventually(timekeepers != 0 && tellers != 0);
    must(pthread_setattr_default_np(&before) == 0);
    pthread_attr_destroy(&before);
    pthread_attr_destroy(&small);
    assert_true(timekeepers >= 4 * SMALL_STACK - 4096 && tellers >= 4 * SMALL_STACK - 4096);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_close(other);
    dlock_client_close(client);
}

#if PLAIN
static void *use_it(void *arg)
{
    const char *url = server_url(server);
    struct dlock_options options = {
        .size = sizeof options, .servers = &url, .server_count = 1, PATIENT};
    struct dlock_want want = {.size = sizeof want, .wait_ms = 10};
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *one, *two;
    dlock *lock, *same;
    dlock_hold *hold, *none;
    must(dlock_client_open(&options, &one) == DLOCK_OK);
    must(dlock_client_open(&options, &two) == DLOCK_OK);
    must(dlock_open(one, arg, LOCK, &lock) == DLOCK_OK);
    must(dlock_open(two, arg, LOCK, &same) == DLOCK_OK);
    must(dlock_acquire(lock, NULL, &hold) == DLOCK_OK);
    must(dlock_acquire(same, &want, &none) == DLOCK_TIMED_OUT);
    must(dlock_extend(hold) == DLOCK_OK);
    must(dlock_inspect(same, &holder) == DLOCK_OK);
    must(dlock_break(same, &holder) == DLOCK_OK);
    dlock_release(hold, NULL);
    dlock_close(lock);
    dlock_close(same);
    dlock_client_close(one);
    dlock_client_close(two);
    return NULL;
}

static void a_caller_may_have_a_small_stack(void **state)
{
    static char rungs[][16] = {"owner_lua", "watchdog", "notify", "fair", "read_write"};
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        pthread_attr_t small;
        pthread_t thread;
        must(pthread_attr_init(&small) == 0);
        must(pthread_attr_setstacksize(&small, SMALL_STACK) == 0);
        must(pthread_create(&thread, &small, use_it, rungs[i]) == 0);
        pthread_attr_destroy(&small);
        thread_wait(thread);
    }
}
#endif

/* ---- Signals --------------------------------------------------------------------------------- */

#define TASKS_MAX 64

static size_t tasks(pid_t *ids)
{
    size_t count = 0;
    DIR *folder = opendir("/proc/self/task");
    must(folder != NULL);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        must(count < TASKS_MAX);
        ids[count++] = (pid_t)atoi(entry->d_name);
    }
    closedir(folder);
    return count;
}

/* Bit n - 1: signal n. */
static uint64_t blocked_by(pid_t id)
{
    char path[64], line[256];
    uint64_t blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", (int)id);
    FILE *status = fopen(path, "r");
    must(status != NULL);
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "SigBlk:", 7) == 0)
            blocked = strtoull(line + 7, NULL, 16);
    fclose(status);
    return blocked;
}

static bool is_fault(int number)
{
    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
           number == SIGTRAP || number == SIGSYS;
}

static void takes_only_faults(pid_t id)
{
    /* While a thread begins, the C library keeps everything from it. */
    eventually((blocked_by(id) >> (SIGSEGV - 1) & 1) == 0);
    uint64_t blocked = blocked_by(id);
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (number == SIGKILL || number == SIGSTOP || (number >= 32 && number < SIGRTMIN))
            continue; /* nobody can block them; the C library's own */
        if ((blocked >> (number - 1) & 1) == is_fault(number))
            failed("thread %d: signal %d is %s", (int)id, number,
                   is_fault(number) ? "blocked" : "not blocked");
    }
}

static void answered(void *arg, dlock_status status, dlock_hold *hold)
{
    must(status == DLOCK_CANCELLED && hold == NULL);
    atomic_store((_Atomic bool *)arg, true);
}

/* A handler of the application's never runs on a thread of the library's; its own threads go on
 * taking signals. */
static void its_threads_take_no_signals(void **state)
{
    (void)state;
    pid_t before[TASKS_MAX], now[TASKS_MAX];
    _Atomic bool over = false;
    sigset_t none;
    sigemptyset(&none);
    pthread_sigmask(SIG_SETMASK, &none, NULL);
    size_t had = tasks(before), ours = 0;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
    dlock *lock = lock_of(client, "notify", LOCK);
    dlock *timed = lock_of(client, "watchdog_timer", LOCK "2");
    dlock_hold *hold = acquired(lock), *renewed = acquired(timed);
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .cancel = dlock_cancel_new()};
    assert_status(dlock_acquire_start(lock, &want, answered, &over), OK);
    eventually(stats_of(client).contended == 1);
    size_t count = tasks(now);
    for (size_t i = 0; i < count; i++) {
        bool is_new = true;
        for (size_t j = 0; j < had; j++)
            is_new = is_new && now[i] != before[j];
        if (is_new)
            takes_only_faults(now[i]);
        ours += is_new;
    }
    assert_in_range(ours, 4, 6); /* the timekeeper, the loop's, a timer */
    assert_int_equal(blocked_by(gettid()), 0);
    dlock_cancel_now(want.cancel);
    eventually(atomic_load(&over));
    dlock_cancel_free(want.cancel);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_release(renewed, NULL), OK);
    dlock_close(lock);
    dlock_close(timed);
    dlock_client_close(client);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define THREADS 8
#define ROUNDS 60
#define NAMES 6

struct crowd {
    dlock_client *client;
    dlock_cancel *cancel;
    _Atomic int inside[NAMES];
    _Atomic int acquired;
    _Atomic int timed_out;
};

static void use(struct crowd *crowd, unsigned *seed, dlock_batch *batch)
{
    static const char *const rungs[] = {"local",    "owner_lua", "reentrant",
                                        "watchdog", "notify",    "read_write"};
    /* A name has one rung: two rungs do not exclude each other. */
    unsigned at = (unsigned)rand_r(seed) % NAMES;
    char name[32];
    snprintf(name, sizeof name, "lock:{%u}", at);
    dlock *lock;
    dlock_hold *hold;
    must(dlock_open(crowd->client, rungs[at], name, &lock) == DLOCK_OK);
    struct dlock_want want = {.size = sizeof want,
                              .wait_ms = rand_r(seed) % 3 * 30,
                              .reads = rand_r(seed) % 2 == 0 ? batch : NULL,
                              .cancel = rand_r(seed) % 2 == 0 ? crowd->cancel : NULL};
    dlock_status status = dlock_acquire(lock, &want, &hold);
    must(status == DLOCK_OK || status == DLOCK_BUSY || status == DLOCK_TIMED_OUT);
    atomic_fetch_add(&crowd->timed_out, status == DLOCK_TIMED_OUT);
    if (status == DLOCK_OK) {
        must(atomic_fetch_add(&crowd->inside[at], 1) == 0);
        must(dlock_valid(hold));
        atomic_fetch_add(&crowd->acquired, 1);
        atomic_fetch_sub(&crowd->inside[at], 1);
        must(dlock_release(hold, want.reads) == DLOCK_OK);
    }
    if (rand_r(seed) % 8 == 0) {
        struct dlock_holder holder = {.size = sizeof holder};
        struct dlock_stats stats = {.size = sizeof stats};
        dlock_inspect(lock, &holder);
        dlock_client_stats(crowd->client, &stats);
    }
    dlock_close(lock);
}

static _Atomic unsigned next_seed = 1;

static void *crowd_body(void *arg)
{
    struct crowd *crowd = arg;
    unsigned seed = atomic_fetch_add(&next_seed, 1);
    dlock_batch *batch = dlock_batch_new();
    must(dlock_batch_add(batch, 2, (const char *const[]){"GET", "k"}, NULL) == DLOCK_OK);
    for (int i = 0; i < ROUNDS; i++)
        use(crowd, &seed, batch);
    dlock_batch_free(batch);
    return NULL;
}

static void many_threads_open_use_and_close(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    struct crowd crowd = {
        .client = client_of(server_url(server),
                            (struct dlock_options){.connections_max = 5, .retry_ms = 1}),
        .cancel = dlock_cancel_new()};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = thread_start(crowd_body, &crowd);
    for (int i = 0; i < THREADS; i++)
        thread_wait(threads[i]);
    struct dlock_stats stats = stats_of(crowd.client);
    assert_true(crowd.acquired > 0);
    assert_int_equal(stats.acquired, crowd.acquired);
    assert_int_equal(stats.released, crowd.acquired);
    /* With the one that listens; and a login that outlasts its call is given up. */
    assert_in_range(stats.connects, 1, 6 + 2 * (uint64_t)crowd.timed_out);
    assert_int_equal(stats.unknown + stats.lost, 0);
    for (int i = 0; i < NAMES; i++)
        assert_int_equal(server_integer(server, "EXISTS lock:{%d}", i), 0);
    dlock_cancel_free(crowd.cancel);
    dlock_client_close(crowd.client);
}

/* Holds are released on one thread while the timekeeper renews them and tells of them. */
static void *churn(void *arg)
{
    struct crowd *crowd = arg;
    unsigned seed = atomic_fetch_add(&next_seed, 1);
    for (int i = 0; i < 4; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:{%u-%d}", seed, i);
        dlock *lock;
        dlock_hold *hold;
        must(dlock_open(crowd->client, i % 2 == 0 ? "watchdog" : "owner_lua", name, &lock) ==
             DLOCK_OK);
        if (dlock_acquire(lock, NULL, &hold) == DLOCK_OK) {
            int64_t ends_ms = clock_ms() + rand_r(&seed) % 260;
            while (clock_ms() < ends_ms)
                dlock_valid(hold);
            dlock_release(hold, NULL);
        }
        dlock_close(lock);
    }
    return NULL;
}

static void released_in_the_middle_of_renewals(void **state)
{
    (void)state;
    struct record *events = record_new();
    struct crowd crowd = {
        .client = client_of(server_url(server), (struct dlock_options){.ttl_ms = 200,
                                                                       .on_event = record_event,
                                                                       .on_event_arg = events})};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = thread_start(churn, &crowd);
    for (int i = 0; i < THREADS; i++)
        thread_wait(threads[i]);
    struct dlock_stats stats = stats_of(crowd.client);
    assert_int_equal(record_count(events, "LOST"), stats.lost);
    assert_int_equal(record_count(events, "RENEWED"), stats.renewals);
    dlock_client_close(crowd.client);
    record_free(events);
}

/* The same few locks are opened and closed by all: the last to close one frees it. */
static void *open_and_close_locks(void *client)
{
    unsigned seed = atomic_fetch_add(&next_seed, 1);
    for (int i = 0; i < 2000; i++) {
        char name[32];
        dlock *lock;
        snprintf(name, sizeof name, "lock:{%d}", rand_r(&seed) % 12);
        must(dlock_open(client, NULL, name, &lock) == DLOCK_OK);
        must(strcmp(dlock_name(lock), name) == 0);
        dlock_close(lock);
    }
    return NULL;
}

static void many_threads_open_the_same_locks(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = thread_start(open_and_close_locks, client);
    for (int i = 0; i < THREADS; i++)
        thread_wait(threads[i]);
    dlock_client_close(client);
}

static void *open_and_close(void *arg)
{
    const char *url = server_url(server);
    for (int i = 0; i < 10; i++) {
        struct dlock_options options = {
            .size = sizeof options, .servers = &url, .server_count = 1, PATIENT};
        dlock_client *client;
        dlock *lock;
        dlock_hold *hold;
        must(dlock_client_open(&options, &client) == DLOCK_OK);
        must(dlock_open(client, NULL, LOCK, &lock) == DLOCK_OK);
        dlock_status status = dlock_acquire(lock, NULL, &hold);
        must(status == DLOCK_OK || status == DLOCK_BUSY);
        if (status == DLOCK_OK)
            must(dlock_release(hold, NULL) == DLOCK_OK);
        dlock_close(lock);
        dlock_client_close(client);
    }
    return arg;
}

static void many_clients_come_and_go(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = thread_start(open_and_close, NULL);
    for (int i = 0; i < THREADS; i++)
        thread_wait(threads[i]);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_threads_have_a_stack),
#if PLAIN
        cmocka_unit_test(a_caller_may_have_a_small_stack),
#endif
        cmocka_unit_test(its_threads_take_no_signals),
        cmocka_unit_test(many_threads_open_use_and_close),
        cmocka_unit_test(released_in_the_middle_of_renewals),
        cmocka_unit_test(many_threads_open_the_same_locks),
        cmocka_unit_test(many_clients_come_and_go),
    };
    return cmocka_run_group_tests_name("threads", tests, start_server, stop_server);
}
