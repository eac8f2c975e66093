/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of a menu. A query covers its menu from its own time until the cache has lost what
 * it filled in. So it covers until the time to live is over, counted from before the fill was
 * sent. If it filled in nothing, it covers until its section or request ended, its process died,
 * or the fence refused it. Another query meanwhile is not needed, with two exceptions. The menu
 * was deleted: a deletion explains one query. And with early refresh one query at a time may
 * come before the end.
 */
#include "check.h"
#include "memory.h"
#include "menu.h"

#include <stdlib.h>

/* ---- What ended each query ------------------------------------------------------------------- */

static int64_t menu_min(int64_t one, int64_t two)
{
    return one < two ? one : two;
}

/* A grant with a token. earliest_ns: the earliest of it and of all newer tokens of the lock. */
struct given {
    uint32_t lock;
    int64_t token;
    int64_t granted_ns;
    int64_t earliest_ns;
};

static int by_given(const void *a, const void *b)
{
    const struct given *one = a;
    const struct given *two = b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    return (one->token > two->token) - (one->token < two->token);
}

/* All tokens that were given, sorted. */
static struct given *menu_tokens(const struct run *run, size_t *count)
{
    struct given *given = memory_new(run->section_count, sizeof *given);
    *count = 0;
    for (size_t i = 0; i < run->section_count; i++) {
        const struct section *section = &run->sections[i];
        if (section->token > 0 && section->lock != NO_NAME)
            given[(*count)++] = (struct given){.lock = section->lock,
                                               .token = section->token,
                                               .granted_ns = section->at_ns[STAGE_GRANTED]};
    }
    qsort(given, *count, sizeof *given, by_given);
    for (size_t i = *count; i-- > 0;) {
        given[i].earliest_ns = given[i].granted_ns;
        if (i + 1 < *count && given[i + 1].lock == given[i].lock)
            given[i].earliest_ns = menu_min(given[i].earliest_ns, given[i + 1].earliest_ns);
    }
    return given;
}

/* When the first newer token of the section's lock was given; INT64_MAX: never. */
static int64_t newer_ns(const struct given *given, size_t count, const struct section *section)
{
    size_t from = 0;
    size_t to = count;
    const struct given wanted = {.lock = section->lock, .token = section->token};
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_given(&given[middle], &wanted) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < count && given[from].lock == section->lock ? given[from].earliest_ns : INT64_MAX;
}

/* The end of a query that filled in nothing. If its request left its section, it gives up, whenever
 * it is answered. Where the cache compares tokens, it cannot fill once a newer token is given. */
static int64_t unfilled_end_ns(const struct run *run, const struct query *query,
                               const struct given *given, size_t count)
{
    const struct history *history = &run->histories[query->history];
    const struct request *request = &run->requests[query->request];
    int64_t end_ns = history->ended ? INT64_MAX : history->last_ns;
    if (query->refused_ns != NOT_STAMPED)
        end_ns = menu_min(end_ns, query->refused_ns);
    if (request->outcome_ns != NOT_STAMPED)
        end_ns = menu_min(end_ns, request->outcome_ns);
    if (query->section != NONE) {
        const struct section *section = &run->sections[query->section];
        if (section->at_ns[STAGE_EXIT] != NOT_STAMPED)
            end_ns = menu_min(end_ns, section->at_ns[STAGE_EXIT]);
        if (is_fenced(run) && section->token > 0)
            end_ns = menu_min(end_ns, newer_ns(given, count, section));
    }
    return end_ns == INT64_MAX ? query->t_ns : end_ns; /* check_complete reports the missing end */
}

static void find_ends(struct run *run)
{
    size_t count = 0;
    struct given *given = menu_tokens(run, &count);
    for (size_t i = 0; i < run->menu->query_count; i++) {
        struct query *query = &run->menu->queries[i];
        query->ends_ns = query->filled_ns != NOT_STAMPED
                             ? query->sent_ns + query->lives_ns
                             : unfilled_end_ns(run, query, given, count);
    }
    free(given);
}

/* ---- STAMPEDE -------------------------------------------------------------------------------- */

/* Until when the query is open: nobody else can find its answer in the cache before. */
static int64_t open_until_ns(const struct query *query)
{
    return query->filled_ns != NOT_STAMPED ? query->filled_ns : query->ends_ns;
}

/* Of two that began at once, the one that was open for less time may have come first. */
static int by_item_time(const void *a, const void *b)
{
    const struct query *one = *(const struct query *const *)a;
    const struct query *two = *(const struct query *const *)b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->t_ns != two->t_ns)
        return one->t_ns < two->t_ns ? -1 : 1;
    if (open_until_ns(one) != open_until_ns(two))
        return open_until_ns(one) < open_until_ns(two) ? -1 : 1;
    if (one->ends_ns != two->ends_ns)
        return one->ends_ns < two->ends_ns ? -1 : 1;
    return (one > two) - (one < two);
}

static int by_item_sent(const void *a, const void *b)
{
    const struct deletion *one = a;
    const struct deletion *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->sent_ns != two->sent_ns)
        return one->sent_ns < two->sent_ns ? -1 : 1;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

/* The covers of one item at the time of a query. */
struct covers {
    uint32_t item;
    struct query **asking; /* those that have not filled the cache yet */
    size_t asking_count;
    const struct query *filled; /* of the others, the one that ends last; NULL */
    size_t deletion;            /* index of the item's first one */
};

static void covers_go_on(struct covers *covers, int64_t now_ns)
{
    size_t kept = 0;
    for (size_t i = 0; i < covers->asking_count; i++) {
        struct query *query = covers->asking[i];
        if (open_until_ns(query) > now_ns)
            covers->asking[kept++] = query;
        else if (query->filled_ns != NOT_STAMPED &&
                 (covers->filled == NULL || covers->filled->ends_ns < query->ends_ns))
            covers->filled = query;
    }
    covers->asking_count = kept;
    if (covers->filled != NULL && covers->filled->ends_ns <= now_ns)
        covers->filled = NULL;
}

/* Why nobody need ask now. from_ns: a deletion that was over before then explains nothing. */
struct cover {
    const struct query *query; /* NULL: nobody has asked */
    int64_t from_ns;
};

/* Whether a reader may fill the cache anew, before its menu is lost. PTTL counts whole
 * milliseconds, so it may come up to one early. */
static bool is_refresh(const struct menu *menu, const struct query *filled, int64_t now_ns)
{
    return menu->refresh_ms > 0 && now_ns >= filled->ends_ns - (menu->refresh_ms + 1) * 1000000;
}

/* Of several covers, the one that the least deletions end: the last to ask, or the last to fill. */
static struct cover covers_find(const struct menu *menu, const struct covers *covers,
                                int64_t now_ns)
{
    struct cover found = {.query = NULL};
    if (covers->asking_count > 0) { /* they are in the order of their times */
        const struct query *last = covers->asking[covers->asking_count - 1];
        found = (struct cover){last, last->t_ns};
    }
    if (covers->filled != NULL && !is_refresh(menu, covers->filled, now_ns) &&
        (found.query == NULL || covers->filled->sent_ns > found.from_ns))
        found = (struct cover){covers->filled, covers->filled->sent_ns};
    return found;
}

/* Whether the menu was deleted, or may have been, since the cover. That uses up the deletion; of
 * several, the one that can explain the fewest others. */
static bool was_deleted(struct menu *menu, struct covers *covers, int64_t from_ns, int64_t now_ns)
{
    struct deletion *found = NULL;
    for (size_t i = covers->deletion; i < menu->deletion_count; i++) {
        struct deletion *deletion = &menu->deletions[i];
        if (deletion->item != covers->item || deletion->sent_ns > now_ns)
            break;
        if (!deletion->used && deletion->t_ns >= from_ns &&
            (found == NULL || deletion->t_ns < found->t_ns))
            found = deletion;
    }
    if (found == NULL)
        return false;
    found->used = true;
    covers->filled = NULL;
    return true;
}

static bool lines_may_be_missing(const struct run *run)
{
    return run->truncated || !run_all_told(run, false);
}

static void tell_stampede(struct run *run, const struct query *query, const struct query *cover)
{
    char until[80];
    if (cover->filled_ns != NOT_STAMPED && cover->filled_ns <= query->t_ns)
        snprintf(until, sizeof until, "and filled the cache with it until %.3f ms at least",
                 run_ms(run, cover->ends_ns));
    else
        snprintf(until, sizeof until, "and its query was still open");
    findings_add(&run->findings, RESULT_STAMPEDE,
                 "queries of the database that were not needed: %lld of %lld; first: request "
                 "%.60s on %.40s asked for %.80s at %.3f ms, but request %.60s on %.40s had asked "
                 "at %.3f ms, %s",
                 (long long)run->menu->extra, (long long)run->menu->query_count,
                 run_request_id(run, query->request),
                 run->spec.instances[run->requests[query->request].instance],
                 run->items[query->item].name, run_ms(run, query->t_ns),
                 run_request_id(run, cover->request),
                 run->spec.instances[run->requests[cover->request].instance],
                 run_ms(run, cover->t_ns), until);
}

/* A request without an end, though its process lived on: one of its lines is missing or wrong, and
 * none of them proves anything. */
static bool is_endless(const struct run *run, const struct request *request)
{
    return request->outcome == OUTCOME_NONE && run->histories[request->history].ended;
}

/* The queries that prove something, by item and time. */
static struct query **sort_queries(const struct run *run, size_t *count)
{
    const struct menu *menu = run->menu;
    struct query **list = memory_new(menu->query_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < menu->query_count; i++) {
        struct query *query = &menu->queries[i];
        const struct request *request = &run->requests[query->request];
        if (query->item != NONE && run_is_request_timed(run, request) && !is_endless(run, request))
            list[(*count)++] = query;
    }
    qsort(list, *count, sizeof *list, by_item_time);
    return list;
}

static void covers_begin(const struct menu *menu, struct covers *covers, uint32_t item)
{
    covers->item = item;
    covers->asking_count = 0;
    covers->filled = NULL;
    while (covers->deletion < menu->deletion_count && menu->deletions[covers->deletion].item < item)
        covers->deletion++;
}

static void check_queries(struct run *run)
{
    struct menu *menu = run->menu;
    const struct query *first[2] = {NULL, NULL};
    size_t count = 0;
    struct query **queries = sort_queries(run, &count);
    struct covers covers = {.item = NONE, .asking = memory_new(count, sizeof *covers.asking)};
    if (menu->deletion_count > 0) /* otherwise there is no array */
        qsort(menu->deletions, menu->deletion_count, sizeof *menu->deletions, by_item_sent);
    for (size_t i = 0; i < count; i++) {
        struct query *query = queries[i];
        if (covers.item != query->item)
            covers_begin(menu, &covers, query->item);
        covers_go_on(&covers, query->t_ns);
        const struct cover cover = covers_find(menu, &covers, query->t_ns);
        if (cover.query != NULL && !was_deleted(menu, &covers, cover.from_ns, query->t_ns)) {
            query->extra = true;
            menu->extra++;
            if (first[0] == NULL || query->t_ns < first[0]->t_ns) {
                first[0] = query;
                first[1] = cover.query;
            }
        }
        covers.asking[covers.asking_count++] = query;
    }
    free(covers.asking);
    free(queries);
    menu->needed = (int64_t)menu->query_count - menu->extra;
    if (first[0] == NULL || lines_may_be_missing(run))
        return;
    tell_stampede(run, first[0], first[1]);
    if (first[0]->section != NONE && first[1]->section != NONE)
        run->shown = (struct collision){&run->sections[first[1]->section],
                                        &run->sections[first[0]->section]};
}

/* ---- STALE ----------------------------------------------------------------------------------- */

/* Whether another line, or its client, contradicts what the request answered. Then it proves
 * nothing. */
static bool is_denied(const struct run *run, size_t number)
{
    const struct request *request = &run->requests[number];
    const struct visit visit = menu_visit(run, number);
    const bool told = request->sampled && !request->transport_error;
    return visit.denied || request->accepted_twice ||
           (told &&
            (request->client_code != request->code || request->client_version != visit.version ||
             request->client_item != request->item));
}

/* An update that was answered. newest: the number of the one with the newest version so far. */
struct done {
    uint32_t item;
    uint32_t request;
    int64_t t_ns;
    int64_t version;
    size_t newest;
};

static int by_done(const void *a, const void *b)
{
    const struct done *one = a;
    const struct done *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

static struct done *find_done(struct run *run, size_t *count)
{
    struct menu *menu = run->menu;
    struct done *done = memory_new(menu->update_count, sizeof *done);
    *count = 0;
    for (size_t i = 0; i < menu->update_count; i++) {
        const struct update *update = &menu->updates[i];
        const struct request *request = &run->requests[update->request];
        if (request->outcome != OUTCOME_ANSWERED)
            continue;
        menu->updated++;
        if (!is_denied(run, update->request) && update->item != NONE &&
            run_is_request_timed(run, request))
            done[(*count)++] = (struct done){.item = update->item,
                                             .request = update->request,
                                             .t_ns = request->outcome_ns,
                                             .version = update->version};
    }
    qsort(done, *count, sizeof *done, by_done);
    for (size_t i = 0; i < *count; i++) {
        const bool goes_on = i > 0 && done[i].item == done[i - 1].item &&
                             done[done[i - 1].newest].version > done[i].version;
        done[i].newest = goes_on ? done[i - 1].newest : i;
    }
    return done;
}

/* The newest of the item's updates that were answered before that time; NULL: none. */
static const struct done *newest_before(const struct done *done, size_t count, uint32_t item,
                                        int64_t t_ns)
{
    const struct done wanted = {.item = item, .t_ns = t_ns};
    size_t from = 0;
    size_t to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_done(&done[middle], &wanted) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from > 0 && done[from - 1].item == item ? &done[done[from - 1].newest] : NULL;
}

static void tell_stale(struct run *run, const struct request *request, const struct done *done)
{
    const size_t number = (size_t)(request - run->requests);
    const struct visit visit = menu_visit(run, number);
    findings_add(
        &run->findings, RESULT_STALE,
        "answers with an old menu: %lld; first: request %.60s on %.40s came at %.3f ms and "
        "got version %lld of %.80s from the %s. Request %.60s had updated it to version "
        "%lld before, and was told so at %.3f ms",
        (long long)run->menu->stale, run_request_id(run, number),
        run->spec.instances[request->instance], run_ms(run, request->invoke_ns),
        (long long)visit.version, run->items[request->item].name,
        visit.from_cache ? "cache" : "database", run_request_id(run, done->request),
        (long long)done->version, run_ms(run, done->t_ns));
}

static void check_answers(struct run *run)
{
    size_t count = 0;
    struct done *done = find_done(run, &count);
    const struct request *first = NULL;
    const struct done *newer = NULL;
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        const struct visit visit = menu_visit(run, i);
        if (request->outcome != OUTCOME_ANSWERED || visit.updates || request->item == NONE ||
            request->invoke_ns == NOT_STAMPED || !run_is_request_timed(run, request) ||
            is_denied(run, i))
            continue;
        const struct done *newest = newest_before(done, count, request->item, request->invoke_ns);
        if (newest == NULL || newest->version <= visit.version)
            continue;
        run->menu->stale++;
        run->menu->visits[i].stale = true;
        if (first == NULL || request->outcome_ns < first->outcome_ns) {
            first = request;
            newer = newest;
        }
    }
    if (first != NULL)
        tell_stale(run, first, newer);
    free(done);
}

/* ---- Fills with an old token ----------------------------------------------------------------- */

/* What a holder of a token did to the cache, at some time from sent_ns to t_ns. */
struct act {
    uint32_t lock;
    uint32_t request;
    int64_t sent_ns;
    int64_t t_ns;
    int64_t token;
};

static int by_act(const void *a, const void *b)
{
    const struct act *one = a;
    const struct act *two = b;
    if (one->lock != two->lock)
        return one->lock < two->lock ? -1 : 1;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

static void add_act(const struct run *run, struct act *acts, size_t *count, uint32_t section,
                    uint32_t request, int64_t sent_ns, int64_t t_ns)
{
    if (section == NONE || run->sections[section].token == 0 ||
        run->sections[section].lock == NO_NAME || t_ns == NOT_STAMPED || t_ns == INT64_MAX ||
        !run_is_timed(run, &run->sections[section]))
        return;
    acts[(*count)++] = (struct act){.lock = run->sections[section].lock,
                                    .request = request,
                                    .sent_ns = sent_ns,
                                    .t_ns = t_ns,
                                    .token = run->sections[section].token};
}

static struct act *find_acts(const struct run *run, size_t *count)
{
    const struct menu *menu = run->menu;
    struct act *acts = memory_new(menu->query_count + menu->deletion_count, sizeof *acts);
    *count = 0;
    for (size_t i = 0; i < menu->query_count; i++)
        add_act(run, acts, count, menu->queries[i].section, menu->queries[i].request,
                menu->queries[i].sent_ns, menu->queries[i].filled_ns);
    for (size_t i = 0; i < menu->deletion_count; i++)
        add_act(run, acts, count, menu->deletions[i].section, menu->deletions[i].request,
                menu->deletions[i].sent_ns, menu->deletions[i].t_ns);
    qsort(acts, *count, sizeof *acts, by_act);
    return acts;
}

/* The first act with a newer token than the section's that began after the query and was over
 * before its fill was sent: the fill is older than it. What was done before the query does no harm:
 * the database told what was there since. NULL: there is none. */
static const struct act *act_between(const struct act *acts, size_t count,
                                     const struct query *query, const struct section *section)
{
    const struct act wanted = {.lock = section->lock, .t_ns = query->t_ns};
    size_t from = 0;
    size_t to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_act(&acts[middle], &wanted) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    for (size_t i = from;
         i < count && acts[i].lock == section->lock && acts[i].t_ns < query->sent_ns; i++)
        if (acts[i].token > section->token && acts[i].sent_ns > query->t_ns)
            return &acts[i];
    return NULL;
}

static void check_fills(struct run *run)
{
    const struct menu *menu = run->menu;
    size_t count = 0;
    struct act *acts = find_acts(run, &count);
    const struct query *first = NULL;
    const struct act *newer = NULL;
    long long times = 0;
    for (size_t i = 0; i < menu->query_count; i++) {
        const struct query *query = &menu->queries[i];
        if (query->filled_ns == NOT_STAMPED || query->section == NONE)
            continue;
        const struct section *section = &run->sections[query->section];
        if (section->token == 0 || section->lock == NO_NAME || !run_is_timed(run, section))
            continue;
        const struct act *act = act_between(acts, count, query, section);
        if (act == NULL || times++ > 0)
            continue;
        first = query;
        newer = act;
    }
    if (first != NULL)
        findings_add(
            &run->findings, RESULT_OVERLAP,
            "fills with an old token: %lld; first: request %.60s filled in version %lld of "
            "%.80s at %.3f ms with token %lld, but request %.60s had filled or deleted it "
            "by %.3f ms with token %lld",
            times, run_request_id(run, first->request), (long long)first->version,
            first->item == NONE ? "an item" : run->items[first->item].name,
            run_ms(run, first->sent_ns), (long long)run->sections[first->section].token,
            run_request_id(run, newer->request), run_ms(run, newer->t_ns), (long long)newer->token);
    free(acts);
}

/* ---- Records that contradict each other ------------------------------------------------------ */

/* A version that the cache had, or may have had, from that time on. */
struct source_of {
    uint32_t item;
    int64_t version;
    int64_t from_ns;
};

static int by_version(const void *a, const void *b)
{
    const struct source_of *one = a;
    const struct source_of *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->version != two->version)
        return one->version < two->version ? -1 : 1;
    return (one->from_ns > two->from_ns) - (one->from_ns < two->from_ns);
}

/* What was filled in, or may have been: the command's answer was lost, or its process died. */
static struct source_of *find_sources(const struct run *run, size_t *count)
{
    const struct menu *menu = run->menu;
    struct source_of *sources = memory_new(menu->query_count + run->item_count, sizeof *sources);
    *count = 0;
    for (size_t i = 0; i < run->item_count; i++)
        if (run->items[i].redis[BEFORE].stock > 0)
            sources[(*count)++] =
                (struct source_of){(uint32_t)i, run->items[i].redis[BEFORE].stock, INT64_MIN};
    for (size_t i = 0; i < menu->query_count; i++) {
        const struct query *query = &menu->queries[i];
        if (query->queried_ns != NOT_STAMPED && query->refused_ns == NOT_STAMPED)
            sources[(*count)++] = (struct source_of){
                query->item, query->version,
                query->sent_ns != NOT_STAMPED ? query->sent_ns : query->queried_ns};
    }
    qsort(sources, *count, sizeof *sources, by_version);
    return sources;
}

/* Whether the cache may have had that version by then. */
static bool has_source(const struct source_of *sources, size_t count, const struct look *look)
{
    const struct source_of wanted = {look->item, look->version, INT64_MIN};
    size_t from = 0;
    size_t to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_version(&sources[middle], &wanted) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from < count && sources[from].item == look->item &&
           sources[from].version == look->version && sources[from].from_ns <= look->t_ns;
}

/* A menu in the cache was filled in by somebody, before it was found there. */
static void check_looks(struct run *run)
{
    const struct menu *menu = run->menu;
    size_t count = 0;
    struct source_of *sources = find_sources(run, &count);
    const struct look *first = NULL;
    long long times = 0;
    for (size_t i = 0; i < menu->look_count; i++) {
        const struct look *look = &menu->looks[i];
        if (look->item != NONE && run_is_request_timed(run, &run->requests[look->request]) &&
            !has_source(sources, count, look) && times++ == 0)
            first = look;
    }
    free(sources);
    if (first != NULL)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "menus in the cache that nobody filled in: %lld; first: request %.60s found "
                     "version %lld of %.80s at %.3f ms; a filled must be recorded for each",
                     times, run_request_id(run, first->request), (long long)first->version,
                     run->items[first->item].name, run_ms(run, first->t_ns));
}

static int by_item_version(const void *a, const void *b)
{
    const struct update *one = a;
    const struct update *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->version != two->version)
        return one->version < two->version ? -1 : 1;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

/* Each update makes a version of its own, newer than that of the start. */
static void check_updates(struct run *run)
{
    struct menu *menu = run->menu;
    const struct update *first = NULL;
    long long times = 0;
    struct update *updates = memory_new(menu->update_count, sizeof *updates);
    for (size_t i = 0; i < menu->update_count; i++)
        updates[i] = menu->updates[i];
    qsort(updates, menu->update_count, sizeof *updates, by_item_version);
    for (size_t i = 0; i < menu->update_count; i++) {
        const bool again = i > 0 && updates[i].item == updates[i - 1].item &&
                           updates[i].version == updates[i - 1].version;
        if (updates[i].item != NONE &&
            (again || updates[i].version <= run->items[updates[i].item].stock) && times++ == 0)
            first = &updates[i];
    }
    if (first != NULL)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "updates without a new version of their own: %lld; first: request %.60s made "
                     "version %lld of %.80s, which another update had made, or which was there at "
                     "the start",
                     times, run_request_id(run, first->request), (long long)first->version,
                     run->items[first->item].name);
    free(updates);
}

/* A refusal or a failure says that nothing was changed. */
static void check_changes(struct run *run)
{
    const struct update *first = NULL;
    long long times = 0;
    for (size_t i = 0; i < run->menu->update_count; i++) {
        const struct update *update = &run->menu->updates[i];
        const enum outcome outcome = run->requests[update->request].outcome;
        if ((outcome == OUTCOME_REFUSED || outcome == OUTCOME_FAILED) && times++ == 0)
            first = update;
    }
    if (first != NULL)
        findings_add(
            &run->findings, RESULT_INCOMPLETE,
            "updates that changed the database, and ended with refused or fail: %lld; first: "
            "request %.60s made version %lld; it must end with answered or unknown",
            times, run_request_id(run, first->request), (long long)first->version);
}

void menu_check(struct run *run)
{
    find_ends(run);
    check_answers(run);
    check_queries(run);
    check_fills(run);
    check_looks(run);
    check_updates(run);
    check_changes(run);
}
