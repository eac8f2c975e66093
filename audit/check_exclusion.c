/* SPDX-License-Identifier: Apache-2.0
 *
 * Mutual exclusion: no two sections of one lock overlap. A section is [enter, exit): one that
 * enters at the very nanosecond when another exits only touches it. Sections come sorted by lock
 * and enter, so one pass with a heap of those that are still inside, the first to end on top, sees
 * them all.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

struct inside {
    struct section **heap;
    size_t count;
};

static void swap(struct section **one, struct section **two)
{
    struct section *kept = *one;
    *one = *two;
    *two = kept;
}

static void push(struct inside *inside, struct section *section)
{
    struct section **heap = inside->heap;
    size_t at = inside->count++;
    heap[at] = section;
    for (; at > 0 && heap[at]->ended_ns < heap[(at - 1) / 2]->ended_ns; at = (at - 1) / 2)
        swap(&heap[at], &heap[(at - 1) / 2]);
}

static void pop(struct inside *inside)
{
    struct section **heap = inside->heap;
    heap[0] = heap[--inside->count];
    for (size_t at = 0;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < inside->count; child++) {
            if (heap[child]->ended_ns < heap[least]->ended_ns)
                least = child;
        }
        if (least == at)
            return;
        swap(&heap[at], &heap[least]);
        at = least;
    }
}

/* The sections that met first, over all locks. */
static void note_first(struct collision *first, struct section *one, struct section *two)
{
    if (first->first == NULL || two->at_ns[STAGE_ENTER] < first->second->at_ns[STAGE_ENTER])
        *first = (struct collision){one, two};
}

static void enter(struct run *run, struct inside *inside, struct section *section,
                  struct section *last_out, struct collision *first)
{
    struct counts *counts = &run->counts;
    int64_t parallel = (int64_t)inside->count + 1;
    if (inside->count > 0) {
        counts->overlaps++;
        section->overlapped = true;
        if (inside->count == 1)
            inside->heap[0]->overlapped = true; /* more than one inside: they know already */
        note_first(first, last_out, section);
        if (parallel > counts->max_parallel)
            run->meeting = (struct collision){last_out, section};
    }
    if (parallel > counts->max_parallel)
        counts->max_parallel = parallel;
    push(inside, section);
}

void check_exclusion(struct run *run)
{
    struct inside inside = {.heap = memory_new(run->by_lock_count, sizeof *inside.heap)};
    struct collision first = {NULL, NULL};
    struct section *last_out = NULL; /* of those inside, the one that ends last */
    for (size_t i = 0; i < run->by_lock_count; i++) {
        struct section *section = run->by_lock[i];
        int64_t enter_ns = section->at_ns[STAGE_ENTER];
        if (i > 0 && run->by_lock[i - 1]->lock != section->lock)
            inside.count = 0;
        while (inside.count > 0 && inside.heap[0]->ended_ns <= enter_ns)
            pop(&inside);
        enter(run, &inside, section, last_out, &first);
        if (inside.count == 1 || section->ended_ns > last_out->ended_ns)
            last_out = section;
    }
    free(inside.heap);
    if (first.first == NULL)
        return;
    const char *lock = names_text(&run->locks, first.first->lock);
    findings_add(&run->findings, RESULT_OVERLAP,
                 "sections that began while another one of their "
                 "lock was still inside: %lld, up to %lld at once; first: request %.60s on %.40s "
                 "entered %.80s at %.3f ms, request %.60s on %.40s was inside until %.3f ms",
                 (long long)run->counts.overlaps, (long long)run->counts.max_parallel,
                 run_request_id(run, first.second->request),
                 run->asked.instances[first.second->instance], lock,
                 run_ms(run, first.second->at_ns[STAGE_ENTER]),
                 run_request_id(run, first.first->request),
                 run->asked.instances[first.first->instance], run_ms(run, first.first->ended_ns));
}
