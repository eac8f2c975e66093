/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP with libmicrohttpd: reads requests, applies the limits, calls `serve`, sends the answers. A
 * request that another thread will answer is suspended and keeps no thread.
 */
#ifndef HTTP_H
#define HTTP_H

#include "request.h"
#include "routes.h"

struct http;

struct http_options {
    enum listener listener;
    const struct routes *routes;
    size_t request_size; /* of the service's struct that begins with struct request; it is zeroed */
    int fd;              /* a listening socket; http_stop closes it */
    unsigned threads;
    unsigned connections_max;
    const char *token;   /* each request that routes_changes() must have it; "": there is none */
    const char *address; /* HOST:PORT that Host and Origin may name if there is no token */
    const char *instance;
    bool log_requests;
    int64_t request_ms; /* see http_timeout.h */
    /* Called with the value of the header Idempotency-Key, and how often it was sent, if the route
     * is no GET. NULL: such a request is refused, because its client relies on the key. */
    void (*take_key)(struct request *request, const char *key, unsigned keys);
    void *arg;
    /* Called with a complete request, on a thread that must not block. True: it is answered. False:
     * http_answer() will be called later, on any thread. */
    bool (*serve)(void *arg, struct request *request);
};

/* NULL: it could not be started. */
struct http *http_start(const struct http_options *options);

/* Sends request->answer, which is complete. After that the caller must not touch the request. */
void http_answer(struct request *request);

/* Whether the client has closed the connection of a request that is not answered yet. Any
 * thread. */
bool http_is_client_closed(const struct request *request);

/* Accepts no more connections; open ones continue. */
void http_quiesce(struct http *http);
/* Waits until every request that was read is answered, and then a moment for the clients to take
 * the answers. False: the deadline came before all were answered. */
bool http_wait_idle(struct http *http, int64_t deadline_ns);
/* Closes all connections. No request may still wait for http_answer(). */
void http_stop(struct http *http);

const char *http_version(void);

#endif
