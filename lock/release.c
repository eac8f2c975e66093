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
    fail(DLOCK_LOST, "'%s' was not this hold's any more at its release", r->hold->key);
}

static bool is_unsaid(dlock_status status)
{
    return status == DLOCK_UNREACHABLE || status == DLOCK_LIMIT || status == DLOCK_REFUSED ||
           status == DLOCK_NO_MEMORY || status == DLOCK_UNKNOWN;
}

/* Its own time is over, but its key lives on. */
static bool is_outlived(const struct releasing *r)
{
    return r->status == DLOCK_LOST && r->hold->shared_ms != 0 &&
           (r->exchange.sent_ns == 0 || is_unsaid(r->exchange.status));
}

bool release_is_left(const struct releasing *r)
{
    const struct dlock_rung *rung = &r->hold->lock->rung;
    bool may_come = r->exchange.rode && r->exchange.open;
    return (is_unsaid(r->status) || is_outlived(r)) && r->exchange.step == STEP_RELEASE &&
           !may_come && rung->expires && !rung->flawed;
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

static void late_sent(struct releasing *r)
{
    r->then = NULL;
    r->status = fail(DLOCK_LOST, "'%s' was lost before its release", r->hold->key);
    r->hold->lock->holding->released_late(r);
}

void release_late(struct releasing *r, bool may_send)
{
    if (may_send && r->hold->shared_ms != 0 && !r->hold->must_expire)
        release_ask(r, STEP_RELEASE, NULL, late_sent);
    else
        late_sent(r);
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

/* False: it must be called again, a little later. */
static bool release_begin(struct releasing *r, bool waits)
{
    struct dlock_hold *hold = r->hold;
    if (hold->lock->rung.expires) /* no renewal reads what is set from here on */
        timekeeper_forget(&hold->lock->client->timekeeper, hold);
    return hold->lock->holding->begin_release(r, waits);
}

/* The hold is over for its caller. goes_on: not yet for the library. */
static void release_end(struct dlock_hold *hold, bool goes_on, const struct exchange *unresolved)
{
    if (hold->lost_fd >= 0)
        close(hold->lost_fd);
    if (!goes_on || !cleanup_release(hold, unresolved))
        free(hold);
}

/* Nothing is to be sent any more: the hold is gone. */
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

dlock_status dlock_release(dlock_hold *hold, dlock_batch *last)
{
    struct releasing r;
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    dlock_status status = release_prepare(&r, hold, last);
    if (status != DLOCK_OK)
        return status;
    trace_for(hold->user);
    while (!release_begin(&r, true))
        poll(NULL, 0, PUT_OFF_MS);
    while (r.then != NULL) {
        exchange_one(hold->lock->client, &r.exchange);
        r.then(&r);
    }
    release_finish(&r);
    trace_for(NULL);
    return r.status;
}

/* ---- Without a thread ------------------------------------------------------------------------ */

/* Sends what is to be sent, or is over. */
static void release_go_on(struct releasing *r)
{
    struct loop *loop = &r->hold->lock->client->loop;
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

/* wait.run */
static void release_run(struct wait *wait)
{
    struct releasing *r = (struct releasing *)wait;
    struct loop *loop = &wait->lock->client->loop;
    bool asked = r->then != NULL; /* in vain: others kept all who ask, to the end of its time */
    if (asked) {
        r->exchange.open = false;
        r->exchange.status = no_turn(wait->lock, r->began_ns);
        snprintf(r->exchange.why, sizeof r->exchange.why, "%s", dlock_error());
        r->then(r);
    }
    if (asked || release_begin(r, false)) {
        release_go_on(r);
        return;
    }
    pthread_mutex_lock(&loop->mutex);
    wait->ends_ns = r->ends_ns; /* no hook is waited for from here on */
    loop_put_off(loop, wait, PUT_OFF_MS);
    pthread_mutex_unlock(&loop->mutex);
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
        status = fail(DLOCK_UNSUPPORTED,
                      "'%s' counts in the memory of the thread that acquired: it must release",
                      hold->lock->ops->name);
    r->wait = (struct wait){.lock = hold->lock,
                            .run = release_run,
                            .wake_fd = -1,
                            .ends_ns = INT64_MAX, /* to begin may wait for a hook */
                            .exchange = &r->exchange,
                            .answered = release_answered};
    r->completion = (struct completion){.done = done, .arg = arg, .call = r};
    if (status == DLOCK_OK) { /* not in a forked child: a thread of its parent may have it */
        pthread_mutex_lock(&loop->mutex);
        status = loop_start(loop);
        if (status == DLOCK_OK) {
            owner_takes_turn(hold);
            loop_run(loop, &r->wait);
        }
        pthread_mutex_unlock(&loop->mutex);
    }
    if (status != DLOCK_OK)
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
