/* SPDX-License-Identifier: Apache-2.0
 *
 * How a sale waits: for its lock, for a moment, at a failpoint, for the end of a switch.
 */
#ifndef SUSPEND_H
#define SUSPEND_H

#include "sale.h"

/* Begins the wait that sale->waits_for says. True: the sale is suspended, will be resumed, and may
 * be another thread's by now. False: there is nothing to wait for any more. Keeps the thread only
 * on rungs that count in its memory. */
bool sale_suspend(const struct sale_env *env, struct sale *sale);

#endif
