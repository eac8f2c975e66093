/* SPDX-License-Identifier: Apache-2.0
 *
 * See print_rungs.h.
 */
#include "print_rungs.h"

#include "cli.h"
#include "write.h"

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

int print_rungs(void)
{
    return cli_print(rungs_json());
}
