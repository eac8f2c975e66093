/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for rungs whose steps are pairs of a send and a take function; and how a hold is renewed,
 * whether the rung has such a pair, a slot `renew`, or neither.
 */
#include "redis_engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void request_script(struct request *request, const struct script *script, const char *const *argv)
{
    size_t count = 0;
    request->script = script;
    for (; argv[count] != NULL && count < REQUEST_ARGUMENTS_MAX; count++)
        request->argv[count] = argv[count];
    request->argv[count] = NULL;
}

const char *request_text(struct request *request, const char *format, ...)
{
    char *text = request->text + request->used;
    size_t room = sizeof request->text - request->used;
    va_list arguments;
    va_start(arguments, format);
    size_t size = (size_t)vsnprintf(text, room, format, arguments) + 1;
    va_end(arguments);
    request->used += size < room ? size : room;
    return text;
}

dlock_status take_acquired(struct dlock_hold *hold, const struct answer *answer, struct busy *busy)
{
    (void)hold;
    (void)busy;
    return answer->kind == DLOCK_REPLY_NIL       ? DLOCK_OK
           : answer->kind == DLOCK_REPLY_INTEGER ? DLOCK_BUSY
                                                 : DLOCK_UNKNOWN;
}

dlock_status take_ours(struct dlock_hold *hold, const struct answer *answer)
{
    (void)hold;
    return answer->kind == DLOCK_REPLY_NIL       ? DLOCK_LOST
           : answer->kind == DLOCK_REPLY_INTEGER ? DLOCK_OK
                                                 : DLOCK_UNKNOWN;
}

/* The status of a take function. UNKNOWN drops the connection, which a take function cannot do. */
static dlock_status step_taken(struct rung_env *env, const struct dlock_hold *hold,
                               dlock_status status)
{
    return status == DLOCK_UNKNOWN ? not_understood(env, hold) : status;
}

/* For a rung that has neither send_renew nor renew: only dlock_extend renews its holds. */
static dlock_status renew_by_type(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    struct answer renewed = strcmp(env->key_type, "hash") == 0
                                ? EVAL(env, &lua_reentrant_renew, "1", hold->key, hold->owner, ttl)
                                : EVAL(env, &lua_renew_if_owner, "1", hold->key, hold->id, ttl);
    if (renewed.status != DLOCK_OK)
        return renewed.status;
    return renewed.kind == DLOCK_REPLY_INTEGER ? (renewed.integer == 1 ? DLOCK_OK : DLOCK_LOST)
           : renewed.kind == DLOCK_REPLY_NIL   ? DLOCK_LOST
                                               : not_understood(env, hold);
}

dlock_status rung_renew(struct rung_env *env, struct dlock_hold *hold, int64_t ttl_ms)
{
    const struct rung_ops *ops = hold->lock->ops;
    struct request request;
    char ttl[24];
    request.used = 0;
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    if (ops->send_renew == NULL)
        return ops->renew != NULL ? ops->renew(env, hold, ttl) : renew_by_type(env, hold, ttl);
    ops->send_renew(&request, hold, ttl);
    struct answer answer = rung_eval(env, request.script, request.argv);
    return answer.status == DLOCK_OK ? step_taken(env, hold, ops->take_renew(hold, &answer))
                                     : answer.status;
}
