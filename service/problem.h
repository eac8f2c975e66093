/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors for clients: application/problem+json (RFC 9457).
 */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <stdio.h>

enum problem {
#define X(name, type, status, title, meaning) PROBLEM_##name,
#include "problem.def"
#undef X
    PROBLEM_COUNT
};

/* The HTTP status of each, as a constant. */
enum {
#define X(name, type, status, title, meaning) PROBLEM_CODE_##name = status,
#include "problem.def"
#undef X
};

unsigned problem_status(enum problem problem);
const char *problem_title(enum problem problem);

/* Writes the problem as JSON; a detail that is too long is cut. left: how many items are left, or
 * NULL. Returns the length. */
size_t problem_print(char *out, size_t size, enum problem problem, const char *detail,
                     const long long *left);

/* The table of all of them, for the documentation. */
void problem_help_markdown(FILE *out);

#endif
