/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions whose answer is who holds a lock.
 */
#ifndef DLOCK_EXPLAIN_H
#define DLOCK_EXPLAIN_H

#include "rung.h"

/* What was seen last of a lock's holder. */
struct last_seen {
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

/* No turn to ask came since then: LIMIT; UNREACHABLE, where no server answered anybody
 * meanwhile. */
dlock_status no_turn(const struct dlock *lock, int64_t since_ns);

#endif
