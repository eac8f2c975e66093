/* SPDX-License-Identifier: Apache-2.0
 *
 * See validate.h.
 */
#include "validate.h"

#include "child.h"
#include "must.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PROCESSES_MAX 16
#define THREADS_MAX 64
#define WAIT_MS PATIENCE_MS

/* The first section stays inside until a second one has read the counter. If the rung must hold,
 * the first section stays for a while, to give a second one time to enter by mistake. The others
 * stay just long enough to be met. */
#define FIRST_STAY_MS_BREAKS PATIENCE_MS
#define FIRST_STAY_MS_HOLDS 300
#define STAY_US 200

/* Shared by the processes. All atomics are relaxed, because only the lock may order them. */
struct witness {
    _Atomic int ready; /* threads that have opened their client */
    _Atomic int inside;
    _Atomic int between; /* sections between their read and their write */
    _Atomic bool met;    /* two sections were in `between` at once */
    _Atomic uint64_t counter;
    _Atomic uint64_t newest_token;
    _Atomic uint64_t sections;
    _Atomic uint64_t overlaps;
    _Atomic uint64_t token_inversions;
    _Atomic uint64_t errors;
    _Atomic uint64_t attempts;
};

struct process {
    const struct oracle *oracle;
    struct witness *witness;
    dlock_client *client;
    dlock *lock;
};

static uint64_t add(_Atomic uint64_t *counter)
{
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void complain(struct witness *witness, const char *call, dlock_status status)
{
    add(&witness->errors);
    fprintf(stderr, "%s: %s: %s\n", call, dlock_status_name(status), dlock_error());
}

/* Stays until two sections have met between read and write, or until the time is over. */
static void stay(const struct oracle *oracle, struct witness *witness, bool first)
{
    int64_t first_ms = oracle->expected == BREAKS ? FIRST_STAY_MS_BREAKS : FIRST_STAY_MS_HOLDS;
    int64_t over_ns = mono_ns() + (first ? first_ms * NS_PER_MS : STAY_US * 1000);
    if (atomic_fetch_add_explicit(&witness->between, 1, memory_order_relaxed) > 0)
        atomic_store_explicit(&witness->met, true, memory_order_relaxed);
    while (!atomic_load_explicit(&witness->met, memory_order_relaxed) && mono_ns() < over_ns)
        sched_yield();
}

static bool has_tokens(const struct oracle *oracle)
{
    unsigned traits = oracle->ops != NULL ? oracle->ops->traits : 0;
    return (traits & TRAIT_TOKEN) != 0 && ((traits & TRAIT_QUORUM) == 0 || oracle->tokens);
}

static void section(const struct oracle *oracle, struct witness *witness, uint64_t token)
{
    if (atomic_fetch_add_explicit(&witness->inside, 1, memory_order_relaxed) > 0)
        add(&witness->overlaps);
    uint64_t count = atomic_load_explicit(&witness->counter, memory_order_relaxed);
    stay(oracle, witness, add(&witness->sections) == 0);
    atomic_store_explicit(&witness->counter, count + 1, memory_order_relaxed);
    if (has_tokens(oracle) &&
        atomic_exchange_explicit(&witness->newest_token, token, memory_order_relaxed) >= token)
        add(&witness->token_inversions);
    atomic_fetch_sub_explicit(&witness->between, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&witness->inside, 1, memory_order_relaxed);
}

/* Builds the command that rides with the release from the reply that came with the acquire. */
static void ride(dlock_batch *reads, dlock_batch *last)
{
    struct dlock_reply reply = {.size = sizeof reply};
    char next[24];
    must(dlock_batch_reply(reads, 0, &reply) == DLOCK_OK);
    must(reply.kind == DLOCK_REPLY_TEXT || reply.kind == DLOCK_REPLY_NIL);
    snprintf(next, sizeof next, "%llu", strtoull(reply.text, NULL, 10) + 1);
    dlock_batch_clear(last);
    must(dlock_batch_add(last, 3, (const char *const[]){"SET", ORACLE_COUNTER, next}, NULL) ==
         DLOCK_OK);
}

static void round_of(const struct process *process, dlock_batch *reads, dlock_batch *last)
{
    bool riding = process->oracle->riding;
    struct dlock_want want = {.size = sizeof want,
                              .wait_ms = WAIT_MS,
                              .reads = riding ? reads : NULL,
                              .token = process->oracle->tokens};
    dlock_hold *hold;
    dlock_status status = dlock_acquire(process->lock, &want, &hold);
    if (status != DLOCK_OK) {
        complain(process->witness, "acquire", status);
        return;
    }
    section(process->oracle, process->witness, dlock_token(hold));
    if (riding)
        ride(reads, last);
    status = dlock_release(hold, riding ? last : NULL);
    bool taken = status == DLOCK_LOST && process->oracle->expected == BREAKS;
    if (status != DLOCK_OK && !taken)
        complain(process->witness, "release", status);
}

static void *thread_body(void *arg)
{
    const struct process *process = arg;
    const struct oracle *oracle = process->oracle;
    dlock_batch *reads = dlock_batch_new();
    dlock_batch *last = dlock_batch_new();
    must(reads != NULL && last != NULL);
    must(dlock_batch_add(reads, 2, (const char *const[]){"GET", ORACLE_COUNTER}, NULL) == DLOCK_OK);
    atomic_fetch_add(&process->witness->ready, 1);
    eventually(atomic_load(&process->witness->ready) == oracle->processes * oracle->threads);
    for (int i = 0; i < oracle->rounds; i++)
        round_of(process, reads, last);
    dlock_batch_free(reads);
    dlock_batch_free(last);
    return NULL;
}

static int process_body(void *arg)
{
    struct process *process = arg;
    const struct oracle *oracle = process->oracle;
    struct dlock_options options = {.size = sizeof options,
                                    .engine = oracle->engine,
                                    .servers = oracle->servers,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = PATIENCE_MS,
                                    .retry_ms = 3,
                                    .allow_flawed = true};
    while (oracle->servers[options.server_count] != NULL)
        options.server_count++;
    must(dlock_client_open(&options, &process->client) == DLOCK_OK);
    dlock_status status =
        oracle->ops != NULL
            ? dlock_open_ops(process->client, oracle->ops, ORACLE_LOCK, &process->lock)
            : dlock_open(process->client, oracle->rung, ORACLE_LOCK, &process->lock);
    must(status == DLOCK_OK);
    pthread_t threads[THREADS_MAX];
    for (int i = 0; i < oracle->threads; i++)
        threads[i] = thread_start(thread_body, process);
    for (int i = 0; i < oracle->threads; i++)
        thread_wait(threads[i]);
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_stats(process->client, &stats);
    atomic_fetch_add(&process->witness->attempts, stats.attempts);
    dlock_close(process->lock);
    dlock_client_close(process->client);
    return 0;
}

/* Reads the counter in Redis, with a separate client and the rung `none`. */
static uint64_t counted_in_redis(const struct oracle *oracle)
{
    struct dlock_options options = {.size = sizeof options,
                                    .engine = oracle->engine,
                                    .servers = oracle->servers,
                                    .server_count = 1,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = PATIENCE_MS,
                                    .allow_flawed = true};
    struct dlock_want want = {.size = sizeof want, .reads = dlock_batch_new()};
    struct dlock_reply reply = {.size = sizeof reply};
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    must(want.reads != NULL);
    must(dlock_batch_add(want.reads, 2, (const char *const[]){"GET", ORACLE_COUNTER}, NULL) ==
         DLOCK_OK);
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open(client, "none", "reader", &lock) == DLOCK_OK);
    must(dlock_acquire(lock, &want, &hold) == DLOCK_OK);
    must(dlock_batch_reply(want.reads, 0, &reply) == DLOCK_OK);
    uint64_t count = strtoull(reply.text, NULL, 10);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    dlock_close(lock);
    dlock_client_close(client);
    dlock_batch_free(want.reads);
    return count;
}

struct verdict oracle_run(const struct oracle *oracle)
{
    struct witness *witness =
        mmap(NULL, sizeof *witness, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(witness != MAP_FAILED);
    must(oracle->processes <= PROCESSES_MAX && oracle->threads <= THREADS_MAX);
    pid_t pids[PROCESSES_MAX];
    struct process process = {.oracle = oracle, .witness = witness};
    for (int i = 0; i < oracle->processes; i++)
        pids[i] = child_start(process_body, &process);
    for (int i = 0; i < oracle->processes; i++)
        if (child_wait(pids[i]) != 0)
            add(&witness->errors);
    struct verdict verdict = {
        .sections = witness->sections,
        .overlaps = witness->overlaps,
        .lost_updates = witness->sections - witness->counter,
        .lost_rides = oracle->riding ? witness->sections - counted_in_redis(oracle) : 0,
        .token_inversions = witness->token_inversions,
        .errors = witness->errors,
        .attempts = witness->attempts,
    };
    munmap(witness, sizeof *witness);
    return verdict;
}

bool oracle_agrees(const struct oracle *oracle)
{
    struct verdict v = oracle_run(oracle);
    uint64_t all = (uint64_t)(oracle->processes * oracle->threads * oracle->rounds);
    bool exclusive =
        v.overlaps == 0 && v.lost_updates == 0 && v.lost_rides == 0 && v.token_inversions == 0;
    bool broken_through = v.overlaps > 0 && v.lost_updates > 0;
    bool agrees = v.sections == all && v.errors == 0 &&
                  (oracle->expected == HOLDS ? exclusive : broken_through);
    if (!agrees)
        fprintf(stderr,
                "%s, %d processes: expected that it %s; %llu of %llu sections, %llu overlaps, "
                "%llu lost updates, %llu lost rides, %llu token inversions, %llu errors\n",
                oracle->ops != NULL ? oracle->ops->name : oracle->rung, oracle->processes,
                oracle->expected == HOLDS ? "holds" : "breaks", (unsigned long long)v.sections,
                (unsigned long long)all, (unsigned long long)v.overlaps,
                (unsigned long long)v.lost_updates, (unsigned long long)v.lost_rides,
                (unsigned long long)v.token_inversions, (unsigned long long)v.errors);
    return agrees;
}
