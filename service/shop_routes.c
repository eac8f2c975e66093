/* SPDX-License-Identifier: Apache-2.0
 *
 * See shop_routes.h.
 */
#include "shop_routes.h"

#include "handlers.h"
#include "operators.h"
#include "shop_request.h"

#include <string.h>

#define WAIT_MAX_S 60

#define AT(field) offsetof(struct shop_request, field)
static const struct parameter of_sale[] = {
    {.name = "quantity", .min = 1, .max = QUANTITY_MAX, .fallback = 1, .offset = AT(sale.quantity)},
    {.name = "reenter", .max = 1, .offset = AT(sale.reenter)},
    {.name = "upgrade", .max = 1, .offset = AT(sale.upgrade)},
    {.name = NULL},
};
static const struct parameter of_outcome[] = {
    {.name = "wait", .max = WAIT_MAX_S, .unit = "seconds", .offset = AT(wait_s)},
    {.name = NULL},
};

/* ---- The table ------------------------------------------------------------------------------- */

static void take_item(struct request *request)
{
    struct sale *sale = shop_request_sale(request);
    if (!sale_is_item(request->part))
        answer_problem(request, PROBLEM_INVALID_ITEM, "\"%.80s\" is not 1 to %d of a-z 0-9 _ -",
                       request->part, ITEM_MAX);
    else
        snprintf(sale->item, sizeof sale->item, "%.*s", ITEM_MAX, request->part);
}

/* ITEM.RANDOM. */
static void take_id(struct request *request)
{
    struct sale *sale = shop_request_sale(request);
    const size_t size = strcspn(request->part, ".");
    const char *random = request->part + size + (request->part[size] == '.');
    snprintf(sale->item, sizeof sale->item, "%.*s", (int)size, request->part);
    if (size <= ITEM_MAX && sale_is_item(sale->item) && strlen(random) == STOCK_RANDOM_DIGITS &&
        strspn(random, "0123456789abcdef") == STOCK_RANDOM_DIGITS)
        memcpy(sale->random, random, STOCK_RANDOM_DIGITS + 1);
    else
        answer_problem(
            request, PROBLEM_INVALID_SALE,
            "an id is an item's name, a dot and %d hexadecimal digits, as Location gave it",
            STOCK_RANDOM_DIGITS);
}

static const char operators_only[] =
    "buyers buy and look here; operators have an address of their own, which the documentation "
    "names";

static const struct route rows[] = {
    {LISTENER_PUBLIC, METHOD_GET, "/healthz", NULL, false, RUN_HERE, NULL, shop_health, NULL, NULL},
    {LISTENER_PUBLIC, METHOD_POST, "/inventory/{item}/sale", of_sale, false, RUN_WORKERS, take_item,
     shop_accept_sale, shop_sell, NULL},
    {LISTENER_PUBLIC, METHOD_GET, "/inventory/{item}", NULL, false, RUN_WORKERS, take_item,
     shop_accept_read, shop_sell, NULL},
    {LISTENER_PUBLIC, METHOD_GET, "/sales/{id}", of_outcome, false, RUN_WORKERS, take_id,
     shop_accept_outcome, shop_outcome, NULL},
    OPERATORS_LIVEZ,
    {LISTENER_ADMIN, METHOD_GET, "/readyz", NULL, false, RUN_ASIDE, NULL, NULL, admin_ready, NULL},
    OPERATORS_VERSION,
    OPERATORS_CONFIG,
    {LISTENER_ADMIN, METHOD_GET, "/metrics", NULL, false, RUN_HERE, NULL, admin_metrics, NULL,
     NULL},
    {LISTENER_ADMIN, METHOD_GET, "/lock", NULL, false, RUN_HERE, NULL, admin_get_lock, NULL, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/lock", NULL, true, RUN_ASIDE, NULL, admin_accept_lock,
     admin_put_lock, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/inventory/{item}", NULL, true, RUN_WORKERS, take_item,
     shop_accept_set, shop_sell, operators_only},
    {LISTENER_ADMIN, METHOD_POST, "/inventory/{item}/restock", NULL, true, RUN_WORKERS, take_item,
     shop_accept_add, shop_sell, operators_only},
    OPERATORS_FAILPOINTS,
};
const struct routes shop_routes = {rows, sizeof rows / sizeof rows[0]};

/* A client that sends a key relies on it. So a request that would change something without using
 * the key is refused. */
void shop_routes_take_key(struct request *request, const char *key, unsigned keys)
{
    if (request->route->parameters != of_sale)
        answer_problem(request, PROBLEM_KEY_UNSUPPORTED,
                       "%s %s takes no Idempotency-Key; a sale does",
                       method_name(request->route->method), request->route->path);
    else if (keys > 1 || !idempotency_parse(key, shop_request_sale(request)->key))
        answer_problem(
            request, PROBLEM_INVALID_KEY,
            "send it in one header, 1 to %d visible ASCII characters, as they are or as a "
            "quoted string; there were %u",
            SALE_KEY_MAX, keys);
}

/* ---- Serving --------------------------------------------------------------------------------- */

static bool is_sale(struct request *request)
{
    return request->route->where == RUN_WORKERS && shop_request_sale(request)->step != STEP_ASIDE;
}

static struct workers *workers_for(const struct service *service, struct request *request)
{
    if (is_sale(request))
        return service->sales;
    return request->route->where == RUN_WORKERS ? service->reads : service->aside;
}

bool shop_routes_serve(void *arg, struct request *request)
{
    struct service *service = arg;
    const struct route *route = request->route;
    if (route->accept != NULL)
        route->accept(service, request);
    if (request->answer.status != 0 || route->where == RUN_HERE)
        return true;
    if (is_sale(request) && shop_refuse_by_outage(service, request))
        return true;
    if (workers_push(workers_for(service, request), request))
        return false;
    /* It is refused also while the workers stop. */
    bool ending = atomic_load(&service->draining);
    const char *detail =
        ending ? "the instance is shutting down" : "the queue of requests (--queue) is full";
    if (is_sale(request))
        shop_refuse(service, request, ending ? SALE_DRAINING : SALE_QUEUE_FULL, detail);
    else
        answer_problem(request, ending ? PROBLEM_DRAINING : PROBLEM_QUEUE_FULL, "%s", detail);
    return true;
}

void shop_routes_expire(struct service *service, struct request *request)
{
    bool ending = atomic_load(&service->draining);
    const char *detail = ending ? "the instance began to shut down while the request waited"
                                : "it waited in the queue for longer than --wait-ms";
    if (is_sale(request))
        shop_refuse(service, request, ending ? SALE_DRAINING : SALE_DEADLINE, detail);
    else
        answer_problem(request, ending ? PROBLEM_DRAINING : PROBLEM_DEADLINE, "%s", detail);
}
