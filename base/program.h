/* SPDX-License-Identifier: Apache-2.0
 *
 * What the base must know of the program that it is a part of. Each service defines it, once.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "problem.h"
#include "settings.h"

struct program {
    const char *name; /* "inventoryd" */
    const struct problem_row *problems;
    size_t problem_count;
    struct settings settings;
};
extern const struct program program;

#endif
