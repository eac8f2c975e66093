/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `notify`, whose fallback poll comes only after ten minutes. So a waiter that wakes was
 * woken by a message, by a broken connection, or at the end of the holder's time to live. And what
 * its slots answered.
 */
#ifndef TESTS_PATIENT_H
#define TESTS_PATIENT_H

#include "redis_rung.h"

extern const struct rung_ops rung_notify;

#define FALLBACK_MS 5000 /* notify.c's: a longer sleep ends then */

/* One contends per client, as on the ladder; and each for itself. */
const struct rung_ops *patient(void);
const struct rung_ops *patient_each(void);

/* Tries that were answered. The library's own count is of tries that began: one that is still under
 * way may yet be answered by what the test does next. */
extern _Atomic uint64_t patient_answered;
/* After how long the rung would have tried again, as it said at the latest BUSY. */
extern _Atomic int64_t patient_again_ms;

/* The rung's release; and what takes its place unless NULL. */
dlock_status notify_release(struct rung_env *env, struct dlock_hold *hold);
extern dlock_status (*patient_release)(struct rung_env *env, struct dlock_hold *hold);

#endif
