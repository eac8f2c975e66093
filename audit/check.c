/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "rules.h"

void check_all(struct run *run)
{
    check_exclusion(run);
    run->rules->check(run);
    check_order(run);
    check_deadlock(run);
    check_complete(run);
    check_views(run);
    check_witness(run);
}

bool is_unknown(const struct run *run, const struct request *request)
{
    if (request->outcome == OUTCOME_UNKNOWN)
        return true;
    if (request->outcome != OUTCOME_NONE)
        return false;
    if (request->queued || request->taken) /* any instance may have decided it */
        return !run->all_told;
    if (!request->accepted) /* a killed process may not have written its line */
        return request->transport_error && !run->all_told;
    return !run->histories[request->history].ended;
}

bool is_about_key(const struct request *request)
{
    return request->reason == REASON_IN_FLIGHT || request->reason == REASON_KEY_REUSED;
}

bool may_ask_again(const struct request *request)
{
    return request->outcome == OUTCOME_REFUSED &&
           (request->reason == REASON_LOCK_BUSY || request->reason == REASON_TRY_AGAIN);
}

bool is_fenced(const struct run *run)
{
    return run->spec.fenced;
}

bool is_setup(const struct run *run, const struct restock *restock)
{
    return restock->t_ns <= run->sales_ns;
}
