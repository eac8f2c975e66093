/* SPDX-License-Identifier: Apache-2.0
 *
 * See queue_sale.h.
 */
#include "queue_sale.h"

#include "../lock/clock.h"
#include "log.h"
#include "metrics.h"
#include "queue.h"
#include "queue_worker.h"
#include "sale_record.h"
#include "selling.h"

#include <inttypes.h>
#include <time.h>

static enum sale_step queue_sale_point(struct sale *sale, const char *point, enum sale_step next)
{
    section_point(sale, point, next);
    sale->point_group = "queue";
    return next;
}

static void queue_sale_pause(void)
{
    const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
    nanosleep(&pause, NULL);
}

/* How long a step repeats a command whose reply was lost. As resolve.c does. */
static int64_t queue_sale_ends_ns(const struct sale_worker *worker)
{
    return mono_ns() + 2 * worker->env->config->redis_timeout_ms * NS_PER_MS;
}

/* Whether the replicas have what the latest command wrote. Hints at what that says of the
 * server. */
static bool queue_sale_is_confirmed(struct sale_worker *worker)
{
    const bool confirmed = !section_asks_replicas(worker) || stock_is_confirmed(worker->stock);
    outage_hint(worker->env->outage, ROLE_STOCK, confirmed ? OUTAGE_THERE : OUTAGE_LOOK);
    return confirmed;
}

/* ---- Accepting ------------------------------------------------------------------------------- */

/* A command whose reply was lost. */
struct queue_doubt {
    bool lost; /* it may have been carried out: no later reply tells */
    bool open; /* the connection of the latest one was not ended yet */
    bool kept; /* that of an earlier one never was */
    struct stock_broken_connection broken;
};

static bool queue_sale_in_doubt(const struct queue_doubt *doubt)
{
    return doubt->lost || doubt->open || doubt->kept;
}

/* Makes sure that a lost command arrives no more, if the server can. */
static void queue_sale_settle_doubt(struct stock *stock, struct queue_doubt *doubt)
{
    if (doubt->open && stock_kill_broken(stock, &doubt->broken) == STOCK_OK)
        doubt->open = false;
}

static enum stock_status queue_sale_try(struct sale_worker *worker, struct sale *sale,
                                        struct stock_record *record, enum queue_accepted *accepted,
                                        struct queue_doubt *doubt)
{
    struct stock *stock = worker->stock;
    enum stock_status status = queue_accept(stock, worker->env->config, sale, record, accepted);
    if (status == STOCK_OK || status == STOCK_MISSING)
        doubt->lost = false; /* the script looks first for what an earlier one has done */
    if (status != STOCK_LOST)
        return status;
    doubt->kept = doubt->open || doubt->kept;
    doubt->open = doubt->lost = true;
    doubt->broken = stock_broken_connection(stock);
    return STOCK_LOST;
}

/* Accepts the sale, and sends that again while its reply is lost. */
static enum stock_status queue_sale_put(struct sale_worker *worker, struct sale *sale,
                                        struct stock_record *record, enum queue_accepted *accepted,
                                        struct queue_doubt *doubt)
{
    const int64_t ends_ns = queue_sale_ends_ns(worker);
    const uint64_t lost = stock_lost_count(worker->stock);
    enum stock_status status;
    *doubt = (struct queue_doubt){0};
    for (;;) {
        status = queue_sale_try(worker, sale, record, accepted, doubt);
        const bool unclear = status == STOCK_LOST || (status == STOCK_UNAVAILABLE &&
                                                      stock_lost_count(worker->stock) > lost);
        if (!unclear || mono_ns() >= ends_ns)
            return status;
        queue_sale_pause();
        queue_sale_settle_doubt(worker->stock, doubt);
    }
}

/* It may be accepted all the same: then the history has its outcome, too. */
static void queue_sale_unknown(const struct sale_worker *worker, struct sale *sale,
                               const char *detail)
{
    const struct sale_env *env = worker->env;
    section_end(sale, SALE_OUTCOME_UNKNOWN, detail);
    RECORD(env, sale, "unknown", ",\"code\":%d,\"quantity\":%" PRId64,
           env->codes[SALE_OUTCOME_UNKNOWN], sale->quantity);
}

/* The sale is in the queue, perhaps through an earlier request with its key. */
static void queue_sale_accepted(struct sale_worker *worker, struct sale *sale,
                                const struct stock_record *record)
{
    if (record->quantity == sale->quantity && !queue_sale_is_confirmed(worker))
        queue_sale_unknown(worker, sale, stock_error(worker->stock));
    else
        selling_replay(worker, sale, record);
    queue_worker_wake(worker->env->queue, sale->item);
}

static void queue_sale_refuse(struct sale_worker *worker, struct sale *sale,
                              enum stock_status status, const struct queue_doubt *doubt)
{
    if (status == STOCK_OK)
        section_end(sale, SALE_QUEUE_FULL,
                    "the item's queue of accepted sales is full (--queue-max)");
    else
        section_end_by_stock(worker, sale, status);
    if (!queue_sale_in_doubt(doubt))
        return;
    char detail[sizeof sale->detail];
    snprintf(detail, sizeof detail,
             "the reply to the acceptance was lost, and the sale may be accepted; if it is, "
             "GET /sales/%s.%s will tell",
             sale->item, sale->random);
    queue_sale_unknown(worker, sale, detail);
}

enum sale_step queue_sale_accept(struct sale_worker *worker, struct sale *sale)
{
    struct stock_record record = {0};
    struct queue_doubt doubt;
    enum queue_accepted accepted = QUEUE_IS_FULL;
    queue_make_random(sale->random);
    if (sale->key[0] == '\0') {
        snprintf(sale->key, sizeof sale->key, "%s", sale->random);
        sale_name_keys(worker->env->config, sale);
    }
    queue_name_keys(worker->env->config, sale);
    enum stock_status status = queue_sale_put(worker, sale, &record, &accepted, &doubt);
    if (status != STOCK_OK || accepted == QUEUE_IS_FULL)
        queue_sale_refuse(worker, sale, status, &doubt);
    else if (accepted == QUEUE_DECIDED)
        selling_replay(worker, sale, &record);
    else
        queue_sale_accepted(worker, sale, &record);
    return sale->result == SALE_ACCEPTED ? queue_sale_point(sale, "accepted", STEP_END) : STEP_END;
}

/* ---- Processing ------------------------------------------------------------------------------ */

void queue_sale_pass(struct sale *sale)
{
    sale->passed = true;
    section_end(sale, SALE_REQUEST_IN_FLIGHT, "another instance processes this entry");
}

static struct queue_sell queue_sale_want(const struct sale_worker *worker, const struct sale *sale,
                                         const struct stock_fence *fence)
{
    const struct config *config = worker->env->config;
    return (struct queue_sell){.key = sale->stock_key,
                               .record_key = sale->record_key,
                               .queue_key = sale->queue_key,
                               .pointer_key = sale->pointer_key,
                               .number = sale->entry->number,
                               .random = sale->entry->random,
                               .instance = config->instance,
                               .mark = selling_new_mark(),
                               .keep_ms = config->idempotency_ms,
                               .expires_only = sale->expires,
                               .fence = fence};
}

/* Before it can be decided: the judge knows by this that an instance may have done it, and died. */
static void queue_sale_record_taken(const struct sale_env *env, const struct sale *sale)
{
    char hold[sizeof sale->hold_id + 16] = "";
    if (sale->hold_id[0] != '\0') /* an entry whose life is over needs no lock */
        snprintf(hold, sizeof hold, ",\"hold\":\"%s\"", sale->hold_id);
    RECORD(env, sale, "taken", "%s,\"id\":\"%s.%s\",\"entry\":\"%s\",\"quantity\":%" PRId64, hold,
           sale->item, sale->random, sale->entry->number, sale->quantity);
}

enum sale_step queue_sale_take(struct sale_worker *worker, struct sale *sale)
{
    bool same;
    enum stock_status status = queue_take(
        worker->stock, sale->queue_key, worker->env->config->instance, sale->entry->number, &same);
    if (status == STOCK_OK && same) {
        queue_sale_record_taken(worker->env, sale);
        return queue_sale_point(sale, "taken", STEP_TAKEN);
    }
    if (status == STOCK_OK)
        queue_sale_pass(sale);
    else
        section_end_by_stock(worker, sale, status);
    return STEP_LEAVE;
}

static bool queue_sale_is_sound(const struct sale_env *env)
{
    return write_keeps_keys(env->mode->now.write);
}

/* A fence on another server needs the read. Too few units are no end: the write stores it. */
enum sale_step queue_sale_taken(struct sale_worker *worker, struct sale *sale)
{
    struct section_fence room;
    const struct sale_env *env = worker->env;
    if (env->mode->now.write != WRITE_ATOMIC) {
        enum stock_status status = stock_read(worker->stock, sale->stock_key,
                                              section_fence(env, sale, &room), &sale->left);
        if (status != STOCK_OK && !(status == STOCK_MISSING && queue_sale_is_sound(env))) {
            section_end_by_stock(worker, sale, status);
            return STEP_LEAVE;
        }
        sale->stock_master = stock_master(worker->stock);
    }
    return section_point(sale, "after_read", STEP_WORK);
}

/* The entry has its outcome, by this attempt. */
static void queue_sale_end(struct sale_worker *worker, struct sale *sale,
                           const struct stock_record *record)
{
    const struct sale_env *env = worker->env;
    sale->settled = true;
    selling_end_by_record(sale, record);
    if (sale->result == SALE_SOLD) {
        sale->left = record->left + sale->quantity;
        sale_record_read(env, sale, sale->left);
        selling_sold(env, sale, record->left);
        return;
    }
    sale->kept = true;
    if (record->code == 409)
        sale_record_read(env, sale, record->left);
}

/* Sends the script, and sends it again while its reply is lost: it sells once. */
static enum stock_status queue_sale_send(struct sale_worker *worker, struct sale *sale,
                                         struct stock_record *record, enum queue_sold *sold,
                                         bool *lost)
{
    const int64_t ends_ns = queue_sale_ends_ns(worker);
    struct section_fence room;
    const struct queue_sell want = queue_sale_want(
        worker, sale, sale->expires ? NULL : section_fence(worker->env, sale, &room));
    *lost = false;
    for (;;) {
        stock_pin(worker->stock, sale->stock_master);
        stock_ask_replicas(worker->stock, true);
        enum stock_status status = queue_sell(worker->stock, &want, record, sold);
        stock_ask_replicas(worker->stock, false);
        stock_pin(worker->stock, 0);
        const bool unclear = status == STOCK_LOST || (*lost && status == STOCK_UNAVAILABLE);
        *lost = *lost || unclear;
        if (!unclear || mono_ns() >= ends_ns)
            return unclear ? STOCK_LOST : status;
        queue_sale_pause();
    }
}

static void queue_sale_decide(struct sale_worker *worker, struct sale *sale)
{
    struct stock_record record = {0};
    enum queue_sold sold;
    bool lost;
    enum stock_status status = queue_sale_send(worker, sale, &record, &sold, &lost);
    if (status == STOCK_LOST) {
        outage_hint(worker->env->outage, ROLE_STOCK, OUTAGE_LOOK);
        section_end(sale, SALE_OUTCOME_UNKNOWN, stock_error(worker->stock));
    } else if (status != STOCK_OK) {
        section_end_by_stock(worker, sale, status);
    } else if (sold == QUEUE_MADE) {
        if (!lost) /* otherwise it may have written on another connection */
            queue_sale_is_confirmed(worker); /* each question for the outcome has it confirmed */
        queue_sale_end(worker, sale, &record);
    } else if (sold == QUEUE_KEPT) {
        sale->settled = sale->passed = true;
    } else {
        queue_sale_pass(sale);
    }
}

enum sale_step queue_sale_expire(struct sale_worker *worker, struct sale *sale)
{
    queue_sale_record_taken(worker->env, sale);
    queue_sale_decide(worker, sale);
    return STEP_END;
}

/* The flawed demonstration: the stock changes here, the rest in a second command. */
static bool queue_sale_write_apart(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    int64_t after = sale->left - sale->quantity;
    if (!selling_is_enough(env, sale, sale->left))
        return true;
    enum stock_status status =
        env->mode->now.write == WRITE_SET
            ? stock_write(worker->stock, sale->stock_key, after)
            : stock_decrement(worker->stock, sale->stock_key, sale->quantity, NULL, &after);
    if (status == STOCK_LOST)
        section_end(sale, SALE_OUTCOME_UNKNOWN, stock_error(worker->stock));
    else if (status != STOCK_OK)
        section_end_by_stock(worker, sale, status);
    else
        selling_sold(env, sale, after);
    return status == STOCK_OK;
}

enum sale_step queue_sale_sell(struct sale_worker *worker, struct sale *sale)
{
    bool decided = true;
    if (queue_sale_is_sound(worker->env)) {
        queue_sale_decide(worker, sale);
        decided = sale->settled && !sale->passed;
    } else {
        decided = queue_sale_write_apart(worker, sale);
    }
    return decided ? queue_sale_point(sale, "before_ack", STEP_ACKNOWLEDGE) : STEP_LEAVE;
}

enum sale_step queue_sale_acknowledge(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    if (!sale->settled) {
        const struct queue_sell want = queue_sale_want(worker, sale, NULL);
        struct stock_record record = {
            .code = env->codes[sale->result], .quantity = sale->quantity, .left = sale->left};
        enum stock_status status = queue_settle(worker->stock, &want, &record);
        sale->settled = status == STOCK_OK;
        if (!sale->settled)
            log_event(LOG_WARNING, "queue", "an entry of %s was sold and not acknowledged: %s",
                      sale->queue_key, stock_error(worker->stock));
    }
    return sale->result == SALE_SOLD ? section_point(sale, "after_write", STEP_LEAVE) : STEP_LEAVE;
}
