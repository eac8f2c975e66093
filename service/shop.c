/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests about the stock: buyers buy and read, operators set it and add to it.
 */
#include "handlers.h"

#include "../lock/clock.h"
#include "http.h"
#include "json.h"
#include "shop_request.h"
#include "span.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

void shop_health(struct service *service, struct request *request)
{
    answer_json(request, 200, "{\"status\":\"ok\",\"instance\":\"%s\"}", service->config.instance);
}

/* ---- Selling --------------------------------------------------------------------------------- */

/* The problem that answers each result of a sale. A stale token or epoch is answered as lock-lost:
 * the client need not know whether the instance or the stock noticed the loss. */
#define PROBLEM_SOLD PROBLEM_COUNT
#define PROBLEM_ACCEPTED PROBLEM_COUNT
#define PROBLEM_STALE_TOKEN PROBLEM_LOCK_LOST
#define PROBLEM_STALE_EPOCH PROBLEM_LOCK_LOST
static const int problems[] = {
#define X(name, event, reason) PROBLEM_##name,
    SALE_RESULTS(X)
#undef X
};

#define PROBLEM_CODE_SOLD 200
#define PROBLEM_CODE_ACCEPTED 202
#define PROBLEM_CODE_STALE_TOKEN PROBLEM_CODE_LOCK_LOST
#define PROBLEM_CODE_STALE_EPOCH PROBLEM_CODE_LOCK_LOST
const int shop_codes[] = {
#define X(name, event, reason) PROBLEM_CODE_##name,
    SALE_RESULTS(X)
#undef X
};

/* Retry-After has whole seconds. */
static int64_t retry_s(int64_t wait_us)
{
    const int64_t wait_s = (wait_us + 999999) / 1000000;
    return wait_s > 1 ? wait_s : 1;
}

/* The part of a sale that took units of segments: they are as many apart as there are segments. */
static void add_part(const struct sale *sale, size_t number, char *text, size_t size)
{
    const struct span_part *of = sale->span != NULL ? &sale->span->parts[number] : NULL;
    const int segment = of != NULL ? of->segment : sale->segment;
    const int64_t unit =
        of != NULL ? segments_unit(sale->segments, segment, of->after) : sale->unit;
    const size_t used = strlen(text);
    snprintf(text + used, size - used,
             "%s{\"segment\":%d,\"unit\":%" PRId64 ",\"quantity\":%" PRId64 "}",
             number > 0 ? "," : "", segment, unit, of != NULL ? of->quantity : sale->quantity);
}

static void answer_segments(const struct service *service, struct request *request)
{
    const struct sale *sale = shop_request_sale(request);
    char parts[SEGMENTS_MAX * 80] = "", text[sizeof parts + 512];
    for (size_t i = 0; i < span_count(sale); i++)
        add_part(sale, i, parts, sizeof parts);
    snprintf(text, sizeof text,
             "{\"sold\":%" PRId64 ",\"left\":%" PRId64 ",\"unit\":%" PRId64
             ",\"item\":\"%s\",\"segments\":%d,\"parts\":[%s],\"instance\":\"%s\"}",
             sale->quantity, sale->left, sale->unit, sale->item, sale->segments, parts,
             service->config.instance);
    answer_long(request, 200, "application/json", strdup(text)); /* longer than answer.text */
}

static void answer_left(struct request *request, const struct sale *sale)
{
    char left[40];
    snprintf(left, sizeof left, ",\"left\":%" PRId64, sale->left);
    answer_problem_with(request, problems[sale->result], left,
                        "%" PRId64 " of %s were asked for, %" PRId64 " are left", sale->quantity,
                        sale->item, sale->left);
}

void shop_answer_sale(const struct service *service, struct request *request)
{
    struct sale *sale = shop_request_sale(request);
    const char *instance = sale->replayed ? sale->answered_by : service->config.instance;
    request->answer.replayed = sale->replayed;
    if (sale->result == SALE_ACCEPTED) {
        snprintf(request->answer.location, sizeof request->answer.location, "/sales/%s.%s",
                 sale->item, sale->random);
        request->answer.retry_s = 1;
        answer_json(request, 202,
                    "{\"accepted\":%" PRId64
                    ",\"id\":\"%s.%s\",\"item\":\"%s\",\"instance\":\"%s\"}",
                    sale->quantity, sale->item, sale->random, sale->item, service->config.instance);
    } else if (sale->result == SALE_SOLD && sale->purpose != SALE_SELL)
        answer_json(request, 200, "{\"item\":\"%s\",\"stock\":%" PRId64 ",\"instance\":\"%s\"}",
                    sale->item, sale->left, instance);
    else if (sale->result == SALE_SOLD && sale->segment != 0)
        answer_segments(service, request);
    else if (sale->result == SALE_SOLD)
        answer_json(request, 200,
                    "{\"sold\":%" PRId64 ",\"left\":%" PRId64 ",\"unit\":%" PRId64
                    ",\"item\":\"%s\",\"instance\":\"%s\"}",
                    sale->quantity, sale->left, sale->unit, sale->item, instance);
    else if (sale->result == SALE_SOLD_OUT || sale->result == SALE_INSUFFICIENT_STOCK)
        answer_left(request, sale);
    else {
        text_hide_servers(sale->detail);
        answer_problem(request, problems[sale->result], "%s", sale->detail);
        if (sale->result == SALE_REQUEST_IN_FLIGHT)
            request->answer.retry_s = 1;
        if (sale->result == SALE_DEADLINE && sale->replayed) /* it is final: see queue.h */
            request->answer.retry_s = 0;
    }
    if (sale->result == SALE_NOT_ADMITTED)
        request->answer.retry_s = retry_s(sale->wait_us);
}

static void shop_resume(struct sale *sale)
{
    struct shop_request *of = shop_request_with(sale);
    workers_resume(of->service->sales, &of->request);
}

static void resume_at(struct sale *sale, int64_t at_ns)
{
    struct shop_request *of = shop_request_with(sale);
    workers_resume_at(of->service->sales, &of->request, at_ns);
}

/* Keeps no thread: the switch ends only when the sales in flight have ended, and they need the
 * threads. */
static void resume_after_switch(struct sale *sale)
{
    struct shop_request *of = shop_request_with(sale);
    struct service *service = of->service;
    workers_put_off(service->sales, &of->request);
    if (!atomic_load(&service->mode.closed)) /* the switch has just ended */
        workers_go_on(service->sales);
}

static bool is_client_closed(const struct sale *sale)
{
    return http_is_client_closed(&shop_request_with(sale)->request);
}

static const struct sale_driver driver = {.resume = shop_resume,
                                          .resume_at = resume_at,
                                          .resume_after_switch = resume_after_switch,
                                          .is_client_closed = is_client_closed};

/* Each request about the stock begins here. */
static void shop_arrive(struct service *service, struct request *request)
{
    struct sale *sale = shop_request_sale(request);
    shop_request_of(request)->service = service;
    sale->driver = &driver;
    sale->request = request->id;
    sale->arrived_ns = request->arrived_ns;
    sale_arrive(&service->env, sale);
}

/* Each request about the stock ends here. */
static void shop_answer(struct service *service, struct request *request)
{
    struct sale *sale = shop_request_sale(request);
    shop_answer_sale(service, request);
    span_free(sale->span);
    sale->span = NULL;
    idempotency_release(&service->keys, sale);
    if (sale->purpose == SALE_RESTOCK)
        atomic_fetch_sub(&service->changes, 1);
}

void shop_refuse(struct service *service, struct request *request, enum sale_result result,
                 const char *detail)
{
    sale_refuse(&service->env, shop_request_sale(request), result, detail);
    shop_answer(service, request);
}

bool shop_refuse_by_outage(struct service *service, struct request *request)
{
    if (!sale_refuse_by_outage(&service->env, shop_request_sale(request)))
        return false;
    shop_answer(service, request);
    return true;
}

void shop_accept_sale(struct service *service, struct request *request)
{
    shop_request_sale(request)->purpose = SALE_SELL;
    bool draining = atomic_load(&service->draining);
    bool first = draining || idempotency_claim(&service->keys, shop_request_sale(request));
    shop_arrive(service, request);
    if (draining)
        shop_refuse(service, request, SALE_DRAINING, "the instance takes no more sales");
    else if (!first)
        shop_refuse(service, request, SALE_REQUEST_IN_FLIGHT,
                    "this instance has not answered it yet; send the same request again later to "
                    "get its answer");
}

void shop_accept_read(struct service *service, struct request *request)
{
    shop_request_sale(request)->purpose = SALE_READ;
    shop_arrive(service, request);
    if (shop_request_sale(request)->step != STEP_ASIDE && atomic_load(&service->draining))
        shop_refuse(service, request, SALE_DRAINING, "the instance takes no more guarded reads");
}

bool shop_sell(struct service *service, void *worker, struct request *request)
{
    if (sale_go_on(worker, shop_request_sale(request)) == SALE_WAITING)
        return false;
    shop_answer(service, request);
    return true;
}

/* ---- The stock ------------------------------------------------------------------------------- */

/* Changes of the stock may wait for their locks. Half of the admin listener's connections are left
 * for other requests. */
#define CHANGES_MAX (ADMIN_CONNECTIONS / 2)

static void accept_restock(struct service *service, struct request *request)
{
    shop_request_sale(request)->purpose = SALE_RESTOCK;
    const long others = atomic_fetch_add(&service->changes, 1);
    shop_arrive(service, request);
    if (atomic_load(&service->draining))
        shop_refuse(service, request, SALE_DRAINING, "the instance takes no more changes");
    else if (others >= CHANGES_MAX)
        shop_refuse(service, request, SALE_QUEUE_FULL,
                    "too many changes of the stock are under way here");
}

void shop_accept_set(struct service *service, struct request *request)
{
    if (json_take_number(request, "stock", 0, STOCK_MAX, &shop_request_sale(request)->quantity))
        accept_restock(service, request);
}

void shop_accept_add(struct service *service, struct request *request)
{
    shop_request_sale(request)->adds = true;
    if (json_take_number(request, "add", 1, STOCK_MAX, &shop_request_sale(request)->quantity))
        accept_restock(service, request);
}
