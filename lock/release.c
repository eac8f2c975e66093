/* SPDX-License-Identifier: Apache-2.0
 *
 * How a hold ends: released, passed on inside the client, or abandoned.
 */
#include "acquire.h"

#include "exchange_one.h"
#include "leftover.h"
#include "owner.h"
#include "trace.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Release --------------------------------------------------------------------------------- */

/* A release under way: steps, so that a thread may drive it or the loop. */
struct releasing {
    struct wait wait; /* the first member: whoever has the wait has this */
    struct exchange exchange;
    /* What comes of the exchange that is to be made; NULL: it is over, with the status. */
    void (*then)(struct releasing *r);
    struct dlock_hold *hold;
    struct dlock_batch *last;
    int64_t began_ns; /* CLOCK_MONOTONIC */
    int64_t ends_ns;
    dlock_status status;
    struct acquiring *next; /* whom the lock is passed on to */
    uint64_t tenure;        /* that is let go of */
    uint64_t seen;          /* line.wakes before that */
    struct completion completion;
};

static void ask(struct releasing *r, unsigned step, struct dlock_batch *last,
                void (*then)(struct releasing *r))
{
    r->exchange = (struct exchange){.step = step,
                                    .hold = r->hold,
                                    .last = last,
                                    .limit_ns = r->ends_ns,
                                    .ends_ns = r->ends_ns};
    r->then = then;
}

/* What rides, alone, where there is some; else goes on at once. */
static void ask_alone(struct releasing *r, void (*then)(struct releasing *r))
{
    ask(r, STEP_ALONE, r->last, then);
    if (r->last == NULL)
        then(r);
}

/* The server's answer to the release. */
static void take(struct releasing *r)
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

/* No server has said that it let go of the hold, and nothing of the caller's can come behind that:
 * it is let go of in the background. */
static bool is_left(const struct releasing *r)
{
    const struct dlock_rung *rung = &r->hold->lock->rung;
    bool may_come = r->exchange.rode && r->exchange.open;
    return (is_unsaid(r->status) || is_outlived(r)) && r->exchange.step == STEP_RELEASE &&
           !may_come && rung->expires && !rung->flawed;
}

static void unlist(struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_REMOVE(hold, of_lock);
    pthread_mutex_unlock(&hold->lock->mutex);
}

/* What an earlier hold of its owner's sent may still be carried out. Were the lock free by then, it
 * would meet the next holder. What rode says itself that it was not carried out. */
static void left_to_expire(struct releasing *r)
{
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    if (r->status != DLOCK_OK)
        return;
    r->status = fail(DLOCK_UNKNOWN, "'%s' is left to expire: an earlier command of this owner was "
                                    "not answered, and may still be carried out",
                     r->hold->key);
}

static void late_sent(struct releasing *r)
{
    r->then = NULL;
    r->status = fail(DLOCK_LOST, "'%s' was lost before its release", r->hold->key);
    if (hands_off(r->hold->lock) && is_left(r))
        leftover_leave(r->hold->lock, &r->exchange, r->hold->tenure_try);
}

/* Its validity is over. Its key lives on where it was given another hold's time: it is released all
 * the same. No later hold has this name or this token, so the request meets nobody else's. */
static void release_late(struct releasing *r, bool may_send)
{
    if (may_send && r->hold->shared_ms != 0 && !r->hold->tainted)
        ask(r, STEP_RELEASE, NULL, late_sent);
    else
        late_sent(r);
}

static void counted(struct releasing *r)
{
    take(r);
    if (r->exchange.open && r->exchange.rode)
        owner_taint(r->hold);
}

/* A flawed rung sends what it sends: that is its lesson. */
static void release_counted(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    bool flawed = hold->lock->rung.flawed;
    r->exchange.step = STEP_RELEASE; /* sent or not */
    if (!flawed && !dlock_valid(hold))
        release_late(r, true);
    else if (!flawed && hold->tainted && hold->depth == 1)
        ask_alone(r, left_to_expire);
    else
        ask(r, STEP_RELEASE, r->last, counted);
}

/* Others of its owner asked first, until no time was left. */
static void release_in_vain(struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    r->exchange.step = STEP_RELEASE; /* in the background */
    if (!lock->rung.flawed && !dlock_valid(r->hold))
        late_sent(r);
    else
        r->status = no_turn(lock, r->began_ns);
}

/* ---- Passing on ------------------------------------------------------------------------------ */

/* The mutex is held. The next of this client, if the turn of another client has not come yet.
 * Whoever is chosen waits until what the holder has to send is answered: not who must be answered
 * sooner. */
static struct wait *choose_next(const struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    const struct dlock_options *options = &lock->client->options;
    const struct tenure *tenure = &lock->tenure;
    int64_t most_ms = tenure->ttl_ms / 20 < options->handoff_ms ? tenure->ttl_ms / 20
                                                                : options->handoff_ms;
    if (tenure->passed + 1 >= options->handoff_max || tenure->numbers + 1 >= TENURE_NUMBERS ||
        mono_ns() - tenure->started_ns >= most_ms * NS_PER_MS)
        return NULL;
    const struct acquiring *next = (const struct acquiring *)wait_first(lock);
    return next == NULL || (r->last != NULL && next->ends_ns < r->ends_ns) ? NULL
                                                                           : wait_choose(lock);
}

/* What the holder had left to send was sent, with what the next wants to read behind it. */
static void passed_on(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    bool open = r->exchange.open;
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool ours = !open && lock->tenure.token == hold->tenure && dlock_valid(hold);
    if (ours && r->last != NULL && r->status == DLOCK_OK)
        r->next->wait.reads = false; /* they rode with its last commands */
    if (ours) {
        lock->tenure.passed++;
        lock->tenure.numbers++;
        lock->tenure.holds = 1;
        add_one(&lock->client->passed_on);
    } else if (open) {
        lock->line.closed_until_ns = forgotten_ns(&lock->tenure);
    } else if (lock->tenure.token == hold->tenure) {
        leftover_note(lock);
    }
    wait_give(&r->next->wait, ours);
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

static void pass_on(struct releasing *r, struct acquiring *next)
{
    r->next = next;
    ask(r, STEP_ALONE, r->last, passed_on);
    r->exchange.reads = next->want.reads;
    if (r->last == NULL)
        passed_on(r);
}

static void let_go_of(struct releasing *r);

/* It is kept for the next of this client, or gone. */
static void let_go(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    struct loop *loop = &lock->client->loop;
    dlock_status before = r->status;
    bool kept = hold->kept; /* an earlier request that still comes finds its token old */
    take(r);
    dlock_status status = r->status;
    r->status = before == DLOCK_OK ? status : before;
    pthread_mutex_lock(&loop->mutex);
    uint64_t try = is_left(r) ? lock->tenure.try : 0;
    struct wait *next = kept ? wait_choose(lock) : NULL;
    if (kept) {
        lock->tenure = (struct tenure){.started_ns = mono_ns(),
                                       .sent_ns = r->exchange.sent_ns,
                                       .ttl_ms = hold->ttl_ms,
                                       .longest_ms = hold->ttl_ms,
                                       .token = hold->token,
                                       .try = lock->tenure.try,
                                       .holds = next != NULL};
        pthread_mutex_lock(&lock->mutex);
        hold->tenure = hold->token;
        pthread_mutex_unlock(&lock->mutex);
    }
    if (next != NULL) {
        wait_give(next, true);
    } else if (!kept && lock->tenure.token == r->tenure) {
        if (r->exchange.open && r->exchange.rode)
            lock->line.closed_until_ns = forgotten_ns(&lock->tenure);
        lock->tenure = (struct tenure){.queued = hold->more};
        wait_open(lock, status == DLOCK_OK && hold->more, r->seen);
    }
    pthread_mutex_unlock(&loop->mutex);
    r->last = NULL;
    if (kept && next == NULL)
        let_go_of(r); /* all have left meanwhile: once more, and now for good */
    else
        leftover_leave(lock, &r->exchange, try);
}

/* To the next client, or to nobody; or kept for those of this client that have come meanwhile. */
static void let_go_of(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    pthread_mutex_lock(&lock->client->loop.mutex);
    hold->more = wait_first(lock) != NULL;
    hold->newest = lock->tenure.token + lock->tenure.numbers;
    r->seen = lock->line.wakes;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    hold->kept = false;
    r->tenure = hold->tenure;
    ask(r, STEP_RELEASE, r->last, let_go);
}

/* The loop's mutex is held. The hold counts in its tenure no more. False: it did not before. */
static bool count_out(struct dlock_hold *hold)
{
    struct tenure *tenure = &hold->lock->tenure;
    if (tenure->token != hold->tenure || hold->out)
        return false;
    hold->out = true;
    hold->tenure_try = tenure->try;
    hold->was_end = --tenure->holds == 0 && tenure->sending == 0 && !tenure->open;
    return true;
}

/* The loop's mutex is held. Who waits in this client contends anew; not before the server has
 * forgotten the tenure, if commands of a holder may still come. */
static void end_tenure(struct dlock *lock)
{
    if (lock->tenure.open || lock->tenure.sending > 0)
        lock->line.closed_until_ns = forgotten_ns(&lock->tenure);
    lock->tenure = (struct tenure){0};
    wait_open(lock, false, 0);
}

void hold_lost(struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    if (!hands_off(lock))
        return;
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (count_out(hold) && lock->tenure.holds == 0)
        end_tenure(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

static void kept_away(struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    left_to_expire(r);
    pthread_mutex_lock(&lock->client->loop.mutex);
    end_tenure(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* Its owner has the lock still. The tenure counts it as one that sends. */
static void nested_sent(struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (lock->tenure.token == r->hold->tenure) {
        lock->tenure.sending--;
        lock->tenure.open |= r->exchange.open;
    }
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* The loop's mutex is held. What a nested release of its owner's sends must not meet the next
 * holder. */
static bool is_too_early(const struct releasing *r)
{
    const struct tenure *tenure = &r->hold->lock->tenure;
    bool last = tenure->token == r->hold->tenure && tenure->holds == 1 && !r->hold->out;
    return last && tenure->sending > 0 && mono_ns() < r->ends_ns;
}

/* False: not yet. */
static bool hand_on(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    struct loop *loop = &lock->client->loop;
    struct wait *next = NULL;
    pthread_mutex_lock(&loop->mutex);
    pthread_mutex_lock(&lock->mutex);
    hold->leaving = true;
    pthread_mutex_unlock(&lock->mutex);
    if (is_too_early(r)) {
        pthread_mutex_unlock(&loop->mutex);
        return false;
    }
    bool counts = count_out(hold);
    bool valid = counts && dlock_valid(hold);
    bool nested = counts && lock->tenure.holds > 0;
    bool open = lock->tenure.open || lock->tenure.sending > 0;
    if (counts && !valid && !nested)
        end_tenure(lock);
    else if (valid && nested)
        lock->tenure.sending++;
    else if (valid && !open)
        next = choose_next(r);
    bool was_end = hold->was_end;
    hold->more = false;
    pthread_mutex_unlock(&loop->mutex);
    if (!valid) {
        release_late(r, was_end);
    } else if (nested) {
        ask_alone(r, nested_sent);
    } else if (open) {
        ask_alone(r, kept_away);
    } else if (next == NULL) {
        let_go_of(r);
    } else {
        pass_on(r, (struct acquiring *)next);
    }
    return true;
}

/* ---- The call -------------------------------------------------------------------------------- */

static dlock_status prepare(struct releasing *r, struct dlock_hold *hold, struct dlock_batch *last)
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

/* waits: for the answer of another request of its owner; in vain, too, since it says how many holds
 * shall be left. False: it must be called again, a little later. */
static bool begin(struct releasing *r, bool waits)
{
    struct dlock_hold *hold = r->hold;
    if (hold->lock->rung.expires) /* no renewal reads what is set from here on */
        timekeeper_forget(&hold->lock->client->timekeeper, hold);
    if (hands_off(hold->lock))
        return hand_on(r);
    /* Who nests at this moment still lives by the name of a hold that is over. */
    bool alone = owner_begin_release(hold, waits ? r->ends_ns : 0);
    if (!alone && !waits && mono_ns() < r->ends_ns)
        return false;
    if (alone) {
        release_counted(r);
    } else {
        owner_begin_anyway(hold);
        release_in_vain(r);
    }
    return true;
}

/* The hold is over for its caller. goes_on: not yet for the library. */
static void end(struct dlock_hold *hold, bool goes_on, const struct exchange *doubted)
{
    if (hold->lost_fd >= 0)
        close(hold->lost_fd);
    if (!goes_on || !leftover_release(hold, doubted))
        free(hold);
}

/* Nothing is to be sent any more: the hold is gone. */
static void finish(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    bool goes_on = false;
    if (hands_off(lock))
        unlist(hold);
    else
        goes_on = owner_end_release(hold, is_left(r));
    if (r->status == DLOCK_WRONG_TYPE)
        r->status = explain(hold, r->status, r->wait.run == NULL ? r->ends_ns : 0, -1);
    wait_released(lock);
    if (r->status == DLOCK_OK)
        add_one(&lock->client->released);
    else if (r->status == DLOCK_UNKNOWN)
        add_one(&lock->client->unknown);
    end(hold, goes_on, &r->exchange);
}

dlock_status dlock_release(dlock_hold *hold, dlock_batch *last)
{
    struct releasing r;
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    dlock_status status = prepare(&r, hold, last);
    if (status != DLOCK_OK)
        return status;
    trace_for(hold->user);
    while (!begin(&r, true))
        poll(NULL, 0, PUT_OFF_MS);
    while (r.then != NULL) {
        exchange_one(hold->lock->client, &r.exchange);
        r.then(&r);
    }
    finish(&r);
    trace_for(NULL);
    return r.status;
}

/* ---- Without a thread ------------------------------------------------------------------------ */

/* Sends what is to be sent, or is over. */
static void go_on(struct releasing *r)
{
    struct loop *loop = &r->hold->lock->client->loop;
    if (r->then != NULL) {
        pthread_mutex_lock(&loop->mutex);
        r->wait.ends_ns = r->ends_ns;
        loop_ask(loop, &r->wait);
        pthread_mutex_unlock(&loop->mutex);
        return;
    }
    finish(r);
    r->completion.status = r->status;
    loop_tell(loop, &r->completion);
}

/* wait.run */
static void run(struct wait *wait)
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
    if (asked || begin(r, false)) {
        go_on(r);
        return;
    }
    pthread_mutex_lock(&loop->mutex);
    wait->ends_ns = r->ends_ns; /* no hook is waited for from here on */
    loop_put_off(loop, wait, PUT_OFF_MS);
    pthread_mutex_unlock(&loop->mutex);
}

/* wait.answered */
static void answered(struct wait *wait)
{
    struct releasing *r = (struct releasing *)wait;
    r->then(r);
    go_on(r);
}

dlock_status dlock_release_start(dlock_hold *hold, dlock_batch *last, dlock_done *done, void *arg)
{
    if (!GIVEN(hold) || !GIVEN(done))
        return DLOCK_INVALID;
    struct loop *loop = &hold->lock->client->loop;
    struct releasing *r = malloc(sizeof *r);
    if (r == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = prepare(r, hold, last);
    if (status == DLOCK_OK && (hold->lock->ops->traits & TRAIT_THREAD) != 0)
        status = fail(DLOCK_UNSUPPORTED,
                      "'%s' counts in the memory of the thread that acquired: it must release",
                      hold->lock->ops->name);
    r->wait = (struct wait){.lock = hold->lock, .run = run, .wake_fd = -1,
                            .ends_ns = INT64_MAX, /* to begin may wait for a hook */
                            .exchange = &r->exchange, .answered = answered};
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

/* As when the last commands of a holder got no answer: nobody in this client has the lock any more,
 * nor asks for it before the server has forgotten it; at once, where it was lost with the tenure.
 * True: the hold itself was valid. */
static bool abandon_tenure(struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool valid = dlock_valid(hold);
    bool ours = lock->tenure.token == hold->tenure;
    bool counted = count_out(hold);
    /* A waiter of another owner may have it by now, with the same token. */
    lock->tenure.open |= ours && (valid || owner_holds(hold));
    if (counted && lock->tenure.holds == 0)
        end_tenure(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return valid;
}

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
    bool valid = hands_off(lock) ? abandon_tenure(hold) : owner_abandon(hold);
    if (!valid)
        status = fail(DLOCK_LOST, "'%s' was lost before it was abandoned", hold->key);
    if (hands_off(lock)) {
        unlist(hold);
    } else {
        owner_begin_anyway(hold);
        goes_on = owner_end_release(hold, false); /* as the heir of one that it nested with */
    }
    add_one(&lock->client->abandoned);
    end(hold, goes_on, NULL);
    return status;
}
