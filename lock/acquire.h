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
    dlock_status status;      /* once it is over */
    struct exchange exchange; /* the latest try's */
    int64_t began_ns;         /* CLOCK_MONOTONIC */
    int64_t limit_ns;  /* CLOCK_MONOTONIC: no try begins later; INT64_MAX where it is to try once */
    int64_t ends_ns;   /* CLOCK_MONOTONIC: all is over then */
    unsigned refusals; /* so often; in a row or not */
    bool late;         /* given, but nothing of its validity was left */
    bool tried;        /* at least one try may have left something behind: BUSY or UNKNOWN */
    bool contended;    /* at least one try found the lock busy: counted */
    bool nested;       /* of handoff.c alone: its owner has the lock already, */
    bool joined;       /* and it was let in by the hold that acquired it */
    dlock_status cause; /* of the latest try */
    char why[256];      /* and its sentence; "" before the first */

    /* Of one without a thread. */
    enum wait_next begun; /* what to go on with; NEXT_SLEEP: look */
    struct completion completion;
};

/* It is held, and lives by the ttl_ms that were sent at sent_ns (CLOCK_BOOTTIME): from here on it
 * is watched. Its own end counts from begin_ns. False: its owner lost the lock before that was
 * seen. */
bool acquire_keep(struct acquiring *a, int64_t begin_ns, int64_t sent_ns, int64_t ttl_ms);
/* The same of a hold that is kept already. */
void acquire_watch(struct acquiring *a, int64_t sent_ns, int64_t ttl_ms);
/* What is to be read by who has the lock without having asked for it. The thread that listens does
 * not ask: the time for it is over. */
void acquire_read_alone(struct acquiring *a);

#endif
