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

/* What one lock listens to. Zero at first. */
struct source {
    enum wait_kind kind;
    char name[BUSY_SOURCE_MAX]; /* the channel; of a list: the list's name */
    enum { SOURCE_SILENT, SOURCE_WANTED, SOURCE_ASKED, SOURCE_HEARD } state;
    LIST_ENTRY(dlock) of_ear;
};

struct ear {
    enum wait_kind kind; /* WAIT_CHANNEL or WAIT_LIST */
    enum { EAR_DOWN, EAR_CONNECTING, EAR_UP, EAR_WATCHED } state;
    struct redis *redis; /* EAR_CONNECTING: of the thread that connects it; else the loop's */
    int watched_fd; /* a duplicate of its connection's, which the loop watches: -1: none */
    LIST_HEAD(, dlock) locks;
};

void ear_init(struct ear *ear, enum wait_kind kind);
void ear_free(struct ear *ear);

/* Sees to it that the lock hears of its wake-ups, as `busy` says. True: it does. False: it will,
 * and is woken then; or it can't for now. Connects if need be, without the mutex meanwhile, not
 * beyond limit_ns or cancel_fd. */
bool ear_listen(struct loop *loop, struct dlock *lock, const struct busy *busy, int64_t limit_ns,
                int cancel_fd);
/* The lock goes: nothing is heard for it any more. */
void ear_forget(struct loop *loop, struct dlock *lock);

/* For the loop's thread. Sends what is to be sent; and takes what has come, and wakes whom it is
 * for. */
void ear_send(struct ear *ear);
void ear_hear(struct ear *ear);

#endif
