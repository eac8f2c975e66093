/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out what became of a write whose reply was lost. Call it with the worker that wrote: the
 * question is about the connection on which the write was sent. That it was carried out does not
 * mean that replicas have it: for --replicas-ack the caller has another write confirmed.
 */
#ifndef RESOLVE_H
#define RESOLVE_H

#include "section.h"

/* These return STOCK_OK: the write was carried out. STOCK_UNAVAILABLE: it was not, and never
 * will be. STOCK_LOST: unknown. */

/* On entry sale->left is the stock that was read. *after: with STOCK_OK, the stock after the
 * write. */
enum stock_status resolve_sale(struct sale_worker *worker, struct sale *sale, int64_t *after);
/* For a sale with a key: its record alone tells the outcome, whatever the stock and the lock are.
 * STOCK_OK: *record is this sale's or another's. sent_ns: when the write was sent. If that is
 * longer ago than --idempotency-ms, a missing record may have expired: STOCK_LOST. */
enum stock_status resolve_sale_once(struct sale_worker *worker, struct sale *sale, int64_t sent_ns,
                                    struct stock_record *record);
/* With sale->adds, on entry sale->left is the stock that was read. */
enum stock_status resolve_restock(struct sale_worker *worker, struct sale *sale, int64_t *before);
/* Of the write that adds the units of a refused sale again. after: the stock without it. */
enum stock_status resolve_put_back(struct sale_worker *worker, struct sale *sale, int64_t after);

#endif
