/* SPDX-License-Identifier: Apache-2.0
 *
 * Sales that were accepted into a queue. Each has an id, which joins what its buyer was told, who
 * accepted it, who worked at it and how it ended.
 */
#include "check.h"
#include "memory.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

uint32_t entries_add(struct run *run, const char *id)
{
    uint32_t number = names_add(&run->sale_ids, id);
    if (number < run->entry_count)
        return number;
    run->entries =
        memory_grow(run->entries, run->entry_count, &run->entry_capacity, sizeof *run->entries);
    run->entries[run->entry_count++] = (struct entry){.request = NONE,
                                                      .accepted_by = NONE,
                                                      .taken_by = NONE,
                                                      .decided_by = NONE,
                                                      .decided_in = NONE,
                                                      .item = NONE,
                                                      .taken_ns = NOT_STAMPED,
                                                      .decided_ns = NOT_STAMPED,
                                                      .told_unit = NOT_KNOWN,
                                                      .told_left = NOT_KNOWN};
    return number;
}

const char *entries_id(const struct run *run, size_t entry)
{
    return names_text(&run->sale_ids, (uint32_t)entry);
}

bool entries_place(const char *text, struct place *place)
{
    char ms[24];
    const char *dash = strchr(text, '-');
    if (dash == NULL || (size_t)(dash - text) >= sizeof ms)
        return false;
    memcpy(ms, text, (size_t)(dash - text));
    ms[dash - text] = '\0';
    return text_int(ms, &place->ms) && text_int(dash + 1, &place->number) && place->ms >= 0 &&
           place->number >= 0;
}

bool entries_is_placed(const struct place *place)
{
    return place->ms != 0 || place->number != 0;
}

int entries_by_place(const struct place *one, const struct place *two)
{
    if (one->ms != two->ms)
        return one->ms < two->ms ? -1 : 1;
    return (one->number > two->number) - (one->number < two->number);
}

bool entries_is_told(const struct entry *entry)
{
    return entry->told_code == 200 || entry->told_code == 409;
}

/* Whether an instance that wrote no `end` had taken it: it may have decided it, and recorded
 * nothing. */
static void entries_find_lost(struct run *run)
{
    for (size_t i = 0; i < run->take_count; i++) {
        const struct take *take = &run->takes[i];
        if (!run->histories[take->history].ended)
            run->entries[take->entry].may_be_lost = true;
    }
}

/* If nobody took it, it belongs to the first request that was told its id. */
static void entries_find_requests(struct run *run)
{
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->entry == NONE || run->entries[request->entry].taken)
            continue;
        struct entry *entry = &run->entries[request->entry];
        const struct request *other =
            entry->request == NONE ? NULL : &run->requests[entry->request];
        if (other == NULL || (!other->accepted && request->accepted) ||
            (request->accepted && request->invoke_ns < other->invoke_ns))
            entry->request = (uint32_t)i;
    }
}

void entries_settle(struct run *run)
{
    entries_find_lost(run);
    entries_find_requests(run);
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (request->entry == NONE)
            continue;
        struct entry *entry = &run->entries[request->entry];
        entry->accepted |= request->queued || request->client_queued;
        if (entry->request == i)
            entry->item = request->item;
    }
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        run->counts.accepted += entry->accepted;
        run->counts.handed_over += entry->accepted_by != NONE && entry->decided_by != NONE &&
                                   entry->accepted_by != entry->decided_by;
    }
}

/* Whether it may have its outcome all the same: an instance that was killed may have decided it
 * last, and Redis does not say that it is still in its queue. */
static bool entries_may_be_decided(const struct run *run, const struct entry *entry)
{
    int64_t queued = entry->item == NONE ? NOT_KNOWN : run->items[entry->item].redis[AFTER].queued;
    return !run->all_told && (queued == NOT_KNOWN ? entry->may_be_lost : queued == 0);
}

bool entries_is_unfinished(const struct run *run, const struct entry *entry)
{
    const bool sold =
        entry->request != NONE && run->requests[entry->request].outcome == OUTCOME_SOLD;
    return entry->accepted && entry->decisions == 0 && !sold && !entries_is_told(entry) &&
           !entries_may_be_decided(run, entry);
}
