/* SPDX-License-Identifier: Apache-2.0
 *
 * One exchange of a call that has a thread. The thread waits for the answer, within the client's
 * bound.
 */
#ifndef DLOCK_EXCHANGE_ONE_H
#define DLOCK_EXCHANGE_ONE_H

#include "exchange.h"

/* Returns the exchange's status, and sets dlock_error(): see exchange_begin. */
dlock_status exchange_one(struct dlock_client *client, struct exchange *exchange);

/* Sends batches without a command of the lock, in a write of their own, `last` first. Either may be
 * NULL. */
dlock_status send_alone(struct dlock_hold *hold, struct dlock_batch *last,
                        struct dlock_batch *reads, int64_t ends_ns);

#endif
