/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-off, see holding.h. The client has the lock from one grant of the server to the next. The
 * grant's holds follow one another, or nest, each with its own token. The server sees only the
 * grant's first acquire and its last release. After Dice, Marathe and Shavit, "Lock Cohorting",
 * 2012. There, a lock is handed off between near threads, a limited number of times.
 */
#include "handoff.h"

#include "acquire.h"
#include "holding.h"
#include "cleanup.h"
#include "owner.h"
#include "release.h"

#include <stdio.h>
#include <string.h>

static pthread_mutex_t *mutex_of(const struct dlock *lock)
{
    return &lock->client->loop.mutex;
}

/* The loop's mutex is held. Whether the hold belongs to the current grant, and the grant has holds.
 */
static bool is_had_by(const struct dlock_hold *hold)
{
    const struct grant *grant = grant_of(hold->lock);
    return grant->token == hold->handoff->grant && grant->holds > 0;
}

static bool handoff_nests(const struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    const struct dlock_hold *outer = owner_outermost(hold);
    bool found = outer != NULL && is_had_by(outer);
    pthread_mutex_unlock(&hold->lock->mutex);
    return found;
}

static bool handoff_shares_key(const struct dlock_hold *hold, const struct dlock_hold *other)
{
    return owner_is_same(hold, other) && hold->handoff->grant == other->handoff->grant;
}

/* ---- Nesting --------------------------------------------------------------------------------- */

/* The loop's mutex is held. Makes it one more hold of the grant, with the grant's newest token. */
static void join_grant(struct acquiring *a)
{
    struct grant *grant = grant_of(a->lock);
    a->hold->handoff->grant = grant->token;
    a->hold->handoff->joined = true;
    a->hold->token = grant->token + grant->tokens;
    a->hold->identity = a->hold->wants_identity ? grant->identity : (struct identity){""};
    a->hold->handoff->master = grant->master;
    a->hold->shared_ms = grant->longest_ms;
    if (grant->longest_ms < a->hold->ttl_ms)
        grant->longest_ms = a->hold->ttl_ms;
}

/* The loop's mutex is held. A nested acquire needs no request: the client has the lock, and its
 * owner has it in this client. From here on the grant counts it. BUSY: the owner no longer has the
 * lock. LIMIT: no token is left. */
static dlock_status handoff_join(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct dlock_hold *hold = a->hold;
    struct grant *grant = grant_of(lock);
    int64_t now_ns = lock->client->now_ns();
    pthread_mutex_lock(&lock->mutex);
    const struct dlock_hold *outer = owner_outermost(hold);
    bool lasts = outer != NULL && is_had_by(outer);
    a->joined = lasts && grant->tokens < GRANT_TOKENS - 1;
    if (a->joined) {
        grant->holds++;
        grant->tokens++;
        join_grant(a);
        owner_nest(hold, outer);
        a->exchange.sent_ns =
            min_ns(now_ns, atomic_load(&outer->valid_until_ns) - validity_end_ns(0, hold->ttl_ms));
        hold->valid_until_ns = validity_end_ns(a->exchange.sent_ns, hold->ttl_ms);
        hold_set_end(hold, now_ns);
        LIST_INSERT_HEAD(holds_of(&lock->holds, hold), hold, of_lock);
    }
    pthread_mutex_unlock(&lock->mutex);
    return a->joined ? DLOCK_OK : lasts ? DLOCK_LIMIT : DLOCK_BUSY;
}

/* Waiters of the same owner nest without waiting for their turn. */
static void handoff_let_in(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct wait *next;
    if (!owner_may_nest(a->hold))
        return;
    pthread_mutex_lock(mutex_of(lock));
    while (grant_of(lock)->tokens < GRANT_TOKENS - 1 &&
           (next = wait_choose_same(a->hold)) != NULL) {
        struct acquiring *other = (struct acquiring *)next;
        other->nested = true;
        handoff_join(other);
        wait_give(next, true);
    }
    pthread_mutex_unlock(mutex_of(lock));
}

/* ---- Acquire --------------------------------------------------------------------------------- */

static enum wait_next handoff_begin(struct acquiring *a)
{
    a->nested = false;
    enum wait_next next = wait_begin(&a->wait);
    if (next != NEXT_TRY || a->wait.state != WAIT_OUTSIDE)
        return next;
    a->nested = true;
    return NEXT_ACQUIRED;
}

/* The grant counts the hold from here on, so a release leaves the lock to it. If it has nothing to
 * read, it needs no thread that asks. */
static void handoff_started(struct acquiring *a)
{
    if (a->nested && handoff_join(a) == DLOCK_OK && !a->wait.reads)
        a->wait.state = WAIT_GIVEN;
}

static void handoff_listed(struct acquiring *a, bool listed)
{
    pthread_mutex_lock(mutex_of(a->lock));
    grant_of(a->lock)->queued = listed;
    pthread_mutex_unlock(mutex_of(a->lock));
}

static bool handoff_lost_if_busy(const struct acquiring *a)
{
    (void)a;
    return false; /* the grant has ended, and it asks for another */
}

static void handoff_granted(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct dlock_hold *hold = a->hold;
    pthread_mutex_lock(mutex_of(lock));
    *grant_of(lock) = (struct grant){.started_ns = mono_ns(),
                                     .sent_ns = a->exchange.sent_ns,
                                     .ttl_ms = hold->ttl_ms,
                                     .longest_ms = hold->ttl_ms,
                                     .token = hold->token,
                                     .identity = hold->identity,
                                     .master = hold->handoff->master,
                                     .try = hold->handoff->try,
                                     .holds = 1};
    hold->handoff->grant = hold->token;
    hold->handoff->joined = false;
    pthread_mutex_unlock(mutex_of(lock));
}

static void handoff_unusable(struct acquiring *a)
{
    cleanup_leave(a->lock, &a->exchange, a->hold->handoff->try);
}

static dlock_status handoff_nest(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    pthread_mutex_lock(mutex_of(lock));
    dlock_status status = a->joined ? DLOCK_OK : handoff_join(a);
    pthread_mutex_unlock(mutex_of(lock));
    if (status == DLOCK_LIMIT)
        return fail(status, "'%s' was acquired %d times since the server granted it", lock->name,
                    GRANT_TOKENS);
    if (status != DLOCK_OK)
        return status;
    acquire_watch(a, a->exchange.sent_ns, a->hold->ttl_ms); /* it is renewed while it reads */
    acquire_read_alone(a);
    return DLOCK_OK;
}

/* The lock was handed to this waiter. Its validity counts from now, and ends with the grant's at
 * the latest. BUSY: the grant's validity has ended, so the waiter asks the server. */
static dlock_status handoff_take_over(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct grant *grant = grant_of(lock);
    int64_t now_ns = lock->client->now_ns();
    pthread_mutex_lock(mutex_of(lock));
    int64_t ttl_ms = min_ns(grant->ttl_ms, a->hold->ttl_ms);
    int64_t sent_ns =
        min_ns(now_ns, validity_end_ns(grant->sent_ns, grant->ttl_ms) - validity_end_ns(0, ttl_ms));
    a->hold->valid_until_ns = validity_end_ns(sent_ns, ttl_ms);
    bool lasts = dlock_valid(a->hold);
    if (lasts) {
        join_grant(a);
    } else {
        cleanup_note(lock);
        *grant = (struct grant){0};
        a->wait.reads = a->want.reads != NULL;
        wait_give(&a->wait, false);
    }
    pthread_mutex_unlock(mutex_of(lock));
    if (!lasts)
        return DLOCK_BUSY;
    acquire_keep(a, now_ns, sent_ns, ttl_ms);
    if (a->wait.reads)
        acquire_read_alone(a);
    handoff_let_in(a);
    return DLOCK_OK;
}

static bool handoff_acquired(struct acquiring *a, enum wait_next *next)
{
    a->status = a->nested ? handoff_nest(a) : handoff_take_over(a);
    if (a->status != DLOCK_BUSY)
        return true;
    *next = a->nested ? handoff_begin(a) : wait_look(&a->wait);
    return false;
}

static const char *handoff_kept_here(struct dlock *lock)
{
    pthread_mutex_lock(mutex_of(lock));
    bool held = grant_of(lock)->holds > 0;
    bool closed = lock->queue.closed_until_ns > mono_ns();
    pthread_mutex_unlock(mutex_of(lock));
    return held     ? "another hold of this client has the lock"
           : closed ? "this client's last hold is left to expire"
                    : NULL;
}

/* Whether to leave the server's queue: no other waiter needs the client's place in it. */
static bool handoff_left_something(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    pthread_mutex_lock(mutex_of(lock));
    bool contends = a->wait.state == WAIT_TRYING || a->wait.state == WAIT_SLEEPING;
    bool left = contends && grant_of(lock)->queued && wait_first(lock) == NULL;
    pthread_mutex_unlock(mutex_of(lock));
    return left;
}

/* The hold is not needed: the cleanup acts for the client. */
static bool handoff_leave(struct acquiring *a, bool listed)
{
    (void)listed;
    cleanup_leave(a->lock, &a->exchange, a->exchange.unresolved ? a->hold->handoff->try : 0);
    return false;
}

/* ---- Handing off ----------------------------------------------------------------------------- */

/* The mutex is held. The client's next waiter; NULL if another client must have its turn. The
 * chosen waiter must wait until the holder's commands are answered. So a waiter that ends before
 * that is not chosen. */
static struct wait *choose_next(const struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    const struct dlock_options *options = &lock->client->options;
    const struct grant *grant = grant_of(lock);
    int64_t most_ms =
        grant->ttl_ms / 20 < options->handoff_ms ? grant->ttl_ms / 20 : options->handoff_ms;
    if (grant->passed + 1 >= options->handoff_max || grant->tokens + 1 >= GRANT_TOKENS ||
        mono_ns() - grant->started_ns >= most_ms * NS_PER_MS)
        return NULL;
    const struct acquiring *next = (const struct acquiring *)wait_first(lock);
    return next == NULL || (r->last != NULL && next->ends_ns < r->ends_ns) ? NULL
                                                                           : wait_choose(lock);
}

/* The holder's last commands were sent, and after them the next holder's reads. */
static void handoff_sent(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    bool open = r->exchange.open;
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    pthread_mutex_lock(mutex_of(lock));
    bool ours = !open && grant_of(lock)->token == hold->handoff->grant && dlock_valid(hold);
    if (ours && r->last != NULL && r->status == DLOCK_OK)
        r->next->wait.reads = false; /* they were sent with the last commands */
    if (ours) {
        grant_of(lock)->passed++;
        grant_of(lock)->tokens++;
        grant_of(lock)->holds = 1;
        add_one(&lock->client->handoffs);
    } else if (open) {
        lock->queue.closed_until_ns = forgotten_ns(grant_of(lock));
    } else if (grant_of(lock)->token == hold->handoff->grant) {
        cleanup_note(lock);
    }
    wait_give(&r->next->wait, ours);
    pthread_mutex_unlock(mutex_of(lock));
}

static void handoff_to_next(struct releasing *r, struct acquiring *next)
{
    r->next = next;
    release_ask(r, STEP_ALONE, r->last, handoff_sent);
    r->exchange.reads = next->want.reads;
    if (r->last == NULL)
        handoff_sent(r);
}

static void let_go_of(struct releasing *r, bool may_keep);

/* The release was answered. The lock is kept for the client's next waiter, or it is free. */
static void handoff_let_go(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    dlock_status before = r->status;
    /* If an earlier request is carried out now, its token is too old. */
    bool kept = hold->handoff->kept;
    bool usable = kept && !r->exchange.unconfirmed;
    release_take(r);
    dlock_status status = r->status;
    r->status = before == DLOCK_OK ? status : before;
    pthread_mutex_lock(mutex_of(lock));
    uint64_t try = release_is_left(r) ? grant_of(lock)->
    try:
        0;
    struct wait *next = usable ? wait_choose(lock) : NULL;
    if (kept) {
        *grant_of(lock) = (struct grant){.started_ns = mono_ns(),
                                         .sent_ns = r->exchange.sent_ns,
                                         .ttl_ms = hold->ttl_ms,
                                         .longest_ms = hold->ttl_ms,
                                         .token = hold->token,
                                         .identity = grant_of(lock)->identity,
                                         .master = grant_of(lock)->master,
                                         .try = grant_of(lock)->try,
                                         .holds = next != NULL};
        pthread_mutex_lock(&lock->mutex);
        hold->handoff->grant = hold->token;
        pthread_mutex_unlock(&lock->mutex);
    }
    if (next != NULL) {
        wait_give(next, true);
    } else if (!kept && grant_of(lock)->token == r->grant) {
        if (r->exchange.open && r->exchange.rode)
            lock->queue.closed_until_ns = forgotten_ns(grant_of(lock));
        *grant_of(lock) = (struct grant){.queued = hold->handoff->more};
        wait_open(lock, status == DLOCK_OK && hold->handoff->more, r->wakes_seen);
    }
    pthread_mutex_unlock(mutex_of(lock));
    r->last = NULL;
    /* All waiters have left in the meantime, or may not use what the replicas do not have. Then it
     * is released for good; the waiters ask again. */
    if (kept && next == NULL)
        let_go_of(r, usable);
    else
        cleanup_leave(lock, &r->exchange, try);
}

/* Releases the lock to the next client, or frees it; or keeps it for waiters of this client that
 * came in the meantime. */
static void let_go_of(struct releasing *r, bool may_keep)
{
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    pthread_mutex_lock(mutex_of(lock));
    hold->handoff->more = may_keep && wait_first(lock) != NULL;
    hold->handoff->newest = grant_of(lock)->token + grant_of(lock)->tokens;
    r->wakes_seen = lock->queue.wakes;
    pthread_mutex_unlock(mutex_of(lock));
    hold->handoff->kept = false;
    r->grant = hold->handoff->grant;
    release_ask(r, STEP_RELEASE, r->last, handoff_let_go);
}

/* The loop's mutex is held. The grant no longer counts the hold. False: it did not count it before.
 */
static bool count_out(struct dlock_hold *hold)
{
    struct grant *grant = grant_of(hold->lock);
    if (grant->token != hold->handoff->grant || hold->handoff->out)
        return false;
    hold->handoff->out = true;
    hold->handoff->got_by = grant->try;
    hold->handoff->was_end = --grant->holds == 0 && grant->sending == 0 && !grant->open;
    return true;
}

/* The loop's mutex is held. The client's waiters contend for the lock again. If commands of a
 * holder may still be carried out, they wait until the server has forgotten the grant. */
static void end_grant(struct dlock *lock)
{
    if (grant_of(lock)->open || grant_of(lock)->sending > 0)
        lock->queue.closed_until_ns = forgotten_ns(grant_of(lock));
    *grant_of(lock) = (struct grant){0};
    wait_open(lock, false, 0);
}

static void handoff_lost(struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    pthread_mutex_lock(mutex_of(lock));
    if (count_out(hold) && grant_of(lock)->holds == 0)
        end_grant(lock);
    pthread_mutex_unlock(mutex_of(lock));
}

static void kept_away(struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    release_left_to_expire(r);
    pthread_mutex_lock(mutex_of(lock));
    end_grant(lock);
    pthread_mutex_unlock(mutex_of(lock));
}

/* The commands of a nested release were answered; its owner still has the lock. Until now the grant
 * counted the release in `sending`. */
static void nested_sent(struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    r->then = NULL;
    r->status = exchange_says(&r->exchange);
    pthread_mutex_lock(mutex_of(lock));
    if (grant_of(lock)->token == r->hold->handoff->grant) {
        grant_of(lock)->sending--;
        grant_of(lock)->open |= r->exchange.open;
    }
    pthread_mutex_unlock(mutex_of(lock));
}

/* The loop's mutex is held. Whether the last release must wait for the commands of nested releases,
 * which must not meet the next holder. */
static bool is_too_early(const struct releasing *r)
{
    const struct grant *grant = grant_of(r->hold->lock);
    bool last =
        grant->token == r->hold->handoff->grant && grant->holds == 1 && !r->hold->handoff->out;
    return last && grant->sending > 0 && mono_ns() < r->ends_ns;
}

/* False: call it again. */
static bool handoff_begin_release(struct releasing *r, bool waits)
{
    (void)waits; /* it never waits: it is called again */
    struct dlock_hold *hold = r->hold;
    struct dlock *lock = hold->lock;
    struct wait *next = NULL;
    pthread_mutex_lock(mutex_of(lock));
    pthread_mutex_lock(&lock->mutex);
    hold->leaving = true;
    pthread_mutex_unlock(&lock->mutex);
    if (is_too_early(r)) {
        pthread_mutex_unlock(mutex_of(lock));
        return false;
    }
    bool counts = count_out(hold);
    bool valid = counts && dlock_valid(hold);
    bool nested = counts && grant_of(lock)->holds > 0;
    bool open = grant_of(lock)->open || grant_of(lock)->sending > 0;
    if (counts && !valid && !nested)
        end_grant(lock);
    else if (valid && nested)
        grant_of(lock)->sending++;
    else if (valid && !open)
        next = choose_next(r);
    bool was_end = hold->handoff->was_end;
    hold->handoff->more = false;
    pthread_mutex_unlock(mutex_of(lock));
    if (!valid) {
        release_late(r, was_end);
    } else if (nested) {
        release_ask_alone(r, nested_sent);
    } else if (open) {
        release_ask_alone(r, kept_away);
    } else if (next == NULL) {
        let_go_of(r, true);
    } else {
        handoff_to_next(r, (struct acquiring *)next);
    }
    return true;
}

static void handoff_released_late(struct releasing *r)
{
    if (release_is_left(r))
        cleanup_leave(r->hold->lock, &r->exchange, r->hold->handoff->got_by);
}

static void handoff_unlist(struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_REMOVE(hold, of_lock);
    pthread_mutex_unlock(&hold->lock->mutex);
}

static bool handoff_end_release(struct releasing *r)
{
    handoff_unlist(r->hold);
    return false;
}

/* ---- Abandoning ------------------------------------------------------------------------------ */

/* The lock's mutex is not held. Whether another valid hold of the same owner belongs to the grant.
 */
static bool owner_has_another(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    bool has = false;
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_NEAR(other, &hold->lock->holds, hold, of_lock)
        has |= !other->handoff->out && dlock_valid(other) && strcmp(other->owner, hold->owner) == 0;
    pthread_mutex_unlock(&hold->lock->mutex);
    return has;
}

/* Abandons the hold, as if a holder's last commands got no answer. The client no longer has the
 * lock, and does not ask until the server has forgotten it. If the grant was lost already, it asks
 * at once. True: the hold itself was valid. */
static bool handoff_abandon(struct dlock_hold *hold, bool *goes_on)
{
    struct dlock *lock = hold->lock;
    pthread_mutex_lock(mutex_of(lock));
    bool valid = dlock_valid(hold);
    bool ours = grant_of(lock)->token == hold->handoff->grant;
    bool counted = count_out(hold);
    /* otherwise a waiter of another owner may have the lock by now, with the same token */
    grant_of(lock)->open |= ours && (valid || owner_has_another(hold));
    if (counted && grant_of(lock)->holds == 0)
        end_grant(lock);
    pthread_mutex_unlock(mutex_of(lock));
    handoff_unlist(hold);
    *goes_on = false;
    return valid;
}

const struct holding holding_handoff = {
    .keeps_place = true,
    .nests = handoff_nests,
    .shares_key = handoff_shares_key,
    .begin = handoff_begin,
    .started = handoff_started,
    .listed = handoff_listed,
    .lost_if_busy = handoff_lost_if_busy,
    .granted = handoff_granted,
    .unusable = handoff_unusable,
    .acquired = handoff_acquired,
    .let_in = handoff_let_in,
    .kept_here = handoff_kept_here,
    .left_something = handoff_left_something,
    .leave = handoff_leave,
    .begin_release = handoff_begin_release,
    .released_late = handoff_released_late,
    .end_release = handoff_end_release,
    .abandon = handoff_abandon,
    .lost = handoff_lost,
};
