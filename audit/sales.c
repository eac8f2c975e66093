/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds what was sold: an instance's `write` proves it, and so does a client's 200. If the two
 * contradict each other, the sale proves nothing. The same holds for a client's record alone, if
 * another view contradicts it.
 */
#include "memory.h"
#include "run.h"

#include <stdlib.h>

static bool was_answered(const struct request *request)
{
    return request->sampled && !request->transport_error;
}

/* Whether the client's answer agrees with the section's sale. Of a sale in several parts it names
 * the first one. */
static bool is_confirmed(const struct run *run, const struct request *request,
                         const struct section *section)
{
    return was_answered(request) && section->sold && request->client_code == 200 &&
           request->client_unit == section->unit && request->client_item == section->item &&
           run_share(run, section).part <= 1;
}

static void add_sale(struct run *run, struct sold sold)
{
    run->sales = memory_grow(run->sales, run->sale_count, &run->sale_capacity, sizeof *run->sales);
    run->sales[run->sale_count++] = sold;
}

/* The sale as the answer states it, a first answer or a stored one. */
static struct sale told_sale(const struct run *run, const struct request *request)
{
    bool again = request->outcome == OUTCOME_REPLAYED;
    const struct replay *replay = again ? &run->replays[request->replay] : NULL;
    const bool fetched = !again && request->entry != NONE;
    return (struct sale){
        .instance = again     ? replay->answered_by
                    : fetched ? NONE
                              : request->client_instance,
        .item = request->item,
        .unit = again     ? replay->unit
                : fetched ? run->entries[request->entry].told_unit
                          : request->client_unit,
        .quantity = request->quantity,
        .t_ns = INT64_MAX,
        .segments = run->segments,
    };
}

static struct sale written_sale(const struct run *run, const struct section *section)
{
    return (struct sale){
        .section = section,
        .instance = section->instance,
        .item = section->item,
        .unit = section->unit,
        .quantity = section->quantity,
        .t_ns = section->at_ns[STAGE_WRITE],
        .segments = run_share(run, section).segments,
    };
}

struct sale run_sale(const struct run *run, size_t number)
{
    const struct sold *sold = &run->sales[number];
    struct sale sale = sold->section != NONE ? written_sale(run, &run->sections[sold->section])
                                             : told_sale(run, &run->requests[sold->request]);
    sale.request = sold->request;
    sale.disputed = sold->disputed;
    return sale;
}

/* One of several parts that do not add up to the sale: any of them may be wrong. */
static bool is_doubtful(const struct run *run, const struct section *section)
{
    return section->quantity_denied && run_share(run, section).parts > 1;
}

static void add_written(struct run *run)
{
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        struct request *request = &run->requests[section->request];
        request->confirmed = request->confirmed || is_confirmed(run, request, section);
    }
    for (size_t i = 0; i < run->section_count; i++) {
        struct section *section = &run->sections[i];
        const struct request *request = &run->requests[section->request];
        /* the answer to a sale in a queue comes before the sale: it tells nothing of it */
        const bool told = was_answered(request) && !request->taken;
        section->left_denied = told && request->client_left != run_told_left(run, section);
        if (section->sold)
            add_sale(run,
                     (struct sold){(uint32_t)i, section->request,
                                   (told && !request->confirmed) || is_doubtful(run, section)});
    }
}

/* Whether the key has a known sale of that unit. */
static bool is_known(const struct run *run, const uint32_t *sale_of, const struct request *request,
                     int64_t unit)
{
    return request->key != NONE && sale_of[request->key] != NONE &&
           run_sale(run, sale_of[request->key]).unit == unit;
}

/* Whether another view contradicts a client's record that alone has a sale. nginx does if it did
 * not see the same. The instances do if no complete history has the request, or if their times
 * contradict it. */
static bool is_denied(const struct run *run, const struct request *request)
{
    if (run->nginx_read && !request->proxied)
        return true;
    if (request->proxied && request->nginx_status != request->client_code)
        return true;
    return request->mistimed || (!request->accepted && run->all_told);
}

/* Adds the sales of clients that got a 200, if no instance recorded the end of the request. */
static void add_told(struct run *run, uint32_t *sale_of)
{
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (request->outcome != OUTCOME_NONE || request->client_code != 200 ||
            is_denied(run, request) || request->item == NONE)
            continue;
        request->outcome = OUTCOME_CLIENT_ONLY;
        if (is_known(run, sale_of, request, request->client_unit))
            continue;
        if (request->key != NONE && sale_of[request->key] == NONE)
            sale_of[request->key] = (uint32_t)run->sale_count;
        add_sale(run, (struct sold){NONE, (uint32_t)i, false});
    }
}

/* Adds the sales of the queue whose outcome only their buyers were told, as an instance that was
 * killed had decided them. */
static void add_fetched(struct run *run, uint32_t *sale_of)
{
    for (size_t i = 0; i < run->entry_count; i++) {
        const struct entry *entry = &run->entries[i];
        struct request *request = entry->request == NONE ? NULL : &run->requests[entry->request];
        if (request == NULL || entry->decisions > 0 || entry->told_code != 200 ||
            entry->item == NONE || request->outcome != OUTCOME_NONE)
            continue;
        request->outcome = OUTCOME_CLIENT_ONLY;
        if (request->key != NONE && sale_of[request->key] == NONE)
            sale_of[request->key] = (uint32_t)run->sale_count;
        add_sale(run, (struct sold){NONE, entry->request, run->all_told || request->mistimed});
    }
}

/* By key: a bit for each instance that accepted a request under it with an
 * unknown outcome. */
static uint64_t *find_open(const struct run *run)
{
    _Static_assert(INSTANCES_MAX <= 64, "each has its bit");
    uint64_t *open = memory_new(run->keys.count, sizeof *open);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && request->accepted &&
            (request->outcome == OUTCOME_NONE || request->outcome == OUTCOME_UNKNOWN))
            open[request->key] |= request->queued || request->taken
                                      ? UINT64_MAX /* any instance may work it off */
                                      : UINT64_C(1) << request->instance;
    }
    return open;
}

/* Whether no record of the seller can be missing. */
static bool answerer_told_all(const struct run *run, const struct replay *replay)
{
    return replay->answered_by == NONE ? run->all_told
                                       : run_tells_all(run, replay->answered_by, true);
}

/* Whether the client's answer differs from the stored one that the instance recorded. */
static bool is_told_otherwise(const struct run *run, const struct request *request)
{
    return was_answered(request) && (request->client_code != 200 ||
                                     request->client_unit != run->replays[request->replay].unit);
}

/* Adds sales that only a stored answer shows: the seller did not record the outcome of a request
 * with that key. If the seller's history is complete and has no such request, the sale took place
 * before the run. If that history is not complete, the sale proves nothing. */
static void add_replayed(struct run *run, const uint64_t *open, uint32_t *sale_of)
{
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->outcome != OUTCOME_REPLAYED || request->code != 200 || request->item == NONE ||
            request->key == NONE || sale_of[request->key] != NONE)
            continue;
        const struct replay *replay = &run->replays[request->replay];
        bool certain =
            replay->answered_by != NONE && (open[request->key] >> replay->answered_by & 1) != 0;
        if (!certain && answerer_told_all(run, replay))
            continue;
        sale_of[request->key] = (uint32_t)run->sale_count;
        add_sale(run,
                 (struct sold){NONE, (uint32_t)i, !certain || is_told_otherwise(run, request)});
    }
}

/* Marks the stored answers that were first given before the run. The seller's history is complete,
 * and has no request that can have got this answer. */
static void sales_find_before(struct run *run, const uint64_t *open)
{
    bool *answered = memory_new(run->keys.count, sizeof *answered);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && (request->kept || request->outcome == OUTCOME_SOLD))
            answered[request->key] = true;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (request->outcome != OUTCOME_REPLAYED || request->key == NONE || answered[request->key])
            continue;
        const struct replay *replay = &run->replays[request->replay];
        bool may_be = replay->answered_by == NONE
                          ? open[request->key] != 0
                          : (open[request->key] >> replay->answered_by & 1) != 0;
        request->before = !may_be && answerer_told_all(run, replay);
        run->counts.before += request->before;
    }
    free(answered);
}

void sales_find(struct run *run)
{
    /* by key: index of its first sale; NONE */
    uint32_t *sale_of = memory_new(run->keys.count, sizeof *sale_of);
    add_written(run);
    for (size_t i = 0; i < run->keys.count; i++)
        sale_of[i] = NONE;
    for (size_t i = run->sale_count; i-- > 0;) {
        if (run->requests[run->sales[i].request].key != NONE)
            sale_of[run->requests[run->sales[i].request].key] = (uint32_t)i;
    }
    add_told(run, sale_of);
    add_fetched(run, sale_of);
    uint64_t *open = find_open(run);
    add_replayed(run, open, sale_of);
    sales_find_before(run, open);
    free(open);
    free(sale_of);
}
