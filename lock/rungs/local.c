/* SPDX-License-Identifier: Apache-2.0
 *
 * local -- a mutex in the process.
 * ADDS   one thread of this process at a time
 * FLAW   a second process has a mutex of its own: one thread of each sells the last unit
 * SHOW   scripts/rung break local
 * CURE   setnx
 * NEXT   setnx
 * COST   0 round trips
 */
#include "redis_rung.h"

/* Any thread may release a hold. Only the thread that locked a pthread mutex may unlock it. */
struct mutex {
    atomic_flag locked;
};

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)env;
    struct mutex *mutex = hold->lock_state;
    if (!atomic_flag_test_and_set(&mutex->locked))
        return DLOCK_OK;
    busy->kind = WAIT_LOCAL;
    return DLOCK_BUSY;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    (void)env;
    struct mutex *mutex = hold->lock_state;
    atomic_flag_clear(&mutex->locked);
    return DLOCK_OK;
}

const struct rung_ops rung_local = {
    .name = "local",
    .traits = TRAIT_SERVERLESS,
    .state_size = sizeof(struct mutex),
    .try_acquire = try_acquire,
    .release = release,
};
