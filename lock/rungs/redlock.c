/* SPDX-License-Identifier: Apache-2.0
 *
 * redlock -- SET NX PX on several independent masters; a majority of them grants the lock.
 * ADDS   a server that fails or is replaced does not lose the lock
 * FLAW   a process that is frozen beyond its hold still writes; a server whose clock jumps, or that
 *        comes back empty, takes its vote back, and a bare majority has none to spare
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
    static const struct question question = {
        .is_yes = is_one, .is_decided = is_certain, .for_all = true};
    const char *const argv[] = {"1", hold->key, hold->id, NULL};
    return rung_poll(env, &lua_delete_if_owner, argv, &question, NULL);
}

/* Deletes what this attempt may have set, on all servers, also those that said no. On a server that
 * is late it follows the attempt's own request, and is not awaited. */
static void take_back(struct rung_env *env, const struct dlock_hold *hold)
{
    env->awaits = AWAIT_PROMPT;
    delete_on_all(env, hold);
    env->awaits = AWAIT_DECISION;
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
    if (votes.yes >= votes.needed) {
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

static bool note_missing(void *arg, size_t server, const struct answer *answer)
{
    bool *missing = arg;
    missing[server] = answer->kind == DLOCK_REPLY_INTEGER && answer->integer == 0;
    return is_one(NULL, server, answer);
}

static bool is_never_decided(void *arg)
{
    (void)arg;
    return false;
}

/* Sets the key again where it is missing: on a server that came back empty. A majority has just
 * confirmed the hold, so no other client can have the lock. The answers are awaited, so that no
 * release overtakes the request. */
static void set_again(struct rung_env *env, const struct dlock_hold *hold, const char *ttl,
                      const bool *missing)
{
    const char *const argv[] = {"SET", hold->key, hold->id, "NX", "PX", ttl, NULL};
    bool any = false;
    redis_go_on(env->redis);
    for (size_t i = 0; i < redis_nodes(env->redis); i++) {
        any |= missing[i];
        if (missing[i])
            redis_append(env->redis, i, rung_count(argv), argv, NULL);
    }
    if (any)
        redis_gather_until(env->redis, is_never_decided, NULL, env->deadline_ns, env->wake_fd);
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold, const char *ttl)
{
    static const struct question question = {.is_yes = note_missing, .is_decided = is_certain};
    const char *const argv[] = {"1", hold->key, hold->id, ttl, NULL};
    bool missing[SERVERS_MAX] = {false};
    int64_t began_ns = env->now_ns();
    struct votes votes = rung_poll(env, &lua_redlock_renew, argv, &question, missing);
    if (votes.yes >= votes.needed) {
        if (env->now_ns() - began_ns < strtoll(ttl, NULL, 10) * (NS_PER_MS / 2))
            set_again(env, hold, ttl, missing);
        return DLOCK_OK;
    }
    if (votes.servers - votes.no < votes.needed)
        return fail(DLOCK_LOST, "'%s': %zu of %zu servers no longer have it (%s)", hold->key,
                    votes.no, votes.servers, votes.answers);
    dlock_status status = votes.late + votes.lost > 0 ? DLOCK_UNKNOWN
                          : votes.failed > 0          ? DLOCK_REFUSED
                                                      : DLOCK_UNREACHABLE;
    return fail(status, "'%s': %zu of %zu servers renewed it, and %zu are needed (%s)", hold->key,
                votes.yes, votes.servers, votes.needed, votes.answers);
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
