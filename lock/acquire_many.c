/* SPDX-License-Identifier: Apache-2.0
 *
 * Several locks, all or none: acquired one after another, always in the same order. The steps work
 * on a struct, so that a call with a thread and one without share them.
 */
#include "client.h"
#include "release.h"
#include "structs.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wanted_lock {
    dlock *lock;
    size_t index; /* in the caller's arrays */
    dlock_hold *hold;
};

struct acquiring_many {
    struct wanted_lock wanted[DLOCK_MANY_MAX]; /* in the order in which they are acquired */
    size_t count, held;
    struct dlock_want want;
    int64_t began_ns;    /* CLOCK_MONOTONIC */
    dlock_hold **holds;  /* the caller's */
    dlock_status status; /* when it has ended */
    size_t missing;
    char why[SENTENCE_MAX];

    /* Of a call without a thread. */
    dlock_done_many *done;
    void *arg;
    _Atomic size_t releasing; /* releases that have not ended, and 1 while they are started */
};

/* ---- Beginning ------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct wanted_lock *one = a, *other = b;
    return strcmp(one->lock->name, other->lock->name);
}

static size_t later_of(size_t one, size_t other)
{
    return one > other ? one : other;
}

static dlock_status many_prepare(struct acquiring_many *m, dlock *const *locks, size_t count,
                                 const struct dlock_want *want, dlock_hold **holds)
{
    *m = (struct acquiring_many){
        .count = count, .holds = holds, .missing = count, .began_ns = mono_ns()};
    if (count == 0 || count > DLOCK_MANY_MAX)
        return fail(DLOCK_INVALID, "count is %zu; it must be 1 to %d", count, DLOCK_MANY_MAX);
    for (size_t i = 0; i < count; i++)
        holds[i] = NULL;
    for (size_t i = 0; i < count; i++) {
        if (locks[i] == NULL) {
            m->missing = i;
            return fail(DLOCK_INVALID, "locks[%zu] is NULL; it must be a lock", i);
        }
        m->wanted[i] = (struct wanted_lock){.lock = locks[i], .index = i};
    }
    qsort(m->wanted, count, sizeof m->wanted[0], by_name);
    for (size_t i = 1; i < count; i++) {
        if (by_name(&m->wanted[i - 1], &m->wanted[i]) != 0)
            continue;
        m->missing = later_of(m->wanted[i - 1].index, m->wanted[i].index);
        return fail(DLOCK_INVALID, "two of the locks have the name '%s'; each may be there once",
                    m->wanted[i].lock->name);
    }
    dlock_status status = struct_take(&m->want, sizeof m->want, want, "want");
    m->want.size = sizeof m->want;
    return status;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* What is left of a time that is for the whole call; at most 0: nothing is. A time that is not given
 * stays as it is. */
static int64_t time_left_ms(const struct acquiring_many *m, int64_t ms)
{
    return ms > 0 ? ms - (mono_ns() - m->began_ns) / NS_PER_MS : ms;
}

/* What is wanted of the next lock. False: its time has passed. */
static bool next_want(const struct acquiring_many *m, struct dlock_want *want)
{
    *want = m->want;
    if (m->held + 1 < m->count)
        want->reads = NULL;
    if (m->held == 0)
        return true;
    want->wait_ms = time_left_ms(m, m->want.wait_ms);
    want->call_max_ms = time_left_ms(m, m->want.call_max_ms);
    return (want->wait_ms > 0 || m->want.wait_ms <= 0) &&
           (want->call_max_ms > 0 || m->want.call_max_ms <= 0);
}

/* The call ends without this lock. dlock_error() says why. */
static bool many_lacks(struct acquiring_many *m, const struct wanted_lock *lock,
                       dlock_status status)
{
    m->status = status;
    m->missing = lock->index;
    snprintf(m->why, sizeof m->why, "%s", dlock_error());
    return true;
}

/* Takes the answer to the acquire of the next lock. True: the call has ended. */
static bool many_acquired(struct acquiring_many *m, dlock_status status, dlock_hold *hold)
{
    struct wanted_lock *next = &m->wanted[m->held];
    if (status != DLOCK_OK)
        return many_lacks(m, next, status);
    next->hold = hold;
    if (++m->held < m->count)
        return false;
    for (size_t i = 0; i < m->count; i++)
        if (!dlock_valid(m->wanted[i].hold))
            return many_lacks(m, &m->wanted[i],
                              fail(DLOCK_LOST, "'%s' was lost before '%s' was acquired",
                                   m->wanted[i].lock->name, next->lock->name));
    m->status = DLOCK_OK;
    m->missing = m->count;
    return true;
}

static bool many_out_of_time(struct acquiring_many *m)
{
    const struct wanted_lock *next = &m->wanted[m->held];
    return many_lacks(m, next,
                      fail(DLOCK_TIMED_OUT,
                           "'%s' was not tried: the %zu locks before it took all the time",
                           next->lock->name, m->held));
}

/* Gives the holds to the caller; or, if the call has failed, its sentence. */
static dlock_status many_conclude(const struct acquiring_many *m)
{
    if (m->status != DLOCK_OK)
        return fail(m->status, "%s", m->why);
    for (size_t i = 0; i < m->count; i++)
        m->holds[m->wanted[i].index] = m->wanted[i].hold;
    return DLOCK_OK;
}

/* ---- With a thread --------------------------------------------------------------------------- */

/* All within one bound: what is not released by then goes on in the background. */
static void many_release(struct acquiring_many *m)
{
    const int64_t began_ns = mono_ns();
    while (m->held > 0) {
        struct wanted_lock *last = &m->wanted[--m->held];
        release_by(last->hold, NULL, began_ns + bound_ms(last->lock->client) * NS_PER_MS);
    }
}

dlock_status dlock_acquire_many(dlock *const *locks, size_t count, const struct dlock_want *want,
                                dlock_hold **holds, size_t *missing)
{
    struct acquiring_many m;
    size_t unused;
    missing = missing != NULL ? missing : &unused;
    *missing = count;
    if (!GIVEN(locks) || !GIVEN(holds))
        return DLOCK_INVALID;
    dlock_status status = many_prepare(&m, locks, count, want, holds);
    *missing = m.missing;
    if (status != DLOCK_OK)
        return status;
    for (bool over = false; !over;) {
        struct dlock_want next;
        if (!next_want(&m, &next)) {
            over = many_out_of_time(&m);
            continue;
        }
        dlock_hold *hold;
        status = dlock_acquire(m.wanted[m.held].lock, &next, &hold);
        over = many_acquired(&m, status, hold);
    }
    if (m.status != DLOCK_OK)
        many_release(&m);
    *missing = m.missing;
    return many_conclude(&m);
}

/* ---- Without a thread ------------------------------------------------------------------------ */

static void many_tell(struct acquiring_many *m)
{
    dlock_done_many *done = m->done;
    void *arg = m->arg;
    size_t missing = m->missing;
    dlock_status status = many_conclude(m);
    free(m);
    done(arg, status, missing);
}

static void many_one_less(struct acquiring_many *m)
{
    if (atomic_fetch_sub(&m->releasing, 1) == 1)
        many_tell(m);
}

static void many_released(void *arg, dlock_status status, dlock_hold *hold)
{
    (void)status; /* what failed goes on in the background, or expires */
    (void)hold;
    many_one_less(arg);
}

/* Starts all releases, in reverse order; the last that ends tells the caller. */
static void many_release_start(struct acquiring_many *m)
{
    m->releasing = 1;
    while (m->held > 0) {
        dlock_hold *hold = m->wanted[--m->held].hold;
        atomic_fetch_add(&m->releasing, 1);
        if (dlock_release_start(hold, NULL, many_released, m) == DLOCK_OK)
            continue;
        release_by(hold, NULL, 0); /* in the background: this thread must not wait */
        atomic_fetch_sub(&m->releasing, 1);
    }
    many_one_less(m);
}

static void many_started_acquired(void *arg, dlock_status status, dlock_hold *hold)
{
    struct acquiring_many *m = arg;
    bool over = many_acquired(m, status, hold);
    struct dlock_want want;
    if (!over && !next_want(m, &want))
        over = many_out_of_time(m);
    if (!over) {
        struct wanted_lock *next = &m->wanted[m->held];
        status = dlock_acquire_start(next->lock, &want, many_started_acquired, m);
        if (status == DLOCK_OK)
            return; /* it may have ended, and been freed, by now */
        many_lacks(m, next, status);
    }
    if (m->status == DLOCK_OK)
        many_tell(m);
    else
        many_release_start(m);
}

dlock_status dlock_acquire_many_start(dlock *const *locks, size_t count,
                                      const struct dlock_want *want, dlock_hold **holds,
                                      dlock_done_many *done, void *arg, size_t *missing)
{
    size_t unused;
    missing = missing != NULL ? missing : &unused;
    *missing = count;
    if (!GIVEN(locks) || !GIVEN(holds) || !GIVEN(done))
        return DLOCK_INVALID;
    struct acquiring_many *m = malloc(sizeof *m);
    if (m == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = many_prepare(m, locks, count, want, holds);
    *missing = m->missing;
    m->done = done;
    m->arg = arg;
    if (status == DLOCK_OK) {
        struct dlock_want first;
        size_t index = m->wanted[0].index;
        next_want(m, &first);
        status = dlock_acquire_start(m->wanted[0].lock, &first, many_started_acquired, m);
        if (status == DLOCK_OK)
            return DLOCK_OK; /* it may have ended, and been freed, by now */
        *missing = index;
    }
    free(m);
    return status;
}

/* ---- Validity -------------------------------------------------------------------------------- */

int64_t dlock_remaining_many_ms(dlock_hold *const *holds, size_t count)
{
    int64_t least_ms = DLOCK_NEVER_EXPIRES;
    if (!GIVEN(holds))
        return 0;
    for (size_t i = 0; i < count; i++) {
        int64_t ms = dlock_remaining_ms(holds[i]);
        if (ms < least_ms)
            least_ms = ms;
    }
    return least_ms;
}
