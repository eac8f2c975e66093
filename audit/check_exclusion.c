/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutual exclusion: no two sections of one lock overlap, except readers among each other. A section
 * is [enter, exit): one that enters at the nanosecond of another's exit does not overlap it.
 *
 * Sections are sorted by lock and enter. So one pass finds all overlaps, with a min-heap of the
 * sections that are still inside, the first to end on top. If the stock compares tokens, overlaps
 * are only counted: a holder that is frozen stays inside, and does no harm unless its write came
 * between another one's read and write. check_fencing.c finds that by the stocks. Sections whose
 * times prove nothing are left out.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

struct inside {
    struct section **heap;
    size_t count;
    size_t exclusive;                      /* number of exclusive ones inside */
    struct section *last_to_end;           /* of those inside, the one that ends last */
    struct section *last_exclusive_to_end; /* of the exclusive ones inside */
    size_t first_unmarked; /* index into run->by_lock: earlier sections are marked if need be */
};

static void exclusion_swap(struct section **one, struct section **two)
{
    struct section *saved = *one;
    *one = *two;
    *two = saved;
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

/* Results of one pass. */
struct tally {
    int64_t overlaps;
    int64_t max_parallel;
    int64_t most_inside;      /* the most that were inside at a forbidden overlap */
    struct collision first;   /* the earliest overlap of all locks */
    struct collision meeting; /* the overlap at which they were inside */
};

static void note_first(struct collision *first, struct section *one, struct section *two)
{
    if (first->first == NULL || two->at_ns[STAGE_ENTER] < first->second->at_ns[STAGE_ENTER])
        *first = (struct collision){one, two};
}

/* The section inside that this one must not overlap; of several, the one that ends last. NULL if
 * none. */
static struct section *conflict_of(const struct inside *inside, const struct section *section)
{
    if (section->shared)
        return inside->exclusive > 0 ? inside->last_exclusive_to_end : NULL;
    return inside->count > 0 ? inside->last_to_end : NULL;
}

/* Marks as overlapped section number `at`, and each section inside that it must not overlap. Over a
 * whole pass, the loop reads each section once. */
static void mark_overlapped(const struct run *run, struct inside *inside, size_t at)
{
    struct section *section = run->by_lock[at];
    section->overlapped = true;
    if (section->shared) {
        /* If several exclusive ones are inside, they are marked already. */
        inside->last_exclusive_to_end->overlapped = true;
        return;
    }
    for (; inside->first_unmarked < at; inside->first_unmarked++) {
        struct section *other = run->by_lock[inside->first_unmarked];
        if (other->lock == section->lock && other->ended_ns > section->at_ns[STAGE_ENTER] &&
            run_is_timed(run, other))
            other->overlapped = true;
    }
}

static void exclusion_enter(struct tally *tally, struct inside *inside, struct section *section)
{
    int64_t parallel = (int64_t)inside->count + 1;
    struct section *other = conflict_of(inside, section);
    if (other != NULL) {
        tally->overlaps++;
        note_first(&tally->first, other, section);
        if (parallel > tally->most_inside) {
            tally->most_inside = parallel;
            tally->meeting = (struct collision){other, section};
        }
    }
    if (parallel > tally->max_parallel)
        tally->max_parallel = parallel;
    exclusion_push(inside, section);
    if (inside->count == 1 || section->ended_ns > inside->last_to_end->ended_ns)
        inside->last_to_end = section;
    inside->exclusive += !section->shared;
    if (!section->shared &&
        (inside->exclusive == 1 || section->ended_ns > inside->last_exclusive_to_end->ended_ns))
        inside->last_exclusive_to_end = section;
}

static struct tally exclusion_pass(const struct run *run)
{
    struct inside inside = {.heap = memory_new(run->by_lock_count, sizeof *inside.heap)};
    struct tally tally = {.overlaps = 0};
    uint32_t lock = NO_NAME;
    for (size_t i = 0; i < run->by_lock_count; i++) {
        struct section *section = run->by_lock[i];
        int64_t enter_ns = section->at_ns[STAGE_ENTER];
        if (!run_is_timed(run, section))
            continue;
        if (section->lock != lock)
            inside.count = inside.exclusive = 0;
        lock = section->lock;
        while (inside.count > 0 && inside.heap[0]->ended_ns <= enter_ns)
            exclusion_pop(&inside);
        if (conflict_of(&inside, section) != NULL)
            mark_overlapped(run, &inside, i);
        exclusion_enter(&tally, &inside, section);
    }
    free(inside.heap);
    return tally;
}

void check_exclusion(struct run *run)
{
    const struct tally tally = exclusion_pass(run);
    const struct collision first = tally.first;
    run->counts.overlaps = tally.overlaps;
    run->counts.max_parallel = tally.max_parallel;
    run->meeting = tally.meeting;
    if (first.first == NULL || is_fenced(run))
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
