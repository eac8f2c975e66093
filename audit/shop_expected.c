/* SPDX-License-Identifier: Apache-2.0 */
#include "shop.h"

#include <stdio.h>
#include <string.h>

/* The names that expected.def uses. */
enum {
    OK = 1 << RESULT_OK,
    OVERSOLD = 1 << RESULT_OVERSOLD,
    OVERLAP = 1 << RESULT_OVERLAP,
    OVERTAKEN = 1 << RESULT_OVERTAKEN,
    UNFINISHED = 1 << RESULT_UNFINISHED,
    DEADLOCK = 1 << RESULT_DEADLOCK,
    UNDERSOLD = 1 << RESULT_UNDERSOLD,
};
enum { ONE = 1, MANY = 2, SHORT = 1, ENOUGH = 2, GIVE_UP = 1, TRY_AGAIN = 2, ANY = 3 };
#define ANY_TEXT ""

static const struct cell {
    const char *rung;
    const char *write;
    const char *fault;
    unsigned instances;
    unsigned stock;
    unsigned results;
    const char *why;
} cells[] = {
#define CELL(rung, write, fault, instances, stock, results, why)                                   \
    {rung, write, fault, instances, stock, results, why},
#define POLICY(on_conflict, write, admit, buyers, results, why)
#define NAIVE_SEGMENTS(results, why)
#include "expected.def"
#undef CELL
#undef POLICY
#undef NAIVE_SEGMENTS
};

static const struct policy {
    const char *on_conflict;
    const char *write;
    const char *admit; /* "on": the shop limits how many sales it admits */
    unsigned buyers;
    unsigned results;
    const char *why;
} policies[] = {
#define CELL(rung, write, fault, instances, stock, results, why)
#define POLICY(on_conflict, write, admit, buyers, results, why)                                    \
    {on_conflict, write, admit, buyers, results, why},
#define NAIVE_SEGMENTS(results, why)
#include "expected.def"
#undef CELL
#undef POLICY
#undef NAIVE_SEGMENTS
};

static const struct expected naive_segments =
#define CELL(rung, write, fault, instances, stock, results, why)
#define POLICY(on_conflict, write, admit, buyers, results, why)
#define NAIVE_SEGMENTS(results, why) {results, why};
#include "expected.def"
#undef CELL
#undef POLICY
#undef NAIVE_SEGMENTS

    static bool expected_fits(const char *cell, const char *value)
{
    return cell[0] == '\0' || strcmp(cell, value) == 0;
}

static bool known_write(const char *write)
{
    static const char *const writes[] = {"decr",  "set", "atomic", "cas", "fenced_textbook",
                                         "fenced"};
    for (size_t i = 0; i < sizeof writes / sizeof *writes; i++)
        if (strcmp(write, writes[i]) == 0)
            return true;
    return false;
}

/* SHORT if some item had fewer units than were asked for. */
static unsigned stock_of(const struct run *run)
{
    unsigned stock = ENOUGH;
    for (size_t i = 0; i < run->item_count; i++) {
        if (run->items[i].wanted > run->items[i].supply)
            stock = SHORT;
    }
    return stock;
}

static const struct cell *find_cell(const struct run *run, const char *fault)
{
    const struct run_spec *spec = &run->spec;
    unsigned instances = spec->instance_count > 1 ? MANY : ONE;
    unsigned stock = stock_of(run);
    for (size_t i = 0; known_write(spec->write) && i < sizeof cells / sizeof *cells; i++) {
        const struct cell *cell = &cells[i];
        if (expected_fits(cell->rung, spec->rung) && expected_fits(cell->write, spec->write) &&
            expected_fits(cell->fault, fault) && (cell->instances & instances) != 0 &&
            (cell->stock & stock) != 0)
            return cell;
    }
    return NULL;
}

/* A policy explains only that buyers gave up, apart from those who found their segment empty. */
static const struct policy *find_policy(const struct run *run)
{
    const struct run_spec *spec = &run->spec;
    const unsigned buyers = spec->retries > 0 ? TRY_AGAIN : GIVE_UP;
    const char *admit = strcmp(spec->admit, "off") == 0 ? "off" : "on";
    if (run->counts.shortfall != 0 ||
        run->counts.given_up + run->counts.one_segment != run->counts.rejected_early)
        return NULL;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        if (expected_fits(policies[i].on_conflict, spec->on_conflict) &&
            expected_fits(policies[i].write, spec->write) &&
            expected_fits(policies[i].admit, admit) && (policies[i].buyers & buyers) != 0)
            return &policies[i];
    return NULL;
}

/* Naive segments explain only that buyers found theirs empty. Who gave up needs a policy, too. */
static bool naive_explains(const struct run *run, const struct policy *policy)
{
    const struct counts *counts = &run->counts;
    return strncmp(run->spec.segments, "naive:", 6) == 0 && counts->shortfall == 0 &&
           counts->given_up + counts->one_segment == counts->rejected_early &&
           (counts->given_up == 0 || policy != NULL);
}

struct expected shop_expected(const struct run *run)
{
    const struct run_spec *spec = &run->spec;
    const struct cell *cell = find_cell(run, spec->fault);
    const char *check = strstr(spec->fault, "+check");
    if (cell == NULL && check != NULL && check[6] == '\0') { /* the check changes nothing */
        char fault[64];
        snprintf(fault, sizeof fault, "%.*s", (int)(check - spec->fault), spec->fault);
        cell = find_cell(run, fault);
    }
    const struct policy *policy = find_policy(run);
    if (cell != NULL && naive_explains(run, policy))
        return (struct expected){cell->results | naive_segments.results, naive_segments.why};
    if (cell != NULL && run->counts.one_segment == 0 && policy != NULL)
        return (struct expected){cell->results | policy->results, policy->why};
    if (cell != NULL)
        return (struct expected){cell->results, cell->why};
    return (struct expected){0, "the table of expected results has no cell for it"};
}
