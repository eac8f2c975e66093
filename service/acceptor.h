/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepts the connections of a listening socket, a bounded number at a time: the rest wait in the
 * kernel's backlog. libmicrohttpd could accept by itself, but ends the process when it is told to
 * accept no more while one of its threads is about to look for connections.
 */
#ifndef ACCEPTOR_H
#define ACCEPTOR_H

#include <stdbool.h>
#include <sys/socket.h>

struct acceptor;

/* In the acceptor's thread: fd, non-blocking, is the callee's. False: it closed it at once. */
typedef bool accepted_fn(void *arg, int fd, const struct sockaddr *peer, socklen_t size);

/* fd listens and blocks; acceptor_stop() closes it. NULL: out of memory. */
struct acceptor *acceptor_new(int fd, unsigned connections_max, accepted_fn *accepted, void *arg);

/* False: out of threads. */
bool acceptor_start(struct acceptor *acceptor);

/* A connection that was accepted is closed. From any thread. */
void acceptor_closed(struct acceptor *acceptor);

/* From here on the kernel refuses connections, and a balancer takes the next instance. */
void acceptor_stop(struct acceptor *acceptor);

/* Never started, or stopped and no connection is left. */
void acceptor_free(struct acceptor *acceptor);

#endif
