/* SPDX-License-Identifier: Apache-2.0
 *
 * What several servers say to the same request: asked all at once, and counted.
 */
#include "redis_rung.h"

/* What one server is sent, and what it answered. */
struct ballot {
    size_t first; /* the index of its reply */
    bool in_full; /* it does not know the script */
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

/* One write to each server that is to be asked; what rides goes with the first server's. */
static void votes_ask(struct rung_env *env, const struct script *script, const char *const *argv,
                      struct ballot *ballots, bool again)
{
    struct redis *redis = env->redis;
    if (again)
        redis_go_on(redis);
    else
        redis_begin(redis);
    for (size_t i = 0; i < redis_nodes(redis); i++) {
        if (again && !ballots[i].in_full)
            continue;
        ballots[i].first = i == 0 ? env_ride_append(redis, env->last) : 0;
        votes_append(redis, i, script, argv, again);
        if (i == 0)
            env_ride_append(redis, env->reads);
    }
    if (again) /* those have answered just now */
        redis_gather(redis, env->deadline_ns, env->wake_fd);
    else
        redis_gather_most(redis, env->deadline_ns, env->wake_fd);
}

static void votes_take(struct rung_env *env, struct ballot *ballots, struct votes *votes,
                       bool again, bool (*is_yes)(void *arg, const struct answer *answer),
                       void *arg)
{
    struct redis *redis = env->redis;
    for (size_t i = 0; i < redis_nodes(redis); i++) {
        struct ballot *ballot = &ballots[i];
        if (again && !ballot->in_full)
            continue;
        const redisReply *reply = redis_reply(redis, i, ballot->first);
        if (i == 0) {
            env_ride_take(redis, env->reads, ballot->first + 1);
            env_ride_take(redis, env->last, 0);
            env->last = NULL;
        }
        if (reply == NULL) {
            votes->unknown += redis_status(redis, i) == DLOCK_UNKNOWN;
            ballot->in_full = false;
            continue;
        }
        ballot->answer = answer_of(env, reply, redis_server(redis, i));
        ballot->in_full = !again && script_is_missing(&ballot->answer);
        if (ballot->in_full)
            continue;
        if (ballot->answer.status == DLOCK_OK && is_yes(arg, &ballot->answer))
            votes->yes++;
        else
            votes->no++;
    }
}

static bool is_any_in_full(const struct ballot *ballots, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (ballots[i].in_full)
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
    if (is_any_in_full(ballots, servers)) {
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
