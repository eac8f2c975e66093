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
    int64_t wait_ms; /* a request older than that is not run but handed to `expire` */
    void *arg;
    /* Each thread's own state. NULL: it cannot run. */
    void *(*open)(void *arg);
    void (*close)(void *state);
    void (*run)(void *state, struct request *request);
    /* Called on a thread of its own: must not block. */
    void (*expire)(void *arg, struct request *request);
};

/* NULL when out of memory or threads. */
struct workers *workers_start(const struct workers_options *options);
/* Takes nothing more, and ends the threads once they are through with what is queued. Nobody may
 * wait to be resumed. */
void workers_stop(struct workers *workers);
void workers_free(struct workers *workers);

/* False: the queue is full, or stopped. Any thread. */
bool workers_push(struct workers *workers, struct request *request);
/* One that `run` left unfinished goes on: ahead of the queue, whatever its length. Any thread; not
 * after workers_stop. */
void workers_resume(struct workers *workers, struct request *request);
/* The same at that moment, by mono_ns(), and not before one that was told so earlier: all rest for
 * about as long. Nothing is allocated: as many may rest as requests are open. Any thread. */
void workers_resume_at(struct workers *workers, struct request *request, int64_t at_ns);
/* One that cannot be run now stays in the queue, but is not given out before workers_go_on. */
void workers_put_off(struct workers *workers, struct request *request);
void workers_go_on(struct workers *workers);
/* Hands all that waits to `expire`. */
void workers_expire_all(struct workers *workers);
size_t workers_depth(struct workers *workers);

#endif
