/* SPDX-License-Identifier: Apache-2.0
 *
 * A cleanup takes back what an acquire or a release left on the server after its call ended. After
 * a lost reply, the server may have locked for a call that has ended, or may still do so. Or the
 * server still lists the call as a waiter. A cleanup runs in the background until whatever was
 * locked has expired.
 */
#ifndef DLOCK_CLEANUP_H
#define DLOCK_CLEANUP_H

#include "acquire.h"

/* Not with TRAIT_HANDOFF. The acquire has ended, and left the wait queue. waits: the server may
 * list it as a waiter. True: the cleanup has taken its hold. False: nothing is left to do, or there
 * is no room. */
bool cleanup_keep(struct acquiring *a, bool waits);

/* Not with TRAIT_HANDOFF. The call that releases the hold has ended, but no server confirmed the
 * release. True: the cleanup has taken the hold. False: there is no room. */
bool cleanup_release(struct dlock_hold *hold, const struct exchange *unresolved);

/* Not with TRAIT_HANDOFF. Releases in the background what the server holds under the hold's name.
 * depth: how many holds have the name. The hold stays the caller's. */
void cleanup_release_name(const struct dlock_hold *hold, uint64_t depth);

/* For an engine, not with TRAIT_HANDOFF. The acquire's hold gets a new name, and stays the
 * acquire's. What the acquire locked under the old name, or may still lock, is released in the
 * background. */
void cleanup_take_back_name(const struct exchange *unresolved);

/* TRAIT_HANDOFF; the loop's mutex is held. No hold uses the client's grant, but the server may
 * still have it. The next cleanup_leave releases it. */
void cleanup_note(struct dlock *lock);

/* TRAIT_HANDOFF: takes the client out of the server's queue, unless one of its waiters is left to
 * do so. It also releases what attempt `try` or an earlier one acquired (0: none). `unresolved` is
 * an exchange whose request may still be carried out, or NULL. That uncertainty is ended in any
 * case. */
void cleanup_leave(struct dlock *lock, const struct exchange *unresolved, uint64_t try);

/* For the closing of the client. Each cleanup is attempted once, within the bound; what remains is
 * left to expire. */
void cleanups_end(struct dlock_client *client);

#endif
