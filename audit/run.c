/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "account.h"
#include "memory.h"
#include "menu.h"
#include "rules.h"
#include "tasks.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void run_init(struct run *run, const char *folder)
{
    memset(run, 0, sizeof *run);
    run->folder = folder;
    run->redis_commands = NOT_KNOWN;
    run->segments = 1;
    findings_init(&run->findings);
}

void run_free(struct run *run)
{
    cJSON_Delete(run->spec.json);
    for (size_t i = 0; i < run->history_count; i++)
        free(run->histories[i].file);
    for (size_t i = 0; i < run->item_count; i++) {
        free(run->items[i].unknowns);
        free(run->items[i].redis[BEFORE].locks);
        free(run->items[i].redis[AFTER].locks);
    }
    free(run->items);
    free(run->requests);
    free(run->replays);
    free(run->entries);
    free(run->takes);
    free(run->sections);
    free(run->again_ns);
    free(run->shares);
    free(run->parts);
    free(run->sales);
    free(run->marks);
    free(run->restocks);
    free(run->intents);
    free(run->latest_intent);
    free(run->by_lock);
    if (run->menu != NULL)
        menu_free(run->menu);
    if (run->tasks != NULL)
        tasks_free(run->tasks);
    if (run->account != NULL)
        account_free(run->account);
    names_free(&run->item_names);
    names_free(&run->request_ids);
    names_free(&run->keys);
    names_free(&run->buyers);
    names_free(&run->sale_ids);
    names_free(&run->restock_ids);
    names_free(&run->holds);
    names_free(&run->processes);
    names_free(&run->locks);
}

uint32_t run_request(struct run *run, const char *id)
{
    uint32_t number = names_find(&run->request_ids, id);
    if (number != NO_NAME)
        return number;
    if (run->request_count == REQUESTS_MAX)
        return NONE;
    names_add(&run->request_ids, id);
    run->requests = memory_grow(run->requests, run->request_count, &run->request_capacity,
                                sizeof *run->requests);
    run->requests[run->request_count] = (struct request){
        .client_unit = NOT_KNOWN,
        .client_left = NOT_KNOWN,
        .asked_item = NONE,
        .asked_quantity = NOT_KNOWN,
        .client_item = NONE,
        .client_instance = NONE,
        .item = NONE,
        .quantity = run->spec.quantity,
        .invoke_ns = NOT_STAMPED,
        .first_ns = NOT_STAMPED,
        .last_ns = NOT_STAMPED,
        .outcome_ns = NOT_STAMPED,
        .section = NONE,
        .key = NONE,
        .replay = NONE,
        .buyer = NONE,
        .entry = NONE,
    };
    return (uint32_t)run->request_count++;
}

uint32_t run_instance(const struct run *run, const char *name)
{
    for (size_t i = 0; i < run->spec.instance_count; i++) {
        if (strcmp(run->spec.instances[i], name) == 0)
            return (uint32_t)i;
    }
    return NONE;
}

uint32_t run_item(const struct run *run, const char *name)
{
    uint32_t number = names_find(&run->item_names, name);
    return number; /* NO_NAME is NONE */
}

/* Decodes %70 to p, and so on. False if a % is used in another way. */
static bool run_decode(char *name)
{
    char *to = name;
    for (const char *from = name; *from != '\0'; from++) {
        unsigned value = (unsigned char)*from;
        if (*from == '%' && (strspn(from + 1, "0123456789abcdefABCDEF") < 2 ||
                             sscanf(from + 1, "%2x", &value) != 1 || value == 0))
            return false;
        from += *from == '%' ? 2 : 0;
        *to++ = (char)value;
    }
    *to = '\0';
    return true;
}

struct wish run_wish(const struct run *run, const char *url)
{
    const struct rules *rules = run->rules;
    struct wish wish = {.item = NONE, .quantity = NOT_KNOWN};
    char name[256];
    const char *from = strstr(url, rules->path_head);
    if (from == NULL)
        return wish;
    from += strlen(rules->path_head);
    const char *to =
        rules->path_tail[0] != '\0' ? strstr(from, rules->path_tail) : from + strcspn(from, "/?");
    if (to == NULL || (size_t)(to - from) >= sizeof name)
        return wish;
    memcpy(name, from, (size_t)(to - from));
    name[to - from] = '\0';
    bool named = run_decode(name);
    wish.item = named ? run_item(run, name) : NONE;
    wish.elsewhere = named && wish.item == NONE;
    wish.quantity = rules->quantity_of != NULL ? rules->quantity_of(to) : NOT_KNOWN;
    return wish;
}

const char *run_request_id(const struct run *run, size_t request)
{
    return names_text(&run->request_ids, (uint32_t)request);
}

bool run_only_reads(const struct run *run, const struct section *section)
{
    return section->shared || run->requests[section->request].reads;
}

struct share run_share(const struct run *run, const struct section *section)
{
    if (run->shares != NULL)
        return run->shares[section - run->sections];
    return (struct share){
        .all = NOT_KNOWN, .left = NOT_KNOWN, .segments = 1, .segment = 1, .part = 1, .parts = 1};
}

int64_t run_read_all(const struct run *run, const struct section *section)
{
    const struct share share = run_share(run, section);
    return share.segments > 1 ? share.all : section->stock_before;
}

int64_t run_told_left(const struct run *run, const struct section *section)
{
    const struct share share = run_share(run, section);
    return share.segments > 1 ? share.left : section->stock_after;
}

int64_t run_level(int64_t units, uint8_t segments, uint8_t segment)
{
    return units < segment ? 0 : (units - segment) / segments + 1;
}

int64_t run_missing_parts(const struct run *run, const struct request *request)
{
    int64_t rest = request->quantity;
    int sold = 0, parts = 0;
    for (size_t i = request->section; i != NONE; i = run->sections[i].next) {
        const struct section *section = &run->sections[i];
        if (!section->sold)
            continue;
        const struct share share = run_share(run, section);
        parts = share.parts > parts ? share.parts : parts;
        rest -= section->quantity;
        sold++;
    }
    return sold > 0 && sold < parts && rest > 0 ? rest : 0;
}

int64_t run_again_ns(const struct run *run, const struct section *section)
{
    return section->again == NONE ? NOT_STAMPED : run->again_ns[section->again];
}

static bool run_is_timed_in(const struct run *run, const struct request *request,
                            size_t history_index)
{
    const struct history *history = &run->histories[history_index];
    bool was_seen = request->sampled && !request->reads && !request->transport_error;
    return history->timed && !request->mistimed && (was_seen || !history->clock_disputed);
}

bool run_is_request_timed(const struct run *run, const struct request *request)
{
    return run_is_timed_in(run, request, request->history);
}

bool run_is_timed(const struct run *run, const struct section *section)
{
    return run_is_timed_in(run, &run->requests[section->request], section->history);
}

size_t run_untimed(const struct run *run)
{
    size_t count = 0;
    for (size_t i = 0; i < run->by_lock_count; i++)
        count += !run_is_timed(run, run->by_lock[i]);
    return count;
}

double run_ms(const struct run *run, int64_t t_ns)
{
    /* Subtracted as integers, because a double cannot hold every time exactly. */
    return (double)(t_ns - run->start_ns) / 1e6;
}

/* A section without an exit certainly lasted until its hold's last record. If its process was
 * killed inside it, it lasted as long as the process is known to have lived. That is known only if
 * no record is missing, and no client saw another time. */
static int64_t end_of(const struct run *run, const struct section *section)
{
    const struct history *history = &run->histories[section->history];
    if (section->at_ns[STAGE_EXIT] != NOT_STAMPED)
        return section->at_ns[STAGE_EXIT];
    if (!history->ended && !history->damaged && !history->clock_disputed)
        return history->last_ns;
    return section->at_ns[section->stage];
}

bool run_was_killed(const struct run *run, const struct section *section)
{
    return section->at_ns[STAGE_EXIT] == NOT_STAMPED && !run->histories[section->history].ended;
}

int64_t run_death_ns(const struct run *run, const struct history *history)
{
    for (size_t i = 0; i < run->spec.seen_count; i++) {
        const struct seen *seen = &run->spec.seen[i];
        if (seen->killed != NONE && seen->killed == history->instance &&
            seen->t_ns >= history->last_ns)
            return seen->t_ns;
    }
    return history->last_ns;
}

int64_t run_shown_end_ns(const struct run *run, const struct section *section)
{
    const struct history *history = &run->histories[section->history];
    return run_was_killed(run, section) && section->ended_ns == history->last_ns
               ? run_death_ns(run, history)
               : section->ended_ns;
}

static int by_lock(const void *a, const void *b)
{
    const struct section *one = *(const struct section *const *)a;
    const struct section *two = *(const struct section *const *)b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    if (one->at_ns[STAGE_ENTER] != two->at_ns[STAGE_ENTER])
        return one->at_ns[STAGE_ENTER] < two->at_ns[STAGE_ENTER] ? -1 : 1;
    if (one->ended_ns != two->ended_ns)
        return one->ended_ns < two->ended_ns ? -1 : 1;
    if (one->shared != two->shared)
        return one->shared ? 1 : -1;
    return (one > two) - (one < two);
}

/* Finds the first and last event of all requests, and the first event of a request to buy. */
static void find_span(struct run *run)
{
    bool any = false;
    run->sales_ns = INT64_MAX;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (request->last_ns == NOT_STAMPED)
            continue;
        int64_t first = request->invoke_ns != NOT_STAMPED ? request->invoke_ns : request->last_ns;
        if (!any || first < run->start_ns)
            run->start_ns = first;
        if (!request->reads && first < run->sales_ns)
            run->sales_ns = first;
        if (!any || request->last_ns > run->end_ns)
            run->end_ns = request->last_ns;
        if (request->taken && request->outcome_ns > run->end_ns)
            run->end_ns = request->outcome_ns;
        any = true;
    }
}

bool run_tells_all(const struct run *run, uint32_t instance, bool must_end)
{
    bool told = false;
    for (size_t i = 0; i < run->history_count; i++) {
        const struct history *history = &run->histories[i];
        if (history->instance != instance && history->instance != NONE)
            continue; /* NONE: it may belong to this instance */
        if (history->damaged || (must_end && !history->ended))
            return false;
        told |= history->instance == instance;
    }
    return told;
}

bool run_all_told(const struct run *run, bool must_end)
{
    for (uint32_t i = 0; i < run->spec.instance_count; i++) {
        if (!run_tells_all(run, i, must_end))
            return false;
    }
    return true;
}

/* Whether it was rejected before an instance: by nginx, or with a code that no instance gives a
 * buyer. */
static bool run_was_rejected(const struct request *request)
{
    if (request->accepted || !request->sampled || request->transport_error ||
        request->client_code < 400)
        return false;
    return (request->proxied && request->sent == 0) ||
           (request->client_code < 500 && request->client_code != 409);
}

void run_find_rejected(struct run *run)
{
    for (size_t i = 0; i < run->request_count; i++) {
        struct request *request = &run->requests[i];
        if (!request->accepted)
            request->item =
                request->client_item != NONE ? request->client_item : request->asked_item;
        if (run_was_rejected(request)) {
            request->outcome = OUTCOME_REJECTED;
            request->outcome_ns = run->end_ns;
            request->code = request->client_code;
        }
    }
}

void run_settle(struct run *run)
{
    run->all_told = run_all_told(run, true);
    find_span(run);
    run->rules->settle(run);
    run->by_lock = memory_new(run->section_count, sizeof *run->by_lock);
    for (size_t i = 0; i < run->section_count; i++) {
        struct section *section = &run->sections[i];
        if (section->at_ns[STAGE_ENTER] == NOT_STAMPED || section->lock == NO_NAME)
            continue;
        section->ended_ns = end_of(run, section);
        if (section->ended_ns < section->at_ns[STAGE_ENTER])
            section->ended_ns = section->at_ns[STAGE_ENTER];
        run->by_lock[run->by_lock_count++] = section;
    }
    qsort(run->by_lock, run->by_lock_count, sizeof *run->by_lock, by_lock);
}
