/* SPDX-License-Identifier: Apache-2.0
 *
 * How a waiter waits: pause, message, list, turn in the client's own queue; until its deadline or
 * its cancelling. The same for every rung.
 */
#ifndef DLOCK_WAIT_H
#define DLOCK_WAIT_H

#include "client.h"

/* A place in the client's own queue (CONTEND_ONE_PER_CLIENT). */
struct gate_waiter {
    struct gate_waiter *next;
    int turn_fd; /* eventfd: it is this waiter's turn */
};

struct wait {
    struct dlock *lock;
    int64_t deadline_ns; /* CLOCK_MONOTONIC; 0: one try */
    int cancel_fd;       /* -1: none */
    struct redis *ear;   /* listens for the wake-up; connected when first needed */
    bool listening;
    char source[BUSY_SOURCE_MAX]; /* to what */
    bool local;                   /* counted in lock->local_waiters */
    bool queued;                  /* in the client's own queue */
    struct gate_waiter place;
};

/* Starts a wait, and where one waiter contends per client waits for its turn to.
 * OK; BUSY (one try, and others are before it); TIMED_OUT; CANCELLED; NO_MEMORY.
 * wait_end must follow in each case. */
dlock_status wait_begin(struct wait *wait, struct dlock *lock, const struct dlock_want *want);

/* Waits as `busy` says. OK: try again; TIMED_OUT, CANCELLED; BUSY when it was to try once. */
dlock_status wait_again(struct wait *wait, const struct busy *busy);

void wait_end(struct wait *wait);

/* To those of this process that wait for a release of this process. */
void wait_wake_local(struct dlock *lock);

#endif
