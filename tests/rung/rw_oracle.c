/* SPDX-License-Identifier: Apache-2.0
 *
 * See rw_oracle.h.
 */
#include "rw_oracle.h"

#include "child.h"
#include "must.h"

#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>

#define PROCESSES_MAX 16
#define THREADS_MAX 64
#define STAY_US 200

/* Shared by the processes. The counts of who is inside are in one total order, so that of two that
 * meet one at least sees the other; the cells are relaxed: what orders them must be the lock. */
struct witness {
    _Atomic int ready;    /* threads that have opened their client */
    _Atomic int has_read; /* threads that are through their first read */
    _Atomic int readers;  /* inside */
    _Atomic int writers;
    _Atomic uint64_t cell[2];
    _Atomic uint64_t reads;
    _Atomic uint64_t writes;
    _Atomic uint64_t overlaps;
    _Atomic uint64_t torn;
    _Atomic uint64_t met;
    _Atomic uint64_t kept_out;
    _Atomic uint64_t errors;
};

struct process {
    const struct rw_oracle *oracle;
    struct witness *witness;
    dlock_client *client;
    dlock *lock;
    int number;
    _Atomic int threads; /* that have taken their number */
};

static uint64_t cell(const struct witness *witness, int which)
{
    return atomic_load_explicit(&witness->cell[which], memory_order_relaxed);
}

/* Until the count is above the limit, or the time is over. */
static void stay(_Atomic uint64_t *count, uint64_t limit, int64_t us)
{
    int64_t over_ns = mono_ns() + us * 1000;
    while (atomic_load(count) <= limit && mono_ns() < over_ns)
        sched_yield();
}

static void read_section(const struct rw_oracle *oracle, struct witness *witness, bool first)
{
    bool meets = atomic_fetch_add(&witness->readers, 1) > 0;
    uint64_t overlaps = atomic_load(&witness->overlaps);
    if (atomic_load(&witness->writers) > 0)
        atomic_fetch_add(&witness->overlaps, 1);
    if (meets)
        atomic_fetch_add(&witness->met, 1);
    uint64_t before = cell(witness, 0);
    if (first)
        stay(&witness->met, 0, oracle->reader_stays_ms * 1000);
    else
        stay(&witness->overlaps, overlaps, STAY_US);
    if (cell(witness, 1) != before || cell(witness, 0) != before)
        atomic_fetch_add(&witness->torn, 1);
    atomic_fetch_add(&witness->reads, 1);
    atomic_fetch_sub(&witness->readers, 1);
}

static void write_section(const struct rw_oracle *oracle, struct witness *witness)
{
    uint64_t overlaps = atomic_load(&witness->overlaps);
    bool meets = atomic_fetch_add(&witness->writers, 1) > 0;
    if (meets || atomic_load(&witness->readers) > 0)
        atomic_fetch_add(&witness->overlaps, 1);
    bool first = atomic_fetch_add(&witness->writes, 1) == 0;
    uint64_t next = cell(witness, 0) + 1;
    atomic_store_explicit(&witness->cell[0], next, memory_order_relaxed);
    stay(&witness->overlaps, overlaps, first ? oracle->writer_stays_ms * 1000 : STAY_US);
    atomic_store_explicit(&witness->cell[1], next, memory_order_relaxed);
    atomic_fetch_sub(&witness->writers, 1);
}

static void section(const struct process *process, enum dlock_mode mode, bool first)
{
    struct witness *witness = process->witness;
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = process->oracle->wait_ms, .mode = mode};
    dlock_hold *hold;
    dlock_status status = dlock_acquire(process->lock, &want, &hold);
    if (status == DLOCK_TIMED_OUT) {
        atomic_fetch_add(&witness->kept_out, 1);
        return;
    }
    if (status == DLOCK_OK) {
        if (mode == DLOCK_SHARED)
            read_section(process->oracle, witness, first);
        else
            write_section(process->oracle, witness);
        status = dlock_release(hold, NULL);
    }
    if (status != DLOCK_OK) {
        atomic_fetch_add(&witness->errors, 1);
        fprintf(stderr, "%s: %s\n", dlock_status_name(status), dlock_error());
    }
}

static void *thread_body(void *arg)
{
    struct process *process = arg;
    const struct rw_oracle *oracle = process->oracle;
    struct witness *witness = process->witness;
    int all = oracle->processes * oracle->threads;
    int number = process->number * oracle->threads + atomic_fetch_add(&process->threads, 1);
    atomic_fetch_add(&witness->ready, 1);
    eventually(atomic_load(&witness->ready) == all);
    section(process, DLOCK_SHARED, true);
    atomic_fetch_add(&witness->has_read, 1);
    eventually(atomic_load(&witness->has_read) == all);
    for (int i = 0; i < oracle->rounds; i++)
        section(process, (number + i) % 3 == 0 ? DLOCK_EXCLUSIVE : DLOCK_SHARED, false);
    return NULL;
}

static int process_body(void *arg)
{
    struct process *process = arg;
    const struct rw_oracle *oracle = process->oracle;
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &oracle->url,
                                    .server_count = 1,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = PATIENCE_MS,
                                    .retry_ms = 3};
    must(dlock_client_open(&options, &process->client) == DLOCK_OK);
    must(dlock_open_ops(process->client, oracle->ops, RW_LOCK, &process->lock) == DLOCK_OK);
    pthread_t threads[THREADS_MAX];
    for (int i = 0; i < oracle->threads; i++)
        threads[i] = thread_start(thread_body, process);
    for (int i = 0; i < oracle->threads; i++)
        thread_wait(threads[i]);
    dlock_close(process->lock);
    dlock_client_close(process->client);
    return 0;
}

struct rw_verdict rw_oracle_run(const struct rw_oracle *oracle)
{
    struct witness *witness =
        mmap(NULL, sizeof *witness, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(witness != MAP_FAILED);
    must(oracle->processes <= PROCESSES_MAX && oracle->threads <= THREADS_MAX);
    pid_t pids[PROCESSES_MAX];
    struct process process = {.oracle = oracle, .witness = witness};
    for (int i = 0; i < oracle->processes; i++) {
        process.number = i;
        pids[i] = child_start(process_body, &process);
    }
    for (int i = 0; i < oracle->processes; i++)
        if (child_wait(pids[i]) != 0)
            atomic_fetch_add(&witness->errors, 1);
    struct rw_verdict verdict = {
        .reads = witness->reads,
        .writes = witness->writes,
        .overlaps = witness->overlaps,
        .torn = witness->torn,
        .lost = witness->writes - witness->cell[1],
        .met = witness->met,
        .kept_out = witness->kept_out,
        .errors = witness->errors,
    };
    munmap(witness, sizeof *witness);
    return verdict;
}

bool rw_oracle_holds(const struct rw_oracle *oracle, const struct rw_verdict *v)
{
    uint64_t all = (uint64_t)(oracle->processes * oracle->threads * (oracle->rounds + 1));
    bool holds = v->reads + v->writes == all && v->writes > 0 && v->met > 0 && v->overlaps == 0 &&
                 v->torn == 0 && v->lost == 0 && v->kept_out == 0 && v->errors == 0;
    if (!holds)
        fprintf(stderr,
                "%s: %llu reads and %llu writes of %llu, %llu overlaps, %llu torn reads, %llu lost "
                "writes, %llu readers met one, %llu kept out, %llu errors\n",
                oracle->ops->name, (unsigned long long)v->reads, (unsigned long long)v->writes,
                (unsigned long long)all, (unsigned long long)v->overlaps,
                (unsigned long long)v->torn, (unsigned long long)v->lost,
                (unsigned long long)v->met, (unsigned long long)v->kept_out,
                (unsigned long long)v->errors);
    return holds;
}
