/* SPDX-License-Identifier: Apache-2.0
 *
 * See restock.h.
 */
#include "restock.h"

#include "admission.h"
#include "resolve.h"
#include "sale_record.h"

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

/* *before: the stock before the write, or STOCK_NONE. */
static enum stock_status write_restock(struct sale_worker *worker, struct sale *sale,
                                       const struct stock_fence *fence, int64_t *before)
{
    struct admission_keys keys;
    admission_keys(worker->env, sale, &keys);
    const struct stock_beside beside = {.set_key = keys.set, .bucket_key = keys.bucket};
    if (section_layout(worker->env) == LAYOUT_VERSION)
        return stock_lay(worker->stock, sale->stock_key, &beside, sale->adds, sale->quantity,
                         before, &sale->left);
    if (!sale->adds) {
        sale->left = sale->quantity;
        return stock_replace(worker->stock, sale->stock_key, sale->quantity, &beside, fence,
                             before);
    }
    enum stock_status written =
        stock_add(worker->stock, sale->stock_key, sale->quantity, fence, &sale->left);
    *before = sale->left - sale->quantity;
    return written;
}

/* The intent is recorded before the write. So the judge knows of the write even if this process
 * dies before it records the outcome. */
void restock(struct sale_worker *worker, struct sale *sale)
{
    struct section_fence room;
    const struct stock_fence *fence = section_fence(worker->env, sale, &room);
    bool ready = sale->adds ? may_add(worker, sale, fence) : read_for_write(worker, sale, fence);
    if (!ready || !section_may_go_on(worker->env, sale))
        return;
    int64_t before;
    RECORD(worker->env, sale, "restock_intent", ",\"%s\":%" PRId64, sale->adds ? "add" : "set",
           sale->quantity);
    enum stock_status written = write_restock(worker, sale, fence, &before);
    bool resolved = written == STOCK_LOST;
    if (resolved)
        written = resolve_restock(worker, sale, &before);
    /* if replicas must confirm, a write of which none was asked does not show that */
    if (written == STOCK_OK && worker->env->config->replicas_ack == DLOCK_REPLICAS_NONE)
        outage_hint(worker->env->outage, ROLE_STOCK, OUTAGE_THERE);
    if (written == STOCK_OK && before != STOCK_NONE) {
        RECORD(worker->env, sale, "restock",
               ",\"stock_before\":%" PRId64 ",\"stock_after\":%" PRId64, before, sale->left);
    } else if (written == STOCK_OK) {
        RECORD(worker->env, sale, "restock", ",\"stock_after\":%" PRId64, sale->left);
    } else if (written == STOCK_LOST) {
        RECORD(worker->env, sale, "restock_unknown", "%s", "");
        section_end(sale, SALE_OUTCOME_UNKNOWN, stock_error(worker->stock));
    } else {
        RECORD(worker->env, sale, "restock_failed", "%s", "");
        if (resolved)
            section_end(sale, SALE_STOCK_UNAVAILABLE,
                        "the connection was lost before the write was carried out");
        else
            section_end_by_stock(worker, sale, written);
    }
}
