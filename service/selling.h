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

/* The write was carried out: records it. On entry sale->left is the stock that was read. */
void selling_sold(const struct sale_env *env, struct sale *sale, int64_t after);
/* Records the stock that was read. False: it is too small, and the sale has ended. */
bool selling_is_enough(const struct sale_env *env, struct sale *sale, int64_t stock);
/* Ends the sale as the stored answer says, and records nothing. */
void selling_end_by_record(struct sale *sale, const struct stock_record *record);
/* Random and not 0: no other sale of any process has it. */
uint64_t selling_new_mark(void);
/* Gives the answer that was stored under the key. */
void selling_replay(struct sale_worker *worker, struct sale *sale, const struct stock_record *kept);
/* Whether the replicas have the sale that this record tells of. */
bool selling_is_confirmed(struct sale_worker *worker, const struct sale *sale);

/* With upgrade=1: reads under the read lock. False: the sale has ended. Too few units are left, an
 * answer was stored under its key, or a command failed. */
bool selling_read_shared(struct sale_worker *worker, struct sale *sale);
/* With reenter=1: the second acquire was answered. It stands for a helper function that acquires
 * the lock for itself. */
enum sale_step selling_reentered(struct sale_worker *worker, struct sale *sale);

#endif
