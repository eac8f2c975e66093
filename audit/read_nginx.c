/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads nginx.log: what passed through nginx. The rules of the service say which requests count.
 */
#include "read.h"
#include "rules.h"
#include "source.h"

#include <string.h>

/* To how many upstreams nginx sent the request. Both lists hold one value for each attempt, as
 * "502, 200". An attempt that sent no byte got no connection. If bytes is "", every attempt counts.
 */
static unsigned nginx_count_sends(const char *statuses, const char *bytes)
{
    static const char between[] = ", :";
    bool by_bytes = bytes[0] != '\0';
    const char *word = by_bytes ? bytes : statuses;
    unsigned count = 0;
    while (*(word += strspn(word, between)) != '\0') {
        size_t length = strcspn(word, between);
        count += !(by_bytes && length == 1 && (*word == '0' || *word == '-'));
        word += length;
    }
    return count;
}

/* Adds the item to a key from sale.jtl that lacks it: a key belongs to an item. */
static void take_item(struct run *run, struct request *request, uint32_t item)
{
    request->asked_item = item;
    if (request->key != NONE && request->client_item == NONE)
        request->key = keys_add(run, item, keys_text(run, request->key));
}

/* Takes item and quantity from nginx's uri where sale.jtl has no URL, or a shorter one. is_whole:
 * the uri has a query. A log may leave it out. */
static void nginx_take_wish(struct source *source, int64_t line, struct request *request,
                            struct wish wish, bool is_whole)
{
    bool same_item = request->asked_item == NONE || wish.item == request->asked_item;
    bool same_quantity = request->asked_quantity == NOT_KNOWN || !is_whole ||
                         wish.quantity == request->asked_quantity;
    if (!same_item || !same_quantity)
        complain(source, line, "its uri asks for another %s than the URL in %s",
                 same_item ? "quantity" : "item", source->run->rules->samples);
    if (request->asked_item == NONE)
        take_item(source->run, request, wish.item);
    request->elsewhere |= wish.elsewhere;
    if (request->asked_quantity == NOT_KNOWN && wish.quantity != NOT_KNOWN)
        request->quantity = request->asked_quantity = wish.quantity;
}

/* Whether no HTTP came on the connection: nginx names neither method nor uri, and sent nothing to
 * an upstream. */
static bool is_no_request(const cJSON *json)
{
    char error[JSON_ERROR_MAX];
    const char *method = NULL, *uri = NULL, *statuses = "", *bytes = "";
    return json_text(json, "method", JSON_OPTIONAL, &method, error) &&
           json_text(json, "uri", JSON_OPTIONAL, &uri, error) &&
           json_text(json, "upstream_status", JSON_OPTIONAL, &statuses, error) &&
           json_text(json, "upstream_bytes_sent", JSON_OPTIONAL, &bytes, error) && method != NULL &&
           method[0] == '\0' && uri != NULL && uri[0] == '\0' &&
           nginx_count_sends(statuses, bytes) == 0;
}

static void read_entry(struct source *source, int64_t line, const cJSON *json)
{
    char error[JSON_ERROR_MAX];
    const char *id = NULL;
    const char *method = NULL;
    const char *uri = NULL;
    const char *statuses = "";
    const char *bytes = "";
    int64_t status = 0;
    if (!json_text(json, "request", JSON_REQUIRED, &id, error) ||
        !json_text(json, "method", JSON_REQUIRED, &method, error) ||
        !json_text(json, "uri", JSON_REQUIRED, &uri, error) ||
        !json_text(json, "upstream_status", JSON_OPTIONAL, &statuses, error) ||
        !json_text(json, "upstream_bytes_sent", JSON_OPTIONAL, &bytes, error) ||
        !json_int(json, "status", JSON_REQUIRED, 0, 999, &status, error)) {
        if (!is_no_request(json))
            complain(source, line, "%s", error);
        return;
    }
    if (!source->run->rules->is_request(method, uri))
        return;
    size_t place = run_request(source->run, id);
    if (place == NONE) {
        complain(source, line, "more than %d requests; a run must have fewer", REQUESTS_MAX);
        return;
    }
    struct request *request = &source->run->requests[place];
    if (request->proxied)
        complain(source, line, "request %.60s is there twice; an id must be used once", id);
    request->proxied = true;
    request->nginx_status = (int16_t)status;
    nginx_take_wish(source, line, request, run_wish(source->run, uri), strchr(uri, '?') != NULL);
    request->sent = nginx_count_sends(statuses, bytes);
}

void read_nginx(struct run *run)
{
    struct source source = {.run = run, .file = "nginx.log", .rank = RESULT_INCONCLUSIVE};
    struct json_lines lines = {.file = NULL};
    char path[PATH_MAX_BYTES];
    char error[JSON_ERROR_MAX] = "the folder's path is too long";
    if (run->spec.direct)
        return;
    if (!source_path(run, source.file, path) || !json_lines_open(&lines, path, error)) {
        complain(&source, 0, "%s", error);
    } else {
        run->nginx_read = true;
        while (json_lines_next(&lines)) {
            cJSON *json = json_line(&lines, error);
            if (json == NULL)
                complain(&source, lines.number, "%s", error);
            else
                read_entry(&source, lines.number, json);
        }
    }
    source_close(&source);
    json_lines_close(&lines);
}
