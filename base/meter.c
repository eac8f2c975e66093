/* SPDX-License-Identifier: Apache-2.0
 *
 * See meter.h.
 */
#include "meter.h"

static const double limits_s[METER_BUCKETS] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                               0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                               1,      2.5,     5,      10,    20,     30};

void meter_add(atomic_ulong *counter, unsigned long by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

unsigned long meter_load(atomic_ulong *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void meter_time(struct meter_times *times, int64_t took_ns)
{
    size_t i = 0;
    while (i < METER_BUCKETS && (double)took_ns > limits_s[i] * 1e9)
        i++;
    meter_add(&times->counts[i], 1);
    meter_add(&times->sum_ns, (unsigned long)took_ns);
}

void meter_print_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void meter_print_single(FILE *out, const char *name, const char *type, const char *help,
                        unsigned long value)
{
    meter_print_head(out, name, type, help);
    fprintf(out, "%s %lu\n", name, value);
}

void meter_print_times(FILE *out, const char *name, const char *help, struct meter_times *times)
{
    unsigned long total = 0;
    meter_print_head(out, name, "histogram", help);
    for (size_t i = 0; i < METER_BUCKETS; i++) {
        total += meter_load(&times->counts[i]);
        fprintf(out, "%s_bucket{le=\"%g\"} %lu\n", name, limits_s[i], total);
    }
    total += meter_load(&times->counts[METER_BUCKETS]);
    fprintf(out, "%s_bucket{le=\"+Inf\"} %lu\n", name, total);
    fprintf(out, "%s_sum %.9f\n", name, (double)meter_load(&times->sum_ns) / 1e9);
    fprintf(out, "%s_count %lu\n", name, total);
}
