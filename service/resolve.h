/* SPDX-License-Identifier: Apache-2.0
 *
 * A write without an answer: its reply was lost, and what became of it is found out, or is not.
 * Call it with the worker that wrote: the doubt is about the connection that brought the write.
 */
#ifndef RESOLVE_H
#define RESOLVE_H

#include "section.h"

/* All three answer OK: it was carried out; UNAVAILABLE: it was not, and never will be; LOST: nobody
 * knows. */

/* *after: what the stock is then. sale->left: what was read. */
enum stock_status resolve_sale(struct sale_worker *worker, struct sale *sale, int64_t *after);
/* Of a sale with a key: needs neither the stock nor the lock. OK: *record, this sale's or
 * another's. sent_ns: a record that is not there may have been, and have expired since. */
enum stock_status resolve_sale_once(struct sale_worker *worker, struct sale *sale, int64_t sent_ns,
                                    struct stock_record *record);
/* sale->left: what was read, where units are added. */
enum stock_status resolve_restock(struct sale_worker *worker, struct sale *sale, int64_t *before);

/* Nobody asks what became of the write, which may still come: it is kept out of the stock, or the
 * sale abandons its lock. */
void resolve_give_up(struct sale_worker *worker, struct sale *sale);

#endif
