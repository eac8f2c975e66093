/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rung works through, and the connection that it is lent.
 */
#include "redis_engine.h"

const char *key_type(const struct dlock *lock)
{
    if (lock->rung.flawed)
        return "";
    if ((lock->ops->traits & TRAIT_REENTRANT) == 0)
        return "string";
    return (lock->ops->traits & TRAIT_SHARED) != 0 ? "zset" : "hash";
}

void env_init(struct dlock *lock, int64_t ends_ns, struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    *env = (struct rung_env){
        .deadline_ns = ends_ns,
        .wake_fd = -1, /* a request that was sent is not cut off: it may have worked */
        .now_ns = client->now_ns,
        .rung = lock->ops->name,
        .key_type = key_type(lock),
        .on_point = client->options.on_point,
        .on_point_arg = client->options.on_point_arg,
        .scripts_loaded = &client->scripts_loaded,
    };
}

dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int64_t ends_ns, int cancel_fd,
                       struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    int64_t latest_ns = min_ns(min_ns(limit_ns, ends_ns), mono_deadline_ns(bound_ms(client)));
    env_init(lock, ends_ns, env);
    loop_may_block(&client->loop);
    dlock_status status = pool_take(&redis_of(client)->pool, latest_ns, &env->redis);
    return status == DLOCK_OK ? redis_ready(env->redis, latest_ns, cancel_fd) : status;
}

void env_end(struct dlock *lock, struct rung_env *env)
{
    if (env->redis != NULL)
        pool_give(&redis_of(lock->client)->pool, env->redis);
    env->redis = NULL;
}
