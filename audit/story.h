/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the scene in words: a sentence or two, and the steps with their times.
 */
#ifndef STORY_H
#define STORY_H

#include "scene.h"

enum { STORY_MAX = 1200, STEPS_MAX = 20 };

struct step {
    int64_t t_ns;
    int who; /* the section, 1 or 2; 0: another request or process */
    enum stage stage;
    size_t order; /* in which the steps were added */
    bool worst;   /* the step that went wrong */
    char what[256];
};

struct story {
    const char *title;
    char text[STORY_MAX];
    struct step steps[STEPS_MAX];
    size_t count;
};

void story_tell(const struct run *run, const struct verdict *verdict, const struct scene *scene,
                struct story *story);

/* Adds a step; none if t_ns is NOT_STAMPED. stage: STAGE_NONE if it is no stage of a hold. */
void story_step(struct story *story, int64_t t_ns, int who, enum stage stage, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

enum { TIME_TEXT_MAX = 32, UNITS_TEXT_MAX = 96 };

/* "unit 5", "units 5 to 7", of a stock over segments "units 5 to 37 in steps of 16". Of a sale in
 * several parts: which part that is. */
const char *units_sold(const struct run *run, const struct section *section,
                       char buffer[UNITS_TEXT_MAX]);
/* A duration with its unit: "0.830 ms", "1 ns". */
const char *duration(int64_t ns, char buffer[TIME_TEXT_MAX]);

/* A time in ms with the decimals that the scene needs: "812.345", "812.345001". */
const char *moment(const struct run *run, const struct scene *scene, int64_t t_ns,
                   char buffer[TIME_TEXT_MAX]);

#endif
