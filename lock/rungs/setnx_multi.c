/* SPDX-License-Identifier: Apache-2.0
 *
 * setnx_multi -- SETNX and PEXPIRE in one transaction.
 * ADDS   no holder can die between the two commands
 * FLAW   MULTI has no if: each refused attempt renews the lock, a dead holder's too
 * SHOW   scripts/rung break setnx_multi
 * CURE   set_nx_ex
 * NEXT   set_nx_ex
 * COST   2 round trips
 */
#include "redis_rung.h"

/* Sends the four commands in one write. Returns EXEC's answer, or the first error. */
static struct answer set_and_expire(struct rung_env *env, const char *key, const char *ttl)
{
    const char *const commands[][3] = {
        {"MULTI"}, {"SETNX", key, "1"}, {"PEXPIRE", key, ttl}, {"EXEC"}};
    const int words[] = {1, 3, 3, 1};
    redis_begin(env->redis);
    for (size_t i = 0; i < 4; i++)
        redis_append(env->redis, 0, words[i], commands[i], NULL);
    /* after EXEC, so they are not queued */
    env_acks_append(env, 4 + env_ride_append(env->redis, env->reads));
    struct answer answer = {.text = ""};
    answer.status = redis_gather(env->redis, env->deadline_ns, env->wake_fd);
    env_ride_take(env->redis, env->reads, 4);
    env_acks_take(env);
    env->reads = NULL;
    for (size_t i = 0; i < 4 && answer.status == DLOCK_OK; i++)
        answer = answer_of(env, redis_reply(env->redis, 0, i), redis_server(env->redis, 0));
    return answer;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer set = set_and_expire(env, hold->key, hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.reply->element[0]->integer == 0)
        return DLOCK_BUSY;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct answer del = CALL(env, "DEL", hold->key);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

const struct rung_ops rung_setnx_multi = {
    .name = "setnx_multi",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
};
