/* SPDX-License-Identifier: Apache-2.0
 *
 * A stock in segments (--segments N): the units of an item lie over N keys. Each segment has a lock
 * of its own, so N sales can be in their sections at once. It has the units s, s+N, s+2N and so on.
 * A sale begins at one segment. If too few units are there, it releases the lock, and tries a
 * segment that has enough. See docs/policies.md.
 */
#ifndef SEGMENTS_H
#define SEGMENTS_H

#include "stock.h"

#include <stdbool.h>
#include <stddef.h>

struct config;
struct dlock_rung;
struct sale;
struct sale_env;
struct sale_worker;

struct segments {
    int count;  /* 1: the stock lies in one key */
    bool naive; /* flawed: a sale whose segment is empty is told that nothing is left */
};

#define SEGMENTS_FORM "N or naive:N, N from 1 to 16"
#define SEGMENTS_FLAW                                                                              \
    "a sale whose segment is empty is told that nothing is left, though other segments have units"

/* False: error[] says what was wrong and what would be right. */
#define SEGMENTS_ERROR_MAX 512
bool segments_parse(const char *text, struct segments *segments, char error[SEGMENTS_ERROR_MAX]);
/* As segments_parse reads it: "16", "naive:16". */
#define SEGMENTS_TEXT_MAX 16
void segments_print(const struct segments *segments, char text[SEGMENTS_TEXT_MAX]);
/* Whether sales can be made so. False: error[] says why not. */
bool segments_fit(const struct segments *segments, const struct dlock_rung *rung, int write,
                  int on_conflict, char error[SEGMENTS_ERROR_MAX]);

/* Whether a sale can have several locks of that rung at once. */
bool segments_lock_fits(const struct dlock_rung *rung);

/* Whether the current setting has several segments. */
bool segments_several(const struct sale_env *env);
/* From now on the sale is about this segment: its key, its lock. Segment 1 has the item's lock. */
void segments_turn(const struct sale_env *env, struct sale *sale, int segment);

/* The keys of the first `count` segments of the sale's item, for stock.h. */
#define SEGMENT_KEY_MAX 120
struct segment_keys {
    char text[SEGMENTS_MAX][SEGMENT_KEY_MAX];
    const char *list[SEGMENTS_MAX];
};
void segments_keys(const struct config *config, const struct sale *sale, size_t count,
                   struct segment_keys *keys);
/* Reads all segments in one step. False: the sale has ended. */
bool segments_read(struct sale_worker *worker, struct sale *sale, int64_t stocks[SEGMENTS_MAX]);
/* What all of them have together. One below zero, as a flaw may leave it, counts as empty. */
int64_t segments_sum(const struct sale_env *env, const int64_t stocks[SEGMENTS_MAX]);

/* The lowest unit of a sale that leaves `after` units in that segment of so many: the units of a
 * segment are as many apart as there are segments. */
int64_t segments_unit(int segments, int segment, int64_t after);

/* Chooses the segments that a sale tries next. It found too few in its own segment, and all of
 * them together have enough. Chosen is the next segment with enough; or else as few of the
 * largest as have enough together. Returns how many. */
size_t segments_choose(const int64_t stocks[SEGMENTS_MAX], int count, int own, int64_t quantity,
                       int chosen[SEGMENTS_MAX]);

#endif
