/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of the stock: buyers buy and look, operators set it and add to it.
 */
#include "handlers.h"

#include "clock.h"
#include "http.h"
#include "json.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

void shop_health(struct service *service, struct request *request)
{
    answer_json(request, 200, "{\"status\":\"ok\",\"instance\":\"%s\"}", service->config.instance);
}

/* ---- Selling --------------------------------------------------------------------------------- */

static void leave(struct service *service, struct request *request)
{
    if (request->entered)
        mode_leave(&service->mode);
    request->entered = false;
    idempotency_release(&service->keys, &request->sale);
}

/* What arrives while the switch to another setting is under way goes by the one of before: it needs to wait only
 * where that has a lock to wait for. */
static bool reads_aside(struct service *service, const struct request *request)
{
    if (request->sale.purpose != SALE_READ)
        return false;
    return request->entered ? !service->mode.now.guard_reads
                            : !mode_copy(&service->mode).guard_reads;
}

/* Counts the sale in, if no switch is under way; those that come during a switch enter later. */
static void enter(struct service *service, struct request *request)
{
    request->sale.request = request->id;
    request->sale.arrived_ns = request->arrived_ns;
    if (!request->entered)
        request->entered = mode_enter(&service->mode);
    request->aside = reads_aside(service, request);
    if (request->aside)
        leave(service, request);
    if (request->entered && !request->sale.accepted)
        sale_accept(&service->env, &request->sale);
}

static void answer_sale(const struct service *service, struct request *request)
{
    static const enum problem problems[] = {
#define PROBLEM_SOLD PROBLEM_COUNT
#define X(name, event, reason) PROBLEM_##name,
        SALE_RESULTS(X)
#undef X
    };
    struct sale *sale = &request->sale;
    const char *instance = sale->replayed ? sale->seller : service->config.instance;
    request->answer.replayed = sale->replayed;
    if (sale->result == SALE_SOLD && sale->purpose != SALE_SELL)
        answer_json(request, 200, "{\"item\":\"%s\",\"stock\":%" PRId64 ",\"instance\":\"%s\"}",
                    sale->item, sale->left, instance);
    else if (sale->result == SALE_SOLD)
        answer_json(request, 200,
                    "{\"sold\":%" PRId64 ",\"left\":%" PRId64 ",\"unit\":%" PRId64
                    ",\"item\":\"%s\",\"instance\":\"%s\"}",
                    sale->quantity, sale->left, sale->unit, sale->item, instance);
    else if (sale->result == SALE_SOLD_OUT || sale->result == SALE_TOO_FEW)
        answer_left(request, problems[sale->result], sale->left,
                    "%" PRId64 " of %s were asked for, %" PRId64 " are left", sale->quantity,
                    sale->item, sale->left);
    else {
        text_hide_servers(sale->detail);
        answer_problem(request, problems[sale->result], "%s", sale->detail);
    }
}

void shop_refuse(struct service *service, struct request *request, enum sale_result result,
                 const char *detail)
{
    enter(service, request);
    sale_refuse(&service->env, &request->sale, result, detail);
    answer_sale(service, request);
    leave(service, request);
}

void shop_accept_sale(struct service *service, struct request *request)
{
    request->sale.purpose = SALE_SELL;
    if (atomic_load(&service->draining))
        shop_refuse(service, request, SALE_DRAINING, "the instance takes no more sales");
    else if (idempotency_claim(&service->keys, &request->sale))
        enter(service, request);
    else
        shop_refuse(service, request, SALE_REQUEST_IN_FLIGHT,
                    "this instance has not answered it yet; send the same again later, and get its "
                    "answer");
}

void shop_accept_read(struct service *service, struct request *request)
{
    request->sale.purpose = SALE_READ;
    enter(service, request);
    if (!request->aside && atomic_load(&service->draining))
        shop_refuse(service, request, SALE_DRAINING, "the instance takes no more guarded reads");
}

static void resume(struct sale *sale)
{
    struct request *request = (struct request *)((char *)sale - offsetof(struct request, sale));
    workers_resume(request->service->sales, request);
}

static bool is_hung_up(const struct sale *sale)
{
    return http_is_hung_up((const struct request *)((const char *)sale - offsetof(struct request, sale)));
}

bool shop_sell(struct service *service, struct seller *seller, struct request *request)
{
    bool resumed = request->waits;
    if (!resumed && !request->aside)
        enter(service, request);
    if (request->aside) {
        sale_read_aside(seller, &request->sale);
        answer_sale(service, request);
        return true;
    }
    if (!request->entered) { /* no thread is kept: those in flight need them for the switch to end */
        workers_put_off(service->sales, request);
        if (!atomic_load(&service->mode.closed)) /* it ended just now */
            workers_go_on(service->sales);
        return false;
    }
    request->service = service;
    request->sale.resume = resume;
    request->sale.is_hung_up = is_hung_up;
    request->waits = true; /* for when it is resumed, which may be before the next line returns */
    if (!(resumed ? sale_resume(seller, &request->sale) : sale_run(seller, &request->sale)))
        return false;
    request->waits = false;
    answer_sale(service, request);
    leave(service, request);
    return true;
}

/* ---- The stock ------------------------------------------------------------------------------- */

/* {"NAME":N}, N from min to STOCK_MAX, and nothing else. */
static bool take_units(struct request *request, const char *name, int min, int64_t *units)
{
    char example[32];
    snprintf(example, sizeof example, "{\"%s\":1000}", name);
    cJSON *json = json_body(request, example);
    if (json == NULL)
        return false;
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(json, name);
    bool valid = cJSON_IsNumber(number) && cJSON_GetArraySize(json) == 1 &&
                 json_is_digits(request) && number->valuedouble >= min &&
                 number->valuedouble <= (double)STOCK_MAX;
    if (valid)
        *units = (int64_t)number->valuedouble;
    else
        answer_problem(request, PROBLEM_INVALID_VALUE,
                       "the body must be {\"%s\":N} with N a whole number in digits alone, from %d "
                       "to %lld",
                       name, min, (long long)STOCK_MAX);
    cJSON_Delete(json);
    return valid;
}

/* Changes may wait for their locks. Half of the admin listener's connections stay for those who look. */
#define CHANGES_MAX (ADMIN_CONNECTIONS / 2)

static void accept_restock(struct service *service, struct request *request)
{
    request->sale.purpose = SALE_RESTOCK;
    if (atomic_load(&service->draining))
        shop_refuse(service, request, SALE_DRAINING, "the instance takes no more changes");
    else if (http_in_flight(request) > CHANGES_MAX)
        shop_refuse(service, request, SALE_QUEUE_FULL, "too many changes of the stock are under way here");
    else
        enter(service, request);
}

void shop_accept_set(struct service *service, struct request *request)
{
    if (take_units(request, "stock", 0, &request->sale.quantity))
        accept_restock(service, request);
}

void shop_accept_add(struct service *service, struct request *request)
{
    request->sale.adds = true;
    if (take_units(request, "add", 1, &request->sale.quantity))
        accept_restock(service, request);
}
