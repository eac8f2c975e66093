/* SPDX-License-Identifier: Apache-2.0
 *
 * Several locks, all or none: acquired one after another, always in the same order. The steps work
 * on a struct, so that a call with a thread and one without share them.
 */
#include "client.h"
#include "owner.h"
#include "release.h"
#include "structs.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wanted_lock {
    dlock *lock;
    size_t index; /* in the caller's arrays */
    enum dlock_mode mode;
    dlock_hold *hold;
    int64_t released_ns; /* how long its release took */
};

struct acquiring_many {
    struct wanted_lock wanted[DLOCK_MANY_MAX]; /* in the order in which they are acquired */
    size_t count, held;
    struct dlock_want want;
    bool bounded;       /* want.call_max_ms is the bound of one attempt: the caller gave no time */
    uint64_t thread;    /* that made the call */
    int64_t began_ns;   /* CLOCK_MONOTONIC */
    dlock_hold **holds; /* the caller's */
    bool over;          /* it has ended, and these three are set */
    dlock_status status;
    size_t missing;
    char why[SENTENCE_MAX];

    /* Of a call without a thread. */
    dlock_done_many *done;
    void *arg;
    _Atomic size_t releasing; /* releases that have not ended, and 1 while they are started */
};

/* ---- Beginning ------------------------------------------------------------------------------- */

/* Before all else: a caller that looks at them after any failure finds none. */
static void no_holds(dlock_hold **holds, size_t count)
{
    for (size_t i = 0; holds != NULL && count <= DLOCK_MANY_MAX && i < count; i++)
        holds[i] = NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct wanted_lock *one = a, *other = b;
    return strcmp(one->lock->name, other->lock->name);
}

static dlock_status take_locks(struct acquiring_many *m, dlock *const *locks)
{
    const enum dlock_mode *modes = m->want.modes;
    for (size_t i = 0; i < m->count; i++) {
        if (locks[i] == NULL) {
            m->missing = i;
            return fail(DLOCK_INVALID, "locks[%zu] is NULL; it must be an open lock", i);
        }
        m->wanted[i] = (struct wanted_lock){
            .lock = locks[i], .index = i, .mode = modes != NULL ? modes[i] : m->want.mode};
        if (modes == NULL || modes[i] == DLOCK_EXCLUSIVE || modes[i] == DLOCK_SHARED)
            continue;
        m->missing = i;
        return fail(DLOCK_INVALID,
                    "want.modes[%zu] is %d; it must be DLOCK_EXCLUSIVE (0) or DLOCK_SHARED (1)", i,
                    (int)modes[i]);
    }
    qsort(m->wanted, m->count, sizeof m->wanted[0], by_name);
    for (size_t i = 1; i < m->count; i++) {
        const struct wanted_lock *one = &m->wanted[i - 1], *other = &m->wanted[i];
        if (by_name(one, other) != 0)
            continue;
        const bool in_order = one->index < other->index;
        m->missing = in_order ? other->index : one->index;
        return fail(DLOCK_INVALID,
                    "locks[%zu] and locks[%zu] have the same name, '%s'; each name may be given "
                    "once",
                    in_order ? one->index : other->index, m->missing, one->lock->name);
    }
    return DLOCK_OK;
}

static dlock_status many_prepare(struct acquiring_many *m, dlock *const *locks, size_t count,
                                 const struct dlock_want *want, dlock_hold **holds)
{
    *m = (struct acquiring_many){.count = count,
                                 .holds = holds,
                                 .missing = count,
                                 .began_ns = mono_ns(),
                                 .thread = owner_thread()};
    if (count == 0 || count > DLOCK_MANY_MAX)
        return fail(DLOCK_INVALID, "count is %zu; it must be 1 to %d", count, DLOCK_MANY_MAX);
    dlock_status status = struct_take(&m->want, sizeof m->want, want, "want");
    m->want.size = sizeof m->want;
    if (status == DLOCK_OK)
        status = take_locks(m, locks);
    m->want.modes = NULL; /* each lock has its own by now */
    m->bounded = m->want.wait_ms == 0 && m->want.call_max_ms == 0;
    if (status == DLOCK_OK && m->bounded)
        for (size_t i = 0; i < count; i++) /* one bound for all attempts */
            m->want.call_max_ms = max_ns(m->want.call_max_ms, bound_ms(m->wanted[i].lock->client));
    return status;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* The call ends at this lock. dlock_error() says why. */
static void many_fail(struct acquiring_many *m, const struct wanted_lock *lock, dlock_status status)
{
    m->over = true;
    m->status = status;
    m->missing = lock->index;
    snprintf(m->why, sizeof m->why, "%s", dlock_error());
}

/* What is left of a time that is for the whole call; at most 0: nothing is. A time that is not
 * given stays as it is. */
static int64_t time_left_ms(const struct acquiring_many *m, int64_t ms)
{
    return ms > 0 ? ms - (mono_ns() - m->began_ns) / NS_PER_MS : ms;
}

/* What is wanted of the next lock. False: the call has ended. */
static bool many_next(struct acquiring_many *m, struct dlock_want *want)
{
    const struct wanted_lock *next = &m->wanted[m->held];
    if (m->over)
        return false;
    *want = m->want;
    want->mode = next->mode;
    if (m->held + 1 < m->count)
        want->reads = NULL;
    if (m->held == 0)
        return true;
    want->wait_ms = time_left_ms(m, m->want.wait_ms);
    want->call_max_ms = time_left_ms(m, m->want.call_max_ms);
    if ((want->wait_ms > 0 || m->want.wait_ms <= 0) &&
        (want->call_max_ms > 0 || m->want.call_max_ms <= 0))
        return true;
    const bool waited = want->wait_ms <= 0 && m->want.wait_ms > 0;
    many_fail(m, next,
              fail(DLOCK_TIMED_OUT,
                   "'%s' was not asked for: after '%s' was acquired (lock %zu of %zu), the %s of "
                   "%lld ms was over",
                   next->lock->name, m->wanted[m->held - 1].lock->name, m->held, m->count,
                   waited       ? "wait_ms"
                   : m->bounded ? "bound"
                                : "call_max_ms",
                   (long long)(waited ? m->want.wait_ms : m->want.call_max_ms)));
    return false;
}

/* Takes the answer to the acquire of the next lock. When a hold is lost, there is nothing more to
 * wait for. */
static void many_take(struct acquiring_many *m, dlock_status status, dlock_hold *hold)
{
    struct wanted_lock *next = &m->wanted[m->held];
    if (status != DLOCK_OK) {
        if (status == DLOCK_TIMED_OUT && m->held > 0)
            fail(status, "%s; %zu of %zu locks had been acquired, and are released", dlock_error(),
                 m->held, m->count);
        many_fail(m, next, status);
        return;
    }
    next->hold = hold;
    m->held++;
    for (size_t i = 0; i < m->held && !m->over; i++)
        if (!dlock_valid(m->wanted[i].hold))
            many_fail(m, &m->wanted[i],
                      fail(DLOCK_LOST, "'%s' was lost before the call had acquired all %zu locks",
                           m->wanted[i].lock->name, m->count));
    if (m->held < m->count || m->over)
        return;
    m->over = true;
    m->status = DLOCK_OK;
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

/* The latest first; those of one client take one bound together. What is not released by then goes
 * on in the background. */
static void many_release(struct acquiring_many *m)
{
    for (size_t i = m->held; i-- > 0;) {
        struct wanted_lock *lock = &m->wanted[i];
        const int64_t began_ns = mono_ns();
        int64_t ends_ns = began_ns + bound_ms(lock->lock->client) * NS_PER_MS;
        for (size_t j = i + 1; j < m->held; j++)
            if (m->wanted[j].lock->client == lock->lock->client)
                ends_ns -= m->wanted[j].released_ns;
        release_by(lock->hold, NULL, ends_ns);
        lock->released_ns = mono_ns() - began_ns;
    }
}

dlock_status dlock_acquire_many(dlock *const *locks, size_t count, const struct dlock_want *want,
                                dlock_hold **holds, size_t *missing)
{
    struct acquiring_many m;
    struct dlock_want next;
    size_t unused;
    missing = missing != NULL ? missing : &unused;
    *missing = count;
    no_holds(holds, count);
    if (!GIVEN(locks) || !GIVEN(holds))
        return DLOCK_INVALID;
    dlock_status status = many_prepare(&m, locks, count, want, holds);
    *missing = m.missing;
    if (status != DLOCK_OK)
        return status;
    while (many_next(&m, &next)) {
        dlock_hold *hold;
        status = dlock_acquire(m.wanted[m.held].lock, &next, &hold);
        many_take(&m, status, hold);
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

/* Starts all releases, the latest first; the last that ends tells the caller. */
static void many_release_start(struct acquiring_many *m)
{
    m->releasing = 1;
    for (size_t i = m->held; i-- > 0;) {
        atomic_fetch_add(&m->releasing, 1);
        if (dlock_release_start(m->wanted[i].hold, NULL, many_released, m) == DLOCK_OK)
            continue;
        release_by(m->wanted[i].hold, NULL, 0); /* in the background */
        atomic_fetch_sub(&m->releasing, 1);
    }
    many_one_less(m);
}

static void many_acquired(void *arg, dlock_status status, dlock_hold *hold);

/* On behalf of the thread that made the call. */
static dlock_status start_next(struct acquiring_many *m, const struct dlock_want *want)
{
    const uint64_t own = owner_act_as(m->thread);
    dlock_status status = dlock_acquire_start(m->wanted[m->held].lock, want, many_acquired, m);
    owner_act_as(own);
    return status;
}

/* done of each acquire. */
static void many_acquired(void *arg, dlock_status status, dlock_hold *hold)
{
    struct acquiring_many *m = arg;
    struct dlock_want next;
    many_take(m, status, hold);
    if (many_next(m, &next)) {
        status = start_next(m, &next);
        if (status == DLOCK_OK)
            return; /* it may have ended, and been freed, by now */
        many_fail(m, &m->wanted[m->held], status);
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
    no_holds(holds, count);
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
        const size_t index = m->wanted[0].index;
        many_next(m, &first);
        status = start_next(m, &first);
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
