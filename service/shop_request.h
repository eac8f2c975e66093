/* SPDX-License-Identifier: Apache-2.0
 *
 * A request to the shop, and what the shop keeps with it.
 */
#ifndef SHOP_REQUEST_H
#define SHOP_REQUEST_H

#include "problems.h"
#include "request.h"
#include "sale.h"

struct shop_request {
    struct request request; /* must be first */
    struct sale sale;       /* for the routes of an item; at least its item is set */
    int64_t wait_s;         /* GET /sales/{id}: how long it may wait for the outcome */
    struct queue_number {
        uint64_t ms, sequence;
    } entry; /* private to queue_head.c: what it waits for, and until when */
    int64_t until_ns;
    struct service *service; /* set for sales, restocks and reads */
};

static inline struct shop_request *shop_request_of(struct request *request)
{
    return (struct shop_request *)(void *)request;
}

static inline struct sale *shop_request_sale(struct request *request)
{
    return &shop_request_of(request)->sale;
}

/* The request that carries the sale. */
static inline struct shop_request *shop_request_with(const struct sale *sale)
{
    return (struct shop_request *)((char *)(uintptr_t)sale - offsetof(struct shop_request, sale));
}

#endif
