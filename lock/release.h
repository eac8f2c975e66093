/* SPDX-License-Identifier: Apache-2.0
 *
 * A release under way: steps over a struct, so that a thread may drive it or a loop.
 */
#ifndef DLOCK_RELEASE_H
#define DLOCK_RELEASE_H

#include "client.h"

struct acquiring;

struct releasing {
    struct wait wait; /* the first member: whoever has the wait has this */
    struct exchange exchange;
    /* What comes of the exchange that is to be made; NULL: it is over, with the status. */
    void (*then)(struct releasing *r);
    struct dlock_hold *hold;
    struct dlock_batch *last;
    int64_t began_ns; /* CLOCK_MONOTONIC */
    int64_t ends_ns;
    dlock_status status;
    struct completion completion;

    /* Of handoff.c alone. */
    struct acquiring *next; /* whom the lock is passed on to */
    uint64_t grant;         /* that is let go of */
    uint64_t seen;          /* queue.wakes before that */
};

/* The exchange is to be made, and `then` called with its answer. */
void release_ask(struct releasing *r, unsigned step, struct dlock_batch *last,
                 void (*then)(struct releasing *r));
/* What rides, alone, where there is some; else goes on at once. */
void release_ask_alone(struct releasing *r, void (*then)(struct releasing *r));
/* then: the server's answer to the release is its status. */
void release_take(struct releasing *r);
/* then: what an earlier hold of its owner's sent may still be carried out. Were the lock free by
 * then, it would meet the next holder. What rode says itself that it was not carried out. */
void release_left_to_expire(struct releasing *r);
/* The hold's validity is over. Its key lives on where it was given another hold's time: it is
 * released all the same. No later hold has this name or this token, so the request meets nobody
 * else's. */
void release_late(struct releasing *r, bool may_send);
/* No server has said that it let go of the hold, and nothing of the caller's can come behind that:
 * it is let go of in the background. */
bool release_is_left(const struct releasing *r);

#endif
