/* SPDX-License-Identifier: Apache-2.0
 *
 * See suspend.h.
 */
#include "suspend.h"

#include "../lock/clock.h"
#include "conflict.h"
#include "lock_meter.h"
#include "span.h"

#include <stddef.h>

/* With --owner object each acquire has a new owner, so none is ever re-entrant. */
static uint64_t owner_of(const struct config *config, const struct lock_owner *lock_owner)
{
    static _Atomic uint64_t objects = 1000000;
    return config->owner == OWNER_OBJECT ? ++objects : lock_owner->number;
}

static void suspend_note_answer(struct sale *sale, dlock_status status, dlock_hold *hold)
{
    sale->answer.status = status;
    sale->answer.hold = hold;
    if (hold != NULL)
        lock_meter_hold();
    else
        snprintf(sale->answer.error, sizeof sale->answer.error, "%s", dlock_error());
}

/* A dlock_done: the acquire was answered. */
static void on_answer(void *arg, dlock_status status, dlock_hold *hold)
{
    struct sale *sale = arg;
    suspend_note_answer(sale, status, hold);
    atomic_fetch_sub(sale->waiting, 1);
    sale->driver->resume(sale);
}

/* A dlock_done_many: the same for several locks. */
static void on_answers(void *arg, dlock_status status, size_t missing)
{
    struct sale *sale = arg;
    (void)missing; /* dlock_error() names it */
    for (size_t i = 1; status == DLOCK_OK && i < sale->span->count; i++)
        lock_meter_hold();
    on_answer(sale, status, sale->span->holds[0]);
}

/* Of its item, or of its segments. Inside its section a sale acquires the first of them again. */
static dlock_status start_acquire(struct sale *sale, const struct dlock_want *want)
{
    struct span *span = sale->span;
    size_t missing;
    if (span == NULL)
        return dlock_acquire_start(sale->lock_owner->lock, want, on_answer, sale);
    if (sale->step == STEP_REENTERED)
        return dlock_acquire_start(span->locks[0], want, on_answer, sale);
    return dlock_acquire_many_start(span->locks, span->count, want, span->holds, on_answers, sale,
                                    &missing);
}

/* True: the answer is in sale->answer. False: on_answer will be called. */
static bool ask_lock(const struct sale_env *env, struct sale *sale)
{
    struct dlock_want want = {.size = sizeof(struct dlock_want),
                              .wait_ms = conflict_wait_ms(env, sale),
                              .owner_id = owner_of(env->config, sale->lock_owner),
                              .cancel = sale->patience->cancel,
                              .user = sale->lock_owner->holder,
                              .mode = sale->mode,
                              .contenders = env->mode->now.local_first ? 1 : 0,
                              .identity = env->mode->now.write == WRITE_FENCED,
                              .token = write_is_fenced(env->mode->now.write)};
    sale->waiting = env->waiting;
    atomic_fetch_add(env->waiting, 1);
    dlock_status status = start_acquire(sale, &want);
    if (status == DLOCK_OK)
        return false;
    atomic_fetch_sub(env->waiting, 1);
    suspend_note_answer(sale, status, NULL);
    if (status == DLOCK_UNSUPPORTED &&
        sale->span == NULL) { /* this rung counts in the thread's memory: it must block */
        dlock_hold *hold = NULL;
        status = dlock_acquire(sale->lock_owner->lock, &want, &hold);
        suspend_note_answer(sale, status, hold);
        sale->keeps_thread = true;
    }
    return true;
}

static void on_stay_over(struct failpoint_stay *stay)
{
    struct sale *sale = (struct sale *)((char *)stay - offsetof(struct sale, stay));
    sale->driver->resume(sale);
}

/* True: the sale has passed the point. Only sale.after_write can fail: the sale then leaves without
 * releasing its lock. */
static bool pass_point(struct failpoints *failpoints, struct sale *sale)
{
    const char *group = sale->point_group != NULL    ? sale->point_group
                        : sale->purpose == SALE_READ ? "read"
                                                     : "sale";
    if (failpoints == NULL)
        return true;
    sale->stay.over = sale->keeps_thread ? NULL : on_stay_over;
    enum failpoint_way way = failpoints_reach(failpoints, group, sale->point, &sale->stay);
    if (way == FAILPOINT_STAYS)
        return false;
    if (way == FAILPOINT_FAILS)
        sale->step = STEP_FORGET;
    return true;
}

static void sleep_until(int64_t at_ns)
{
    struct timespec until = timespec_of(at_ns);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

bool sale_suspend(const struct sale_env *env, struct sale *sale)
{
    switch (sale->waits_for) {
    case WAIT_NOTHING:
        return false;
    case WAIT_SWITCH:
        sale->driver->resume_after_switch(sale);
        return true;
    case WAIT_LOCK:
        return !ask_lock(env, sale);
    case WAIT_POINT:
        return !pass_point(env->failpoints, sale);
    case WAIT_TIME:
        if (sale->keeps_thread) {
            sleep_until(sale->until_ns);
            return false;
        }
        /* another thread may have ended the sale by now */
        sale->driver->resume_at(sale, sale->until_ns);
        return true;
    }
    return false;
}
