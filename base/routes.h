/* SPDX-License-Identifier: Apache-2.0
 *
 * The routes of a service: which handler answers which request. 404, 405, OPTIONS and HEAD are
 * answered by its table alone. The path and the query are checked here.
 */
#ifndef ROUTES_H
#define ROUTES_H

#include "request.h"

/* Each service has two: one for its clients, and one for operators. */
enum listener { LISTENER_PUBLIC, LISTENER_ADMIN };

/* Where a handler runs. */
enum where {
    RUN_HERE,    /* on the thread that reads requests: must not block */
    RUN_WORKERS, /* on the service's workers */
    RUN_ASIDE,   /* on threads for operators, so that busy workers do not delay them */
};

/* A parameter of the query, NAME=N or NAME=TEXT. It goes into the service's request. */
struct parameter {
    const char *name; /* NULL: the end of the list */
    bool is_item;     /* it is an item's name, not a number */
    int64_t min, max;
    int64_t fallback;    /* if it is not given */
    const char *unit;    /* for an error: what is counted, or NULL */
    const char *example; /* it must be given; for an error: as in NAME=EXAMPLE. NULL: it need not */
    size_t offset;       /* in the request, of an int64_t, or of ITEM_MAX + 1 bytes of text */
};

struct service; /* each service's own */

struct route {
    enum listener listener;
    enum method method; /* GET also answers HEAD */
    const char *path;   /* "/inventory/{item}/sale": one {...} at most, which ends with its part */
    const struct parameter *parameters; /* NULL: it takes no query */
    bool takes_body;
    enum where where;
    /* Checks request->part, and answers if it is not valid. NULL: there is nothing to check. */
    void (*take_part)(struct request *request);
    /* Called on the thread that reads requests; must not block. Unless RUN_HERE it answers only if
     * the request need not be queued. NULL: nothing to do. */
    void (*accept)(struct service *service, struct request *request);
    /* Called on a worker, with the state of its thread; answers. False: not answered yet, and
     * another thread may own the request by now. */
    bool (*work)(struct service *service, void *worker, struct request *request);
    /* Of an operators' route: what the public listener answers of it, if its path is known there,
     * too. NULL: it is not. */
    const char *operators_only;
};

struct routes {
    const struct route *rows;
    size_t count;
};

/* Finds the route of the target, which is "/path?query" as in the request line. Puts the part and
 * the parameters into the request. If something is wrong, answers it. */
void routes_find(const struct routes *routes, enum listener listener, const char *target,
                 struct request *request);

/* Whether the route changes something that only operators may change. */
bool routes_changes(const struct route *route);

/* For metrics. The number of a request without a route is routes->count. */
const char *routes_name(const struct routes *routes, size_t number);
size_t routes_number(const struct routes *routes, const struct route *route);

#endif
