/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds a lock, as the server says. One script serves every rung that keeps a key.
 */
#include "client.h"
#include "holder.h"
#include "structs.h"

#include <stdio.h>
#include <string.h>

extern const struct script lua_inspect;

dlock_status holder_read(const struct answer *answer, struct dlock_holder *holder,
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

dlock_status holder_check_type(const struct dlock *lock, const char *type)
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
    dlock_status status = holder_read(answer, holder, lock->name);
    return status == DLOCK_OK ? holder_check_type(lock, answer->reply->element[0]->str) : status;
}

dlock_status holder_ask(dlock *lock, struct dlock_holder *holder, bool changes,
                        struct answer (*ask)(struct rung_env *env, const char *key,
                                             const char *const *beside))
{
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    status = struct_check(holder, "holder");
    if (status != DLOCK_OK)
        return status;
    struct dlock_holder all = {0};
    struct_give(holder, &all, sizeof all);
    if ((lock->ops->traits & TRAIT_SERVERLESS) != 0)
        return fail(DLOCK_UNSUPPORTED, "no server knows who holds a '%s' lock", lock->ops->name);
    struct rung_env env;
    bool refused = false; /* by Redis: it says neither of which key, nor what that holds */
    status = env_begin(lock, INT64_MAX, mono_deadline_ns(bound_ms(lock->client)), -1, &env);
    if (status == DLOCK_OK) {
        struct answer answer = ask(&env, lock->name, lock->beside);
        status = take(lock, &answer, &all);
        refused = answer.status == DLOCK_WRONG_TYPE;
    }
    if (status == DLOCK_UNKNOWN && changes)
        end_doubt(env.redis, env.deadline_ns);
    if (status != DLOCK_OK)
        all = (struct dlock_holder){0};
    env_end(lock, &env);
    if (refused)
        status = explain_type(lock, env.deadline_ns, -1);
    struct_give(holder, &all, sizeof all);
    return status;
}

static struct answer look(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    return EVAL(env, &lua_inspect, "1", key);
}

dlock_status dlock_inspect(dlock *lock, struct dlock_holder *holder)
{
    if (!GIVEN(lock) || !GIVEN(holder))
        return DLOCK_INVALID;
    return holder_ask(lock, holder, false, look);
}
