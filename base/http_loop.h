/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that accepts connections and runs libmicrohttpd for them. libmicrohttpd's own threads
 * would do both, but have two bugs (MHD_epoll, 0.9.75 to 1.0.1). They ignore the events that they
 * have fetched if these are a multiple of 128. They may end the process when it is told to accept
 * no more.
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
    struct http *http;         /* the http to which it belongs */
    struct MHD_Daemon *daemon; /* uses epoll; has no thread and no listening socket */
    int listen_fd;             /* non-blocking; the loops of a listener share it */
    unsigned connections_max;  /* of this loop; further ones wait in the kernel's backlog */
    atomic_long *room;         /* connections that the loops of the listener may still accept */
    struct http_timeouts timeouts;

    long counted; /* its part of *room */
    pthread_t thread;
    int wake_fd; /* eventfd */
    atomic_bool woken;
    atomic_bool quiesced;
    atomic_bool stopping;
};

/* False: not enough descriptors or threads. */
bool http_loop_start(struct http_loop *loop);

/* Wakes the loop, because a connection was resumed. Any thread. */
void http_loop_wake(struct http_loop *loop);

/* Accepts no more connections; open ones continue. */
void http_loop_quiesce(struct http_loop *loop);

/* Ends the thread. After that the daemon is the caller's. */
void http_loop_stop(struct http_loop *loop);

#endif
