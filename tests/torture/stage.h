/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the phases of a history with any kind of server: starts the processes, and ends them.
 */
#ifndef TORTURE_STAGE_H
#define TORTURE_STAGE_H

#include "client.h"

struct stage {
    /* Set by the caller. */
    const struct plan *plan;
    struct world *world;
    void *arg; /* argument of the functions below */
    /* The URL of a server for the process. Of a group only the first one is used. */
    void (*url)(void *arg, int process, int server, char url[URL_SIZE]);
    void (*round)(void *arg, int ms); /* called repeatedly: serves the server and the faults */
    void (*calm)(void *arg);          /* ends all faults */
    void (*at_rest)(void *arg);       /* called when no process holds a lock; or NULL */
    int64_t run_ms;                   /* the limit of PHASE_RUN; 0: some seconds */

    struct client_start starts[PROCESSES_MAX];
};

/* Starts the processes. One thread does everything, so that it can fork. */
void stage_start(struct stage *stage);
/* Runs from the first call to the end of the last process. False if a process did not release its
 * holds; then all processes were killed. */
bool stage_play(struct stage *stage);
/* Continues with rounds for that time. */
void stage_wait(struct stage *stage, int64_t ms);

#endif
