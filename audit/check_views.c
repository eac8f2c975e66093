/* SPDX-License-Identifier: Apache-2.0
 *
 * Views: for every request, the client, nginx and the instance agree. If they do not, one of the
 * records is wrong, and nothing can be concluded. A client that got no answer states nothing.
 */
#include "check.h"
#include "rules.h"
#include "source.h"

#include <stdio.h>

/* Whether one of its sections has no exit. */
static bool is_inside(const struct run *run, const struct request *request)
{
    for (size_t i = request->section; i != NONE; i = run->sections[i].next) {
        enum stage stage = run->sections[i].stage;
        if (stage >= STAGE_ENTER && stage < STAGE_EXIT)
            return true;
    }
    return false;
}

/* How the client's record contradicts the instance's, for a request that the instance accepted; or
 * NULL. An instance records before it answers, so no record of an answered request is missing, even
 * if the instance was killed. */
static const char *server_differs(const struct run *run, const struct request *request)
{
    bool told = request->outcome != OUTCOME_NONE && request->outcome != OUTCOME_CLIENT_ONLY;
    if (!request->queued && !request->taken && (!told || is_inside(run, request)))
        return run->histories[request->history].ended
                   ? NULL /* check_complete reports it */
                   : "the instance's history does not tell how it ended";
    if (request->item == NONE && request->code != 404)
        return "run.json does not name the item that it asked for";
    if ((request->asked_item != NONE && request->asked_item != request->item) ||
        (request->elsewhere && request->item != NONE))
        return "the instance's history says that it asked for another item";
    if (request->asked_quantity != NOT_KNOWN && request->asked_quantity != request->quantity)
        return "the instance's history says that it asked for another quantity";
    if (request->queued || request->client_queued)
        return request->queued && request->client_queued
                   ? NULL /* check_queue compares the outcome */
                   : "the instance's history says that it answered something else";
    if (request->taken) /* its instance refused it, or did not know; check_queue looks at that */
        return NULL;
    if (request->client_code != request->code)
        return "the instance's history says that it answered something else";
    return run->rules->answer_differs(run, request);
}

/* Whether its refusal told the client another `left` than it had read. */
static bool is_misinformed(const struct run *run, const struct request *request)
{
    if (request->outcome != OUTCOME_REFUSED || request->reason != REASON_SOLD_OUT ||
        request->section == NONE || request->taken)
        return false;
    const struct section *section = &run->sections[request->section];
    int64_t read = run_read_all(run, section);
    if (run->histories[section->history].naive && request->client_left == section->stock_before)
        return false; /* for it, its segment is the stock */
    return read != NOT_KNOWN && request->client_left != NOT_KNOWN && read != request->client_left;
}

/* How the records of the client and nginx contradict each other or the request; or NULL. */
static const char *outside_differs(const struct run *run, const struct request *request)
{
    if (request->reads) /* the other views hold only sales */
        return request->sampled ? "the instance's history says that it only read" : NULL;
    if (!request->sampled)
        return run->rules->unsampled;
    if (request->transport_error)
        return NULL;
    if (run->nginx_read && !request->proxied)
        return "it is not in nginx.log, though the client got an answer";
    if (run->nginx_read && request->nginx_status != request->client_code)
        return "nginx.log says that it was answered with another code";
    if (request->called_failed && request->client_code == 200)
        return "JMeter calls its answer failed (success is false)";
    if (is_misinformed(run, request))
        return "the instance's history says that it read another number";
    return NULL;
}

/* How the client's record contradicts the instances' histories; or NULL. */
static const char *inside_differs(const struct run *run, const struct request *request)
{
    if (request->reads || !request->sampled || request->transport_error)
        return NULL;
    if (request->accepted)
        return server_differs(run, request);
    if (request->outcome != OUTCOME_REJECTED)
        return "no instance's history has it";
    return request->item == NONE && request->code != 404
               ? "nothing names an item of run.json that it asked for"
               : NULL;
}

static const char *numbers_differ(const struct run *run, const struct request *request)
{
    if (!request->sampled || request->transport_error)
        return NULL;
    if (request->outcome == OUTCOME_REPLAYED) {
        const struct replay *told = &run->replays[request->replay];
        if (request->code == 200 && request->client_item != request->item)
            return "the instance's history says that the stored answer is a sale of another item";
        if (request->code == 200 && request->client_instance != request->instance &&
            (request->client_instance != told->answered_by || told->answered_by == NONE))
            return "the client names an instance that neither sold nor answered";
        return (request->code == 200 && told->unit != request->client_unit) ||
                       told->left != request->client_left
                   ? "the instance's history says that the stored answer has other numbers"
                   : NULL;
    }
    if (request->outcome != OUTCOME_SOLD || request->taken)
        return NULL;
    for (size_t i = request->section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (!section->sold)
            continue;
        if (section->unit != request->client_unit && run_share(run, section).part <= 1)
            return "the instance's history says that another unit was sold";
        if (run_told_left(run, section) != request->client_left)
            return "the instance's history says that another number was left";
    }
    return NULL;
}

static void views_disagree(struct source *views, size_t request, const char *difference)
{
    const int16_t code = views->run->requests[request].client_code;
    char told[48] = "the client has no answer";
    if (code != 0)
        snprintf(told, sizeof told, "code %d to the client", code);
    complain(views, 0, "request %.60s, %s: %s", run_request_id(views->run, request), told,
             difference);
}

/* How the instance's record of a sale contradicts itself; or NULL. A sale takes the lowest unit of
 * those that it subtracts. At most as much can be left as it read, minus its quantity; after a
 * restock more can be left. Segment s of n has the units s, s + n, s + 2n and so on. */
static const char *sale_differs(const struct run *run, const struct section *section)
{
    const struct share share = run_share(run, section);
    if (share.segments == 1 && section->unit != section->stock_after + 1)
        return "the unit that it sold must be one more than it left";
    if (share.segments > 1 &&
        section->unit != section->stock_after * share.segments + share.segment)
        return "the unit that it sold must be the next one of its segment";
    bool grew = section->stock_before != NOT_KNOWN &&
                section->stock_after > section->stock_before - section->quantity;
    grew = grew || (share.segments > 1 && share.all != NOT_KNOWN &&
                    share.left > share.all - run->requests[section->request].quantity);
    const struct item *item = &run->items[section->item];
    return grew && item->unknown == 0 && !run->restocks_lost &&
                   section->at_ns[STAGE_WRITE] < item->restocked_ns
               ? "it left more than it had read, less what it sold"
               : NULL;
}

static void views_check_sales(struct run *run)
{
    const struct section *example = NULL;
    const char *why = NULL;
    long long count = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        const char *differs = section->sold ? sale_differs(run, section) : NULL;
        if (differs == NULL || count++ > 0)
            continue;
        example = section;
        why = differs;
    }
    if (count > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "%s: sales that contradict themselves: %lld, first that of request %.60s: %s",
                     run->histories[example->history].file, count,
                     run_request_id(run, example->request), why);
}

void check_views(struct run *run)
{
    views_check_sales(run);
    struct source outside = {.run = run, .file = "views disagree", .rank = RESULT_INCONCLUSIVE};
    struct source inside = {.run = run, .file = "views disagree", .rank = RESULT_INCOMPLETE};
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        const char *difference = outside_differs(run, request);
        if (difference != NULL)
            views_disagree(&outside, i, difference);
        difference = inside_differs(run, request);
        if (difference == NULL)
            difference = numbers_differ(run, request);
        if (difference != NULL)
            views_disagree(&inside, i, difference);
    }
    for (size_t i = 0; i < run->request_count; i++) {
        if (!run->all_told && run->requests[i].sent > 1)
            complain(&inside, 0,
                     "request %.60s was sent to %u instances by nginx, and not every history tells "
                     "whether its instance sold, too",
                     run_request_id(run, i), run->requests[i].sent);
    }
    source_close(&outside);
    source_close(&inside);
}
