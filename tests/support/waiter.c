/* SPDX-License-Identifier: Apache-2.0
 *
 * See waiter.h.
 */
#include "waiter.h"

#include "child.h"
#include "must.h"

#include <stdatomic.h>
#include <stdio.h>

static void *acquire(void *arg)
{
    struct waiter *waiter = arg;
    waiter->status = dlock_acquire(waiter->lock, &waiter->want, &waiter->hold);
    snprintf(waiter->error, sizeof waiter->error, "%s", dlock_error());
    atomic_store(&waiter->over, true);
    return NULL;
}

void waiter_start(struct waiter *waiter)
{
    waiter->want.size = sizeof waiter->want;
    waiter->thread = thread_start(acquire, waiter);
}

dlock_status waiter_end(struct waiter *waiter)
{
    eventually(atomic_load(&waiter->over));
    thread_wait(waiter->thread);
    return waiter->status;
}

static void *release(void *arg)
{
    struct releaser *releaser = arg;
    releaser->status = dlock_release(releaser->hold, releaser->last);
    atomic_store(&releaser->over, true);
    return NULL;
}

void releaser_start(struct releaser *releaser)
{
    releaser->thread = thread_start(release, releaser);
}

dlock_status releaser_end(struct releaser *releaser)
{
    eventually(atomic_load(&releaser->over));
    thread_wait(releaser->thread);
    return releaser->status;
}
