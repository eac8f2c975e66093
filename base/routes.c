/* SPDX-License-Identifier: Apache-2.0
 *
 * See routes.h.
 */
#include "routes.h"

#include "text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 8

const char *routes_name(const struct routes *routes, size_t number)
{
    return number < routes->count ? routes->rows[number].path : "none";
}

size_t routes_number(const struct routes *routes, const struct route *route)
{
    return route != NULL ? (size_t)(route - routes->rows) : routes->count;
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

/* Whether the path matches the route. What stands for {...} is copied to part, cut to fit. */
static bool routes_matches(const struct route *route, const char *path,
                           char part[REQUEST_PART_MAX + 1])
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
    snprintf(part, REQUEST_PART_MAX + 1, "%.*s", (int)size, path + before);
    return true;
}

static void routes_allow(struct request *request, enum method method)
{
    char *allowed = request->answer.allow;
    size_t used = strlen(allowed);
    snprintf(allowed + used, sizeof request->answer.allow - used, "%s%s%s", used > 0 ? ", " : "",
             method_name(method), method == METHOD_GET ? ", HEAD" : "");
}

static void not_found(const struct routes *routes, enum listener listener, struct request *request)
{
    char paths[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < routes->count; i++)
        if (routes->rows[i].listener == listener && used < sizeof paths)
            used +=
                (size_t)snprintf(paths + used, sizeof paths - used, "%s%s %s", used > 0 ? ", " : "",
                                 method_name(routes->rows[i].method), routes->rows[i].path);
    answer_problem(request, PROBLEM_NOT_FOUND, "there are: %s", paths);
}

/* Sets the request's route, if there is one, and the methods that the path takes on this listener.
 * *operators_only: what to say if the admin listener takes the method. False: the path is not
 * known. */
static bool look_up(const struct routes *routes, enum listener listener, const char *path,
                    enum method method, struct request *request, const char **operators_only)
{
    bool known = false;
    for (const struct route *route = routes->rows; route < routes->rows + routes->count; route++) {
        const bool elsewhere = route->listener != listener;
        if (elsewhere && (listener == LISTENER_ADMIN || route->operators_only == NULL))
            continue;
        if (!routes_matches(route, path, request->part))
            continue;
        known = true;
        if (elsewhere && route->method == method)
            *operators_only = route->operators_only;
        if (elsewhere)
            continue;
        routes_allow(request, route->method);
        if (route->method == method)
            request->route = route;
    }
    return known;
}

/* Answers: the path exists, but does not take the method. */
static void wrong_method(struct request *request, const char *operators_only)
{
    routes_allow(request, METHOD_OPTIONS);
    if (operators_only != NULL)
        answer_problem(request, PROBLEM_OPERATORS_ONLY, "%s", operators_only);
    else
        answer_problem(request, PROBLEM_WRONG_METHOD, "it takes %s", request->answer.allow);
}

/* ---- The query ------------------------------------------------------------------------------- */

/* Reads digits, perhaps after a sign. */
static bool take_number(const struct parameter *parameter, const char *text, size_t size,
                        int64_t *number)
{
    const size_t sign = parameter->min < 0 && text[0] == '-';
    errno = 0;
    *number = strtoll(text, NULL, 10);
    return errno == 0 && *number >= parameter->min && *number <= parameter->max && size > sign &&
           strspn(text + sign, "0123456789") == size - sign && (text[sign] != '0' || size == 1);
}

static bool take_value(const struct parameter *parameter, const char *text, size_t size,
                       struct request *request)
{
    char *field = (char *)request + parameter->offset;
    if (!parameter->is_item)
        return take_number(parameter, text, size, (int64_t *)(void *)field);
    if (!request_is_name(text, size))
        return false;
    snprintf(field, ITEM_MAX + 1, "%.*s", (int)size, text);
    return true;
}

/* Reads NAME=VALUE. False: it is not valid, or was given before. */
static bool take_parameter(struct request *request, const char *text, size_t size,
                           bool taken[PARAMETERS_MAX])
{
    const struct parameter *parameters = request->route->parameters;
    for (size_t i = 0; parameters[i].name != NULL; i++) {
        const struct parameter *parameter = &parameters[i];
        size_t name = strlen(parameter->name);
        if (size <= name + 1 || strncmp(text, parameter->name, name) != 0 || text[name] != '=')
            continue;
        if (taken[i] || !take_value(parameter, text + name + 1, size - name - 1, request))
            return false;
        taken[i] = true;
        return true;
    }
    return false;
}

/* "quantity, 1 to 1000000, and reenter, 0 or 1": what the parameters may be. Returns how many. */
static size_t describe_parameters(const struct parameter *parameters, char *text, size_t size)
{
    size_t count = 0;
    text[0] = '\0';
    for (; parameters[count].name != NULL; count++) {
        const struct parameter *one = &parameters[count];
        char words[96];
        if (one->is_item)
            snprintf(words, sizeof words, "%s, a name of 1 to %d of a-z 0-9 _ -", one->name,
                     ITEM_MAX);
        else
            snprintf(words, sizeof words, "%s, %" PRId64 " %s %" PRId64 "%s%s", one->name, one->min,
                     one->max == one->min + 1 ? "or" : "to", one->max, one->unit != NULL ? " " : "",
                     one->unit != NULL ? one->unit : "");
        text_join(text, size, one[1].name == NULL ? ", and " : ", ", words);
    }
    return count;
}

/* "; as in ?from=a&to=b", or "" if nothing must be given. */
static void print_example(const struct parameter *parameters, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (; parameters->name != NULL; parameters++)
        if (parameters->example != NULL && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s=%s", used == 0 ? "; as in ?" : "&",
                                 parameters->name, parameters->example);
}

static void wrong_query(struct request *request, const char *wrong, const char *how)
{
    char words[320], example[100];
    const size_t count = describe_parameters(request->route->parameters, words, sizeof words);
    print_example(request->route->parameters, example, sizeof example);
    answer_problem(request, PROBLEM_INVALID_QUERY, "\"%.100s\" is %s; the parameter%s %s, %s%s",
                   wrong, how, count == 1 ? " is" : "s are", words,
                   count == 1           ? "once"
                   : example[0] != '\0' ? "each once"
                                        : "each at most once",
                   example);
}

static void take_query(struct request *request, const char *query)
{
    const struct parameter *parameters = request->route->parameters;
    bool taken[PARAMETERS_MAX] = {false};
    if (query != NULL && *query == '\0')
        query = NULL;
    if (parameters == NULL) {
        if (query != NULL)
            answer_problem(request, PROBLEM_INVALID_QUERY, "%s %s takes no parameters",
                           method_name(request->route->method), request->route->path);
        return;
    }
    for (const char *at = query, *end; at != NULL; at = end != NULL ? end + 1 : NULL) {
        end = strchr(at, '&');
        if (!take_parameter(request, at, strcspn(at, "&"), taken)) {
            wrong_query(request, query, "not valid");
            return;
        }
    }
    for (size_t i = 0; parameters[i].name != NULL; i++) {
        if (taken[i])
            continue;
        if (parameters[i].example != NULL) {
            wrong_query(request, parameters[i].name, "missing");
            return;
        }
        *(int64_t *)(void *)((char *)request + parameters[i].offset) = parameters[i].fallback;
    }
}

/* ---- All of it ------------------------------------------------------------------------------- */

void routes_find(const struct routes *routes, enum listener listener, const char *target,
                 struct request *request)
{
    char path[REQUEST_URL_MAX + 1];
    const char *operators_only = NULL;
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
        if (!look_up(routes, listener, path, method, request, &operators_only)) {
            not_found(routes, listener, request);
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
        wrong_method(request, operators_only);
        return;
    }
    if (request->route->take_part != NULL)
        request->route->take_part(request);
    if (request->answer.status == 0)
        take_query(request, target[size] == '?' ? target + size + 1 : NULL);
}
