/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about sales in a queue. The instance that works one off may be read
 * before the one that accepted it.
 */
#include "history.h"
#include "memory.h"

#include <stdio.h>
#include <string.h>

/* Joins the request with the sale of that id. */
static struct entry *queue_join(struct reader *reader, struct record *record,
                                struct request *request, const char *id)
{
    struct run *run = reader->run;
    const uint32_t number = entries_add(run, id);
    if (request->entry != NONE && request->entry != number)
        complain(&reader->source, record->line,
                 "request %.60s belongs to the accepted sales %.80s and %.80s; it must belong to "
                 "one",
                 run_request_id(run, record->request), entries_id(run, request->entry), id);
    request->entry = number;
    return &run->entries[number];
}

static void queue_take_place(struct reader *reader, struct record *record, struct entry *entry,
                             const char *text)
{
    struct place place = {0, 0};
    if (text == NULL)
        return; /* after a lost reply it is not known */
    if (!entries_place(text, &place))
        complain(&reader->source, record->line,
                 "\"entry\" is \"%.40s\"; it must be the number of an entry, as 1767268800123-0",
                 text);
    else if (entries_is_placed(&entry->place) && entries_by_place(&entry->place, &place) != 0)
        complain(&reader->source, record->line,
                 "entry %.40s of an accepted sale that has another one; it must have one", text);
    else
        entry->place = place;
}

static void queue_accepted(struct reader *reader, struct record *record, struct request *request)
{
    const char *id = NULL, *place = NULL;
    if (!json_text(record->json, "id", JSON_REQUIRED, &id, record->error) ||
        !json_text(record->json, "entry", JSON_OPTIONAL, &place, record->error)) {
        wrong(reader, record);
        return;
    }
    struct entry *entry = queue_join(reader, record, request, id);
    queue_take_place(reader, record, entry, place);
    request->queued = true;
    if (entry->accepted_by == NONE)
        entry->accepted_by = (uint32_t)reader->history->instance;
}

static void add_take(struct reader *reader, const struct record *record, uint32_t entry)
{
    struct run *run = reader->run;
    run->takes = memory_grow(run->takes, run->take_count, &run->take_capacity, sizeof *run->takes);
    run->takes[run->take_count++] =
        (struct take){.t_ns = record->t_ns, .entry = entry, .history = reader->index};
}

/* The instance is about to decide it, under the lock or because its life is over. */
static void queue_taken(struct reader *reader, struct record *record, struct request *request)
{
    const char *id = NULL, *place = NULL;
    int64_t quantity = request->quantity;
    if (!json_text(record->json, "id", JSON_REQUIRED, &id, record->error) ||
        !json_text(record->json, "entry", JSON_REQUIRED, &place, record->error) ||
        !json_int(record->json, "quantity", JSON_OPTIONAL, 1, UNITS_MAX, &quantity,
                  record->error)) {
        wrong(reader, record);
        return;
    }
    struct entry *entry = queue_join(reader, record, request, id);
    queue_take_place(reader, record, entry, place);
    if (entry->taken && entry->request != record->request)
        complain(&reader->source, record->line,
                 "accepted sale %.80s taken for request %.60s, and for another one; it must be of "
                 "one",
                 id, run_request_id(reader->run, record->request));
    if (request->accepted && quantity != request->quantity)
        complain(&reader->source, record->line,
                 "taken with %lld for request %.60s, which asked for %lld; they must be the same",
                 (long long)quantity, run_request_id(reader->run, record->request),
                 (long long)request->quantity);
    if (!request->accepted)
        request->quantity = quantity;
    request->taken = entry->taken = true;
    entry->request = record->request;
    entry->taken_by = reader->index;
    entry->latest_ns = record->t_ns;
    entry->ended = false;
    add_take(reader, record, request->entry);
}

void about_queue(struct reader *reader, struct record *record)
{
    struct request *request = &reader->run->requests[record->request];
    if (record->event == EVENT_accepted)
        queue_accepted(reader, record, request);
    else if (record->event == EVENT_taken)
        queue_taken(reader, record, request);
    /* after a `requeued` it is taken again */
}

bool is_worker_line(const struct reader *reader, const struct record *record,
                    const struct request *request)
{
    if (strcmp(reader->run->spec.on_conflict, "queue") != 0)
        return false;
    return record->event == EVENT_taken || record->event == EVENT_requeued ||
           (events[record->event].about == ABOUT_HOLD && !request->reads) ||
           cJSON_HasObjectItem(record->json, "entry");
}

bool queue_decide(struct reader *reader, const struct record *record, enum outcome outcome,
                  int64_t code)
{
    struct run *run = reader->run;
    struct request *request = &run->requests[record->request];
    struct entry *entry = request->taken ? &run->entries[request->entry] : NULL;
    if (entry == NULL) {
        complain(&reader->source, record->line,
                 "%s of request %.60s, which was not taken out of a queue; its taken must come "
                 "first",
                 events[record->event].name, run_request_id(run, record->request));
        return false;
    }
    if (entry->taken_by != reader->index || entry->ended) {
        complain(&reader->source, record->line,
                 "request %.60s ends a second time, with %s; each end must have its own taken",
                 run_request_id(run, record->request), events[record->event].name);
        return true;
    }
    entry->ended = true;
    if (entry->decisions++ == 0) {
        entry->code = (int16_t)code;
        entry->decided_ns = record->t_ns;
        entry->decided_by = (uint32_t)reader->history->instance;
        entry->decided_in = reader->index;
        entry->taken_ns = entry->latest_ns;
    }
    if (request->outcome == OUTCOME_SOLD)
        return true; /* of several outcomes a sale counts */
    request->outcome = outcome;
    request->outcome_ns = record->t_ns;
    request->code = (int16_t)code;
    return true;
}
