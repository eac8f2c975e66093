/* SPDX-License-Identifier: Apache-2.0
 *
 * One process of a history: a client with several threads, whose actions are drawn from the seed.
 * It records its calls and what it observes. It judges only what only it can see: its resources,
 * its loss descriptors, and inherited holds.
 */
#ifndef TORTURE_CLIENT_H
#define TORTURE_CLIENT_H

#include "history.h"

#define URL_SIZE 160

struct client_start {
    struct world *world;
    const struct plan *plan;
    int process;
    char urls[SERVERS_MOST][URL_SIZE]; /* of its servers */
    bool fresh;                        /* started in PHASE_REST: it draws no actions */
};

/* The body of the process; arg: a struct client_start. Returns its exit status. */
int client_main(void *arg);

#endif
