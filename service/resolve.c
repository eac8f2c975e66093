/* SPDX-License-Identifier: Apache-2.0
 *
 * See resolve.h.
 */
#include "resolve.h"

#include "../lock/clock.h"

#include <time.h>

struct finding {
    const char *key;
    dlock_hold *hold;
    struct stock_broken_connection broken;
    bool ended;    /* the write was carried out, or never will be */
    int64_t stock; /* what the key holds since */
};

/* Asked behind the reading. UNAVAILABLE: ask again. */
static enum stock_status is_still_ours(dlock_hold *hold)
{
    dlock_status extended = dlock_extend(hold);
    bool unanswered = extended == DLOCK_UNKNOWN || extended == DLOCK_UNREACHABLE;
    return extended == DLOCK_OK ? STOCK_OK : unanswered ? STOCK_UNAVAILABLE : STOCK_LOST;
}

static enum stock_status resolve_find(struct stock *stock, void *arg)
{
    struct finding *finding = arg;
    enum stock_status status =
        finding->ended ? STOCK_OK : stock_kill_broken(stock, &finding->broken);
    if (status != STOCK_OK)
        return status;
    finding->ended = true;
    status = stock_read(stock, finding->key, NULL, &finding->stock);
    if (status != STOCK_OK && status != STOCK_MISSING && status != STOCK_INVALID)
        return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
    enum stock_status ours = is_still_ours(finding->hold);
    return ours == STOCK_OK ? status : ours;
}

static enum stock_status shut_out(struct stock *stock, void *fence)
{
    enum stock_status status = stock_shut_out(stock, fence);
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

/* Repeats `attempt` while the hold is valid, for at most 2 * --redis-timeout-ms. `attempt` must be
 * safe to repeat. */
static enum stock_status resolve_retry(struct sale_worker *worker, const struct sale *sale,
                                       enum stock_status (*attempt)(struct stock *stock, void *arg),
                                       void *arg)
{
    const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
    const int64_t ends_ns = mono_ns() + 2 * worker->env->config->redis_timeout_ms * NS_PER_MS;
    enum stock_status status;
    while ((status = attempt(worker->stock, arg)) == STOCK_UNAVAILABLE && dlock_valid(sale->hold) &&
           mono_ns() < ends_ns)
        nanosleep(&pause, NULL);
    return status;
}

/* The lost write may still arrive. The client may hand its lock on with a token that the stock
 * cannot tell from this one. So the stock is told first. */
static bool is_kept_out(struct sale_worker *worker, const struct sale *sale)
{
    struct section_fence room;
    const struct stock_fence *fence = section_fence(worker->env, sale, &room);
    if (fence == NULL)
        return sale->purpose == SALE_SELL &&
               worker->env->mode->now.write == WRITE_ATOMIC; /* it looks for itself */
    return fence->kind != FENCE_NEWEST ||
           resolve_retry(worker, sale, shut_out, &room.fence) == STOCK_OK;
}

void resolve_give_up(struct sale_worker *worker, struct sale *sale)
{
    sale->abandons = !is_kept_out(worker, sale);
}

/* What became of a write whose reply was lost. OK: *stock is the key's value, with or without the
 * write. MISSING, INVALID: there is no key, or it holds no number. In all three the lock is still
 * ours, so no other sale wrote; with `atomic` one may have: the late write of a sale that gave its
 * lock back. LOST: it is not known. */
static enum stock_status find_out(struct sale_worker *worker, struct sale *sale, int64_t *stock)
{
    struct finding finding = {.key = sale->stock_key,
                              .hold = sale->hold,
                              .broken = stock_broken_connection(worker->stock)};
    if (worker->env->mode->now.rung->flawed) /* somebody else may have written as well */
        return STOCK_LOST;
    enum stock_status status = resolve_retry(worker, sale, resolve_find, &finding);
    bool known = status == STOCK_OK || status == STOCK_MISSING || status == STOCK_INVALID;
    *stock = finding.stock;
    if (!finding.ended)
        resolve_give_up(worker, sale);
    return known ? status : STOCK_LOST;
}

enum stock_status resolve_sale(struct sale_worker *worker, struct sale *sale, int64_t *after)
{
    int64_t stock;
    if (worker->env->mode->now.write == WRITE_ATOMIC) /* it read in the step that wrote */
        return STOCK_LOST;
    if (find_out(worker, sale, &stock) != STOCK_OK)
        return STOCK_LOST;
    *after = sale->left - sale->quantity;
    return stock == *after ? STOCK_OK : stock == sale->left ? STOCK_UNAVAILABLE : STOCK_LOST;
}

struct search {
    const char *record_key;
    struct stock_broken_connection broken;
    bool ended; /* the write was carried out, or never will be */
    struct stock_record record;
};

/* A record that is there says what became of the write, wherever that is by now. MISSING: it was
 * not carried out, and never will be. */
static enum stock_status search_record(struct stock *stock, void *arg)
{
    struct search *search = arg;
    enum stock_status ended = search->ended ? STOCK_OK : stock_kill_broken(stock, &search->broken);
    search->ended = ended == STOCK_OK;
    enum stock_status status = stock_recall(stock, search->record_key, &search->record);
    if (status == STOCK_MISSING && !search->ended)
        return ended;
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

enum stock_status resolve_sale_once(struct sale_worker *worker, struct sale *sale, int64_t sent_ns,
                                    struct stock_record *record)
{
    const int64_t keep_ns = worker->env->config->idempotency_ms * NS_PER_MS;
    struct search search = {.record_key = sale->record_key,
                            .broken = stock_broken_connection(worker->stock)};
    enum stock_status status = resolve_retry(worker, sale, search_record, &search);
    *record = search.record;
    if (status == STOCK_OK)
        return STOCK_OK;
    if (!search.ended)
        resolve_give_up(worker, sale);
    return status == STOCK_MISSING && mono_ns() - sent_ns < keep_ns ? STOCK_UNAVAILABLE
                                                                    : STOCK_LOST;
}

enum stock_status resolve_restock(struct sale_worker *worker, struct sale *sale, int64_t *before)
{
    int64_t stock, after = sale->adds ? sale->left + sale->quantity : sale->quantity;
    *before = sale->adds ? sale->left : STOCK_NONE;
    enum stock_status found = find_out(worker, sale, &stock);
    bool known = found == STOCK_OK && (stock == after || stock == *before);
    if (worker->env->mode->now.write ==
        WRITE_ATOMIC) /* a late sale may have written beside the lock: see find_out */
        return STOCK_LOST;
    if (found == STOCK_LOST || (sale->adds && !known))
        return STOCK_LOST;
    sale->left = after;
    return found == STOCK_OK && stock == after ? STOCK_OK : STOCK_UNAVAILABLE;
}
