/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends a rung's command to the first server, in one write with the riding commands. A script is
 * sent by its SHA1 first.
 */
#include "batch.h"
#include "redis_rung.h"
#include "reply_text.h"

#include <string.h>

struct answer answer_of(struct rung_env *env, const redisReply *reply, const char *server)
{
    struct answer answer = {.text = "", .reply = reply};
    if (reply == NULL) {
        answer.status = DLOCK_UNKNOWN;
        return answer;
    }
    switch (reply->type) {
    case REDIS_REPLY_ERROR:
        env->transient = error_is_transient(reply->str);
        answer.status =
            fail(strncmp(error_cause(reply->str), "WRONGTYPE", 9) == 0 ? DLOCK_WRONG_TYPE
                                                                       : DLOCK_REFUSED,
                 "%s: %s", server, reply->str);
        answer.kind = DLOCK_REPLY_ERROR;
        break;
    case REDIS_REPLY_NIL:
        answer.kind = DLOCK_REPLY_NIL;
        break;
    case REDIS_REPLY_INTEGER:
        answer.kind = DLOCK_REPLY_INTEGER;
        answer.integer = reply->integer;
        break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
        answer.kind = DLOCK_REPLY_TEXT;
        answer.text = reply->str;
        break;
    default:
        answer.kind = DLOCK_REPLY_OTHER;
    }
    return answer;
}

bool are_integers(const struct answer *answer, size_t least)
{
    const redisReply *reply = answer->reply;
    bool are = reply->type == REDIS_REPLY_ARRAY && reply->elements >= least;
    for (size_t i = 0; are && i < reply->elements; i++)
        are = reply->element[i]->type == REDIS_REPLY_INTEGER;
    return are;
}

dlock_status not_understood(struct rung_env *env, const struct dlock_hold *hold)
{
    redis_distrust(env->redis, 0);
    return fail(DLOCK_UNKNOWN, NOT_UNDERSTOOD, hold->key);
}

size_t env_ride_append(struct redis *redis, const struct dlock_batch *batch)
{
    if (batch == NULL)
        return 0;
    for (size_t i = 0; i < batch->count; i++)
        redis_append(redis, 0, batch->commands[i].argc,
                     (const char *const *)batch->commands[i].argv, batch->commands[i].sizes);
    return batch->count;
}

void env_ride_take(struct redis *redis, struct dlock_batch *batch, size_t first)
{
    for (size_t i = 0; batch != NULL && i < batch->count; i++)
        batch_keep(&batch->commands[i], redis_reply(redis, 0, first + i));
}

void env_acks_append(struct rung_env *env, size_t index)
{
    env->acks = (struct acks){0};
    if (env->confirms_ms > 0)
        acks_append(&env->acks, env->redis, index, env->deadline_ns, env->confirms_ms);
}

void env_acks_take(struct rung_env *env)
{
    acks_take(&env->acks, env->redis);
}

/* Sends `last`, the command and `reads` in one write. Returns the command's answer. */
static struct answer call_once(struct rung_env *env, int argc, const char *const *argv)
{
    struct redis *redis = env->redis;
    if (env->deadline_ns <= mono_ns())
        return (struct answer){
            .status = fail(DLOCK_UNREACHABLE, "no time is left to ask %s", redis_server(redis, 0)),
            .text = ""};
    redis_begin(redis);
    size_t mine = env_ride_append(redis, env->last);
    redis_append(redis, 0, argc, argv, NULL);
    env_acks_append(env, mine + 1 + env_ride_append(redis, env->reads));
    dlock_status status = redis_gather(redis, env->deadline_ns, env->wake_fd);
    env_ride_take(redis, env->last, 0);
    env_ride_take(redis, env->reads, mine + 1);
    env_acks_take(env);
    env->last = NULL;
    const redisReply *reply = redis_reply(redis, 0, mine);
    if (reply == NULL)
        return (struct answer){.status = status, .text = ""};
    return answer_of(env, reply, redis_server(redis, 0));
}

int rung_count(const char *const *argv)
{
    int argc = 0;
    while (argv[argc] != NULL)
        argc++;
    return argc;
}

static bool call_has_word(const char *const *argv, const char *word)
{
    for (size_t i = 1; argv[i] != NULL; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

/* Whether a SET can have this answer. If another command's reply were taken for it, the client
 * would believe that it holds the lock. (SET ... GET returns the old value, so any text is
 * possible.) */
static bool may_answer(const char *const *argv, const struct answer *answer)
{
    return answer->status != DLOCK_OK || strcmp(argv[0], "SET") != 0 ||
           call_has_word(argv, "GET") || answer->kind == DLOCK_REPLY_NIL ||
           strcmp(answer->text, "OK") == 0;
}

struct answer rung_call(struct rung_env *env, const char *const *argv)
{
    struct answer answer = call_once(env, rung_count(argv), argv);
    env->reads = NULL;
    if (may_answer(argv, &answer))
        return answer;
    redis_distrust(env->redis, 0);
    return (struct answer){.status = fail(DLOCK_UNKNOWN, "%s: its answer was not understood",
                                          redis_server(env->redis, 0)),
                           .text = ""};
}

bool script_is_missing(const struct answer *answer)
{
    return answer->kind == DLOCK_REPLY_ERROR && strncmp(answer->reply->str, "NOSCRIPT", 8) == 0;
}

void request_append(struct redis *redis, const struct request *request, bool in_full)
{
    const char *command[COMMAND_WORDS_MAX];
    int argc = script_command(command, request->script, request->argv, in_full);
    redis_append(redis, 0, argc, command, NULL);
}

dlock_status something_was_sent(const char *why)
{
    char sentence[SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", why);
    return fail(DLOCK_UNKNOWN, "the commands before the release were carried out; then: %s",
                sentence);
}

struct answer rung_eval(struct rung_env *env, const struct script *script, const char *const *argv)
{
    const char *command[COMMAND_WORDS_MAX];
    if (rung_count(argv) > COMMAND_WORDS_MAX - 2)
        return (struct answer){.status = fail(DLOCK_INVALID, "too many arguments for a script"),
                               .text = ""};
    bool rode = env->last != NULL;
    struct answer answer = call_once(env, script_command(command, script, argv, false), command);
    if (script_is_missing(&answer)) {
        /* The riding reads were answered before the lock was acquired, so they are sent again. */
        answer = call_once(env, script_command(command, script, argv, true), command);
        if (rode && answer.status == DLOCK_UNREACHABLE)
            answer.status = something_was_sent(dlock_error());
        atomic_fetch_add_explicit(env->scripts_loaded, 1, memory_order_relaxed);
    }
    env->reads = NULL;
    return answer;
}
