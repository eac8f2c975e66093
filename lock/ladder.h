/* SPDX-License-Identifier: Apache-2.0
 *
 * The rungs that ladder.def names.
 */
#ifndef DLOCK_LADDER_H
#define DLOCK_LADDER_H

#include "rung.h"

/* The ops of the rung with that name; NULL is the default's name. NULL: there is no such rung, or
 * it is of another engine. */
const struct rung_ops *ladder_ops(const char *name);

/* The description of ops, as dlock_rungs() gives it. ops need not be on the ladder. */
struct dlock_rung ladder_describe(const struct rung_ops *ops);

/* "owner_lua, reentrant ... and, flawed, kept for teaching: none, local ..." */
const char *ladder_names(void);

#endif
