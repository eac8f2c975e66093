/* SPDX-License-Identifier: Apache-2.0
 *
 * Buyers who try again. A shop may send a buyer away because another sale has the lock, or because
 * it admits so many a second (may_ask_again). That is an attempt, if the same buyer asks for the
 * same item again later. The last request of a buyer is no attempt: who gives up was sent away.
 */
#include "check.h"
#include "memory.h"

#include <stdlib.h>

static int64_t answered_ms(const struct request *request)
{
    return request->start_ms + request->elapsed_ms;
}

static bool counts(const struct request *request)
{
    return request->sampled && request->buyer != NONE && request->item != NONE;
}

void buyers_settle(struct run *run)
{
    /* by buyer: its latest request */
    uint32_t *latest = memory_new(run->buyers.count, sizeof *latest);
    for (size_t i = 0; i < run->buyers.count; i++)
        latest[i] = NONE;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (!counts(request))
            continue;
        uint32_t *place = &latest[request->buyer];
        if (*place == NONE || run->requests[*place].start_ms <= request->start_ms)
            *place = (uint32_t)i;
    }
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (!counts(request) || !may_ask_again(request))
            continue;
        const struct request *last = &run->requests[latest[request->buyer]];
        if (last != request && last->item == request->item &&
            last->start_ms >= answered_ms(request))
            request->repeats = true;
        run->counts.attempts += request->repeats;
    }
    free(latest);
}
