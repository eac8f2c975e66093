/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends renewals: many scripts in one write, on the timekeeper's own connection or on one that the
 * pool lends. Also renews one hold, for dlock_extend.
 */
#include "acks.h"
#include "explain.h"
#include "redis_engine.h"
#include "rounds.h"

#include <stdio.h>
#include <stdlib.h>

#define SCRIPTS_MAX 8
#define OWN_PAUSE_MS 1000
#define LEND_MS 20

struct renewer {
    struct dlock_client *client;
    struct redis *own;
    int64_t own_from_ns;  /* CLOCK_MONOTONIC: if it is not connected, it is not tried before */
    struct redis *redis;  /* `own`, or one that the pool has lent */
    size_t taken;         /* how many of the replies were taken */
    size_t added;         /* requests that were not sent yet */
    int64_t latest_ns;    /* CLOCK_BOOTTIME: when the last of their holds ends */
    size_t unconfirmed;   /* replies before WAIT's that were not taken; 0: no WAIT is under way */
    bool gave_up;         /* no more replies are awaited, nor WAIT's */
    struct rounds rounds; /* on `redis` */
    const struct script *known[SCRIPTS_MAX]; /* they were sent, so the server knows them */
    size_t known_count;
};

static struct renewer *renewer_make(struct dlock_client *client)
{
    struct renewer *renewer = calloc(1, sizeof *renewer);
    if (renewer == NULL)
        return NULL;
    renewer->client = client;
    rounds_init(&renewer->rounds);
    renewer->own = renewer->redis = redis_new(&redis_of(client)->config);
    if (renewer->own != NULL)
        return renewer;
    free(renewer);
    return NULL;
}

static bool renewer_is_lent(const struct renewer *renewer)
{
    return renewer->redis != renewer->own;
}

/* WAIT blocks its connection. So what is due meanwhile goes in one write, with one WAIT. */
static bool renewer_may_add(const struct renewer *renewer)
{
    return !renewer_is_lent(renewer) && acks_needed(renewer->redis) == 0;
}

static void free_all(struct renewer *renewer)
{
    rounds_free(&renewer->rounds);
    if (renewer_is_lent(renewer))
        redis_free(renewer->redis);
    redis_free(renewer->own);
    free(renewer);
}

/* ---- The connection -------------------------------------------------------------------------- */

/* Whether its own connection is up to these servers. It is tried without waiting. */
static bool renewer_has_own(struct renewer *renewer, uint32_t servers)
{
    struct redis *own = renewer->own;
    if (!redis_up(own) && mono_ns() >= renewer->own_from_ns) {
        redis_ready(own, mono_ns(), -1);
        if (!redis_up(own) && !redis_connecting(own))
            renewer->own_from_ns = mono_deadline_ns(OWN_PAUSE_MS);
    }
    return redis_up_to(own, servers);
}

/* Whether another connection than that of the rounds under way would do, or would be better. Calls
 * need a lent one, too: if its own one will do, no more begin there, so that it goes back. */
static bool renewer_has_other(struct renewer *renewer, uint32_t servers)
{
    return renewer_is_lent(renewer) ? renewer_has_own(renewer, servers)
                                    : !redis_up_to(renewer->own, servers) &&
                                          pool_has_up(&redis_of(renewer->client)->pool, servers);
}

/* Rounds under way stay on their connection, and are not to wait. Without a majority on it, others
 * wait until these are over, and may then get another connection. If there is one, these are over
 * by limit_ns: a server that is silent there must cost no other hold its own majority. */
static dlock_status renewer_still_ready(struct renewer *renewer, uint32_t servers, int64_t limit_ns)
{
    redis_ready(renewer->redis, mono_ns(), -1);
    if (renewer_has_other(renewer, servers)) {
        rounds_limit(&renewer->rounds, limit_ns);
        return DLOCK_UNREACHABLE;
    }
    return redis_up(renewer->redis) ? DLOCK_OK : DLOCK_UNREACHABLE;
}

/* Has the pool lend a connection to a majority among these servers. Without one, others can be
 * renewed on any majority. So they wait for this one only shortly. */
static dlock_status renewer_borrow(struct renewer *renewer, uint32_t servers, int64_t limit_ns,
                                   int wake_fd, struct redis **lent)
{
    struct pool *pool = &redis_of(renewer->client)->pool;
    const bool any = servers == SERVERS_ALL;
    const int64_t by_ns = any ? limit_ns : min_ns(limit_ns, mono_deadline_ns(LEND_MS));
    dlock_status taken = pool_take_up(pool, servers, by_ns, wake_fd, lent);
    if (taken == DLOCK_LIMIT && !any && !redis_up(renewer->own))
        taken = pool_take_up(pool, SERVERS_ALL, limit_ns, wake_fd, lent);
    return taken;
}

/* Uses its own connection, or else one that the pool lends. A server without room for another
 * connection still answers on those that it has. Half of the time is for its own, unless that has
 * just failed. */
static dlock_status renewer_ready(struct renewer *renewer, uint32_t of_hold, int64_t limit_ns,
                                  int wake_fd)
{
    const uint32_t counted = counted_of(of_hold), servers = counted != 0 ? counted : SERVERS_ALL;
    struct redis *own = renewer->own, *lent;
    const int64_t now_ns = mono_ns();
    if (renewer->rounds.count > 0)
        return renewer_still_ready(renewer, servers, limit_ns);
    if (redis_up(own) || now_ns >= renewer->own_from_ns) {
        dlock_status status = redis_ready(own, now_ns + (limit_ns - now_ns) / 2, wake_fd);
        if (status == DLOCK_CANCELLED || redis_up_to(own, servers))
            return status;
        if (!redis_up(own))
            renewer->own_from_ns = mono_deadline_ns(OWN_PAUSE_MS);
    }
    dlock_status taken = renewer_borrow(renewer, servers, limit_ns, wake_fd, &lent);
    if (taken == DLOCK_CANCELLED)
        return taken;
    if (taken != DLOCK_OK) /* its own one may be late */
        return redis_ready(own, limit_ns, wake_fd);
    renewer->redis = lent;
    return redis_ready(lent, limit_ns, wake_fd);
}

/* Returns a lent connection to the pool. All its answers were taken. */
static void renewer_rest(struct renewer *renewer)
{
    redis_begin(renewer->redis);
    pool_give(&redis_of(renewer->client)->pool, renewer->redis);
    renewer->redis = renewer->own;
}

static void renewer_protocol_error(struct renewer *renewer)
{
    redis_distrust(renewer->redis, 0);
}

/* ---- One renewal ----------------------------------------------------------------------------- */

static enum renewal_way renewer_way(const struct dlock_hold *hold)
{
    const struct rung_ops *ops = hold->lock->ops;
    return ops->begin_renew != NULL  ? RENEWED_IN_ROUNDS
           : ops->send_renew == NULL ? RENEWED_ALONE
                                     : RENEWED_TOGETHER;
}

static dlock_status renewer_alone(struct renewer *renewer, struct dlock_hold *hold, int64_t ttl_ms,
                                  int64_t deadline_ns, int wake_fd)
{
    struct rung_env env;
    env_init(hold->lock, deadline_ns, &env);
    env.redis = renewer->redis;
    env.wake_fd = wake_fd;
    env.confirms_ms = max_ns(dlock_remaining_ms(hold), 1);
    return acks_judge(&env.acks, rung_renew(&env, hold, ttl_ms));
}

static dlock_status extend_on(struct rung_env *env, struct dlock_hold *hold, int64_t *sent_ns,
                              int64_t *ttl_ms)
{
    *sent_ns = hold->lock->client->now_ns();
    *ttl_ms = dlock_valid(hold) ? renewal_ms(hold, *sent_ns) : 0;
    env->confirms_ms = max_ns(dlock_remaining_ms(hold), 1);
    return *ttl_ms > 0 ? acks_judge(&env->acks, rung_renew(env, hold, *ttl_ms)) : DLOCK_OK;
}

/* On several servers: once a connection is there, in turn with the hold's other rounds. While it
 * waits for the connection, the timekeeper may renew the hold. While it waits for a round, it keeps
 * no connection from others. */
static dlock_status begin_extend(struct dlock_hold *hold, int64_t ends_ns, struct rung_env *env)
{
    struct timekeeper *timekeeper = &hold->lock->client->timekeeper;
    const int64_t began_ns = mono_ns();
    while (timekeeper_await_round(timekeeper, hold, ends_ns)) {
        dlock_status status = env_begin(hold->lock, ends_ns, ends_ns, -1, NULL, env);
        if (status == DLOCK_OK) /* the round's own majority, of those that count */
            redis_ready_to(env->redis, counted_of(atomic_load(&hold->servers)), ends_ns, -1);
        if (status != DLOCK_OK || timekeeper_begin_round(timekeeper, hold, 0))
            return status;
        env_end(hold->lock, env);
    }
    return no_turn(hold->lock, began_ns);
}

dlock_status redis_extend(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                          int64_t *ttl_ms)
{
    struct rung_env env = {.redis = NULL};
    const bool several = hold->quorum != NULL;
    dlock_status status = several ? begin_extend(hold, ends_ns, &env)
                                  : env_begin(hold->lock, ends_ns, ends_ns, -1, NULL, &env);
    const bool begun = status == DLOCK_OK;
    if (begun)
        status = extend_on(&env, hold, sent_ns, ttl_ms);
    if (begun && several)
        timekeeper_end_round(&hold->lock->client->timekeeper, hold);
    env_end(hold->lock, &env);
    return status;
}

/* ---- Rounds of several servers --------------------------------------------------------------- */

static size_t renewer_rounds(const struct renewer *renewer)
{
    return renewer->rounds.count;
}

static struct renewal *renewer_round_begin(struct renewer *renewer, struct dlock_hold *hold,
                                           int64_t ttl_ms, int64_t deadline_ns)
{
    struct rung_env env;
    env_init(hold->lock, deadline_ns, &env);
    env.redis = renewer->redis;
    return rounds_begin(&renewer->rounds, &env, hold, ttl_ms);
}

static void renewer_rounds_wait(struct renewer *renewer, int wake_fd)
{
    rounds_wait(&renewer->rounds, renewer->redis, wake_fd);
}

static struct renewal *renewer_round_over(const struct renewer *renewer)
{
    return rounds_over(&renewer->rounds);
}

static dlock_status renewer_round_end(struct renewer *renewer, struct renewal *renewal,
                                      struct dlock_hold *hold)
{
    return rounds_end(&renewer->rounds, renewal, hold);
}

/* ---- Many renewals in one write -------------------------------------------------------------- */

static int64_t renewer_begin(struct renewer *renewer)
{
    redis_begin(renewer->redis);
    renewer->taken = renewer->added = renewer->unconfirmed = 0;
    renewer->gave_up = false;
    return redis_connect_ns(renewer->redis, 0);
}

/* The first request that needs a script carries it in full, also for the later ones. */
static bool must_carry(struct renewer *renewer, const struct script *script)
{
    for (size_t i = 0; i < renewer->known_count; i++)
        if (renewer->known[i] == script)
            return false;
    if (renewer->known_count < SCRIPTS_MAX)
        renewer->known[renewer->known_count++] = script;
    return true;
}

static bool renewer_add(struct renewer *renewer, const struct dlock_hold *hold, int64_t ttl_ms)
{
    struct request request;
    char ttl[24];
    request.used = 0;
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    hold->lock->ops->send_renew(&request, hold, ttl);
    bool in_full = must_carry(renewer, request.script);
    if (in_full)
        add_one(&renewer->client->scripts_loaded);
    request_append(renewer->redis, &request, in_full);
    int64_t until_ns = atomic_load(&hold->valid_until_ns);
    renewer->latest_ns = renewer->added++ == 0 ? until_ns : max_ns(renewer->latest_ns, until_ns);
    return in_full;
}

/* Has replicas confirm the requests that were added, for as long as one of their holds needs it. A
 * hold that ends before would gain nothing by a shorter WAIT: each is answered when enough replicas
 * have the write. */
static void renewer_confirm(struct renewer *renewer)
{
    struct acks acks;
    int64_t left_ns = renewer->latest_ns - renewer->client->now_ns();
    if (renewer->added == 0 || acks_needed(renewer->redis) == 0)
        return;
    acks_append(&acks, renewer->redis, 0, INT64_MAX, left_ns / NS_PER_MS);
    renewer->unconfirmed = renewer->added;
}

static dlock_status renewer_wait(struct renewer *renewer, int wake_fd, bool late)
{
    renewer_confirm(renewer);
    renewer->added = 0;
    redis_send(renewer->redis);
    dlock_status status = redis_next(renewer->redis, renewer->taken, renewer->unconfirmed + 1,
                                     late ? 0 : INT64_MAX, late ? -1 : wake_fd);
    renewer->taken = 0;
    return status;
}

static const redisReply *next_reply(const struct renewer *renewer)
{
    return redis_reply(renewer->redis, 0, renewer->taken);
}

/* An answer counts when the replicas have been asked about its write. If they will not be heard any
 * more, it shows at least whether the hold was lost. */
static bool has_answer(const struct renewer *renewer)
{
    size_t last = renewer->gave_up ? 0 : renewer->unconfirmed;
    return redis_reply(renewer->redis, 0, renewer->taken + last) != NULL;
}

/* Whether the server has carried out the write, and its WAIT is not over. */
static bool is_confirming(const struct renewer *renewer)
{
    size_t wait = renewer->taken + renewer->unconfirmed;
    return renewer->unconfirmed > 0 && redis_reply(renewer->redis, 0, wait - 1) != NULL &&
           redis_reply(renewer->redis, 0, wait) == NULL;
}

/* The next reply is about to be taken: what the replicas say about its write. */
static void renewer_take_acks(struct renewer *renewer, struct acks *acks)
{
    *acks = (struct acks){.asked = renewer->unconfirmed > 0,
                          .index = renewer->taken + renewer->unconfirmed};
    acks_take(acks, renewer->redis);
    if (acks->asked && --renewer->unconfirmed == 0)
        renewer->taken++; /* WAIT's own reply */
}

static dlock_status renewer_give_up(struct renewer *renewer)
{
    renewer->known_count = 0;
    renewer->gave_up = true;
    dlock_status status = redis_finish(renewer->redis);
    return status != DLOCK_OK ? status : fail(DLOCK_REFUSED, "WAIT was not answered");
}

static dlock_status renewer_take(struct renewer *renewer, struct dlock_hold *hold, bool in_full,
                                 bool *again, bool *distrusted)
{
    const redisReply *reply = next_reply(renewer);
    struct rung_env env = {.redis = renewer->redis};
    struct acks acks;
    renewer_take_acks(renewer, &acks);
    renewer->taken++;
    if (hold == NULL)
        return DLOCK_OK;
    struct answer answer = answer_of(&env, reply, redis_server(renewer->redis, 0));
    *again = script_is_missing(&answer) && !in_full;
    if (*again)
        renewer->known_count = 0;
    if (answer.status != DLOCK_OK)
        return answer.status;
    dlock_status status = hold->lock->ops->take_renew(hold, &answer);
    if (status != DLOCK_UNKNOWN)
        return acks_judge(&acks, status);
    *distrusted = true;
    return fail(DLOCK_UNKNOWN, NOT_UNDERSTOOD, hold->key);
}

const struct renewer_ops redis_renewer = {
    .make = renewer_make,
    .free = free_all,
    .ready = renewer_ready,
    .is_lent = renewer_is_lent,
    .rest = renewer_rest,
    .may_add = renewer_may_add,
    .distrust = renewer_protocol_error,
    .way = renewer_way,
    .alone = renewer_alone,
    .rounds = renewer_rounds,
    .round_begin = renewer_round_begin,
    .rounds_wait = renewer_rounds_wait,
    .round_over = renewer_round_over,
    .round_end = renewer_round_end,
    .begin = renewer_begin,
    .add = renewer_add,
    .wait = renewer_wait,
    .has_answer = has_answer,
    .is_confirming = is_confirming,
    .give_up = renewer_give_up,
    .take = renewer_take,
};
