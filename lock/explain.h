/* SPDX-License-Identifier: Apache-2.0
 *
 * The error sentence of a failed call: it also says which owner holds the lock.
 */
#ifndef DLOCK_EXPLAIN_H
#define DLOCK_EXPLAIN_H

#include "rung.h"

/* What the latest inspection of the lock found. */
struct last_seen {
    bool asking;
    bool wrong;       /* the key was of a type that the rung does not keep */
    int64_t asked_ns; /* CLOCK_MONOTONIC; 0: never */
    int64_t seen_ns;
    struct dlock_holder holder; /* holder.held is false if nothing is known */
};

/* A call for `hold` ends with that status, and dlock_error() has its sentence. Adds which owner
 * holds the lock, or which of the lock's keys has another type. Its own requests stop at limit_ns
 * (0: it sends none), or when cancel_fd is readable. Returns the call's final status: WRONG_TYPE if
 * that is the cause. Does nothing on flawed rungs. */
dlock_status explain(const struct dlock_hold *hold, dlock_status status, int64_t limit_ns,
                     int cancel_fd);

/* The same for a call that Redis answered with WRONGTYPE. */
dlock_status explain_type(struct dlock *lock, int64_t limit_ns, int cancel_fd);

/* The status of a call that could send nothing since since_ns. LIMIT: earlier calls took the time.
 * UNREACHABLE: no server answered those calls. */
dlock_status no_turn(const struct dlock *lock, int64_t since_ns);

#endif
