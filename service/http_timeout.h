/* SPDX-License-Identifier: Apache-2.0
 *
 * A new connection must send its first byte soon, a request must be whole soon after its first
 * byte, and the client must take its answer soon. libmicrohttpd's own time-out is long and begins
 * anew with each byte: a client that sends or takes one now and then would keep a connection for
 * ever.
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
    TAILQ_HEAD(, http_timeout) watched; /* what was looked at last is last */
};
void http_timeouts_init(struct http_timeouts *timeouts, int64_t after_ms);

/* Ends a connection whose request is overdue, after one to two times after_ms, and one that has
 * sent nothing at all or has not taken its answer, after after_ms. Returns when to look again;
 * INT64_MAX: at no time. */
int64_t http_timeouts_look(struct http_timeouts *timeouts);

/* NULL, when out of memory, is a connection without a time-out. */
struct http_timeout *http_timeout_new(struct http_timeouts *timeouts, int fd);
void http_timeout_free(struct http_timeouts *timeouts, struct http_timeout *timeout);
enum http_phase {
    HTTP_NEW,       /* no byte has come yet, or the first request comes in */
    HTTP_READING,   /* the next request is awaited or comes in */
    HTTP_ANSWERING, /* the answer is not known yet: that may take as long as it takes */
    HTTP_SENDING,   /* the answer is on its way */
};
void http_timeout_set(struct http_timeouts *timeouts, struct http_timeout *timeout,
                      enum http_phase phase);

#endif
