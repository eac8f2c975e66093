/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutual exclusion: no two sections of one lock overlap, but those that share it, which may among
 * each other. A section is [enter, exit): one that enters at the very nanosecond when another exits
 * only touches it. Sections come sorted by lock and enter, so one pass with a heap of those that
 * are still inside, the first to end on top, sees them all. Where the stock refuses old tokens, who
 * is overtaken and writes nothing does no harm: that is what a fence is for. Two that overlap and
 * both wrote are a fault there, too. Sections whose times prove nothing are left out.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

struct inside {
    struct section **heap;
    size_t count;
    size_t exclusive;                   /* so many of them */
    struct section *last_out;           /* of those inside, the one that ends last */
    struct section *last_exclusive_out; /* the same of the exclusive ones */
    size_t untold; /* run->by_lock from here on: those that are inside may be so rightfully */
};

static void exclusion_swap(struct section **one, struct section **two)
{
    struct section *kept = *one;
    *one = *two;
    *two = kept;
}

static void exclusion_push(struct inside *inside, struct section *section)
{
    struct section **heap = inside->heap;
    size_t at = inside->count++;
    heap[at] = section;
    for (; at > 0 && heap[at]->ended_ns < heap[(at - 1) / 2]->ended_ns; at = (at - 1) / 2)
        exclusion_swap(&heap[at], &heap[(at - 1) / 2]);
}

static void exclusion_pop(struct inside *inside)
{
    struct section **heap = inside->heap;
    inside->exclusive -= !heap[0]->shared;
    heap[0] = heap[--inside->count];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < inside->count; child++) {
            if (heap[child]->ended_ns < heap[least]->ended_ns)
                least = child;
        }
        if (least == at)
            return;
        exclusion_swap(&heap[at], &heap[least]);
        at = least;
    }
}

/* What one pass saw. */
struct tally {
    int64_t overlaps;
    int64_t max_parallel;
    int64_t met;              /* the most that were inside and must not be */
    struct collision first;   /* over all locks */
    struct collision meeting; /* where those were */
};

static void note_first(struct collision *first, struct section *one, struct section *two)
{
    if (first->first == NULL || two->at_ns[STAGE_ENTER] < first->second->at_ns[STAGE_ENTER])
        *first = (struct collision){one, two};
}

/* Whom the section must not meet, of those inside the one that ends last; NULL: nobody. */
static struct section *met_by(const struct inside *inside, const struct section *section)
{
    if (section->shared)
        return inside->exclusive > 0 ? inside->last_exclusive_out : NULL;
    return inside->count > 0 ? inside->last_out : NULL;
}

/* Section number `at` has met somebody, and so have all that are inside, with one that shares the
 * lock only those that do not. Each is looked at once. */
static void tell_inside(const struct run *run, struct inside *inside, size_t at)
{
    struct section *section = run->by_lock[at];
    section->overlapped = true;
    if (section->shared) {
        inside->last_exclusive_out->overlapped = true; /* with more than one they know already */
        return;
    }
    for (; inside->untold < at; inside->untold++) {
        struct section *other = run->by_lock[inside->untold];
        if (other->lock == section->lock && other->ended_ns > section->at_ns[STAGE_ENTER] &&
            run_is_timed(run, other))
            other->overlapped = true;
    }
}

static void exclusion_enter(struct tally *tally, struct inside *inside, struct section *section)
{
    int64_t parallel = (int64_t)inside->count + 1;
    struct section *met = met_by(inside, section);
    if (met != NULL) {
        tally->overlaps++;
        note_first(&tally->first, met, section);
        if (parallel > tally->met) {
            tally->met = parallel;
            tally->meeting = (struct collision){met, section};
        }
    }
    if (parallel > tally->max_parallel)
        tally->max_parallel = parallel;
    exclusion_push(inside, section);
    if (inside->count == 1 || section->ended_ns > inside->last_out->ended_ns)
        inside->last_out = section;
    inside->exclusive += !section->shared;
    if (!section->shared &&
        (inside->exclusive == 1 || section->ended_ns > inside->last_exclusive_out->ended_ns))
        inside->last_exclusive_out = section;
}

/* sold_only: as if nobody else was there. */
static struct tally exclusion_pass(const struct run *run, bool sold_only)
{
    struct inside inside = {.heap = memory_new(run->by_lock_count, sizeof *inside.heap)};
    struct tally tally = {.overlaps = 0};
    uint32_t lock = NO_NAME;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        struct section *section = run->by_lock[i];
        int64_t enter_ns = section->at_ns[STAGE_ENTER];
        if ((sold_only && !section->sold) || !run_is_timed(run, section))
            continue;
        if (section->lock != lock)
            inside.count = inside.exclusive = 0;
        lock = section->lock;
        while (inside.count > 0 && inside.heap[0]->ended_ns <= enter_ns)
            exclusion_pop(&inside);
        if (!sold_only && met_by(&inside, section) != NULL)
            tell_inside(run, &inside, i);
        exclusion_enter(&tally, &inside, section);
    }
    free(inside.heap);
    return tally;
}

void check_exclusion(struct run *run)
{
    struct tally tally = exclusion_pass(run, false);
    run->counts.overlaps = tally.overlaps;
    run->counts.max_parallel = tally.max_parallel;
    run->meeting = tally.meeting;
    if (is_fenced(run))
        tally = exclusion_pass(run, true);
    struct collision first = tally.first;
    if (first.first == NULL)
        return;
    const char *lock = names_text(&run->locks, first.first->lock);
    findings_add(&run->findings, RESULT_OVERLAP,
                 "sections that began while another one of their "
                 "lock was still inside: %lld, up to %lld at once; first: request %.60s on %.40s "
                 "entered %.80s at %.3f ms, request %.60s on %.40s was inside until %.3f ms",
                 (long long)tally.overlaps, (long long)tally.max_parallel,
                 run_request_id(run, first.second->request),
                 run->spec.instances[first.second->instance], lock,
                 run_ms(run, first.second->at_ns[STAGE_ENTER]),
                 run_request_id(run, first.first->request),
                 run->spec.instances[first.first->instance], run_ms(run, first.first->ended_ns));
}
