/* SPDX-License-Identifier: Apache-2.0
 *
 * See resolve.h.
 */
#include "resolve.h"

#include "../lock/clock.h"
#include "span.h"

#include <time.h>

struct finding {
    const char *key;
    const struct sale *sale;
    struct stock_broken_connection broken;
    uint64_t epoch; /* of the write; 0: it has none */
    bool ended;     /* the write was carried out, or never will be */
    int64_t stock;  /* the key's value, read after that */
};

/* Asked after the read. An instance that was not switched still holds its own lock, but others may
 * have written under another one since the epoch was raised. */
static enum stock_status is_same_epoch(struct stock *stock, uint64_t epoch)
{
    struct stock_epoch now;
    if (epoch == 0)
        return STOCK_OK;
    enum stock_status status = stock_read_epoch(stock, &now);
    if (status == STOCK_OK)
        return now.number == epoch ? STOCK_OK : STOCK_LOST;
    return status == STOCK_INVALID ? STOCK_LOST : STOCK_UNAVAILABLE;
}

/* Asked after the read, so that the lock was held during the read. STOCK_UNAVAILABLE: ask again. */
static enum stock_status is_still_ours(const struct sale *sale)
{
    dlock_hold *const *holds = sale->span != NULL ? sale->span->holds : &sale->hold;
    dlock_status extended = DLOCK_OK;
    for (size_t i = 0; extended == DLOCK_OK && i < span_count(sale); i++)
        extended = dlock_extend(holds[i]);
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
    enum stock_status alone = is_still_ours(finding->sale);
    if (alone == STOCK_OK)
        alone = is_same_epoch(stock, finding->epoch);
    return alone == STOCK_OK ? status : alone;
}

static enum stock_status shut_out(struct stock *stock, void *fence)
{
    enum stock_status status = stock_shut_out(stock, fence);
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

/* Repeats `attempt` while the hold is valid. All that a sale has to find out, or to shut out, may
 * take 2 * --redis-timeout-ms together; what is begun then is still awaited. `attempt` must be safe
 * to repeat. */
static enum stock_status resolve_retry(struct sale_worker *worker, struct sale *sale,
                                       enum stock_status (*attempt)(struct stock *stock, void *arg),
                                       void *arg)
{
    const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
    enum stock_status status = STOCK_UNAVAILABLE;
    if (sale->resolve_ends_ns == 0)
        sale->resolve_ends_ns = mono_ns() + 2 * worker->env->config->redis_timeout_ms * NS_PER_MS;
    while (mono_ns() < sale->resolve_ends_ns &&
           (status = attempt(worker->stock, arg)) == STOCK_UNAVAILABLE && span_is_valid(sale))
        nanosleep(&pause, NULL);
    return status;
}

/* The script that writes checks the stock, or its version, itself. */
static bool checks_as_it_writes(const struct sale_env *env)
{
    return env->mode->now.write == WRITE_ATOMIC || env->mode->now.write == WRITE_CAS;
}

/* True: a lost write that still arrives can do no harm. With `atomic` the script checks the stock
 * itself, and with `cas` its version. With FENCE_NEWEST every token of one grant is accepted, and
 * the client may hand the lock off under the same grant. So the stock is told first to refuse this
 * token. */
static bool is_kept_out(struct sale_worker *worker, struct sale *sale)
{
    struct section_fence room;
    const struct stock_fence *fence = section_fence(worker->env, sale, &room);
    if (fence == NULL)
        return sale->purpose == SALE_SELL && checks_as_it_writes(worker->env);
    return fence->kind != FENCE_NEWEST ||
           resolve_retry(worker, sale, shut_out, &room.fence) == STOCK_OK;
}

/* The outcome stays unknown, and the write may still arrive. Makes the fence refuse the write. If
 * that is not possible, the sale will abandon its lock. */
static void resolve_give_up(struct sale_worker *worker, struct sale *sale)
{
    sale->abandons = !is_kept_out(worker, sale);
}

/* Reads the key after a reply was lost. STOCK_OK: *stock is the key's value, with or without the
 * write. STOCK_MISSING, STOCK_INVALID: there is no key, or it holds no number. In all three cases
 * the lock is still held, so no other sale wrote. With `atomic` one may have: a sale that released
 * its lock, and whose write arrived late. STOCK_LOST: unknown. */
static enum stock_status find_out(struct sale_worker *worker, struct sale *sale, int64_t *stock)
{
    struct finding finding = {.key = sale->stock_key,
                              .sale = sale,
                              .epoch = sale->epoch,
                              .broken = stock_broken_connection(worker->stock)};
    if (worker->env->mode->now.rung->flawed) /* another sale may have written as well */
        return STOCK_LOST;
    enum stock_status status = resolve_retry(worker, sale, resolve_find, &finding);
    bool known = status == STOCK_OK || status == STOCK_MISSING || status == STOCK_INVALID;
    *stock = finding.stock;
    if (!finding.ended)
        resolve_give_up(worker, sale);
    return known ? status : STOCK_LOST;
}

enum stock_status resolve_put_back(struct sale_worker *worker, struct sale *sale, int64_t after)
{
    int64_t stock;
    if (find_out(worker, sale, &stock) != STOCK_OK)
        return STOCK_LOST;
    return stock == after + sale->quantity ? STOCK_OK
           : stock == after                ? STOCK_UNAVAILABLE
                                           : STOCK_LOST;
}

struct version_look {
    const char *key;
    struct stock_broken_connection broken;
    bool ended; /* the write was carried out, or never will be */
    int64_t version;
};

static enum stock_status look_at_version(struct stock *stock, void *arg)
{
    struct version_look *look = arg;
    int64_t ignored;
    enum stock_status status = look->ended ? STOCK_OK : stock_kill_broken(stock, &look->broken);
    look->ended = status == STOCK_OK;
    if (status == STOCK_OK)
        status = stock_read_version(stock, look->key, &ignored, &look->version);
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

/* An unchanged version shows that the write was not carried out, whoever else writes. A version
 * that was raised shows nothing: another sale may have raised it. */
static enum stock_status resolve_version(struct sale_worker *worker, struct sale *sale)
{
    struct version_look look = {.key = sale->stock_key,
                                .broken = stock_broken_connection(worker->stock)};
    enum stock_status status = resolve_retry(worker, sale, look_at_version, &look);
    if (!look.ended)
        resolve_give_up(worker, sale);
    const bool unchanged = status == STOCK_OK && look.version == sale->version;
    return unchanged ? STOCK_UNAVAILABLE : STOCK_LOST;
}

enum stock_status resolve_sale(struct sale_worker *worker, struct sale *sale, int64_t *after)
{
    int64_t stock;
    if (worker->env->mode->now.write == WRITE_CAS)
        return resolve_version(worker, sale);
    if (worker->env->mode->now.write == WRITE_ATOMIC) /* it has no earlier read to compare with */
        return STOCK_LOST;
    if (find_out(worker, sale, &stock) != STOCK_OK)
        return STOCK_LOST;
    /* of several segments all were written, or none: the first one tells */
    *after = sale->left - (sale->span != NULL ? sale->span->parts[0].quantity : sale->quantity);
    return stock == *after ? STOCK_OK : stock == sale->left ? STOCK_UNAVAILABLE : STOCK_LOST;
}

struct search {
    const char *record_key;
    struct stock_broken_connection broken;
    bool ended; /* the write was carried out, or never will be */
    struct stock_record record;
};

/* A record tells the outcome even if the connection could not be ended. STOCK_MISSING: the write
 * was not carried out, and never will be. */
static enum stock_status search_record(struct stock *stock, void *arg)
{
    struct search *search = arg;
    enum stock_status ended = search->ended ? STOCK_OK : stock_kill_broken(stock, &search->broken);
    search->ended = ended == STOCK_OK;
    if (ended == STOCK_UNAVAILABLE) /* it would not be answered, either */
        return ended;
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
    /* see find_out: a late sale; and a stock that lies over segments is no one number */
    if (checks_as_it_writes(worker->env) || sale->span != NULL)
        return STOCK_LOST;
    if (found == STOCK_LOST || (sale->adds && !known))
        return STOCK_LOST;
    sale->left = after;
    return found == STOCK_OK && stock == after ? STOCK_OK : STOCK_UNAVAILABLE;
}
