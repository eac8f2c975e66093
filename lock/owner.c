/* SPDX-License-Identifier: Apache-2.0
 *
 * See owner.h.
 */
#include "owner.h"

#include "client.h"

#include <stdio.h>
#include <string.h>

#define LOOK_MS 50 /* how often who waits looks whether it is cancelled */

uint64_t owner_thread(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t mine;
    if (mine == 0)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
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

void owner_begin_anew(struct dlock_hold *hold)
{
    hold->acquisition = atomic_fetch_add(&hold->lock->client->acquisitions, 1) + 1;
    if (hold->depth != 1)
        return;
    pthread_mutex_lock(&hold->lock->mutex); /* a loss compares the names of those that ask */
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
    hold->depth = 1;
    strcpy(hold->count, "1");
    owner_begin_anew(hold);
}

bool owner_is_same(const struct dlock_hold *hold, const struct dlock_hold *other)
{
    return hold == other || (hold->named_by != 0 && hold->named_by == other->named_by &&
                             hold->number == other->number);
}

static bool is_same(const struct dlock_hold *hold, const struct dlock_hold *other)
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
    LIST_FOREACH(other, &hold->lock->holds, of_lock)
        if (is_same(hold, other) && dlock_valid(other) && !other->leaving)
            outermost = other; /* the newest is the first in the list */
    return outermost;
}

/* Of the same name, which the server counts by. Holds whose time is over do not count: the key that
 * counted them is gone, or they released. */
static void count(struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    hold->depth = 1;
    LIST_FOREACH(other, &hold->lock->holds, of_lock)
        hold->depth += other != hold && strcmp(other->owner, hold->owner) == 0 &&
                       dlock_valid(other) && !other->leaving;
    snprintf(hold->count, sizeof hold->count, "%llu", (unsigned long long)hold->depth);
}

/* The lock's mutex is held. */
static bool is_busy(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    LIST_FOREACH(other, &hold->lock->calls, of_calls)
        if (owner_is_same(hold, other))
            return true;
    return false;
}

/* The lock's mutex is held. False also for who is cancelled by the answer: it asks nothing more. */
static bool is_answered(const struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel)
{
    while (is_busy(hold)) {
        int64_t now_ns = mono_ns();
        if (now_ns >= until_ns || cancel_thrown(cancel))
            return false;
        int64_t look_ns = now_ns + LOOK_MS * NS_PER_MS;
        look_ns = cancel != NULL && look_ns < until_ns ? look_ns : until_ns;
        struct timespec until = {look_ns / 1000000000, look_ns % 1000000000};
        pthread_cond_clockwait(&hold->lock->answered, &hold->lock->mutex, CLOCK_MONOTONIC, &until);
    }
    return !cancel_thrown(cancel);
}

/* The lock's mutex is held. */
static void begin_call(struct dlock_hold *hold)
{
    LIST_INSERT_HEAD(&hold->lock->calls, hold, of_calls);
    count(hold);
}

bool owner_begin(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel)
{
    if (!owner_may_nest(hold))
        return true;
    pthread_mutex_lock(&hold->lock->mutex);
    bool begun = is_answered(hold, until_ns, cancel);
    if (begun)
        begin_call(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
    return begun;
}

void owner_nest(struct dlock_hold *hold, const struct dlock_hold *outer)
{
    if (strcmp(hold->owner, outer->owner) == 0)
        return;
    strcpy(hold->owner, outer->owner);
    snprintf(hold->id, sizeof hold->id, "%s#%llu", hold->owner,
             (unsigned long long)hold->acquisition);
}

/* The lock's mutex is held. It takes the name of the hold that it nests in, or its own. */
static void join(struct dlock_hold *hold)
{
    const struct dlock_hold *outer = owner_outermost(hold);
    if (outer != NULL)
        owner_nest(hold, outer);
    else
        set_name(hold);
    hold->tainted = outer != NULL && outer->tainted;
    hold->doomed = false; /* what doomed an earlier try was lost under another name */
}

bool owner_begin_try(struct dlock_hold *hold, int64_t until_ns, const dlock_cancel *cancel)
{
    if (!owner_may_nest(hold))
        return true;
    pthread_mutex_lock(&hold->lock->mutex);
    bool begun = is_answered(hold, until_ns, cancel);
    if (begun) {
        join(hold);
        begin_call(hold);
    }
    pthread_mutex_unlock(&hold->lock->mutex);
    return begun;
}

void owner_begin_anyway(struct dlock_hold *hold)
{
    if (!owner_may_nest(hold))
        return;
    pthread_mutex_lock(&hold->lock->mutex);
    begin_call(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
}

bool owner_begin_renewal(struct dlock_hold *hold, int64_t until_ns)
{
    if (!owner_may_nest(hold))
        return true;
    pthread_mutex_lock(&hold->lock->mutex);
    bool begun = is_answered(hold, until_ns, NULL);
    if (begun)
        LIST_INSERT_HEAD(&hold->lock->calls, hold, of_calls);
    pthread_mutex_unlock(&hold->lock->mutex);
    return begun;
}

/* The lock's mutex is held. Whether no valid hold has the name, and nobody asks by it: none will
 * later. Who asks is the heir of what is to be released. */
static bool is_over(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    bool over = true;
    LIST_FOREACH(other, &hold->lock->holds, of_lock)
        over = over && !(dlock_valid(other) && strcmp(other->owner, hold->owner) == 0);
    LIST_FOREACH(other, &hold->lock->calls, of_calls)
        if (strcmp(other->owner, hold->owner) == 0) {
            int64_t longest_ms = hold_longest_ms(hold);
            other->heir = true;
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
    bool inherits = hold->heir && !hold->tainted && is_over(hold);
    hold->heir = false;
    pthread_mutex_unlock(&hold->lock->mutex);
    return inherits;
}

bool owner_end_release(struct dlock_hold *hold, bool unsaid)
{
    bool shared = (hold->lock->ops->traits & TRAIT_SHARED) != 0;
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_REMOVE(hold, of_lock);
    end_call(hold);
    bool left = (unsaid || hold->heir) && !hold->tainted;
    bool over = left && is_over(hold);
    pthread_mutex_unlock(&hold->lock->mutex);
    hold->depth = over ? 1 : 2;
    strcpy(hold->count, over ? "1" : "2");
    return over || (left && unsaid && shared);
}

void owner_note_nested(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_FOREACH(other, &hold->lock->holds, of_lock)
        if (strcmp(other->owner, hold->owner) == 0 && other->shared_ms < hold->ttl_ms)
            other->shared_ms = hold->ttl_ms;
    pthread_mutex_unlock(&hold->lock->mutex);
}

bool owner_thread_holds(const struct dlock_hold *hold)
{
    const struct dlock_hold *other;
    bool holds = false;
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_FOREACH(other, &hold->lock->holds, of_lock)
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
        LIST_FOREACH(other, &lock->holds, of_lock)
            reads |= other->thread == hold->thread && other->named_by != 'x' &&
                     other->mode == DLOCK_SHARED && dlock_valid(other);
    pthread_mutex_unlock(&lock->mutex);
    return reads;
}

void owner_taint(const struct dlock_hold *hold)
{
    struct dlock_hold *other;
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_FOREACH(other, &hold->lock->holds, of_lock)
        other->tainted |= owner_is_same(hold, other);
    LIST_FOREACH(other, &hold->lock->calls, of_calls)
        other->tainted |= owner_is_same(hold, other);
    pthread_mutex_unlock(&hold->lock->mutex);
}

void owner_lost(struct dlock_hold *hold)
{
    if (hold->lock->rung.expires)
        timekeeper_lose(&hold->lock->client->timekeeper, hold);
}
