/* SPDX-License-Identifier: Apache-2.0
 *
 * A request must be whole soon after its first byte. libmicrohttpd's own time-out begins anew with each byte, so that
 * somebody who sends one now and then would keep a connection for ever.
 */
#ifndef HTTP_TIMEOUT_H
#define HTTP_TIMEOUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct http_timeout; /* of one connection */

/* Those of a loop, which alone calls what is here. */
struct http_timeouts {
    int64_t after_ns;
    TAILQ_HEAD(, http_timeout) reading; /* what was looked at last is last */
};
void http_timeouts_init(struct http_timeouts *timeouts, int64_t after_ms);

/* Ends the connections whose request is overdue: after one to two times after_ms. Returns when to look again;
 * INT64_MAX: at no time. */
int64_t http_timeouts_look(struct http_timeouts *timeouts);

/* NULL, when out of memory, is a connection without a time-out. */
struct http_timeout *http_timeout_new(struct http_timeouts *timeouts, int fd);
void http_timeout_free(struct http_timeouts *timeouts, struct http_timeout *timeout);
/* Whether a request, or the next, is awaited; not while one is answered. */
void http_timeout_set(struct http_timeouts *timeouts, struct http_timeout *timeout, bool reading);

#endif
