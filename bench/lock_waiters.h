/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread per waiter, for libraries whose acquire blocks.
 */
#ifndef BENCH_LOCK_WAITERS_H
#define BENCH_LOCK_WAITERS_H

#include "lock_round.h"

struct blocking {
    /* The process' share of the library: connections, scripts. Ends the process when it cannot. */
    void *(*open)(struct part *part);
    /* One waiter's, made on its own thread. NULL: it cannot. */
    void *(*waiter_open)(void *client, int waiter);
    /* Acquire, read the stock, look, write it, release. NULL: it has no section. */
    void (*buy)(void *waiter, struct sale *sale);
    /* Acquire and release. */
    bool (*pair)(void *waiter);
    void (*waiter_close)(void *waiter);
    /* Nothing of this process is under way on the server any more. NULL: so it is. */
    void (*settle)(void *client);
    void (*close)(void *client);
};

void waiters_run(struct part *part, const struct blocking *blocking);

#endif
