/* SPDX-License-Identifier: Apache-2.0
 *
 * Idempotency-Key: parses the header, and knows which keys are in flight in this instance. The
 * stored answers are in Redis, see stock.h.
 */
#ifndef IDEMPOTENCY_H
#define IDEMPOTENCY_H

#include "sale.h"

#include <pthread.h>

/* Reads the key from a header's value: 1 to SALE_KEY_MAX visible ASCII characters. They are given
 * as they are, or as the string of a structured field: "..." with \" and \\. Blanks may follow.
 * False: the value is neither. */
bool idempotency_parse(const char *value, char key[SALE_KEY_MAX + 1]);

/* The sales in flight that have a key, in a hash table. The sales themselves are its entries, so it
 * allocates nothing. Any thread. */
#define IDEMPOTENCY_BUCKETS 1024
struct idempotency {
    pthread_mutex_t mutex; /* protects what is below, and each sale's next_claim */
    struct sale *buckets[IDEMPOTENCY_BUCKETS];
};
void idempotency_init(struct idempotency *table);
/* No sale may be in flight. */
void idempotency_destroy(struct idempotency *table);
/* False: another sale of that item with that key is in flight. A sale without a key is always
 * accepted. */
bool idempotency_claim(struct idempotency *table, struct sale *sale);
/* Does nothing if the sale made no claim. */
void idempotency_release(struct idempotency *table, struct sale *sale);

#endif
