/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys: under an idempotency key is sold once, and all who come with it are told the same. A second
 * sale is an oversale even where the stock was enough for it; so is an answer that differs, for its
 * buyer holds two.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

/* What was said under a key first. */
struct said {
    uint32_t sale;               /* NONE: none was recorded or told */
    const struct request *kept;  /* its sold-out was kept; NULL */
    const struct request *again; /* the first one that was told again; NULL */
};

/* Proof, and not what a client alone was told of a sale that is recorded. */
static bool is_second(const struct sale *first, const struct sale *sale)
{
    return sale->section != NULL || sale->unit != first->unit;
}

/* The first sale of each key; tells of the second ones. */
static void keys_check_sales(struct run *run, struct said *said)
{
    struct sale example[2];
    bool any = false;
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale sale = run_sale(run, i);
        uint32_t key = run->requests[sale.request].key;
        if (key == NONE || sale.disputed)
            continue;
        if (said[key].sale == NONE) {
            said[key].sale = (uint32_t)i;
            continue;
        }
        const struct sale first = run_sale(run, said[key].sale);
        if (!is_second(&first, &sale))
            continue;
        run->counts.duplicate_key_units += sale.quantity;
        if (!any) {
            example[0] = first;
            example[1] = sale;
        }
        any = true;
    }
    if (!any)
        return;
    uint32_t key = run->requests[example[1].request].key;
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "units sold again under an idempotency key: %lld; first: key %.64s of %.80s sold "
                 "unit %lld to request %.60s, and unit %lld to request %.60s",
                 (long long)run->counts.duplicate_key_units, keys_text(run, key),
                 run->items[example[1].item].name, (long long)example[0].unit,
                 run_request_id(run, example[0].request), (long long)example[1].unit,
                 run_request_id(run, example[1].request));
}

/* Whether that refusal says that its key has no answer for such a quantity. A Redis that was
 * emptied has neither the item nor the key: of an item that is there in the end, and was not put
 * there again, it is known that nobody emptied it. */
static bool keys_denies(const struct run *run, int64_t quantity, const struct request *request)
{
    switch (request->reason) {
    case REASON_UNKNOWN_ITEM:
        return !run->spec.restocked && run->items[request->item].redis[AFTER].stock != NOT_KNOWN;
    case REASON_KEY_REUSED:
        return request->quantity == quantity;
    default:
        return false;
    }
}

/* Whether it came inside after that time, and was refused. A request looks for its key's answer as
 * soon as it is inside. Of one that was accepted twice nobody knows which try was refused. */
static bool was_refused_after(const struct run *run, int64_t t_ns, const struct request *request)
{
    if (request->outcome != OUTCOME_REFUSED || request->accepted_twice || request->section == NONE)
        return false;
    const struct section *section = &run->sections[request->section];
    return run_is_timed(run, section) && section->at_ns[STAGE_ENTER] > t_ns;
}

/* Whether it looked for its key's sale when that was answered already, and was refused as if there
 * was none. */
static bool is_missed(const struct run *run, const struct sale *sale, const struct request *request)
{
    bool denied = request->reason == REASON_SOLD_OUT || keys_denies(run, sale->quantity, request);
    return denied && sale->section != NULL && run_is_timed(run, sale->section) &&
           was_refused_after(run, sale->t_ns, request);
}

/* The same of its key's refusal. */
static bool is_missed_refusal(const struct run *run, const struct request *kept,
                              const struct request *request)
{
    return kept != NULL && kept != request && kept->section != NONE && !kept->accepted_twice &&
           run_is_timed(run, &run->sections[kept->section]) &&
           keys_denies(run, kept->quantity, request) &&
           was_refused_after(run, kept->outcome_ns, request);
}

/* What an answer told. */
struct told {
    int64_t unit; /* NOT_KNOWN: none; so with left */
    int64_t left;
    int64_t quantity;
    uint32_t instance; /* that answered first; NONE: not known */
};

/* Where its client says another number of what is left, that is none. */
static struct told told_again(const struct run *run, const struct request *request)
{
    const struct replay *replay = &run->replays[request->replay];
    bool denied =
        request->sampled && !request->transport_error && request->client_left != replay->left;
    return (struct told){replay->unit, denied ? NOT_KNOWN : replay->left, request->quantity,
                         replay->answered_by};
}

/* Of a client that alone tells of its sale, the unit counts. */
static struct told told_first(const struct run *run, const struct sale *sale)
{
    const struct section *section = sale->section;
    const struct request *request = &run->requests[sale->request];
    if (section == NULL && request->outcome == OUTCOME_REPLAYED)
        return told_again(run, request);
    if (section == NULL)
        return (struct told){sale->unit, NOT_KNOWN, sale->quantity, NONE};
    return (struct told){sale->unit, section->left_denied ? NOT_KNOWN : section->stock_after,
                         sale->quantity, sale->instance};
}

static struct told told_none(const struct run *run, const struct request *kept)
{
    bool read = kept->section != NONE && !kept->accepted_twice;
    return (struct told){NOT_KNOWN, read ? run->sections[kept->section].stock_before : NOT_KNOWN,
                         kept->quantity, kept->instance};
}

/* Whether what both tell is not the same. */
static bool is_other(const struct told *one, const struct told *two)
{
    return (one->unit != NOT_KNOWN && two->unit != NOT_KNOWN && one->unit != two->unit) ||
           (one->left != NOT_KNOWN && two->left != NOT_KNOWN && one->left != two->left) ||
           (one->instance != NONE && two->instance != NONE && one->instance != two->instance) ||
           one->quantity != two->quantity;
}

/* Whether that answer is not the key's. */
static bool keys_differs(const struct run *run, const struct said *said,
                         const struct request *request)
{
    if (request->outcome != OUTCOME_REPLAYED && said->sale != NONE) {
        const struct sale sale = run_sale(run, said->sale);
        return request->kept || is_missed(run, &sale, request);
    }
    if (request->outcome != OUTCOME_REPLAYED)
        return is_missed_refusal(run, said->kept, request);
    bool sold = request->code == 200;
    if (sold ? said->kept != NULL : said->sale != NONE)
        return true;
    const struct told again = told_again(run, request);
    if (sold ? said->sale == NONE : said->kept == NULL) { /* of before the run */
        const struct told first = told_again(run, said->again);
        return said->again->code != request->code || is_other(&first, &again);
    }
    const struct sale sale = sold ? run_sale(run, said->sale) : (struct sale){.section = NULL};
    const struct told first = sold ? told_first(run, &sale) : told_none(run, said->kept);
    return is_other(&first, &again);
}

static void check_answers(struct run *run, struct said *said)
{
    const struct request *example = NULL;
    long long count = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key == NONE)
            continue;
        if (request->kept)
            said[request->key].kept = request;
        if (request->outcome == OUTCOME_REPLAYED && said[request->key].again == NULL)
            said[request->key].again = request;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && keys_differs(run, &said[request->key], request) && count++ == 0)
            example = request;
    }
    if (count > 0)
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "answers that differ from another one under the same idempotency key: %lld; "
                     "first: request %.60s with key %.64s got %d",
                     count, run_request_id(run, (size_t)(example - run->requests)),
                     keys_text(run, example->key), example->code);
}

/* An instance tells that a key's request is in flight only where it has accepted another one under
 * that key. It may have recorded that one later, so its time is not asked. */
static void check_in_flight(struct run *run)
{
    const struct request *example = NULL;
    long long count = 0;
    uint64_t *took = memory_new(run->keys.count, sizeof *took); /* a bit for each instance */
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && request->accepted && request->reason != REASON_IN_FLIGHT)
            took[request->key] |= UINT64_C(1) << request->instance;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && request->reason == REASON_IN_FLIGHT &&
            (took[request->key] >> request->instance & 1) == 0 && count++ == 0)
            example = request;
    }
    free(took);
    if (count > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: requests whose key was in flight, as they were told: %lld, first request "
                     "%.60s; the instance's history has no other request under that key",
                     run->histories[example->history].file, count,
                     run_request_id(run, (size_t)(example - run->requests)));
}

static int keys_by_unit(const void *a, const void *b)
{
    const struct sale *one = a;
    const struct sale *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (one->unit > two->unit) - (one->unit < two->unit);
}

/* Whether that sale of the run, under another key, is what the request was told again. */
static bool is_foreign(const struct run *run, const struct sale *sale,
                       const struct request *request)
{
    const struct told again = told_again(run, request);
    const struct told first = told_first(run, sale);
    return sale->section != NULL && first.instance == again.instance && !is_other(&first, &again) &&
           sale->section->at_ns[STAGE_WRITE] <= request->outcome_ns;
}

/* The sales that were told again and are none of this run, by item and unit. */
static struct sale *keys_find_before(const struct run *run, size_t *count)
{
    struct sale *list = memory_new((size_t)run->counts.before, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < run->request_count && run->counts.before > 0; i++) {
        const struct request *request = &run->requests[i];
        if (request->before && request->code == 200 && request->item != NONE)
            list[(*count)++] = (struct sale){.request = (uint32_t)i,
                                             .item = request->item,
                                             .unit = run->replays[request->replay].unit};
    }
    if (*count > 0)
        qsort(list, *count, sizeof *list, keys_by_unit);
    return list;
}

/* An answer that nobody gave under its key in this run was given before it. Where it is that of
 * another key's sale, both buyers may hold the same unit: nobody can tell. */
static void check_foreign(struct run *run)
{
    size_t count = 0;
    struct sale *before = keys_find_before(run, &count);
    const struct request *example = NULL;
    for (size_t i = 0; i < run->sale_count && count > 0 && example == NULL; i++) {
        const struct sale sale = run_sale(run, i);
        const struct sale *found = bsearch(&sale, before, count, sizeof *before, keys_by_unit);
        if (found != NULL && is_foreign(run, &sale, &run->requests[found->request]))
            example = &run->requests[found->request];
    }
    if (example != NULL)
        findings_add(&run->findings, RESULT_INCONCLUSIVE,
                     "request %.60s with key %.64s was told again unit %lld of %.80s, which "
                     "another key sold in this run; nothing tells that "
                     "its key was used before the run",
                     run_request_id(run, (size_t)(example - run->requests)),
                     keys_text(run, example->key), (long long)run->replays[example->replay].unit,
                     run->items[example->item].name);
    free(before);
}

void check_keys(struct run *run)
{
    struct said *said = memory_new(run->keys.count, sizeof *said);
    for (size_t i = 0; i < run->keys.count; i++)
        said[i].sale = NONE;
    keys_check_sales(run, said);
    check_answers(run, said);
    check_in_flight(run);
    check_foreign(run);
    if (run->counts.before > 0)
        findings_add(&run->findings, RESULT_OK,
                     "answers that were given before the run, and told again in it: %lld",
                     (long long)run->counts.before);
    free(said);
}
