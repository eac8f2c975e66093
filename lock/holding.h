/* SPDX-License-Identifier: Apache-2.0
 *
 * How a client holds a lock, of which there are two ways. Counted (counted.c): each hold has it
 * from the server, which counts those of an owner. Handed off (handoff.c, TRAIT_HANDOFF): the
 * client has it, and hands it on among its waiters.
 */
#ifndef DLOCK_HOLDING_H
#define DLOCK_HOLDING_H

#include "rung.h"
#include "wait.h"

struct acquiring;
struct releasing;

/* "With the mutex": the loop's is held. */
struct holding {
    bool takes_turns; /* the requests of an owner wait for one another: see owner.h */
    bool keeps_place; /* whoever has the lock keeps its place at the front of the line */

    /* With the mutex. Whether the hold's owner, which may nest, has the lock. */
    bool (*nests)(const struct dlock_hold *hold);
    /* Both live by one key of the server's. */
    bool (*shares_key)(const struct dlock_hold *hold, const struct dlock_hold *other);

    /* An acquire begins to wait. Asleep, it may be gone by the return. */
    enum wait_next (*begin)(struct acquiring *a);
    /* With the mutex. It was started, and goes on with NEXT_ACQUIRED on another thread. */
    void (*started)(struct acquiring *a);
    /* The server may list the client among those that wait; or it has taken it off. */
    void (*listed)(struct acquiring *a, bool listed);
    /* A nested acquire was answered BUSY: its owner has lost the lock. */
    bool (*lost_if_busy)(const struct acquiring *a);
    /* The server gave it, in time. */
    void (*granted)(struct acquiring *a);
    /* The server gave it, and nothing of its validity was left. It waits for no server. */
    void (*too_late)(struct acquiring *a);
    /* NEXT_ACQUIRED: it acquired the lock without asking. False: not any more; *next follows. */
    bool (*acquired)(struct acquiring *a, enum wait_next *next);
    /* It has the lock: what else waits for its owner nests. */
    void (*let_in)(struct acquiring *a);
    /* Why nobody of this client asks for it, for a sentence; or NULL. */
    const char *(*kept_here)(struct dlock *lock);
    /* It leaves without the lock: whether the server lists somebody who does not wait any more. */
    bool (*left_something)(struct acquiring *a);
    /* And is out of the line. True: its hold is taken over. See cleanup.h. */
    bool (*leave)(struct acquiring *a, bool listed);

    /* Begins a release. waits: for another request of its owner. False: it must be called again, a
     * little later. */
    bool (*begin_release)(struct releasing *r, bool waits);
    /* The hold was lost before. */
    void (*released_late)(struct releasing *r);
    /* Nothing is to be sent any more. True: its hold goes on, for the library alone. */
    bool (*end_release)(struct releasing *r);

    /* The hold is left to expire. True: it was valid. *goes_on: as of end_release. */
    bool (*abandon)(struct dlock_hold *hold, bool *goes_on);
    /* The timekeeper found it lost. */
    void (*lost)(struct dlock_hold *hold);
};

extern const struct holding holding_counted;
extern const struct holding holding_handoff;

#endif
