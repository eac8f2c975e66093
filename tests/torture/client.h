/* SPDX-License-Identifier: Apache-2.0
 *
 * One process of a history: a client with several threads that draw what they do from the seed. It
 * writes down what it calls and sees, and judges nothing but what it kept for itself at the end.
 */
#ifndef TORTURE_CLIENT_H
#define TORTURE_CLIENT_H

#include "history.h"

struct client_start {
    struct world *world;
    const struct plan *plan;
    int process;
    const char *url; /* of its server */
    bool fresh;      /* started when the others rest: it makes no calls of its own */
};

/* The body of the process; arg: a struct client_start. Returns its exit status. */
int client_main(void *arg);

#endif
