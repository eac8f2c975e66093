/* SPDX-License-Identifier: Apache-2.0
 *
 * The name under which an acquisition goes to Redis, and the hold in which it nests.
 *
 * On rungs that are not flawed, a name is used once: by one outermost acquisition and the holds
 * that nest in it. So a command that arrives late cannot change a later acquisition.
 *
 *     <client id>:<n>      owner_id 0: n is the acquisition's number
 *     <client id>:x7.<n>   owner_id 7
 *     <client id>:t3.<n>   DLOCK_THIS_THREAD, the process's third thread that asked
 *
 * On flawed rungs a named owner keeps its name, "<client id>:x7". The flaws of those rungs depend
 * on it.
 */
#ifndef DLOCK_OWNER_H
#define DLOCK_OWNER_H

#include "rung.h"

/* The calling thread's number. The numbers grow, and none is used twice. */
uint64_t owner_thread(void);
/* From here on the calling thread acts for that one. Returns the one that it acted for before. */
uint64_t owner_act_as(uint64_t thread);

/* The number of a named owner, from a hold's name; 0: the owner has none. */
uint64_t owner_number(const char *name);

/* Numbers the acquisition, and names the hold, before the first attempt. */
void owner_name(struct dlock_hold *hold, uint64_t owner_id);

/* Makes the hold another acquisition, with a new number. It also gets a new name, unless it nests.
 */
void owner_begin_anew(struct dlock_hold *hold);

/* Whether its owner is named, and its rung lets an owner acquire again. */
bool owner_may_nest(const struct dlock_hold *hold);

/* The valid hold of the same owner that was acquired first; or NULL. The lock's mutex is held. */
struct dlock_hold *owner_outermost(const struct dlock_hold *hold);

/* Whether the calling thread asks for the write lock while it holds the read lock itself. It would
 * wait for itself. Names that the caller gave do not count. */
bool owner_waits_for_itself(const struct dlock_hold *hold);

/* Whether the hold's thread holds the lock already. */
bool owner_thread_holds(const struct dlock_hold *hold);

/* Sets how many holds its owner has, this one included. */
void owner_set_depth(struct dlock_hold *hold, uint64_t depth);

/* After this time a request without a thread checks again whether its owner's other request was
 * answered. The next one in turn is also woken by the answer. */
#define PUT_OFF_MS 2
/* PUT_OFF_MS, or longer if another request of the owner comes first, but not beyond ends_ns. Hold
 * the loop's mutex from here until the request is put off: otherwise it misses the wake-up. */
int64_t owner_put_off_ms(struct dlock_hold *hold, int64_t ends_ns);

/* Begins a release. From here to owner_end, no other request of its named owner is under way. Sets
 * hold->depth and hold->count. Waits for its turn until until_ns (CLOCK_MONOTONIC). 0: does not
 * wait, but keeps its place; call again soon. False: its turn has not come. */
bool owner_begin_release(struct dlock_hold *hold, int64_t until_ns);
/* Begins the end of a hold without waiting for its turn: nothing is sent for it. */
void owner_begin_anyway(struct dlock_hold *hold);
/* Begins a renewal: as owner_begin_release, but sets neither depth nor count. */
bool owner_begin_renewal(struct dlock_hold *hold, int64_t until_ns);
/* Begins an attempt to acquire: as owner_begin_release. The hold takes the name of the hold that it
 * nests in, or one of its own. False also if it is cancelled. */
bool owner_begin_try(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel);
/* Takes a place before another thread calls owner_begin_try. */
void owner_takes_turn(struct dlock_hold *hold);
/* Gives up the place of a request that will not be sent. */
void owner_gives_up_turn(struct dlock_hold *hold);
/* Ends a request. True: the hold inherits a release that got no answer, and no other hold or
 * request has the name. The caller must release the name. */
bool owner_end(struct dlock_hold *hold);
/* Ends a release, and with it the hold. unsaid: no server confirmed the release. True: the release
 * goes on in the background. If no hold or request has the name any more, it releases the name, as
 * that of the owner's last hold. Otherwise a request that is under way, if there is one, inherits
 * it. With TRAIT_SHARED each hold is released separately. */
bool owner_end_release(struct dlock_hold *hold, bool unsaid);

/* Whether a valid hold has the name. */
bool owner_holds(const struct dlock_hold *hold);

/* An acquire that was to nest got no answer: the key may have been given its time to live. */
void owner_note_nested(const struct dlock_hold *hold);

/* The lock's mutex is held. The hold nests in `outer`, and takes its name. */
void owner_nest(struct dlock_hold *hold, const struct dlock_hold *outer);

/* Whether both are of the same owner, or the same hold. */
bool owner_is_same(const struct dlock_hold *hold, const struct dlock_hold *other);

/* Commands sent under the name may still be carried out: the last hold of the name is left to
 * expire. */
void owner_must_expire(const struct dlock_hold *hold);
/* Abandons the hold. If the name is in use, its last hold is left to expire. True: the hold itself
 * was valid. */
bool owner_abandon(const struct dlock_hold *hold);

#endif
