/* SPDX-License-Identifier: Apache-2.0
 *
 * What the base must know of the program that it is a part of. Each service defines it, once.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "failpoints.h"
#include "problem.h"
#include "settings_common.h"

struct service; /* each service's own */

struct program {
    const char *name; /* "inventoryd" */
    const struct problem_row *problems;
    size_t problem_count;
    struct settings settings;
    const struct failpoint_row *points;
    const char *example_point; /* for messages about failpoints */
    /* For operators.h: where the service has its settings, and its failpoints, or NULL. */
    const struct settings_common *(*common)(const struct service *service);
    struct failpoints *(*failpoints)(const struct service *service);
};
extern const struct program program;

#endif
