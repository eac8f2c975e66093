/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sale does in its critical section: read, decide, write. Each is a step of the sale's, and
 * answers which one is next.
 */
#ifndef SELLING_H
#define SELLING_H

#include "section.h"

enum sale_step selling_read(struct sale_worker *worker, struct sale *sale);
/* Behind the business. */
enum sale_step selling_decide(struct sale_worker *worker, struct sale *sale);
enum sale_step selling_write(struct sale_worker *worker, struct sale *sale);

/* With upgrade=1, under the read lock. False: it has ended the sale, with nothing to buy. */
bool selling_read_shared(struct sale_worker *worker, struct sale *sale);
/* With reenter=1: the sale calls a helper that acquires the lock for itself, as it would anywhere
 * else. It was answered. */
enum sale_step selling_reentered(struct sale_worker *worker, struct sale *sale);

#endif
