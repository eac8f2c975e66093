/* SPDX-License-Identifier: Apache-2.0
 *
 * An acquire on a thread of its own.
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

#endif
