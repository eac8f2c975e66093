/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include <string.h>

void check_all(struct run *run)
{
    check_clocks(run);
    check_conservation(run);
    check_distinct(run);
    check_keys(run);
    check_exclusion(run);
    check_fencing(run);
    check_order(run);
    check_deadlock(run);
    check_liveness(run);
    check_complete(run);
    check_views(run);
    check_witness(run);
}

bool is_unknown(const struct run *run, const struct request *request)
{
    if (request->outcome == OUTCOME_UNKNOWN)
        return true;
    if (request->outcome != OUTCOME_NONE || request->invokes == 0 ||
        run->histories[request->history].ended)
        return false;
    /* Its process was killed: inside a section the write may have been on its way. */
    for (size_t i = request->section; i != NONE; i = run->sections[i].next) {
        enum stage stage = run->sections[i].stage;
        if (stage == STAGE_ENTER || stage == STAGE_READ)
            return true;
    }
    return false;
}

bool is_fenced(const struct run *run)
{
    return strncmp(run->asked.write, "fenced", 6) == 0;
}

bool is_setup(const struct run *run, const struct restock *restock)
{
    return restock->t_ns <= run->start_ns;
}
