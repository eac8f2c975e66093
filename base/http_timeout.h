/* SPDX-License-Identifier: Apache-2.0
 *
 * Limits how long three things take: until a new connection sends its first byte; until a request
 * is complete; until the client takes its answer. libmicrohttpd's own time-out is long and restarts
 * with each byte. A client that sends or takes a byte now and then would keep a connection for
 * ever.
 */
#ifndef HTTP_TIMEOUT_H
#define HTTP_TIMEOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct http_timeout; /* of one connection */

/* The time-outs of a loop. Only the loop's thread calls these functions. */
struct http_timeouts {
    int64_t after_ns;
    unsigned reading;                   /* connections in HTTP_READING */
    struct http_timeout *closing;       /* its connection makes room for another; or NULL */
    TAILQ_HEAD(, http_timeout) watched; /* the one that was checked last is last */
};
void http_timeouts_init(struct http_timeouts *timeouts, int64_t after_ms);

/* Ends overdue connections. A request may take between one and two times after_ms to arrive. A new
 * connection's first byte, and the taking of an answer, may take after_ms. Returns when to check
 * again; INT64_MAX: never. */
int64_t http_timeouts_look(struct http_timeouts *timeouts);
/* Ends the connection that has been idle for longest: HTTP_READING, and no byte has arrived. False:
 * none is idle. */
bool http_timeouts_make_room(struct http_timeouts *timeouts);

/* NULL when out of memory: the connection then has no time-out. */
struct http_timeout *http_timeout_new(struct http_timeouts *timeouts, int fd);
void http_timeout_free(struct http_timeouts *timeouts, struct http_timeout *timeout);
enum http_phase {
    HTTP_NEW,       /* no byte has arrived yet, or the first request is arriving */
    HTTP_READING,   /* the next request is awaited or is arriving */
    HTTP_ANSWERING, /* the answer is not ready yet: no limit */
    HTTP_SENDING,   /* the answer is being sent */
};
void http_timeout_set(struct http_timeouts *timeouts, struct http_timeout *timeout,
                      enum http_phase phase);

#endif
