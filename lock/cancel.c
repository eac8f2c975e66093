/* SPDX-License-Identifier: Apache-2.0
 *
 * A cancel ends waits before their time. It is set once, and every call that was given it sees it.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

dlock_cancel *dlock_cancel_new(void)
{
    struct dlock_cancel *cancel = malloc(sizeof *cancel);
    if (cancel == NULL) {
        fail(DLOCK_NO_MEMORY, "out of memory");
        return NULL;
    }
    cancel->process = getpid();
    cancel->requested_ns = INT64_MAX;
    cancel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (cancel->fd >= 0)
        return cancel;
    fail(DLOCK_NO_MEMORY, "a cancel needs a descriptor: %s", strerror(errno));
    free(cancel);
    return NULL;
}

/* fork_generation() cannot tell: in a child, a signal may come before the fork is counted. */
bool cancel_is_inherited(const dlock_cancel *cancel)
{
    return cancel->process != getpid();
}

void dlock_cancel_now(dlock_cancel *cancel)
{
    uint64_t one = 1;
    int64_t never = INT64_MAX;
    if (cancel == NULL || cancel_is_inherited(cancel))
        return;
    atomic_compare_exchange_strong(&cancel->requested_ns, &never, mono_ns());
    (void)!write(cancel->fd, &one, sizeof one);
}

bool cancel_requested(const dlock_cancel *cancel)
{
    if (cancel == NULL)
        return false;
    struct pollfd thrown = {.fd = cancel->fd, .events = POLLIN};
    return poll(&thrown, 1, 0) > 0;
}

int64_t cancel_requested_ns(const dlock_cancel *cancel)
{
    return cancel != NULL ? cancel->requested_ns : INT64_MAX;
}

void dlock_cancel_free(dlock_cancel *cancel)
{
    if (cancel == NULL)
        return;
    close(cancel->fd);
    free(cancel);
}
