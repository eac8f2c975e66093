/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that extends a hold, while the test does something else.
 */
#ifndef TESTS_EXTENDER_H
#define TESTS_EXTENDER_H

#include "child.h"
#include "dlock.h"

#include <pthread.h>

struct extender {
    dlock_hold *hold;
    dlock_status status;
    pthread_t thread;
};

static inline void *extend(void *arg)
{
    struct extender *extender = arg;
    extender->status = dlock_extend(extender->hold);
    return NULL;
}

static inline void extender_start(struct extender *extender)
{
    extender->thread = thread_start(extend, extender);
}

static inline dlock_status extender_end(struct extender *extender)
{
    thread_wait(extender->thread);
    return extender->status;
}

#endif
