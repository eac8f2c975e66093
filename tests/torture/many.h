/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of dlock_acquire_many, with a thread and without one.
 */
#ifndef TORTURE_MANY_H
#define TORTURE_MANY_H

#include "self.h"

/* In an order of their own, which is not that of the names. */
struct many {
    struct call *call; /* a part for each lock */
    size_t count;
    dlock *locks[LOCKS_MAX];
    dlock_hold *holds[LOCKS_MAX];
    enum dlock_mode modes[LOCKS_MAX];
    bool own_modes; /* the library is told the modes */
};

/* Asks for some locks of the process's main client, and of another one, or NULL. how->lock does not
 * matter. */
bool many_acquire(struct thread *thread, const struct member *other, const struct how *how,
                  struct many *many);
/* The completion keeps the holds, or releases them. */
void many_start(struct thread *thread, const struct how *how, bool keep);

#endif
