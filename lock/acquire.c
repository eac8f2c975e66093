/* SPDX-License-Identifier: Apache-2.0
 *
 * The acquire: steps that work on a struct. The caller's thread runs them; or, if the caller does
 * not wait, the client's loop and its workers. This file has no Redis commands: the rungs have
 * them.
 */
#include "acquire.h"

#include "exchange_one.h"
#include "explain.h"
#include "holding.h"
#include "cleanup.h"
#include "owner.h"
#include "structs.h"
#include "trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REFUSED_PAUSE_MS 300 /* the longest pause between a waiter's attempts */
/* A slow server answers within this time. A longer silence counts as an outage. */
#define SILENCE_MS 100

static bool acquire_has(const struct dlock *lock, unsigned trait)
{
    return (lock->ops->traits & trait) != 0;
}

/* ---- Holds ----------------------------------------------------------------------------------- */

static struct dlock_hold *hold_wanted(struct dlock *lock, const struct dlock_want *want)
{
    struct dlock_client *client = lock->client;
    const bool is_quorum = acquire_has(lock, TRAIT_QUORUM);
    struct dlock_hold *hold = hold_new(lock);
    if (hold == NULL)
        return NULL;
    hold->lock_state = lock->state;
    hold->user = want->user;
    hold->mode = want->mode;
    hold->wants_token = want->token && acquire_has(lock, TRAIT_TOKEN) && is_quorum;
    hold->wants_identity = want->identity && acquire_has(lock, TRAIT_TOKEN) && !is_quorum;
    hold->fork_generation = client->fork_generation;
    hold->ttl_ms = want->ttl_ms != 0 ? want->ttl_ms : lock->ttl_ms;
    hold->hold_max_ms = want->hold_max_ms;
    if (hold->hold_max_ms != 0 && hold->hold_max_ms < hold->ttl_ms)
        hold->ttl_ms = hold->hold_max_ms;
    hold->ends_ns = INT64_MAX;
    hold->valid_until_ns = INT64_MAX;
    hold->lost_fd = -1;
    snprintf(hold->ttl, sizeof hold->ttl, "%lld", (long long)hold->ttl_ms);
    owner_name(hold, want->owner_id);
    return hold;
}

void acquire_watch(struct acquiring *a, int64_t sent_ns, int64_t ttl_ms)
{
    if (a->lock->rung.expires)
        timekeeper_watch(&a->lock->client->timekeeper, a->hold, sent_ns, ttl_ms);
    add_one(&a->lock->client->acquired);
}

bool acquire_keep(struct acquiring *a, int64_t begin_ns, int64_t sent_ns, int64_t ttl_ms)
{
    hold_set_end(a->hold, begin_ns);
    pthread_mutex_lock(&a->lock->mutex);
    bool lost_while_nesting = a->hold->lost_while_nesting;
    if (!lost_while_nesting)
        LIST_INSERT_HEAD(holds_of(&a->lock->holds, a->hold), a->hold, of_lock);
    a->lock->trouble[0] = '\0';
    a->lock->last_seen.holder.held = false; /* the holder that was seen then has ended */
    a->lock->answered_ns = mono_ns();
    pthread_mutex_unlock(&a->lock->mutex);
    if (!lost_while_nesting)
        acquire_watch(a, sent_ns, ttl_ms);
    return !lost_while_nesting;
}

/* ---- One try --------------------------------------------------------------------------------- */

static bool has_thread(const struct acquiring *a)
{
    return a->wait.run == NULL;
}

static bool is_able(const struct dlock *lock, unsigned ability)
{
    return (lock->abilities & ability) != 0;
}

/* For a nested acquire that is rejected: its owner no longer has the lock. A nested acquire does
 * not start a new acquisition. */
static dlock_status lost_meanwhile(const struct acquiring *a)
{
    return fail(DLOCK_LOST, "'%s' was lost before its owner acquired it again", a->lock->name);
}

/* When an exchange that begins now must have ended. A cancelled call ends within the bound after
 * the cancel. */
static int64_t bounded_ns(const struct acquiring *a)
{
    int64_t cancelled_ns = max_ns(cancel_requested_ns(a->want.cancel), a->began_ns);
    int64_t from_ns = min_ns(mono_ns(), cancelled_ns);
    return min_ns(a->ends_ns, from_ns + bound_ms(a->lock->client) * NS_PER_MS);
}

/* For a flawed rung, which uses its name again: releases before the next attempt. */
static void release_here(struct acquiring *a)
{
    int64_t ends_ns = bounded_ns(a);
    struct exchange release = {
        .step = STEP_RELEASE, .hold = a->hold, .limit_ns = ends_ns, .ends_ns = ends_ns};
    exchange_one(a->lock->client, &release);
}

/* The lock was granted, and cannot be used: releases it. Except on flawed rungs, the release is not
 * awaited here: other waiters may need this thread for their answers. */
static void give_back(struct acquiring *a)
{
    if (a->lock->rung.flawed)
        release_here(a);
    else
        a->lock->holding->unusable(a);
    owner_begin_anew(a->hold);
}

/* The lock was granted so late that its validity has ended. */
static dlock_status give_back_late(struct acquiring *a)
{
    a->late = true;
    give_back(a);
    return fail(DLOCK_BUSY, "the reply took longer than the time to live");
}

/* Too few replicas confirmed that the lock was granted, or its server has no identity. */
static dlock_status give_back_unconfirmed(struct acquiring *a)
{
    const char *when = a->lock->rung.flawed ? "" : " in the background";
    give_back(a);
    return fail(a->exchange.status, "%s; the lock is released%s", a->exchange.why, when);
}

/* Calls ops->acquired. If it fails, the lock is released. */
static dlock_status begin_hold(struct acquiring *a)
{
    const struct rung_ops *ops = a->lock->ops;
    if (ops->acquired == NULL)
        return DLOCK_OK;
    exchange_set(&a->exchange, ops->acquired(a->hold));
    if (a->exchange.status != DLOCK_OK)
        release_here(a);
    return exchange_says(&a->exchange);
}

/* The rung granted the lock. BUSY if it came too late. */
static dlock_status acquire_granted(struct acquiring *a)
{
    struct dlock_hold *hold = a->hold;
    int64_t sent_ns = a->exchange.sent_ns;
    int64_t counts_ns = a->exchange.counts_ns != 0 ? a->exchange.counts_ns : sent_ns;
    dlock_status status = begin_hold(a);
    if (status != DLOCK_OK)
        return status;
    hold_set_end(hold, sent_ns);
    int64_t ttl_ms =
        a->exchange.counts_ns != 0 ? hold->ttl_ms : renewal_ms(hold, sent_ns); /* as was asked */
    if (a->lock->rung.expires) {
        hold->valid_until_ns = hold_valid_until(hold, counts_ns, hold->ttl_ms);
        if (!dlock_valid(hold))
            return give_back_late(a);
    }
    a->lock->holding->granted(a);
    if (!acquire_keep(a, sent_ns, counts_ns, ttl_ms))
        return lost_meanwhile(a);
    if (a->wait.missed_wakeup)
        add_one(&a->lock->client->missed_wakeups);
    return DLOCK_OK;
}

/* How long to pause before the next attempt. While no connection is made, as long as the engine
 * says. While the server refuses requests, longer each time. */
static int64_t acquire_pause_ms(struct acquiring *a, dlock_status status)
{
    int64_t pause_ms = a->lock->client->engine->pause_ms(a->lock->client);
    if (status != DLOCK_REFUSED || !a->exchange.transient)
        return pause_ms;
    int64_t retry_ms = a->lock->client->options.retry_ms;
    int64_t own_ms = retry_ms << a->refusals;
    if (own_ms < REFUSED_PAUSE_MS)
        a->refusals++;
    else
        own_ms = retry_ms > REFUSED_PAUSE_MS ? retry_ms : REFUSED_PAUSE_MS;
    return own_ms > pause_ms ? own_ms : pause_ms;
}

/* Prepares the exchange of an attempt. False: the call was cancelled, or another request of its
 * owner is under way. A call with a thread has waited for that request until its limit. */
static bool begin_try(struct acquiring *a)
{
    int64_t until_ns = a->wait.deadline_ns == 0 ? a->ends_ns : a->limit_ns;
    if (!owner_begin_try(a->hold, has_thread(a) ? until_ns : 0, a->want.cancel))
        return false;
    add_one(&a->lock->client->attempts);
    a->late = false;
    a->exchange.reads = a->want.reads;
    a->exchange.ends_ns = bounded_ns(a);
    return true;
}

/* Ends an attempt: takes the result of its exchange. */
static dlock_status end_try(struct acquiring *a)
{
    struct dlock_hold *hold = a->hold;
    struct busy *busy = a->exchange.busy;
    dlock_status status = exchange_says(&a->exchange);
    if (status == DLOCK_BUSY && !a->contended)
        add_one(&a->lock->client->contended);
    a->contended |= status == DLOCK_BUSY;
    if (status == DLOCK_BUSY && a->lock->holding->lost_if_busy(a)) {
        timekeeper_lose(&hold->lock->client->timekeeper, hold);
        status = lost_meanwhile(a);
    }
    if (a->exchange.unconfirmed)
        status = give_back_unconfirmed(a);
    if (status == DLOCK_OK)
        status = acquire_granted(a);
    else if (status != DLOCK_BUSY)
        busy->again_ms = max_ns(busy->again_ms, acquire_pause_ms(a, status));
    if (a->exchange.unresolved && hold->depth > 1)
        owner_note_nested(hold);
    if (owner_end(hold))
        cleanup_release_name(hold, 1);
    if (status == DLOCK_OK)
        a->lock->holding->let_in(a);
    if (status == DLOCK_BUSY || status == DLOCK_UNKNOWN) {
        a->tried = true;
        a->lock->holding->listed(a, true);
    }
    return status;
}

static bool worth_another_try(const struct acquiring *a, dlock_status status)
{
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_UNREACHABLE:
    case DLOCK_LIMIT:
        return true;
    case DLOCK_UNKNOWN:
        return is_able(a->lock, ABLE_TO_ASK_AGAIN);
    case DLOCK_REFUSED:
        return a->exchange.transient;
    default:
        return false;
    }
}

/* ---- Without a try --------------------------------------------------------------------------- */

void acquire_read_alone(struct acquiring *a)
{
    if (!loop_listens())
        send_alone(a->hold, NULL, a->want.reads, bounded_ns(a));
}

/* ---- Going on -------------------------------------------------------------------------------- */

/* The attempt failed. Keeps the reason for this call's sentence, and for those of waiters that time
 * out without an attempt. */
static void note_failure(struct acquiring *a)
{
    bool answered = a->status == DLOCK_BUSY;
    a->cause = a->status;
    snprintf(a->why, sizeof a->why, "%s",
             answered && !a->late && !a->exchange.busy->says ? dlock_status_text(a->status)
                                                             : dlock_error());
    pthread_mutex_lock(&a->lock->mutex);
    snprintf(a->lock->trouble, sizeof a->lock->trouble, "%s", answered ? "" : a->why);
    a->lock->trouble_status = a->status;
    a->lock->trouble_ns = mono_ns();
    if (answered)
        a->lock->answered_ns = mono_ns();
    pthread_mutex_unlock(&a->lock->mutex);
}

/* Whether a request without a reply may have locked, and no cleanup will release it. */
static bool is_in_doubt(const struct acquiring *a)
{
    return a->exchange.unresolved && (a->lock->rung.flawed || !a->lock->rung.expires);
}

/* The end of a sentence. */
static const char *what_is_left(const struct acquiring *a)
{
    return a->exchange.unresolved && !is_in_doubt(a)
               ? "; a lock that an unanswered request took is released in the background, or "
                 "expires"
               : "";
}

static long long waited_ms(const struct dlock_want *want)
{
    bool capped =
        want->call_max_ms != 0 && (want->wait_ms < 0 || want->call_max_ms < want->wait_ms);
    return capped ? want->call_max_ms : want->wait_ms;
}

/* Whether this waiter, or the contenders before it, asked for so long that a reachable server would
 * have answered. */
static bool asked_in_vain(const struct acquiring *a)
{
    struct dlock_client *client = a->lock->client;
    pthread_mutex_lock(&client->loop.mutex);
    bool asked = a->wait.state == WAIT_TRYING || a->wait.state == WAIT_LEFT;
    int64_t since_ns = asked ? a->wait.trying_ns : INT64_MAX;
    pthread_mutex_unlock(&client->loop.mutex);
    since_ns = max_ns(since_ns, atomic_load(&client->answered_ns));
    return !was_answered(client, a->began_ns) && mono_ns() - since_ns >= SILENCE_MS * NS_PER_MS;
}

/* The status of a call that timed out before its first attempt. trouble: why the attempts of
 * earlier waiters failed, or "". */
static dlock_status time_out_queued(const struct acquiring *a, dlock_status status,
                                    const char *trouble)
{
    const struct dlock *lock = a->lock;
    long long ms = waited_ms(&a->want);
    if (status == DLOCK_TIMED_OUT && asked_in_vain(a))
        return fail(
            DLOCK_UNREACHABLE,
            "'%s' was not asked for in %lld ms: no server answered this client's earlier calls",
            lock->name, ms);
    const char *kept = a->lock->holding->kept_here(a->lock);
    if (kept != NULL)
        return fail(status, "'%s' was not acquired within %lld ms: %s", lock->name, ms, kept);
    return fail(status, "'%s' was not acquired in time: other calls of this client were first%s%s",
                lock->name, trouble[0] != '\0' ? ", and failed: " : "", trouble);
}

/* The status of a call that timed out. If no attempt of this client got an answer in the meantime,
 * the lock was not busy. Then the status is that of the latest attempt, the call's own or an
 * earlier waiter's. */
static dlock_status time_out(const struct acquiring *a)
{
    struct dlock *lock = a->lock;
    char trouble[sizeof lock->trouble];
    bool tried = a->why[0] != '\0';
    pthread_mutex_lock(&lock->mutex);
    bool answered = lock->answered_ns >= a->began_ns;
    dlock_status cause = tried ? a->cause : lock->trouble_status;
    bool stale = lock->trouble_ns < a->began_ns && was_answered(lock->client, lock->trouble_ns);
    snprintf(trouble, sizeof trouble, "%s", stale ? "" : lock->trouble);
    pthread_mutex_unlock(&lock->mutex);
    bool silent = (cause == DLOCK_UNREACHABLE || (cause == DLOCK_UNKNOWN && !tried)) &&
                  !was_answered(lock->client, a->began_ns);
    bool nobody = !answered && (silent || cause == DLOCK_REFUSED) && (tried || trouble[0] != '\0');
    dlock_status status = is_in_doubt(a)                     ? DLOCK_UNKNOWN
                          : nobody && cause == DLOCK_REFUSED ? DLOCK_REFUSED
                          : nobody                           ? DLOCK_UNREACHABLE
                                                             : DLOCK_TIMED_OUT;
    if (!tried)
        return time_out_queued(a, status, trouble);
    return fail(status, "'%s' was not acquired within %lld ms: %s%s", lock->name,
                waited_ms(&a->want), a->why, what_is_left(a));
}

/* The status of a call that ended without another attempt. `cause` and `why` are of its latest
 * attempt, if it made one. */
static dlock_status acquire_conclude(const struct acquiring *a, enum wait_next next)
{
    const char *name = a->lock->name;
    const char *kept = a->lock->holding->kept_here(a->lock);
    switch (next) {
    case NEXT_BUSY:
        if (a->why[0] != '\0')
            return fail(a->cause, "'%s': %s", name, a->why);
        return fail(DLOCK_BUSY, "'%s': %s", name,
                    kept != NULL ? kept : "other waiters of this client are first");
    case NEXT_TIMED_OUT:
        return time_out(a);
    case NEXT_NO_TIME:
        return no_turn(a->lock, a->began_ns);
    default:
        if (is_in_doubt(a))
            return fail(DLOCK_UNKNOWN, "'%s': cancelled before this was known: %s", name, a->why);
        return fail(DLOCK_CANCELLED, "the wait for '%s' was cancelled%s", name, what_is_left(a));
    }
}

/* An attempt has ended. True: the call has ended as well. False: *next says how to go on. */
static bool acquire_tried(struct acquiring *a, enum wait_next *next)
{
    if (a->status == DLOCK_OK || !worth_another_try(a, a->status))
        return true;
    note_failure(a);
    bool nested = a->hold->depth > 1 && !a->lock->rung.flawed;
    *next = wait_again(&a->wait, a->exchange.busy, nested);
    if (*next == NEXT_TRY)
        *next = wait_look(&a->wait);
    return false;
}

/* A call that has a thread waits for the answer here. */
static bool try_here(struct acquiring *a, enum wait_next *next)
{
    struct busy busy = {0};
    a->exchange.busy = &busy;
    if (begin_try(a)) {
        exchange_one(a->lock->client, &a->exchange);
        a->status = end_try(a);
    } else if (cancel_requested(a->want.cancel)) {
        *next = NEXT_CANCELLED;
        return false;
    } else {
        a->status =
            was_answered(a->lock->client, a->began_ns)
                ? fail(DLOCK_LIMIT, "other requests of its owner came first")
                : fail(DLOCK_UNREACHABLE, "another request of its owner was not answered in time");
    }
    return acquire_tried(a, next);
}

/* Runs the steps until the call ends (true), or has to sleep or to wait for an answer (false).
 * After false, a call without a thread may have been freed. */
static bool acquire_advance(struct acquiring *a, enum wait_next next)
{
    for (bool over = false; !over;) {
        if (next == NEXT_SLEEP)
            return false;
        if (next == NEXT_OVER)
            return true;
        if (next == NEXT_ACQUIRED) {
            over = a->lock->holding->acquired(a, &next);
        } else if (next != NEXT_TRY) {
            a->status = acquire_conclude(a, next);
            over = true;
        } else if (has_thread(a)) {
            over = try_here(a, &next);
        } else {
            struct loop *loop = &a->lock->client->loop;
            pthread_mutex_lock(&loop->mutex);
            loop_ask(loop, &a->wait);
            pthread_mutex_unlock(&loop->mutex);
            return false;
        }
    }
    return true;
}

/* False: no server confirmed it. */
static bool acquire_give_up(struct acquiring *a)
{
    struct exchange exchange = {
        .step = STEP_GIVE_UP, .hold = a->hold, .limit_ns = a->ends_ns, .ends_ns = a->ends_ns};
    exchange_one(a->lock->client, &exchange);
    return exchange.status == DLOCK_OK;
}

/* Whether to ask the server why the lock was not acquired. Not for a waiter that timed out in the
 * queue: its thread must not block. Not after an attempt that reached no server. */
static bool acquire_may_ask(const struct acquiring *a)
{
    struct loop *loop = &a->lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    bool may = a->wait.state != WAIT_LEFT && (has_thread(a) || loop_may_ask(loop));
    pthread_mutex_unlock(&loop->mutex);
    bool found_busy = a->cause == DLOCK_BUSY ||
                      (a->why[0] == '\0' && a->lock->holding->kept_here(a->lock) != NULL);
    return may && (a->status == DLOCK_WRONG_TYPE || (found_busy && !a->late));
}

/* The lock was not acquired; a->status and dlock_error() say why. Takes back what the attempts left
 * on the server. If the call has no thread, or no server answers, that is done in the background.
 */
static void fail_to_acquire(struct acquiring *a)
{
    char why[SENTENCE_MAX];
    snprintf(why, sizeof why, "%s", dlock_error());
    owner_gives_up_turn(a->hold);
    a->hold->started = NULL; /* out of `turns`, no other thread finds it */
    if (a->status == DLOCK_CANCELLED)
        a->ends_ns = bounded_ns(a);
    bool left = is_able(a->lock, ABLE_TO_GIVE_UP) && a->lock->holding->left_something(a);
    bool taken_back = left && has_thread(a) && acquire_give_up(a);
    if (taken_back)
        a->lock->holding->listed(a, false);
    bool asks = acquire_may_ask(a);
    wait_end(&a->wait, false);
    fail(a->status, "%s", why);
    a->status = explain(a->hold, a->status, asks ? a->ends_ns : 0,
                        a->want.cancel != NULL ? a->want.cancel->fd : -1);
    if (a->status == DLOCK_UNKNOWN)
        add_one(&a->lock->client->unknown);
    if (!a->lock->holding->leave(a, left && !taken_back))
        hold_free(a->hold);
    a->hold = NULL;
}

static void acquire_finish(struct acquiring *a)
{
    if (a->status != DLOCK_OK) {
        fail_to_acquire(a);
        return;
    }
    a->hold->started = NULL; /* the hold may be released by a thread; it is out of `turns` */
    wait_end(&a->wait, true);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

/* deadline_ns 0: there is one attempt, now. */
static int64_t acquire_end_ns(const struct dlock_client *client, int64_t deadline_ns)
{
    if (deadline_ns == 0)
        return mono_deadline_ns(bound_ms(client));
    if (deadline_ns == INT64_MAX)
        return INT64_MAX;
    return deadline_ns + bound_ms(client) * NS_PER_MS;
}

/* Checks one of the times in want. */
static dlock_status check_time(const struct dlock *lock, const char *name, int64_t ms,
                               int64_t most_ms)
{
    if (ms == 0)
        return DLOCK_OK;
    if (ms < TTL_MS_LEAST || ms > most_ms)
        return fail(DLOCK_INVALID, "want.%s is %lld; it must be %d to %lld, or 0", name,
                    (long long)ms, TTL_MS_LEAST, (long long)most_ms);
    if (!lock->rung.expires)
        return fail(DLOCK_UNSUPPORTED,
                    "want.%s is %lld, but holds of '%s' have no time to live; "
                    "leave it 0, or use a rung that expires",
                    name, (long long)ms, lock->ops->name);
    return DLOCK_OK;
}

static dlock_status acquire_prepare(struct acquiring *a, dlock *lock, const struct dlock_want *want,
                                    bool started)
{
    *a = (struct acquiring){.lock = lock, .began_ns = mono_ns()};
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    status = struct_take(&a->want, sizeof a->want, want, "want");
    if (status != DLOCK_OK)
        return status;
    if (a->want.cancel != NULL && cancel_is_inherited(a->want.cancel))
        return fail(DLOCK_FORKED,
                    "want.cancel belongs to the parent process; make one in the child");
    if (a->want.mode != DLOCK_EXCLUSIVE && a->want.mode != DLOCK_SHARED)
        return fail(DLOCK_INVALID,
                    "want.mode is %d; it must be DLOCK_EXCLUSIVE (0) or DLOCK_SHARED (1)",
                    (int)a->want.mode);
    if (a->want.modes != NULL)
        return fail(DLOCK_INVALID,
                    "want.modes is set, but only dlock_acquire_many reads it; set want.mode");
    if (a->want.mode == DLOCK_SHARED && !acquire_has(lock, TRAIT_SHARED))
        return fail(DLOCK_UNSUPPORTED,
                    "'%s' has no shared holds; use DLOCK_EXCLUSIVE, or the rung 'read_write'",
                    lock->ops->name);
    if ((status = check_time(lock, "ttl_ms", a->want.ttl_ms, TTL_MS_MOST)) != DLOCK_OK ||
        (status = check_time(lock, "hold_max_ms", a->want.hold_max_ms, HOLD_MS_MOST)) != DLOCK_OK)
        return status;
    if (a->want.call_max_ms < 0 || a->want.call_max_ms > HOLD_MS_MOST)
        return fail(
            DLOCK_INVALID,
            "want.call_max_ms is %lld; it must be 1 to %lld, or 0 for wait_ms and the bound",
            (long long)a->want.call_max_ms, (long long)HOLD_MS_MOST);
    if (a->want.contenders > CONTENDERS_MOST)
        return fail(DLOCK_INVALID,
                    "want.contenders is %zu; it must be 1 to %d, or 0 for the client's",
                    a->want.contenders, CONTENDERS_MOST);
    if (a->want.reads != NULL)
        lock->client->engine->begin_batch(a->want.reads);
    int64_t deadline_ns = a->want.wait_ms == 0 ? 0 : mono_deadline_ns(a->want.wait_ms);
    a->ends_ns = acquire_end_ns(lock->client, deadline_ns);
    if (a->want.call_max_ms != 0)
        a->ends_ns = min_ns(a->ends_ns, mono_deadline_ns(a->want.call_max_ms));
    if (deadline_ns > a->ends_ns)
        deadline_ns = a->ends_ns;
    a->limit_ns = deadline_ns != 0 ? deadline_ns : INT64_MAX;
    a->wait = (struct wait){.lock = lock,
                            .mode = a->want.mode,
                            .cancel = a->want.cancel,
                            .deadline_ns = deadline_ns,
                            .ends_ns = a->ends_ns,
                            .reads = a->want.reads != NULL,
                            .contenders_max = lock->client->options.contenders,
                            .wake_fd = -1};
    if (a->want.contenders != 0 && a->want.contenders < a->wait.contenders_max)
        a->wait.contenders_max = a->want.contenders;
    a->wait.hold = a->hold = hold_wanted(lock, &a->want);
    if (a->hold == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    a->exchange = (struct exchange){.step = STEP_ACQUIRE,
                                    .hold = a->hold,
                                    .limit_ns = a->limit_ns,
                                    .ends_ns = a->ends_ns,
                                    .once = deadline_ns == 0,
                                    .cancel = a->want.cancel};
    a->wait.holds_ms = a->hold->ttl_ms;
    if (a->hold->hold_max_ms != 0)
        a->wait.holds_ms = min_ns(a->wait.holds_ms, a->hold->hold_max_ms);
    if (!started && !lock->rung.flawed && owner_waits_for_itself(a->hold))
        return fail(
            DLOCK_UPGRADE,
            "'%s': this thread holds the read lock and asks for the write lock, so it would wait "
            "for itself; release first, or begin with the write lock",
            lock->name);
    return DLOCK_OK;
}

dlock_status dlock_acquire(dlock *lock, const struct dlock_want *want, dlock_hold **hold)
{
    struct acquiring a;
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    *hold = NULL;
    if (!GIVEN(lock))
        return DLOCK_INVALID;
    dlock_status status = acquire_prepare(&a, lock, want, false);
    if (status != DLOCK_OK) {
        hold_free(a.hold);
        return status;
    }
    trace_for(a.want.user);
    for (enum wait_next next = lock->holding->begin(&a); !acquire_advance(&a, next);
         next = wait_look(&a.wait))
        wait_sleep(&a.wait);
    acquire_finish(&a);
    trace_for(NULL);
    *hold = a.hold;
    return a.status;
}

/* ---- Without a thread ------------------------------------------------------------------------ */

static void acquire_go_on(struct acquiring *a, enum wait_next next)
{
    if (next == NEXT_SLEEP)
        return; /* it may have been freed by now */
    trace_for(a->want.user);
    bool over = acquire_advance(a, next);
    if (over)
        acquire_finish(a);
    trace_for(NULL);
    if (!over)
        return;
    a->completion.status = a->status;
    a->completion.hold = a->hold;
    loop_deliver(&a->lock->client->loop, &a->completion);
}

/* wait.run: goes on, and delivers the completion if the call has ended. */
static void acquire_run(struct wait *wait)
{
    struct acquiring *a = (struct acquiring *)wait;
    enum wait_next next = a->begun;
    a->begun = NEXT_SLEEP;
    if (next == NEXT_SLEEP)
        next = wait_look(wait);
    if (next == NEXT_TRY && a->ends_ns <= mono_ns())
        next = NEXT_NO_TIME;
    acquire_go_on(a, next);
}

/* wait.ask */
static bool acquire_ask(struct wait *wait)
{
    struct acquiring *a = (struct acquiring *)wait;
    struct loop *loop = &a->lock->client->loop;
    if (begin_try(a))
        return true;
    pthread_mutex_lock(&loop->mutex);
    int64_t ends_ns = wait->deadline_ns != 0 ? wait->deadline_ns : wait->ends_ns;
    loop_put_off(loop, wait, owner_put_off_ms(a->hold, ends_ns));
    pthread_mutex_unlock(&loop->mutex);
    return false;
}

/* wait.answered */
static void acquire_answered(struct wait *wait)
{
    struct acquiring *a = (struct acquiring *)wait;
    enum wait_next next = NEXT_OVER;
    a->status = end_try(a);
    acquire_tried(a, &next);
    acquire_go_on(a, next);
}

dlock_status dlock_acquire_start(dlock *lock, const struct dlock_want *want, dlock_done *done,
                                 void *arg)
{
    if (!GIVEN(lock) || !GIVEN(done))
        return DLOCK_INVALID;
    struct loop *loop = &lock->client->loop;
    struct acquiring *a = calloc(1, sizeof *a);
    if (a == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = acquire_prepare(a, lock, want, true);
    if (status == DLOCK_OK && acquire_has(lock, TRAIT_THREAD))
        status =
            fail(DLOCK_UNSUPPORTED,
                 "'%s' counts in the memory of the thread that acquires: that thread must wait",
                 lock->ops->name);
    if (status == DLOCK_OK) {
        a->wait.run = acquire_run;
        a->wait.exchange = &a->exchange;
        a->wait.ask = acquire_ask;
        a->wait.answered = acquire_answered;
        a->wait.running = true; /* until it sleeps: the calling thread runs it */
        a->completion = (struct completion){.done = done, .arg = arg, .call = a};
        a->hold->started = &a->wait;
        pthread_mutex_lock(&loop->mutex);
        /* waiters for this owner's release must not keep the owner from acquiring again */
        a->wait.counted = wait_nests(&a->wait) ? &loop->nested_count : &loop->wait_count;
        status = loop_join(loop, &a->wait);
        pthread_mutex_unlock(&loop->mutex);
    }
    if (status != DLOCK_OK) {
        hold_free(a->hold);
        free(a);
        return status;
    }
    a->begun = NEXT_SLEEP;
    enum wait_next next = lock->holding->begin(a);
    if (next == NEXT_SLEEP)
        return DLOCK_OK; /* it may have ended, and been freed, by now */
    pthread_mutex_lock(&loop->mutex);
    if (next == NEXT_TRY) {
        owner_takes_turn(a->hold);
        loop_ask(loop, &a->wait);
    } else {
        lock->holding->started(a);
        a->begun = next;
        a->wait.running = false;
        loop_run(loop, &a->wait);
    }
    pthread_mutex_unlock(&loop->mutex);
    return DLOCK_OK;
}

int dlock_fd(const dlock_client *client)
{
    return client != NULL && check_fork(client) == DLOCK_OK ? client->completions.fd : -1;
}

size_t dlock_process(dlock_client *client)
{
    if (!GIVEN(client) || check_fork(client) != DLOCK_OK || !client->options.own_loop)
        return 0;
    return completion_deliver_all(&client->completions);
}
