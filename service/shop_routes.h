/* SPDX-License-Identifier: Apache-2.0
 *
 * The shop's routes, and which of its threads serve them.
 */
#ifndef SHOP_ROUTES_H
#define SHOP_ROUTES_H

#include "routes.h"

extern const struct routes shop_routes;

/* For http_options: puts the Idempotency-Key into the sale, or answers. */
void shop_routes_take_key(struct request *request, const char *key, unsigned keys);

/* Accepts a complete request, and queues it if the route says so. True: it is answered. False:
 * http_answer() will be called. */
bool shop_routes_serve(void *service, struct request *request);
/* Answers a request that waited too long, or that still waits when the instance shuts down. */
void shop_routes_expire(struct service *service, struct request *request);

#endif
