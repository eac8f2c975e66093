/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks.h"

#include <string.h>

/* The names that expected_tasks.def uses. */
enum {
    OK = 1 << RESULT_OK,
    REPEATED = 1 << RESULT_REPEATED,
    LOST_TASK = 1 << RESULT_LOST_TASK,
    OVERLAP = 1 << RESULT_OVERLAP,
    DEADLOCK = 1 << RESULT_DEADLOCK,
};
enum { ONE = 1, MANY = 2, PLAIN = 1, FENCED = 2, OFF = 1, SHORT = 2, LONG = 4, ANY = 7 };
#define ANY_TEXT ""

static const struct cell {
    const char *rung;
    unsigned result;
    unsigned lease;
    const char *fault;
    unsigned instances;
    unsigned results;
    const char *why;
} cells[] = {
#define CELL(rung, result, lease, fault, instances, results, why)                                  \
    {rung, result, lease, fault, instances, results, why},
#include "expected_tasks.def"
#undef CELL
};

static bool tasks_fits(const char *cell, const char *value)
{
    return cell[0] == '\0' || strcmp(cell, value) == 0;
}

struct expected tasks_expected(const struct run *run)
{
    const struct run_spec *spec = &run->spec;
    const struct tasks *tasks = run->tasks;
    const unsigned result = spec->fenced ? FENCED : PLAIN;
    const unsigned lease = tasks->lease_ms == 0                ? OFF
                           : tasks->lease_ms <= tasks->task_ms ? SHORT
                                                               : LONG;
    const unsigned instances = spec->instance_count > 1 ? MANY : ONE;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const struct cell *cell = &cells[i];
        if (tasks_fits(cell->rung, spec->rung) && tasks_fits(cell->fault, spec->fault) &&
            (cell->result & result) != 0 && (cell->lease & lease) != 0 &&
            (cell->instances & instances) != 0)
            return (struct expected){cell->results, cell->why};
    }
    return (struct expected){0, "the table of expected results has no cell for it"};
}
