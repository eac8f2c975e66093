/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts for GET /metrics, in Prometheus' text format. One set a process; any thread may count.
 */
#ifndef METRICS_H
#define METRICS_H

#include "request.h"

#include <dlock.h>
#include <stddef.h>
#include <stdint.h>

/* How a sale, or a guarded read, ended; sale->result. */
void metrics_sale(int result);
void metrics_read(int result);
/* A sale was answered with what was kept under its key. */
void metrics_replayed(void);
void metrics_acquired(int64_t took_ns);
void metrics_held(int64_t took_ns);
/* What the stock of an item, which there is, was by the latest sale, PUT, restock or guarded read
 * of this instance. */
void metrics_stock(const char *item, int64_t left);
/* Whether that server was there when it was last asked for. */
void metrics_redis(enum redis_role role, bool up);
/* route: its number in the table of routes. */
void metrics_http(size_t route, enum method method, unsigned status);
void metrics_http_aborted(void);

/* What is asked for at the moment of printing. */
struct metrics_now {
    const char *version;
    const char *instance;
    const char *rung;
    const char *write;
    size_t queue_depth;
    size_t queue_max;
    long in_flight;
    long waiting;
    uint64_t history_lost; /* lines */
    struct dlock_stats lock;
};
/* Allocated; NULL when out of memory. */
char *metrics_print(const struct metrics_now *now);

#endif
