/* SPDX-License-Identifier: Apache-2.0
 *
 * How a hold ends: released or abandoned.
 */
#include "release.h"

#include "exchange_one.h"
#include "explain.h"
#include "holding.h"
#include "cleanup.h"
#include "owner.h"
#include "trace.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Release --------------------------------------------------------------------------------- */

void release_ask(struct releasing *r, unsigned step, struct dlock_batch *last,
                 void (*then)(struct releasing *r))
{
    r->exchange = (struct exchange){
        .step = step, .hold = r->hold, .last = last, .limit_ns = r->ends_ns, .ends_ns = r->ends_ns};
    r->then = then;
}

void release_ask_alone(struct releasing *r, void (*then)(struct releasing *r))
{
    release_ask(r, STEP_ALONE, r->last, then);
    if (r->last == NULL)
        then(r);
}

void release_take(struct releasing *r)
{
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    if (r->status != DLOCK_LOST || r->exchange.sent_ns == 0)
        return;
    timekeeper_lose(&r->hold->lock->client->timekeeper, r->hold);
    fail(DLOCK_LOST, "'%s' no longer belonged to this hold at its release", r->hold->key);
}

/* Whether the lock may not have been released. UNSUPPORTED: because of the batch. */
static bool is_inconclusive(dlock_status status)
{
    return status == DLOCK_UNREACHABLE || status == DLOCK_LIMIT || status == DLOCK_REFUSED ||
           status == DLOCK_NO_MEMORY || status == DLOCK_UNSUPPORTED || status == DLOCK_UNKNOWN;
}

/* Whether the key may still exist when the hold's validity has ended: another hold gave it a longer
 * time, or some of several servers have kept it. */
static bool key_outlives(const struct dlock_hold *hold)
{
    return hold->shared_ms != 0 || hold->lock->rung.quorum;
}

/* Whether the hold's validity has ended, but its key may still exist. */
static bool may_outlive_hold(const struct releasing *r)
{
    return r->status == DLOCK_LOST && key_outlives(r->hold) &&
           (r->exchange.sent_ns == 0 || is_inconclusive(r->exchange.status));
}

bool release_is_left(const struct releasing *r)
{
    const struct dlock_rung *rung = &r->hold->lock->rung;
    bool batch_may_run = r->exchange.rode && r->exchange.open;
    return (is_inconclusive(r->status) || may_outlive_hold(r)) &&
           r->exchange.step == STEP_RELEASE && !batch_may_run && rung->expires && !rung->flawed;
}

void release_left_to_expire(struct releasing *r)
{
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    if (r->status != DLOCK_OK)
        return;
    r->status = fail(DLOCK_UNKNOWN,
                     "'%s' is left to expire: an earlier command of this owner was "
                     "not answered, and may still be carried out",
                     r->hold->key);
}

static void release_late_done(struct releasing *r)
{
    r->then = NULL;
    r->status = fail(DLOCK_LOST, "'%s' was lost before its release", r->hold->key);
    r->hold->lock->holding->released_late(r);
}

void release_late(struct releasing *r, bool may_send)
{
    if (may_send && key_outlives(r->hold) && !r->hold->must_expire)
        release_ask(r, STEP_RELEASE, NULL, release_late_done);
    else
        release_late_done(r);
}

/* ---- The call -------------------------------------------------------------------------------- */

static dlock_status release_prepare(struct releasing *r, struct dlock_hold *hold,
                                    struct dlock_batch *last)
{
    struct dlock_client *client = hold->lock->client;
    *r = (struct releasing){.hold = hold, .began_ns = mono_ns()};
    r->ends_ns = mono_deadline_ns(bound_ms(client));
    dlock_status status = check_fork(client);
    if (status != DLOCK_OK || last == NULL)
        return status;
    r->last = client->engine->begin_batch(last) ? last : NULL;
    return status;
}

/* False: another request of the owner is under way; call it again a little later. */
static bool release_begin(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    if (hold->lock->rung.expires) /* no renewal reads what is set from here on */
        timekeeper_forget(&hold->lock->client->timekeeper, hold);
    return hold->lock->holding->begin_release(r, true);
}

/* The hold has ended for its caller. goes_on: the library still releases it. */
static void release_end(struct dlock_hold *hold, bool goes_on, const struct exchange *unresolved)
{
    if (hold->lost_fd >= 0)
        close(hold->lost_fd);
    if (!goes_on || !cleanup_release(hold, unresolved))
        hold_free(hold);
}

/* Nothing more is to be sent: ends the release, and frees the hold or gives it to a cleanup. */
static void release_finish(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    bool goes_on = lock->holding->end_release(r);
    if (r->status == DLOCK_WRONG_TYPE)
        r->status = explain(hold, r->status, r->wait.run == NULL ? r->ends_ns : 0, -1);
    wait_released(lock);
    if (r->status == DLOCK_OK)
        add_one(&lock->client->released);
    else if (r->status == DLOCK_UNKNOWN)
        add_one(&lock->client->unknown);
    release_end(hold, goes_on, &r->exchange);
}

dlock_status release_by(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns)
{
    struct releasing r;
    dlock_status status = release_prepare(&r, hold, last);
    if (status != DLOCK_OK)
        return status;
    r.ends_ns = ends_ns;
    trace_for(hold->user);
    while (!release_begin(&r))
        poll(NULL, 0, PUT_OFF_MS);
    while (r.then != NULL) {
        exchange_one(hold->lock->client, &r.exchange);
        r.then(&r);
    }
    release_finish(&r);
    trace_for(NULL);
    return r.status;
}

dlock_status dlock_release(dlock_hold *hold, dlock_batch *last)
{
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    return release_by(hold, last, mono_deadline_ns(bound_ms(hold->lock->client)));
}

/* ---- Without a thread ------------------------------------------------------------------------ */

static bool is_serverless(const struct releasing *r)
{
    return (r->hold->lock->ops->traits & TRAIT_SERVERLESS) != 0;
}

/* Sends the next exchange; or, if there is none, ends and delivers the completion. Without a server
 * only `last` is sent; the rest needs no thread that asks. */
static void release_go_on(struct releasing *r)
{
    struct loop *loop = &r->hold->lock->client->loop;
    while (r->then != NULL && r->exchange.last == NULL && is_serverless(r)) {
        exchange_one(loop->client, &r->exchange);
        r->then(r);
    }
    if (r->then != NULL) {
        pthread_mutex_lock(&loop->mutex);
        r->wait.ends_ns = r->ends_ns;
        loop_ask(loop, &r->wait);
        pthread_mutex_unlock(&loop->mutex);
        return;
    }
    release_finish(r);
    r->completion.status = r->status;
    loop_deliver(loop, &r->completion);
}

/* Begins the release. If a hook is running for the hold, or another request of its owner is under
 * way, the loop calls it again a little later: it waits for neither. */
static void release_begin_async(struct releasing *r)
{
    struct dlock_client *client = r->hold->lock->client;
    const bool in_hook =
        r->hold->lock->rung.expires && !timekeeper_try_to_forget(&client->timekeeper, r->hold);
    if (!in_hook && r->hold->lock->holding->begin_release(r, false)) {
        release_go_on(r);
        return;
    }
    pthread_mutex_lock(&client->loop.mutex);
    loop_put_off(&client->loop, &r->wait,
                 in_hook ? PUT_OFF_MS : owner_put_off_ms(r->hold, r->ends_ns));
    pthread_mutex_unlock(&client->loop.mutex);
}

/* wait.run */
static void release_run(struct wait *wait)
{
    struct releasing *r = (struct releasing *)wait;
    if (r->then == NULL) {
        release_begin_async(r);
        return;
    }
    /* The exchange was queued but never sent: other calls kept all sending threads busy until its
     * time was over. Nothing else could end a hold without a server, so it ends without `last`. */
    if (is_serverless(r)) {
        r->exchange.last = NULL;
        exchange_one(wait->lock->client, &r->exchange);
    }
    r->exchange.open = false;
    r->exchange.status = no_turn(wait->lock, r->began_ns);
    snprintf(r->exchange.why, sizeof r->exchange.why, "%s", dlock_error());
    r->then(r);
    release_go_on(r);
}

/* Begins on the calling thread. The call itself has not failed, so dlock_error() stays. */
static void release_begin_on_caller(struct releasing *r)
{
    char sentence[SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", dlock_error());
    release_begin_async(r); /* it may have freed r */
    fail(DLOCK_OK, "%s", sentence);
}

/* wait.answered */
static void release_answered(struct wait *wait)
{
    struct releasing *r = (struct releasing *)wait;
    r->then(r);
    release_go_on(r);
}

dlock_status dlock_release_start(dlock_hold *hold, dlock_batch *last, dlock_done *done, void *arg)
{
    if (!GIVEN(hold) || !GIVEN(done))
        return DLOCK_INVALID;
    struct loop *loop = &hold->lock->client->loop;
    struct releasing *r = malloc(sizeof *r);
    if (r == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = release_prepare(r, hold, last);
    if (status == DLOCK_OK && (hold->lock->ops->traits & TRAIT_THREAD) != 0)
        status =
            fail(DLOCK_UNSUPPORTED,
                 "'%s' counts in the memory of the thread that acquired: that thread must release",
                 hold->lock->ops->name);
    r->wait = (struct wait){.lock = hold->lock,
                            .run = release_run,
                            .wake_fd = -1,
                            .running = true,    /* the calling thread runs it */
                            .only_looks = true, /* until it has begun, `run` waits for nothing */
                            .exchange = &r->exchange,
                            .answered = release_answered};
    r->completion = (struct completion){.done = done, .arg = arg, .call = r};
    if (status == DLOCK_OK) { /* not in a forked child: a thread of the parent may hold the mutex */
        pthread_mutex_lock(&loop->mutex);
        status = loop_start(loop);
        if (status == DLOCK_OK) {
            hold->started = &r->wait;
            owner_takes_turn(hold);
        }
        pthread_mutex_unlock(&loop->mutex);
    }
    if (status == DLOCK_OK)
        release_begin_on_caller(r);
    else
        free(r);
    return status;
}

/* ---- Abandoning ------------------------------------------------------------------------------ */

dlock_status dlock_abandon(dlock_hold *hold)
{
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    struct dlock *lock = hold->lock;
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    if (!lock->rung.expires || lock->rung.flawed)
        return fail(DLOCK_UNSUPPORTED, "a hold of '%s' can't be left to expire: release it",
                    lock->ops->name);
    timekeeper_forget(&lock->client->timekeeper, hold);
    bool goes_on = false;
    if (!lock->holding->abandon(hold, &goes_on))
        status = fail(DLOCK_LOST, "'%s' was lost before it was abandoned", hold->key);
    add_one(&lock->client->abandoned);
    release_end(hold, goes_on, NULL);
    return status;
}
