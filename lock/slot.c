/* SPDX-License-Identifier: Apache-2.0
 *
 * One slot of a rung: what it works through, and the connection that it is lent.
 */
#include "client.h"

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

const char *key_type(const struct dlock *lock)
{
    if (lock->rung.flawed)
        return "";
    if ((lock->ops->traits & TRAIT_REENTRANT) == 0)
        return "string";
    return (lock->ops->traits & TRAIT_SHARED) != 0 ? "zset" : "hash";
}

dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int64_t ends_ns, int cancel_fd,
                       struct rung_env *env)
{
    struct dlock_client *client = lock->client;
    int64_t latest_ns = min_ns(min_ns(limit_ns, ends_ns), mono_deadline_ns(bound_ms(client)));
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
    if ((lock->ops->traits & TRAIT_SERVERLESS) != 0)
        return DLOCK_OK;
    dlock_status status = pool_take(&client->pool, latest_ns, &env->redis);
    return status == DLOCK_OK ? redis_ready(env->redis, latest_ns, cancel_fd) : status;
}

void env_end(struct dlock *lock, struct rung_env *env)
{
    if (env->redis != NULL)
        pool_give(&lock->client->pool, env->redis);
    env->redis = NULL;
}

bool end_doubt(struct redis *redis, int64_t ends_ns)
{
    struct doubt doubt;
    return redis != NULL && (!redis_doubt(redis, &doubt) ||
                             (redis_ready(redis, ends_ns, -1) == DLOCK_OK &&
                              redis_end_doubt(redis, &doubt, ends_ns, -1) == DOUBT_ENDED));
}

dlock_status send_alone(struct dlock *lock, struct dlock_batch *last, struct dlock_batch *reads,
                        int64_t ends_ns, bool *open)
{
    struct dlock_client *client = lock->client;
    struct redis *redis = NULL;
    int64_t latest_ns = min_ns(ends_ns, mono_deadline_ns(bound_ms(client)));
    *open = false;
    if (last == NULL && reads == NULL)
        return DLOCK_OK;
    dlock_status status = pool_take(&client->pool, latest_ns, &redis);
    if (status != DLOCK_OK)
        return status;
    status = redis_ready(redis, latest_ns, -1);
    if (status == DLOCK_OK) {
        redis_begin(redis);
        size_t count = env_ride_append(redis, last);
        env_ride_append(redis, reads);
        status = redis_gather(redis, latest_ns, -1);
        env_ride_take(redis, last, 0);
        env_ride_take(redis, reads, count);
    }
    if (status == DLOCK_UNKNOWN)
        *open = !end_doubt(redis, latest_ns);
    pool_give(&client->pool, redis);
    return status;
}

/* Its reply was lost. It may be sent again, since it says how many holds shall be left; not while
 * commands that rode ahead of it may still come: the next holder must not overtake them. */
static dlock_status release_again(struct rung_env *env, struct dlock_hold *hold, bool rode,
                                  bool *open)
{
    *open = !end_doubt(env->redis, env->deadline_ns);
    if (*open && rode)
        return fail(DLOCK_UNKNOWN, "'%s': the release was not answered, and what was sent with it "
                                   "may still be carried out", hold->key);
    dlock_status status = rung_release(env, hold);
    bool freed = status == DLOCK_OK || (status == DLOCK_LOST && hold->depth == 1);
    if (rode && freed)
        return fail(DLOCK_UNKNOWN, "'%s' is released, but what was sent with it was not answered",
                    hold->key);
    if (status == DLOCK_LOST && hold->depth == 1)
        return dlock_valid(hold) ? DLOCK_OK /* nobody else can have freed it */
                                 : fail(DLOCK_UNKNOWN, "'%s' was released, or it expired before",
                                        hold->key);
    return status == DLOCK_OK || status == DLOCK_LOST
               ? status
               : fail(DLOCK_UNKNOWN, "'%s': the release was not answered", hold->key);
}

/* The rung runs also where no server is there, for what it keeps in the process: its calls answer
 * UNREACHABLE then. */
dlock_status run_release(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns,
                         bool *open)
{
    struct dlock *lock = hold->lock;
    struct rung_env env;
    dlock_status status = env_begin(lock, ends_ns, ends_ns, -1, &env);
    bool serverless = (lock->ops->traits & TRAIT_SERVERLESS) != 0;
    *open = false;
    if (serverless)
        send_alone(lock, last, NULL, ends_ns, open);
    env.last = last;
    if (serverless || env.redis != NULL)
        status = rung_release(&env, hold);
    if (status == DLOCK_UNKNOWN && !lock->rung.flawed)
        status = release_again(&env, hold, last != NULL, open);
    env_end(lock, &env);
    return status;
}
