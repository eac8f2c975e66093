/* SPDX-License-Identifier: Apache-2.0
 *
 * A bounded queue of requests and the threads that take them, first come first served.
 */
#ifndef WORKERS_H
#define WORKERS_H

#include "request.h"

struct workers;

struct workers_options {
    size_t threads;
    size_t queue_max;
    int64_t wait_ms; /* an older request is given to `expire` and not run */
    void *arg;
    /* Makes a thread's own state; for one thread after the other. NULL: the thread cannot run. */
    void *(*open)(void *arg);
    void (*close)(void *state);
    void (*run)(void *state, struct request *request);
    /* Called on the pool's timekeeper, or by workers_expire_all and workers_stop. Must not
     * block. */
    void (*expire)(void *arg, struct request *request);
};

/* Returns when each thread has its state. NULL: out of memory or threads, or a thread has none. */
struct workers *workers_start(const struct workers_options *options);
/* Accepts nothing more, and ends the threads when they have run what is queued. No request may
 * still wait to be resumed. */
void workers_stop(struct workers *workers);
void workers_free(struct workers *workers);

/* False: the queue is full, or stopped. Any thread. */
bool workers_push(struct workers *workers, struct request *request);
/* Resumes a request that `run` left unfinished: before the queue, whatever its length. Any thread;
 * not after workers_stop. */
void workers_resume(struct workers *workers, struct request *request);
/* The same at that time of mono_ns(). Fast if it is not before those of earlier calls. Allocates
 * nothing. Any thread. */
void workers_resume_at(struct workers *workers, struct request *request, int64_t at_ns);
/* Keeps a request that cannot be run now in the queue until workers_go_on. */
void workers_put_off(struct workers *workers, struct request *request);
void workers_go_on(struct workers *workers);
/* Gives all requests that wait to `expire`. */
void workers_expire_all(struct workers *workers);
size_t workers_depth(struct workers *workers);

#endif
