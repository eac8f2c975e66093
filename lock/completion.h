/* SPDX-License-Identifier: Apache-2.0
 *
 * Completions: calls without a thread that have ended. A thread of the client calls their `done`;
 * with own_loop, dlock_process does.
 */
#ifndef DLOCK_COMPLETION_H
#define DLOCK_COMPLETION_H

#include "status.h"

#include <pthread.h>
#include <sys/queue.h>

/* A member of the call's struct. */
struct completion {
    dlock_done *done;
    void *arg;
    void *call; /* the call's memory, freed before `done` is called */
    dlock_status status;
    dlock_hold *hold;
    char why[SENTENCE_MAX]; /* unless OK */
    STAILQ_ENTRY(completion) of_queue;
};

struct completions {
    int fd; /* with own_loop, an eventfd: readable if there are completions; else -1 */
    pthread_mutex_t mutex; /* protects what is below */
    STAILQ_HEAD(, completion) queue;
};
/* False: no descriptor is left. Call completions_free in both cases. */
bool completions_init(struct completions *completions, bool own_loop);
void completions_free(struct completions *completions);

/* Queues a completion whose status and hold are set. Copies the sentence of dlock_error(). */
void completion_put(struct completions *completions, struct completion *completion);
/* Calls `done` of the first; false: there is none. */
bool completion_deliver(struct completions *completions);
/* Calls `done` of all that are queued now, on the calling thread. Returns how many. */
size_t completion_deliver_all(struct completions *completions);

#endif
