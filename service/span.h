/* SPDX-License-Identifier: Apache-2.0
 *
 * The locks of a sale that needs several segments at once. They are acquired together
 * (dlock_acquire_many). A restock and a guarded read need those of all segments.
 */
#ifndef SPAN_H
#define SPAN_H

#include "sale.h"
#include "segments.h"

struct span_part {
    int segment;
    int64_t stock;    /* as it was read */
    int64_t quantity; /* the units of it that the sale takes */
    int64_t after;    /* the stock after the write */
};
struct span {
    size_t count;
    struct span_part parts[SEGMENTS_MAX];
    dlock *locks[SEGMENTS_MAX]; /* as the holds, in the order of the parts; NULL: not open */
    dlock_hold *holds[SEGMENTS_MAX];
};

/* A span of these segments, whose locks are not open yet. NULL when out of memory. */
struct span *span_new(const int *segments, size_t count);
/* NULL is allowed. Its holds have ended. */
void span_free(struct span *span);
/* A span of the first `count` segments. NULL: out of memory, and the sale has ended. */
struct span *span_first(struct sale *sale, size_t count);
/* Opens the locks of the sale's span. False: the sale has ended. */
bool span_open(const struct sale_env *env, struct sale *sale);
void span_close(struct span *span);

/* How many locks the sale needs at once. */
size_t span_count(const struct sale *sale);
/* From now on the sale is about that part: its segment, key, lock and hold. Its own one is part 0:
 * a caller that turns to another part turns back. Does nothing if the sale has no span. */
void span_turn(const struct sale_env *env, struct sale *sale, size_t part);
/* The history's name of the sale's hold, into hold_id; "": it has none. */
void span_name_hold(struct sale *sale);
/* As lock_owner_forget, for all its holds. One for which there is no memory is still the sale's. */
void span_forget(const struct sale_env *env, struct sale *sale);
/* Whether all its holds are valid. */
bool span_is_valid(const struct sale *sale);
/* Shares the quantity among the parts. False: they have too few, or one of them is not needed. */
bool span_share(struct sale *sale);

#endif
