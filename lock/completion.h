/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls without a thread that are over and wait to be told of: by a thread of the client's, or with
 * own_loop by dlock_process.
 */
#ifndef DLOCK_COMPLETION_H
#define DLOCK_COMPLETION_H

#include "status.h"

#include <pthread.h>
#include <sys/queue.h>

/* A part of the call's struct. */
struct completion {
    dlock_done *done;
    void *arg;
    void *call; /* what is freed before `done` is called */
    dlock_status status;
    dlock_hold *hold;
    char why[SENTENCE_MAX]; /* unless OK */
    STAILQ_ENTRY(completion) of_queue;
};

struct completions {
    int fd;                /* with own_loop an eventfd: there are some; else -1 */
    pthread_mutex_t mutex; /* protects what is below */
    STAILQ_HEAD(, completion) queue;
};
/* False: no descriptor is left. completions_free in each case. */
bool completions_init(struct completions *completions, bool own_loop);
void completions_free(struct completions *completions);

/* Its status and hold are set; takes dlock_error() for its sentence. */
void completion_put(struct completions *completions, struct completion *completion);
/* Tells of the first; false: there is none. */
bool completion_deliver(struct completions *completions);
/* Tells of those that are there by now, on the calling thread; how many. */
size_t completion_deliver_all(struct completions *completions);

#endif
