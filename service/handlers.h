/* SPDX-License-Identifier: Apache-2.0
 *
 * What the routes call: shop.c and admin.c.
 */
#ifndef HANDLERS_H
#define HANDLERS_H

#include "service.h"

/* By enum sale_result: the HTTP status of each. */
extern const int shop_codes[];

void shop_health(struct service *service, struct request *request);
void shop_accept_sale(struct service *service, struct request *request);
void shop_accept_set(struct service *service, struct request *request);
void shop_accept_add(struct service *service, struct request *request);
void shop_accept_read(struct service *service, struct request *request);
/* Sells, restocks or reads. */
bool shop_sell(struct service *service, struct sale_worker *worker, struct request *request);
/* What shop_sell would have done is not done. */
void shop_refuse(struct service *service, struct request *request, enum sale_result result,
                 const char *detail);

void admin_live(struct service *service, struct request *request);
bool admin_ready(struct service *service, struct sale_worker *worker, struct request *request);
void admin_version(struct service *service, struct request *request);
void admin_config(struct service *service, struct request *request);
void admin_metrics(struct service *service, struct request *request);
void admin_get_lock(struct service *service, struct request *request);
void admin_accept_lock(struct service *service, struct request *request);
void admin_get_failpoints(struct service *service, struct request *request);
void admin_put_failpoint(struct service *service, struct request *request);
bool admin_put_lock(struct service *service, struct sale_worker *worker, struct request *request);

#endif
