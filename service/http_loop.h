/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that accepts connections and runs libmicrohttpd for them. Its own threads would do both,
 * but (MHD_epoll, 0.9.75 to 1.0.1) they sleep over events that they have fetched when these are a
 * multiple of 128, and may end the process when it is told to accept no more.
 */
#ifndef HTTP_LOOP_H
#define HTTP_LOOP_H

#include "http_timeout.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct http;

struct http_loop {
    /* Set by the caller. */
    struct http *http;         /* its own */
    struct MHD_Daemon *daemon; /* by epoll, without a thread and a listening socket */
    int listen_fd;             /* non-blocking; the loops of a listener share it */
    unsigned connections_max;  /* of this loop: the rest wait in the kernel's backlog */
    struct http_timeouts timeouts;

    pthread_t thread;
    int wake_fd; /* eventfd */
    atomic_bool woken;
    atomic_bool quiesced;
    atomic_bool stopping;
};

/* False: not enough descriptors or threads. */
bool http_loop_start(struct http_loop *loop);

/* There is something for the loop to see: a connection is resumed. From any thread. */
void http_loop_wake(struct http_loop *loop);

/* Accepts no more; connections that are open go on. */
void http_loop_quiesce(struct http_loop *loop);

/* Ends the thread. The daemon is the caller's again. */
void http_loop_stop(struct http_loop *loop);

#endif
