/* SPDX-License-Identifier: Apache-2.0
 *
 * A sale's critical section: read, decide, write. Each function is a step, and returns the next
 * one.
 */
#ifndef SELLING_H
#define SELLING_H

#include "section.h"

enum sale_step selling_read(struct sale_worker *worker, struct sale *sale);
/* After the business time (--work-ms). */
enum sale_step selling_decide(struct sale_worker *worker, struct sale *sale);
enum sale_step selling_write(struct sale_worker *worker, struct sale *sale);

/* With upgrade=1: reads under the read lock. False: the sale has ended. Too few units are left, an
 * answer was stored under its key, or a command failed. */
bool selling_read_shared(struct sale_worker *worker, struct sale *sale);
/* With reenter=1: the second acquire was answered. It stands for a helper function that acquires
 * the lock for itself. */
enum sale_step selling_reentered(struct sale_worker *worker, struct sale *sale);

#endif
