/* SPDX-License-Identifier: Apache-2.0
 *
 * One request of a call and its reply: a rung's step for one hold, with the commands that ride with
 * it. Several exchanges may share a connection and a write. The engine makes them; what a lost
 * reply left open it ends: the connection is killed, and what may be sent again is.
 */
#ifndef DLOCK_EXCHANGE_H
#define DLOCK_EXCHANGE_H

#include "rung.h"

#include <stddef.h>

#define EXCHANGES_MAX 128 /* in one write */
#define EXCHANGE_STATE_MAX 96

struct exchange {
    enum {
        STEP_ACQUIRE,
        STEP_RELEASE,
        STEP_GIVE_UP,
        STEP_ALONE, /* only what rides */
    } step;
    struct dlock_hold *hold;
    struct dlock_batch *last;  /* ahead of it, or NULL */
    struct dlock_batch *reads; /* behind it, or NULL */
    int64_t limit_ns;          /* CLOCK_MONOTONIC: it does not begin later */
    int64_t ends_ns;           /* and is over then */
    bool unseen;               /* it passes no named points: no call does */
    dlock_cancel *cancel;      /* ends connecting, and keeps it from being sent again; or NULL */

    /* Of an earlier exchange, and of this one. */
    bool unresolved; /* a reply was lost, and what its request did is not known yet */
    bool open;       /* the request may still be carried out: */
    union {
        max_align_t aligned;
        unsigned char bytes[EXCHANGE_STATE_MAX];
    } engine_state; /* which one, as the engine knows it */

    /* What came of it. */
    dlock_status status;
    char why[SENTENCE_MAX]; /* unless OK */
    struct busy *busy;      /* of an acquire; the caller's */
    int64_t sent_ns;        /* CLOCK_BOOTTIME, before it was sent */
    bool transient;         /* refused for a while only */
    bool rode;              /* `last` was sent */

    /* Where the engine answers later. */
    void (*answered)(struct exchange *exchange); /* all of the above is there */
    struct wait *wait;                           /* of the loop: what goes on then */
    bool over;                                   /* exchange_one; protected by the loop's mutex */
};

/* Whether the two of one client may go in one write. */
bool exchange_shares(const struct exchange *exchange, const struct exchange *other);

/* Has the engine make them. More than one: they share. At its return all are answered; or, where
 * the engine answers later, exchange->answered is called for each.
 * ACQUIRE  statuses as rung_ops.try_acquire. UNKNOWN: `unresolved`, if asking once more can tell;
 *          `open`. Where an earlier request may still come for ever, the hold has a new name.
 * RELEASE  OK, LOST; UNKNOWN: whether it freed the lock, or what became of `last`, is not known;
 *          `open`: the hold's commands may still be carried out.
 * GIVE_UP  as it came.
 * ALONE    OK: all were answered. UNKNOWN: `open`, if they may still be carried out. */
void exchange_begin(struct dlock_client *client, struct exchange *const *all, size_t count);

/* For an engine that answers later: what came of it is there. */
void exchange_answered(struct exchange *exchange);

/* The lost reply's request under this name had no effect, or what it did is known. */
bool exchange_settles(dlock_status status);

/* Keeps the status, and the sentence of dlock_error(). */
void exchange_set(struct exchange *exchange, dlock_status status);

/* Its status, with its sentence in dlock_error(). */
static inline dlock_status exchange_says(const struct exchange *exchange)
{
    return exchange->status == DLOCK_OK ? DLOCK_OK : fail(exchange->status, "%s", exchange->why);
}

#endif
