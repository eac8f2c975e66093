/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs an acquire or a release on a separate thread.
 */
#ifndef TESTS_WAITER_H
#define TESTS_WAITER_H

#include "dlock.h"

#include <pthread.h>

struct waiter {
    /* Set by the test. */
    dlock *lock;
    struct dlock_want want;
    /* Set by the thread. */
    pthread_t thread;
    _Atomic bool over;
    dlock_status status; /* these three are valid once it is over */
    dlock_hold *hold;
    char error[512];
};

void waiter_start(struct waiter *waiter);
/* Waits for the end of the acquire. */
dlock_status waiter_end(struct waiter *waiter);

struct releaser {
    /* Set by the test. */
    dlock_hold *hold;
    dlock_batch *last; /* or NULL */
    /* Set by the thread. */
    pthread_t thread;
    _Atomic bool over;
    dlock_status status; /* valid once it is over */
};

void releaser_start(struct releaser *releaser);
/* Waits for the end of the release. */
dlock_status releaser_end(struct releaser *releaser);

#endif
