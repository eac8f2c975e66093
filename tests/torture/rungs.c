/* SPDX-License-Identifier: Apache-2.0
 *
 * See rungs.h.
 */
#include "rungs.h"

#include "ladder.h"

#include <string.h>

extern const struct rung_ops rung_redlock;

const struct dlock_rung *rungs_find(const char *name)
{
    static struct dlock_rung redlock;
    const struct dlock_rung *found = dlock_rung_find(name);
    if (found != NULL || strcmp(name, REDLOCK) != 0)
        return found;
    redlock = ladder_describe(&rung_redlock);
    return &redlock;
}

dlock_status rungs_open(dlock_client *client, const char *rung, const char *name, dlock **lock)
{
    return strcmp(rung, REDLOCK) == 0 ? dlock_open_ops(client, &rung_redlock, name, lock)
                                      : dlock_open(client, rung, name, lock);
}
