/* SPDX-License-Identifier: Apache-2.0
 *
 * See restock.h.
 */
#include "restock.h"

#include "admission.h"
#include "resolve.h"
#include "sale_record.h"
#include "span.h"

#include <inttypes.h>

/* FENCE_LAST_READ accepts a write only from the last reader, so a restock must read first. */
static bool read_for_write(struct sale_worker *worker, struct sale *sale,
                           const struct stock_fence *fence)
{
    int64_t stock;
    if (fence == NULL || fence->kind != FENCE_LAST_READ)
        return true;
    enum stock_status status = stock_read(worker->stock, sale->stock_key, fence, &stock);
    if (status == STOCK_OK || status == STOCK_MISSING || status == STOCK_INVALID)
        return true;
    section_end_by_stock(worker, sale, status);
    return false;
}

/* Units are added only to a stock that exists: a typo in the name must not create an item. */
static bool may_add(struct sale_worker *worker, struct sale *sale, const struct stock_fence *fence)
{
    int64_t stock;
    char detail[160];
    if (!section_read(worker, sale, fence, &stock))
        return false;
    sale->left = stock;
    if (stock <= STOCK_MAX - sale->quantity)
        return true;
    snprintf(detail, sizeof detail,
             "there are %" PRId64 " of %s, and there may be at most %" PRId64, stock, sale->item,
             (int64_t)STOCK_MAX);
    section_end(sale, SALE_STOCK_TOO_LARGE, detail);
    return false;
}

/* *laid: the layout before and after. */
static enum stock_status lay_restock(struct sale_worker *worker, struct sale *sale,
                                     const struct stock_beside *beside, struct stock_laid *laid)
{
    const size_t count = span_count(sale);
    struct segment_keys keys;
    segments_keys(worker->env->config, sale, count, &keys);
    const struct stock_laying laying = {.key = sale->item_key,
                                        .beside = *beside,
                                        .layout = section_layout(worker->env),
                                        .segments = worker->env->mode->now.segments.count,
                                        .keys = keys.list,
                                        .key_count = count,
                                        .adds = sale->adds,
                                        .units = sale->quantity};
    enum stock_status status = stock_lay(worker->stock, &laying, laid);
    if (status == STOCK_OK)
        sale->left = laid->after;
    return status;
}

/* laid->before: the stock before the write, or STOCK_NONE. */
static enum stock_status write_restock(struct sale_worker *worker, struct sale *sale,
                                       const struct stock_fence *fence, struct stock_laid *laid)
{
    struct admission_keys keys;
    admission_keys(worker->env, sale, &keys);
    const struct stock_beside beside = {.set_key = keys.set, .bucket_key = keys.bucket};
    *laid = (struct stock_laid){.before = STOCK_NONE};
    if (section_layout(worker->env) != LAYOUT_NUMBER || sale->span != NULL)
        return lay_restock(worker, sale, &beside, laid);
    if (!sale->adds) {
        sale->left = sale->quantity;
        return stock_replace(worker->stock, sale->stock_key, sale->quantity, &beside, fence,
                             &laid->before);
    }
    enum stock_status written =
        stock_add(worker->stock, sale->stock_key, sale->quantity, fence, &sale->left);
    laid->before = sale->left - sale->quantity;
    return written;
}

/* "[3,2,2]" */
static void print_parts(const int64_t *parts, int count, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < count && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%c%" PRId64, i == 0 ? '[' : ',', parts[i]);
    if (used < size)
        snprintf(text + used, size - used, "]");
}

#define PARTS_MAX (SEGMENTS_MAX * 18)
static void record_restock(struct sale_worker *worker, struct sale *sale,
                           const struct stock_laid *laid)
{
    char before[64] = "", parts[2 * PARTS_MAX + 64] = "", was[PARTS_MAX] = "[]",
         is[PARTS_MAX] = "[]";
    const bool had = laid->before != STOCK_NONE;
    if (had)
        snprintf(before, sizeof before, ",\"stock_before\":%" PRId64, laid->before);
    if (laid->segments_before > 0 || laid->segments_after > 0) {
        const bool one_before = laid->segments_before == 0, one_after = laid->segments_after == 0;
        print_parts(one_before ? &laid->before : laid->parts_before,
                    one_before ? had : laid->segments_before, was, sizeof was);
        print_parts(one_after ? &laid->after : laid->parts_after,
                    one_after ? 1 : laid->segments_after, is, sizeof is);
        snprintf(parts, sizeof parts, "%s%s,\"parts_after\":%s", had ? ",\"parts_before\":" : "",
                 had ? was : "", is);
    }
    RECORD(worker->env, sale, "restock", "%s,\"stock_after\":%" PRId64 "%s", before, sale->left,
           parts);
}

/* The stock lies over more segments than it has locks of: it asks for the locks of all. */
static enum sale_step restock_elsewhere(struct sale_worker *worker, struct sale *sale)
{
    const struct setting *now = &worker->env->mode->now;
    int count = stock_segments(worker->stock);
    char detail[sizeof sale->detail];
    if (write_is_fenced(now->write) || !segments_lock_fits(now->rung)) {
        snprintf(
            detail, sizeof detail,
            "the stock of %s is laid out in %d segments, and this instance takes one lock with "
            "\"%s\" and \"%s\"; switch it to another lock and to decr, set or atomic (PUT "
            "/lock), set the stock, and switch it back",
            sale->item, count, now->rung->name, write_ways[now->write].name);
        section_end(sale, SALE_OTHER_LAYOUT, detail);
        return STEP_LEAVE;
    }
    if (count <= (int)span_count(sale) || count > SEGMENTS_MAX) {
        section_end_by_stock(worker, sale, STOCK_SEGMENTED);
        return STEP_LEAVE;
    }
    sale->next_span = span_first(sale, (size_t)count);
    return sale->next_span != NULL ? STEP_ELSEWHERE : STEP_LEAVE;
}

/* The intent is recorded before the write. So the judge knows of the write even if this process
 * dies before it records the outcome. */
enum sale_step restock(struct sale_worker *worker, struct sale *sale)
{
    struct section_fence room;
    const struct stock_fence *fence = section_fence(worker->env, sale, &room);
    bool ready = sale->adds ? may_add(worker, sale, fence) : read_for_write(worker, sale, fence);
    if (!ready || !section_may_go_on(worker->env, sale))
        return STEP_LEAVE;
    struct stock_laid laid;
    RECORD(worker->env, sale, "restock_intent", ",\"%s\":%" PRId64, sale->adds ? "add" : "set",
           sale->quantity);
    enum stock_status written = write_restock(worker, sale, fence, &laid);
    bool resolved = written == STOCK_LOST;
    if (resolved)
        written = resolve_restock(worker, sale, &laid.before);
    /* if replicas must confirm, a write of which none was asked does not show that */
    if (written == STOCK_OK && worker->env->config->replicas_ack == DLOCK_REPLICAS_NONE)
        outage_hint(worker->env->outage, ROLE_STOCK, OUTAGE_THERE);
    if (written == STOCK_OK) {
        record_restock(worker, sale, &laid);
    } else if (written == STOCK_LOST) {
        RECORD(worker->env, sale, "restock_unknown", "%s", "");
        section_end(sale, SALE_OUTCOME_UNKNOWN, stock_error(worker->stock));
    } else {
        RECORD(worker->env, sale, "restock_failed", "%s", "");
        if (written == STOCK_SEGMENTED)
            return restock_elsewhere(worker, sale);
        if (resolved)
            section_end(sale, SALE_STOCK_UNAVAILABLE,
                        "the connection was lost before the write was carried out");
        else
            section_end_by_stock(worker, sale, written);
    }
    return STEP_LEAVE;
}
