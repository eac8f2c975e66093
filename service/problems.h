/* SPDX-License-Identifier: Apache-2.0
 *
 * The shop's problems: see problems.def.
 */
#ifndef PROBLEMS_H
#define PROBLEMS_H

#include "problem.h"

enum {
    PROBLEM_BEFORE_SHOP = PROBLEM_BASE_COUNT - 1,
#define BASE(name, meaning)
#define X(name, type, status, title, meaning) PROBLEM_##name,
#include "problems.def"
#undef X
    PROBLEM_COUNT
};

/* The HTTP status of each, as a constant. */
enum {
#define X(name, type, status, title, meaning) PROBLEM_CODE_##name = status,
#include "problems.def"
#undef X
#undef BASE
};

#endif
