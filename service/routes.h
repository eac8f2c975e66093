/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of routes: which handler answers which request. 404 and 405 are answered here, and the
 * path and the query are checked.
 */
#ifndef ROUTES_H
#define ROUTES_H

#include "request.h"

enum listener { LISTENER_SHOP, LISTENER_ADMIN };

/* Where a handler runs. */
enum where {
    RUN_HERE, /* on the thread that reads requests: must not block */
    /* on the workers that sell: may wait, and keeps no thread meanwhile; a read without a lock runs
     * on the threads for reads */
    RUN_SALES,
    RUN_ASIDE, /* on two threads of their own: may wait for Redis, not for locks */
};

struct service;

struct route {
    enum listener listener;
    enum method method; /* GET also answers HEAD */
    const char *path;   /* "/inventory/{item}/sale" */
    bool takes_query;   /* a sale's parameters, and its Idempotency-Key */
    bool takes_body;
    enum where where;
    /* Called on the thread that reads requests; must not block. With RUN_SALES and RUN_ASIDE it
     * answers only if the request need not be queued. NULL: nothing to do. */
    void (*accept)(struct service *service, struct request *request);
    /* Called on a worker; answers. False: not answered yet, and another thread may own the request
     * by now. If its sale is suspended, this is called again. */
    bool (*work)(struct service *service, struct sale_worker *worker, struct request *request);
};

/* Finds the route of the target, which is "/path?query" as in the request line. Puts the item and
 * the parameters into the request. If something is wrong, answers it. */
void routes_find(enum listener listener, const char *target, struct request *request);

/* Whether the route changes something that only operators may change. */
bool routes_changes(const struct route *route);

/* Accepts a complete request, and queues it if the route says so. True: it is answered. False:
 * http_answer() will be called. */
bool routes_serve(struct service *service, struct request *request);
/* Answers a request that waited too long, or that still waits when the instance shuts down. */
void routes_expire(struct service *service, struct request *request);

/* For the metrics. The number of a request without a route is routes_count(). */
size_t routes_count(void);
const char *routes_name(size_t number);
size_t routes_number(const struct route *route);

#endif
