/* SPDX-License-Identifier: Apache-2.0
 *
 * Queue: a sale that was accepted (202) has one outcome, its buyer is told that one, and nobody
 * else's sale is processed. Per item the oldest accepted sale comes first. The step that decides a
 * sale lies between its `taken` and the record of its outcome. So it was overtaken if it was taken
 * only after a younger one's outcome was recorded. The units show the order, too: they only fall.
 */
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many sales show a fault, and the first one of them. */
struct shown {
    long long count;
    uint32_t first;
};

static void show(struct shown *shown, size_t number)
{
    if (shown->count++ == 0)
        shown->first = (uint32_t)number;
}

static const char *queue_request(const struct run *run, const struct entry *entry)
{
    return entry->request == NONE ? "?" : run_request_id(run, entry->request);
}

static const char *queue_item(const struct run *run, const struct entry *entry)
{
    return entry->item == NONE ? "?" : run->items[entry->item].name;
}

/* ---- One outcome ----------------------------------------------------------------------------- */

/* The sections that sold for the entry. Returns how many there are; sold[0] is the earliest. */
static size_t queue_find_sold(const struct run *run, const struct entry *entry,
                              const struct section *sold[2])
{
    size_t count = 0;
    if (entry->request == NONE)
        return 0;
    for (size_t i = run->requests[entry->request].section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (!section->sold)
            continue;
        if (count == 0 || section->at_ns[STAGE_WRITE] < sold[0]->at_ns[STAGE_WRITE]) {
            sold[1] = count > 0 ? sold[0] : NULL;
            sold[0] = section;
        } else if (count == 1 || section->at_ns[STAGE_WRITE] < sold[1]->at_ns[STAGE_WRITE]) {
            sold[1] = section;
        }
        count++;
    }
    return count;
}

/* If its buyer sent a key, check_keys counts these units. */
static void check_sold_again(struct run *run)
{
    struct shown shown = {0};
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        const struct section *sold[2];
        const size_t count = queue_find_sold(run, entry, sold);
        if (count < 2)
            continue;
        show(&shown, i);
        const struct request *request = &run->requests[entry->request];
        if (request->key == NONE)
            run->counts.duplicate_key_units += (int64_t)(count - 1) * request->quantity;
    }
    if (shown.count == 0)
        return;
    const struct entry *entry = &run->entries[shown.first];
    const struct section *sold[2] = {NULL, NULL};
    queue_find_sold(run, entry, sold);
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "accepted sales that were sold more than once: %lld; first: request %.60s for "
                 "%.80s got unit %lld of instance %.40s and unit %lld of instance %.40s",
                 shown.count, queue_request(run, entry), queue_item(run, entry),
                 (long long)sold[0]->unit, run->spec.instances[sold[0]->instance],
                 (long long)sold[1]->unit, run->spec.instances[sold[1]->instance]);
}

static void check_outcomes(struct run *run)
{
    struct shown shown = {0};
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        const struct section *sold[2];
        if (entry->decisions > 1 && queue_find_sold(run, entry, sold) < 2)
            show(&shown, i);
    }
    if (shown.count == 0)
        return;
    const struct entry *entry = &run->entries[shown.first];
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "accepted sales with more than one outcome: %lld; first: request %.60s for %.80s "
                 "has %u, the first of which is %d",
                 shown.count, queue_request(run, entry), queue_item(run, entry), entry->decisions,
                 entry->code);
}

/* ---- What the buyer was told ----------------------------------------------------------------- */

/* Whether a sale of the entry is what the client was told. */
static bool is_told_sale(const struct run *run, const struct entry *entry)
{
    for (size_t i = run->requests[entry->request].section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (section->sold && section->unit == entry->told_unit &&
            section->stock_after == entry->told_left)
            return true;
    }
    return false;
}

/* Whether the refusals of the entry have read another stock than the client was told. */
static bool is_other_stock(const struct run *run, const struct entry *entry)
{
    bool other = false;
    for (size_t i = run->requests[entry->request].section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (section->sold || section->stock_before == NOT_KNOWN)
            continue;
        if (section->stock_before == entry->told_left)
            return false;
        other = entry->told_left != NOT_KNOWN;
    }
    return other;
}

/* Whether the outcome that the client was told is none of the recorded ones. */
static bool is_told_otherwise(const struct run *run, const struct entry *entry)
{
    if (entry->told_twice)
        return true;
    if (!entries_is_told(entry) || entry->decisions == 0 || entry->request == NONE)
        return false;
    if (entry->told_code == 200)
        return !is_told_sale(run, entry);
    return (entry->code != 409 && entry->decisions == 1) || is_other_stock(run, entry);
}

static void check_told(struct run *run)
{
    struct shown shown = {0};
    for (size_t i = 0; i < run->entry_count; i++)
        if (is_told_otherwise(run, &run->entries[i]))
            show(&shown, i);
    if (shown.count == 0)
        return;
    const struct entry *entry = &run->entries[shown.first];
    char unit[40] = "";
    if (entry->told_unit != NOT_KNOWN)
        snprintf(unit, sizeof unit, " with unit %lld", (long long)entry->told_unit);
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "accepted sales whose buyer was told another outcome than there is: %lld; first: "
                 "request %.60s for %.80s was told %d%s",
                 shown.count, queue_request(run, entry), queue_item(run, entry), entry->told_code,
                 unit);
}

/* ---- Nobody accepted it ---------------------------------------------------------------------- */

/* Whether the instance that was asked said that nothing was sold, or wrote everything that it did,
 * and has not accepted it. One that was killed may have accepted it and recorded nothing. */
static bool was_never_accepted(const struct run *run, const struct entry *entry)
{
    const struct request *request = &run->requests[entry->request];
    if (request->queued || request->client_queued || request->doubted)
        return false;
    if (request->denied)
        return true;
    const int64_t before =
        entry->item == NONE ? NOT_KNOWN : run->items[entry->item].redis[BEFORE].queued;
    return request->accepted ? run_tells_all(run, request->instance, true)
                             : run->all_told && before == 0;
}

static void check_accepted(struct run *run)
{
    struct shown sold = {0}, unclear = {0};
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        if (!entry->taken || entry->decisions == 0)
            continue;
        const struct request *request = &run->requests[entry->request];
        if (was_never_accepted(run, entry))
            show(&sold, i);
        else if (!request->accepted)
            show(&unclear, i);
    }
    if (sold.count > 0)
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "sales of a queue that no instance had accepted: %lld; first: request %.60s "
                     "for %.80s",
                     sold.count, queue_request(run, &run->entries[sold.first]),
                     queue_item(run, &run->entries[sold.first]));
    if (unclear.count > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "sales of a queue whose request is in no history: %lld; first: request %.60s; "
                     "every one must have its invoke",
                     unclear.count, queue_request(run, &run->entries[unclear.first]));
}

/* ---- No outcome ------------------------------------------------------------------------------ */

/* By item: how many accepted sales have no outcome. */
static int64_t *queue_count_unfinished(const struct run *run)
{
    int64_t *unfinished = memory_new(run->item_count, sizeof *unfinished);
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        if (entry->item != NONE && entries_is_unfinished(run, entry))
            unfinished[entry->item]++;
    }
    return unfinished;
}

static void check_unfinished(struct run *run, const int64_t *unfinished)
{
    struct shown shown = {0};
    for (size_t i = 0; i < run->entry_count; i++)
        if (entries_is_unfinished(run, &run->entries[i]))
            show(&shown, i);
    run->counts.unfinished = shown.count;
    if (shown.count > 0)
        findings_add(&run->findings, RESULT_UNFINISHED,
                     "accepted sales (202) without an outcome at the end: %lld; first: request "
                     "%.60s for %.80s, sale %.100s",
                     shown.count, queue_request(run, &run->entries[shown.first]),
                     queue_item(run, &run->entries[shown.first]), entries_id(run, shown.first));
    for (size_t i = 0; i < run->item_count; i++) {
        const struct item *item = &run->items[i];
        const int64_t queued = item->redis[AFTER].queued;
        if (queued == NOT_KNOWN || queued <= unfinished[i])
            continue;
        run->counts.unfinished += queued - unfinished[i];
        findings_add(
            &run->findings, RESULT_UNFINISHED,
            "%.80s: %lld accepted sales are still in its queue after the run; %lld of them "
            "are in the histories",
            item->name, (long long)queued, (long long)unfinished[i]);
    }
}

/* ---- The order ------------------------------------------------------------------------------- */

static int queue_by_item_place(const void *a, const void *b)
{
    const struct entry *one = *(const struct entry *const *)a;
    const struct entry *two = *(const struct entry *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return entries_by_place(&one->place, &two->place);
}

/* Whether only sales have changed the item's stock by then, each by a script or DECRBY: then what
 * is left falls from one to the next. */
static bool queue_only_falls(const struct run *run, const struct section *section)
{
    const struct item *item = &run->items[section->item];
    return strcmp(run->spec.write, "set") != 0 && item->possible.count == 0 &&
           section->at_ns[STAGE_WRITE] < item->restocked_ns && !run->restocks_lost;
}

/* What the older ones of an item show. */
struct older {
    uint32_t item;
    int64_t taken_ns; /* the latest `taken` of one; NOT_STAMPED */
    int64_t left;     /* the least that a sale of one left; INT64_MAX */
};

static bool queue_is_timed(const struct run *run, const struct entry *entry)
{
    return entry->decided_in != NONE && run->histories[entry->decided_in].timed &&
           !run->requests[entry->request].mistimed;
}

/* Whether a younger one of the item was decided before one of the older ones. Adds it to these. */
static bool queue_overtakes(const struct run *run, const struct entry *entry, struct older *older,
                            bool stays)
{
    const struct section *sold[2];
    const bool timed = queue_is_timed(run, entry);
    bool overtakes =
        timed && entry->decided_ns != NOT_STAMPED && older->taken_ns > entry->decided_ns;
    if (queue_find_sold(run, entry, sold) == 1 && queue_only_falls(run, sold[0])) {
        overtakes |= sold[0]->stock_after > older->left;
        older->left = sold[0]->stock_after < older->left ? sold[0]->stock_after : older->left;
    }
    if (stays)
        older->taken_ns = INT64_MAX;
    else if (timed && entry->taken_ns != NOT_STAMPED && entry->taken_ns > older->taken_ns)
        older->taken_ns = entry->taken_ns;
    return overtakes;
}

static void check_places(struct run *run, const int64_t *unfinished)
{
    const struct entry **list = memory_new(run->entry_count, sizeof *list);
    struct older older = {.item = NONE};
    const struct entry *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        if (entry->item != NONE && entries_is_placed(&entry->place) &&
            (entry->taken || entries_is_unfinished(run, entry)))
            list[count++] = entry;
    }
    qsort(list, count, sizeof *list, queue_by_item_place);
    for (size_t i = 0; i < count; i++) {
        const struct entry *entry = list[i];
        if (entry->item != older.item)
            older = (struct older){entry->item, NOT_STAMPED, INT64_MAX};
        /* Redis has as many in the queue as have no outcome: it is there still. */
        const bool stays = entries_is_unfinished(run, entry) &&
                           run->items[entry->item].redis[AFTER].queued == unfinished[entry->item];
        if (!queue_overtakes(run, entry, &older, stays))
            continue;
        first = first == NULL ? entry : first;
        run->counts.overtaken++;
    }
    free(list);
    if (first != NULL)
        findings_add(&run->findings, RESULT_OVERTAKEN,
                     "accepted sales that were processed before an older one of their item: %lld; "
                     "first: request %.60s for %.80s, entry %lld-%lld",
                     (long long)run->counts.overtaken, queue_request(run, first),
                     queue_item(run, first), (long long)first->place.ms,
                     (long long)first->place.number);
}

void check_queue(struct run *run)
{
    int64_t *unfinished = queue_count_unfinished(run);
    check_sold_again(run);
    check_outcomes(run);
    check_told(run);
    check_accepted(run);
    check_unfinished(run, unfinished);
    check_places(run, unfinished);
    free(unfinished);
}
