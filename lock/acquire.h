/* SPDX-License-Identifier: Apache-2.0
 *
 * An acquire under way. Its steps work on a struct, so that either a thread or the client's loop
 * can run them.
 */
#ifndef DLOCK_ACQUIRE_H
#define DLOCK_ACQUIRE_H

#include "client.h"

struct acquiring {
    struct wait wait; /* must be first: a pointer to it is cast to this struct */
    struct dlock *lock;
    struct dlock_want want;
    struct dlock_hold *hold;
    dlock_status status;      /* when it has ended */
    struct exchange exchange; /* of the latest attempt */
    int64_t began_ns;         /* CLOCK_MONOTONIC */
    int64_t limit_ns;  /* CLOCK_MONOTONIC: no attempt begins later; INT64_MAX: there is only one */
    int64_t ends_ns;   /* CLOCK_MONOTONIC: the call has ended by then */
    unsigned refusals; /* attempts that the server refused for a time: they lengthen the pause */
    bool late;         /* the latest attempt was granted too late: its validity was over */
    bool tried; /* an attempt ended BUSY or UNKNOWN, so it may have left something on the server */
    bool contended;         /* an attempt found the lock busy: counted once */
    bool nested;            /* hand-off only: its owner has the lock already */
    bool joined;            /* hand-off only: it has been counted in the owner's grant */
    dlock_status cause;     /* of the latest attempt */
    char why[SENTENCE_MAX]; /* its sentence; "" before the first attempt */

    /* Of an acquire without a thread. */
    enum wait_next begun; /* how to go on; NEXT_SLEEP: ask wait_look */
    struct completion completion;
};

/* The acquire has the lock, with the ttl_ms that was sent at sent_ns (CLOCK_BOOTTIME). Lists the
 * hold, and has the timekeeper watch it. hold_max_ms counts from begin_ns. False: its owner lost
 * the lock in the meantime, so it is not listed. */
bool acquire_keep(struct acquiring *a, int64_t begin_ns, int64_t sent_ns, int64_t ttl_ms);
/* Has the timekeeper watch a hold that is already listed. */
void acquire_watch(struct acquiring *a, int64_t sent_ns, int64_t ttl_ms);
/* Sends want.reads alone, for an acquire that got the lock without asking a server. The thread that
 * listens does not send: the acquire's time has passed. */
void acquire_read_alone(struct acquiring *a);

#endif
