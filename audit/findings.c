/* SPDX-License-Identifier: Apache-2.0 */
#include "findings.h"

#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
#define X(name, text) text,
    RESULTS(X)
#undef X
};

const char *result_name(enum result result)
{
    return names[result];
}

enum result result_of(enum result rank)
{
    return rank == RESULT_INCOMPLETE ? RESULT_INCONCLUSIVE : rank;
}

bool result_parse(const char *text, enum result *result)
{
    for (size_t i = 0; i < RESULT_COUNT; i++) {
        if (strcmp(text, names[i]) == 0) {
            *result = result_of((enum result)i);
            return true;
        }
    }
    return false;
}

void findings_init(struct findings *findings)
{
    memset(findings, 0, sizeof *findings);
    findings->worst = RESULT_OK;
}

/* The latest of the findings with the lowest precedence. A finding with a higher one may replace
 * it. */
static struct finding *find_lightest(struct findings *findings)
{
    struct finding *lightest = &findings->list[0];
    for (size_t i = 1; i < findings->count; i++)
        if (findings->list[i].supports >= lightest->supports)
            lightest = &findings->list[i];
    return lightest;
}

void findings_add(struct findings *findings, enum result supports, const char *format, ...)
{
    if (supports < findings->worst)
        findings->worst = supports;
    struct finding *finding = &findings->list[findings->count];
    if (findings->count == FINDINGS_MAX) {
        findings->left_out++;
        finding = find_lightest(findings);
        if (finding->supports <= supports)
            return;
    } else {
        findings->count++;
    }
    finding->supports = supports;
    va_list args;
    va_start(args, format);
    vsnprintf(finding->sentence, sizeof finding->sentence, format, args);
    va_end(args);
    text_clean(finding->sentence); /* vsnprintf may have cut a character */
}

void findings_sort(struct findings *findings)
{
    struct findings sorted = *findings;
    sorted.count = 0;
    for (size_t result = 0; result < RESULT_COUNT; result++) {
        for (size_t i = 0; i < findings->count; i++) {
            if (findings->list[i].supports == result)
                sorted.list[sorted.count++] = findings->list[i];
        }
    }
    *findings = sorted;
}
