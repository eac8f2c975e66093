/* SPDX-License-Identifier: Apache-2.0
 *
 * Liveness: what can be sold is sold, and no buyer is rejected while enough is left. The stock only
 * falls; a run with a restock is not judged. So a request was rejected too early if its own read, a
 * later section's read or the end found enough left. If the stock may have grown in another way,
 * only the request's own read counts. The time of a request that no instance accepted is not known;
 * it counts if enough was left at the end. If the stock lies over segments, the units of all count.
 */
#include "check.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its buyer closed the connection and has no answer, also by the client's record. */
static bool went_away(const struct request *request)
{
    return request->reason == REASON_CLIENT_CLOSED &&
           (!request->sampled || request->transport_error);
}

static bool was_sent_away(const struct request *request)
{
    bool again = request->outcome == OUTCOME_REPLAYED && request->code != 200 && !request->before;
    return request->item != NONE && !request->reads && !request->repeats && !went_away(request) &&
           (again || request->outcome == OUTCOME_REFUSED || request->outcome == OUTCOME_FAILED ||
            request->outcome == OUTCOME_REJECTED);
}

static int by_item_enter(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    int64_t one_ns = one->at_ns[STAGE_ENTER];
    int64_t two_ns = two->at_ns[STAGE_ENTER];
    return (one_ns > two_ns) - (one_ns < two_ns);
}

/* Sections that read the stock, sorted by item and enter; most[i] is the greatest stock that
 * section i or a later one of its item read, or that was left at the end. */
struct later {
    const struct section **sections;
    int64_t *most;
    size_t count;
};

static void find_later(const struct run *run, struct later *later)
{
    later->sections = memory_new(run->by_lock_count, sizeof *later->sections);
    later->most = memory_new(run->by_lock_count, sizeof *later->most);
    for (size_t i = 0; i < run->by_lock_count; i++) {
        const struct section *section = run->by_lock[i];
        if (section->item != NONE && run_read_all(run, section) != NOT_KNOWN)
            later->sections[later->count++] = section;
    }
    qsort(later->sections, later->count, sizeof *later->sections, by_item_enter);
    for (size_t i = later->count; i-- > 0;) {
        const struct section *section = later->sections[i];
        bool last = i + 1 == later->count || later->sections[i + 1]->item != section->item;
        int64_t behind = last ? run->items[section->item].redis[AFTER].stock : later->most[i + 1];
        int64_t all = run_read_all(run, section);
        later->most[i] = all > behind ? all : behind;
    }
}

/* A lower bound of the item's stock at that time. */
static int64_t known_stock(const struct run *run, const struct later *later, size_t item,
                           int64_t t_ns)
{
    size_t low = 0;
    size_t high = later->count;
    while (low < high) { /* find the item's first section that began after t_ns */
        size_t middle = (low + high) / 2;
        const struct section *section = later->sections[middle];
        if (section->item < item || (section->item == item && section->at_ns[STAGE_ENTER] <= t_ns))
            low = middle + 1;
        else
            high = middle;
    }
    if (low < later->count && later->sections[low]->item == item)
        return later->most[low];
    return run->items[item].redis[AFTER].stock;
}

/* If the stock compares tokens, a request that learns that its lock is lost may have read an old
 * stock. */
static bool knows_better(const struct run *run, const struct request *request)
{
    return is_fenced(run) &&
           (request->reason == REASON_STALE_TOKEN || request->reason == REASON_LOCK_LOST);
}

/* Whether only a restock can have raised the item's stock. With --write set, a sale may undo
 * others. A sale of unknown outcome may have written back a stock that was too high. */
static bool only_falls(const struct run *run, uint32_t item)
{
    return strcmp(run->spec.write, "set") != 0 && run->items[item].unknown == 0;
}

/* Whether its own segment had too few, so that it had to try another one. */
static bool found_too_few(const struct run *run, const struct request *request)
{
    if (request->section == NONE)
        return false;
    const struct section *section = &run->sections[request->section];
    return run_share(run, section).segments > 1 && section->stock_before != NOT_KNOWN &&
           section->stock_before < request->quantity;
}

/* A lower bound of the stock when the request was rejected: what it had read, or more if later
 * reads found more. What it had read before it asked for another segment's lock in vain is too old.
 */
static int64_t stock_at(const struct run *run, const struct later *later,
                        const struct request *request)
{
    const bool looked_on = found_too_few(run, request) && request->reason != REASON_SOLD_OUT;
    const struct section *section =
        request->section == NONE || knows_better(run, request) || looked_on
            ? NULL
            : &run->sections[request->section];
    if (section == NULL || section->stock_before == NOT_KNOWN)
        return known_stock(run, later, request->item, request->outcome_ns);
    int64_t own = run_read_all(run, section);
    if (!only_falls(run, request->item))
        return own;
    int64_t known = known_stock(run, later, request->item, section->at_ns[STAGE_READ]);
    return known > own ? known : own; /* NOT_KNOWN is less than any number */
}

static void check_refusals(struct run *run)
{
    struct later later = {.count = 0};
    const struct request *example = NULL;
    int64_t example_stock = 0;
    find_later(run, &later);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (!was_sent_away(request))
            continue;
        int64_t stock = stock_at(run, &later, request);
        if (stock == NOT_KNOWN || stock < request->quantity)
            continue;
        run->counts.rejected_early++;
        run->counts.given_up += may_ask_again(request);
        run->counts.one_segment +=
            request->reason == REASON_SOLD_OUT && found_too_few(run, request);
        if (example == NULL || request->outcome_ns < example->outcome_ns) {
            example = request;
            example_stock = stock;
        }
    }
    free(later.sections);
    free(later.most);
    run->first_rejected = example;
    if (example == NULL)
        return;
    char when[64] = "before any instance accepted it";
    if (example->outcome != OUTCOME_REJECTED)
        snprintf(when, sizeof when, "at %.3f ms", run_ms(run, example->outcome_ns));
    char where[80] = "";
    if (found_too_few(run, example)) {
        const struct section *section = &run->sections[example->section];
        const struct share share = run_share(run, section);
        snprintf(where, sizeof where, "; its own segment, %d of %d, had %lld", share.segment,
                 share.segments, (long long)section->stock_before);
    }
    findings_add(&run->findings, RESULT_UNDERSOLD,
                 "requests rejected while enough was left: %lld; first: request %.60s got %d %s, "
                 "when at least %lld of %.80s were left%s",
                 (long long)run->counts.rejected_early,
                 run_request_id(run, (size_t)(example - run->requests)), example->code, when,
                 (long long)example_stock, run->items[example->item].name, where);
}

/* What should be left at the end, after sales of unknown outcome took what they can have taken. */
static int64_t shelf_of(const struct item *item)
{
    return item->supply - item->sold - item->taken;
}

static void check_unsold(struct run *run)
{
    int64_t *wanted = memory_new(run->item_count, sizeof *wanted);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (was_sent_away(request) && request->quantity <= shelf_of(&run->items[request->item]))
            wanted[request->item] += request->quantity;
    }
    for (size_t i = 0; i < run->item_count; i++) {
        int64_t shelf = shelf_of(&run->items[i]);
        if (wanted[i] > 0)
            run->counts.unsold += wanted[i] < shelf ? wanted[i] : shelf;
    }
    free(wanted);
    if (run->counts.unsold > 0)
        findings_add(&run->findings, RESULT_UNDERSOLD,
                     "units not sold, though there were requests "
                     "for them: %lld",
                     (long long)run->counts.unsold);
}

/* Whether a restock took place during the run, or may have. */
static bool was_restocked(const struct run *run)
{
    for (size_t i = 0; i < run->restock_count; i++) {
        if (!is_setup(run, &run->restocks[i]))
            return run->spec.restocked;
    }
    for (size_t i = 0; i < run->item_count; i++) {
        if (run->items[i].possible.count > 0)
            return run->spec.restocked;
    }
    return run->restocks_lost;
}

void check_liveness(struct run *run)
{
    if (was_restocked(run))
        return;
    check_refusals(run);
    check_unsold(run);
}
