/* SPDX-License-Identifier: Apache-2.0
 *
 * What an item's sales of unknown outcome can have taken. Each took its whole quantity or nothing,
 * so together they took the sum of some of their quantities. Two of 5 units took 0, 5 or 10.
 *
 * The work is limited: a question may be about UNKNOWN_UNITS_MAX units, and all questions of a run
 * together cost UNKNOWN_STEPS_MAX steps. That is 8 MiB, and less than a second.
 */
#ifndef UNKNOWN_H
#define UNKNOWN_H

#include "run.h"

enum {
    UNKNOWN_UNITS_MAX = 1 << 26,
    UNKNOWN_STEPS_MAX = 1 << 28, /* one step handles 64 sums and one quantity */
};

enum unknown_answer {
    UNKNOWN_FITS,
    UNKNOWN_NEVER_FITS,
    UNKNOWN_TOO_LARGE, /* beyond the limit: nothing is known, except that their sum suffices */
};

/* Adds a sale. One of no units changes nothing. */
void unknown_add(struct item *item, int64_t quantity);
/* Whether the item's sales of unknown outcome can have taken exactly that many units. If not,
 * `*most` is the greatest number below it that they can have taken. */
enum unknown_answer unknown_ask(struct run *run, struct item *item, int64_t units, int64_t *most);
/* Writes "5 and 5 units", the quantities in ascending order; of many the first ones. */
void unknown_list(struct item *item, char *text, size_t size);

#endif
