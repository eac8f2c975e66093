/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a restock: its intent, then one of three outcomes. It was
 * carried out, it was not, or its reply was lost. If an intent has no outcome, it may have been
 * carried out.
 */
#include "history.h"
#include "memory.h"

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

const struct intent *about_restock(struct reader *reader, struct record *record)
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
