/* SPDX-License-Identifier: Apache-2.0
 *
 * The holds of one lock, found by owner. They are in several lists, and each list has the holds of
 * a few owners, the newest hold first. Thousands of owners may hold one lock, and most questions
 * concern one of them.
 */
#ifndef DLOCK_HOLDS_H
#define DLOCK_HOLDS_H

#include "rung.h"

#define HOLDS_BITS 5
#define HOLDS_LISTS (1 << HOLDS_BITS)

LIST_HEAD(hold_list, dlock_hold);

struct holds {
    struct hold_list lists[HOLDS_LISTS];
};

/* The list for the holds of that owner. A hold without a named owner is found by its acquisition:
 * see owner.h. The hash is Knuth's multiplication, because the caller's numbers may be addresses
 * that are all multiples of 64. */
static inline struct hold_list *holds_of(struct holds *holds, const struct dlock_hold *hold)
{
    uint64_t number = hold->named_by != 0 ? hold->number : hold->acquisition;
    return &holds->lists[(number * UINT64_C(0x9E3779B97F4A7C15)) >> (64 - HOLDS_BITS)];
}

/* For each hold of the hold's owner, and for some holds of other owners. */
#define EACH_NEAR(other, holds, hold, field) LIST_FOREACH(other, holds_of(holds, hold), field)

/* For each hold. Do not leave the loop by break. */
#define EACH_HOLD(other, holds, field)                                                             \
    for (struct hold_list *list = (holds)->lists; list < (holds)->lists + HOLDS_LISTS; list++)     \
        LIST_FOREACH(other, list, field)

#endif
