/* SPDX-License-Identifier: Apache-2.0
 *
 * See rounds.h. Each request is left behind as soon as it is added, and its connection tells what
 * becomes of it (redis_append_late). So no answer is taken for another round's, whatever else was
 * sent on the connection, and if it breaks.
 */
#include "rounds.h"

#include "client.h"
#include "heard.h"
#include "reply_text.h"

#include <stdio.h>
#include <stdlib.h>

/* A round's request to one server. It lasts until its answer comes, or is lost. */
struct ask {
    struct late_reply late; /* first */
    struct round *round;    /* NULL: it has ended, and the answer is only heard */
    struct redis *redis;
    struct hearing hearing;
};

struct round {
    struct renewal renewal; /* first; the core's */
    TAILQ_ENTRY(round) of_rounds;
    struct rounds *rounds;
    const struct rung_ops *ops;
    bool over;
    int64_t until_ns; /* CLOCK_MONOTONIC: it is over then */
    struct rung_env env;
    struct renewing renewing;
    struct votes votes;
    struct ask *asks[SERVERS_MAX]; /* not answered yet; else NULL */
    enum vote each[SERVERS_MAX];
    char errors[SERVERS_MAX][SAYS_MAX];
};

void rounds_init(struct rounds *rounds)
{
    *rounds = (struct rounds){.count = 0};
    TAILQ_INIT(&rounds->under_way);
    TAILQ_INIT(&rounds->over);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static void round_is_over(struct round *round)
{
    TAILQ_REMOVE(&round->rounds->under_way, round, of_rounds);
    TAILQ_INSERT_TAIL(&round->rounds->over, round, of_rounds);
    round->over = true;
}

/* Whether the hold is renewed, if all that are awaited say yes. Other answers are not worth a wait:
 * the next round may find more servers. */
static bool round_may_renew(const struct round *round)
{
    uint32_t yes = round->votes.said_yes;
    for (size_t i = 0; i < round->votes.servers; i++)
        yes |= round->asks[i] != NULL ? UINT32_C(1) << i : 0;
    return size_of(yes & round->renewing.counted) >= round->votes.needed;
}

static void round_decide(struct round *round)
{
    struct renewing *renewing = &round->renewing;
    if (!round->over &&
        (!round_may_renew(round) || renewing->question.is_decided(renewing, &round->votes)))
        round_is_over(round);
}

static void round_count(struct round *round, size_t server, const redisReply *reply)
{
    struct votes *votes = &round->votes;
    struct answer answer = answer_of(&round->env, reply, redis_server(round->env.redis, server));
    round->each[server] =
        votes_add(votes, &round->renewing.question, &round->renewing, server, &answer);
    if (answer.kind != DLOCK_REPLY_ERROR)
        return;
    snprintf(round->errors[server], SAYS_MAX, "%s", error_cause(reply->str));
    if (redis_is_demotion(reply->str))
        snprintf(round->rounds->demoted[server], SAYS_MAX, "%s", error_cause(reply->str));
}

static void ask_came(struct late_reply *late, const redisReply *reply)
{
    struct ask *ask = (struct ask *)late;
    struct round *round = ask->round;
    const size_t server = ask->hearing.server;
    hearing_end(&ask->hearing, ask->redis, round == NULL ? reply : NULL);
    free(ask);
    if (round == NULL)
        return;
    round->asks[server] = NULL;
    if (reply != NULL) {
        round_count(round, server, reply);
    } else {
        round->votes.lost++;
        round->votes.unanswered |= UINT32_C(1) << server;
    }
    round_decide(round);
}

/* ---- Asking ---------------------------------------------------------------------------------- */

static void round_ask(struct round *round, size_t server, int argc, const char *const *argv)
{
    const struct question *question = &round->renewing.question;
    struct redis *redis = round->env.redis;
    const uint32_t it = UINT32_C(1) << server;
    struct ask *ask = redis_is_twin(redis, server) ? NULL : malloc(sizeof *ask);
    if (ask == NULL)
        return;
    *ask = (struct ask){.late = {.came = ask_came}, .round = round, .redis = redis};
    hearing_begin(&ask->hearing, question->hears,
                  (question->follows & it) != 0 ? ASKS_LAST : ASKS_KEY, server);
    if (!redis_append_late(redis, server, argc, argv, &ask->late)) {
        hearing_end(&ask->hearing, redis, NULL);
        free(ask);
        return;
    }
    round->asks[server] = ask;
    round->votes.asked |= it;
}

/* The script is sent in full: a server that has lost it must not cost the hold its vote. */
struct renewal *rounds_begin(struct rounds *rounds, const struct rung_env *env,
                             struct dlock_hold *hold, int64_t ttl_ms)
{
    const char *argv[COMMAND_WORDS_MAX];
    const int64_t limit_ns = mono_deadline_ns(redis_config_of(env->redis)->command_timeout_ms);
    struct round *round = calloc(1, sizeof *round);
    if (round == NULL)
        return NULL;
    round->rounds = rounds;
    round->ops = hold->lock->ops;
    round->env = *env;
    round->until_ns = min_ns(env->deadline_ns, limit_ns);
    snprintf(round->renewing.ttl, sizeof round->renewing.ttl, "%lld", (long long)ttl_ms);
    round->ops->begin_renew(&round->env, hold, &round->renewing);
    round->votes.servers = redis_nodes(env->redis);
    round->votes.needed = round->votes.servers / 2 + 1;
    int argc = script_command(argv, round->renewing.script, round->renewing.argv, true);
    atomic_fetch_add_explicit(env->scripts_loaded, 1, memory_order_relaxed);
    TAILQ_INSERT_TAIL(&rounds->under_way, round, of_rounds);
    rounds->count++;
    for (size_t i = 0; i < round->votes.servers; i++)
        round_ask(round, i, argc, argv);
    round_decide(round);
    return &round->renewal;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static bool is_any_over(void *arg)
{
    const struct rounds *rounds = arg;
    return !TAILQ_EMPTY(&rounds->over);
}

/* A server that is no longer a master is left. Its missing answers are lost then. */
static void leave_demoted(struct rounds *rounds, struct redis *redis)
{
    for (size_t i = 0; i < redis_nodes(redis); i++) {
        if (rounds->demoted[i][0] == '\0')
            continue;
        redis_demoted(redis, i, rounds->demoted[i]);
        rounds->demoted[i][0] = '\0';
    }
}

void rounds_wait(struct rounds *rounds, struct redis *redis, int wake_fd)
{
    int64_t until_ns = INT64_MAX;
    struct round *round, *next;
    TAILQ_FOREACH(round, &rounds->under_way, of_rounds)
        until_ns = min_ns(until_ns, round->until_ns);
    redis_hear(redis, is_any_over, rounds, until_ns, wake_fd);
    leave_demoted(rounds, redis);
    for (round = TAILQ_FIRST(&rounds->under_way); round != NULL; round = next) {
        next = TAILQ_NEXT(round, of_rounds);
        if (round->until_ns <= mono_ns())
            round_is_over(round);
    }
}

void rounds_limit(struct rounds *rounds, int64_t until_ns)
{
    struct round *round;
    TAILQ_FOREACH(round, &rounds->under_way, of_rounds)
        round->until_ns = min_ns(round->until_ns, until_ns);
}

struct renewal *rounds_over(const struct rounds *rounds)
{
    struct round *round = TAILQ_FIRST(&rounds->over);
    return round != NULL ? &round->renewal : NULL;
}

/* ---- The end --------------------------------------------------------------------------------- */

static const char *round_word(const void *arg, size_t server)
{
    const struct round *round = arg;
    return round->each[server] == VOTE_YES  ? "yes"
           : round->each[server] == VOTE_NO ? "no"
           : round->each[server] == VOTE_FAILED
               ? round->errors[server]
               : redis_silence(round->env.redis, server,
                               votes_silence(round->until_ns <= mono_ns()));
}

/* From now on its missing answers are only heard. */
static void round_leave(struct round *round)
{
    for (size_t i = 0; i < round->votes.servers; i++) {
        if (round->asks[i] == NULL)
            continue;
        round->asks[i]->round = NULL;
        round->votes.late++;
        round->votes.unanswered |= UINT32_C(1) << i;
    }
    round->rounds->count--;
}

dlock_status rounds_end(struct rounds *rounds, struct renewal *renewal, struct dlock_hold *hold)
{
    struct round *round = (struct round *)renewal;
    dlock_status status = DLOCK_OK;
    TAILQ_REMOVE(&rounds->over, round, of_rounds);
    leave_demoted(rounds, round->env.redis);
    round_leave(round);
    votes_say(&round->votes, round->env.redis, round_word, round);
    if (hold != NULL)
        status = round->ops->end_renew(&round->env, hold, &round->renewing, &round->votes);
    free(round);
    return status;
}

static void rounds_forget(struct round_list *list)
{
    struct round *round;
    while ((round = TAILQ_FIRST(list)) != NULL) {
        TAILQ_REMOVE(list, round, of_rounds);
        round_leave(round);
        if (round->renewal.hold != NULL)
            renewals_drop(round->renewal.hold);
        free(round);
    }
}

void rounds_free(struct rounds *rounds)
{
    rounds_forget(&rounds->under_way);
    rounds_forget(&rounds->over);
}
