/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics lock_*: what the service's threads count, and what the clients of the lock library
 * have counted. The process has one set; any thread may call these.
 */
#ifndef LOCK_METER_H
#define LOCK_METER_H

#include <dlock.h>
#include <stdint.h>
#include <stdio.h>

/* How long it took to acquire a lock, and how long it was held. */
void lock_meter_acquired(int64_t took_ns);
void lock_meter_held(int64_t took_ns);
/* Counts a hold that was acquired for a request, and its release if that was confirmed. */
void lock_meter_hold(void);
void lock_meter_release(void);
/* Counts a lock that a check of an ensemble acquired. */
void lock_meter_check(void);

/* Adds the counts of that client to the sum. client: NULL adds nothing. */
void lock_meter_add(struct dlock_stats *sum, const dlock_client *client);
/* valid_ms: the most that a hold of the current lock had left when it was acquired. */
void lock_meter_print(FILE *out, const struct dlock_stats *sum, long long valid_ms);

#endif
