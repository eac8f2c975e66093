/* SPDX-License-Identifier: Apache-2.0
 *
 * See operators.h.
 */
#include "operators.h"

#include "http.h"
#include "json.h"
#include "program.h"

#include <dlock.h>
#include <hiredis/hiredis.h>

void operators_live(struct service *service, struct request *request)
{
    answer_json(request, 200, "{\"live\":true,\"instance\":\"%s\"}",
                program.common(service)->instance);
}

void operators_version(struct service *service, struct request *request)
{
    answer_json(request, 200,
                "{\"name\":\"%s\",\"version\":\"%s\",\"instance\":\"%s\",\"dlock\":\"%s\","
                "\"libmicrohttpd\":\"%s\",\"hiredis\":\"%d.%d.%d\",\"cjson\":\"%s\"}",
                program.name, DLOCK_VERSION, program.common(service)->instance, dlock_version(),
                http_version(), HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH, cJSON_Version());
}

void operators_config(struct service *service, struct request *request)
{
    json_answer(request, settings_json(program.common(service)));
}

static bool has_failpoints(struct service *service, struct request *request)
{
    if (program.failpoints(service) == NULL)
        answer_problem(request, PROBLEM_FAILPOINTS_OFF,
                       "start the instance with --enable-failpoints, for demonstrations");
    return program.failpoints(service) != NULL;
}

void operators_get_failpoints(struct service *service, struct request *request)
{
    if (!has_failpoints(service, request))
        return;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, "failpoints", failpoints_json(program.failpoints(service)));
    cJSON_AddStringToObject(json, "instance", program.common(service)->instance);
    json_answer(request, json);
}

void operators_put_failpoint(struct service *service, struct request *request)
{
    char error[FAILPOINT_ERROR_MAX], example[FAILPOINT_NAME_MAX + 40];
    if (!has_failpoints(service, request))
        return;
    snprintf(example, sizeof example, "{\"point\":\"%s\",\"action\":\"pause\"}",
             program.example_point);
    cJSON *json = json_body(request, example);
    if (json == NULL)
        return;
    const char *point = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "point"));
    const char *action = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "action"));
    if (point == NULL || action == NULL || cJSON_GetArraySize(json) != 2)
        answer_problem(request, PROBLEM_INVALID_VALUE,
                       "the body must be "
                       "{\"point\":\"...\",\"action\":\"...\"}, both texts");
    else if (!failpoints_set(program.failpoints(service), point, action, error))
        answer_problem(request, PROBLEM_INVALID_VALUE, "%s", error);
    else
        operators_get_failpoints(service, request);
    cJSON_Delete(json);
}
