/* SPDX-License-Identifier: Apache-2.0
 *
 * How a client receives wake-ups from the server: by up to three subscriber connections. One is for
 * messages, one for the client's wake list, and one for lists that belong to a single lock. Each is
 * opened when a waiter first needs it, and serves all locks and waiters. All of this is protected
 * by the loop's mutex, which is held at every call and return.
 */
#ifndef DLOCK_SUBSCRIBER_H
#define DLOCK_SUBSCRIBER_H

#include "loop.h"

#define SUBSCRIBER_NAME_BITS 12

/* The channel or list that one lock listens to. */
struct source {
    struct dlock *lock; /* the other fields are zero at first */
    enum wait_kind kind;
    char name[BUSY_SOURCE_MAX]; /* of the channel or the list */
    /* SOURCE_REFUSED: the server refuses SUBSCRIBE or BLPOP, so the lock's waiters poll. */
    enum source_state {
        SOURCE_UNUSED,
        SOURCE_WANTED,
        SOURCE_SUBSCRIBING,
        SOURCE_SUBSCRIBED,
        SOURCE_REFUSED,
        SOURCE_STATES
    } state;
    unsigned refusals;            /* in a row */
    int64_t again_ns;             /* SOURCE_REFUSED, CLOCK_MONOTONIC: when to ask again */
    bool no_publish;              /* PUBLISH is refused, says the last BUSY; waiters poll */
    uint64_t asked;               /* SOURCE_SUBSCRIBING: its SUBSCRIBE is that command */
    TAILQ_ENTRY(source) in_state; /* in subscriber.sources */
    LIST_ENTRY(source) by_name;
};

struct subscriber {
    enum wait_kind kind; /* WAIT_CHANNEL, WAIT_LIST or WAIT_SIGNALS */
    enum { SUBSCRIBER_DOWN, SUBSCRIBER_CONNECTING, SUBSCRIBER_UP, SUBSCRIBER_WATCHED } state;
    struct redis *redis;     /* while CONNECTING that thread's; else the loop's */
    struct watched watched;  /* the loop watches its connection */
    bool taking;             /* lists: a BLPOP is under way */
    size_t no_publish_count; /* of its locks, how many have no_publish */
    unsigned breaks;         /* in a row: failed connects, and breaks soon after one */
    int64_t up_ns;           /* CLOCK_MONOTONIC: when it was connected */
    int64_t again_ns;        /* CLOCK_MONOTONIC: it is not connected again before */
    size_t refused;          /* locks whose latest request was refused */
    /* Channels: how many commands were sent on this connection, and how many replies have come. */
    uint64_t commands;
    uint64_t replies;
    TAILQ_HEAD(, source) sources[SOURCE_STATES];
    LIST_HEAD(namesakes, source) by_name[1 << SUBSCRIBER_NAME_BITS]; /* a hash table, by name */
};

void subscriber_init(struct subscriber *subscriber, enum wait_kind kind);
void subscriber_free(struct subscriber *subscriber);

/* These are struct dlock_engine's listen, forget and tend. */
bool subscriber_listen(struct dlock *lock, const struct busy *busy, int64_t limit_ns,
                       int cancel_fd);
void subscriber_forget(struct dlock *lock);
void subscriber_tend(struct dlock_client *client);

#endif
