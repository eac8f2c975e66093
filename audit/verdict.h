/* SPDX-License-Identifier: Apache-2.0
 *
 * The verdict on a checked run, verdict.json, and the judge's last line.
 */
#ifndef VERDICT_H
#define VERDICT_H

#include "expected.h"
#include "run.h"

struct spread { /* of durations in ms; known: at least one was measured */
    bool known;
    double p50;
    double p99;
    double max;
};

/* Sorts the values. */
struct spread verdict_spread(double *values, size_t count);

struct verdict {
    enum result result;
    struct expected expected;
    bool agrees;
    int64_t start_spread_ms;
    struct spread latency_ms; /* as the client measured it */
    struct spread wait_ms;    /* from invoke to granted */
    struct spread hold_ms;    /* from enter to exit */
};

void verdict_reach(struct run *run, struct verdict *verdict);
int verdict_exit_code(const struct verdict *verdict); /* 0 expected, 1 not, 2 inconclusive */

/* "OVERSOLD (+400)": the result, with its number of units if it has one. */
void verdict_got(const struct run *run, const struct verdict *verdict, char *text, size_t size);
/* "OVERSOLD|OVERLAP": the expected results, joined by the separator. */
void verdict_expected(const struct verdict *verdict, const char *separator, char *text,
                      size_t size);

/* For the rules of a service, which add members of their own. */
struct number {
    const char *name;
    int64_t value;
};
void verdict_add_numbers(cJSON *json, const struct number *numbers, size_t count);
void verdict_add_spread(cJSON *json, const char *name, const struct spread *spread);

/* On failure: false, and a sentence on standard error. */
bool verdict_write(const struct run *run, const struct verdict *verdict);

#endif
