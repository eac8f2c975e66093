/* SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include <string.h>

/* The names that expected_account.def uses. */
enum {
    OK = 1 << RESULT_OK,
    UNBALANCED = 1 << RESULT_UNBALANCED,
    OVERLAP = 1 << RESULT_OVERLAP,
    DEADLOCK = 1 << RESULT_DEADLOCK,
};
enum { ONE = 1, MANY = 2, TWO = 1, SCRIPT = 2, FENCED = 4, UNORDERED = 1, TOGETHER = 2, ANY = 7 };
#define ANY_TEXT ""

static const struct account_cell {
    const char *rung;
    unsigned write;
    unsigned locks;
    const char *fault;
    unsigned instances;
    unsigned results;
    const char *why;
} account_cells[] = {
#define CELL(rung, write, locks, fault, instances, results, why)                                   \
    {rung, write, locks, fault, instances, results, why},
#include "expected_account.def"
#undef CELL
};

static bool account_fits(const char *cell, const char *value)
{
    return cell[0] == '\0' || strcmp(cell, value) == 0;
}

struct expected account_expected(const struct run *run)
{
    const struct run_spec *spec = &run->spec;
    const unsigned write = spec->fenced                         ? FENCED
                           : strcmp(spec->write, "script") == 0 ? SCRIPT
                                                                : TWO;
    const unsigned locks = strcmp(run->account->locks, "many") == 0 ? TOGETHER : UNORDERED;
    const unsigned instances = spec->instance_count > 1 ? MANY : ONE;
    for (size_t i = 0; i < sizeof account_cells / sizeof *account_cells; i++) {
        const struct account_cell *cell = &account_cells[i];
        if (account_fits(cell->rung, spec->rung) && account_fits(cell->fault, spec->fault) &&
            (cell->write & write) != 0 && (cell->locks & locks) != 0 &&
            (cell->instances & instances) != 0)
            return (struct expected){cell->results, cell->why};
    }
    return (struct expected){0, "the table of expected results has no cell for it"};
}
