/* SPDX-License-Identifier: Apache-2.0
 *
 * A release under way. Its steps work on a struct, so that either a thread or the client's loop can
 * run them.
 */
#ifndef DLOCK_RELEASE_H
#define DLOCK_RELEASE_H

#include "client.h"

struct acquiring;

struct releasing {
    struct wait wait; /* must be first: a pointer to it is cast to this struct */
    struct exchange exchange;
    /* Called with the answer to the exchange that is to be sent. NULL: the release has ended, with
     * the status. */
    void (*then)(struct releasing *r);
    struct dlock_hold *hold;
    struct dlock_batch *last;
    int64_t began_ns; /* CLOCK_MONOTONIC */
    int64_t ends_ns;
    dlock_status status;
    struct completion completion;

    /* Hand-off only. */
    struct acquiring *next; /* the waiter that the lock is handed to */
    uint64_t grant;         /* the grant that is released */
    uint64_t wakes_seen;    /* queue.wakes before the release was sent */
};

/* Sets the exchange to be sent, and the function that takes its answer. */
void release_ask(struct releasing *r, unsigned step, struct dlock_batch *last,
                 void (*then)(struct releasing *r));
/* Sends only the caller's commands; if there are none, calls `then` at once. */
void release_ask_alone(struct releasing *r, void (*then)(struct releasing *r));
/* then: the server's answer to the release becomes its status. */
void release_take(struct releasing *r);
/* then: the lock is left to expire, because an earlier hold's commands may still be carried out. If
 * the lock were free by then, they would meet the next holder. The caller's own commands have
 * replies that say whether they were carried out. */
void release_left_to_expire(struct releasing *r);
/* The hold's validity has ended. Its key may live longer, because another hold extended it. Then
 * the key is released all the same. No later hold has this name or token, so the request cannot
 * free another's lock. */
void release_late(struct releasing *r, bool may_send);
/* Whether the release goes on in the background. It does if no server confirmed it, and no command
 * of the caller can be carried out after it. */
bool release_is_left(const struct releasing *r);

/* dlock_release() that ends by then. CLOCK_MONOTONIC. */
dlock_status release_by(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns);

#endif
