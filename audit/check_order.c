/* SPDX-License-Identifier: Apache-2.0
 *
 * Order, on the rungs that promise one: within an instance, first come is first served. It is
 * counted and not judged. Several workers take requests from one queue, so neighbours may change
 * places before they ask for the lock.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>
#include <string.h>

static int order_by_grant(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    if (one->instance != two->instance)
        return one->instance < two->instance ? -1 : 1;
    int64_t one_ns = one->at_ns[STAGE_GRANTED];
    int64_t two_ns = two->at_ns[STAGE_GRANTED];
    return (one_ns > two_ns) - (one_ns < two_ns);
}

/* A sale that tries another segment asks for its lock later, so it has no place in the order
 * of arrival there. Neither has a transfer that asks for its second lock. */
static bool order_is_first(const struct run *run, const struct section *section)
{
    return section->next == NONE || (run->account == NULL && run_share(run, section).segments == 1);
}

void check_order(struct run *run)
{
    if (strcmp(run->spec.rung, "fair") != 0 && strcmp(run->spec.rung, "fenced") != 0)
        return;
    const struct section **granted = memory_new(run->section_count, sizeof *granted);
    size_t count = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        if (order_is_first(run, &run->sections[i]))
            granted[count++] = &run->sections[i];
    }
    qsort(granted, count, sizeof *granted, order_by_grant);
    int64_t newest_ns = NOT_STAMPED; /* the latest arrival served so far */
    for (size_t i = 0; i < count; i++) {
        int64_t invoke_ns = run->requests[granted[i]->request].invoke_ns;
        bool same = i > 0 && granted[i]->lock == granted[i - 1]->lock &&
                    granted[i]->instance == granted[i - 1]->instance;
        if (same && invoke_ns < newest_ns)
            run->counts.order_inversions++;
        if (!same || invoke_ns > newest_ns)
            newest_ns = invoke_ns;
    }
    free(granted);
}
