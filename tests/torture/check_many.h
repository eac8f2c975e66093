/* SPDX-License-Identifier: Apache-2.0
 *
 * The judge of calls for several locks.
 */
#ifndef TORTURE_CHECK_MANY_H
#define TORTURE_CHECK_MANY_H

#include "history.h"

bool is_many(const struct call *call);
/* How many clients' locks it wants; 0: it is for one lock. Each may take the bound once more. */
int many_clients(const struct call *call);
/* Whether the call failed, and its own releases may not have arrived. Nobody sees their answers. */
bool many_may_leave(const struct plan *plan, const struct call *part);
/* How many calls for several locks there were, and how many of them got all. */
struct many_count {
    size_t calls, acquired;
    size_t both_modes; /* of those that got all: some locks shared, and others not */
};
struct many_count check_count_many(const struct world *world);
void check_many(struct world *world, const struct plan *plan);

#endif
