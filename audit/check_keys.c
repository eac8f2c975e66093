/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys: one sale under each idempotency key, and one answer for all requests with it. A second sale
 * is an oversale even if the stock was enough for it. So is an answer that differs, because its
 * buyer then holds two answers.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

/* The first records under a key. */
struct said {
    uint32_t sale;               /* NONE if no record has a sale */
    const struct request *kept;  /* the request whose refusal was stored; NULL */
    const struct request *again; /* the first request that got a stored answer; NULL */
};

/* Whether `sale` is a second sale. A client's answer alone may only repeat the recorded one. */
static bool is_second(const struct sale *first, const struct sale *sale)
{
    return sale->section != NULL || sale->unit != first->unit;
}

/* Finds the first sale of each key, and reports second ones. */
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

/* Whether the refusal denies that its key has an answer for such a quantity. A Redis that was
 * emptied has neither the item nor the key. It was not emptied if the item exists at the end, and
 * was not created again. */
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

/* Whether it entered after that time, and was refused. A request looks for its key's answer as soon
 * as it enters. If a request was accepted twice, it is not known which attempt was refused. */
static bool was_refused_after(const struct run *run, int64_t t_ns, const struct request *request)
{
    if (request->outcome != OUTCOME_REFUSED || request->accepted_twice || request->section == NONE)
        return false;
    const struct section *section = &run->sections[request->section];
    return run_is_timed(run, section) && section->at_ns[STAGE_ENTER] > t_ns;
}

/* Whether it looked for its key's sale after that was answered, and was refused as if there were
 * none. */
static bool is_missed(const struct run *run, const struct sale *sale, const struct request *request)
{
    bool denied = request->reason == REASON_SOLD_OUT || keys_denies(run, sale->quantity, request);
    return denied && sale->section != NULL && run_is_timed(run, sale->section) &&
           was_refused_after(run, sale->t_ns, request);
}

/* The same for its key's stored refusal. */
static bool is_missed_refusal(const struct run *run, const struct request *kept,
                              const struct request *request)
{
    return kept != NULL && kept != request && kept->section != NONE && !kept->accepted_twice &&
           run_is_timed(run, &run->sections[kept->section]) &&
           keys_denies(run, kept->quantity, request) &&
           was_refused_after(run, kept->outcome_ns, request);
}

/* The contents of an answer. */
struct told {
    int64_t unit; /* NOT_KNOWN if there is none; the same for `left` */
    int64_t left;
    int64_t quantity;
    uint32_t instance; /* that answered first; NONE if unknown */
};

/* `left` is NOT_KNOWN if the client's record states another number. */
static struct told told_again(const struct run *run, const struct request *request)
{
    const struct replay *replay = &run->replays[request->replay];
    bool denied =
        request->sampled && !request->transport_error && request->client_left != replay->left;
    return (struct told){replay->unit, denied ? NOT_KNOWN : replay->left, request->quantity,
                         replay->answered_by};
}

/* If only the client's record has the sale, only its unit counts. */
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
                         kept->quantity,
                         kept->taken ? run->entries[kept->entry].decided_by : kept->instance};
}

/* Whether the two answers differ. */
static bool is_other(const struct told *one, const struct told *two)
{
    return (one->unit != NOT_KNOWN && two->unit != NOT_KNOWN && one->unit != two->unit) ||
           (one->left != NOT_KNOWN && two->left != NOT_KNOWN && one->left != two->left) ||
           (one->instance != NONE && two->instance != NONE && one->instance != two->instance) ||
           one->quantity != two->quantity;
}

/* Whether the request's answer differs from that of its key. */
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
    if (sold ? said->sale == NONE : said->kept == NULL) { /* first given before the run */
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

/* An instance may answer `request-in-flight` only if it accepted another request under that key. It
 * may have recorded that one later, so the times are not compared. */
static void check_in_flight(struct run *run)
{
    const struct request *example = NULL;
    long long count = 0;
    /* By key: a bit for each instance. */
    uint64_t *took = memory_new(run->keys.count, sizeof *took);
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
                     "%s: requests that were answered request-in-flight: %lld, first request "
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

/* Whether the request's stored answer may be that sale of this run, under another key. */
static bool is_foreign(const struct run *run, const struct sale *sale,
                       const struct request *request)
{
    const struct told again = told_again(run, request);
    const struct told first = told_first(run, sale);
    return sale->section != NULL && first.instance == again.instance && !is_other(&first, &again) &&
           sale->section->at_ns[STAGE_WRITE] <= request->outcome_ns;
}

/* The stored answers with a sale from before the run, sorted by item and unit. */
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

/* A stored answer was first given before the run if no request of its key in this run can have got
 * it. If it looks like the sale of another key in this run, two buyers may hold the same unit. */
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
                     "request %.60s with key %.64s got a stored answer with unit %lld of %.80s, "
                     "which another key sold in this run; no record shows that "
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
    if (run->counts.before > 0 && run->spec.fresh_keys)
        findings_add(&run->findings, RESULT_INCONCLUSIVE,
                     "stored answers that no request of the run can have left, though all keys are "
                     "new: %lld",
                     (long long)run->counts.before);
    else if (run->counts.before > 0)
        findings_add(&run->findings, RESULT_OK,
                     "stored answers from before the run that were sent again in it: %lld",
                     (long long)run->counts.before);
    free(said);
}
