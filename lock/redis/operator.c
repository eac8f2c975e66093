/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the server who holds a lock, and frees a lock for any owner. If the lock is only a key, one
 * script each serves every rung.
 */
#include "redis_engine.h"

#include <stdio.h>
#include <string.h>

extern const struct script lua_break;
extern const struct script lua_inspect;

static dlock_status read_holder(const struct answer *answer, struct dlock_holder *holder,
                                const char *name)
{
    const redisReply *reply = answer->reply;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->str == NULL || reply->element[2]->type != REDIS_REPLY_INTEGER)
        return fail(DLOCK_REFUSED, "the server's answer about '%s' was not understood", name);
    const char *type = reply->element[0]->str;
    bool over = strcmp(type, "zset") == 0 && reply->element[2]->integer == 0;
    holder->held = strcmp(type, "none") != 0 && !over;
    holder->ttl_ms = holder->held ? reply->element[2]->integer : 0;
    if (reply->element[1]->str != NULL)
        snprintf(holder->owner, sizeof holder->owner, "%s", reply->element[1]->str);
    return DLOCK_OK;
}

static dlock_status check_type(const struct dlock *lock, const char *type)
{
    const char *right = key_type(lock);
    bool any = right[0] == '\0';
    if (strcmp(type, "none") == 0 || strcmp(type, right) == 0 ||
        (any && (strcmp(type, "string") == 0 || strcmp(type, "hash") == 0)))
        return DLOCK_OK;
    return fail(DLOCK_WRONG_TYPE, "'%s' holds a %s; a lock of rung '%s' is a %s", lock->name, type,
                lock->ops->name, any ? "string or a hash" : right);
}

/* The server's answer. */
static dlock_status take(const struct dlock *lock, const struct answer *answer,
                         struct dlock_holder *holder)
{
    if (answer->status != DLOCK_OK)
        return answer->status;
    dlock_status status = read_holder(answer, holder, lock->name);
    return status == DLOCK_OK ? check_type(lock, answer->reply->element[0]->str) : status;
}

/* By a script that answers as lua/inspect.lua does. */
static dlock_status ask(struct rung_env *env, struct dlock *lock,
                        struct answer (*send)(struct rung_env *env, const char *key,
                                              const char *const *beside),
                        struct look *look)
{
    struct answer answer = send(env, lock->name, lock->beside);
    look->refused = answer.status == DLOCK_WRONG_TYPE;
    return take(lock, &answer, &look->holder);
}

static struct answer send_inspect(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    return EVAL(env, &lua_inspect, "1", key);
}

dlock_status redis_inspect(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look)
{
    struct rung_env env;
    dlock_status status = env_begin(lock, ends_ns, ends_ns, cancel_fd, &env);
    env.wake_fd = cancel_fd; /* it changes nothing: it may be cut off */
    if (status == DLOCK_OK)
        status = ask(&env, lock, send_inspect, look);
    env_end(lock, &env);
    return status;
}

static struct answer delete_key(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    return EVAL(env, &lua_break, "1", key, env->key_type);
}

dlock_status redis_break(struct dlock *lock, int64_t ends_ns, struct look *look)
{
    struct rung_env env;
    const struct rung_ops *ops = lock->ops;
    dlock_status status = env_begin(lock, ends_ns, ends_ns, -1, &env);
    if (status == DLOCK_OK)
        status = ask(&env, lock, ops->force_release != NULL ? ops->force_release : delete_key,
                     look);
    if (status == DLOCK_UNKNOWN)
        end_doubt(env.redis, env.deadline_ns);
    env_end(lock, &env);
    return status;
}

dlock_status redis_check_beside(struct dlock *lock, int64_t ends_ns, int cancel_fd)
{
    struct rung_env env;
    dlock_status status = env_begin(lock, ends_ns, ends_ns, cancel_fd, &env);
    bool found = false;
    env.wake_fd = cancel_fd;
    for (size_t i = 0; status == DLOCK_OK && !found && lock->ops->beside[i].kind != NULL; i++) {
        const char *right = lock->ops->beside[i].type;
        struct answer type = CALL(&env, "TYPE", lock->beside[i]);
        status = type.status;
        found = status == DLOCK_OK && strcmp(type.text, "none") != 0 &&
                strcmp(type.text, right) != 0;
        if (found)
            status = fail(DLOCK_WRONG_TYPE, "'%s' holds a %s; of a lock of rung '%s' it is a %s",
                          lock->beside[i], type.text, lock->ops->name, right);
    }
    env_end(lock, &env);
    return status;
}
