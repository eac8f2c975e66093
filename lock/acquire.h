/* SPDX-License-Identifier: Apache-2.0
 *
 * An acquire under way: steps over a struct, so that a thread may drive it or a loop.
 */
#ifndef DLOCK_ACQUIRE_H
#define DLOCK_ACQUIRE_H

#include "client.h"

struct acquiring {
    struct wait wait; /* the first member: whoever has the wait has this */
    struct dlock *lock;
    struct dlock_want want;
    struct dlock_hold *hold;
    dlock_status status; /* once it is over */
    struct exchange exchange; /* the latest try's */
    int64_t began_ns; /* CLOCK_MONOTONIC */
    int64_t limit_ns; /* CLOCK_MONOTONIC: no try begins later; INT64_MAX where it is to try once */
    int64_t ends_ns;  /* CLOCK_MONOTONIC: all is over then */
    unsigned refusals; /* so often; in a row or not */
    bool late;        /* given, but nothing of its validity was left */
    bool tried;       /* at least one try may have left something behind: BUSY or UNKNOWN */
    bool contended;   /* at least one try found the lock busy: counted */
    bool nested;      /* TRAIT_HANDOFF: its owner has the lock already: */
    bool joined;      /* and it was let in by the hold that acquired it */
    dlock_status cause; /* of the latest try */
    char why[256];      /* and its sentence; "" before the first */

    /* Of one without a thread. */
    enum wait_next begun; /* what to go on with; NEXT_SLEEP: look */
    struct completion completion;
};

#endif
