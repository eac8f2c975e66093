/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends one request to several servers at once, and counts their answers.
 */
#include "redis_rung.h"

#include "heard.h"
#include "reply_text.h"

#include <stdio.h>
#include <string.h>

struct poll {
    struct rung_env *env;
    const struct question *question;
    void *arg;
    struct votes votes;
    enum vote each[SERVERS_MAX];
    uint32_t transient; /* failed with an error that ends by itself */
    bool asked_most;    /* most servers were sent the request */
    size_t first_count; /* how many replies of the first server are needed */
};

/* ---- Asking ---------------------------------------------------------------------------------- */

/* A script is sent in full: a server that answers late must not ask for it then. */
static void poll_send(struct poll *poll, const char *const *words)
{
    struct rung_env *env = poll->env;
    struct redis *redis = env->redis;
    if (env->awaits == AWAIT_PROMPT)
        redis_go_on(redis);
    else
        redis_begin(redis);
    poll->asked_most = redis_count_up(redis) >= poll->votes.needed;
    for (size_t i = 0; i < poll->votes.servers; i++) {
        if (poll->question->needs_most && !poll->asked_most)
            break;
        if (!redis_is_twin(redis, i))
            redis_append(redis, i, rung_count(words), words, NULL);
        poll->votes.asked |= (uint32_t)redis_awaits(redis, i) << i;
        if ((poll->question->kept & ~poll->votes.asked) >> i & 1)
            redis_keep(redis, i, rung_count(words), words, KEEP_UNSENT);
    }
    poll->first_count = 1;
    if (poll->asked_most || !poll->question->needs_most)
        poll->first_count += env_ride_append(redis, env->reads);
}

/* ---- Counting -------------------------------------------------------------------------------- */

enum vote votes_add(struct votes *votes, const struct question *question, void *arg, size_t server,
                    const struct answer *answer)
{
    const uint32_t it = UINT32_C(1) << (server % SERVERS_MAX);
    bool failed = answer->status != DLOCK_OK;
    bool yes = !failed && question->is_yes(arg, server, answer);
    votes->failed += failed;
    votes->yes += yes;
    votes->no += !failed && !yes;
    votes->said_yes |= yes ? it : 0;
    votes->said_no |= !failed && !yes ? it : 0;
    return failed ? VOTE_FAILED : yes ? VOTE_YES : VOTE_NO;
}

/* Counts the answers that have come since the last call. */
static void poll_count(struct poll *poll)
{
    struct votes *votes = &poll->votes;
    struct redis *redis = poll->env->redis;
    for (size_t i = 0; i < votes->servers; i++) {
        const redisReply *reply = redis_reply(redis, i, 0);
        if (poll->each[i] != VOTE_NONE || reply == NULL)
            continue;
        struct answer answer = answer_of(poll->env, reply, redis_server(redis, i));
        poll->each[i] = votes_add(votes, poll->question, poll->arg, i, &answer);
        const uint32_t failed = (uint32_t)(poll->each[i] == VOTE_FAILED) << i;
        poll->transient |= poll->env->transient ? failed : 0;
        votes->refusing |= poll->env->transient ? 0 : failed;
    }
}

static bool is_majority_decided(const struct poll *poll)
{
    const struct votes *votes = &poll->votes;
    size_t awaited = 0;
    for (size_t i = 0; i < votes->servers; i++)
        awaited += redis_awaits(poll->env->redis, i);
    return votes->yes >= votes->needed ||
           (poll->asked_most && votes->yes + awaited < votes->needed);
}

/* Riding commands are awaited, too: they may ask for what only the first server knows. */
static bool poll_decided(void *arg)
{
    struct poll *poll = arg;
    const struct redis *redis = poll->env->redis;
    poll_count(poll);
    if (poll->first_count > 1 && redis_awaits(redis, 0))
        return false;
    if (poll->env->awaits == AWAIT_PROMPT)
        return !redis_awaits_prompt(redis);
    poll->votes.decided = poll->question->is_decided != NULL
                              ? poll->question->is_decided(poll->arg, &poll->votes)
                              : is_majority_decided(poll);
    return poll->votes.decided;
}

/* ---- What each one answered ------------------------------------------------------------------ */

static const char *poll_word(const void *arg, size_t server)
{
    const struct poll *poll = arg;
    const struct redis *redis = poll->env->redis;
    const redisReply *reply = redis_reply(redis, server, 0); /* NULL: of a distrusted server */
    switch (poll->each[server]) {
    case VOTE_YES:
        return "yes";
    case VOTE_NO:
        return "no";
    case VOTE_FAILED:
        if (reply != NULL)
            return error_cause(reply->str);
        /* fall through */
    default:
        return (poll->votes.asked >> server & 1) != 0
                   ? redis_silence(redis, server, votes_silence(!poll->votes.decided))
                   : redis_silence(redis, server, "not asked");
    }
}

void votes_say(struct votes *votes, const struct redis *redis,
               const char *(*word)(const void *arg, size_t server), const void *arg)
{
    char *text = votes->answers;
    size_t size = sizeof votes->answers;
    const int most = votes->servers <= 3 ? 120 : 60; /* so that all fit */
    for (size_t i = 0, at = 0; i < votes->servers && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%s: %.*s", i > 0 ? ", " : "",
                               redis_server(redis, i), most, word(arg, i));
}

static void poll_end(struct poll *poll, const char *const *words)
{
    struct rung_env *env = poll->env;
    struct votes *votes = &poll->votes;
    poll_count(poll);
    votes->refusing |= redis_refusing(env->redis);
    env_ride_take(env->redis, env->reads, 1);
    env->reads = NULL;
    for (size_t i = 0; i < votes->servers; i++) {
        bool silent = poll->each[i] == VOTE_NONE && redis_status(env->redis, i) == DLOCK_UNKNOWN;
        votes->unanswered |= (uint32_t)silent << i;
        votes->late += silent && redis_owes(env->redis, i);
        votes->lost += silent && !redis_owes(env->redis, i);
        if (silent && redis_owes(env->redis, i) && poll->question->hears != NULL)
            heard_await(poll->question->hears,
                        (poll->question->follows >> i & 1) != 0 ? ASKS_LAST : ASKS_KEY, env->redis,
                        i, i == 0 ? poll->first_count - 1 : 0);
        bool refused = poll->transient >> i & 1;
        if ((refused || poll->each[i] == VOTE_NONE) &&
            (poll->question->kept & votes->asked) >> i & 1)
            redis_keep(env->redis, i, rung_count(words), words,
                       refused ? KEEP_REFUSED : KEEP_UNANSWERED);
    }
    if (votes->yes < votes->needed || poll->question->is_decided != NULL)
        votes_say(votes, env->redis, poll_word, poll);
}

struct votes rung_poll(struct rung_env *env, const struct script *script, const char *const *argv,
                       const struct question *question, void *arg)
{
    const char *command[COMMAND_WORDS_MAX + 1];
    size_t servers = redis_nodes(env->redis);
    struct poll poll = {
        .env = env,
        .question = question,
        .arg = arg,
        .votes = {.servers = servers, .needed = servers / 2 + 1},
    };
    bool late = env->deadline_ns <= mono_ns() && env->awaits != AWAIT_PROMPT;
    if (rung_count(argv) > COMMAND_WORDS_MAX - 2 || late) {
        snprintf(poll.votes.answers, sizeof poll.votes.answers, "no time was left to ask them");
        return poll.votes;
    }
    if (script != NULL) {
        command[script_command(command, script, argv, true)] = NULL;
        argv = command;
    }
    poll_send(&poll, argv);
    if (script != NULL)
        atomic_fetch_add_explicit(env->scripts_loaded, 1, memory_order_relaxed);
    if (env->awaits == AWAIT_EACH)
        redis_gather(env->redis, env->deadline_ns, env->wake_fd);
    else
        redis_gather_until(env->redis, poll_decided, &poll, env->deadline_ns, env->wake_fd);
    poll_end(&poll, argv);
    return poll.votes;
}

void rung_send_later(struct rung_env *env, const struct redis *other, uint32_t servers,
                     const struct script *script, const char *const *argv)
{
    const char *command[COMMAND_WORDS_MAX];
    pool_send_later(env->pool, other, servers, script_command(command, script, argv, true),
                    command);
}

/* ---- Riding commands before the vote --------------------------------------------------------- */

dlock_status rung_send_last(struct rung_env *env)
{
    redis_begin(env->redis);
    env_ride_append(env->redis, env->last);
    redis_gather(env->redis, env->deadline_ns, env->wake_fd);
    env_ride_take(env->redis, env->last, 0);
    env->last = NULL;
    dlock_status status = redis_status(env->redis, 0);
    env->rode = status == DLOCK_UNKNOWN;
    return status == DLOCK_OK ? DLOCK_OK
                              : fail(status, "%s: %s", redis_server(env->redis, 0),
                                     redis_silence(env->redis, 0, votes_silence(true)));
}
