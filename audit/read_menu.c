/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a menu: looks into the cache, queries of the database, what
 * was filled in, changed and deleted, and answers.
 */
#include "memory.h"
#include "menu.h"

#include <string.h>

static const struct visit fresh = {
    .version = NOT_KNOWN,
    .found = NOT_KNOWN,
    .query = NONE,
    .update = NONE,
};

struct visit menu_visit(const struct run *run, size_t request)
{
    return request < run->menu->visit_count ? run->menu->visits[request] : fresh;
}

static struct visit *visit_of(struct run *run, uint32_t request)
{
    struct menu *menu = run->menu;
    while (menu->visit_count <= request) {
        menu->visits = memory_grow(menu->visits, menu->visit_count, &menu->visit_capacity,
                                   sizeof *menu->visits);
        menu->visits[menu->visit_count++] = fresh;
    }
    return &menu->visits[request];
}

bool menu_invoked(struct reader *reader, struct record *record, uint32_t item)
{
    const char *does = NULL;
    if (!json_text(record->json, "does", JSON_REQUIRED, &does, record->error))
        return false;
    reader->run->requests[record->request].item = item;
    struct visit *visit = visit_of(reader->run, record->request);
    visit->updates = strcmp(does, "update") == 0;
    if (visit->updates || strcmp(does, "read") == 0)
        return true;
    snprintf(record->error, sizeof record->error,
             "\"does\" is \"%.40s\"; it must be read or update", does);
    return false;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

static bool read_version(struct record *record, int64_t *version)
{
    return json_int(record->json, "version", JSON_REQUIRED, 0, JSON_EXACT_MAX, version,
                    record->error);
}

/* ---- A reader -------------------------------------------------------------------------------- */

static bool read_look(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct menu *menu = run->menu;
    bool hit = false;
    int64_t version = NO_HIT;
    if (!json_bool(record->json, "hit", JSON_REQUIRED, &hit, record->error) ||
        (hit && !read_version(record, &version)))
        return false;
    if (hit || visit_of(run, record->request)->found == NOT_KNOWN)
        visit_of(run, record->request)->found = version;
    if (!hit)
        return true;
    menu->looks =
        memory_grow(menu->looks, menu->look_count, &menu->look_capacity, sizeof *menu->looks);
    menu->looks[menu->look_count++] =
        (struct look){record->request, run->requests[record->request].item, record->t_ns, version};
    return true;
}

static bool read_query(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct menu *menu = run->menu;
    uint32_t section = NONE;
    if (visit_of(run, record->request)->query != NONE) {
        snprintf(record->error, sizeof record->error,
                 "request %.60s asks the database a second time; it must ask once",
                 run_request_id(run, record->request));
        return false;
    }
    if (!read_section(reader, record, &section))
        return false;
    menu->queries =
        memory_grow(menu->queries, menu->query_count, &menu->query_capacity, sizeof *menu->queries);
    visit_of(run, record->request)->query = (uint32_t)menu->query_count;
    menu->queries[menu->query_count++] = (struct query){
        .request = record->request,
        .item = run->requests[record->request].item,
        .section = section,
        .history = reader->index,
        .t_ns = record->t_ns,
        .queried_ns = NOT_STAMPED,
        .version = NOT_KNOWN,
        .sent_ns = NOT_STAMPED,
        .filled_ns = NOT_STAMPED,
        .refused_ns = NOT_STAMPED,
    };
    return true;
}

/* The query that the line goes on with. It must have been answered if `answered`, and not if not;
 * and it must have no end. */
static struct query *query_of(struct reader *reader, struct record *record, bool answered)
{
    const uint32_t number = visit_of(reader->run, record->request)->query;
    struct query *query = number == NONE ? NULL : &reader->run->menu->queries[number];
    if (query != NULL && query->history == reader->index &&
        (query->queried_ns != NOT_STAMPED) == answered && query->filled_ns == NOT_STAMPED &&
        query->refused_ns == NOT_STAMPED)
        return query;
    snprintf(record->error, sizeof record->error,
             "%s right behind no %s; the order must be query, "
             "queried, filled or fill_refused",
             events[record->event].name, answered ? "queried" : "query");
    return NULL;
}

static bool read_queried(struct reader *reader, struct record *record)
{
    struct query *query = query_of(reader, record, false);
    if (query == NULL || !read_version(record, &query->version))
        return false;
    query->queried_ns = record->t_ns;
    return true;
}

static bool read_fill(struct reader *reader, struct record *record)
{
    struct query *query = query_of(reader, record, true);
    int64_t version = 0, sent_ns = 0, cache_ms = 0;
    const int64_t wanted_ms = reader->run->menu->cache_ms;
    uint32_t section = NONE;
    if (query == NULL || !read_version(record, &version) ||
        !read_sent(reader, record, query->queried_ns, &sent_ns) ||
        !json_int(record->json, "cache_ms", JSON_REQUIRED, wanted_ms, wanted_ms, &cache_ms,
                  record->error) ||
        !read_section(reader, record, &section))
        return false;
    query->sent_ns = sent_ns;
    query->filled_ns = record->t_ns;
    query->lives_ns = cache_ms * 1000000;
    if (section != NONE)
        reader->run->sections[section].filled = true;
    if (version == query->version && section == query->section)
        return true;
    snprintf(record->error, sizeof record->error,
             "it filled in version %lld%s, and its database told version %lld; both must be those "
             "of its query",
             (long long)version, section == query->section ? "" : " under another hold",
             (long long)query->version);
    return false;
}

static bool read_fill_refused(struct reader *reader, struct record *record)
{
    struct query *query = query_of(reader, record, true);
    if (query == NULL)
        return false;
    query->refused_ns = record->t_ns;
    reader->run->counts.token_refusals++;
    return true;
}

/* ---- An update ------------------------------------------------------------------------------- */

static bool read_updated(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct menu *menu = run->menu;
    struct visit *visit = visit_of(run, record->request);
    int64_t version = 0;
    if (!read_version(record, &version))
        return false;
    if (!visit->updates || visit->update != NONE) {
        snprintf(record->error, sizeof record->error,
                 "updated by a request that only reads, or twice; it must be once, by an update");
        return false;
    }
    menu->updates = memory_grow(menu->updates, menu->update_count, &menu->update_capacity,
                                sizeof *menu->updates);
    visit->update = (uint32_t)menu->update_count;
    menu->updates[menu->update_count++] = (struct update){
        record->request, run->requests[record->request].item, record->t_ns, version};
    return true;
}

static bool read_deleted(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct menu *menu = run->menu;
    struct visit *visit = visit_of(run, record->request);
    int64_t version = 0, sent_ns = 0;
    uint32_t section = NONE;
    if (visit->update == NONE || visit->deleted) {
        snprintf(record->error, sizeof record->error,
                 "deleted right behind no updated; the order must be updated, deleted");
        return false;
    }
    const struct update *update = &menu->updates[visit->update];
    if (!read_version(record, &version) || !read_sent(reader, record, update->t_ns, &sent_ns) ||
        !read_section(reader, record, &section))
        return false;
    visit->deleted = true;
    menu->deletions = memory_grow(menu->deletions, menu->deletion_count, &menu->deletion_capacity,
                                  sizeof *menu->deletions);
    menu->deletions[menu->deletion_count++] = (struct deletion){
        .request = record->request,
        .item = update->item,
        .section = section,
        .history = reader->index,
        .sent_ns = sent_ns,
        .t_ns = record->t_ns,
    };
    if (version == update->version)
        return true;
    snprintf(record->error, sizeof record->error,
             "deleted for version %lld, and its request updated to version %lld; they must be the "
             "same",
             (long long)version, (long long)update->version);
    return false;
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* Which version the request must tell, by its own lines; NOT_KNOWN if it may tell none. */
static int64_t told_version(const struct menu *menu, const struct visit *visit)
{
    if (visit->updates)
        return visit->update == NONE ? NOT_KNOWN : menu->updates[visit->update].version;
    if (visit->from_cache)
        return visit->found == NO_HIT ? NOT_KNOWN : visit->found;
    return visit->query == NONE ? NOT_KNOWN : menu->queries[visit->query].version;
}

static bool read_answer(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct request *request = &run->requests[record->request];
    struct visit *visit = visit_of(run, record->request);
    const char *from = "database";
    int64_t code = 0, version = 0;
    if (!json_int(record->json, "code", JSON_REQUIRED, 200, 299, &code, record->error) ||
        !read_version(record, &version) ||
        !json_text(record->json, "from", visit->updates ? JSON_OPTIONAL : JSON_REQUIRED, &from,
                   record->error))
        return false;
    visit->from_cache = strcmp(from, "cache") == 0;
    visit->version = version;
    set_outcome(reader, record, OUTCOME_ANSWERED);
    request->code = (int16_t)code;
    visit->denied = true; /* until its lines agree */
    if (visit->updates && visit->update != NONE && !visit->deleted) {
        snprintf(record->error, sizeof record->error,
                 "an update is answered, and deleted nothing; its deleted must come first");
        return false;
    }
    if (!visit->from_cache && visit->query != NONE &&
        run->menu->queries[visit->query].queried_ns == NOT_STAMPED) {
        snprintf(record->error, sizeof record->error,
                 "request %.60s is answered, and its query is not; its queried must come first",
                 run_request_id(run, record->request));
        return false;
    }
    const int64_t told = told_version(run->menu, visit);
    visit->denied = told != version || !(visit->from_cache || strcmp(from, "database") == 0);
    if (!visit->denied)
        return true;
    snprintf(
        record->error, sizeof record->error,
        "request %.60s answers version %lld from \"%.20s\", and its own lines do not tell that "
        "version of it; they must",
        run_request_id(run, record->request), (long long)version, from);
    return false;
}

void menu_read_event(struct reader *reader, struct record *record)
{
    static bool (*const read[EVENT_COUNT])(struct reader *, struct record *) = {
        [EVENT_looked] = read_look,
        [EVENT_query] = read_query,
        [EVENT_queried] = read_queried,
        [EVENT_filled] = read_fill,
        [EVENT_fill_refused] = read_fill_refused,
        [EVENT_updated] = read_updated,
        [EVENT_deleted] = read_deleted,
        [EVENT_answered] = read_answer,
    };
    if (!read[record->event](reader, record))
        wrong(reader, record);
}
