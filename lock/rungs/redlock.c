/* SPDX-License-Identifier: Apache-2.0
 *
 * redlock -- SET NX PX on several independent masters; a majority of them grants the lock.
 * ADDS   a majority of several servers: one that fails loses no lock
 * FLAW   a process that is frozen beyond its hold still writes; a server whose clock jumps, or that
 *        comes back empty, takes its vote back, and a bare majority has none to spare
 * SHOW   scripts/rung break redlock
 * CURE   fenced
 * NEXT   fenced
 * COST   2 rounds of one command to each server, side by side
 *
 * See docs/design/redlock.md.
 */
#include "redis_rung.h"

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

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    static const struct question question = {.is_yes = is_ok, .needs_most = true};
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", hold->ttl, NULL};
    dlock_status status = redis_check_independent(env->redis);
    if (status != DLOCK_OK)
        return status;
    struct votes votes = rung_poll(env, NULL, argv, &question, NULL);
    atomic_store(&hold->asked, votes.asked);
    if (votes.yes >= votes.needed) {
        atomic_store(&hold->servers, servers_of(votes.said_yes, votes.unanswered));
        hold->renews_soon = votes.yes < votes.servers;
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
    struct votes votes = delete_on_all(env, hold);
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

/* Sets the key again where it is missing: on a server that came back empty. A majority has just
 * confirmed the hold, so no other client can have the lock. The answers are awaited, and no other
 * task of the timekeeper ends that wait, so that no release overtakes the request. Returns which
 * servers answered. */
static uint32_t set_again(struct rung_env *env, struct dlock_hold *hold, const char *ttl,
                          uint32_t missing)
{
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", ttl, NULL};
    uint32_t answered = 0;
    atomic_fetch_or(&hold->asked, missing);
    redis_go_on(env->redis);
    for (size_t i = 0; i < redis_nodes(env->redis); i++)
        if ((missing >> i & 1) != 0)
            redis_append(env->redis, i, rung_count(argv), argv, NULL);
    redis_gather_until(env->redis, is_never_decided, NULL, 0, INT64_MAX, -1);
    for (size_t i = 0; i < redis_nodes(env->redis); i++)
        if (redis_status(env->redis, i) != DLOCK_UNKNOWN)
            answered |= missing & 1U << i;
    return answered;
}

/* What this round says about the servers. If another round of the same hold has ended meanwhile,
 * it only says which ones do not count. Returns where the key is set again. */
static uint32_t take_round(struct dlock_hold *hold, uint32_t began, const struct votes *votes,
                           bool renewed, uint32_t missing)
{
    uint32_t setting = setting_of(began) & ~votes->said_yes;
    uint32_t counted = counted_of(began) | (renewed ? votes->said_yes : 0);
    uint32_t heals = renewed ? missing & ~setting : 0;
    uint32_t now = servers_of(counted & ~votes->said_no, setting | heals);
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
    uint32_t heals = take_round(hold, began, &votes, renewed, fresh ? renewing.missing : 0);
    if (heals != 0)
        atomic_fetch_and(&hold->servers, ~servers_of(0, set_again(env, hold, ttl, heals)));
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
    .traits = TRAIT_EXPIRES | TRAIT_QUORUM,
    .contend = CONTEND_ONE_PER_CLIENT,
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
};
