/* SPDX-License-Identifier: Apache-2.0
 *
 * The rungs that ladder.def names.
 */
#ifndef DLOCK_LADDER_H
#define DLOCK_LADDER_H

#include "rung.h"

/* A rung's ops by name, NULL for the default; NULL when there is no such rung. */
const struct rung_ops *ladder_ops(const char *name);

/* What dlock_rungs() says of ops, on the ladder or not. */
struct dlock_rung ladder_describe(const struct rung_ops *ops);

/* "owner_lua, reentrant ... and, flawed, kept for teaching: none, local ..." */
const char *ladder_names(void);

#endif
