/* SPDX-License-Identifier: Apache-2.0
 *
 * See routes.h.
 */
#include "routes.h"

#include "handlers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct route routes[] = {
    {LISTENER_SHOP, METHOD_GET, "/healthz", false, false, RUN_HERE, shop_health, NULL},
    {LISTENER_SHOP, METHOD_POST, "/inventory/{item}/sale", true, false, RUN_SALES, shop_accept_sale,
     shop_sell},
    {LISTENER_SHOP, METHOD_GET, "/inventory/{item}", false, false, RUN_SALES, shop_accept_read,
     shop_sell},
    {LISTENER_SHOP, METHOD_GET, "/sales/{id}", true, false, RUN_SALES, shop_accept_outcome,
     shop_outcome},
    {LISTENER_ADMIN, METHOD_GET, "/livez", false, false, RUN_HERE, admin_live, NULL},
    {LISTENER_ADMIN, METHOD_GET, "/readyz", false, false, RUN_ASIDE, NULL, admin_ready},
    {LISTENER_ADMIN, METHOD_GET, "/version", false, false, RUN_HERE, admin_version, NULL},
    {LISTENER_ADMIN, METHOD_GET, "/config", false, false, RUN_HERE, admin_config, NULL},
    {LISTENER_ADMIN, METHOD_GET, "/metrics", false, false, RUN_HERE, admin_metrics, NULL},
    {LISTENER_ADMIN, METHOD_GET, "/lock", false, false, RUN_HERE, admin_get_lock, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/lock", false, true, RUN_ASIDE, admin_accept_lock,
     admin_put_lock},
    {LISTENER_ADMIN, METHOD_PUT, "/inventory/{item}", false, true, RUN_SALES, shop_accept_set,
     shop_sell},
    {LISTENER_ADMIN, METHOD_POST, "/inventory/{item}/restock", false, true, RUN_SALES,
     shop_accept_add, shop_sell},
    {LISTENER_ADMIN, METHOD_GET, "/failpoints", false, false, RUN_HERE, admin_get_failpoints, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/failpoints", false, true, RUN_HERE, admin_put_failpoint, NULL},
};
#define ROUTES (sizeof routes / sizeof routes[0])

size_t routes_count(void)
{
    return ROUTES;
}

const char *routes_name(size_t number)
{
    return number < ROUTES ? routes[number].path : "none";
}

size_t routes_number(const struct route *route)
{
    return route != NULL ? (size_t)(route - routes) : ROUTES;
}

bool routes_changes(const struct route *route)
{
    return route->listener == LISTENER_ADMIN && route->method != METHOD_GET;
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* A request line for a proxy also names the server; only the path counts. */
static const char *skip_origin(const char *target)
{
    if (strncmp(target, "http://", 7) != 0)
        return target;
    const char *path = target + 7 + strcspn(target + 7, "/?");
    return *path == '/' ? path : "/";
}

/* %-decodes [from, from + size). False: malformed, or a character that is not allowed in a path. */
static bool decode_path(const char *from, size_t size, char *path)
{
    for (const char *end = from + size; from < end; from++) {
        unsigned char c = (unsigned char)*from;
        if (c == '%') {
            char hex[3] = {0}, *rest;
            if (end - from < 3)
                return false;
            memcpy(hex, from + 1, 2);
            c = (unsigned char)strtoul(hex, &rest, 16);
            if (strspn(hex, "0123456789abcdefABCDEF") != 2 || c == '/' || c == '\0')
                return false;
            from += 2;
        } else if (c <= ' ' || c >= 0x7f) {
            return false;
        }
        *path++ = (char)c;
    }
    *path = '\0';
    return true;
}

#define NAME_SIZE (ITEM_MAX + STOCK_RANDOM_DIGITS + 3) /* one more, so that a long one is noticed */

/* Whether the path matches the route; the part for {item} or {id} is copied to item, cut to fit. */
static bool routes_matches(const struct route *route, const char *path, char item[NAME_SIZE])
{
    const char *pattern = route->path;
    const char *brace = strchr(pattern, '{');
    if (brace == NULL)
        return strcmp(pattern, path) == 0;
    size_t before = (size_t)(brace - pattern);
    if (strncmp(pattern, path, before) != 0)
        return false;
    size_t size = strcspn(path + before, "/");
    if (strcmp(path + before + size, strchr(brace, '}') + 1) != 0)
        return false;
    snprintf(item, NAME_SIZE, "%.*s", (int)size, path + before);
    return true;
}

static void routes_allow(struct request *request, enum method method)
{
    char *allowed = request->answer.allow;
    size_t used = strlen(allowed);
    snprintf(allowed + used, sizeof request->answer.allow - used, "%s%s%s", used > 0 ? ", " : "",
             method_name(method), method == METHOD_GET ? ", HEAD" : "");
}

static void not_found(enum listener listener, struct request *request)
{
    char paths[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < ROUTES; i++)
        if (routes[i].listener == listener && used < sizeof paths)
            used +=
                (size_t)snprintf(paths + used, sizeof paths - used, "%s%s %s", used > 0 ? ", " : "",
                                 method_name(routes[i].method), routes[i].path);
    answer_problem(request, PROBLEM_NOT_FOUND, "there are: %s", paths);
}

/* Whether an operators' route about the stock was asked for on the shop's listener. The answer then
 * says so. */
static bool is_operators_only(enum listener listener, const struct route *route)
{
    return listener == LISTENER_SHOP && route->listener == LISTENER_ADMIN &&
           route->where == RUN_SALES;
}

/* Sets the request's route, if there is one, and the methods that the path takes on this listener.
 * *operators: the admin listener has the route. False: the path is not known. */
static bool look_up(enum listener listener, const char *path, enum method method,
                    struct request *request, char item[NAME_SIZE], bool *operators)
{
    bool known = false;
    for (const struct route *route = routes; route < routes + ROUTES; route++) {
        bool elsewhere = is_operators_only(listener, route);
        if ((route->listener != listener && !elsewhere) || !routes_matches(route, path, item))
            continue;
        known = true;
        *operators = *operators || (elsewhere && route->method == method);
        if (elsewhere)
            continue;
        routes_allow(request, route->method);
        if (route->method == method)
            request->route = route;
    }
    return known;
}

/* Answers: the path exists, but does not take the method. operators: on the admin listener it
 * does. */
static void wrong_method(struct request *request, bool operators)
{
    routes_allow(request, METHOD_OPTIONS);
    if (operators)
        answer_problem(
            request, PROBLEM_OPERATORS_ONLY,
            "buyers buy and look here; operators have an address of their own, which the "
            "documentation names");
    else
        answer_problem(request, PROBLEM_WRONG_METHOD, "it takes %s", request->answer.allow);
}

#define WAIT_MAX_S 60
/* The parameters of a sale, and of the question for its outcome. */
struct parameter {
    const char *name;
    int64_t min, max;
    enum method method;
};
static const struct parameter parameters[] = {{"quantity", 1, QUANTITY_MAX, METHOD_POST},
                                              {"reenter", 0, 1, METHOD_POST},
                                              {"upgrade", 0, 1, METHOD_POST},
                                              {"wait", 0, WAIT_MAX_S, METHOD_GET}};
#define PARAMETERS (sizeof parameters / sizeof parameters[0])

/* Reads NAME=N. False: it is not valid, or was given before. */
static bool take_parameter(struct request *request, const char *text, size_t size,
                           bool taken[PARAMETERS])
{
    struct sale *sale = &request->sale;
    int64_t *const fields[PARAMETERS] = {&sale->quantity, &sale->reenter, &sale->upgrade,
                                         &request->wait_s};
    for (size_t i = 0; i < PARAMETERS; i++) {
        size_t name = strlen(parameters[i].name);
        if (parameters[i].method != request->route->method || size <= name + 1 ||
            strncmp(text, parameters[i].name, name) != 0 || text[name] != '=')
            continue;
        const char *digits = text + name + 1;
        errno = 0;
        int64_t number = strtoll(digits, NULL, 10);
        if (taken[i] || errno != 0 || number < parameters[i].min || number > parameters[i].max ||
            strspn(digits, "0123456789") != size - name - 1 ||
            (digits[0] == '0' && size > name + 2))
            return false;
        taken[i] = true;
        *fields[i] = number;
        return true;
    }
    return false;
}

static void take_query(struct request *request, const char *query)
{
    bool taken[PARAMETERS] = {false};
    request->sale.quantity = 1;
    if (query == NULL || *query == '\0')
        return;
    if (!request->route->takes_query) {
        answer_problem(request, PROBLEM_INVALID_QUERY, "%s %s takes no parameters",
                       method_name(request->route->method), request->route->path);
        return;
    }
    for (const char *at = query, *end; at != NULL; at = end != NULL ? end + 1 : NULL) {
        end = strchr(at, '&');
        if (!take_parameter(request, at, strcspn(at, "&"), taken)) {
            if (request->route->method == METHOD_GET)
                answer_problem(request, PROBLEM_INVALID_QUERY,
                               "\"%.100s\" is not valid; the parameter is wait, 0 to %d seconds, "
                               "once",
                               query, WAIT_MAX_S);
            else
                answer_problem(request, PROBLEM_INVALID_QUERY,
                               "\"%.100s\" is not valid; the parameters are quantity, 1 to %d, "
                               "reenter, 0 or 1, and upgrade, 0 or 1, each at most once",
                               query, QUANTITY_MAX);
            return;
        }
    }
}

/* Splits ITEM.RANDOM. False: it is no id, and the request is answered. */
static bool take_id(struct request *request, char id[NAME_SIZE])
{
    char *dot = strchr(id, '.');
    const char *random = dot != NULL ? dot + 1 : "";
    if (dot != NULL)
        *dot = '\0';
    if (sale_is_item(id) && strlen(random) == STOCK_RANDOM_DIGITS &&
        strspn(random, "0123456789abcdef") == STOCK_RANDOM_DIGITS) {
        memcpy(request->sale.random, random, STOCK_RANDOM_DIGITS + 1);
        return true;
    }
    answer_problem(request, PROBLEM_INVALID_SALE,
                   "an id is an item's name, a dot and %d hexadecimal digits, as Location gave it",
                   STOCK_RANDOM_DIGITS);
    return false;
}

void routes_find(enum listener listener, const char *target, struct request *request)
{
    char path[REQUEST_URL_MAX + 1], item[NAME_SIZE] = "";
    bool operators = false;
    enum method method = request->method == METHOD_HEAD ? METHOD_GET : request->method;
    target = skip_origin(target);
    size_t size = strcspn(target, "?");
    if (method != METHOD_OPTIONS || strcmp(target, "*") != 0) {
        if (target[0] != '/' || !decode_path(target, size, path)) {
            answer_problem(request, PROBLEM_MALFORMED,
                           "the path must begin with /, in printable ASCII or %%XX (not %%2F, "
                           "%%00)");
            return;
        }
        if (!look_up(listener, path, method, request, item, &operators)) {
            not_found(listener, request);
            return;
        }
    }
    if (request->route != NULL) {
        request->answer.allow[0] = '\0';
    } else if (method == METHOD_OPTIONS) {
        routes_allow(request, METHOD_OPTIONS);
        answer_json(request, 204, "%s", "");
        return;
    } else {
        wrong_method(request, operators);
        return;
    }
    if (strstr(request->route->path, "{id}") != NULL && !take_id(request, item))
        return;
    if (strchr(request->route->path, '{') != NULL && !sale_is_item(item)) {
        answer_problem(request, PROBLEM_INVALID_ITEM, "\"%.80s\" is not 1 to %d of a-z 0-9 _ -",
                       item, ITEM_MAX);
        return;
    }
    snprintf(request->sale.item, sizeof request->sale.item, "%.*s", ITEM_MAX, item);
    take_query(request, target[size] == '?' ? target + size + 1 : NULL);
}

/* ---- Serving --------------------------------------------------------------------------------- */

static bool routes_is_sale(const struct request *request)
{
    return request->route->where == RUN_SALES && request->sale.step != STEP_ASIDE;
}

static struct workers *routes_workers(const struct service *service, const struct request *request)
{
    if (routes_is_sale(request))
        return service->sales;
    return request->route->where == RUN_SALES ? service->reads : service->aside;
}

bool routes_serve(struct service *service, struct request *request)
{
    const struct route *route = request->route;
    if (route->accept != NULL)
        route->accept(service, request);
    if (request->answer.status != 0 || route->where == RUN_HERE)
        return true;
    if (routes_is_sale(request) && shop_refuse_by_outage(service, request))
        return true;
    if (workers_push(routes_workers(service, request), request))
        return false;
    /* It is refused also while the workers stop. */
    bool ending = atomic_load(&service->draining);
    const char *detail =
        ending ? "the instance is shutting down" : "the queue of requests (--queue) is full";
    if (routes_is_sale(request))
        shop_refuse(service, request, ending ? SALE_DRAINING : SALE_QUEUE_FULL, detail);
    else
        answer_problem(request, ending ? PROBLEM_DRAINING : PROBLEM_QUEUE_FULL, "%s", detail);
    return true;
}

void routes_expire(struct service *service, struct request *request)
{
    bool ending = atomic_load(&service->draining);
    const char *detail = ending ? "the instance began to shut down while the request waited"
                                : "it waited in the queue for longer than --wait-ms";
    if (routes_is_sale(request))
        shop_refuse(service, request, ending ? SALE_DRAINING : SALE_DEADLINE, detail);
    else
        answer_problem(request, ending ? PROBLEM_DRAINING : PROBLEM_DEADLINE, "%s", detail);
}
