/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions whose answer is who holds a lock.
 */
#ifndef DLOCK_HOLDER_H
#define DLOCK_HOLDER_H

#include "rung.h"

/* Asks the server by a script that answers as lua/inspect.lua does. Statuses as dlock_inspect. */
dlock_status holder_ask(dlock *lock, struct dlock_holder *holder,
                        struct answer (*ask)(struct rung_env *env, const char *key));

#endif
