/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a restock: its intent, then one of three outcomes. It was
 * carried out, it was not, or its reply was lost. If an intent has no outcome, it may have been
 * carried out.
 */
#include "history.h"
#include "memory.h"
#include "read.h"

#include <math.h>

static void add_intent(struct run *run, const char *id, const struct intent *intent)
{
    uint32_t number = names_add(&run->restock_ids, id);
    if (number == run->latest_intent_count)
        run->latest_intent = memory_grow(run->latest_intent, run->latest_intent_count++,
                                         &run->latest_intent_capacity, sizeof *run->latest_intent);
    run->latest_intent[number] = (uint32_t)run->intent_count;
    run->intents =
        memory_grow(run->intents, run->intent_count, &run->intent_capacity, sizeof *run->intents);
    run->intents[run->intent_count++] = *intent;
}

static void read_intent(struct reader *reader, struct record *record)
{
    const char *id = NULL, *item = NULL;
    int64_t add = NOT_KNOWN, set = NOT_KNOWN;
    if (!json_text(record->json, "request", JSON_REQUIRED, &id, record->error) ||
        !json_text(record->json, "item", JSON_REQUIRED, &item, record->error) ||
        !json_int(record->json, "add", JSON_OPTIONAL, 1, UNITS_MAX, &add, record->error) ||
        !json_int(record->json, "set", JSON_OPTIONAL, 0, UNITS_MAX, &set, record->error)) {
        wrong(reader, record);
        return;
    }
    if ((add == NOT_KNOWN) == (set == NOT_KNOWN))
        complain(&reader->source, record->line,
                 "a restock with both of \"add\" and \"set\", or none; it must have one");
    else
        add_intent(reader->run, id,
                   &(struct intent){
                       .t_ns = record->t_ns,
                       .history = reader->index,
                       .item = run_item(reader->run, item),
                       .sets = set != NOT_KNOWN,
                       .units = set != NOT_KNOWN ? set : add,
                   });
}

/* The latest intent under the line's request id, if it has no outcome yet; otherwise NULL. */
static struct intent *open_intent(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    const char *id = "";
    json_text(record->json, "request", JSON_OPTIONAL, &id, record->error);
    uint32_t number = names_find(&run->restock_ids, id);
    if (number == NO_NAME)
        return NULL;
    struct intent *intent = &run->intents[run->latest_intent[number]];
    return intent->state == INTENT_OPEN && intent->history == reader->index ? intent : NULL;
}

static const struct intent *about_intent(struct reader *reader, struct record *record)
{
    if (record->event == EVENT_restock_intent) {
        read_intent(reader, record);
        return NULL;
    }
    struct intent *intent = open_intent(reader, record);
    if (intent != NULL)
        intent->state = record->event == EVENT_restock_unknown ? INTENT_LOST : INTENT_SETTLED;
    else if (record->event != EVENT_restock)
        complain(&reader->source, record->line,
                 "%s of a request that has no open restock_intent; that must come first",
                 events[record->event].name);
    return intent;
}

/* ---- How the stock lay ---------------------------------------------------------------------- */

bool read_layout(struct run *run, const cJSON *object, const char *field, int64_t sum,
                 struct layout *layout, char error[JSON_ERROR_MAX])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(object, field);
    const cJSON *entry = NULL;
    const size_t first = run->part_count;
    int64_t units = 0, counted = 0; /* a segment below zero counts as an empty one, or as it is */
    int count = 0;
    if (list == NULL || cJSON_IsNull(list))
        return true;
    cJSON_ArrayForEach(entry, list) {
        double number = entry->valuedouble;
        if (!cJSON_IsNumber(entry) || count == SEGMENTS_MAX || floor(number) < number ||
            fabs(number) > (double)UNITS_MAX)
            break;
        run->parts =
            memory_grow(run->parts, run->part_count, &run->part_capacity, sizeof *run->parts);
        run->parts[run->part_count++] = (int64_t)number;
        units += (int64_t)number;
        counted += number > 0 ? (int64_t)number : 0;
        count++;
    }
    if (cJSON_IsArray(list) && entry == NULL && count > 0 &&
        (sum == NOT_KNOWN || units == sum || counted == sum)) {
        *layout = (struct layout){.parts = (uint32_t)first, .segments = (uint8_t)count};
        return true;
    }
    run->part_count = first;
    *layout = (struct layout){.parts = NONE};
    snprintf(error, JSON_ERROR_MAX,
             "\"%.60s\" must be a list of 1 to %d whole numbers which add up to the stock%s", field,
             SEGMENTS_MAX, entry == NULL && count > 0 ? "; they do not" : "");
    return false;
}

static bool is_list_there(const cJSON *json, const char *field)
{
    return cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(json, field));
}

static bool read_layouts(struct reader *reader, struct record *record, struct restock *restock)
{
    struct run *run = reader->run;
    const uint8_t segments = reader->history->segments;
    const bool told = is_list_there(record->json, "parts_after") &&
                      is_list_there(record->json, "parts_before") == (restock->before != NOT_KNOWN);
    if (!read_layout(run, record->json, "parts_before", restock->before, &restock->laid[BEFORE],
                     record->error) ||
        !read_layout(run, record->json, "parts_after", restock->after, &restock->laid[AFTER],
                     record->error)) {
        restock->laid[AFTER] = (struct layout){.parts = NONE};
        return false;
    }
    if (!reader->history->told_segments ||
        ((told || segments == 1) && restock->laid[AFTER].segments == segments))
        return true;
    restock->laid[AFTER] = (struct layout){.parts = NONE};
    snprintf(record->error, sizeof record->error,
             "a restock that does not say how it laid the stock over %d segments; \"parts_after\" "
             "must, and \"parts_before\" how it lay",
             segments);
    return false;
}

/* Whether the restock did what its intent says. True if the intent is not known. */
static bool is_as_wanted(const struct restock *restock, const struct intent *intent)
{
    if (intent == NULL)
        return true;
    if (intent->item != restock->item)
        return false;
    return intent->sets
               ? restock->after == intent->units
               : restock->before == NOT_KNOWN || restock->after - restock->before == intent->units;
}

static void add_restock(struct reader *reader, struct record *record, const struct intent *intent)
{
    struct run *run = reader->run;
    const char *item = NULL;
    struct restock restock = {.t_ns = record->t_ns,
                              .began_ns = intent != NULL ? intent->t_ns : NOT_STAMPED,
                              .history = reader->index,
                              .before = NOT_KNOWN,
                              .laid = {{NONE, 1}, {NONE, 1}}};
    if (!json_text(record->json, "item", JSON_REQUIRED, &item, record->error) ||
        !json_int(record->json, "stock_after", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX, &restock.after,
                  record->error) ||
        !json_int(record->json, "stock_before", JSON_OPTIONAL, -UNITS_MAX, UNITS_MAX,
                  &restock.before, record->error)) {
        wrong(reader, record);
        return;
    }
    if (!read_layouts(reader, record, &restock))
        wrong(reader, record);
    restock.item = run_item(run, item);
    if (!is_as_wanted(&restock, intent))
        complain(
            &reader->source, record->line,
            "a restock of %.60s that does something else than its restock_intent says; it must do "
            "the same",
            item);
    if (restock.item == NONE && run->spec.restocked)
        complain(&reader->source, record->line,
                 "a restock of %.60s, which run.json does not name; \"items\" must name it", item);
    if (restock.item == NONE)
        return; /* it is not on sale in this run */
    run->restocks = memory_grow(run->restocks, run->restock_count, &run->restock_capacity,
                                sizeof *run->restocks);
    run->restocks[run->restock_count++] = restock;
}

void about_restock(struct reader *reader, struct record *record)
{
    const struct intent *intent = about_intent(reader, record);
    if (record->event == EVENT_restock)
        add_restock(reader, record, intent);
}
