/* SPDX-License-Identifier: Apache-2.0
 *
 * The rungs that are played. `redlock` is not on the ladder yet: only rungs.c knows that.
 */
#ifndef TORTURE_RUNGS_H
#define TORTURE_RUNGS_H

#include "dlock.h"

#define REDLOCK "redlock"

/* The rung of that name, or NULL. */
const struct dlock_rung *rungs_find(const char *name);
dlock_status rungs_open(dlock_client *client, const char *rung, const char *name, dlock **lock);

#endif
