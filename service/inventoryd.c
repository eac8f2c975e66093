/* SPDX-License-Identifier: Apache-2.0
 *
 * What the base must know of the shop.
 */
#include "problems.h"
#include "program.h"

static const struct problem_row problems[] = {
#define BASE(name, meaning) PROBLEM_OF_BASE(name, meaning),
#define X(name, type, status, title, meaning) {PROBLEM_##name, type, status, title, meaning},
#include "problems.def"
#undef X
#undef BASE
};

const struct program program = {
    .name = "inventoryd",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
};
