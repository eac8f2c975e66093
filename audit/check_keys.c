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
    const struct sale *sale;    /* NULL: none was recorded or told */
    const struct request *kept; /* its sold-out was kept; NULL */
};

/* Proof, and not what a client alone was told of a sale that is recorded. */
static bool is_second(const struct sale *first, const struct sale *sale)
{
    return sale->section != NULL || sale->unit != first->unit;
}

/* The first sale of each key; tells of the second ones. */
static void check_sales(struct run *run, struct said *said)
{
    const struct sale *again = NULL;
    for (size_t i = 0; i < run->sale_count; i++) {
        const struct sale *sale = &run->sales[i];
        uint32_t key = run->requests[sale->request].key;
        if (key == NONE || sale->disputed)
            continue;
        if (said[key].sale == NULL) {
            said[key].sale = sale;
        } else if (is_second(said[key].sale, sale)) {
            run->counts.sold_again += sale->quantity;
            again = again == NULL ? sale : again;
        }
    }
    if (again == NULL)
        return;
    uint32_t key = run->requests[again->request].key;
    findings_add(&run->findings, RESULT_OVERSOLD,
                 "units sold again under an idempotency key: %lld; first: key %.64s of %.80s sold "
                 "unit %lld to request %.60s, and unit %lld to request %.60s",
                 (long long)run->counts.sold_again, keys_text(run, key),
                 run->items[again->item].name, (long long)said[key].sale->unit, run_request_id(run, said[key].sale->request),
                 (long long)again->unit, run_request_id(run, again->request));
}

/* Whether that answer is not the key's. */
static bool differs(const struct run *run, const struct said *said, const struct request *request)
{
    if (request->outcome != OUTCOME_REPLAYED)
        return request->kept && said->sale != NULL;
    if (request->code != 200)
        return said->sale != NULL;
    if (said->kept != NULL || said->sale == NULL)
        return said->kept != NULL;
    return said->sale->unit != run->replays[request->replay].unit || said->sale->quantity != request->quantity;
}

static void check_answers(struct run *run, struct said *said)
{
    const struct request *example = NULL;
    long long count = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && request->kept)
            said[request->key].kept = request;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->key != NONE && differs(run, &said[request->key], request) && count++ == 0)
            example = request;
    }
    if (count > 0)
        findings_add(&run->findings, RESULT_OVERSOLD,
                     "answers that differ from another one under the same idempotency key: %lld; "
                     "first: request %.60s with key %.64s got %d",
                     count, run_request_id(run, (size_t)(example - run->requests)),
                     keys_text(run, example->key), example->code);
}

void check_keys(struct run *run)
{
    struct said *said = memory_new(run->keys.count, sizeof *said);
    check_sales(run, said);
    check_answers(run, said);
    free(said);
}
