/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one history, from its plan to its verdict.
 */
#ifndef TORTURE_RUN_H
#define TORTURE_RUN_H

#include "check_many.h"
#include "history.h"

struct result {
    int violations;
    int by_kind[VIOLATION_COUNT];
    int faults[FAULT_COUNT];
    size_t calls;
    struct many_count many;
    int fail_overs;
    char first[400]; /* text of the first violation */
};

/* Runs in a separate process: it starts the clients and the server, and judges. If there was a
 * violation, it writes the transcript to that file. */
void run_history(const struct plan *plan, const char *transcript, struct result *result);

#endif
