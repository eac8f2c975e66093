/* SPDX-License-Identifier: Apache-2.0
 *
 * One slot of a rung: what it works through, and the connection that it is lent.
 */
#include "client.h"

dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int cancel_fd, struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    int64_t request_ms = client->options.connect_timeout_ms + client->options.command_timeout_ms;
    *env = (struct rung_env){
        .deadline_ns = INT64_MAX, /* each request has command_timeout_ms */
        .wake_fd = -1,            /* a request that was sent is not cut off: it may have worked */
        .now_ns = client->now_ns,
        .rung = lock->ops->name,
        .on_point = client->options.on_point,
        .on_point_arg = client->options.on_point_arg,
        .scripts_loaded = &client->scripts_loaded,
    };
    if ((lock->ops->traits & TRAIT_SERVERLESS) != 0)
        return DLOCK_OK;
    int64_t pool_ns = mono_deadline_ns(request_ms);
    dlock_status status =
        pool_take(&client->pool, pool_ns < limit_ns ? pool_ns : limit_ns, &env->redis);
    return status == DLOCK_OK ? redis_ready(env->redis, limit_ns, cancel_fd) : status;
}

void env_end(struct dlock *lock, struct rung_env *env)
{
    if (env->redis != NULL)
        pool_give(&lock->client->pool, env->redis);
    env->redis = NULL;
}

dlock_status send_alone(struct dlock *lock, struct dlock_batch *last, struct dlock_batch *reads)
{
    struct dlock_client *client = lock->client;
    struct redis *redis = NULL;
    int64_t request_ms = client->options.connect_timeout_ms + client->options.command_timeout_ms;
    if (last == NULL && reads == NULL)
        return DLOCK_OK;
    dlock_status status = pool_take(&client->pool, mono_deadline_ns(request_ms), &redis);
    if (status != DLOCK_OK)
        return status;
    status = redis_ready(redis, INT64_MAX, -1);
    if (status == DLOCK_OK) {
        redis_begin(redis);
        size_t count = env_ride_append(redis, last);
        env_ride_append(redis, reads);
        status = redis_gather(redis, INT64_MAX, -1);
        env_ride_take(redis, last, 0);
        env_ride_take(redis, reads, count);
    }
    pool_give(&client->pool, redis);
    return status;
}

/* The rung runs also where no server is there, for what it keeps in the process: its calls answer
 * UNREACHABLE then. */
dlock_status run_release(struct dlock_hold *hold, struct dlock_batch *last)
{
    struct dlock *lock = hold->lock;
    struct rung_env env;
    dlock_status status = env_begin(lock, INT64_MAX, -1, &env);
    bool serverless = (lock->ops->traits & TRAIT_SERVERLESS) != 0;
    if (serverless)
        send_alone(lock, last, NULL);
    env.last = last;
    if (serverless || env.redis != NULL)
        status = lock->ops->release(&env, hold);
    env_end(lock, &env);
    return status;
}
