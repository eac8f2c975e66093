/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one thread for each waiter, for libraries whose acquire blocks.
 */
#ifndef BENCH_LOCK_WAITERS_H
#define BENCH_LOCK_WAITERS_H

#include "lock_round.h"

struct blocking {
    /* Opens what the process's waiters share: connections, scripts. Ends the process if it cannot.
     */
    void *(*open)(struct part *part);
    /* Opens one waiter, on its own thread. NULL if it cannot. */
    void *(*waiter_open)(void *client, int waiter);
    /* Acquires, reads the stock, checks it, writes it, and releases. NULL if it has no section. */
    void (*buy)(void *waiter, struct sale *sale);
    /* Acquires and releases. */
    bool (*pair)(void *waiter);
    void (*waiter_close)(void *waiter);
    /* Waits until none of the process's commands is under way. NULL if none can be. */
    void (*settle)(void *client);
    void (*close)(void *client);
};

void waiters_run(struct part *part, const struct blocking *blocking);

#endif
