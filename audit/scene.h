/* SPDX-License-Identifier: Apache-2.0
 *
 * What the picture shows large: two sections and a window of time around them. Where sections
 * overlapped, the window holds an overlap.
 */
#ifndef SCENE_H
#define SCENE_H

#include "verdict.h"

enum scene_kind {
    SCENE_EMPTY,     /* no section was recorded */
    SCENE_SAME_UNIT, /* two overlap and sell the same unit */
    SCENE_NO_UNIT,   /* two overlap and the second sells a unit that never was */
    SCENE_OVERLAP,   /* two overlap */
    SCENE_APART,     /* two sell the same unit, one after the other */
    SCENE_HAND_OVER, /* one leaves, the next enters */
    SCENE_ALONE,     /* one section */
};

struct scene {
    enum scene_kind kind;
    const struct section *first;  /* the first to enter; NULL with SCENE_EMPTY */
    const struct section *second; /* NULL with SCENE_EMPTY, SCENE_ALONE */
    uint32_t lock;
    int64_t from_ns;
    int64_t to_ns;
};

void scene_choose(const struct run *run, const struct verdict *verdict, struct scene *scene);

/* The time in which both were inside; false when there is none. */
bool scene_meeting(const struct section *one, const struct section *two, int64_t *from_ns,
                   int64_t *to_ns);
/* The same where they must not: readers that share a lock may. */
bool scene_clash(const struct section *one, const struct section *two, int64_t *from_ns,
                 int64_t *to_ns);

#endif
