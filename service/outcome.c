/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /sales/{id}: what became of a sale that was accepted with --on-conflict queue. A request that
 * waits for the outcome keeps no thread.
 */
#include "handlers.h"

#include "../lock/clock.h"
#include "queue.h"
#include "queue_head.h"
#include "section.h"
#include "selling.h"
#include "shop_request.h"
#include "text.h"

#include <string.h>

#define FIND_FIRST_MS 10 /* until it looks again for a record; doubled up to FIND_MAX_MS */
#define FIND_MAX_MS 500
#define LOOK_MS 1000 /* until it looks itself for an entry that was not passed: see queue_head.h */

void shop_accept_outcome(struct service *service, struct request *request)
{
    shop_request_of(request)->service = service;
    shop_request_sale(request)->step = STEP_ASIDE; /* it runs on the threads for reads */
}

static void answer_by_stock(struct request *request, struct stock *stock, enum stock_status status)
{
    char detail[STOCK_ERROR_MAX];
    snprintf(detail, sizeof detail, "%s", stock_error(stock));
    text_hide_servers(detail);
    if (status == STOCK_MISSING)
        answer_problem(request, PROBLEM_UNKNOWN_SALE, "%s.%s", shop_request_sale(request)->item,
                       shop_request_sale(request)->random);
    else
        answer_problem(request,
                       status == STOCK_INVALID ? PROBLEM_RECORD_INVALID : PROBLEM_STOCK_UNAVAILABLE,
                       "%s", detail);
}

/* Finds the key, and then its record. */
static enum stock_status outcome_read(const struct service *service, struct stock *stock,
                                      struct sale *sale, struct stock_record *record)
{
    if (sale->key[0] == '\0') {
        sale_name_keys(&service->config, sale);
        queue_name_keys(&service->config, sale);
        enum stock_status status = queue_find(stock, sale->pointer_key, sale->key);
        if (status != STOCK_OK)
            return status;
        sale_name_keys(&service->config, sale);
    }
    return stock_recall(stock, sale->record_key, record);
}

/* Of a record without an outcome. Someone may have emptied the queue: STOCK_MISSING. */
static enum stock_status outcome_check_entry(struct stock *stock, const struct sale *sale,
                                             struct stock_record *record)
{
    bool has;
    enum stock_status status = queue_has(stock, sale->queue_key, record->entry, &has);
    if (status == STOCK_OK && !has) {
        status = stock_recall(stock, sale->record_key, record);
        status = status == STOCK_OK && record->code == 202 ? STOCK_MISSING : status;
    }
    return status;
}

/* Whether it looks again later. number: of its entry; NULL: not known. */
static bool outcome_waits(const struct service *service, struct request *request,
                          const char *number)
{
    const int64_t now_ns = mono_ns();
    const int64_t ends_ns =
        request->arrived_ns + shop_request_of(request)->wait_s * 1000 * NS_PER_MS;
    const int64_t waited_ms = (now_ns - request->arrived_ns) / NS_PER_MS;
    int64_t pause_ms = waited_ms > FIND_FIRST_MS ? waited_ms : FIND_FIRST_MS;
    pause_ms = pause_ms < FIND_MAX_MS ? pause_ms : FIND_MAX_MS;
    if (now_ns >= ends_ns || atomic_load(&service->draining) || http_is_client_closed(request))
        return false;
    if (number == NULL || !queue_heads_wait(service->heads, shop_request_of(request), number,
                                            min_ns(now_ns + LOOK_MS * NS_PER_MS, ends_ns)))
        workers_resume_at(service->waits, request, min_ns(now_ns + pause_ms * NS_PER_MS, ends_ns));
    return true;
}

bool shop_outcome(struct service *service, void *state, struct request *request)
{
    struct sale_worker *worker = state;
    struct sale *sale = shop_request_sale(request);
    struct stock_record record = {0};
    enum stock_status status = STOCK_UNAVAILABLE;
    if (section_end_by_outage(&service->env, sale, section_away_stock(&service->env))) {
        shop_answer_sale(service, request);
        return true;
    }
    const bool is_first = sale->key[0] == '\0';
    status = outcome_read(service, worker->stock, sale, &record);
    if (status == STOCK_OK && record.code == 202) {
        /* The first look leaves the entry to those at the head. */
        if (is_first && outcome_waits(service, request, record.entry))
            return false;
        status = outcome_check_entry(worker->stock, sale, &record);
    }
    const bool is_known = status == STOCK_OK ? record.code != 202
                                             : status == STOCK_MISSING || status == STOCK_INVALID;
    if (!is_known && outcome_waits(service, request, status == STOCK_OK ? record.entry : NULL))
        return false;
    if (status != STOCK_OK) {
        answer_by_stock(request, worker->stock, status);
        return true;
    }
    sale->quantity = record.quantity;
    selling_end_by_record(sale, &record);
    if (record.code != 202 && !selling_is_confirmed(worker, sale)) {
        outage_hint(service->env.outage, ROLE_STOCK, OUTAGE_LOOK);
        section_end(sale, SALE_OUTCOME_UNKNOWN, stock_error(worker->stock));
    }
    sale->replayed = true; /* the instance that sold is named */
    shop_answer_sale(service, request);
    request->answer.replayed = false; /* the request has no key, and this is the first answer */
    return true;
}
