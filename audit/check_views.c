/* SPDX-License-Identifier: Apache-2.0
 *
 * Views: for every request, the client, nginx and the instance say the same. Where they do not, one
 * of the records is wrong and nothing can be concluded. A client that got no answer says nothing.
 */
#include "check.h"
#include "source.h"

#include <stdio.h>

/* What the client and nginx say about a request that an instance accepted. */
static const char *server_differs(const struct request *request)
{
    if (request->outcome == OUTCOME_NONE)
        return NULL; /* check_complete's */
    if (request->client_code != request->code)
        return "the instance's history says that it answered something else";
    if (request->outcome != OUTCOME_SOLD)
        return NULL;
    if (request->client_instance != request->instance)
        return "another instance's history has the sale";
    if (request->client_item != request->item)
        return "the instance's history has a sale of another item";
    return NULL;
}

/* A sentence, or NULL when all agree. */
static const char *differs(const struct run *run, const struct request *request)
{
    if (request->reads)
        return NULL; /* the other views tell of sales */
    if (request->samples == 0)
        return "it is not in sale.jtl, though nginx or an instance saw it";
    if (request->transport_error)
        return NULL;
    if (run->nginx_read && request->proxied == 0)
        return "it is not in nginx.log, though the client got an answer";
    if (run->nginx_read && request->nginx_status != request->client_code)
        return "nginx.log says that it was answered with another code";
    if (request->called_failed && request->client_code == 200)
        return "JMeter calls its answer failed (success is false)";
    if (request->invokes > 0)
        return server_differs(request);
    if (request->client_code < 400 || request->client_code == 409 || request->client_code >= 500)
        return "no instance's history has it";
    return NULL; /* turned away at the door: not a sale */
}

static const char *numbers_differ(const struct run *run, const struct request *request)
{
    if (request->samples == 0 || request->transport_error || request->outcome != OUTCOME_SOLD)
        return NULL;
    for (size_t i = request->section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (!section->sold)
            continue;
        if (section->unit != request->client_unit)
            return "the instance's history says that another unit was sold";
        if (section->stock_after != request->client_left)
            return "the instance's history says that another number was left";
    }
    return NULL;
}

void check_views(struct run *run)
{
    struct source views = {.run = run, .file = "views disagree"};
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        const char *difference = differs(run, request);
        if (difference == NULL)
            difference = numbers_differ(run, request);
        if (difference != NULL)
            complain(&views, 0, "request %.60s, code %d to the client: %s", run_request_id(run, i),
                     request->client_code, difference);
    }
    source_close(&views);
}
