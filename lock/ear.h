/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client hears of its locks from the server: one connection for messages, one for the
 * client's wake list, each opened when the first waiter needs it, whatever the number of locks and
 * waiters. Protected by the loop's mutex, which is held at every call and return.
 */
#ifndef DLOCK_EAR_H
#define DLOCK_EAR_H

#include "rung.h"

struct loop;

#define EAR_NAME_BITS 12

/* What one lock listens to. Zero at first. */
struct source {
    enum wait_kind kind;
    char name[BUSY_SOURCE_MAX]; /* the channel; of a list: the list's name */
    /* SOURCE_REFUSED: the server does not let this client hear; its waiters poll. */
    enum source_state {
        SOURCE_SILENT,
        SOURCE_WANTED,
        SOURCE_ASKED,
        SOURCE_HEARD,
        SOURCE_REFUSED,
        SOURCE_STATES
    } state;
    unsigned refusals; /* in a row */
    int64_t again_ns;  /* SOURCE_REFUSED, CLOCK_MONOTONIC: not asked for again before */
    bool untold;       /* as its latest busy answer said; its waiters poll */
    TAILQ_ENTRY(dlock) in_state; /* in the ear, and: */
    LIST_ENTRY(dlock) by_name;
};

struct ear {
    enum wait_kind kind; /* WAIT_CHANNEL or WAIT_LIST */
    enum { EAR_DOWN, EAR_CONNECTING, EAR_UP, EAR_WATCHED } state;
    struct redis *redis; /* EAR_CONNECTING: of the thread that connects it; else the loop's */
    int watched_fd; /* a duplicate of its connection's, which the loop watches: -1: none */
    bool taking; /* WAIT_LIST: a BLPOP is under way */
    size_t untold_count; /* of its locks */
    unsigned breaks;  /* in a row, each soon after it was up, or before */
    int64_t up_ns;    /* CLOCK_MONOTONIC: since when it is up */
    int64_t again_ns; /* and before when it is not connected again */
    size_t refused;   /* locks whose latest request was refused */
    TAILQ_HEAD(, dlock) locks[SOURCE_STATES]; /* in order: replies come in that of SOURCE_ASKED */
    LIST_HEAD(namesakes, dlock) by_name[1 << EAR_NAME_BITS]; /* by what replies name them by */
};

void ear_init(struct ear *ear, enum wait_kind kind);
void ear_free(struct ear *ear);

/* Sees to it that the lock hears of its wake-ups, as `busy` says. True: it does. False: it will,
 * and is woken then; or it can't for now; or perhaps nobody tells. Connects if need be, without the
 * mutex meanwhile, not beyond limit_ns or cancel_fd. */
bool ear_listen(struct loop *loop, struct dlock *lock, const struct busy *busy, int64_t limit_ns,
                int cancel_fd);
/* The lock goes: nothing is heard for it any more. */
void ear_forget(struct loop *loop, struct dlock *lock);

/* For the loop's thread. Nothing that comes would be heard: its waiters poll, and connect it
 * anew. */
void ear_break(struct ear *ear);
/* For the loop's thread. Sends what is to be sent; and takes what has come, and wakes whom it is
 * for. */
void ear_send(struct ear *ear);
void ear_hear(struct ear *ear);

#endif
