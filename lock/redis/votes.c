/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends one request to several servers at once, and counts their answers.
 */
#include "redis_rung.h"

/* One server's request and answer. */
struct ballot {
    size_t first;           /* the index of its reply */
    bool needs_full_script; /* the server does not know the script by its SHA1 */
    struct answer answer;
};

static void votes_append(struct redis *redis, size_t node, const struct script *script,
                         const char *const *argv, bool in_full)
{
    const char *command[COMMAND_WORDS_MAX];
    if (script == NULL)
        redis_append(redis, node, rung_count(argv), argv, NULL);
    else
        redis_append(redis, node, script_command(command, script, argv, in_full), command, NULL);
}

/* Sends one write to each server; with resend, only to those that need the full script. The
 * caller's own commands (env->last, env->reads) go to the first server. */
static void votes_ask(struct rung_env *env, const struct script *script, const char *const *argv,
                      struct ballot *ballots, bool resend)
{
    struct redis *redis = env->redis;
    if (resend)
        redis_go_on(redis);
    else
        redis_begin(redis);
    for (size_t i = 0; i < redis_nodes(redis); i++) {
        if (resend && !ballots[i].needs_full_script)
            continue;
        ballots[i].first = i == 0 ? env_ride_append(redis, env->last) : 0;
        votes_append(redis, i, script, argv, resend);
        if (i == 0)
            env_ride_append(redis, env->reads); /* on resend, too: they follow the script */
    }
    if (resend || env->awaits_each) /* resend: these servers have just answered */
        redis_gather(redis, env->deadline_ns, env->wake_fd);
    else
        redis_gather_most(redis, env->deadline_ns, env->wake_fd);
}

static void votes_take(struct rung_env *env, struct ballot *ballots, struct votes *votes,
                       bool resend, bool (*is_yes)(void *arg, const struct answer *answer),
                       void *arg)
{
    struct redis *redis = env->redis;
    for (size_t i = 0; i < redis_nodes(redis); i++) {
        struct ballot *ballot = &ballots[i];
        if (resend && !ballot->needs_full_script)
            continue;
        const redisReply *reply = redis_reply(redis, i, ballot->first);
        if (i == 0) {
            env_ride_take(redis, env->reads, ballot->first + 1);
            env_ride_take(redis, env->last, 0);
            env->last = NULL;
        }
        if (reply == NULL) {
            votes->unknown += redis_status(redis, i) == DLOCK_UNKNOWN;
            ballot->needs_full_script = false;
            continue;
        }
        ballot->answer = answer_of(env, reply, redis_server(redis, i));
        ballot->needs_full_script = !resend && script_is_missing(&ballot->answer);
        if (ballot->needs_full_script)
            continue;
        if (ballot->answer.status == DLOCK_OK && is_yes(arg, &ballot->answer))
            votes->yes++;
        else
            votes->no++;
    }
}

static bool any_needs_full_script(const struct ballot *ballots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ballots[i].needs_full_script)
            return true;
    return false;
}

struct votes rung_poll(struct rung_env *env, const struct script *script, const char *const *argv,
                       bool (*is_yes)(void *arg, const struct answer *answer), void *arg)
{
    struct ballot ballots[SERVERS_MAX] = {0};
    size_t servers = redis_nodes(env->redis);
    struct votes votes = {.servers = servers, .needed = servers / 2 + 1};
    if (rung_count(argv) > COMMAND_WORDS_MAX - 2 || env->deadline_ns <= mono_ns())
        return votes;
    votes_ask(env, script, argv, ballots, false);
    votes_take(env, ballots, &votes, false, is_yes, arg);
    if (any_needs_full_script(ballots, servers)) {
        votes_ask(env, script, argv, ballots, true);
        votes_take(env, ballots, &votes, true, is_yes, arg);
        atomic_fetch_add_explicit(env->scripts_loaded, 1, memory_order_relaxed);
    }
    env->reads = NULL;
    return votes;
}

struct question {
    bool (*is_yes)(const struct answer *answer);
};

static bool says_yes(void *arg, const struct answer *answer)
{
    return ((const struct question *)arg)->is_yes(answer);
}

struct votes rung_vote(struct rung_env *env, const struct script *script, const char *const *argv,
                       bool (*is_yes)(const struct answer *answer))
{
    struct question question = {is_yes};
    return rung_poll(env, script, argv, says_yes, &question);
}
