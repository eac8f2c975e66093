/* SPDX-License-Identifier: Apache-2.0
 *
 * What came of a round: its figures, whether they may be believed, and the line that says so.
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
    int threads_peak; /* of one process */
};

/* Prints one line of JSON. True: the verdict is "ok". */
bool round_print(const struct round *round);

#endif
