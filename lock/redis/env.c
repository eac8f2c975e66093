/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets up a rung_env, and lends it a connection.
 */
#include "redis_engine.h"

const char *key_type(const struct dlock *lock)
{
    if (lock->ops->key_type != NULL)
        return lock->ops->key_type;
    if ((lock->ops->traits & TRAIT_REENTRANT) == 0)
        return "string";
    return (lock->ops->traits & TRAIT_SHARED) != 0 ? "zset" : "hash";
}

void env_init(struct dlock *lock, int64_t ends_ns, struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    *env = (struct rung_env){
        .pool = &redis_of(client)->pool,
        .deadline_ns = ends_ns,
        .wake_fd = -1, /* a request that was sent is not aborted: it may have succeeded */
        .now_ns = client->now_ns,
        .rung = lock->ops->name,
        .key_type = key_type(lock),
        .on_point = client->options.on_point,
        .on_point_arg = client->options.on_point_arg,
        .scripts_loaded = &client->scripts_loaded,
    };
}

dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int64_t ends_ns, int cancel_fd,
                       const struct redis *wanted, struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    int64_t latest_ns = min_ns(min_ns(limit_ns, ends_ns), mono_deadline_ns(bound_ms(client)));
    env_init(lock, ends_ns, env);
    loop_may_block(&client->loop);
    dlock_status status =
        pool_take(&redis_of(client)->pool, wanted, latest_ns, cancel_fd, &env->redis);
    env->transient = status == DLOCK_REFUSED && redis_refused_for_now(env->redis);
    return status;
}

void env_end(struct dlock *lock, struct rung_env *env)
{
    if (env->redis != NULL)
        pool_give(&redis_of(lock->client)->pool, env->redis);
    env->redis = NULL;
}
