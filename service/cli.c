/* SPDX-License-Identifier: Apache-2.0
 *
 * See cli.h.
 */
#include "cli.h"

#include "net.h"
#include "problem.h"

#include <stdlib.h>

#define HEALTHCHECK_MS 3000

static int print_json(cJSON *json)
{
    char *text = json != NULL ? cJSON_Print(json) : NULL;
    if (text != NULL)
        puts(text);
    cJSON_Delete(json);
    free(text);
    return text != NULL ? 0 : 1;
}

static void add_names(cJSON *to, const char *name, bool flawed, const char *adds, const char *flaw)
{
    cJSON_AddStringToObject(to, "name", name);
    cJSON_AddBoolToObject(to, "flawed", flawed);
    cJSON_AddStringToObject(to, "adds", adds);
    cJSON_AddStringToObject(to, "flaw", flaw);
}

static void add_rung(cJSON *array, const struct dlock_rung *rung)
{
    cJSON *to = cJSON_CreateObject();
    cJSON_AddItemToArray(array, to);
    add_names(to, rung->name, rung->flawed, rung->adds, rung->flaw);
    cJSON_AddBoolToObject(to, "distributed", rung->distributed);
    cJSON_AddBoolToObject(to, "expires", rung->expires);
    cJSON_AddBoolToObject(to, "renewed", rung->renewed);
    cJSON_AddBoolToObject(to, "reentrant", rung->reentrant);
    cJSON_AddBoolToObject(to, "handoff", rung->handoff);
    cJSON_AddBoolToObject(to, "tokens", rung->tokens);
    cJSON_AddBoolToObject(to, "shared", rung->shared);
    cJSON_AddBoolToObject(to, "quorum", rung->quorum);
    cJSON_AddStringToObject(to, "engine", rung->engine);
}

static void add_write(cJSON *array, const struct write_way *way)
{
    cJSON *to = cJSON_CreateObject();
    cJSON_AddItemToArray(array, to);
    add_names(to, way->name, way->flawed, way->adds, way->flaw);
    cJSON_AddStringToObject(to, "rung", way->lock);
}

static cJSON *rungs_json(void)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    cJSON *json = cJSON_CreateObject();
    cJSON *array = cJSON_AddArrayToObject(json, "rungs");
    for (size_t i = 0; i < count; i++)
        add_rung(array, &rungs[i]);
    array = cJSON_AddArrayToObject(json, "writes");
    for (int i = 0; i < WRITE_COUNT; i++)
        add_write(array, &write_ways[i]);
    return json;
}

static int healthcheck(const char *url)
{
    char error[NET_ERROR_MAX] = "";
    int status = net_get(url, HEALTHCHECK_MS, error);
    if (status == 0)
        fprintf(stderr, "inventoryd: %s\n", error);
    else if (status != 200)
        fprintf(stderr, "inventoryd: %s answers %d, not 200\n", url, status);
    return status == 200 ? 0 : 1;
}

int cli_act(const struct config *config, const struct config_request *request)
{
    switch (request->action) {
    case CONFIG_PRINT:
        return print_json(config_json(config));
    case CONFIG_PRINT_RUNGS:
        return print_json(rungs_json());
    case CONFIG_HELP:
        config_help(stdout);
        return 0;
    case CONFIG_HELP_MARKDOWN:
        config_help_markdown(stdout);
        return 0;
    case CONFIG_HELP_PROBLEMS:
        problem_help_markdown(stdout);
        return 0;
    case CONFIG_VERSION:
        puts("inventoryd " DLOCK_VERSION);
        return 0;
    default:
        return healthcheck(request->url);
    }
}
