/* SPDX-License-Identifier: Apache-2.0
 *
 * One exchange of a call that has a thread: it waits for the answer, within the client's bound.
 */
#ifndef DLOCK_EXCHANGE_ONE_H
#define DLOCK_EXCHANGE_ONE_H

#include "exchange.h"

/* Its status, with its sentence in dlock_error(): see exchange_begin. */
dlock_status exchange_one(struct dlock_client *client, struct exchange *exchange);

/* Commands that have no lock's command to ride with: in one write of their own, `last` first.
 * Either may be NULL. *open: they may still be carried out. */
dlock_status send_alone(struct dlock_hold *hold, struct dlock_batch *last,
                        struct dlock_batch *reads, int64_t ends_ns, bool *open);

#endif
