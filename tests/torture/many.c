/* SPDX-License-Identifier: Apache-2.0
 *
 * See many.h.
 */
#include "many.h"

#include "must.h"

#include <stdlib.h>

/* Records the call and its parts. A call has one lock now and then, otherwise two or more. On rungs
 * with two modes each lock may have a mode of its own. */
static void many_begin(struct thread *thread, const struct member *other, enum what what,
                       const struct how *how, struct many *many)
{
    struct self *self = thread->self;
    uint64_t *random = &thread->random;
    int locks = self->plan->locks, numbers[LOCKS_MAX];
    struct how whole = *how;
    for (int i = 0; i < locks; i++) { /* shuffled (Fisher, Yates) */
        int at = (int)random_below(random, (uint64_t)i + 1);
        numbers[i] = numbers[at];
        numbers[at] = i;
    }
    whole.lock = -1;
    *many = (struct many){.call = acquire_begin(thread, &self->main, what, &whole), .count = 1};
    if (locks > 1 && !chance(random, 10))
        many->count = 2 + random_below(random, (uint64_t)locks - 1);
    many->own_modes = self->plan->shared > 0 && chance(random, 70);
    for (size_t i = 0; i < many->count; i++) {
        const struct member *member = other != NULL && i % 2 == 0 ? other : &self->main;
        struct how one = *how;
        one.lock = numbers[i];
        if (many->own_modes)
            one.mode = chance(random, self->plan->shared) ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
        many->modes[i] = one.mode;
        many->locks[i] = member->locks[one.lock];
        many->call->parts[i] = acquire_begin(thread, member, WHAT_PART, &one);
        many->call->parts[i]->of = many->call;
    }
    many->call->part_count = many->count;
}

/* If each lock has its mode, the one of the call must not matter. */
static struct dlock_want many_want(const struct self *self, const struct many *many,
                                   dlock_batch *reads, dlock_cancel *cancel)
{
    struct dlock_want want = acquire_want(self, many->call, reads, cancel);
    want.modes = many->own_modes ? many->modes : NULL;
    return want;
}

static int64_t least_ms(const struct many *many)
{
    int64_t least = DLOCK_NEVER_EXPIRES;
    for (size_t i = 0; i < many->count; i++) {
        int64_t left = dlock_remaining_ms(many->holds[i]);
        least = left < least ? left : least;
    }
    return least;
}

/* Together they are valid for as long as the one whose time ends first. Not judged if that was
 * renewed meanwhile, or the thread did not run. */
static void judge_validity(struct self *self, const struct many *many)
{
    int64_t begin_ns = boot_ns(), before_ms = least_ms(many);
    int64_t together_ms = dlock_remaining_many_ms(many->holds, many->count);
    int64_t after_ms = least_ms(many);
    bool comparable = after_ms <= before_ms && boot_ns() - begin_ns < NS_A_MS;
    if (comparable && (together_ms > before_ms || together_ms < after_ms))
        violation(self->world, VIOLATION_MANY, "%lld ms are left of all, %lld to %lld of the least",
                  (long long)together_ms, (long long)after_ms, (long long)before_ms);
}

static void many_answered(struct self *self, const struct many *many, dlock_status status,
                          size_t missing)
{
    many->call->missing = missing;
    call_end(self->world, many->call, status);
    if ((status == DLOCK_OK) != (missing == many->count) || missing > many->count)
        violation(self->world, VIOLATION_MANY, "%s with lock %zu of %zu missing",
                  dlock_status_name(status), missing, many->count);
    for (size_t i = 0; i < many->count; i++)
        acquire_answered(self, many->call->parts[i], status, many->holds[i]);
    if (status == DLOCK_OK)
        judge_validity(self, many);
}

bool many_acquire(struct thread *thread, const struct member *other, const struct how *how,
                  struct many *many)
{
    struct self *self = thread->self;
    size_t missing;
    many_begin(thread, other, WHAT_MANY, how, many);
    dlock_batch *reads = reads_new(how->rides);
    dlock_cancel *cancel = how->cancels ? cancel_offer(self, many->call) : NULL;
    struct dlock_want want = many_want(self, many, reads, cancel);
    if (how->wait_ms < 0)
        atomic_fetch_sub(&self->shared->busy, 1);
    dlock_status status =
        dlock_acquire_many(many->locks, many->count, &want, many->holds, &missing);
    if (how->wait_ms < 0)
        atomic_fetch_add(&self->shared->busy, 1);
    many_answered(self, many, status, missing);
    cancel_withdraw(self, cancel, many->call);
    dlock_batch_free(reads);
    return status == DLOCK_OK;
}

/* ---- Without a thread ------------------------------------------------------------------------ */

struct started_many {
    struct self *self;
    struct many many;
    dlock_batch *reads;
    dlock_cancel *cancel;
    bool keep, rides, starts;
};

static void started_end(struct started_many *started)
{
    struct self *self = started->self;
    cancel_withdraw(self, started->cancel, started->many.call);
    dlock_batch_free(started->reads);
    free(started);
    atomic_fetch_sub(&self->started, 1);
}

static void many_done(void *arg, dlock_status status, size_t missing)
{
    struct started_many *started = arg;
    struct self *self = started->self;
    struct many *many = &started->many;
    struct thread here = {.self = self, .number = THREADS_MAX};
    many_answered(self, many, status, missing);
    for (size_t i = 0; i < many->count && status == DLOCK_OK; i++)
        if (!started->keep || !hold_keep(self, many->holds[i], many->call->parts[i]))
            (started->starts ? hold_release_start : hold_release)(
                &here, many->holds[i], many->call->parts[i], started->rides);
    atomic_store(&many->call->told_ns, boot_ns());
    started_end(started);
}

void many_start(struct thread *thread, const struct how *how, bool keep)
{
    struct self *self = thread->self;
    struct started_many *started = calloc(1, sizeof *started);
    must(started != NULL);
    struct many *many = &started->many;
    many_begin(thread, NULL, WHAT_MANY_START, how, many);
    many->call->has_done = true;
    started->self = self;
    started->reads = reads_new(how->rides);
    started->cancel = how->cancels ? cancel_offer(self, many->call) : NULL;
    started->keep = keep;
    started->rides = how->rides;
    started->starts = chance(&thread->random, self->plan->releases_started);
    struct dlock_want want = many_want(self, many, started->reads, started->cancel);
    size_t missing;
    atomic_fetch_add(&self->started, 1);
    dlock_status status = dlock_acquire_many_start(many->locks, many->count, &want, many->holds,
                                                   many_done, started, &missing);
    if (status == DLOCK_OK)
        return;
    many_answered(self, many, status, missing);
    started_end(started);
}
