/* SPDX-License-Identifier: Apache-2.0
 *
 * A round of the lock bench: what every process must do, and where it records what it did. The
 * processes share memory with their parent. Each process is one client of its lock.
 */
#ifndef BENCH_LOCK_ROUND_H
#define BENCH_LOCK_ROUND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* python-redis-lock puts "lock:" before the name that it gets, so it gets LOCK_SUBJECT. */
#define LOCK_SUBJECT "{phone}"
#define LOCK_NAME "lock:" LOCK_SUBJECT
#define STOCK_KEY "stock:" LOCK_SUBJECT

#define SAMPLES_MAX (1 << 20) /* of one process; later ones are counted but not kept */

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
    int64_t wait_ms;     /* a waiter gives up after this time */
    int64_t handoff_max; /* for libdlock; 0: its default */
    const char *rung;    /* for libdlock; NULL: its default */
    const char *url;     /* redis://host:port */
    char host[256];
    int port;
};

/* The results of one waiter. One thread at a time writes them; they are read after the round. */
struct tally {
    uint64_t turns; /* turns begun */
    uint64_t sold;
    uint64_t sold_in_time; /* sold before the loop's end */
    uint64_t sold_out;
    uint64_t failed;
    uint64_t overlapped; /* the stock changed between this waiter's GET and its DECR */
    int64_t done_ns;     /* when its latest turn ended */
};

struct gate {
    atomic_uint open;
    int64_t opened_ns; /* CLOCK_MONOTONIC; set before it opens */
};

struct samples {
    atomic_size_t count;
    uint32_t wait_us[SAMPLES_MAX];
};

/* One process's part of the round. */
struct part {
    const struct plan *plan;
    int number; /* of the process, counted from 0 */
    int report_fd;
    struct gate *start;
    struct gate *end;
    struct tally *tallies;
    struct samples *samples;
    int64_t client_cpu_us; /* CPU time between start and end */
    atomic_flag complained;
};

/* One purchase. It counts as FAILED until it has another outcome. */
struct sale {
    enum outcome { OUTCOME_FAILED, OUTCOME_SOLD, OUTCOME_SOLD_OUT } outcome;
    bool overlapped;
    int64_t granted_ns; /* 0 if it was not granted */
};

/* A lock implementation that takes part. run() is called in a process of its own. It first prepares
 * everything (connections, threads, scripts) and calls part_ready(). Its waiters start after
 * gate_wait(part->start). When the last waiter is done, run() calls part_done(), and then cleans
 * up. */
struct contestant {
    const char *name;
    const char *about;
    bool sells; /* false: it has no section, only SHAPE_PAIRS */
    void (*run)(struct part *part);
};

void run_redisson(struct part *part);
void run_python_redis_lock(struct part *part);
void run_floor(struct part *part);
void run_dlock(struct part *part);
void run_dlock_async(struct part *part);

int64_t now_ns(void);

/* gate_wait() returns when the gate is open; opening wakes all waiters at once. */
void gate_open(struct gate *gate);
void gate_wait(struct gate *gate);

void part_ready(struct part *part);
/* Reports to the parent, and waits until it has read the server's counters. */
void part_done(struct part *part);

/* Whether the waiter takes one more turn; if so, the turn has begun. */
bool part_next(struct part *part, int waiter);
/* Records the end of a turn. The wait is counted from the start in a burst, from asked_ns in a
 * loop. */
void part_tally(struct part *part, int waiter, int64_t asked_ns, const struct sale *sale);

/* Reports an error on stderr, once for each process, because 750 waiters would report the same. */
__attribute__((format(printf, 2, 3))) void part_complain(struct part *part, const char *format,
                                                         ...);
/* The same, and ends the process, because it cannot take part. */
__attribute__((format(printf, 2, 3), noreturn)) void part_give_up(struct part *part,
                                                                  const char *format, ...);

#endif
