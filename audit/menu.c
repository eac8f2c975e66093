/* SPDX-License-Identifier: Apache-2.0 */
#include "menu.h"

#include "check.h"
#include "memory.h"
#include "read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is read ---------------------------------------------------------------------------- */

/* A switch is "on" or "off", as its flag. */
static bool menu_read_switch(const cJSON *json, const char *field, bool *on,
                             char error[JSON_ERROR_MAX])
{
    const char *text = NULL;
    if (!json_text(json, field, JSON_REQUIRED, &text, error))
        return false;
    *on = strcmp(text, "on") == 0;
    if (*on || strcmp(text, "off") == 0)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"%s\" is \"%.40s\"; it must be on or off", field, text);
    return false;
}

/* The settings, as run.json and each `begin` state them. */
static bool menu_read_settings(const cJSON *json, struct menu *menu, char error[JSON_ERROR_MAX])
{
    enum { DAY_MS = 86400000 };
    if (!json_int(json, "cache_ms", JSON_REQUIRED, 1, DAY_MS, &menu->cache_ms, error) ||
        !json_int(json, "db_ms", JSON_REQUIRED, 0, DAY_MS, &menu->db_ms, error) ||
        !json_int(json, "refresh_ms", JSON_REQUIRED, 0, menu->cache_ms, &menu->refresh_ms, error) ||
        !menu_read_switch(json, "second_look", &menu->second_look, error) ||
        !menu_read_switch(json, "guard_update", &menu->guard_update, error) ||
        !json_text(json, "fill", JSON_REQUIRED, &menu->fill, error))
        return false;
    if (strcmp(menu->fill, "plain") == 0 || strcmp(menu->fill, "fenced") == 0)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"fill\" is \"%.40s\"; it must be plain or fenced",
             menu->fill);
    return false;
}

static bool menu_read_spec(struct run *run, char error[JSON_ERROR_MAX])
{
    run->menu = memory_new(1, sizeof *run->menu);
    run->spec.quantity = 1;
    if (!menu_read_settings(run->spec.json, run->menu, error))
        return false;
    run->spec.fenced = strcmp(run->menu->fill, "fenced") == 0;
    return true;
}

static void menu_check_begin(struct reader *reader, struct record *record)
{
    const struct menu *menu = reader->run->menu;
    struct menu begun = {.fill = NULL};
    if (!menu_read_settings(record->json, &begun, record->error))
        wrong(reader, record);
    else if (begun.cache_ms != menu->cache_ms || begun.db_ms != menu->db_ms ||
             begun.refresh_ms != menu->refresh_ms || begun.second_look != menu->second_look ||
             begun.guard_update != menu->guard_update || strcmp(begun.fill, menu->fill) != 0)
        complain(&reader->source, record->line,
                 "recorded with another cache_ms, db_ms, refresh_ms, second_look, guard_update or "
                 "fill; they must be run.json's");
}

static bool menu_is_sample(const char *label)
{
    return strncmp(label, "GET menu", 8) == 0 || strncmp(label, "HEAD menu", 9) == 0 ||
           strncmp(label, "PUT menu", 8) == 0;
}

/* GET /menus/{name}, PUT /menus/{name}. A HEAD is a GET of whose answer only the head is sent. */
static bool menu_is_request(const char *method, const char *uri)
{
    return (strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0 ||
            strcmp(method, "PUT") == 0) &&
           strncmp(uri, "/menus/", 7) == 0;
}

/* Which version the cache has; 0: none. */
static void menu_read_redis(struct source *source, const cJSON *json, const char *when,
                            const struct item *item, struct redis_side *side)
{
    const cJSON *cached = cJSON_GetObjectItemCaseSensitive(json, "cached");
    char error[JSON_ERROR_MAX];
    if (!json_int(cached, item->name, JSON_OPTIONAL, 0, JSON_EXACT_MAX, &side->stock, error))
        complain(source, 0, "%s, cached: %s", when, error);
    else if (side->stock == NOT_KNOWN)
        redis_missing(source, when, "version in the cache", item);
}

/* An update that told no deletion may have sent it all the same. One whose times are no proof may
 * have come at any time. */
static void menu_settle(struct run *run)
{
    struct menu *menu = run->menu;
    run_find_rejected(run);
    for (size_t i = 0; i < menu->deletion_count; i++) {
        struct deletion *deletion = &menu->deletions[i];
        if (run_is_request_timed(run, &run->requests[deletion->request]))
            continue;
        deletion->sent_ns = INT64_MIN;
        deletion->t_ns = INT64_MAX;
    }
    for (size_t i = 0; i < menu->update_count; i++) {
        const struct update *update = &menu->updates[i];
        if (menu_visit(run, update->request).deleted)
            continue;
        menu->deletions = memory_grow(menu->deletions, menu->deletion_count,
                                      &menu->deletion_capacity, sizeof *menu->deletions);
        menu->deletions[menu->deletion_count++] = (struct deletion){
            .request = update->request,
            .item = update->item,
            .section = NONE,
            .history = run->requests[update->request].history,
            .sent_ns = update->t_ns,
            .t_ns = INT64_MAX,
        };
    }
}

void menu_free(struct menu *menu)
{
    free(menu->visits);
    free(menu->queries);
    free(menu->deletions);
    free(menu->looks);
    free(menu->updates);
    free(menu);
}

static const char *menu_answer_differs(const struct run *run, const struct request *request)
{
    if (request->outcome != OUTCOME_ANSWERED)
        return NULL;
    if (request->client_instance != request->instance)
        return "another instance's history has the answer";
    if (request->client_item != request->item)
        return "the instance's history has an answer about another item";
    return request->client_version != menu_visit(run, (size_t)(request - run->requests)).version
               ? "the instance's history says that it told another version"
               : NULL;
}

/* ---- The verdict ----------------------------------------------------------------------------- */

/* When the database was asked for an item, and until when; those that overlap are joined. */
struct rebuild {
    uint32_t item;
    int64_t from_ns;
    int64_t to_ns;
};

static int menu_by_rebuild(const void *a, const void *b)
{
    const struct rebuild *one = a;
    const struct rebuild *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (one->from_ns > two->from_ns) - (one->from_ns < two->from_ns);
}

static struct rebuild *menu_rebuilds(const struct run *run, size_t *count)
{
    const struct menu *menu = run->menu;
    struct rebuild *list = memory_new(menu->query_count, sizeof *list);
    size_t kept = 0;
    for (size_t i = 0; i < menu->query_count; i++) {
        const struct query *query = &menu->queries[i];
        list[i] =
            (struct rebuild){query->item, query->t_ns,
                             query->filled_ns != NOT_STAMPED ? query->filled_ns : query->ends_ns};
    }
    qsort(list, menu->query_count, sizeof *list, menu_by_rebuild);
    for (size_t i = 0; i < menu->query_count; i++) {
        struct rebuild *last = kept > 0 ? &list[kept - 1] : NULL;
        if (last == NULL || last->item != list[i].item || last->to_ns < list[i].from_ns)
            list[kept++] = list[i];
        else if (last->to_ns < list[i].to_ns)
            last->to_ns = list[i].to_ns;
    }
    *count = kept;
    return list;
}

/* Whether the request was under way during a rebuild of its item. */
static bool menu_met_rebuild(const struct rebuild *list, size_t count,
                             const struct request *request)
{
    const struct rebuild wanted = {.item = request->item, .from_ns = request->outcome_ns};
    size_t from = 0;
    size_t to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (menu_by_rebuild(&list[middle], &wanted) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from > 0 && list[from - 1].item == request->item &&
           list[from - 1].to_ns >= request->invoke_ns;
}

/* Of the readers that got a menu, as their clients measured them. */
static void menu_measure(struct run *run)
{
    size_t count = 0, all = 0, met = 0;
    struct rebuild *rebuilds = menu_rebuilds(run, &count);
    double *readers_ms = memory_new(run->request_count, sizeof *readers_ms);
    double *rebuild_ms = memory_new(run->request_count, sizeof *rebuild_ms);
    for (size_t i = 0; i < run->request_count; i++) {
        const struct request *request = &run->requests[i];
        if (!request->sampled || request->outcome != OUTCOME_ANSWERED || menu_visit(run, i).updates)
            continue;
        readers_ms[all++] = request->elapsed_ms;
        if (menu_met_rebuild(rebuilds, count, request))
            rebuild_ms[met++] = request->elapsed_ms;
    }
    run->menu->readers_ms = verdict_spread(readers_ms, all);
    run->menu->rebuild_ms = verdict_spread(rebuild_ms, met);
    free(rebuild_ms);
    free(readers_ms);
    free(rebuilds);
}

/* Where the cache compares tokens, one that enters late does no harm: check_fills looks at what it
 * fills in. */
static void menu_check_all(struct run *run)
{
    if (is_fenced(run))
        check_missing_tokens(run);
    else
        check_tokens(run);
    menu_check(run);
    menu_measure(run);
}

static int64_t menu_amount(const struct run *run, enum result result)
{
    return result == RESULT_STAMPEDE ? run->menu->extra
           : result == RESULT_STALE  ? run->menu->stale
                                     : 0;
}

static void menu_tell(struct run *run, enum result result)
{
    const struct menu *menu = run->menu;
    if (result != RESULT_OK)
        return;
    findings_add(&run->findings, RESULT_OK,
                 "requests: %lld; updates that were answered: %lld; queries of the database: %lld, "
                 "each because the cache had nothing, or soon would have; no answer was older than "
                 "an update that was answered before it was asked for",
                 (long long)run->counts.requests, (long long)menu->updated,
                 (long long)menu->query_count);
    if (run->counts.overlaps > 0) /* OK all the same: the cache compares their tokens */
        findings_add(&run->findings, RESULT_OK,
                     "sections that began while another was inside: %lld; the cache refused %lld "
                     "fills for their old token",
                     (long long)run->counts.overlaps, (long long)run->counts.token_refusals);
}

static const char *menu_switch(bool on)
{
    return on ? "on" : "off";
}

static const char *menu_settings(const struct run *run, char *text, size_t size)
{
    const struct menu *menu = run->menu;
    snprintf(
        text, size,
        "rung %.40s, second look %s, guard update %s, fill %.10s, early refresh %s, fault %.40s",
        run->spec.rung, menu_switch(menu->second_look), menu_switch(menu->guard_update), menu->fill,
        menu_switch(menu->refresh_ms > 0), run->spec.fault);
    return text;
}

static void menu_add_settings(cJSON *json, const struct run *run)
{
    const struct menu *menu = run->menu;
    cJSON_AddStringToObject(json, "service", "menu");
    cJSON_AddStringToObject(json, "second_look", menu_switch(menu->second_look));
    cJSON_AddStringToObject(json, "guard_update", menu_switch(menu->guard_update));
    cJSON_AddStringToObject(json, "fill", menu->fill);
    const struct number numbers[] = {
        {"cache_ms", menu->cache_ms}, {"db_ms", menu->db_ms}, {"refresh_ms", menu->refresh_ms}};
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

static void menu_add_counts(cJSON *json, const struct run *run)
{
    const struct menu *menu = run->menu;
    const struct number numbers[] = {
        {"requests", run->counts.requests},
        {"queries", (int64_t)menu->query_count},
        {"needed", menu->needed},
        {"extra", menu->extra},
        {"stale", menu->stale},
        {"updates", menu->updated},
    };
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

static int64_t menu_queries_by(const struct run *run, size_t instance)
{
    int64_t count = 0;
    for (size_t i = 0; i < run->menu->query_count; i++)
        count += run->requests[run->menu->queries[i].request].instance == instance;
    return count;
}

static void menu_add_instance(cJSON *json, const struct run *run, size_t instance)
{
    cJSON_AddNumberToObject(json, "queries", (double)menu_queries_by(run, instance));
}

static void menu_add_measures(cJSON *json, const struct run *run)
{
    verdict_add_spread(json, "readers_ms", &run->menu->readers_ms);
    verdict_add_spread(json, "rebuild_ms", &run->menu->rebuild_ms);
}

/* ---- A row of the table ---------------------------------------------------------------------- */

#define MENU_ROW "%-13s %-6s %-6s %-6s %8s %8s %7s %6s %6s %11s %10s %10s  %-16s %s%s%s\n"

static void menu_print_head(void)
{
    printf(MENU_ROW, "", "second", "guard", "", "", "", "", "", "", "overlapping", "p50/p99",
           "in rebuild", "", "", "", "");
    printf(MENU_ROW, "rung", "look", "update", "fill", "requests", "updates", "queries", "extra",
           "stale", "sections", "ms", "ms", "expected", "got", "", "");
}

static const char *menu_number(int64_t value, char text[24])
{
    snprintf(text, 24, "%lld", (long long)value);
    return text;
}

static const char *menu_spread(const struct spread *spread, char text[48])
{
    snprintf(text, 48, "-");
    if (spread->known)
        snprintf(text, 48, "%.0f/%.0f", spread->p50, spread->p99);
    return text;
}

static void menu_print_row(const struct run *run, const struct verdict *verdict)
{
    const struct menu *menu = run->menu;
    char texts[6][24];
    char spreads[2][48];
    char expected[128];
    char got[64];
    verdict_expected(verdict, "|", expected, sizeof expected);
    verdict_got(run, verdict, got, sizeof got);
    const bool broken = strcmp(run->spec.fault, "none") != 0;
    printf(MENU_ROW, run->spec.rung, menu_switch(menu->second_look),
           menu_switch(menu->guard_update), menu->fill, menu_number(run->counts.requests, texts[0]),
           menu_number(menu->updated, texts[1]), menu_number((int64_t)menu->query_count, texts[2]),
           menu_number(menu->extra, texts[3]), menu_number(menu->stale, texts[4]),
           menu_number(run->counts.overlaps, texts[5]), menu_spread(&menu->readers_ms, spreads[0]),
           menu_spread(&menu->rebuild_ms, spreads[1]), expected, got, broken ? ", " : "",
           broken ? run->spec.fault : "");
}

/* ---- The picture ----------------------------------------------------------------------------- */

static void menu_title(const struct run *run, char text[SVG_LABEL_MAX])
{
    char rung[SVG_LABEL_MAX];
    snprintf(text, SVG_LABEL_MAX, "rung %.80s, second look %s, fill %.10s",
             shortened(run->spec.rung, 260, 22, rung), menu_switch(run->menu->second_look),
             run->menu->fill);
}

static void menu_facts(const struct run *run, char text[SVG_LABEL_MAX])
{
    const struct menu *menu = run->menu;
    snprintf(text, SVG_LABEL_MAX, "Queries of the database: %zu, needed: %lld. Updates: %lld.",
             menu->query_count, (long long)menu->needed, (long long)menu->updated);
}

/* How often the database was asked, up to how often that was needed. */
static void menu_chart(const struct run *run, struct chart *chart)
{
    const struct menu *menu = run->menu;
    chart->name = "asked";
    chart->limit_name = "needed";
    chart->limit = menu->needed;
    chart->points = memory_new(menu->query_count, sizeof *chart->points);
    for (size_t i = 0; i < menu->query_count; i++)
        chart->points[chart->count++] = (struct point){menu->queries[i].t_ns, 1};
}

static void menu_add_steps(const struct run *run, const struct section *section, int who,
                           const char *actor, struct story *story)
{
    const struct menu *menu = run->menu;
    const uint32_t number = (uint32_t)(section - run->sections);
    for (size_t i = 0; i < menu->query_count; i++) {
        const struct query *query = &menu->queries[i];
        if (query->section != number)
            continue;
        story_step(story, query->t_ns, who, STAGE_NONE, "%s asks the database%s", actor,
                   query->extra ? ", and need not" : "");
        story_step(story, query->queried_ns, who, STAGE_NONE, "the database tells %s version %lld",
                   actor, (long long)query->version);
        story_step(story, query->filled_ns, who, STAGE_NONE, "%s has filled in version %lld", actor,
                   (long long)query->version);
        story_step(story, query->refused_ns, who, STAGE_NONE, "the cache refuses the token of %s",
                   actor);
    }
    const uint32_t update = menu_visit(run, section->request).update;
    if (update != NONE)
        story_step(story, menu->updates[update].t_ns, who, STAGE_NONE,
                   "the database has version %lld of %s", (long long)menu->updates[update].version,
                   actor);
    for (size_t i = 0; i < menu->deletion_count; i++) {
        if (menu->deletions[i].section == number && menu->deletions[i].t_ns != INT64_MAX)
            story_step(story, menu->deletions[i].t_ns, who, STAGE_NONE,
                       "%s has deleted the menu from the cache", actor);
    }
}

/* Of a request that needed no lock. */
static void menu_add_answer(const struct run *run, size_t request, const char *id,
                            struct story *story)
{
    const struct visit visit = menu_visit(run, request);
    const size_t before = story->count;
    story_step(story, run->requests[request].outcome_ns, 0, STAGE_NONE, "%s %s version %lld%s", id,
               visit.updates ? "has made" : "gets", (long long)visit.version,
               visit.stale ? ", which is old" : "");
    if (story->count > before)
        story->steps[before].worst = visit.stale;
}

const struct rules menu_rules = {
    .service = "menu",
    .kind = SERVICE_MENU,
    .items = "version at the start, as {\"lunch\":1}",
    .samples = "load.jtl",
    .sampled = "menu",
    .labels = "\"GET menu\", \"HEAD menu\" or \"PUT menu\"",
    .is_sample = menu_is_sample,
    .is_request = menu_is_request,
    .path_head = "/menus/",
    .path_tail = "",
    .read_spec = menu_read_spec,
    .check_begin = menu_check_begin,
    .read_invoke = menu_invoked,
    .read_event = menu_read_event,
    .read_redis = menu_read_redis,
    .redis = "\"cached\":{\"lunch\":0},\"locks\":{\"lunch\":{\"type\":\"none\",",
    .settle = menu_settle,
    .check = menu_check_all,
    .answer_differs = menu_answer_differs,
    .unsampled = "it is not in load.jtl, though nginx or an instance saw it",
    .ends = "answered, refused, fail or unknown",
    .mended = "",
    .expected = menu_expected,
    .amount = menu_amount,
    .tell = menu_tell,
    .settings = menu_settings,
    .add_settings = menu_add_settings,
    .add_counts = menu_add_counts,
    .add_instance = menu_add_instance,
    .add_measures = menu_add_measures,
    .title = menu_title,
    .facts = menu_facts,
    .chart = menu_chart,
    .did = "inside, filled the cache",
    .did_nothing = "inside, filled in nothing",
    .add_steps = menu_add_steps,
    .add_answer = menu_add_answer,
    .print_head = menu_print_head,
    .print_row = menu_print_row,
};
