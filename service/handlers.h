/* SPDX-License-Identifier: Apache-2.0
 *
 * The handlers that the routes call, in shop.c and admin.c. worker: a struct sale_worker.
 */
#ifndef HANDLERS_H
#define HANDLERS_H

#include "problems.h"
#include "service.h"

/* The HTTP status of each enum sale_result. */
extern const int shop_codes[];

void shop_health(struct service *service, struct request *request);
void shop_accept_sale(struct service *service, struct request *request);
void shop_accept_set(struct service *service, struct request *request);
void shop_accept_add(struct service *service, struct request *request);
void shop_accept_read(struct service *service, struct request *request);
/* GET /sales/{id}. */
void shop_accept_outcome(struct service *service, struct request *request);
bool shop_outcome(struct service *service, void *worker, struct request *request);
/* Answers a sale, a restock or a read by its result. */
void shop_answer_sale(const struct service *service, struct request *request);
/* Runs a sale, a restock or a read. False: it is suspended. */
bool shop_sell(struct service *service, void *worker, struct request *request);
/* Refuses a sale, a restock or a read that has not begun, and answers the request. */
void shop_refuse(struct service *service, struct request *request, enum sale_result result,
                 const char *detail);

/* The same if a Redis that it needs is away. Needs no worker: all of them may be waiting for it.
 * False: none is. */
bool shop_refuse_by_outage(struct service *service, struct request *request);

bool admin_ready(struct service *service, void *worker, struct request *request);
void admin_metrics(struct service *service, struct request *request);
void admin_get_lock(struct service *service, struct request *request);
void admin_accept_lock(struct service *service, struct request *request);
bool admin_put_lock(struct service *service, void *worker, struct request *request);

#endif
