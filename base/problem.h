/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors for clients: application/problem+json (RFC 9457). A problem is a number. Those of
 * problem.def come first; a service counts on from PROBLEM_BASE_COUNT, and gives its table in
 * program.h.
 */
#ifndef PROBLEM_H
#define PROBLEM_H

#include <stddef.h>
#include <stdio.h>

enum {
#define X(name, type, status, title, meaning) PROBLEM_##name,
#include "problem.def"
#undef X
    PROBLEM_BASE_COUNT
};

/* The HTTP status of each, as a constant. */
enum {
#define X(name, type, status, title, meaning) PROBLEM_CODE_##name = status,
#include "problem.def"
#undef X
};

struct problem_row {
    int number;
    const char *type; /* NULL: the row is about one of problem.def, and only its meaning counts */
    unsigned status;
    const char *title;
    const char *meaning; /* NULL: as in problem.def */
};
/* A row of a service's table that gives one of problem.def its place, and perhaps a meaning. */
#define PROBLEM_OF_BASE(name, meaning)                                                             \
    {                                                                                              \
        PROBLEM_##name, NULL, 0, NULL, meaning                                                     \
    }

unsigned problem_status(int problem);
const char *problem_type(int problem);
const char *problem_title(int problem);

/* Writes the problem as JSON; a detail that is too long is cut. members: further ones, beginning
 * with a comma, or "". Returns the length. */
size_t problem_print(char *out, size_t size, int problem, const char *detail, const char *members);

/* The table of all of them, for the documentation: by status, then those of problem.def that the
 * service's table does not place, then the service's in its order. */
void problem_help_markdown(FILE *out);

#endif
