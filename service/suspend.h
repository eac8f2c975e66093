/* SPDX-License-Identifier: Apache-2.0
 *
 * How a sale waits: for its lock, until a time, at a failpoint, or for the end of a switch.
 */
#ifndef SUSPEND_H
#define SUSPEND_H

#include "sale.h"

/* Begins the wait that sale->waits_for names. True: the sale is suspended and will be resumed;
 * another thread may run it already. False: there is nothing left to wait for. Blocks the thread
 * only if the rung counts in the thread's memory. */
bool sale_suspend(const struct sale_env *env, struct sale *sale);

#endif
