/* SPDX-License-Identifier: Apache-2.0
 *
 * Which handler answers what: a table. 404 and 405 are decided here, and what a path, a query or a
 * body must look like.
 */
#ifndef ROUTES_H
#define ROUTES_H

#include "request.h"

enum listener { LISTENER_SHOP, LISTENER_ADMIN };

/* Where a handler runs. */
enum where {
    RUN_HERE,  /* in the thread that reads requests: must not block */
    RUN_SALES, /* by the workers that sell: may wait, without a thread */
    RUN_ASIDE, /* by a few threads beside them: may wait for Redis, not for locks */
};

struct service;

struct route {
    enum listener listener;
    enum method method; /* GET answers HEAD too */
    const char *path;   /* "/inventory/{item}/sale" */
    bool takes_query;   /* a sale's parameters, and its Idempotency-Key */
    bool takes_body;
    enum where where;
    /* In the thread that reads requests: must not block. Answers; with RUN_SALES and RUN_ASIDE only
     * when the request need not be queued. NULL: nothing is to be done before. */
    void (*accept)(struct service *service, struct request *request);
    /* Behind the queue; answers. False: not yet, and the request is another thread's by now; it
     * comes here once more. */
    bool (*work)(struct service *service, struct sale_worker *worker, struct request *request);
};

/* Finds the route of the target ("/path?query", as it stands in the request line) and takes what
 * the target says into the request, or answers with what is wrong. */
void routes_find(enum listener listener, const char *target, struct request *request);

/* Whether the route changes something that only operators may change. */
bool routes_changes(const struct route *route);

/* A whole request: accepted, and queued where the route says so. True: it is answered; false:
 * http_answer() will be called. */
bool routes_serve(struct service *service, struct request *request);
/* It waited too long, or the instance ends. */
void routes_expire(struct service *service, struct request *request);

/* For the metrics. The number of a request without a route is routes_count(). */
size_t routes_count(void);
const char *routes_name(size_t number);
size_t routes_number(const struct route *route);

#endif
