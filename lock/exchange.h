/* SPDX-License-Identifier: Apache-2.0
 *
 * An exchange: one request of a call, and its reply. It is one step of a rung for one hold, with
 * the commands of a batch in the same write. Several exchanges may share a connection and a write.
 * The engine sends them. After a lost reply it ends the uncertainty. It has the server kill the
 * broken connection, and sends again what may be sent twice.
 */
#ifndef DLOCK_EXCHANGE_H
#define DLOCK_EXCHANGE_H

#include "rung.h"

#include <stddef.h>

#define EXCHANGES_MAX 128 /* in one write */
#define EXCHANGE_STATE_MAX 416

struct exchange {
    enum {
        STEP_ACQUIRE,
        STEP_RELEASE,
        STEP_GIVE_UP,
        STEP_ALONE, /* only the commands of a batch */
    } step;
    struct dlock_hold *hold;
    struct dlock_batch *last;  /* sent before it; or NULL */
    struct dlock_batch *reads; /* sent after it; or NULL */
    int64_t limit_ns;          /* CLOCK_MONOTONIC: it does not begin after this */
    int64_t ends_ns;           /* CLOCK_MONOTONIC: it has ended by then */
    bool once;                 /* ACQUIRE: its call makes no other attempt */
    bool unseen;          /* options.on_point is not called: no call of the application sends it */
    dlock_cancel *cancel; /* once it is set, connecting ends and nothing is sent again; or NULL */

    /* Left by an earlier exchange, and set by this one. */
    bool unresolved; /* the outcome is uncertain: a reply was lost */
    bool open;       /* the server may still carry out the request */
    union {
        max_align_t aligned;
        unsigned char bytes[EXCHANGE_STATE_MAX];
    } engine_state; /* the engine's: which request that is */

    /* The result. */
    dlock_status status;
    char why[SENTENCE_MAX]; /* unless OK */
    struct busy *busy;      /* of an acquire; the caller's memory */
    int64_t sent_ns;        /* CLOCK_BOOTTIME, before it was sent */
    /* ACQUIRE, of locks that live as long as a session or lease: since when its time to live,
     * hold->ttl_ms, counts. 0: since sent_ns. */
    int64_t counts_ns;
    bool transient; /* refused, but only for a time */
    bool rode;      /* `last` was sent, and perhaps not answered */
    /* The server granted the lock, and too few replicas confirmed that; or it is not known how
     * many; or a release was answered by another master than the acquire; or the key of the
     * server's identity has another type. ACQUIRE: with REFUSED or WRONG_TYPE; the caller releases
     * the lock. RELEASE: with OK; it kept the lock for waiters of this client,
     * which must not use it. */
    bool unconfirmed;

    /* If the engine answers later. */
    void (*answered)(struct exchange *exchange); /* called when the result is there */
    struct wait *wait;                           /* of the loop: it goes on with the result */
    bool over; /* for exchange_one; protected by the loop's mutex */
};

/* Whether two exchanges of one client may go in one write. */
bool exchange_shares(const struct exchange *exchange, const struct exchange *other);

/* Has the engine send them. If there are several, they must share. All are answered at the return;
 * or, if the engine answers later, exchange->answered is called for each.
 * ACQUIRE  The statuses of rung_ops.try_acquire. UNKNOWN sets `unresolved` if another request can
 *          find the outcome; it sets `open` as well if the request may still be carried out. If an
 *          earlier request may be carried out at any later time, the hold gets a new name.
 * RELEASE  OK, LOST. UNKNOWN: it is uncertain whether the lock was freed, or whether `last` was
 *          carried out. `open`: commands of the hold may still be carried out.
 * GIVE_UP  OK, or the failure.
 * ALONE    OK: all commands were answered. UNKNOWN sets `open` if they may still be carried out. */
void exchange_begin(struct dlock_client *client, struct exchange *const *all, size_t count);

/* For an engine that answers later: reports that the result is there. */
void exchange_answered(struct exchange *exchange) EXPORTED_AS(exchange_answered);

/* Whether the status settles a lost reply: the request under this name had no effect, or its effect
 * is known. */
bool exchange_settles(dlock_status status);

/* Sets the status, and copies the sentence of dlock_error(). */
void exchange_set(struct exchange *exchange, dlock_status status) EXPORTED_AS(exchange_set);

/* Returns its status, and sets dlock_error() to its sentence. */
static inline dlock_status exchange_says(const struct exchange *exchange)
{
    return exchange->status == DLOCK_OK ? DLOCK_OK : fail(exchange->status, "%s", exchange->why);
}

#endif
