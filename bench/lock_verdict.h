/* SPDX-License-Identifier: Apache-2.0
 *
 * The result of a round: its figures, whether it is valid, and the line that says so.
 */
#ifndef BENCH_LOCK_VERDICT_H
#define BENCH_LOCK_VERDICT_H

#include "lock_server.h"

struct round {
    const struct contestant *contestant;
    const struct plan *plan;
    struct part *parts;
    bool in_time; /* every process was done before the round's limit */
    struct counters before;
    struct counters after;
    struct remains remains;
    int connections_peak;
    int threads_peak; /* the most of any process */
};

/* Prints one line of JSON. Returns true if the verdict is "ok". */
bool round_print(const struct round *round);

#endif
