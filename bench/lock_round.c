/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_round.h.
 */
#include "lock_round.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* A futex instead of a condition variable: 1500 woken threads need not queue for a mutex. */
void gate_open(struct gate *gate)
{
    gate->opened_ns = now_ns();
    atomic_store(&gate->open, 1);
    syscall(SYS_futex, &gate->open, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* This wait ends: the process that waits here dies with the one that opens the gate. */
void gate_wait(struct gate *gate)
{
    while (atomic_load(&gate->open) == 0)
        syscall(SYS_futex, &gate->open, FUTEX_WAIT, 0, NULL, NULL, 0);
}

static void report(const struct part *part, char what)
{
    if (write(part->report_fd, &what, 1) != 1)
        _exit(1);
}

static int64_t cpu_us(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

void part_ready(struct part *part)
{
    part->client_cpu_us = -cpu_us();
    report(part, 'r');
}

void part_done(struct part *part)
{
    part->client_cpu_us += cpu_us();
    report(part, 'd');
    gate_wait(part->end);
}

bool part_next(struct part *part, int waiter)
{
    const struct plan *plan = part->plan;
    struct tally *tally = &part->tallies[waiter];
    bool more = false;
    switch (plan->shape) {
    case SHAPE_BURST:
        more = tally->turns == 0;
        break;
    case SHAPE_LOOP:
        more = now_ns() < part->start->opened_ns + plan->loop_ms * 1000000;
        break;
    case SHAPE_PAIRS:
        more = tally->turns < (uint64_t)plan->pairs;
        break;
    }
    tally->turns += more;
    return more;
}

static void keep_sample(struct samples *samples, int64_t wait_ns)
{
    size_t at = atomic_fetch_add(&samples->count, 1);
    if (at < SAMPLES_MAX)
        samples->wait_us[at] = (uint32_t)(wait_ns / 1000);
}

void part_tally(struct part *part, int waiter, int64_t asked_ns, const struct sale *sale)
{
    struct tally *tally = &part->tallies[waiter];
    bool loop = part->plan->shape == SHAPE_LOOP;
    int64_t start_ns = part->start->opened_ns;
    if (part->plan->shape == SHAPE_BURST)
        asked_ns = start_ns;
    tally->done_ns = now_ns();
    tally->failed += sale->outcome == OUTCOME_FAILED;
    tally->sold_out += sale->outcome == OUTCOME_SOLD_OUT;
    tally->overlapped += sale->overlapped;
    if (sale->outcome == OUTCOME_SOLD) {
        tally->sold++;
        tally->sold_in_time += !loop || tally->done_ns < start_ns + part->plan->loop_ms * 1000000;
    }
    if (sale->granted_ns != 0)
        keep_sample(part->samples, sale->granted_ns - asked_ns);
}

static void say(const char *format, va_list args)
{
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "bench-lock: %s\n", text);
}

void part_complain(struct part *part, const char *format, ...)
{
    va_list args;
    if (atomic_flag_test_and_set(&part->complained))
        return;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

void part_give_up(struct part *part, const char *format, ...)
{
    va_list args;
    (void)part;
    va_start(args, format);
    say(format, args);
    va_end(args);
    _exit(1);
}
