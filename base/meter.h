/* SPDX-License-Identifier: Apache-2.0
 *
 * What metrics are made of, in Prometheus' text format: counters, histograms of times, and how they
 * are printed. Any thread may count.
 */
#ifndef METER_H
#define METER_H

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

void meter_add(atomic_ulong *counter, unsigned long by);
unsigned long meter_load(atomic_ulong *counter);

#define METER_BUCKETS 18
struct meter_times {
    /* not cumulative; the last one counts what is above all limits */
    atomic_ulong counts[METER_BUCKETS + 1];
    atomic_ulong sum_ns;
};
void meter_time(struct meter_times *times, int64_t took_ns);

/* The lines before a metric's values. type: "counter", "gauge" or "histogram". */
void meter_print_head(FILE *out, const char *name, const char *type, const char *help);
/* A metric that has one value. */
void meter_print_single(FILE *out, const char *name, const char *type, const char *help,
                        unsigned long value);
void meter_print_times(FILE *out, const char *name, const char *help, struct meter_times *times);

#endif
