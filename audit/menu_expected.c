/* SPDX-License-Identifier: Apache-2.0 */
#include "menu.h"

#include <string.h>

/* The names that expected_menu.def uses. */
enum {
    OK = 1 << RESULT_OK,
    STALE = 1 << RESULT_STALE,
    STAMPEDE = 1 << RESULT_STAMPEDE,
    OVERLAP = 1 << RESULT_OVERLAP,
    DEADLOCK = 1 << RESULT_DEADLOCK,
};
enum { ONE = 1, MANY = 2, ON = 1, OFF = 2, PLAIN = 1, FENCED = 2, ANY = 3 };
#define ANY_TEXT ""

static const struct cell {
    const char *rung;
    unsigned second_look;
    unsigned guard_update;
    unsigned fill;
    unsigned refresh;
    const char *fault;
    unsigned instances;
    unsigned results;
    const char *why;
} cells[] = {
#define CELL(rung, second_look, guard_update, fill, refresh, fault, instances, results, why)       \
    {rung, second_look, guard_update, fill, refresh, fault, instances, results, why},
#include "expected_menu.def"
#undef CELL
};

static bool menu_fits(const char *cell, const char *value)
{
    return cell[0] == '\0' || strcmp(cell, value) == 0;
}

struct expected menu_expected(const struct run *run)
{
    const struct run_spec *spec = &run->spec;
    const unsigned second_look = run->menu->second_look ? ON : OFF;
    const unsigned guard_update = run->menu->guard_update ? ON : OFF;
    const unsigned fill = spec->fenced ? FENCED : PLAIN;
    const unsigned refresh = run->menu->refresh_ms > 0 ? ON : OFF;
    const unsigned instances = spec->instance_count > 1 ? MANY : ONE;
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        const struct cell *cell = &cells[i];
        if (menu_fits(cell->rung, spec->rung) && menu_fits(cell->fault, spec->fault) &&
            (cell->second_look & second_look) != 0 && (cell->guard_update & guard_update) != 0 &&
            (cell->fill & fill) != 0 && (cell->refresh & refresh) != 0 &&
            (cell->instances & instances) != 0)
            return (struct expected){cell->results, cell->why};
    }
    return (struct expected){0, "the table of expected results has no cell for it"};
}
