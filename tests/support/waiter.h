/* SPDX-License-Identifier: Apache-2.0
 *
 * An acquire, and a release, on a thread of its own.
 */
#ifndef TESTS_WAITER_H
#define TESTS_WAITER_H

#include "dlock.h"

#include <pthread.h>

struct waiter {
    /* Set by the test. */
    dlock *lock;
    struct dlock_want want;
    /* Its own. */
    pthread_t thread;
    _Atomic bool over;
    dlock_status status; /* these three once it is over */
    dlock_hold *hold;
    char error[512];
};

void waiter_start(struct waiter *waiter);
/* Waits for the acquire's end. */
dlock_status waiter_end(struct waiter *waiter);

struct releaser {
    /* Set by the test. */
    dlock_hold *hold;
    dlock_batch *last; /* or NULL */
    /* Its own. */
    pthread_t thread;
    _Atomic bool over;
    dlock_status status; /* once it is over */
};

void releaser_start(struct releaser *releaser);
/* Waits for the release's end. */
dlock_status releaser_end(struct releaser *releaser);

#endif
