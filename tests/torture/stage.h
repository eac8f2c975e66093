/* SPDX-License-Identifier: Apache-2.0
 *
 * The phases of a history, whatever server its clients have: starts their processes, and ends them.
 */
#ifndef TORTURE_STAGE_H
#define TORTURE_STAGE_H

#include "client.h"

struct stage {
    /* Set by the caller. */
    const struct plan *plan;
    struct world *world;
    void *arg;                                  /* of these: */
    const char *(*url)(void *arg, int process); /* where the process finds its server */
    void (*round)(void *arg, int ms); /* again and again: what the server and the faults need */
    void (*calm)(void *arg);          /* ends all faults */
    void (*at_rest)(void *arg);       /* nobody holds; or NULL */

    struct client_start starts[PROCESSES_MAX];
};

/* The processes; one thread does it all, so that it can fork. */
void stage_start(struct stage *stage);
/* From the first call to the end of the last process. False: some did not let go of what they had,
 * and all were ended. */
bool stage_play(struct stage *stage);
/* Goes on with rounds for so long. */
void stage_wait(struct stage *stage, int64_t ms);

#endif
