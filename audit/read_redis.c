/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads redis.json: the stock and the lock keys in Redis, before and after the run.
 */
#include "json.h"
#include "memory.h"
#include "read.h"
#include "rules.h"
#include "source.h"

#include <string.h>

static void read_lock(struct source *source, const char *when, const struct item *item,
                      const cJSON *lock, struct redis_lock *read)
{
    char error[JSON_ERROR_MAX];
    const char *type = NULL;
    int64_t pttl_ms = 0;
    if (!json_text(lock, "type", JSON_REQUIRED, &type, error) ||
        !json_int(lock, "pttl_ms", JSON_REQUIRED, -2, JSON_EXACT_MAX, &pttl_ms, error)) {
        complain(source, 0, "%s, lock of %.60s: %s", when, item->name, error);
        return;
    }
    read->there = strcmp(type, "none") != 0;
    read->pttl_ms = pttl_ms;
}

/* One lock, or a list with that of each segment. What is said of the item's lock holds for one of
 * them, if possible for one that never expires. */
static void read_locks(struct source *source, const char *when, const struct item *item,
                       const cJSON *json, struct redis_side *side)
{
    const cJSON *entry = NULL;
    struct redis_lock one = {.there = false, .pttl_ms = 0};
    if (cJSON_IsArray(json)) {
        side->locks = memory_new((size_t)cJSON_GetArraySize(json), sizeof *side->locks);
        cJSON_ArrayForEach(entry, json)
            read_lock(source, when, item, entry, &side->locks[side->lock_count++]);
    } else {
        read_lock(source, when, item, json, &one);
    }
    for (size_t i = 0; i < side->lock_count; i++) {
        if (side->locks[i].there && (!one.there || side->locks[i].pttl_ms == -1))
            one = side->locks[i];
    }
    side->lock_there = one.there;
    side->lock_pttl_ms = one.pttl_ms;
}

static bool is_lock_list(const cJSON *json)
{
    int size = cJSON_IsArray(json) ? cJSON_GetArraySize(json) : 0;
    return cJSON_IsObject(json) || (size >= 1 && size <= SEGMENTS_MAX);
}

void redis_missing(struct source *source, const char *when, const char *what,
                   const struct item *item)
{
    complain(source, 0, "\"%s\" does not state the %s of %.60s; it must, as {%s\"pttl_ms\":-2}}}",
             when, what, item->name, source->run->rules->redis);
}

static void read_side(struct source *source, const cJSON *json, enum moment moment)
{
    struct run *run = source->run;
    const char *when = moment == BEFORE ? "before" : "after";
    const cJSON *side_json = cJSON_GetObjectItemCaseSensitive(json, when);
    const cJSON *locks = cJSON_GetObjectItemCaseSensitive(side_json, "locks");
    for (size_t i = 0; i < run->item_count; i++) {
        struct item *item = &run->items[i];
        struct redis_side *side = &item->redis[moment];
        run->rules->read_redis(source, side_json, when, item, side);
        const cJSON *lock = cJSON_GetObjectItemCaseSensitive(locks, item->name);
        if (is_lock_list(lock))
            read_locks(source, when, item, lock, side);
        else
            redis_missing(source, when, "lock", item);
    }
}

/* Optional: what each segment of the stocks had. */
static void read_parts(struct source *source, const cJSON *json)
{
    struct run *run = source->run;
    const cJSON *before = cJSON_GetObjectItemCaseSensitive(json, "before");
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(before, "parts");
    char error[JSON_ERROR_MAX];
    for (size_t i = 0; i < run->item_count; i++) {
        struct item *item = &run->items[i];
        if (!read_layout(run, parts, item->name, item->redis[BEFORE].stock, &item->laid, error))
            complain(source, 0, "before, parts: %s", error);
    }
}

/* Optional: how many commands Redis had served, before and after. It counts only if both are there.
 */
static void read_commands(struct source *source, const cJSON *json)
{
    int64_t before = NOT_KNOWN;
    int64_t after = NOT_KNOWN;
    char error[JSON_ERROR_MAX];
    if (!json_int(cJSON_GetObjectItemCaseSensitive(json, "before"), "commands", JSON_OPTIONAL, 0,
                  JSON_EXACT_MAX, &before, error) ||
        !json_int(cJSON_GetObjectItemCaseSensitive(json, "after"), "commands", JSON_OPTIONAL, 0,
                  JSON_EXACT_MAX, &after, error))
        complain(source, 0, "%s", error);
    else if (before != NOT_KNOWN && after >= before)
        source->run->redis_commands = after - before;
}

void read_redis(struct run *run)
{
    struct source source = {.run = run, .file = "redis.json", .rank = RESULT_INCOMPLETE};
    char path[PATH_MAX_BYTES];
    char error[JSON_ERROR_MAX] = "the folder's path is too long";
    cJSON *json = source_path(run, source.file, path) ? json_file(path, error) : NULL;
    if (json == NULL) {
        complain(&source, 0, "%s", error);
    } else {
        read_side(&source, json, BEFORE);
        read_side(&source, json, AFTER);
        read_parts(&source, json);
        read_commands(&source, json);
    }
    source_close(&source);
    cJSON_Delete(json);
}
