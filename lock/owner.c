/* SPDX-License-Identifier: Apache-2.0
 *
 * See owner.h.
 */
#include "owner.h"

#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 50  /* how often a waiting thread checks its cancel, and COME_MS */
#define COME_MS 250 /* a call that does not take its turn for so long is overtaken */
/* A started request behind another looks this often, in case that no wake-up comes. */
#define BEHIND_MS 50

static _Thread_local uint64_t mine; /* the number of the thread that this one acts for */

uint64_t owner_thread(void)
{
    static _Atomic uint64_t last;
    if (mine == 0)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
}

uint64_t owner_act_as(uint64_t thread)
{
    const uint64_t before = owner_thread();
    mine = thread;
    return before;
}

uint64_t owner_number(const char *name)
{
    const char *colon = strrchr(name, ':');
    return colon != NULL && (colon[1] == 't' || colon[1] == 'x') ? strtoull(colon + 2, NULL, 10)
                                                                 : 0;
}

static void set_name(struct dlock_hold *hold)
{
    const char *client = hold->lock->client->id;
    unsigned long long number = hold->number;
    unsigned long long acquisition = hold->acquisition;
    if (hold->named_by == 0)
        snprintf(hold->owner, sizeof hold->owner, "%s:%llu", client, acquisition);
    else if (hold->lock->rung.flawed)
        snprintf(hold->owner, sizeof hold->owner, "%s:%c%llu", client, hold->named_by, number);
    else
        snprintf(hold->owner, sizeof hold->owner, "%s:%c%llu.%llu", client, hold->named_by, number,
                 acquisition);
    snprintf(hold->id, sizeof hold->id, "%s#%llu", hold->owner, acquisition);
}

void owner_set_depth(struct dlock_hold *hold, uint64_t depth)
{
    hold->depth = depth;
    if (depth == 1) /* the common case, without formatting */
        strcpy(hold->count, "1");
    else
        snprintf(hold->count, sizeof hold->count, "%llu", (unsigned long long)depth);
}

void owner_begin_anew(struct dlock_hold *hold)
{
    hold->acquisition = atomic_fetch_add(&hold->lock->client->acquisitions, 1) + 1;
    if (hold->depth != 1)
        return;
    pthread_mutex_lock(&hold->lock->mutex); /* timekeeper_lose reads the name */
    set_name(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
}

void owner_name(struct dlock_hold *hold, uint64_t owner_id)
{
    hold->thread = owner_thread();
    if (owner_id == DLOCK_THIS_THREAD)
        hold->named_by = 't';
    else if (owner_id != 0)
        hold->named_by = 'x';
    hold->number = owner_id == DLOCK_THIS_THREAD ? hold->thread : owner_id;
    owner_set_depth(hold, 1);
    owner_begin_anew(hold);
}

bool owner_is_same(const struct dlock_hold *hold, const struct dlock_hold *other)
{
    return hold == other || (hold->named_by != 0 && hold->named_by == other->named_by &&
                             hold->number == other->number);
}

static bool owner_is_same_hold(const struct dlock_hold *hold, const struct dlock_hold *other)
{
    return hold != other && owner_is_same(hold, other);
}

bool owner_may_nest(const struct dlock_hold *hold)
{
    return hold->named_by != 0 && (hold->lock->ops->traits & TRAIT_REENTRANT) != 0;
}

struct dlock_hold *owner_outermost(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    struct dlock_hold *outermost = NULL;
    if (!owner_may_nest(hold))
        return NULL;
    EACH_NEAR(other, &hold->lock->holds, hold, of_lock)
        if (owner_is_same_hold(hold, other) && dlock_valid(other) && !other->leaving)
            outermost = other; /* the newest is the first in the list, so the last found is it */
    return outermost;
}

/* Counts the valid holds of the same name, as the server does. A hold whose validity has ended does
 * not count: its key is gone, or was released. */
static void owner_count(struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    uint64_t depth = 1;
    EACH_NEAR(other, &hold->lock->holds, hold, of_lock)
        depth += other != hold && strcmp(other->owner, hold->owner) == 0 && dlock_valid(other) &&
                 !other->leaving;
    owner_set_depth(hold, depth);
}

/* The lock's mutex is held. */
static bool is_busy(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    EACH_NEAR(other, &hold->lock->calls, hold, of_calls)
        if (owner_is_same(hold, other))
            return true;
    return false;
}

/* The lock's mutex is held. Whether another request of its owner waits that came before it. */
static bool is_behind(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    TAILQ_FOREACH(other, &hold->lock->turns, of_turns) {
        if (other == hold)
            return false;
        if (owner_is_same(hold, other))
            return true;
    }
    return false;
}

/* The lock's mutex is held. */
static void await_turn(struct dlock_hold *hold)
{
    if (hold->in_turns || !hold->lock->holding->takes_turns)
        return;
    TAILQ_INSERT_TAIL(&hold->lock->turns, hold, of_turns);
    hold->in_turns = true;
}

/* The lock's mutex is held. */
static void leave_turns(struct dlock_hold *hold)
{
    if (!hold->in_turns)
        return;
    TAILQ_REMOVE(&hold->lock->turns, hold, of_turns);
    hold->in_turns = false;
    pthread_cond_broadcast(&hold->lock->answered);
}

/* The lock's mutex is held. A call with a thread does not wait for ever for one without a thread:
 * that one may need this thread. *free_ns: since when no request of the owner is under way; 0: one
 * is. */
static bool is_its_turn(const struct dlock_hold *hold, bool has_thread, int64_t *free_ns)
{
    if (is_busy(hold)) {
        *free_ns = 0;
        return false;
    }
    if (!is_behind(hold))
        return true;
    if (*free_ns == 0)
        *free_ns = mono_ns();
    return has_thread && mono_ns() - *free_ns >= COME_MS * NS_PER_MS;
}

/* The lock's mutex is held. until_ns 0: does not wait, but keeps its place. False: it is not
 * its turn, or the call was cancelled. Then the caller sends nothing. */
static bool owner_has_turn(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel)
{
    int64_t free_ns = 0;
    while (!is_its_turn(hold, until_ns != 0, &free_ns)) {
        int64_t now_ns = mono_ns();
        await_turn(hold);
        if (until_ns == 0)
            return false;
        if (now_ns >= until_ns || cancel_requested(cancel)) {
            leave_turns(hold);
            return false;
        }
        int64_t look_ns = now_ns + LOOK_MS * NS_PER_MS;
        look_ns = cancel != NULL || free_ns != 0 ? min_ns(look_ns, until_ns) : until_ns;
        struct timespec until = timespec_of(look_ns);
        pthread_cond_clockwait(&hold->lock->answered, &hold->lock->mutex, CLOCK_MONOTONIC, &until);
    }
    leave_turns(hold);
    return !cancel_requested(cancel);
}

void owner_nest(struct dlock_hold *hold, const struct dlock_hold *outer)
{
    if (strcmp(hold->owner, outer->owner) == 0)
        return;
    strcpy(hold->owner, outer->owner);
    snprintf(hold->id, sizeof hold->id, "%s#%llu", hold->owner,
             (unsigned long long)hold->acquisition);
}

/* Takes the name of the hold that it nests in, or one of its own. */
static void owner_join(struct dlock_hold *hold)
{
    const struct dlock_hold *outer = owner_outermost(hold);
    if (outer != NULL)
        owner_nest(hold, outer);
    else
        set_name(hold);
    hold->must_expire = outer != NULL && outer->must_expire;
    owner_count(hold);
    if (outer != NULL && hold->depth == 1) /* the outer hold's validity has just ended */
        owner_set_depth(hold, 2);
}

/* set: NULL, or a function that sets name and depth from the owner's other holds. It runs under the
 * lock's mutex. */
static bool owner_begin(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel,
                        void (*set)(struct dlock_hold *))
{
    if (!owner_may_nest(hold))
        return true;
    pthread_mutex_lock(&hold->lock->mutex);
    bool begun = owner_has_turn(hold, until_ns, cancel);
    if (begun) {
        LIST_INSERT_HEAD(holds_of(&hold->lock->calls, hold), hold, of_calls);
        if (set != NULL)
            set(hold);
    }
    pthread_mutex_unlock(&hold->lock->mutex);
    return begun;
}

bool owner_begin_try(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel)
{
    return owner_begin(hold, until_ns, cancel, owner_join);
}

bool owner_begin_release(struct dlock_hold *hold, int64_t until_ns)
{
    return owner_begin(hold, until_ns, NULL, owner_count);
}

bool owner_begin_renewal(struct dlock_hold *hold, int64_t until_ns)
{
    return owner_begin(hold, until_ns, NULL, NULL);
}

void owner_begin_anyway(struct dlock_hold *hold)
{
    if (!owner_may_nest(hold))
        return;
    pthread_mutex_lock(&hold->lock->mutex);
    leave_turns(hold);
    LIST_INSERT_HEAD(holds_of(&hold->lock->calls, hold), hold, of_calls);
    owner_count(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
}

void owner_takes_turn(struct dlock_hold *hold)
{
    if (!owner_may_nest(hold))
        return;
    pthread_mutex_lock(&hold->lock->mutex);
    await_turn(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
}

int64_t owner_put_off_ms(struct dlock_hold *hold, int64_t ends_ns)
{
    pthread_mutex_lock(&hold->lock->mutex);
    int64_t ms = is_behind(hold) ? BEHIND_MS : PUT_OFF_MS;
    pthread_mutex_unlock(&hold->lock->mutex);
    int64_t left_ms = ends_ns == INT64_MAX ? ms : (ends_ns - mono_ns()) / NS_PER_MS + 1;
    return left_ms < 0 ? 0 : left_ms < ms ? left_ms : ms;
}

/* The lock's mutex is held. The wait of the owner's next request. NULL: there is none, it has a
 * thread, or a request of the owner is under way. */
static struct wait *next_started(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    TAILQ_FOREACH(other, &hold->lock->turns, of_turns)
        if (owner_is_same(hold, other))
            return is_busy(hold) ? NULL : other->started;
    return NULL;
}

/* The request has ended: wakes the owner's next one. A wait ends only under the loop's mutex,
 * after it has left `turns`. So `next` stays valid while this thread has that mutex. */
static void wake_next(const struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    struct loop *loop = &lock->client->loop;
    pthread_mutex_lock(&lock->mutex);
    bool found = next_started(hold) != NULL;
    pthread_mutex_unlock(&lock->mutex);
    if (!found)
        return;
    pthread_mutex_lock(&loop->mutex);
    pthread_mutex_lock(&lock->mutex);
    struct wait *next = next_started(hold);
    pthread_mutex_unlock(&lock->mutex);
    if (next != NULL)
        loop_hasten(loop, next);
    pthread_mutex_unlock(&loop->mutex);
}

void owner_gives_up_turn(struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    bool was_in = hold->in_turns;
    leave_turns(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
    if (was_in)
        wake_next(hold);
}

static bool owner_has_name(const struct dlock_hold *other, const struct dlock_hold *hold)
{
    return dlock_valid(other) && strcmp(other->owner, hold->owner) == 0;
}

/* The lock's mutex is held. Whether a valid hold has the name. */
static bool is_held(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    EACH_NEAR(other, &hold->lock->holds, hold, of_lock)
        if (owner_has_name(other, hold))
            return true;
    return false;
}

bool owner_holds(const struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    bool held = is_held(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
    return held;
}

/* The lock's mutex is held. True: no valid hold and no request under way has the name, and none
 * will later. Requests under way inherit what is to be released. */
static bool owner_is_over(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    bool over = !is_held(hold);
    EACH_NEAR(other, &hold->lock->calls, hold, of_calls)
        if (strcmp(other->owner, hold->owner) == 0) {
            int64_t longest_ms = hold_longest_ms(hold);
            other->inherits_release = true;
            if (other->shared_ms < longest_ms)
                other->shared_ms = longest_ms;
            over = false;
        }
    return over;
}

/* The lock's mutex is held. */
static void end_call(struct dlock_hold *hold)
{
    if (!owner_may_nest(hold))
        return;
    LIST_REMOVE(hold, of_calls);
    pthread_cond_broadcast(&hold->lock->answered);
}

bool owner_end(struct dlock_hold *hold)
{
    if (!owner_may_nest(hold))
        return false;
    pthread_mutex_lock(&hold->lock->mutex);
    end_call(hold);
    bool inherits = hold->inherits_release && !hold->must_expire && owner_is_over(hold);
    hold->inherits_release = hold->lost_while_nesting =
        false; /* the next attempt may have another name */
    pthread_mutex_unlock(&hold->lock->mutex);
    wake_next(hold);
    return inherits;
}

bool owner_end_release(struct dlock_hold *hold, bool unsaid)
{
    bool shared = (hold->lock->ops->traits & TRAIT_SHARED) != 0;
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_REMOVE(hold, of_lock);
    end_call(hold);
    bool left = (unsaid || hold->inherits_release) && !hold->must_expire;
    bool over = left && owner_is_over(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
    if (owner_may_nest(hold))
        wake_next(hold);
    bool goes_on = over || (left && unsaid && shared);
    if (goes_on)
        owner_set_depth(hold, over ? 1 : 2);
    return goes_on;
}

void owner_note_nested(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_NEAR(other, &hold->lock->holds, hold, of_lock)
        if (strcmp(other->owner, hold->owner) == 0 && other->shared_ms < hold->ttl_ms)
            other->shared_ms = hold->ttl_ms;
    pthread_mutex_unlock(&hold->lock->mutex);
}

bool owner_thread_holds(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    bool holds = false;
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_HOLD(other, &hold->lock->holds, of_lock)
        holds |= other->thread == hold->thread && dlock_valid(other);
    pthread_mutex_unlock(&hold->lock->mutex);
    return holds;
}

bool owner_waits_for_itself(const struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    const struct dlock_hold *other;
    bool reads = false;
    if ((lock->ops->traits & TRAIT_SHARED) == 0 || hold->mode == DLOCK_SHARED ||
        hold->named_by == 'x')
        return false;
    pthread_mutex_lock(&lock->mutex);
    if (owner_outermost(hold) == NULL)
        EACH_HOLD(other, &lock->holds, of_lock)
            reads |= other->thread == hold->thread && other->named_by != 'x' &&
                     other->mode == DLOCK_SHARED && dlock_valid(other);
    pthread_mutex_unlock(&lock->mutex);
    return reads;
}

/* The lock's mutex is held. */
static void owner_mark_must_expire(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    EACH_NEAR(other, &hold->lock->holds, hold, of_lock)
        other->must_expire |= strcmp(other->owner, hold->owner) == 0;
    EACH_NEAR(other, &hold->lock->calls, hold, of_calls)
        other->must_expire |= strcmp(other->owner, hold->owner) == 0;
}

void owner_must_expire(const struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    owner_mark_must_expire(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
}

/* In one step: otherwise a release by another hold of the owner could count without this one, and
 * free the key, before must_expire is set. */
bool owner_abandon(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    pthread_mutex_lock(&hold->lock->mutex);
    bool valid = dlock_valid(hold);
    bool named = valid || is_held(hold);
    EACH_NEAR(other, &hold->lock->calls, hold, of_calls)
        named |= strcmp(other->owner, hold->owner) == 0;
    if (named) /* otherwise it may have inherited a release that got no answer */
        owner_mark_must_expire(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
    return valid;
}
