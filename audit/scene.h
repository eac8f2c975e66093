/* SPDX-License-Identifier: Apache-2.0
 *
 * What the close up shows: two sections, and a window of time around them. If sections overlapped,
 * the window contains an overlap.
 */
#ifndef SCENE_H
#define SCENE_H

#include "svg.h"
#include "verdict.h"

enum scene_kind {
    SCENE_EMPTY,     /* no section was recorded */
    SCENE_SAME_UNIT, /* two overlap and sell the same unit */
    SCENE_NO_UNIT,   /* two overlap and one sells a unit that never existed */
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

/* The time in which both were inside. False if there is none, or their locks differ. */
bool scene_meeting(const struct section *one, const struct section *two, int64_t *from_ns,
                   int64_t *to_ns);
/* The same, except that readers may share a lock: then it returns false. */
bool scene_clash(const struct section *one, const struct section *two, int64_t *from_ns,
                 int64_t *to_ns);

/* The section's name in the picture. In a small run it is that of its request, as in the
 * transcript; otherwise its number in the scene, 1 or 2. */
const char *scene_name(const struct run *run, const struct scene *scene,
                       const struct section *section, char buffer[SVG_LABEL_MAX]);

#endif
