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

int many_clients(const struct call *call)
{
    int count = is_many(call);
    for (size_t i = 0; i < call->part_count && count == 1; i++)
        count += call->parts[i]->client != call->parts[0]->client;
    return count;
}

bool many_may_leave(const struct plan *plan, const struct call *part)
{
    bool was_slow = part->stalled_ns > plan->command_ms * NS_A_MS / 2;
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

/* ---- Whose lock it was ----------------------------------------------------------------------- */

/* Whether the failed call for several locks never had this one: it came no further. */
static bool came_not_so_far(const struct plan *plan, const struct call *part)
{
    const struct call *whole = part->of;
    if (whole->missing >= whole->part_count)
        return false;
    return strcmp(plan->names[part->lock], plan->names[whole->parts[whole->missing]->lock]) >= 0;
}

/* Whether other may have had the lock of `call` during that call: from its begin to its release, or
 * for ever. A call that failed had nothing, except where waiters count or votes split. */
static bool may_have(const struct plan *plan, const struct call *other, const struct call *call)
{
    const struct call *first = other->what == WHAT_RELEASE ? other->of : other;
    bool is_part = other->what == WHAT_PART;
    bool acquires = is_part || other->what == WHAT_ACQUIRE || other->what == WHAT_START;
    if (other->lock != call->lock || first == call || first->begin_ns >= call->end_ns ||
        (!acquires && other->what != WHAT_RELEASE))
        return false;
    if (other->end_ns == 0 || other->thread == CHILDS_THREAD || other->status == DLOCK_UNKNOWN ||
        strstr(other->error, "in the background") != NULL)
        return true;
    bool failed =
        acquires && other->status != DLOCK_OK && (!is_part || came_not_so_far(plan, other));
    bool alone = !plan->rung->handoff && !plan->rung->shared && !plan->rung->quorum &&
                 plan->engine == NULL; /* other engines keep waiters in a queue */
    return other->end_ns > call->begin_ns && !(failed && alone);
}

#define WAIT_MS_LONG 100 /* so that an attempt was made */

/* A lock is missing because another call has it. Else a call has left it behind. */
static void check_missing(struct world *world, const struct plan *plan, const struct call *call)
{
    bool is_taken = call->status == DLOCK_BUSY ||
                    (call->status == DLOCK_TIMED_OUT && call->wait_ms >= WAIT_MS_LONG);
    if (!plan->calm || plan->rung->flawed || !is_taken || call->stalled_ns > 0)
        return;
    const struct call *missing = is_many(call) ? call->parts[call->missing] : call;
    for (size_t i = 0; i < check_call_count(world); i++)
        if (may_have(plan, &world->calls[i], missing))
            return;
    violation(world, VIOLATION_MANY, "#%d of process %d misses %s, which nobody had: %s",
              number(world, call), call->process, plan->names[missing->lock], call->error);
}

/* Nobody waits in a circle. A machine that is too slow is no circle. */
static void check_cycle(struct world *world, const struct call *call)
{
    bool waited = call->status == DLOCK_TIMED_OUT && call->wait_ms == ORDERED_WAIT_MS;
    if (waited && call->stalled_ns < call->wait_ms * NS_A_MS / 4)
        violation(world, VIOLATION_CYCLE, "#%d of process %d: %s", number(world, call),
                  call->process, call->error);
}

void check_many(struct world *world, const struct plan *plan)
{
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        if (call->answers == 0 || call->what == WHAT_PART || call->missing > call->part_count)
            continue;
        if (is_many(call))
            check_sentence(world, plan, call);
        if (!is_many(call) || call->missing < call->part_count)
            check_missing(world, plan, call);
        if (plan->ordered)
            check_cycle(world, call);
    }
}

static bool has_both_modes(const struct call *call)
{
    size_t shared = 0;
    for (size_t i = 0; i < call->part_count; i++)
        shared += call->parts[i]->mode == DLOCK_SHARED;
    return shared > 0 && shared < call->part_count;
}

struct many_count check_count_many(const struct world *world)
{
    struct many_count count = {0, 0, 0};
    for (size_t i = 0; i < check_call_count(world); i++) {
        const struct call *call = &world->calls[i];
        count.calls += is_many(call);
        const bool acquired = is_many(call) && call->end_ns != 0 && call->status == DLOCK_OK;
        count.acquired += acquired;
        count.both_modes += acquired && has_both_modes(call);
    }
    return count;
}
