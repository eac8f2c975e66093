/* SPDX-License-Identifier: Apache-2.0 */
#include "row.h"

#include <stdio.h>
#include <string.h>

/* The head's two lines and every row share one format, so that the columns align. */
#define FORMAT "%-13s %-6s %8s %6s %6s %8s %11s %12s %10s  %-16s %s%s%s\n"

enum { SALES_WIDTH = 12 };

void row_print_head(void)
{
    printf(FORMAT, "", "", "", "", "", "", "overlapping", "sales by", "p50/p99", "", "", "", "");
    printf(FORMAT, "rung", "write", "requests", "sold", "left", "oversold", "sections", "instance",
           "ms", "expected", "got", "", "");
}

/* "700+700"; with many instances "8 x 80..93". */
static void sales_by_instance(const struct run *run, char *text, size_t size)
{
    int64_t least = run->counts.sold_by[0];
    int64_t most = least;
    size_t used = 0;
    for (size_t i = 0; i < run->spec.instance_count; i++) {
        int64_t sold = run->counts.sold_by[i];
        least = sold < least ? sold : least;
        most = sold > most ? sold : most;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%lld", i > 0 ? "+" : "",
                                     (long long)sold);
    }
    if (used > SALES_WIDTH)
        snprintf(text, size, "%zu x %lld..%lld", run->spec.instance_count, (long long)least,
                 (long long)most);
}

static const char *row_number(int64_t value, char text[24])
{
    snprintf(text, 24, "%lld", (long long)value);
    return text;
}

void row_print(const struct run *run, const struct verdict *verdict)
{
    const struct counts *counts = &run->counts;
    char texts[5][24];
    char sales[64];
    char latency[64] = "-";
    char expected[128];
    char got[64];
    sales_by_instance(run, sales, sizeof sales);
    if (verdict->latency_ms.known)
        snprintf(latency, sizeof latency, "%.0f/%.0f", verdict->latency_ms.p50,
                 verdict->latency_ms.p99);
    verdict_expected(verdict, "|", expected, sizeof expected);
    verdict_got(run, verdict, got, sizeof got);
    const bool broken = strcmp(run->spec.fault, "none") != 0;
    printf(FORMAT, run->spec.rung, run->spec.write, row_number(counts->requests, texts[0]),
           row_number(counts->sold, texts[1]), row_number(counts->left, texts[2]),
           row_number(counts->oversold, texts[3]), row_number(counts->overlaps, texts[4]), sales,
           latency, expected, got, broken ? ", " : "", broken ? run->spec.fault : "");
}
