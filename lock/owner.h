/* SPDX-License-Identifier: Apache-2.0
 *
 * Under which name an acquisition goes to Redis, and which hold it nests in.
 *
 * A name is used once, on rungs that are not flawed: for one outermost acquisition and the holds
 * that are nested in it. So no command that arrives late can touch a later acquisition.
 *
 *     <client id>:<n>      owner_id 0: n is the acquisition's number
 *     <client id>:x7.<n>   owner_id 7
 *     <client id>:t3.<n>   DLOCK_THIS_THREAD, the client's third thread that asked
 *
 * On flawed rungs a named owner keeps its name, "<client id>:x7": what they do with it is their
 * lesson.
 */
#ifndef DLOCK_OWNER_H
#define DLOCK_OWNER_H

#include "rung.h"

/* The calling thread's number: counted up, never used again. */
uint64_t owner_thread(void);

/* Numbers the acquisition, and gives the hold its name, before its first try. */
void owner_name(struct dlock_hold *hold, uint64_t owner_id);

/* It is another acquisition from here on: its name follows, unless it nests. */
void owner_begin_anew(struct dlock_hold *hold);

/* Its owner is named, and its rung lets an owner acquire again. */
bool owner_may_nest(const struct dlock_hold *hold);

/* The valid hold of the same owner that was acquired first, or NULL. The lock's mutex is held. */
struct dlock_hold *owner_outermost(const struct dlock_hold *hold);

/* The calling thread waits for the write lock while it reads itself, under whatever name but those
 * that the caller gave. */
bool owner_waits_for_itself(const struct dlock_hold *hold);

/* The thread that asks holds the lock already. */
bool owner_thread_holds(const struct dlock_hold *hold);

/* How many holds its owner has, this one included. */
void owner_set_depth(struct dlock_hold *hold, uint64_t depth);

/* How soon a request that may not wait looks again whether its owner's other one is answered. */
#define PUT_OFF_MS 2

/* From here to owner_end no other request of a named owner is under way: the calling thread waits
 * for its turn. Sets hold->depth and hold->count. False: it has waited until until_ns,
 * CLOCK_MONOTONIC, in vain; 0: it does not wait, but keeps its turn, and asks again soon. */
bool owner_begin_release(struct dlock_hold *hold, int64_t until_ns);
/* The same for the end of a hold for which nothing is sent: it does not wait. */
void owner_begin_anyway(struct dlock_hold *hold);
/* The same for a request that leaves the hold as it is: neither is set. */
bool owner_begin_renewal(struct dlock_hold *hold, int64_t until_ns);
/* The same of a hold that is not held yet: it takes the name of the one that it nests in, or its
 * own. False: or it was cancelled meanwhile. */
bool owner_begin_try(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel);
/* Before owner_begin_try, which another thread will call: the turn counts from here on. */
void owner_takes_turn(struct dlock_hold *hold);
/* It will not ask again, so it keeps nobody waiting. */
void owner_gives_up_turn(struct dlock_hold *hold);
/* True: it was the heir of a release that got no answer, and nobody has the name any more. */
bool owner_end(struct dlock_hold *hold);
/* The same of a release, with which the hold is over. unsaid: no server has said that it let go of
 * it. True: that goes on in the background. What is sent for it is that of its owner's last hold,
 * where nobody has the name any more: none will later. Else who asks by it is the heir, but each
 * hold of a rung with TRAIT_SHARED is let go of for itself. */
bool owner_end_release(struct dlock_hold *hold, bool unsaid);

/* A valid hold has the name. */
bool owner_holds(const struct dlock_hold *hold);

/* It was to nest, and its answer was lost: the key may have been given its time. */
void owner_note_nested(const struct dlock_hold *hold);

/* The lock's mutex is held. It nests in `outer`, and takes its name. */
void owner_nest(struct dlock_hold *hold, const struct dlock_hold *outer);

/* Both are of the same owner, or the same. */
bool owner_is_same(const struct dlock_hold *hold, const struct dlock_hold *other);

/* Commands may still be carried out that were sent by the name: its last hold is left to expire. */
void owner_must_expire(const struct dlock_hold *hold);
/* The same of a hold that is abandoned, if anybody has the name. True: the hold itself was valid.
 */
bool owner_abandon(const struct dlock_hold *hold);

#endif
