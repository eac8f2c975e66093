/* SPDX-License-Identifier: Apache-2.0
 *
 * Idempotency-Key: what such a header may hold, and which keys are in flight in this instance. What
 * is kept of a key's answer lies in Redis, beside the stock: see stock.h.
 */
#ifndef IDEMPOTENCY_H
#define IDEMPOTENCY_H

#include "sale.h"

#include <pthread.h>

/* The key of a header's value: 1 to SALE_KEY_MAX visible ASCII characters as they are, or, where it
 * begins with a quote, a structured field's string of such ("..." with \" and \\). Blanks may
 * follow. False: it is neither. */
bool idempotency_parse(const char *value, char key[SALE_KEY_MAX + 1]);

/* The sales with a key that are in flight. Each stands here itself: there are as many places as
 * --connections allows requests, and nothing is allocated. Any thread. */
#define IDEMPOTENCY_ROWS 1024
struct idempotency {
    pthread_mutex_t mutex; /* protects what is below, and each sale's next_claim */
    struct sale *rows[IDEMPOTENCY_ROWS];
};
void idempotency_init(struct idempotency *flight);
/* No sale may be in flight. */
void idempotency_destroy(struct idempotency *flight);
/* False: another sale of that item with that key is in flight. One without a key is always let in.
 */
bool idempotency_claim(struct idempotency *flight, struct sale *sale);
/* Of a sale that was let in, or not. */
void idempotency_release(struct idempotency *flight, struct sale *sale);

#endif
