/* SPDX-License-Identifier: Apache-2.0
 *
 * Started (asynchronous) acquires and releases: each records its completion.
 */
#ifndef TESTS_STARTED_H
#define TESTS_STARTED_H

#include "calls.h"

#include <pthread.h>

struct gate;

struct started {
    /* Set by the test. */
    bool release;      /* its completion releases the hold */
    struct gate *gate; /* its completion waits at this gate; or NULL */
    _Atomic int *over; /* counts the completions of all; or NULL */
    /* Set by the completion. */
    _Atomic int answers;
    dlock_status status;
    dlock_hold *hold;
    char error[512];
    pthread_t thread;
};

/* The completion function; arg: the struct. */
void started_done(void *arg, dlock_status status, dlock_hold *hold);
/* Waits for its completion. */
void started_answered(struct started *started);

struct started *crowd_new(size_t count, bool release, _Atomic int *over);
/* Asserts that each completed once, with that status. */
void crowd_answered(struct started *crowd, size_t count, dlock_status status);

static inline void start(dlock *lock, struct dlock_want want, struct started *started)
{
    want.size = sizeof want;
    assert_status(dlock_acquire_start(lock, &want, started_done, started), OK);
}

static inline void start_release(dlock_hold *hold, dlock_batch *last, struct started *started)
{
    assert_status(dlock_release_start(hold, last, started_done, started), OK);
}

static inline struct dlock_want waiting(int64_t wait_ms)
{
    return (struct dlock_want){.wait_ms = wait_ms};
}

#endif
