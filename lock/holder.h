/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions whose answer is who holds a lock.
 */
#ifndef DLOCK_HOLDER_H
#define DLOCK_HOLDER_H

#include "rung.h"

/* Asks the server by a script that answers as lua/inspect.lua does. Statuses as dlock_inspect.
 * changes: it frees the lock, and so must not come later. */
dlock_status holder_ask(dlock *lock, struct dlock_holder *holder, bool changes,
                        struct answer (*ask)(struct rung_env *env, const char *key,
                                             const char *const *beside));

/* The answer of such a script: the key's type, as Redis calls it, and what it says of the holder.
 * OK; REFUSED: not understood. */
dlock_status holder_read(const struct answer *answer, struct dlock_holder *holder,
                         const char *name);

/* Whether the lock's rung keeps a key of that type: OK; WRONG_TYPE, with a sentence. */
dlock_status holder_check_type(const struct dlock *lock, const char *type);

/* What was seen last of a lock's holder. */
struct sighting {
    bool asking;
    bool wrong;       /* the key was of a type that the rung does not keep */
    int64_t asked_ns; /* CLOCK_MONOTONIC; 0: never */
    int64_t seen_ns;
    struct dlock_holder holder; /* held: or nothing is known */
};

/* A call for `hold` ends with that status, and dlock_error() tells it: adds who holds the lock, or
 * says which of its keys holds something else. Requests of its own for that go not beyond limit_ns,
 * 0: none, or cancel_fd. The status with which it ends now: WRONG_TYPE where that is the cause.
 * Nothing of it on rungs that are flawed. */
dlock_status explain(const struct dlock_hold *hold, dlock_status status, int64_t limit_ns,
                     int cancel_fd);

/* The same of a call that Redis answered with WRONGTYPE. */
dlock_status explain_type(struct dlock *lock, int64_t limit_ns, int cancel_fd);

#endif
