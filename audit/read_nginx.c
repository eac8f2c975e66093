/* SPDX-License-Identifier: Apache-2.0
 *
 * nginx.log: what passed through nginx. Only sales count: POST /inventory/{item}/sale.
 */
#include "read.h"
#include "source.h"

#include <errno.h>
#include <string.h>

static bool is_sale(const char *method, const char *uri)
{
    static const char tail[] = "/sale";
    size_t length = strcspn(uri, "?");
    return strcmp(method, "POST") == 0 && length >= sizeof tail - 1 &&
           memcmp(uri + length - (sizeof tail - 1), tail, sizeof tail - 1) == 0;
}

static void read_entry(struct source *source, int64_t line, const cJSON *json)
{
    char error[JSON_ERROR_MAX];
    const char *id = NULL;
    const char *method = NULL;
    const char *uri = NULL;
    int64_t status = 0;
    if (!json_text(json, "request", JSON_REQUIRED, &id, error) ||
        !json_text(json, "method", JSON_REQUIRED, &method, error) ||
        !json_text(json, "uri", JSON_REQUIRED, &uri, error) ||
        !json_int(json, "status", JSON_REQUIRED, 0, 999, &status, error)) {
        complain(source, line, "%s", error);
        return;
    }
    if (!is_sale(method, uri))
        return;
    size_t place = run_request(source->run, id);
    if (place == NONE) {
        complain(source, line, "more than %d requests; a run must have fewer", REQUESTS_MAX);
        return;
    }
    struct request *request = &source->run->requests[place];
    if (request->proxied++ > 0)
        complain(source, line, "request %.60s is there twice; an id must be used once", id);
    request->nginx_status = (int)status;
}

void read_nginx(struct run *run)
{
    struct source source = {.run = run, .file = "nginx.log"};
    struct json_lines lines = {.file = NULL};
    char path[PATH_MAX_BYTES];
    if (run->asked.direct)
        return;
    if (!source_path(run, source.file, path) || !json_lines_open(&lines, path)) {
        complain(&source, 0, "cannot be opened: %s; it must be nginx's log of this run",
                 strerror(errno));
    } else {
        run->nginx_read = true;
        while (json_lines_next(&lines)) {
            char error[JSON_ERROR_MAX];
            cJSON *json = json_line(&lines, error);
            if (json == NULL)
                complain(&source, lines.number, "%s", error);
            else
                read_entry(&source, lines.number, json);
            cJSON_Delete(json);
        }
    }
    source_close(&source);
    json_lines_close(&lines);
}
