/* SPDX-License-Identifier: Apache-2.0
 *
 * One history from its plan to its verdict.
 */
#ifndef TORTURE_RUN_H
#define TORTURE_RUN_H

#include "history.h"

struct result {
    int violations;
    int by_kind[VIOLATION_COUNT];
    int faults[FAULT_COUNT];
    size_t calls;
    char first[400]; /* the first violation */
};

/* In a process of its own: it starts the clients and the server, and judges. transcript: the file
 * that tells the history when something was violated. */
void run_history(const struct plan *plan, const char *transcript, struct result *result);

#endif
