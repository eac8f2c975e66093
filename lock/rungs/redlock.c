/* SPDX-License-Identifier: Apache-2.0
 *
 * redlock -- SET NX PX on several independent masters; a majority of them grants the lock.
 * ADDS   a majority of several servers: one that fails loses no lock
 * FLAW   a process that is frozen beyond its hold still writes; a server whose clock jumps, or that
 *        comes back empty, takes its vote back, and a bare majority has none to spare
 * SHOW   scripts/rung break redlock
 * CURE   fenced
 * NEXT   fenced
 * COST   2 rounds of one command to each server, side by side; 3 with a token
 *
 * See docs/design/redlock.md.
 */
#include "heard.h"
#include "redis_rung.h"
#include "set_token.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_MS_LEAST 50
#define AGAIN_MS_MOST 200
#define FIRST_MS 10  /* the first renewal, if answers to the acquire were late */
#define SOON_PART 30 /* a renewal after a thirtieth of the time to live, if a server may join */

static uint32_t setting_of(uint32_t servers)
{
    return servers >> 16;
}

static uint32_t servers_of(uint32_t counted, uint32_t setting)
{
    return counted | setting << 16;
}
_Static_assert(SERVERS_MAX <= 16, "half of 32 bits has one for each server");

static bool is_ok(void *arg, size_t server, const struct answer *answer)
{
    (void)arg;
    (void)server;
    return strcmp(answer->text, "OK") == 0;
}

static bool is_one(void *arg, size_t server, const struct answer *answer)
{
    (void)arg;
    (void)server;
    return answer->kind == DLOCK_REPLY_INTEGER && answer->integer == 1;
}

/* A majority had it, or none can have had it. Servers that are not connected may have it. */
static bool is_certain(void *arg, const struct votes *votes)
{
    (void)arg;
    return votes->yes >= votes->needed || votes->no > votes->servers - votes->needed;
}

static struct votes delete_on_all(struct rung_env *env, const struct dlock_hold *hold)
{
    const struct question question = {
        .is_yes = is_one, .is_decided = is_certain, .kept = atomic_load(&hold->asked)};
    const char *const argv[] = {"1", hold->key, hold->id, NULL};
    return rung_poll(env, &lua_delete_if_owner, argv, &question, NULL);
}

/* Deletes what this attempt may have set, on all servers, also those that said no. On a server that
 * is late it follows the attempt's own request, and is not awaited. The caller's reads are for an
 * acquire. */
static void take_back(struct rung_env *env, const struct dlock_hold *hold)
{
    struct dlock_batch *reads = env->reads;
    env->reads = NULL;
    env->awaits = AWAIT_PROMPT;
    delete_on_all(env, hold);
    env->awaits = AWAIT_DECISION;
    env->reads = reads;
}

/* Clients that have split the servers between them try again at different times. */
static int64_t again_ms(void)
{
    uint32_t chance = (uint32_t)mono_ns() * 2654435761U;
    return AGAIN_MS_LEAST + (chance >> 16) % (AGAIN_MS_MOST - AGAIN_MS_LEAST + 1);
}

/* No majority granted it. The servers that had no time to answer, because it was decided, count as
 * reached. */
static dlock_status refused(struct rung_env *env, const struct votes *votes, struct busy *busy)
{
    size_t reached = votes->yes + votes->no + (votes->decided ? votes->late : 0);
    dlock_status status = votes->no > 0 && reached >= votes->needed  ? DLOCK_BUSY
                          : reached + votes->failed >= votes->needed ? DLOCK_REFUSED
                                                                     : DLOCK_UNREACHABLE;
    env->transient = redis_leaves_majority(env->redis, votes->refusing);
    busy->kind = WAIT_LOCAL;
    busy->again_ms = again_ms();
    busy->says = true;
    return fail(status, "%zu of %zu servers granted it, and %zu are needed (%s)", votes->yes,
                votes->servers, votes->needed, votes->answers);
}

/* ---- Requests that set the key, and are not answered ----------------------------------------- */

static struct connection_id setter_of(const struct dlock_hold *hold, size_t server)
{
    const struct setter *from = &hold->quorum->setters[server];
    return (struct connection_id){.node = server, .id = from->id, .process = from->process};
}

/* The requests to these servers were sent on this connection. */
static void note_setters(struct rung_env *env, struct dlock_hold *hold, uint32_t servers)
{
    int64_t timeout_ms = redis_config_of(env->redis)->command_timeout_ms;
    if (servers == 0)
        return;
    hold->quorum->settles_ns = mono_deadline_ns(timeout_ms);
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        struct connection_id mine = redis_connection(env->redis, i);
        if ((servers >> i & 1) != 0)
            hold->quorum->setters[i] = (struct setter){.process = mine.process, .id = mine.id};
    }
}

/* The requests to these servers have been carried out, or never will be. */
static void settle(struct dlock_hold *hold, uint32_t servers)
{
    atomic_fetch_and(&hold->quorum->again, ~servers);
    atomic_fetch_and(&hold->servers, ~servers_of(0, servers));
}

static void settle_heard(struct dlock_hold *hold)
{
    settle(hold, heard_from(hold->quorum, HEARD_KEY) | heard_from(hold->quorum, HEARD_OVER));
}

/* A majority granted it. */
static void note_acquire(struct rung_env *env, struct dlock_hold *hold, const struct votes *votes)
{
    atomic_store(&hold->servers, servers_of(votes->said_yes, votes->unanswered));
    atomic_store(&hold->quorum->again, 0);
    hold->quorum->met = votes->asked;
    hold->quorum->near = hold->quorum->silent = 0;
    note_setters(env, hold, votes->unanswered);
    hold->renews_ms = votes->late > 0               ? FIRST_MS
                      : votes->yes < votes->servers ? hold->ttl_ms / SOON_PART
                                                    : 0;
}

/* A majority granted the lock, and no token counts. */
static dlock_status refused_token(struct rung_env *env, const struct dlock_hold *hold,
                                  struct busy *busy)
{
    char why[SENTENCE_MAX];
    strcpy(why, dlock_error());
    take_back(env, hold);
    busy->kind = WAIT_LOCAL;
    busy->again_ms = again_ms();
    busy->says = true;
    env->transient = true;
    return fail(DLOCK_REFUSED, "%s", why);
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    const struct question question = {
        .is_yes = is_ok, .needs_most = true, .hears = hold->quorum, .follows = UINT32_MAX};
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", hold->ttl, NULL};
    struct set_told told = {0};
    dlock_status status = redis_check_independent(env->redis);
    if (status != DLOCK_OK)
        return status;
    heard_anew(hold->quorum, UINT32_MAX);
    struct votes votes = hold->wants_token ? set_token_ask(env, hold, &told)
                                           : rung_poll(env, NULL, argv, &question, NULL);
    atomic_store(&hold->asked, votes.asked);
    if (votes.yes >= votes.needed) {
        note_acquire(env, hold, &votes);
        if (hold->wants_token && set_token_draw(env, hold, &told) != DLOCK_OK)
            return refused_token(env, hold, busy);
        point(env, "acquired");
        return DLOCK_OK;
    }
    take_back(env, hold);
    /* So many connections broke that what was sent on them may keep every other client out. */
    if (votes.lost > votes.servers - votes.needed)
        return fail(DLOCK_UNKNOWN, "the answers of %zu of %zu servers were lost (%s)", votes.lost,
                    votes.servers, votes.answers);
    return refused(env, &votes, busy);
}

/* After lost answers: the attempt is given back, and is never counted. */
static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    take_back(env, hold);
    return DLOCK_BUSY;
}

static dlock_status judge_release(const struct dlock_hold *hold, const struct votes *votes)
{
    size_t gone = votes->yes + votes->no; /* these servers do not have it now */
    size_t rest = votes->servers - gone;
    if (votes->yes + rest < votes->needed)
        return fail(DLOCK_LOST, "'%s': %zu of %zu servers no longer had it (%s)", hold->key,
                    votes->no, votes->servers, votes->answers);
    if (votes->yes >= votes->needed || rest < votes->needed)
        return DLOCK_OK;
    dlock_status status = votes->yes + votes->late + votes->lost > 0 ? DLOCK_UNKNOWN
                          : votes->failed > 0                        ? DLOCK_REFUSED
                                                                     : DLOCK_UNREACHABLE;
    return fail(status, "'%s' is released on %zu of %zu servers; a majority may still have it (%s)",
                hold->key, gone, votes->servers, votes->answers);
}

/* Has the servers end the connections that may still carry a request to set the key again. What is
 * sent from now on follows that. No answer is awaited. */
static void end_setters(struct rung_env *env, const struct dlock_hold *hold)
{
    uint32_t again = setting_of(hold->servers) & hold->quorum->again;
    redis_go_on(env->redis);
    for (size_t i = 0; again != 0 && i < redis_nodes(env->redis); i++) {
        struct connection_id setter = setter_of(hold, i);
        if ((again >> i & 1) != 0 && !redis_follows(env->redis, &setter))
            redis_append_kill(env->redis, &setter);
    }
    redis_send(env->redis);
}

/* The acquire's own request may still be on its way to some servers, and another call uses its
 * connection: the release is sent there, too, once that call is over. */
static void follow_acquire(struct rung_env *env, const struct dlock_hold *hold)
{
    const char *const argv[] = {"1", hold->key, hold->id, NULL};
    uint32_t late = setting_of(hold->servers) & ~hold->quorum->again;
    if (late != 0 && hold->acquired_on != NULL && hold->acquired_on != env->redis)
        rung_send_later(env, hold->acquired_on, late, &lua_delete_if_owner, argv);
}

/* The commands of the caller go first, and are awaited: they must not meet the next holder, which
 * needs only a majority of the servers. */
static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    char why[SENTENCE_MAX] = "";
    point(env, "before_release");
    if (env->last != NULL) {
        dlock_status rode = rung_send_last(env);
        if (rode == DLOCK_UNKNOWN)
            return rode;
        if (rode != DLOCK_OK)
            strcpy(why, dlock_error());
    }
    settle_heard(hold);
    end_setters(env, hold);
    struct votes votes = delete_on_all(env, hold);
    follow_acquire(env, hold);
    dlock_status status = judge_release(hold, &votes);
    if (status == DLOCK_OK && why[0] != '\0')
        return fail(DLOCK_UNREACHABLE, "'%s' is released; what was to be sent before was not: %s",
                    hold->key, why);
    return status;
}

/* ---- Renewal --------------------------------------------------------------------------------- */

static bool note_missing(void *arg, size_t server, const struct answer *answer)
{
    struct renewing *renewing = arg;
    if (answer->kind == DLOCK_REPLY_INTEGER && answer->integer == 0)
        renewing->missing |= 1U << server;
    return is_one(NULL, server, answer);
}

/* A majority that counts said yes, or none can any more. */
static bool is_renewal_certain(void *arg, const struct votes *votes)
{
    const struct renewing *renewing = arg;
    return size_of(votes->said_yes & renewing->counted) >= votes->needed ||
           size_of(renewing->counted & ~votes->said_no) < votes->needed;
}

/* What became of the acquire's requests may be known on its connection, which nobody has read. */
static void catch_up(struct rung_env *env, struct dlock_hold *hold)
{
    uint32_t late = setting_of(hold->servers) & ~hold->quorum->again;
    if (late != 0 && hold->acquired_on != NULL && hold->acquired_on != env->redis)
        pool_catch_up(env->pool, hold->acquired_on);
    settle_heard(hold);
}

/* Where nothing that is on its way can set the key after this round's commands: they follow it, or
 * its server process has ended. */
static uint32_t followed(struct rung_env *env, const struct dlock_hold *hold)
{
    uint32_t servers = ~setting_of(hold->servers);
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        struct connection_id setter = setter_of(hold, i);
        if (setter.id != 0 && redis_follows(env->redis, &setter))
            servers |= 1U << i;
    }
    return servers;
}

/* What late answers say about the servers before a round begins. */
struct before {
    uint32_t joining; /* have the key */
    uint32_t missing; /* have none */
};

/* If a server had the key, and none, it is not known what came first: it is asked anew. */
static struct before take_heard(struct dlock_hold *hold)
{
    uint32_t key = heard_from(hold->quorum, HEARD_KEY);
    uint32_t none = heard_from(hold->quorum, HEARD_NONE);
    heard_anew(hold->quorum, key & none);
    atomic_fetch_and(&hold->servers, ~servers_of(none, 0));
    return (struct before){.joining = key & ~none, .missing = none & ~key};
}

/* What this round says about the servers. Those that join had the key before it began. So if a
 * majority that counts has kept it until now, they have had it all the time. */
static void take_round(struct dlock_hold *hold, const struct votes *votes, uint32_t joining)
{
    uint32_t counted = counted_of(hold->servers) | joining;
    settle(hold, votes->said_yes);
    heard_anew(hold->quorum,
               votes->said_no | (votes->said_yes & heard_from(hold->quorum, HEARD_NONE)));
    heard_key(hold->quorum, votes->said_yes);
    atomic_store(&hold->servers, servers_of(counted & ~votes->said_no, setting_of(hold->servers)));
}

/* Sends what sets the key again to servers that have none, such as one that came back empty. A
 * majority has just confirmed the hold, so no other client can have the lock. If an earlier request
 * may still set it there, and is overdue, the server is told to end its connection; a later round
 * sets the key then. No answer is awaited: other holds are to be renewed. Returns where the key is
 * set. */
static uint32_t mend(struct rung_env *env, struct dlock_hold *hold, const char *ttl,
                     uint32_t missing)
{
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", ttl, NULL};
    const uint32_t setting = setting_of(hold->servers);
    bool may_end = mono_ns() >= hold->quorum->settles_ns;
    uint32_t sets = 0, ends = 0;
    redis_go_on(env->redis);
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        const uint32_t it = 1U << i;
        const struct connection_id setter = setter_of(hold, i);
        if ((missing & it) == 0 || redis_is_twin(env->redis, i))
            continue;
        if ((setting & it) == 0) {
            redis_append(env->redis, i, rung_count(argv), argv, NULL);
            sets |= redis_awaits(env->redis, i) ? it : 0;
        } else if (may_end && !redis_follows(env->redis, &setter) &&
                   redis_append_kill(env->redis, &setter)) {
            ends |= it;
        }
    }
    if ((sets | ends) == 0)
        return 0;
    heard_anew(hold->quorum, sets);
    atomic_fetch_or(&hold->asked, sets);
    atomic_fetch_or(&hold->quorum->again, sets);
    atomic_fetch_or(&hold->servers, servers_of(0, sets));
    note_setters(env, hold, sets);
    redis_send(env->redis);
    redis_go_on(env->redis);
    for (size_t i = 0; i < redis_nodes(env->redis); i++)
        if (((sets | ends) >> i & 1) != 0)
            heard_await(hold->quorum, (sets >> i & 1) != 0 ? ASKS_LAST : ASKS_KILL, env->redis, i,
                        0);
    return sets;
}

/* The first half of a round. The second one, end_renew, follows the votes. */
static void begin_renew(struct rung_env *env, struct dlock_hold *hold, struct renewing *renewing)
{
    catch_up(env, hold);
    const struct before before = take_heard(hold);
    renewing->script = &lua_redlock_renew;
    renewing->argv[0] = "1";
    renewing->argv[1] = hold->key;
    renewing->argv[2] = hold->id;
    renewing->argv[3] = renewing->ttl;
    renewing->argv[4] = NULL;
    renewing->question = (struct question){.is_yes = note_missing,
                                           .is_decided = is_renewal_certain,
                                           .hears = hold->quorum,
                                           .follows = followed(env, hold)};
    renewing->counted = counted_of(hold->servers);
    renewing->missing = 0;
    renewing->joining = before.joining;
    renewing->lacked = before.missing;
    renewing->began_ns = env->now_ns();
}

static dlock_status judge_renewal(const struct dlock_hold *hold, const struct renewing *renewing,
                                  const struct votes *votes)
{
    size_t yes = size_of(votes->said_yes & renewing->counted);
    if (yes >= votes->needed)
        return DLOCK_OK;
    if (size_of(renewing->counted & ~votes->said_no) < votes->needed)
        return fail(DLOCK_LOST, "'%s': a majority of %zu servers has not kept it (%s)", hold->key,
                    votes->servers, votes->answers);
    dlock_status status = votes->yes + votes->late + votes->lost > 0 ? DLOCK_UNKNOWN
                          : votes->failed > 0                        ? DLOCK_REFUSED
                                                                     : DLOCK_UNREACHABLE;
    return fail(status, "'%s': %zu of %zu servers that kept it renewed it, and %zu are needed (%s)",
                hold->key, yes, votes->servers, votes->needed, votes->answers);
}

/* Servers that are back: the last round did not ask them, and this one has just connected to them,
 * or has asked them and did not wait for the answer. Each is met so once, however long it is
 * silent. */
static uint32_t coming_back(struct rung_env *env, struct quorum_hold *quorum,
                            const struct votes *votes)
{
    uint32_t near = 0;
    for (size_t i = 0; i < redis_nodes(env->redis); i++)
        near |= redis_is_open(env->redis, i) ? 1U << i : 0;
    near &= ~votes->asked;
    uint32_t coming = (near & ~quorum->near) | (votes->unanswered & ~quorum->met);
    quorum->near = near;
    quorum->met = votes->asked;
    return coming;
}

static dlock_status end_renew(struct rung_env *env, struct dlock_hold *hold,
                              const struct renewing *renewing, const struct votes *votes)
{
    const char *ttl = renewing->ttl;
    dlock_status status = judge_renewal(hold, renewing, votes);
    bool renewed = status == DLOCK_OK;
    bool fresh = env->now_ns() - renewing->began_ns < strtoll(ttl, NULL, 10) * (NS_PER_MS / 2);
    const uint32_t refused = heard_from(hold->quorum, HEARD_REFUSED);
    settle(hold, renewing->missing & renewing->question.follows);
    take_round(hold, votes, renewed ? renewing->joining : 0);
    uint32_t may_join =
        heard_from(hold->quorum, HEARD_KEY) | (votes->unanswered & ~hold->quorum->silent);
    hold->quorum->silent = votes->unanswered;
    if (renewed && fresh)
        may_join |=
            mend(env, hold, ttl,
                 renewing->missing | (renewing->lacked & ~(votes->said_yes | votes->said_no)));
    may_join &= ~(refused | counted_of(hold->servers));
    may_join |= coming_back(env, hold->quorum, votes);
    hold->renews_ms = may_join != 0 ? hold->ttl_ms / SOON_PART : 0;
    return status;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    struct renewing renewing;
    snprintf(renewing.ttl, sizeof renewing.ttl, "%s", ttl);
    begin_renew(env, hold, &renewing);
    struct votes votes =
        rung_poll(env, renewing.script, renewing.argv, &renewing.question, &renewing);
    return end_renew(env, hold, &renewing, &votes);
}

const struct rung_ops rung_redlock = {
    .name = "redlock",
    .traits = TRAIT_EXPIRES | TRAIT_QUORUM | TRAIT_TOKEN,
    .contend = CONTEND_ONE_PER_CLIENT,
    .beside = {{"token", "string"}},
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .begin_renew = begin_renew,
    .end_renew = end_renew,
    .resolve = resolve,
};
