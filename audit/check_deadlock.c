/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlock: waiters timed out, nobody was granted the lock any more, its key stands in Redis
 * without a time to live (or Redis was not asked), and whoever had it cannot give it back: its
 * process died, or its hold was never released.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

/* What is known of an item's lock. */
struct last {
    const struct section *grant;
    int64_t timeouts_behind; /* waiters that timed out after it */
};

static void find_last(const struct run *run, struct last *last)
{
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->item == NONE)
            continue;
        const struct section **grant = &last[section->item].grant;
        if (*grant == NULL || section->at_ns[STAGE_GRANTED] > (*grant)->at_ns[STAGE_GRANTED])
            *grant = section;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->item == NONE || request->reason != REASON_LOCK_TIMEOUT)
            continue;
        const struct section *grant = last[request->item].grant;
        if (grant == NULL || request->outcome_ns > grant->at_ns[STAGE_GRANTED])
            last[request->item].timeouts_behind++;
    }
}

static bool owner_is_gone(const struct run *run, const struct last *last)
{
    if (last->grant != NULL && last->grant->stage != STAGE_RELEASE)
        return true;
    for (size_t i = 0; i < run->history_count; i++) { /* one that died before it could tell */
        if (!run->histories[i].ended)
            return true;
    }
    return false;
}

void check_deadlock(struct run *run)
{
    struct last *last = memory_new(run->item_count, sizeof *last);
    find_last(run, last);
    for (size_t i = 0; i < run->item_count; i++) {
        const struct redis_side *after = &run->items[i].redis[AFTER];
        bool for_ever = !after->lock_known || (after->lock_there && after->lock_pttl_ms == -1);
        if (last[i].timeouts_behind == 0 || !for_ever || !owner_is_gone(run, &last[i]))
            continue;
        findings_add(&run->findings, RESULT_DEADLOCK,
                     "the lock of %.80s is held for ever: nobody "
                     "had it after %s %.60s, requests that timed out waiting for it: %lld, and %s",
                     run->items[i].name, last[i].grant == NULL ? "the start of" : "request",
                     last[i].grant == NULL ? "the run"
                                           : run_request_id(run, last[i].grant->request),
                     (long long)last[i].timeouts_behind,
                     after->lock_known ? "its key never expires"
                                       : "redis.json does not say when its key expires");
        break; /* one tells enough */
    }
    free(last);
}
