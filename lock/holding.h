/* SPDX-License-Identifier: Apache-2.0
 *
 * The two ways in which a client holds a lock. Counted (counted.c): the server grants each hold,
 * and counts the holds of an owner. Hand-off (handoff.c, TRAIT_HANDOFF): the server grants the lock
 * to the client, which hands it to its waiters.
 */
#ifndef DLOCK_HOLDING_H
#define DLOCK_HOLDING_H

#include "rung.h"
#include "wait.h"

struct acquiring;
struct releasing;

/* "With the mutex": the loop's is held. */
struct holding {
    bool takes_turns; /* an owner's requests wait for one another: see owner.h */
    bool keeps_place; /* the holder keeps the first place of the client's wait queue */

    /* With the mutex. Whether the owner of the hold, which may nest, has the lock. */
    bool (*nests)(const struct dlock_hold *hold);
    /* Whether both holds depend on the same key of the server. */
    bool (*shares_key)(const struct dlock_hold *hold, const struct dlock_hold *other);

    /* An acquire begins to wait. If it returns NEXT_SLEEP, the acquire may have ended and been
     * freed. */
    enum wait_next (*begin)(struct acquiring *a);
    /* With the mutex. An acquire without a thread began with NEXT_ACQUIRED, and continues on
     * another thread. */
    void (*started)(struct acquiring *a);
    /* Notes whether the server may list the client as a waiter. */
    void (*listed)(struct acquiring *a, bool listed);
    /* Whether BUSY means to a nested acquire that its owner has lost the lock. */
    bool (*lost_if_busy)(const struct acquiring *a);
    /* The server granted the lock in time. */
    void (*granted)(struct acquiring *a);
    /* The server granted the lock, but its validity has ended, or too few replicas confirmed it.
     * Must not wait for a server. */
    void (*unusable)(struct acquiring *a);
    /* After NEXT_ACQUIRED. True: the acquire has ended, with a->status. False: the lock has been
     * lost; *next says how to go on. */
    bool (*acquired)(struct acquiring *a, enum wait_next *next);
    /* The acquire has the lock: other waiters of the same owner may nest. */
    void (*let_in)(struct acquiring *a);
    /* Why no waiter of this client asks for the lock, as a sentence; or NULL. */
    const char *(*kept_here)(struct dlock *lock);
    /* The acquire ends without the lock. Whether the server lists the client although it no longer
     * waits. */
    bool (*left_something)(struct acquiring *a);
    /* The same acquire has left the wait queue. True: a cleanup has taken its hold, see cleanup.h.
     */
    bool (*leave)(struct acquiring *a, bool listed);

    /* Begins a release. waits: it may wait for another request of its owner. False: call it again a
     * little later. */
    bool (*begin_release)(struct releasing *r, bool waits);
    /* The hold was lost before its release. */
    void (*released_late)(struct releasing *r);
    /* Nothing more is to be sent. True: the library keeps the hold and releases it in the
     * background. */
    bool (*end_release)(struct releasing *r);

    /* Leaves the hold to expire. True: it was valid. *goes_on: as end_release. */
    bool (*abandon)(struct dlock_hold *hold, bool *goes_on);
    /* The timekeeper has found the hold lost. */
    void (*lost)(struct dlock_hold *hold);
};

extern const struct holding holding_counted;
extern const struct holding holding_handoff;

#endif
