/* SPDX-License-Identifier: Apache-2.0
 *
 * What an acquire left behind that nobody waits for any more: a request whose reply was lost may
 * lock, or have locked, for nobody; or the server lists it among those that wait. In the background
 * that is taken back, until what it may have locked has expired.
 */
#ifndef DLOCK_CLEANUP_H
#define DLOCK_CLEANUP_H

#include "acquire.h"

/* Not with TRAIT_HANDOFF. The acquire is over, and out of the line. waits: the server may list it
 * as a waiter. True: its hold is taken over. False: there is nothing to be done for it, or no room.
 */
bool cleanup_keep(struct acquiring *a, bool waits);

/* Not with TRAIT_HANDOFF. The hold is over for its caller, but no server has said that it is let go
 * of. True: the hold is taken over. False: there is no room. */
bool cleanup_release(struct dlock_hold *hold, const struct exchange *unresolved);

/* Not with TRAIT_HANDOFF. Lets go in the background of what the hold's name has. depth: how many
 * holds have the name. The hold stays the caller's. */
void cleanup_release_name(const struct dlock_hold *hold, uint64_t depth);

/* TRAIT_HANDOFF; the loop's mutex is held. The client's grant is nobody's, and may still be there:
 * who leaves now lets go of it. */
void cleanup_note(struct dlock *lock);

/* TRAIT_HANDOFF: has the client leave the server's queue, and let go of what that try got or an
 * earlier one (0: none), unless one of its waiters is left to do so. doubted: its request may still
 * be carried out, and that doubt is ended in any case; or NULL. */
void cleanup_leave(struct dlock *lock, const struct exchange *unresolved, uint64_t try);

/* The client is closed: each is tried once, within the bound; what is left then is left to
 * expire. */
void cleanups_end(struct dlock_client *client);

#endif
