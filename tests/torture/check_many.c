/* SPDX-License-Identifier: Apache-2.0
 *
 * See check_many.h.
 */
#include "check_many.h"

#include "check.h"

#include <stdio.h>
#include <string.h>

bool is_many(const struct call *call)
{
    return call->what == WHAT_MANY || call->what == WHAT_MANY_START;
}

bool many_may_leave(const struct plan *plan, const struct call *part)
{
    bool was_slow = part->stalled_ns > plan->command_ms * NS_A_MS / 4;
    return part->what == WHAT_PART && part->status != DLOCK_OK && (!plan->calm || was_slow);
}

static int number(const struct world *world, const struct call *call)
{
    return (int)(call - world->calls);
}

/* The sentence is about the lock that is missing. */
static void check_sentence(struct world *world, const struct plan *plan, const struct call *call)
{
    char quoted[sizeof plan->names[0] + 2];
    bool names_it =
        call->status == DLOCK_BUSY || call->status == DLOCK_TIMED_OUT || call->status == DLOCK_LOST;
    if (!names_it || call->missing >= call->part_count)
        return;
    snprintf(quoted, sizeof quoted, "'%s'", plan->names[call->parts[call->missing]->lock]);
    if (strstr(call->error, quoted) == NULL)
        violation(world, VIOLATION_MANY, "#%d of process %d misses %s, and says: %s",
                  number(world, call), call->process, quoted, call->error);
}

/* From when until when a call may have had the part's lock, or have kept others from it. */
static bool meets(const struct call *other, const struct call *part)
{
    const struct call *first = other->what == WHAT_RELEASE ? other->of : other;
    return other->lock == part->lock && other != part && first != part &&
           first->begin_ns < part->end_ns && (other->end_ns == 0 || other->end_ns > part->begin_ns);
}

/* A lock is missing because another call had it, or asked for it meanwhile. */
static void check_missing(struct world *world, const struct plan *plan, const struct call *call)
{
    bool is_taken = call->status == DLOCK_BUSY || call->status == DLOCK_TIMED_OUT;
    if (!plan->calm || !is_taken || call->stalled_ns > 0 || call->missing >= call->part_count)
        return;
    for (size_t i = 0; i < check_call_count(world); i++)
        if (meets(&world->calls[i], call->parts[call->missing]))
            return;
    violation(world, VIOLATION_MANY, "#%d of process %d misses %s, which nobody wanted: %s",
              number(world, call), call->process, plan->names[call->parts[call->missing]->lock],
              call->error);
}

/* Nobody waits in a circle. A machine that is too slow is no circle. */
static void check_cycle(struct world *world, const struct call *call)
{
    bool waited = call->status == DLOCK_TIMED_OUT && call->wait_ms == ORDERED_WAIT_MS &&
                  call->what != WHAT_PART;
    if (waited && call->stalled_ns < call->wait_ms * NS_A_MS / 4)
        violation(world, VIOLATION_CYCLE, "#%d of process %d: %s", number(world, call),
                  call->process, call->error);
}

void check_many(struct world *world, const struct plan *plan)
{
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        if (call->answers == 0)
            continue;
        if (is_many(call)) {
            check_sentence(world, plan, call);
            check_missing(world, plan, call);
        }
        if (plan->ordered)
            check_cycle(world, call);
    }
}

struct many_count check_count_many(const struct world *world)
{
    struct many_count count = {0, 0};
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        count.calls += is_many(call);
        count.acquired += is_many(call) && call->end_ns != 0 && call->status == DLOCK_OK;
    }
    return count;
}
