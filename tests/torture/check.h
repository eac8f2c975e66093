/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge: checks what must hold of a finished history. It adds the violations to the world.
 */
#ifndef TORTURE_CHECK_H
#define TORTURE_CHECK_H

#include "history.h"

void check_history(struct world *world, const struct plan *plan);
/* Whether every call on the lock had a definite answer, and every hold was released with OK. Then
 * nothing of it may be left on the server. */
bool check_all_definite(const struct world *world, const struct plan *plan, int lock);
/* Whether the server restarted without data that it had acknowledged. */
bool check_data_lost(const struct world *world);
size_t check_call_count(const struct world *world);

#endif
