/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps that only sales with --on-conflict queue take. Each returns the next step.
 */
#ifndef QUEUE_SALE_H
#define QUEUE_SALE_H

#include "section.h"

/* Puts the sale into its item's queue, or answers what is stored under its key. */
enum sale_step queue_sale_accept(struct sale_worker *worker, struct sale *sale);

/* Of a sale that processes an entry. Under the lock: takes the entry, reads, sells. */
enum sale_step queue_sale_take(struct sale_worker *worker, struct sale *sale);
enum sale_step queue_sale_taken(struct sale_worker *worker, struct sale *sale);
enum sale_step queue_sale_sell(struct sale_worker *worker, struct sale *sale);
enum sale_step queue_sale_acknowledge(struct sale_worker *worker, struct sale *sale);
/* Without the lock: the entry's life is over. */
enum sale_step queue_sale_expire(struct sale_worker *worker, struct sale *sale);
/* Ends the sale without an outcome: another one processes the entry, or nobody does now. */
void queue_sale_pass(struct sale *sale);

#endif
