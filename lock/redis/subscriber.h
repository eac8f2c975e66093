/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client hears of its locks from the server: one connection for messages, one for the
 * client's wake list, each opened when the first waiter needs it, whatever the number of locks and
 * waiters. Protected by the loop's mutex, which is held at every call and return.
 */
#ifndef DLOCK_SUBSCRIBER_H
#define DLOCK_SUBSCRIBER_H

#include "loop.h"

#define SUBSCRIBER_NAME_BITS 12

/* What one lock listens to. */
struct source {
    struct dlock *lock; /* the rest is zero at first */
    enum wait_kind kind;
    char name[BUSY_SOURCE_MAX]; /* the channel; of a list: the list's name */
    /* SOURCE_REFUSED: the server does not let this client hear; its waiters poll. */
    enum source_state {
        SOURCE_UNUSED,
        SOURCE_WANTED,
        SOURCE_SUBSCRIBING,
        SOURCE_SUBSCRIBED,
        SOURCE_REFUSED,
        SOURCE_STATES
    } state;
    unsigned refusals;            /* in a row */
    int64_t again_ns;             /* SOURCE_REFUSED, CLOCK_MONOTONIC: not asked for again before */
    bool no_publish;              /* as its latest busy answer said; its waiters poll */
    TAILQ_ENTRY(source) in_state; /* in the subscriber, and: */
    LIST_ENTRY(source) by_name;
};

struct subscriber {
    enum wait_kind kind; /* WAIT_CHANNEL or WAIT_LIST */
    enum { SUBSCRIBER_DOWN, SUBSCRIBER_CONNECTING, SUBSCRIBER_UP, SUBSCRIBER_WATCHED } state;
    struct redis *redis;     /* of the thread that connects it meanwhile; else the loop's */
    struct watched watched;  /* its connection, by the loop */
    bool taking;             /* WAIT_LIST: a BLPOP is under way */
    size_t no_publish_count; /* of its locks */
    unsigned breaks;         /* in a row, each soon after it was up, or before */
    int64_t up_ns;           /* CLOCK_MONOTONIC: since when it is up */
    int64_t again_ns;        /* and before when it is not connected again */
    size_t refused;          /* locks whose latest request was refused */
    TAILQ_HEAD(, source)
    sources[SOURCE_STATES]; /* in order, as replies to SOURCE_SUBSCRIBING come */
    LIST_HEAD(namesakes, source) by_name[1 << SUBSCRIBER_NAME_BITS]; /* as replies name them */
};

void subscriber_init(struct subscriber *subscriber, enum wait_kind kind);
void subscriber_free(struct subscriber *subscriber);

/* struct engine's listen, forget and tend. */
bool subscriber_listen(struct dlock *lock, const struct busy *busy, int64_t limit_ns,
                       int cancel_fd);
void subscriber_forget(struct dlock *lock);
void subscriber_tend(struct dlock_client *client);

#endif
