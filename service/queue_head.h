/* SPDX-License-Identifier: Apache-2.0
 *
 * The requests that wait for the outcome of an entry of a queue. An item's queue is processed in
 * order. So an entry has no outcome while an older one, or itself, is the oldest unfinished one:
 * the queue's head. One look at the head of an item serves all requests of this instance that wait
 * for that item. They do not ask Redis meanwhile.
 */
#ifndef QUEUE_HEAD_H
#define QUEUE_HEAD_H

#include "shop_request.h"

#define QUEUE_HEAD_LOOK_MS 20
#define QUEUE_HEAD_ITEMS_MAX 4096 /* items that are waited for at the same time */

struct queue_heads;
struct service;

/* NULL when out of memory. */
struct queue_heads *queue_heads_new(struct service *service);

/* The request, of the item of its sale, waits for the outcome of that entry. It is resumed
 * on service->waits when the head has passed the entry, or the queue is empty; at until_ns; when
 * the instance drains; or when the stock's server is away. None of these proves that there is an
 * outcome. False: there is no room, and the request does not wait. After true do not touch it. Any
 * thread. */
bool queue_heads_wait(struct queue_heads *heads, struct shop_request *waiting, const char *number,
                      int64_t until_ns);
/* This instance has finished that entry: requests that wait for it or an older one are resumed. Any
 * thread; not after service->waits has stopped. */
void queue_heads_passed(struct queue_heads *heads, const char *item, const char *number);

/* service->waits must have stopped. */
void queue_heads_free(struct queue_heads *heads);

#endif
