/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics for GET /metrics, in Prometheus' text format. The process has one set; any thread may
 * call these.
 */
#ifndef METRICS_H
#define METRICS_H

#include "engines.h"
#include "sale.h"

#include <dlock.h>
#include <stddef.h>
#include <stdint.h>

/* Counts how a sale or a guarded read ended; result: sale->result. */
void metrics_sale(int result);
void metrics_read(int result);
/* Counts a sale that was answered with the answer stored under its key. */
void metrics_replayed(void);
/* Counts what became of a sale that asked for its admission. */
void metrics_admission(enum stock_verdict verdict);
/* --write cas: a sale found the stock changed since it was read. */
void metrics_abort(void);
/* Counts an attempt of this instance at an entry of a queue. settled: it has its outcome now;
 * passed: another instance gave it that. Otherwise the entry stays queued. */
void metrics_queue(bool settled, bool passed);
/* Sets the stock of an existing item, as this instance's latest sale, PUT, restock or guarded read
 * saw it. */
void metrics_stock(const char *item, int64_t left);
/* Sets whether a server of that role was reachable when it was last checked. number: among several
 * of that role; else 0. */
void metrics_server(enum server_role role, size_t number, bool up);

/* Values that the caller reads when it prints. */
struct metrics_now {
    const char *version;
    const char *instance;
    const char *rung;
    const char *write;
    const char *admit;
    const char *segments;
    const char *on_conflict;
    bool local_first;
    size_t queue_depth;
    size_t queue_max;
    long in_flight;
    long queued; /* entries of the item's queues, as last seen */
    long waiting;
    uint64_t epoch; /* the stock's; 0: not seen */
    bool epoch_refused;
    unsigned long epochs_raised;
    uint64_t history_lost;                      /* lines */
    const char *lock_servers[LOCK_SERVERS_MAX]; /* the addresses, by number */
    size_t lock_server_count;
    const char *ensembles[ENGINE_COUNT]; /* the names, by engine; NULL: not given */
    struct dlock_stats lock;
    long long valid_ms; /* the most that a hold of the current lock had left when it was acquired */
};
/* Allocated; NULL when out of memory. */
char *metrics_print(const struct metrics_now *now);

#endif
