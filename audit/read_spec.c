/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads run.json: what was asked for.
 */
#include "memory.h"
#include "read.h"
#include "rules.h"
#include "source.h"
#include "text.h"

#include <math.h>
#include <string.h>

static bool read_instances(struct run *run, char error[JSON_ERROR_MAX])
{
    struct run_spec *spec = &run->spec;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(spec->json, "instances");
    const cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, list) {
        if (!cJSON_IsString(entry) || entry->valuestring[0] == '\0' ||
            spec->instance_count == INSTANCES_MAX)
            break;
        text_clean(entry->valuestring);
        if (run_instance(run, entry->valuestring) != NONE) {
            snprintf(error, JSON_ERROR_MAX,
                     "\"instances\": %.60s is there twice; it must be there once",
                     entry->valuestring);
            return false;
        }
        spec->instances[spec->instance_count++] = entry->valuestring;
    }
    if (!cJSON_IsArray(list) || spec->instance_count == 0 || entry != NULL) {
        snprintf(error, JSON_ERROR_MAX, "\"instances\" must be a list of 1 to %d names",
                 INSTANCES_MAX);
        return false;
    }
    return true;
}

static bool read_items(struct run *run, char error[JSON_ERROR_MAX])
{
    const cJSON *items = cJSON_GetObjectItemCaseSensitive(run->spec.json, "items");
    int size = cJSON_IsObject(items) ? cJSON_GetArraySize(items) : 0;
    if (size < 1 || size > ITEMS_MAX) {
        snprintf(error, JSON_ERROR_MAX, "\"items\" must be an object of 1 to %d items and their %s",
                 ITEMS_MAX, run->rules->items);
        return false;
    }
    run->items = memory_new((size_t)size, sizeof *run->items);
    cJSON *entry = NULL;
    cJSON_ArrayForEach(entry, items) {
        double stock = entry->valuedouble;
        text_clean(entry->string);
        if (!cJSON_IsNumber(entry) || !(stock >= 0 && stock <= (double)UNITS_MAX) ||
            floor(stock) < stock || names_add(&run->item_names, entry->string) != run->item_count) {
            snprintf(error, JSON_ERROR_MAX,
                     "\"items\": %.60s must be there once and hold a whole "
                     "number from 0 to 10^12",
                     entry->string);
            return false;
        }
        run->items[run->item_count++] = (struct item){
            .name = entry->string,
            .stock = (int64_t)stock,
            .lock = NO_NAME,
            .began = NOT_KNOWN,
            .laid = {.parts = NONE},
            .redis = {{.stock = NOT_KNOWN, .queued = NOT_KNOWN},
                      {.stock = NOT_KNOWN, .queued = NOT_KNOWN}},
        };
    }
    return true;
}

static bool read_expect(struct run_spec *spec, char error[JSON_ERROR_MAX])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(spec->json, "expect");
    if (list == NULL || cJSON_IsNull(list))
        return true;
    const cJSON *entry = NULL;
    enum result result = RESULT_OK;
    cJSON_ArrayForEach(entry, list) {
        if (!cJSON_IsString(entry) || !result_parse(entry->valuestring, &result))
            break;
        spec->expect |= 1U << result;
    }
    if (!cJSON_IsArray(list) || spec->expect == 0 || entry != NULL) {
        snprintf(error, JSON_ERROR_MAX,
                 "\"expect\" must be null or a list of results, of: ok, oversold, undersold, "
                 "stale, unbalanced, repeated, lost_task, stampede, overlap, overtaken, "
                 "unfinished, deadlock, inconclusive");
        return false;
    }
    spec->expect_given = true;
    return true;
}

static bool is_list(const cJSON *list, const char *field, int most, const char *example,
                    char error[JSON_ERROR_MAX])
{
    if (cJSON_IsArray(list) && cJSON_GetArraySize(list) <= most)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"%s\" must be a list of at most %d, as %s", field, most,
             example);
    return false;
}

static bool read_seen(struct run *run, char error[JSON_ERROR_MAX])
{
    struct run_spec *spec = &run->spec;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(spec->json, "annotations");
    const cJSON *entry = NULL;
    if (list == NULL)
        return true;
    if (!is_list(list, "annotations", SEEN_MAX, "[{\"t_ns\":1,\"text\":\"Redis dies\"}]", error))
        return false;
    cJSON_ArrayForEach(entry, list) {
        struct seen *seen = &spec->seen[spec->seen_count++];
        const char *killed = NULL;
        /* only the picture uses it, so json_int's precision is enough */
        if (!json_int(entry, "t_ns", JSON_REQUIRED, 0, JSON_TIME_MAX, &seen->t_ns, error) ||
            !json_text(entry, "text", JSON_REQUIRED, &seen->text, error) ||
            !json_text(entry, "killed", JSON_OPTIONAL, &killed, error))
            return false;
        seen->killed = killed != NULL ? run_instance(run, killed) : NONE;
        if (killed != NULL && seen->killed == NONE) {
            snprintf(error, JSON_ERROR_MAX, "\"killed\" is %.40s; it must be one of \"instances\"",
                     killed);
            return false;
        }
    }
    return true;
}

static bool read_lock_changes(struct run_spec *spec, char error[JSON_ERROR_MAX])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(spec->json, "lock_changes");
    const cJSON *entry = NULL;
    if (list == NULL)
        return true;
    if (!is_list(list, "lock_changes", LOCK_CHANGES_MAX,
                 "[{\"t_ns\":1,\"holder\":\"a1\",\"expires_ns\":500000000}]", error))
        return false;
    cJSON_ArrayForEach(entry, list) {
        struct lock_change *change = &spec->lock_changes[spec->lock_change_count++];
        *change = (struct lock_change){.expires_ns = NOT_STAMPED};
        if (!json_int(entry, "t_ns", JSON_REQUIRED, 0, JSON_TIME_MAX, &change->t_ns, error) ||
            !json_text(entry, "holder", JSON_OPTIONAL, &change->holder, error) ||
            !json_int(entry, "expires_ns", JSON_OPTIONAL, 0, JSON_TIME_MAX, &change->expires_ns,
                      error) ||
            !json_bool(entry, "session", JSON_OPTIONAL, &change->session, error))
            return false;
    }
    return true;
}

static bool read_numbers(struct run_spec *spec, char error[JSON_ERROR_MAX])
{
    spec->ttl_ms = 30000;
    spec->min_share = 0.5;
    if (!json_int(spec->json, "requests", JSON_REQUIRED, 0, REQUESTS_MAX, &spec->requests, error) ||
        !json_int(spec->json, "ttl_ms", JSON_OPTIONAL, 1, 86400000, &spec->ttl_ms, error) ||
        !json_real(spec->json, "min_share", JSON_OPTIONAL, &spec->min_share, error))
        return false;
    if (spec->min_share >= 0 && spec->min_share <= 1)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"min_share\" is %g; it must be from 0 to 1", spec->min_share);
    return false;
}

/* If "clients" is missing, check_clocks reports it. */
static bool read_clients(struct run_spec *spec, char error[JSON_ERROR_MAX])
{
    const cJSON *clients = cJSON_GetObjectItemCaseSensitive(spec->json, "clients");
    const char *clock = "";
    if (clients == NULL)
        return true;
    if (!json_text(clients, "boot_id", JSON_REQUIRED, &spec->clients.boot_id, error) ||
        !json_text(clients, "clock", JSON_REQUIRED, &clock, error) ||
        !json_int(clients, "slack_ms", JSON_REQUIRED, 0, 1000, &spec->clients.slack_ms, error))
        return false;
    if (strcmp(clock, "CLOCK_REALTIME") == 0)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"clients\": \"clock\" is %.60s; it must be CLOCK_REALTIME",
             clock);
    return false;
}

static bool find_rules(struct run *run, char error[JSON_ERROR_MAX])
{
    char names[64];
    const char *service = "shop";
    if (!json_text(run->spec.json, "service", JSON_OPTIONAL, &service, error))
        return false;
    run->rules = rules_find(service);
    if (run->rules != NULL)
        return true;
    rules_names(names, sizeof names);
    snprintf(error, JSON_ERROR_MAX, "\"service\" is %.60s; it must be one of %s", service, names);
    return false;
}

bool read_spec(struct run *run, char error[JSON_ERROR_MAX])
{
    char path[PATH_MAX_BYTES];
    struct run_spec *spec = &run->spec;
    if (!source_path(run, "run.json", path)) {
        snprintf(error, JSON_ERROR_MAX, "the folder's path is too long");
        return false;
    }
    spec->fault = "none";
    spec->on_conflict = "wait";
    spec->json = json_file(path, error);
    return spec->json != NULL && find_rules(run, error) &&
           json_text(spec->json, "run", JSON_REQUIRED, &spec->run, error) &&
           json_text(spec->json, "rung", JSON_REQUIRED, &spec->rung, error) &&
           run->rules->read_spec(run, error) &&
           json_text(spec->json, "fault", JSON_OPTIONAL, &spec->fault, error) &&
           json_bool(spec->json, "direct", JSON_OPTIONAL, &spec->direct, error) &&
           read_numbers(spec, error) && read_instances(run, error) && read_items(run, error) &&
           read_expect(spec, error) && read_seen(run, error) && read_lock_changes(spec, error) &&
           read_clients(spec, error);
}
