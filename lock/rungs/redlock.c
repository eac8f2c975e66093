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
#include "redis_rung.h"
#include "set_token.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_MS_LEAST 50
#define AGAIN_MS_MOST 200
#define JOIN_MS 50 /* how long a renewal awaits the other servers once a majority has said yes */

/* hold->servers: the low half has a bit for each server that counts. What it says later shows that
 * it has had the key all the time, because no request that could set the key is on its way to it.
 * The high half has a bit for each server to which such a request may be. */
static uint32_t counted_of(uint32_t servers)
{
    return servers & 0xffff;
}

static uint32_t setting_of(uint32_t servers)
{
    return servers >> 16;
}

static uint32_t servers_of(uint32_t counted, uint32_t setting)
{
    return counted | setting << 16;
}
_Static_assert(SERVERS_MAX <= 16, "half of 32 bits has one for each server");

static size_t size_of(uint32_t set)
{
    return (size_t)__builtin_popcount(set);
}

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
static dlock_status refused(const struct votes *votes, struct busy *busy)
{
    size_t reached = votes->yes + votes->no + (votes->decided ? votes->late : 0);
    dlock_status status = votes->no > 0 && reached >= votes->needed  ? DLOCK_BUSY
                          : reached + votes->failed >= votes->needed ? DLOCK_REFUSED
                                                                     : DLOCK_UNREACHABLE;
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
    return (struct connection_id){
        .node = server, .id = atomic_load(&from->id), .process = atomic_load(&from->process)};
}

/* To be called before their bits are cleared: a server's next request has another connection. */
static void forget_setters(struct dlock_hold *hold, uint32_t servers)
{
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if ((servers >> i & 1) != 0)
            atomic_store(&hold->quorum->setters[i].id, 0);
    atomic_fetch_and(&hold->quorum->again, ~servers);
}

/* The requests to these servers were sent on this connection. */
static void note_setters(struct rung_env *env, struct dlock_hold *hold, uint32_t servers)
{
    int64_t timeout_ms = redis_config_of(env->redis)->command_timeout_ms;
    if (servers == 0)
        return;
    atomic_store(&hold->quorum->settles_ns, mono_deadline_ns(timeout_ms));
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        struct connection_id mine = redis_connection(env->redis, i);
        if ((servers >> i & 1) == 0)
            continue;
        atomic_store(&hold->quorum->setters[i].process, mine.process);
        atomic_store(&hold->quorum->setters[i].id, mine.id);
    }
}

static void note_acquire(struct rung_env *env, struct dlock_hold *hold, uint32_t unanswered)
{
    forget_setters(hold, UINT32_MAX);
    note_setters(env, hold, unanswered);
}

/* That connection's request has been carried out, or never will be. Returns the server's bit; 0:
 * another round has dealt with it. */
static uint32_t settle(struct dlock_hold *hold, const struct connection_id *setter)
{
    const uint32_t it = 1U << setter->node;
    long long id = setter->id;
    if (!atomic_compare_exchange_strong(&hold->quorum->setters[setter->node].id, &id, 0))
        return 0;
    atomic_fetch_and(&hold->quorum->again, ~it);
    atomic_fetch_and(&hold->servers, ~servers_of(0, it));
    return it;
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
    static const struct question question = {.is_yes = is_ok, .needs_most = true};
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", hold->ttl, NULL};
    struct set_told told = {0};
    dlock_status status = redis_check_independent(env->redis);
    if (status != DLOCK_OK)
        return status;
    struct votes votes = hold->wants_token ? set_token_ask(env, hold, &told)
                                           : rung_poll(env, NULL, argv, &question, NULL);
    atomic_store(&hold->asked, votes.asked);
    if (votes.yes >= votes.needed) {
        atomic_store(&hold->servers, servers_of(votes.said_yes, votes.unanswered));
        note_acquire(env, hold, votes.unanswered);
        hold->renews_soon = votes.yes < votes.servers;
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
    return refused(&votes, busy);
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
    dlock_status status = votes->late + votes->lost > 0 ? DLOCK_UNKNOWN
                          : votes->failed > 0           ? DLOCK_REFUSED
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

struct renewing {
    uint32_t counted;
    uint32_t missing; /* servers that have no key */
};

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

static bool is_never_decided(void *arg)
{
    (void)arg;
    return false;
}

/* These servers have no key, and a request that sets it may be on its way to them. Such a request
 * can't come any more if this round's commands followed it, or if its server process has ended.
 * Returns those servers. */
static uint32_t settle_followed(struct rung_env *env, struct dlock_hold *hold, uint32_t servers)
{
    uint32_t settled = 0;
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        struct connection_id setter = setter_of(hold, i);
        if ((servers >> i & 1) != 0 && setter.id != 0 && redis_follows(env->redis, &setter))
            settled |= settle(hold, &setter);
    }
    return settled;
}

/* What a round sends to the servers that have no key. Some get the key again (SET). On others an
 * earlier request is long overdue: they end its connection, and get the key in a later round. */
struct mending {
    uint32_t sets;
    uint32_t ends;
    struct connection_id ended[SERVERS_MAX];
};

static void append_ends(struct rung_env *env, struct dlock_hold *hold, uint32_t overdue,
                        struct mending *mending)
{
    bool may_end = mono_ns() >= atomic_load(&hold->quorum->settles_ns);
    for (size_t i = 0; may_end && i < redis_nodes(env->redis); i++) {
        mending->ended[i] = setter_of(hold, i);
        if ((overdue >> i & 1) != 0 && redis_append_kill(env->redis, &mending->ended[i]))
            mending->ends |= 1U << i;
    }
}

static void append_sets(struct rung_env *env, const struct dlock_hold *hold, const char *ttl,
                        uint32_t missing)
{
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", ttl, NULL};
    for (size_t i = 0; i < redis_nodes(env->redis); i++)
        if ((missing >> i & 1) != 0)
            redis_append(env->redis, i, rung_count(argv), argv, NULL);
}

static void take_mending(struct rung_env *env, struct dlock_hold *hold,
                         const struct mending *mending)
{
    uint32_t answered = 0;
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        const uint32_t it = 1U << i;
        if ((mending->sets & it) != 0 && redis_status(env->redis, i) != DLOCK_UNKNOWN)
            answered |= it;
        if ((mending->ends & it) != 0 && redis_killed(env->redis, i) == KILL_DONE)
            settle(hold, &mending->ended[i]);
    }
    uint32_t unanswered = mending->sets & ~answered;
    atomic_fetch_or(&hold->quorum->again, unanswered);
    note_setters(env, hold, unanswered);
    atomic_fetch_and(&hold->servers, ~servers_of(0, answered));
}

/* Sets the key again where it is missing: on a server that came back empty. A majority has just
 * confirmed the hold, so no other client can have the lock. The answers are awaited, and no other
 * task of the timekeeper ends that wait: a request that is not answered needs a connection to be
 * ended, by a later round or by the release. */
static void mend(struct rung_env *env, struct dlock_hold *hold, const char *ttl, uint32_t missing,
                 uint32_t overdue)
{
    struct mending mending = {.sets = missing};
    atomic_fetch_or(&hold->asked, missing);
    redis_go_on(env->redis);
    append_sets(env, hold, ttl, missing);
    append_ends(env, hold, overdue, &mending);
    if ((mending.sets | mending.ends) == 0)
        return;
    redis_gather_until(env->redis, is_never_decided, NULL, 0, env->deadline_ns, -1);
    take_mending(env, hold, &mending);
}

/* What this round says about the servers. If another round of the same hold has ended meanwhile,
 * it only says which ones do not count. Returns where the key is set again. */
static uint32_t take_round(struct dlock_hold *hold, uint32_t began, const struct votes *votes,
                           bool renewed, uint32_t missing)
{
    uint32_t setting = setting_of(began) & ~votes->said_yes;
    uint32_t counted = counted_of(began) | (renewed ? votes->said_yes : 0);
    uint32_t heals = missing & ~setting;
    uint32_t now = servers_of(counted & ~votes->said_no, setting | heals);
    forget_setters(hold, setting_of(began) & votes->said_yes);
    if (atomic_compare_exchange_strong(&hold->servers, &began, now))
        return heals;
    atomic_fetch_and(&hold->servers, ~servers_of(votes->said_no, 0));
    return 0;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    static const struct question question = {
        .is_yes = note_missing, .is_decided = is_renewal_certain, .more_ms = JOIN_MS};
    const char *const argv[] = {"1", hold->key, hold->id, ttl, NULL};
    uint32_t began = atomic_load(&hold->servers);
    struct renewing renewing = {.counted = counted_of(began)};
    int64_t began_ns = env->now_ns();
    struct votes votes = rung_poll(env, &lua_redlock_renew, argv, &question, &renewing);
    size_t yes = size_of(votes.said_yes & renewing.counted);
    bool renewed = yes >= votes.needed;
    bool fresh = env->now_ns() - began_ns < strtoll(ttl, NULL, 10) * (NS_PER_MS / 2);
    uint32_t missing = renewed && fresh ? renewing.missing : 0;
    began &= ~servers_of(0, settle_followed(env, hold, missing & setting_of(began)));
    uint32_t heals = take_round(hold, began, &votes, renewed, missing);
    mend(env, hold, ttl, heals, missing & setting_of(began));
    if (renewed)
        return DLOCK_OK;
    if (size_of(renewing.counted & ~votes.said_no) < votes.needed)
        return fail(DLOCK_LOST, "'%s': a majority of %zu servers has not kept it (%s)", hold->key,
                    votes.servers, votes.answers);
    dlock_status status = votes.late + votes.lost > 0 ? DLOCK_UNKNOWN
                          : votes.failed > 0          ? DLOCK_REFUSED
                                                      : DLOCK_UNREACHABLE;
    return fail(status, "'%s': %zu of %zu servers that kept it renewed it, and %zu are needed (%s)",
                hold->key, yes, votes.servers, votes.needed, votes.answers);
}

const struct rung_ops rung_redlock = {
    .name = "redlock",
    .traits = TRAIT_EXPIRES | TRAIT_QUORUM | TRAIT_TOKEN,
    .contend = CONTEND_ONE_PER_CLIENT,
    .beside = {{"token", "string"}},
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
};
