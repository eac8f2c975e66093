/* SPDX-License-Identifier: Apache-2.0
 *
 * What an acquire left behind that nobody waits for any more: a request whose reply was lost may
 * lock, or have locked, for nobody. In the background its connection is ended and its name is
 * released, until what it may have locked has expired.
 */
#ifndef DLOCK_LEFTOVER_H
#define DLOCK_LEFTOVER_H

#include "acquire.h"

/* The acquire is over, and out of the line. True: its hold is taken over. False: there is nothing
 * to be done for it, or no room. */
bool leftover_keep(struct acquiring *a);

/* TRAIT_HANDOFF: has the client leave the server's queue, unless one of its waiters is left to do
 * so. doubt: a request may still be carried out that queues it; or NULL. */
void leftover_leave(struct dlock *lock, const struct doubt *doubt);

/* The client is closed: what is left is left to expire. Waits for one that is being released. */
void leftovers_end(struct dlock_client *client);

#endif
