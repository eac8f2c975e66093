/* SPDX-License-Identifier: Apache-2.0
 *
 * A service whose requests wait in a queue for worker threads, which may block. It has a client of
 * the lock library, a history and failpoints, as the common settings say; and it is drained and
 * stopped in the right order. A service with this frame has it in its struct service, and calls
 * these from the stages of its process.
 */
#ifndef FRAME_H
#define FRAME_H

#include "failpoints.h"
#include "history.h"
#include "listeners.h"
#include "lock_owner.h"
#include "store.h"
#include "workers.h"

#include <dlock.h>
#include <stdatomic.h>

struct frame_options {
    struct service *service; /* each handler gets it */
    const struct settings_common *settings;
    const struct routes *routes;
    size_t request_size; /* see http_options */
    const char *begin;   /* further members of the history's `begin` line, with a comma, or "" */
    /* Makes what a worker thread has of its own, such as its connection to the data; route->work
     * gets it. NULL: the thread cannot run. */
    void *(*open)(struct service *service);
    void (*close)(void *state);
};

struct frame {
    struct frame_options options;
    struct listeners listeners;
    struct store_server *store_server; /* --redis */
    dlock_client *client;              /* of the same server */
    dlock_cancel *cancel;              /* for dlock_want: ends waits when the drain is half over */
    struct history *history;           /* or NULL */
    struct failpoints *failpoints;     /* or NULL */
    struct lock_owner_pool owners;     /* see guard.h */
    struct workers *workers;           /* --workers threads, for RUN_WORKERS */
    struct workers *aside;             /* for RUN_ASIDE */
    atomic_bool draining;
};

/* False: error[] says why; the process must end. */
bool frame_start(struct frame *frame, const struct frame_options *options,
                 char error[PROCESS_ERROR_MAX]);
/* See struct process. */
void frame_reopen(struct frame *frame);
bool frame_drain(struct frame *frame);
void frame_stop(struct frame *frame);

/* A point of the service's that a worker reaches: the thread stays there if it is set so. True:
 * what follows shall fail, as the point defines. */
bool frame_point(struct frame *frame, const char *group, const char *name);

#endif
