/* SPDX-License-Identifier: Apache-2.0
 *
 * none -- no lock at all.
 * ADDS   nothing: read and write as they come
 * FLAW   two requests at once read the same stock and both sell the same unit
 * SHOW   scripts/rung break none
 * CURE   local
 * NEXT   local
 * COST   0 round trips
 */
#include "redis_rung.h"

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)env, (void)hold, (void)busy;
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    (void)env, (void)hold;
    return DLOCK_OK;
}

const struct rung_ops rung_none = {
    .name = "none",
    .traits = TRAIT_SERVERLESS,
    .try_acquire = try_acquire,
    .release = release,
};
