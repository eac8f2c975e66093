/* SPDX-License-Identifier: Apache-2.0
 *
 * A request as the service reads it, without a socket. The input: METHOD TARGET VERSION, header
 * lines, an empty line, the body; its first byte says which listener and whether a token is needed.
 * What is answered is a problem in JSON, or the request has all that its handler needs.
 */
#include "../../base/http.c" /* its parsers are its own */

#include "handlers.h"
#include "json.h"
#include "operators.h"
#include "shop_request.h"
#include "shop_routes.h"
#include "target.h"

static const char token[] = "0123456789abcdef";
static struct service service;

static void begin(void)
{
    static int begun;
    if (begun++ > 0)
        return;
    struct setting setting = {.rung = dlock_rungs(NULL)};
    mode_init(&service.mode, &setting);
    service.config.instance = strdup("a");
    service.config.enable_failpoints = true;
    service.config.admin_writes = true;
    service.env.config = &service.config;
    service.env.mode = &service.mode;
    idempotency_init(&service.keys);
    service.env.failpoints = failpoints_new("");
    atomic_store(&service.draining, true); /* changes of the stock are read, and then refused */
    REQUIRE(service.config.instance != NULL && service.env.failpoints != NULL);
}

/* Cuts the line off; the rest, or NULL. */
static char *cut_line(char *line)
{
    char *end = strchr(line, '\n');
    if (end != NULL)
        *end++ = '\0';
    return end;
}

static char *word(char **at)
{
    char *found = *at;
    *at += strcspn(*at, " ");
    if (**at != '\0')
        *(*at)++ = '\0';
    return found;
}

static void check_answer(const struct request *request)
{
    const struct answer *answer = &request->answer;
    REQUIRE(answer->status >= 200 && answer->status <= 599 &&
            strlen(answer->body) == answer->body_size);
    if (answer->body_size == 0 || strstr(answer->content_type, "json") == NULL)
        return;
    cJSON *json = cJSON_Parse(answer->body);
    REQUIRE(cJSON_IsObject(json));
    cJSON_Delete(json);
}

/* What reads the body, and changes nothing but a failpoint. */
static void handle(struct request *request)
{
    const struct route *route = request->route;
    if (route->accept == shop_accept_set || route->accept == shop_accept_add ||
        route->accept == operators_put_failpoint) {
        route->accept(&service, request);
        REQUIRE(request->answer.status != 0);
    } else if (route->takes_body) {
        cJSON_Delete(json_body(request, "{}"));
    }
}

static void read_request(struct exchange *exchange, char *text, const char *end)
{
    struct request *request = exchange->request;
    char *rest = cut_line(text);
    request->method = method_of(word(&text));
    char *target = word(&text);
    const char *version = text;
    exchange->too_long = strlen(target) > REQUEST_URL_MAX;
    snprintf(exchange->target, REQUEST_URL_MAX + 1, "%s", target);
    while (rest != NULL && *rest != '\n' && *rest != '\0') {
        char *header = rest;
        rest = cut_line(rest);
        char *value = strchr(header, ':');
        if (value != NULL)
            *value++ = '\0';
        take_header(exchange, MHD_HEADER_KIND, header,
                    value != NULL ? value + strspn(value, " ") : NULL);
    }
    if (request->id[0] == '\0')
        make_request_id(exchange->http, request->id);
    check_head(exchange, version);
    bool whole = true;
    for (const char *body = rest != NULL ? rest + 1 : end; body < end && whole; body += 7)
        whole = take_body(exchange, body, end - body < 7 ? (size_t)(end - body) : 7);
    if (whole && request->answer.status == 0)
        check_body(exchange);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    begin();
    char *text = copy_text(data + 1, size - 1);
    struct http *http = calloc(1, sizeof *http);
    REQUIRE(http != NULL);
    http->options.listener = data[0] & 1 ? LISTENER_ADMIN : LISTENER_PUBLIC;
    http->options.routes = &shop_routes;
    http->options.request_size = sizeof(struct shop_request);
    http->options.take_key = shop_routes_take_key;
    http->options.token = data[0] & 2 ? token : "";
    http->options.address = "127.0.0.1:8001";
    struct exchange *exchange = exchange_new(http, REQUEST_URL_MAX);
    REQUIRE(exchange != NULL);
    struct request *request = exchange->request;
    const struct sale *sale = shop_request_sale(request);
    read_request(exchange, text, text + size - 1);
    REQUIRE(is_request_id(request->id));
    if (request->answer.status == 0) {
        REQUIRE(request->route != NULL && request->route->listener == http->options.listener);
        REQUIRE(strchr(request->route->path, '{') == NULL || sale_is_item(sale->item));
        REQUIRE(request->route->parameters == NULL || request->route->method == METHOD_GET ||
                (sale->quantity >= 1 && sale->quantity <= QUANTITY_MAX));
        REQUIRE(request->route->takes_body == (request->body_size > 0));
        handle(request);
    }
    if (request->answer.status != 0)
        check_answer(request);
    free(request->answer.long_body);
    free(request->body);
    free(exchange);
    free(http);
    free(text);
    return 0;
}
