/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes the queues of --on-conflict queue. Each entry is a sale (sale.h) that this drives on
 * threads of its own, so entries take no place of a buyer's request. Per item one entry is under
 * way in an instance, and the item's lock lets one instance work. An item is looked at when a sale
 * was accepted here. Once each QUEUE_LOOK_MS all listed items are asked for entries: so any
 * instance processes what another one has left.
 */
#ifndef QUEUE_WORKER_H
#define QUEUE_WORKER_H

#include "stock.h"

#include <stdbool.h>

#define QUEUE_LOOK_MS 1000
#define QUEUE_PAUSE_MS 20 /* after an attempt that failed; doubled up to QUEUE_PAUSE_MAX_MS */
#define QUEUE_PAUSE_MAX_MS 1000

struct queue_worker;
struct request;
struct service;
struct stock;

/* NULL when out of memory. */
struct queue_worker *queue_worker_new(struct service *service);
/* Begins to look. The threads for queues must run. */
void queue_worker_start(struct queue_worker *queue);
/* A sale of the item was accepted. Does not block. Any thread. queue NULL: does nothing. */
void queue_worker_wake(struct queue_worker *queue, const char *item);
/* How many entries the queues have, as last seen. */
long queue_worker_length(struct queue_worker *queue);

/* Waits until what all queues had at the call is processed. False: not all is done at deadline_ns,
 * or the stock's server did not tell; why[] says which queue stays, and what became of its head. An
 * operator's switch calls it, see mode_drain. */
bool queue_worker_drain(struct queue_worker *queue, struct stock *stock, long long deadline_ns,
                        char why[STOCK_ERROR_MAX]);

/* From now on it begins no entry. */
void queue_worker_end(struct queue_worker *queue);
/* False: an entry is still under way. */
bool queue_worker_is_idle(const struct queue_worker *queue);
/* Its threads must have ended. */
void queue_worker_free(struct queue_worker *queue);

#endif
