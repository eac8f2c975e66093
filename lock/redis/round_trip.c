/* SPDX-License-Identifier: Apache-2.0
 *
 * Exchanges with a server, see ../exchange.h: a trip is a write and its answers. Rungs whose steps
 * are pairs are sent together, many in a write; those that send by themselves go alone.
 */
#include "exchange_one.h"
#include "owner.h"
#include "redis_engine.h"

#include <stdio.h>
#include <string.h>

#define SCRIPTS_MAX 16 /* that one write carries in full */

/* The connection, and what is known of it. */
struct trip {
    struct dlock_client *client;
    struct rung_env env;
    dlock_status ready; /* whether it is connected, and if not why */
    char why[SENTENCE_MAX];
    bool shared;      /* by more than one exchange */
    int64_t began_ns; /* CLOCK_MONOTONIC: when that was to be seen to, */
    int64_t ready_ns; /* and when it was */
    struct connection_id
        asked; /* the latest doubt that was to be ended, many exchanges having the same */
    enum kill_result end;                      /* and how that ended */
    dlock_status gathered;                     /* of the replies that are missing */
    const struct script *carried[SCRIPTS_MAX]; /* by the present write, in full */
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

/* Its step is a pair of what is sent and what the answer means. */
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
    int64_t ends_ns = min_ns(exchange->ends_ns, other->ends_ns); /* of both, if they share */
    if (client->options.on_point != NULL || client->options.on_trace != NULL)
        return false;
    return round_trip_is_pair(exchange) && round_trip_is_pair(other) &&
           (ends_ns >= mono_deadline_ns(least_ms) ||
            (apart_ns > 0 ? apart_ns : -apart_ns) < (ends_ns - mono_ns()) / 8);
}

/* exchange->engine_state, which the core copies as bytes. */
struct __attribute__((may_alias)) kept {
    struct connection_id broken; /* exchange->open: which connection broke */
    enum kill_result end;        /* of the doubt that it began with, or met */
    bool unknown_script;         /* to the server: it must be sent once more */
    size_t first;                /* the index of its first reply */
};
_Static_assert(sizeof(struct kept) <= EXCHANGE_STATE_MAX, "an exchange has room for it");

static struct kept *kept_of(struct exchange *exchange)
{
    return (struct kept *)&exchange->engine_state;
}

/* ---- Doubts ---------------------------------------------------------------------------------- */

static void round_trip_note_broken(struct trip *trip, struct exchange *exchange)
{
    const struct rung_ops *ops = ops_of(exchange);
    if (exchange->status == DLOCK_UNKNOWN) {
        exchange->unresolved = ops->send_acquire != NULL || ops->resolve != NULL;
        exchange->open = trip->env.redis != NULL &&
                         redis_broken_connection(trip->env.redis, 0, &kept_of(exchange)->broken);
    } else if (exchange_settles(exchange->status)) {
        exchange->unresolved = false;
    }
}

/* ---- Pairs, there and back ------------------------------------------------------------------- */

/* Whether it is the first in this write that needs the script. */
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

/* What an acquire reads does not ride with what ends its earlier name. */
static struct dlock_batch *reads_of(const struct exchange *exchange)
{
    bool ends = exchange->step == STEP_RELEASE || exchange->step == STEP_GIVE_UP;
    return ends ? NULL : exchange->reads;
}

/* `at`: the index of its first reply. That of the next one's. */
static size_t round_trip_append(struct trip *trip, struct exchange *exchange, size_t at)
{
    kept_of(exchange)->first = at;
    if (exchange->step == STEP_RELEASE && !kept_of(exchange)->unknown_script)
        point(&trip->env, "before_release");
    /* What a release is kept for counts from the first that was sent. */
    if (exchange->step != STEP_RELEASE || exchange->sent_ns == 0)
        exchange->sent_ns = trip->client->now_ns();
    at += env_ride_append(trip->env.redis, exchange->last);
    if (exchange->step != STEP_ALONE) {
        append_request(trip, exchange);
        at++;
    }
    return at + env_ride_append(trip->env.redis, reads_of(exchange));
}

/* What the answer means. */
static dlock_status round_trip_take(const struct exchange *exchange, const struct answer *answer)
{
    const struct rung_ops *ops = ops_of(exchange);
    if (answer->status != DLOCK_OK || exchange->step == STEP_GIVE_UP)
        return answer->status;
    return exchange->step == STEP_ACQUIRE
               ? ops->take_acquire(exchange->hold, answer, exchange->busy)
               : ops->take_release(exchange->hold, answer);
}

static void round_trip_take_answer(struct trip *trip, struct exchange *exchange,
                                   const redisReply *reply)
{
    trip->env.transient = false;
    struct answer answer = answer_of(&trip->env, reply, redis_server(trip->env.redis, 0));
    kept_of(exchange)->unknown_script = script_is_missing(&answer);
    exchange->transient = trip->env.transient;
    dlock_status status = round_trip_take(exchange, &answer);
    if (status == DLOCK_UNKNOWN) { /* the replies behind it are not to be believed either */
        status = not_understood(&trip->env, exchange->hold);
        trip->gathered = DLOCK_UNKNOWN;
        snprintf(trip->why, sizeof trip->why, "%s", dlock_error());
    }
    exchange_set(exchange, status);
    if (exchange->step == STEP_ACQUIRE && exchange->status == DLOCK_OK)
        point(&trip->env, "acquired");
}

/* `last` is sent once, the reads once more with what is sent again. */
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
    const redisReply *reply = exchange->step != STEP_ALONE ? redis_reply(redis, 0, at++) : NULL;
    env_ride_take(redis, reads_of(exchange), at);
    if (reply != NULL)
        round_trip_take_answer(trip, exchange, reply);
    else
        exchange_set(exchange,
                     trip->gathered != DLOCK_OK ? fail(trip->gathered, "%s", trip->why) : DLOCK_OK);
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
    trip->gathered = redis_gather(trip->env.redis, trip->env.deadline_ns, -1);
    if (trip->gathered != DLOCK_OK)
        snprintf(trip->why, sizeof trip->why, "%s", dlock_error());
    for (size_t i = 0; i < count; i++) {
        take_replies(trip, all[i]);
        round_trip_note_broken(trip, all[i]); /* before anything else is sent */
    }
}

/* By their SHA1, and those that the server does not know in full. What rode in the first write is
 * answered by then; what rode earlier, and was not, stays as it is. */
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
    if (again_count > 0)
        send_pairs(trip, again, again_count);
    for (size_t i = 0; i < again_count; i++)
        if (rides[i] && again[i]->status == DLOCK_UNREACHABLE)
            exchange_set(again[i], something_was_sent(again[i]->why));
}

/* ---- Alone ----------------------------------------------------------------------------------- */

static dlock_status acquire_alone(struct trip *trip, struct exchange *exchange)
{
    const struct rung_ops *ops = ops_of(exchange);
    struct rung_env *env = &trip->env;
    if (exchange->unresolved && ops->resolve != NULL) {
        dlock_status status = ops->resolve(env, exchange->hold);
        if (status != DLOCK_BUSY)
            return status;
    }
    env->reads = exchange->reads;
    exchange->sent_ns = env->now_ns();
    return ops->try_acquire(env, exchange->hold, exchange->busy);
}

static void run_alone(struct trip *trip, struct exchange *exchange)
{
    struct rung_env *env = &trip->env;
    env->transient = false;
    env->last = exchange->last;
    env->reads = reads_of(exchange);
    exchange->rode |= exchange->last != NULL;
    exchange->last = NULL;
    if (exchange->sent_ns == 0)
        exchange->sent_ns = env->now_ns();
    exchange_set(exchange, exchange->step == STEP_RELEASE
                               ? ops_of(exchange)->release(env, exchange->hold)
                               : acquire_alone(trip, exchange));
    exchange->transient = env->transient;
    round_trip_note_broken(trip, exchange);
}

/* ---- Doubts ---------------------------------------------------------------------------------- */

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

static enum kill_result kill_broken_of(struct trip *trip, struct exchange *exchange)
{
    const struct connection_id *broken = &kept_of(exchange)->broken;
    bool same = trip->asked.node == broken->node && trip->asked.id == broken->id &&
                strcmp(trip->asked.run_id, broken->run_id) == 0;
    if (!same || trip->end == KILL_UNANSWERED) {
        trip->asked = *broken;
        trip->end = redis_kill_broken(trip->env.redis, broken, trip->env.deadline_ns, -1);
    }
    return trip->end;
}

/* From here on it is another acquisition, with another name. What the old one has by now is taken
 * back: its hold, or its place as a waiter. What is on its way under it is left to expire. */
static void begin_anew(struct trip *trip, struct exchange *const *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        all[i]->step = ops_of(all[i])->send_give_up != NULL ? STEP_GIVE_UP : STEP_RELEASE;
    round_trip_run(trip, all, count);
    for (size_t i = 0; i < count; i++) {
        all[i]->step = STEP_ACQUIRE;
        all[i]->open = all[i]->unresolved = false;
        owner_begin_anew(all[i]->hold);
        exchange_set(all[i], fail(DLOCK_UNKNOWN,
                                  "'%s': a request was not answered, and may come "
                                  "for ever; the next has another name",
                                  all[i]->hold->key));
    }
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

/* Has the server end the connections of the requests that may still come. */
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
        kept_of(exchange)->end = kill_broken_of(trip, exchange);
        bool for_ever = kept_of(exchange)->end == KILL_IMPOSSIBLE;
        exchange->open =
            !(kept_of(exchange)->end == KILL_DONE || (for_ever && exchange->step == STEP_ACQUIRE));
        if (for_ever && begins_anew(exchange))
            anew[anew_count++] = exchange;
    }
    begin_anew(trip, anew, anew_count);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* Asking once more tells what became of the request: by its own script, which says what shall be,
 * or by the rung's resolve. Not of a release while commands that rode ahead of it may still come:
 * the next holder must not overtake them. */
static bool may_be_repeated(const struct exchange *exchange)
{
    if (exchange->step == STEP_ACQUIRE)
        return exchange->unresolved && !exchange->open && !cancel_requested(exchange->cancel);
    return exchange->step == STEP_RELEASE && !(exchange->open && exchange->rode);
}

/* Its reply was lost, and somebody asks what became of it. */
static bool is_followed_up(const struct exchange *exchange)
{
    return exchange->status == DLOCK_UNKNOWN && exchange->step != STEP_GIVE_UP &&
           !(exchange->step == STEP_RELEASE && is_flawed(exchange));
}

/* What a release says whose first reply was lost. */
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
                     ? DLOCK_OK /* nobody else can have freed it */
                     : fail(DLOCK_UNKNOWN, "'%s' was released, or it expired before", hold->key);
    else if (status != DLOCK_OK && status != DLOCK_LOST)
        status = fail(DLOCK_UNKNOWN, "'%s': the release was not answered", hold->key);
    else
        return;
    exchange_set(exchange, status);
}

/* Replies were lost just now: connects anew, and sends once more what may be. */
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

/* What rides is sent by itself. */
static void run_serverless(struct trip *trip, struct exchange *exchange)
{
    struct dlock_batch *reads = exchange->reads;
    bool open;
    env_init(exchange->hold->lock, exchange->ends_ns, &trip->env);
    send_alone(exchange->hold, exchange->last, NULL, exchange->ends_ns, &open);
    exchange->last = exchange->reads = NULL;
    round_trip_run(trip, &exchange, 1);
    if (exchange->status == DLOCK_OK)
        send_alone(exchange->hold, NULL, reads, exchange->ends_ns, &open);
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* All that share end together, before the first of them must. */
static void round_trip_begin(struct trip *trip, struct exchange *const *all, size_t count)
{
    struct dlock *lock = all[0]->hold->lock;
    const dlock_cancel *cancel = count == 1 ? all[0]->cancel : NULL;
    int64_t limit_ns = count == 1 ? all[0]->limit_ns : INT64_MAX;
    int64_t ends_ns = all[0]->ends_ns;
    for (size_t i = 0; i < count; i++) {
        ends_ns = all[i]->ends_ns < ends_ns ? all[i]->ends_ns : ends_ns;
        all[i]->rode = all[i]->transient = false;
        kept_of(all[i])->end = KILL_UNANSWERED;
        if (all[i]->busy != NULL)
            *all[i]->busy = (struct busy){0};
    }
    trip->shared = count > 1;
    trip->began_ns = mono_ns();
    trip->ready = env_begin(lock, limit_ns, ends_ns, cancel != NULL ? cancel->fd : -1, &trip->env);
    trip->ready_ns = mono_ns();
    if (all[0]->unseen)
        trip->env.on_point = NULL;
    if (trip->ready != DLOCK_OK)
        snprintf(trip->why, sizeof trip->why, "%s", dlock_error());
}

/* Rungs that send by themselves release also where no server is there, for what they keep in the
 * process: their calls answer UNREACHABLE then. */
static bool may_run(const struct trip *trip, const struct exchange *exchange)
{
    bool keeps = !round_trip_is_pair(exchange) && exchange->step == STEP_RELEASE;
    return trip->ready == DLOCK_OK || (keeps && trip->env.redis != NULL);
}

/* What was to be sent inside the hold would meet the next holder. */
static bool comes_too_late(const struct exchange *exchange)
{
    return exchange->last != NULL && !is_flawed(exchange) && !dlock_valid(exchange->hold);
}

/* Alone it would have ended the connecting; those that share do not. */
static bool connected_too_late(const struct trip *trip, const struct exchange *exchange)
{
    return trip->shared && exchange->step == STEP_ACQUIRE && exchange->limit_ns > trip->began_ns &&
           exchange->limit_ns <= trip->ready_ns;
}

/* Those that can be sent; how many. */
static size_t round_trip_choose(struct trip *trip, struct exchange *const *all, size_t count,
                                struct exchange *chosen[EXCHANGES_MAX])
{
    size_t chosen_count = 0;
    for (size_t i = 0; i < count; i++) {
        struct exchange *exchange = all[i];
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
        else if (exchange->open && kept_of(exchange)->end == KILL_UNANSWERED)
            exchange_set(exchange, fail(DLOCK_UNKNOWN,
                                        "'%s': an earlier request was not answered, "
                                        "and may still be carried out",
                                        exchange->hold->key));
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
    env_end(all[0]->hold->lock, &trip->env);
}

void redis_exchange(struct dlock_client *client, struct exchange *const *all, size_t count)
{
    struct trip trip;
    trip.client = client;
    trip.asked.node = SIZE_MAX; /* none */
    if (is_serverless(all[0]))
        run_serverless(&trip, all[0]);
    else
        run_with_server(&trip, all, count);
}
