/* SPDX-License-Identifier: Apache-2.0
 *
 * A round of the lock bench: what every process is to do, and where it writes down what it did.
 * Processes share memory with the one that started them; a process is one client of its lock.
 */
#ifndef BENCH_LOCK_ROUND_H
#define BENCH_LOCK_ROUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* python-redis-lock puts "lock:" ahead of what it is told, so it is told LOCK_SUBJECT. */
#define LOCK_SUBJECT "{phone}"
#define LOCK_NAME "lock:" LOCK_SUBJECT
#define STOCK_KEY "stock:" LOCK_SUBJECT

#define SAMPLES_MAX (1 << 20) /* of one process; what comes later is counted, not kept */

enum shape {
    SHAPE_BURST, /* all waiters start together, each buys once */
    SHAPE_LOOP,  /* each waiter buys again and again for a time */
    SHAPE_PAIRS, /* acquire and release without a section */
};

struct plan {
    enum shape shape;
    int processes;
    int waiters; /* of each process */
    int64_t stock;
    int64_t loop_ms;
    int64_t pairs;       /* of each waiter */
    int64_t ttl_ms;      /* of a hold */
    int64_t wait_ms;     /* after which a waiter gives up */
    int64_t handoff_max; /* libdlock's; 0: its default */
    const char *rung;    /* of libdlock; NULL: its default */
    const char *url;     /* redis://host:port */
    char host[256];
    int port;
};

/* What came of one waiter. Written by one thread at a time, read when the round is over. */
struct tally {
    uint64_t turns; /* begun */
    uint64_t sold;
    uint64_t sold_in_time; /* before the loop's end */
    uint64_t sold_out;
    uint64_t failed;
    uint64_t overlapped; /* the stock changed between this waiter's GET and its DECR */
    int64_t done_ns;     /* when its latest turn was over */
};

struct gate {
    atomic_uint open;
    int64_t opened_ns; /* CLOCK_MONOTONIC; set before it opens */
};

struct samples {
    atomic_size_t count;
    uint32_t wait_us[SAMPLES_MAX];
};

/* One process' part of the round. */
struct part {
    const struct plan *plan;
    int number; /* of the process, from 0 */
    int report_fd;
    struct gate *start;
    struct gate *end;
    struct tally *tallies;
    struct samples *samples;
    int64_t client_cpu_us; /* between start and end */
    atomic_flag complained;
};

/* One purchase: FAILED until it is known to be something else. */
struct sale {
    enum outcome { OUTCOME_FAILED, OUTCOME_SOLD, OUTCOME_SOLD_OUT } outcome;
    bool overlapped;
    int64_t granted_ns; /* 0: never */
};

/* Who takes part. run: called in a process of its own; gets everything ready (connections,
 * threads, scripts), says part_ready, lets its waiters begin behind gate_wait(part->start), and
 * when the last of them is done calls part_done before it takes anything down. */
struct contestant {
    const char *name;
    const char *about;
    bool sells; /* false: it has no section, SHAPE_PAIRS only */
    void (*run)(struct part *part);
};

void run_redisson(struct part *part);
void run_python_redis_lock(struct part *part);
void run_floor(struct part *part);
void run_dlock(struct part *part);
void run_dlock_async(struct part *part);

int64_t now_ns(void);

/* Passes when the gate is open. All that wait are woken at once. */
void gate_open(struct gate *gate);
void gate_wait(struct gate *gate);

void part_ready(struct part *part);
/* Tells the parent, and waits until it has read the server's counters. */
void part_done(struct part *part);

/* Whether that waiter takes one more turn; if so, it has begun. */
bool part_next(struct part *part, int waiter);
/* A turn is over. In a burst all have waited since the start, in a loop since asked_ns. */
void part_tally(struct part *part, int waiter, int64_t asked_ns, const struct sale *sale);

/* Says on stderr what went wrong, once for each process: 750 waiters would say the same. */
__attribute__((format(printf, 2, 3))) void part_complain(struct part *part, const char *format,
                                                         ...);
/* The same, and ends the process: it cannot take part. */
__attribute__((format(printf, 2, 3), noreturn)) void part_give_up(struct part *part,
                                                                  const char *format, ...);

#endif
