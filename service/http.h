/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP by libmicrohttpd: reads requests, applies the limits, hands them on, writes the answers. A
 * request that others answer waits suspended: it costs no thread.
 */
#ifndef HTTP_H
#define HTTP_H

#include "request.h"
#include "routes.h"

struct http;

struct http_options {
    enum listener listener;
    int fd; /* a listening socket, taken over */
    unsigned threads;
    unsigned connections_max;
    const char *token; /* without it nothing that routes_changes() is served; "": none is needed */
    const char *address; /* HOST:PORT that Host and Origin may name where there is no token */
    const char *instance;
    bool log_requests;
    int64_t request_ms; /* see http_timeout.h */
    struct service *service;
    /* A whole request, in a thread that must not block. True: it is answered; false: somebody calls
     * http_answer() later, from any thread. */
    bool (*serve)(struct service *service, struct request *request);
};

/* NULL: it could not be started. */
struct http *http_start(const struct http_options *options);

/* request->answer is complete: send it. The request is not touched by the caller after that. */
void http_answer(struct request *request);

/* Whether the client has closed the connection of a request that is not answered yet. From any
 * thread. */
bool http_is_client_closed(const struct request *request);

/* Accepts no more connections; those that are open go on. */
void http_quiesce(struct http *http);
/* Waits until every request that was read is answered, and then a moment for the clients to take
 * their answers. False: not answered by then. */
bool http_wait_idle(struct http *http, int64_t deadline_ns);
/* Cuts what is left. Nobody may owe an answer. */
void http_stop(struct http *http);

const char *http_version(void);

#endif
