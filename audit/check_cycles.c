/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlock of requests that need two locks: each holds one, and waits for one that the next one of
 * the cycle holds. A cycle is closed by the last of its waits. It is a deadlock if the first of
 * these waits to end timed out. If a lock was acquired first, or the process was killed, the cycle
 * ended by itself: the lock had expired.
 */
#include "account.h"
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The longest cycle that is found. */
enum { CYCLE_MAX = 256, CYCLE_TOLD = 4 };

/* Its members: each waits for the lock that the next one holds; the last, for the first one's. */
struct cycle {
    const struct wait *waits[CYCLE_MAX];
    size_t count;
};

/* A grant of a lock. place: a lock that is local is another one in each instance. */
struct grant {
    uint32_t lock;
    uint32_t place;
    int64_t t_ns;
    const struct section *section;
};

static int cycles_by_grant(const void *a, const void *b)
{
    const struct grant *one = a;
    const struct grant *two = b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    if (one->place != two->place)
        return one->place < two->place ? -1 : 1;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

static uint32_t place_of(const struct run *run, uint32_t instance)
{
    return strcmp(run->spec.rung, "local") == 0 ? instance : 0;
}

/* All grants whose times are proof. */
struct grants {
    struct grant *list;
    size_t count;
};

static struct grants cycles_sort(const struct run *run)
{
    struct grants grants = {.list = memory_new(run->section_count, sizeof *grants.list)};
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->lock != NO_NAME && run_is_timed(run, section))
            grants.list[grants.count++] =
                (struct grant){section->lock, place_of(run, section->instance),
                               section->at_ns[STAGE_GRANTED], section};
    }
    qsort(grants.list, grants.count, sizeof *grants.list, cycles_by_grant);
    return grants;
}

/* Who was granted the lock last, up to that time; NULL if nobody was. */
static const struct section *last_grant(const struct run *run, const struct grants *grants,
                                        const struct wait *wait, int64_t t_ns)
{
    const struct grant wanted = {wait->lock, place_of(run, run->requests[wait->request].instance),
                                 t_ns, NULL};
    size_t from = 0;
    size_t to = grants->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (cycles_by_grant(&grants->list[middle], &wanted) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    const struct grant *found = from > 0 ? &grants->list[from - 1] : NULL;
    return found != NULL && found->lock == wanted.lock && found->place == wanted.place
               ? found->section
               : NULL;
}

/* The wait at that time of the request that has the section; NULL if it holds the lock no more, or
 * does not wait. */
static const struct wait *wait_of(const struct run *run, const struct section *section,
                                  int64_t t_ns)
{
    const uint32_t number = account_errand(run, section->request).wait;
    const struct wait *wait = number == NONE ? NULL : &run->account->waits[number];
    return wait != NULL && &run->sections[wait->section] == section && wait->t_ns <= t_ns &&
                   t_ns < wait->ended_ns
               ? wait
               : NULL;
}

/* Follows from the wait that comes last to the request that it waits for, and so on. False: that
 * does not lead back. */
static bool close_cycle(const struct run *run, const struct grants *grants, const struct wait *last,
                        struct cycle *cycle)
{
    const struct wait *wait = last;
    cycle->count = 0;
    while (wait != NULL && cycle->count < CYCLE_MAX) {
        cycle->waits[cycle->count++] = wait;
        const struct section *holder = last_grant(run, grants, wait, last->t_ns);
        wait = holder == NULL ? NULL : wait_of(run, holder, last->t_ns);
        if (wait == last)
            return true;
    }
    return false;
}

/* Of waits that began at once, the one that was read last closes the cycle. */
static bool is_last(const struct cycle *cycle)
{
    for (size_t i = 1; i < cycle->count; i++) {
        if (cycle->waits[i]->t_ns == cycle->waits[0]->t_ns && cycle->waits[i] > cycle->waits[0])
            return false;
    }
    return true;
}

static const struct wait *first_to_end(const struct cycle *cycle)
{
    const struct wait *first = cycle->waits[0];
    for (size_t i = 1; i < cycle->count; i++) {
        const struct wait *wait = cycle->waits[i];
        if (wait->ended_ns < first->ended_ns ||
            (wait->ended_ns == first->ended_ns && wait->timed_out))
            first = wait;
    }
    return first;
}

static void tell_cycle(struct run *run, const struct cycle *cycle)
{
    const struct wait *ended = first_to_end(cycle);
    char text[400] = "";
    size_t used = 0;
    for (size_t i = 0; i < cycle->count && i < CYCLE_TOLD && used < sizeof text; i++) {
        const struct wait *wait = cycle->waits[i];
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%srequest %.40s on %.20s held %.30s and waited for %.30s",
                                 i > 0 ? ", " : "", run_request_id(run, wait->request),
                                 run->spec.instances[run->requests[wait->request].instance],
                                 names_text(&run->locks, run->sections[wait->section].lock),
                                 names_text(&run->locks, wait->lock));
    }
    findings_add(&run->findings, RESULT_DEADLOCK,
                 "cycles of requests that waited for each other until one timed out: %lld; first, "
                 "of %zu, closed at %.3f ms, and ended by a time-out at %.3f ms: %s",
                 (long long)run->account->cycles, cycle->count, run_ms(run, cycle->waits[0]->t_ns),
                 run_ms(run, ended->ended_ns), text);
    run->self_wait = &run->sections[cycle->waits[0]->section];
    for (size_t i = 0; i < cycle->count && i < CYCLE_TOLD; i++)
        run->account->waits[cycle->waits[i] - run->account->waits].told = true;
}

void account_check_cycles(struct run *run)
{
    struct account *account = run->account;
    struct grants grants = cycles_sort(run);
    struct cycle *cycle = memory_new(2, sizeof *cycle);
    for (size_t i = 0; i < account->wait_count; i++) {
        const struct wait *wait = &account->waits[i];
        if (!run_is_request_timed(run, &run->requests[wait->request]) ||
            wait->ended_ns <= wait->t_ns || !close_cycle(run, &grants, wait, cycle) ||
            !is_last(cycle) || !first_to_end(cycle)->timed_out)
            continue;
        if (account->cycles++ == 0 || wait->t_ns < cycle[1].waits[0]->t_ns)
            cycle[1] = cycle[0];
    }
    if (account->cycles > 0)
        tell_cycle(run, &cycle[1]);
    free(cycle);
    free(grants.list);
}
