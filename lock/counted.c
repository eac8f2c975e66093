/* SPDX-License-Identifier: Apache-2.0
 *
 * Counted holds: the server grants each hold, and counts the holds of an owner. See
 * docs/design/holds.md and holding.h.
 */
#include "acquire.h"
#include "explain.h"
#include "holding.h"
#include "cleanup.h"
#include "owner.h"
#include "release.h"

#include <string.h>

static bool counted_nests(const struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    bool found = owner_outermost(hold) != NULL;
    pthread_mutex_unlock(&hold->lock->mutex);
    return found;
}

static bool counted_shares_key(const struct dlock_hold *hold, const struct dlock_hold *other)
{
    return owner_is_same(hold, other) && strcmp(hold->owner, other->owner) == 0;
}

/* ---- Acquire --------------------------------------------------------------------------------- */

static enum wait_next counted_begin(struct acquiring *a)
{
    return wait_begin(&a->wait);
}

static void counted_started(struct acquiring *a)
{
    (void)a;
}

/* The rung's own script keeps the list of waiters. */
static void counted_listed(struct acquiring *a, bool listed)
{
    (void)a;
    (void)listed;
}

static bool counted_lost_if_busy(const struct acquiring *a)
{
    return a->hold->depth > 1 && !a->lock->rung.flawed;
}

static void counted_granted(struct acquiring *a)
{
    (void)a;
}

/* The owner's other holds learn how long the key may now live. What nothing else releases is
 * released in the background, because other waiters may need this thread for their answers. */
static void counted_unusable(struct acquiring *a)
{
    if (a->hold->depth > 1)
        owner_note_nested(a->hold);
    if (a->hold->depth == 1 || (a->lock->ops->traits & TRAIT_SHARED) != 0)
        cleanup_release_name(a->hold, a->hold->depth);
}

/* No waiter is handed a lock: each one asks the server. */
static bool counted_acquired(struct acquiring *a, enum wait_next *next)
{
    *next = wait_look(&a->wait);
    return false;
}

static void counted_let_in(struct acquiring *a)
{
    if (a->lock->rung.flawed || !owner_may_nest(a->hold))
        return;
    pthread_mutex_lock(&a->lock->client->loop.mutex);
    wait_nest(a->hold);
    pthread_mutex_unlock(&a->lock->client->loop.mutex);
}

static const char *counted_kept_here(struct dlock *lock)
{
    (void)lock;
    return NULL;
}

static bool counted_left_something(struct acquiring *a)
{
    return a->tried;
}

/* ---- Release --------------------------------------------------------------------------------- */

static void counted_release_answered(struct releasing *r)
{
    release_take(r);
    if (r->exchange.open && r->exchange.rode)
        owner_must_expire(r->hold);
}

/* A flawed rung always sends its release: its flaw depends on it. */
static void release_counted(struct releasing *r)
{
    struct dlock_hold *hold = r->hold;
    bool flawed = hold->lock->rung.flawed;
    r->exchange.step = STEP_RELEASE; /* the step of the release, whether or not it is sent */
    if (!flawed && !dlock_valid(hold))
        release_late(r, true);
    else if (!flawed && hold->must_expire && hold->depth == 1)
        release_ask_alone(r, release_left_to_expire);
    else
        release_ask(r, STEP_RELEASE, r->last, counted_release_answered);
}

/* Other requests of the owner left no time. */
static void release_without_turn(struct releasing *r)
{
    struct dlock *lock = r->hold->lock;
    r->exchange.step = STEP_RELEASE; /* in the background */
    if (!lock->rung.flawed && !dlock_valid(r->hold))
        release_late(r, false);
    else
        r->status = no_turn(lock, r->began_ns);
}

static bool counted_begin_release(struct releasing *r, bool waits)
{
    struct dlock_hold *hold = r->hold;
    /* A nested acquire that is under way uses the name of this hold. */
    bool alone = owner_begin_release(hold, waits ? r->ends_ns : 0);
    if (!alone && !waits && mono_ns() < r->ends_ns)
        return false;
    if (alone) {
        release_counted(r);
    } else { /* its turn did not come in time; it sets how many holds are left */
        owner_begin_anyway(hold);
        release_without_turn(r);
    }
    return true;
}

static void counted_released_late(struct releasing *r)
{
    (void)r;
}

static bool counted_end_release(struct releasing *r)
{
    return owner_end_release(r->hold, release_is_left(r));
}

static bool counted_abandon(struct dlock_hold *hold, bool *goes_on)
{
    bool valid = owner_abandon(hold);
    owner_begin_anyway(hold);
    *goes_on = owner_end_release(hold, false); /* it may have inherited a release of its name */
    return valid;
}

static void counted_lost(struct dlock_hold *hold)
{
    (void)hold;
}

const struct holding holding_counted = {
    .takes_turns = true,
    .nests = counted_nests,
    .shares_key = counted_shares_key,
    .begin = counted_begin,
    .started = counted_started,
    .listed = counted_listed,
    .lost_if_busy = counted_lost_if_busy,
    .granted = counted_granted,
    .unusable = counted_unusable,
    .acquired = counted_acquired,
    .let_in = counted_let_in,
    .kept_here = counted_kept_here,
    .left_something = counted_left_something,
    .leave = cleanup_keep,
    .begin_release = counted_begin_release,
    .released_late = counted_released_late,
    .end_release = counted_end_release,
    .abandon = counted_abandon,
    .lost = counted_lost,
};
