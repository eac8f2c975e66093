/* SPDX-License-Identifier: Apache-2.0
 *
 * Completeness: in a history with an `end`, every section has its exit, every hold its release and
 * every request its end. What a killed process left open is not a gap, because it could not write
 * more.
 */
#include "check.h"
#include "rules.h"

#include <string.h>

static bool complete_is_open(enum stage stage)
{
    return stage >= STAGE_ENTER && stage < STAGE_EXIT;
}

static void complete_check_sections(struct run *run)
{
    const struct section *inside = NULL;
    const struct section *held = NULL;
    long long open = 0;
    long long unreleased = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (!run->histories[section->history].ended)
            continue;
        if (complete_is_open(section->stage) && open++ == 0)
            inside = section;
        if ((section->stage == STAGE_GRANTED || section->stage == STAGE_EXIT) && unreleased++ == 0)
            held = section;
    }
    if (open > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: sections without an exit: %lld, first "
                     "that of request %.60s; every enter must have its exit",
                     run->histories[inside->history].file, open,
                     run_request_id(run, inside->request));
    if (unreleased > 0 && strcmp(run->spec.fault, "none") == 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: holds without a release: %lld, first "
                     "that of request %.60s; every granted must have its release",
                     run->histories[held->history].file, unreleased,
                     run_request_id(run, held->request));
}

/* No instance recorded its end, and none can have died before it did. A sale in a queue may be any
 * instance's; if its buyer was told no outcome either, check_queue reports it. */
static bool is_endless(const struct run *run, const struct request *request)
{
    if (!request->accepted)
        return false;
    if (request->queued)
        return request->outcome == OUTCOME_CLIENT_ONLY && run->all_told;
    return (request->outcome == OUTCOME_NONE || request->outcome == OUTCOME_CLIENT_ONLY) &&
           run->histories[request->history].ended;
}

static void complete_check_requests(struct run *run)
{
    const struct request *example = NULL;
    long long endless = 0;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (is_endless(run, request) && endless++ == 0)
            example = request;
    }
    if (endless > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: requests without an end: %lld, first "
                     "%.60s; every invoke must have its %s",
                     run->histories[example->history].file, endless,
                     run_request_id(run, (size_t)(example - run->requests)), run->rules->ends);
}

/* A script takes all parts of a sale or none, so a part without a record was sold. */
static void complete_check_parts(struct run *run)
{
    const struct request *example = NULL;
    long long count = 0;
    for (size_t i = 0; i < run->request_count && run->shares != NULL; i++) {
        const struct request *request = &run->requests[i];
        if (run_missing_parts(run, request) > 0 && run->histories[request->history].ended &&
            count++ == 0)
            example = request;
    }
    if (count > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: sales without all of their parts: %lld, first that of request %.60s, "
                     "which lacks %lld of %lld units; there must be a write for each part",
                     run->histories[example->history].file, count,
                     run_request_id(run, (size_t)(example - run->requests)),
                     (long long)run_missing_parts(run, example), (long long)example->quantity);
}

void check_complete(struct run *run)
{
    complete_check_sections(run);
    complete_check_requests(run);
    complete_check_parts(run);
}
