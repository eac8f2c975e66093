/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges with a server, see ../exchange.h. A trip is a write and its answers. A rung whose steps
 * are pairs (send_x, take_x) shares a write with others. A rung with slots of its own goes alone.
 */
#include "cleanup.h"
#include "exchange_one.h"
#include "identity.h"
#include "owner.h"
#include "redis_engine.h"

#include <stdio.h>
#include <string.h>

#define SCRIPTS_MAX 16 /* scripts that one write remembers to have sent in full */

/* A connection, and its state during this trip. */
struct trip {
    struct dlock_client *client;
    struct rung_env env;
    dlock_status ready; /* OK: connected; else the reason why not */
    char why[SENTENCE_MAX];
    bool shared;      /* more than one exchange uses this trip */
    int64_t began_ns; /* CLOCK_MONOTONIC: when connecting started, */
    int64_t ready_ns; /* and when it ended */
    struct ending {
        struct connection_id asked; /* the last connection that the server was asked to end, which
                                       many exchanges may share; id -1: none */
        enum kill_result end;       /* the result */
    } endings[SERVERS_MAX];         /* by server */
    dlock_status gathered;          /* the status of missing replies */
    struct acks acks;               /* of the current write */
    const struct script *carried[SCRIPTS_MAX]; /* sent in full by the current write */
    size_t carried_count;
};

static const struct rung_ops *ops_of(const struct exchange *exchange)
{
    return exchange->hold->lock->ops;
}

static bool is_flawed(const struct exchange *exchange)
{
    return exchange->hold->lock->rung.flawed;
}

/* Whether its step is a pair of a send and a take function. */
static bool round_trip_is_pair(const struct exchange *exchange)
{
    const struct rung_ops *ops = ops_of(exchange);
    return exchange->step == STEP_ACQUIRE   ? ops->send_acquire != NULL
           : exchange->step == STEP_RELEASE ? ops->send_release != NULL
                                            : true;
}

bool redis_shares(const struct exchange *exchange, const struct exchange *other)
{
    const struct dlock_client *client = exchange->hold->lock->client;
    int64_t least_ms = bound_ms(client) - client->options.command_timeout_ms;
    int64_t apart_ns = exchange->ends_ns - other->ends_ns;
    int64_t ends_ns = min_ns(exchange->ends_ns, other->ends_ns); /* the end of a shared trip */
    if (client->options.on_point != NULL || client->options.on_trace != NULL)
        return false;
    return round_trip_is_pair(exchange) && round_trip_is_pair(other) &&
           (ends_ns >= mono_deadline_ns(least_ms) ||
            (apart_ns > 0 ? apart_ns : -apart_ns) < (ends_ns - mono_ns()) / 8);
}

/* The content of exchange->engine_state, which the core copies as bytes. */
struct __attribute__((may_alias)) kept {
    struct connection_id broken[SERVERS_MAX]; /* if exchange->open: the connections that broke, */
    size_t broken_count;                      /* at most one per server */
    enum kill_result end;                     /* whether `broken` could be ended */
    bool unknown_script;                      /* to the server: the request is sent again */
    bool began_open;                          /* it was sent while `open` */
    size_t first;                             /* the index of its first reply */
};
_Static_assert(sizeof(struct kept) <= EXCHANGE_STATE_MAX, "an exchange has room for it");

static struct kept *kept_of(struct exchange *exchange)
{
    return (struct kept *)&exchange->engine_state;
}

/* ---- Uncertain requests: which they are ------------------------------------------------------ */

static bool is_kept(const struct kept *kept, size_t node)
{
    for (size_t i = 0; i < kept->broken_count; i++)
        if (kept->broken[i].node == node)
            return true;
    return false;
}

/* Stores which connections broke. An earlier broken connection at the same server is not replaced:
 * the later request has the same name, and states the same result. */
static void round_trip_keep_broken(struct trip *trip, struct exchange *exchange)
{
    struct kept *kept = kept_of(exchange);
    struct connection_id broken;
    if (!exchange->open || kept->end != KILL_UNANSWERED)
        kept->broken_count = 0;
    for (size_t node = 0;
         trip->env.redis != NULL && redis_broken_connection(trip->env.redis, node, &broken);
         node = broken.node + 1)
        if (!is_kept(kept, broken.node))
            kept->broken[kept->broken_count++] = broken;
    exchange->open = kept->broken_count > 0;
}

static void round_trip_note_broken(struct trip *trip, struct exchange *exchange)
{
    const struct rung_ops *ops = ops_of(exchange);
    if (exchange->status == DLOCK_UNKNOWN) {
        exchange->unresolved = ops->send_acquire != NULL || ops->resolve != NULL;
        round_trip_keep_broken(trip, exchange);
    } else if (exchange_settles(exchange->status)) {
        exchange->unresolved = false;
    }
}

/* ---- Pairs: many exchanges in a write -------------------------------------------------------- */

/* Whether this request must carry the script: no earlier one in this write did. */
static bool round_trip_carries(struct trip *trip, const struct script *script)
{
    for (size_t i = 0; i < trip->carried_count; i++)
        if (trip->carried[i] == script)
            return false;
    if (trip->carried_count < SCRIPTS_MAX)
        trip->carried[trip->carried_count++] = script;
    add_one(&trip->client->scripts_loaded);
    return true;
}

static void append_request(struct trip *trip, struct exchange *exchange)
{
    const struct rung_ops *ops = ops_of(exchange);
    struct request request;
    request.used = 0;
    if (exchange->step == STEP_ACQUIRE)
        ops->send_acquire(&request, exchange->hold);
    else if (exchange->step == STEP_RELEASE)
        ops->send_release(&request, exchange->hold);
    else
        ops->send_give_up(&request, exchange->hold);
    request_append(trip->env.redis, &request,
                   kept_of(exchange)->unknown_script && round_trip_carries(trip, request.script));
}

static bool takes_back(const struct exchange *exchange)
{
    return exchange->step == STEP_RELEASE || exchange->step == STEP_GIVE_UP;
}

/* An acquire's reads are not sent with the release or give-up of its earlier name. */
static struct dlock_batch *reads_of(const struct exchange *exchange)
{
    return takes_back(exchange) ? NULL : exchange->reads;
}

/* Appends the exchange's commands. `at`: the index of its first reply. Returns the next one's. */
static size_t round_trip_append(struct trip *trip, struct exchange *exchange, size_t at)
{
    kept_of(exchange)->first = at;
    if (exchange->step == STEP_RELEASE && !kept_of(exchange)->unknown_script)
        point(&trip->env, "before_release");
    /* A release that keeps the lock counts its new time from the first request that was sent. */
    if (exchange->step != STEP_RELEASE || exchange->sent_ns == 0)
        exchange->sent_ns = trip->client->now_ns();
    at += env_ride_append(trip->env.redis, exchange->last);
    if (exchange->step == STEP_ACQUIRE)
        at += identity_append(trip->env.redis, exchange->hold);
    if (exchange->step != STEP_ALONE) {
        append_request(trip, exchange);
        at++;
    }
    return at + env_ride_append(trip->env.redis, reads_of(exchange));
}

static dlock_status round_trip_take(const struct exchange *exchange, const struct answer *answer)
{
    const struct rung_ops *ops = ops_of(exchange);
    if (answer->status != DLOCK_OK || exchange->step == STEP_GIVE_UP)
        return answer->status;
    return exchange->step == STEP_ACQUIRE
               ? ops->take_acquire(exchange->hold, answer, exchange->busy)
               : ops->take_release(exchange->hold, answer);
}

/* Whether replicas must confirm what the exchange does. A release may keep the lock for waiters of
 * the client, with a new time to live: it acquires. */
static bool must_be_confirmed(const struct exchange *exchange)
{
    const struct handoff_hold *handoff = exchange->hold->handoff;
    return exchange->step == STEP_ACQUIRE ||
           (exchange->step == STEP_RELEASE && handoff != NULL && handoff->more);
}

/* How long the hold is valid at most, from now on. */
static int64_t validity_ms(const struct dlock_hold *hold)
{
    return hold->lock->rung.expires ? hold->ttl_ms : ACKS_ALWAYS;
}

/* How long what must be confirmed is valid at most; 0: nothing must. */
static int64_t longest_validity_ms(struct exchange *const *all, size_t count)
{
    int64_t longest_ms = 0;
    for (size_t i = 0; i < count; i++)
        if (must_be_confirmed(all[i]) && validity_ms(all[i]->hold) > longest_ms)
            longest_ms = validity_ms(all[i]->hold);
    return longest_ms;
}

/* The server has answered OK, and `acks` says whether the replicas have that. An acquire that they
 * do not have is no uncertain one: it was carried out. */
static void round_trip_confirm(struct exchange *exchange, const struct acks *acks)
{
    const struct handoff_hold *handoff = exchange->hold->handoff;
    if (exchange->status != DLOCK_OK || acks_judge(acks, DLOCK_OK) == DLOCK_OK)
        return;
    if (exchange->step == STEP_RELEASE) {
        exchange->unconfirmed = handoff->kept;
        return;
    }
    exchange->unconfirmed = true;
    exchange->unresolved = false;
    exchange->transient = acks->transient;
    exchange_set(exchange, DLOCK_REFUSED);
}

/* The grant's identity is that of the master that gave it. If a release at another one keeps the
 * lock, no waiter may use that, and it is released for good. */
static void judge_master(const struct trip *trip, struct exchange *exchange)
{
    struct handoff_hold *handoff = exchange->hold->handoff;
    const uint64_t master = redis_generation(trip->env.redis, 0);
    if (handoff == NULL || exchange->status != DLOCK_OK)
        return;
    if (exchange->step == STEP_ACQUIRE)
        handoff->master = master;
    else if (exchange->step == STEP_RELEASE && handoff->kept && handoff->master != master)
        exchange->unconfirmed = true;
}

static void round_trip_take_answer(struct trip *trip, struct exchange *exchange,
                                   const redisReply *reply)
{
    trip->env.transient = false;
    struct answer answer = answer_of(&trip->env, reply, redis_server(trip->env.redis, 0));
    kept_of(exchange)->unknown_script = script_is_missing(&answer);
    exchange->transient = trip->env.transient;
    dlock_status status = round_trip_take(exchange, &answer);
    if (status == DLOCK_UNKNOWN) { /* later replies are not trusted either */
        status = not_understood(&trip->env, exchange->hold);
        trip->gathered = DLOCK_UNKNOWN;
        snprintf(trip->why, sizeof trip->why, "%s", dlock_error());
    }
    exchange_set(exchange, status);
    if (must_be_confirmed(exchange))
        round_trip_confirm(exchange, &trip->acks);
    judge_master(trip, exchange);
    if (exchange->step == STEP_ACQUIRE && exchange->status == DLOCK_OK)
        point(&trip->env, "acquired");
}

/* The lock was granted, but who gave it cannot be known: as if it were not confirmed. */
static void round_trip_refuse_identity(const struct trip *trip, struct exchange *exchange)
{
    exchange->unconfirmed = true;
    exchange_set(exchange, identity_wrong_type(redis_server(trip->env.redis, 0)));
}

/* `last` is sent only once. The reads are sent again with a request that is sent again. */
static void take_replies(struct trip *trip, struct exchange *exchange)
{
    struct redis *redis = trip->env.redis;
    size_t at = kept_of(exchange)->first;
    env_ride_take(redis, exchange->last, at);
    if (exchange->last != NULL) {
        at += exchange->last->count;
        exchange->rode = true;
        exchange->last = NULL;
    }
    const bool identified = !(exchange->step == STEP_ACQUIRE && exchange->hold->wants_identity) ||
                            identity_take(redis, exchange->hold, redis_reply(redis, 0, at++));
    const redisReply *reply = exchange->step != STEP_ALONE ? redis_reply(redis, 0, at++) : NULL;
    env_ride_take(redis, reads_of(exchange), at);
    if (reply != NULL)
        round_trip_take_answer(trip, exchange, reply);
    else
        exchange_set(exchange,
                     trip->gathered != DLOCK_OK ? fail(trip->gathered, "%s", trip->why) : DLOCK_OK);
    if (!identified && exchange->status == DLOCK_OK)
        round_trip_refuse_identity(trip, exchange);
}

static void send_pairs(struct trip *trip, struct exchange *const *all, size_t count)
{
    size_t at = 0;
    trip->carried_count = 0;
    if (trip->env.deadline_ns <= mono_ns()) {
        for (size_t i = 0; i < count; i++)
            exchange_set(all[i], fail(DLOCK_UNREACHABLE, "no time is left to ask %s",
                                      redis_server(trip->env.redis, 0)));
        return;
    }
    redis_begin(trip->env.redis);
    for (size_t i = 0; i < count; i++)
        at = round_trip_append(trip, all[i], at);
    trip->acks = (struct acks){0};
    int64_t valid_ms = longest_validity_ms(all, count);
    if (valid_ms > 0)
        acks_append(&trip->acks, trip->env.redis, at, trip->env.deadline_ns, valid_ms);
    trip->gathered = redis_gather(trip->env.redis, trip->env.deadline_ns, -1);
    if (trip->gathered != DLOCK_OK)
        snprintf(trip->why, sizeof trip->why, "%s", dlock_error());
    acks_take(&trip->acks, trip->env.redis);
    for (size_t i = 0; i < count; i++) {
        take_replies(trip, all[i]);
        round_trip_note_broken(trip, all[i]); /* before the next write, which forgets it */
    }
}

/* Sends scripts by their SHA1, and then in full those that the server does not know. By then the
 * riding commands of the first write are answered, so they no longer count as `rode`. If an earlier
 * exchange's riding commands were not answered, `rode` stays set. A riding reply that is too large
 * has broken the connection, so another one is made. */
static void run_pairs(struct trip *trip, struct exchange *const *all, size_t count)
{
    struct exchange *again[EXCHANGES_MAX];
    bool rides[EXCHANGES_MAX];
    size_t again_count = 0;
    for (size_t i = 0; i < count; i++) {
        kept_of(all[i])->unknown_script = false;
        rides[i] = all[i]->last != NULL;
    }
    send_pairs(trip, all, count);
    for (size_t i = 0; i < count; i++)
        if (kept_of(all[i])->unknown_script) {
            all[i]->rode = all[i]->rode && !rides[i];
            rides[again_count] = rides[i];
            again[again_count++] = all[i];
        }
    if (again_count > 0) {
        redis_ready(trip->env.redis, trip->env.deadline_ns, -1);
        send_pairs(trip, again, again_count);
    }
    for (size_t i = 0; i < again_count; i++)
        if (rides[i] && again[i]->status == DLOCK_UNREACHABLE)
            exchange_set(again[i], something_was_sent(again[i]->why));
}

/* ---- Slots: one exchange alone --------------------------------------------------------------- */

/* An earlier attempt has acquired the lock. WAIT is about the writes of its own connection, and so
 * far this connection has only read. BUSY: the lock has expired since. */
static dlock_status write_again(struct rung_env *env, struct dlock_hold *hold)
{
    env->confirms_ms = validity_ms(hold);
    dlock_status status = rung_renew(env, hold, hold->ttl_ms);
    return status == DLOCK_LOST ? DLOCK_BUSY : status;
}

static dlock_status acquire_alone(struct trip *trip, struct exchange *exchange)
{
    const struct rung_ops *ops = ops_of(exchange);
    struct rung_env *env = &trip->env;
    if (exchange->unresolved && ops->resolve != NULL) {
        dlock_status status = ops->resolve(env, exchange->hold);
        if (status == DLOCK_OK && acks_needed(env->redis) > 0)
            status = write_again(env, exchange->hold);
        if (status != DLOCK_BUSY)
            return status;
    }
    env->reads = exchange->reads;
    dlock_status asked = identity_ask(env, exchange->hold);
    if (asked != DLOCK_OK)
        return asked;
    env->confirms_ms = env->redis != NULL ? validity_ms(exchange->hold) : 0;
    /* A take-back of an earlier attempt may still be on its way to one of several servers. It must
     * not meet what this attempt sets there. */
    if ((ops->traits & TRAIT_QUORUM) != 0)
        owner_begin_anew(exchange->hold);
    exchange->sent_ns = env->now_ns();
    return ops->try_acquire(env, exchange->hold, exchange->busy);
}

static void run_alone(struct trip *trip, struct exchange *exchange)
{
    struct rung_env *env = &trip->env;
    env->transient = false;
    env->confirms_ms = 0;
    env->acks = (struct acks){0};
    env->last = exchange->last;
    env->reads = reads_of(exchange);
    env->rode = exchange->last != NULL;
    exchange->last = NULL;
    if (exchange->sent_ns == 0)
        exchange->sent_ns = env->now_ns();
    exchange_set(exchange, exchange->step == STEP_RELEASE
                               ? ops_of(exchange)->release(env, exchange->hold)
                               : acquire_alone(trip, exchange));
    exchange->rode |= env->rode;
    exchange->transient = env->transient;
    if (must_be_confirmed(exchange))
        round_trip_confirm(exchange, &env->acks);
    if (exchange->step == STEP_ACQUIRE)
        exchange->hold->acquired_on = env->redis;
    round_trip_note_broken(trip, exchange);
}

/* ---- Uncertain requests: ending them --------------------------------------------------------- */

static void number_try(struct dlock_client *client, struct dlock_hold *hold)
{
    if (hold->handoff != NULL)
        hold->handoff->try = atomic_fetch_add(&client->tries, 1) + 1;
}

static void round_trip_run(struct trip *trip, struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (all[i]->step == STEP_ACQUIRE)
            number_try(trip->client, all[i]->hold);
    if (count > 0 && round_trip_is_pair(all[0]))
        run_pairs(trip, all, count);
    else
        for (size_t i = 0; i < count; i++)
            run_alone(trip, all[i]);
}

static enum kill_result kill_broken(struct trip *trip, const struct connection_id *broken)
{
    struct ending *ending = &trip->endings[broken->node];
    bool same = ending->asked.id == broken->id && ending->asked.process == broken->process;
    if (!same || ending->end == KILL_UNANSWERED) {
        ending->asked = *broken;
        ending->end = redis_kill_broken(trip->env.redis, broken, trip->env.deadline_ns, -1);
    }
    return ending->end;
}

/* Makes each server whose reply was lost end the broken connection. Those that were not ended are
 * kept. UNANSWERED: at least one may be tried again. */
static enum kill_result kill_broken_of(struct trip *trip, struct exchange *exchange)
{
    struct kept *kept = kept_of(exchange);
    enum kill_result all = KILL_DONE;
    size_t left = 0;
    for (size_t i = 0; i < kept->broken_count; i++) {
        struct connection_id broken = kept->broken[i];
        enum kill_result end = kill_broken(trip, &broken);
        if (end == KILL_DONE)
            continue;
        kept->broken[left++] = broken;
        if (all != KILL_UNANSWERED)
            all = end;
    }
    kept->broken_count = left;
    return all;
}

/* Gives each acquire a new name: from here on it is another acquisition. What the old name has by
 * now is removed: its hold, or its mark as a waiter. What a request that is still on its way
 * acquires is left to expire. If its connection may still be ended, that goes on in the
 * background. */
static void begin_anew(struct trip *trip, struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i]->step = ops_of(all[i])->send_give_up != NULL ? STEP_GIVE_UP : STEP_RELEASE;
    round_trip_run(trip, all, count);
    for (size_t i = 0; i < count; i++) {
        all[i]->step = STEP_ACQUIRE;
        if (kept_of(all[i])->end == KILL_UNANSWERED)
            cleanup_take_back_name(all[i]);
        all[i]->open = all[i]->unresolved = false;
        owner_begin_anew(all[i]->hold);
        exchange_set(
            all[i],
            fail(DLOCK_UNKNOWN,
                 "'%s': a request was not answered, and may still arrive at any time; the next "
                 "one has another name",
                 all[i]->hold->key));
    }
}

/* With several servers most are enough, so one that does not answer delays no request. */
static bool has_spare_servers(const struct exchange *exchange)
{
    return redis_of(exchange->hold->lock->client)->config.server_count > 1;
}

static bool begins_anew(const struct exchange *exchange)
{
    return exchange->step == STEP_ACQUIRE && !is_flawed(exchange) &&
           exchange->hold->handoff == NULL && exchange->hold->depth == 1;
}

static bool is_any_open(struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (all[i]->open)
            return true;
    return false;
}

/* Makes the servers end the connections on which uncertain requests were sent. */
static void kill_broken_of_all(struct trip *trip, struct exchange *const *all, size_t count)
{
    struct exchange *anew[EXCHANGES_MAX];
    size_t anew_count = 0;
    if (!is_any_open(all, count))
        return;
    anew[0] = NULL;
    for (size_t i = 0; i < count; i++) {
        struct exchange *exchange = all[i];
        if (!exchange->open)
            continue;
        enum kill_result end = kill_broken_of(trip, exchange);
        kept_of(exchange)->end = end;
        bool acquires = exchange->step == STEP_ACQUIRE;
        bool begins = end != KILL_DONE && begins_anew(exchange) &&
                      (end == KILL_IMPOSSIBLE || has_spare_servers(exchange));
        exchange->open = begins || !(end == KILL_DONE || (end == KILL_IMPOSSIBLE && acquires));
        if (begins)
            anew[anew_count++] = exchange;
    }
    begin_anew(trip, anew, anew_count);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* Whether to ask again, which shows what the request did: by its script, which states a result and
 * may be carried out twice, or by the rung's resolve. A release is not sent again while its riding
 * commands may still be carried out: they could then meet the next holder. */
static bool may_be_repeated(const struct exchange *exchange)
{
    if (exchange->step == STEP_ACQUIRE)
        return exchange->unresolved && !exchange->open && !cancel_requested(exchange->cancel);
    return exchange->step == STEP_RELEASE && !(exchange->open && exchange->rode);
}

/* Whether its reply was lost, and the trip finds out what the request did. */
static bool is_followed_up(const struct exchange *exchange)
{
    return exchange->status == DLOCK_UNKNOWN && exchange->step != STEP_GIVE_UP &&
           !(exchange->step == STEP_RELEASE && is_flawed(exchange));
}

/* Sets the final status of a release whose first reply was lost. */
static void judge_release(struct exchange *exchange)
{
    const struct dlock_hold *hold = exchange->hold;
    dlock_status status = exchange->status;
    bool last_one = hold->depth == 1;
    bool freed = status == DLOCK_OK || (status == DLOCK_LOST && last_one);
    if (exchange->open && exchange->rode)
        status = fail(DLOCK_UNKNOWN,
                      "'%s': the release was not answered, and what was sent with "
                      "it may still be carried out",
                      hold->key);
    else if (exchange->rode && freed)
        status = fail(DLOCK_UNKNOWN, "'%s' is released, but what was sent with it was not answered",
                      hold->key);
    else if (status == DLOCK_LOST && last_one)
        status = dlock_valid(hold)
                     ? DLOCK_OK /* the first request freed it, or an operator did */
                     : fail(DLOCK_UNKNOWN, "'%s' was released, or it expired before", hold->key);
    else if (status != DLOCK_OK && status != DLOCK_LOST)
        status = fail(DLOCK_UNKNOWN, "'%s': the release was not answered (%s)", hold->key,
                      exchange->why);
    else
        return;
    exchange_set(exchange, status);
}

/* Whether one of them is a release whose commands may still be carried out: nothing is released
 * before that is known. */
static bool keeps_any_lock(struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (all[i]->step == STEP_RELEASE && all[i]->open && all[i]->rode)
            return true;
    return false;
}

/* After lost replies: connects again, ends the uncertainty, and repeats the requests that may be
 * repeated. */
static void round_trip_repeat(struct trip *trip, struct exchange *const *all, size_t count)
{
    struct exchange *lost[EXCHANGES_MAX];
    struct exchange *again[EXCHANGES_MAX];
    size_t lost_count = 0, again_count = 0;
    for (size_t i = 0; i < count; i++)
        if (is_followed_up(all[i]))
            lost[lost_count++] = all[i];
    if (lost_count == 0 || trip->env.redis == NULL)
        return;
    if (redis_ready(trip->env.redis, trip->env.deadline_ns, -1) == DLOCK_OK) {
        if (keeps_any_lock(lost, lost_count))
            redis_ready_each(trip->env.redis, trip->env.deadline_ns, -1);
        kill_broken_of_all(trip, lost, lost_count);
        for (size_t i = 0; i < lost_count; i++)
            if (may_be_repeated(lost[i]))
                again[again_count++] = lost[i];
        round_trip_run(trip, again, again_count);
    }
    for (size_t i = 0; i < lost_count; i++)
        if (lost[i]->step == STEP_RELEASE)
            judge_release(lost[i]);
}

/* ---- Without a server ------------------------------------------------------------------------ */

static bool is_serverless(const struct exchange *exchange)
{
    return exchange->step != STEP_ALONE && (ops_of(exchange)->traits & TRAIT_SERVERLESS) != 0;
}

/* The riding commands are sent in a write of their own. If the last ones were not answered, the
 * release says so, though it is carried out: nothing else could end the hold. */
static void run_serverless(struct trip *trip, struct exchange *exchange)
{
    struct dlock_batch *reads = exchange->reads;
    char why[sizeof exchange->why];
    env_init(exchange->hold->lock, exchange->ends_ns, &trip->env);
    dlock_status rode = send_alone(exchange->hold, exchange->last, NULL, exchange->ends_ns);
    snprintf(why, sizeof why, "%s", dlock_error());
    exchange->last = exchange->reads = NULL;
    round_trip_run(trip, &exchange, 1);
    if (exchange->status == DLOCK_OK && rode != DLOCK_OK)
        exchange_set(exchange, fail(rode, "%s", why));
    else if (exchange->status == DLOCK_OK)
        send_alone(exchange->hold, NULL, reads, exchange->ends_ns);
}

/* ---- A trip ---------------------------------------------------------------------------------- */

/* A shared trip ends when the first of its exchanges must end. */
static void round_trip_begin(struct trip *trip, struct exchange *const *all, size_t count)
{
    struct dlock *lock = all[0]->hold->lock;
    const dlock_cancel *cancel = count == 1 ? all[0]->cancel : NULL;
    int64_t limit_ns = count == 1 ? all[0]->limit_ns : INT64_MAX;
    int64_t ends_ns = all[0]->ends_ns;
    for (size_t i = 0; i < count; i++) {
        ends_ns = all[i]->ends_ns < ends_ns ? all[i]->ends_ns : ends_ns;
        all[i]->rode = all[i]->transient = all[i]->unconfirmed = false;
        kept_of(all[i])->end = KILL_UNANSWERED;
        kept_of(all[i])->began_open = false;
        if (all[i]->busy != NULL)
            *all[i]->busy = (struct busy){0};
    }
    trip->shared = count > 1;
    trip->began_ns = mono_ns();
    const struct redis *wanted = count == 1 ? all[0]->hold->acquired_on : NULL;
    trip->ready =
        env_begin(lock, limit_ns, ends_ns, cancel != NULL ? cancel->fd : -1, wanted, &trip->env);
    trip->ready_ns = mono_ns();
    if (all[0]->unseen)
        trip->env.on_point = NULL;
    if (trip->ready != DLOCK_OK)
        snprintf(trip->why, sizeof trip->why, "%s", dlock_error());
}

/* A rung with a slot `release` is called even without a connection, because it may keep state in
 * the process. Its commands return UNREACHABLE then. */
static bool may_run(const struct trip *trip, const struct exchange *exchange)
{
    bool keeps = !round_trip_is_pair(exchange) && exchange->step == STEP_RELEASE;
    return trip->ready == DLOCK_OK || (keeps && trip->env.redis != NULL);
}

/* The hold has expired: its riding commands could meet the next holder. */
static bool comes_too_late(const struct exchange *exchange)
{
    return exchange->last != NULL && !is_flawed(exchange) && !dlock_valid(exchange->hold);
}

/* An exchange alone stops connecting at its own limit. A shared trip does not: it is checked
 * here. */
static bool connected_too_late(const struct trip *trip, const struct exchange *exchange)
{
    return trip->shared && exchange->step == STEP_ACQUIRE && exchange->limit_ns > trip->began_ns &&
           exchange->limit_ns <= trip->ready_ns;
}

static void round_trip_stays_open(struct exchange *exchange)
{
    exchange_set(exchange, fail(DLOCK_UNKNOWN,
                                "'%s': an earlier request was not answered, "
                                "and may still be carried out",
                                exchange->hold->key));
}

/* Whether a release or give-up on several servers is sent although it is `open`. The servers that
 * answer release now. All are asked again when the uncertainty is over. */
static bool takes_back_early(struct exchange *exchange)
{
    bool early = takes_back(exchange) && exchange->last == NULL && has_spare_servers(exchange);
    kept_of(exchange)->began_open = early;
    return early;
}

/* Chooses the exchanges that can be sent, and answers the others. Returns how many. */
static size_t round_trip_choose(struct trip *trip, struct exchange *const *all, size_t count,
                                struct exchange *chosen[EXCHANGES_MAX])
{
    size_t chosen_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct exchange *exchange = all[i];
        exchange->transient = trip->ready != DLOCK_OK && trip->env.transient;
        if (!may_run(trip, exchange))
            exchange_set(exchange, fail(trip->ready, "%s", trip->why));
        else if (comes_too_late(exchange))
            exchange_set(exchange,
                         fail(DLOCK_LOST, "'%s' was lost before its release", exchange->hold->key));
        else if (exchange->step == STEP_ACQUIRE && cancel_requested(exchange->cancel))
            exchange_set(exchange, fail(DLOCK_CANCELLED, "the wait for '%s' was cancelled",
                                        exchange->hold->key));
        else if (connected_too_late(trip, exchange))
            exchange_set(exchange, fail(DLOCK_UNREACHABLE, "no time was left to ask %s",
                                        redis_server(trip->env.redis, 0)));
        else if (exchange->open && kept_of(exchange)->end == KILL_UNANSWERED &&
                 !takes_back_early(exchange))
            round_trip_stays_open(exchange);
        else
            chosen[chosen_count++] = exchange;
    }
    return chosen_count;
}

static void run_with_server(struct trip *trip, struct exchange *const *all, size_t count)
{
    struct exchange *chosen[EXCHANGES_MAX];
    chosen[0] = NULL;
    round_trip_begin(trip, all, count);
    if (trip->ready == DLOCK_OK)
        kill_broken_of_all(trip, all, count);
    size_t chosen_count = round_trip_choose(trip, all, count, chosen);
    round_trip_run(trip, chosen, chosen_count);
    round_trip_repeat(trip, chosen, chosen_count);
    for (size_t i = 0; i < chosen_count; i++)
        if (kept_of(chosen[i])->began_open && chosen[i]->open)
            round_trip_stays_open(chosen[i]);
    env_end(all[0]->hold->lock, &trip->env);
}

void redis_exchange(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    struct trip trip;
    trip.client = client;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        trip.endings[i].asked.id = -1;
    if (is_serverless(all[0]))
        run_serverless(&trip, all[0]);
    else
        run_with_server(&trip, all, count);
}
