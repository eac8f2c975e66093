/* SPDX-License-Identifier: Apache-2.0
 *
 * menud: menus that are kept in a slow database and cached in Redis. When a menu leaves the cache,
 * many readers find it missing at once. The lock lets one of them ask the database.
 */
#include "../lock/clock.h"
#include "database.h"
#include "frame.h"
#include "guard.h"
#include "json.h"
#include "log.h"
#include "menu_scripts.h"
#include "program.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct config {
    struct settings_common common;
    char *database;
    int64_t db_ms;
    int64_t cache_ms;
    int64_t refresh_ms;
    bool second_look;
    bool guard_update;
    int fill; /* enum fill */
} config;
enum fill { FILL_PLAIN, FILL_FENCED };

static const struct settings_row rows[] = {
    {.flag = "listen", .fallback = "127.0.0.1:8200", .help = "where menus are read"},
    {.flag = "admin-listen",
     .fallback = "127.0.0.1:8201",
     .help =
         "where the admin listener listens, for operators: PUT /menus/{name}, /readyz, /metrics "
         "and others"},
    {"database", SETTING_TEXT, "a file", "", "menu.db", 1, 300, offsetof(struct config, database),
     "the menus' database; all instances must have the same one"},
    {"db-ms", SETTING_NUMBER, "", "ms", "200", 0, 60000, offsetof(struct config, db_ms),
     "how long the database takes for a query"},
    {"cache-ms", SETTING_NUMBER, "", "ms", "5000", 10, 86400000, offsetof(struct config, cache_ms),
     "how long a menu lives in the cache"},
    {"second-look", SETTING_SWITCH, "off|on", "", "on", 0, 0, offsetof(struct config, second_look),
     "a reader looks into the cache again once it has the lock"},
    {"guard-update", SETTING_SWITCH, "off|on", "", "on", 0, 0,
     offsetof(struct config, guard_update),
     "PUT /menus/{name} writes the database and deletes the cached menu under the lock"},
    {"fill", SETTING_CHOICE, "plain|fenced", "", "plain", 0, 0, offsetof(struct config, fill),
     "how a reader writes the cache. With plain: a SET. With fenced: before it asks the database, "
     "it claims the menu with its fencing token; one script writes if nobody has claimed or "
     "deleted the menu since. It needs a rung with tokens"},
    {"refresh-ms", SETTING_NUMBER, "", "ms", "0", 0, 86400000, offsetof(struct config, refresh_ms),
     "early refresh: when a cached menu has less than this to live, one reader refreshes it; "
     "the others read the cached one; 0: off"},
    {.flag = NULL},
};

struct service {
    struct frame frame;
};
static struct service service;

/* What a worker thread has of its own. */
struct worker {
    struct store *store;
    struct database *database;
};

enum { PROBLEM_UNKNOWN_MENU = PROBLEM_FRAME_COUNT, PROBLEM_DATABASE_UNAVAILABLE };
static const struct problem_row problems[] = {
    FRAME_PROBLEMS,
    {PROBLEM_UNKNOWN_MENU, "unknown-menu", 404, "There is no such menu", "operators PUT menus"},
    {PROBLEM_DATABASE_UNAVAILABLE, "database-unavailable", 503, "The database is not available",
     "nothing was changed"},
};

static const struct failpoint_row points[] = {
    {"menu.missed", ""},       /* it was not in the cache, and the reader will ask the database */
    {"menu.before_fill", ""},  /* the database has answered, and the cache is not written yet */
    {"menu.before_write", ""}, /* an update has the lock, and has written nothing yet */
    {"menu.updated", ""}, /* the database has the new menu, and the cached one is not deleted */
    {.name = NULL},
};

static struct frame_meter meters[] = {
    {"menu_hits_total", "Menus that were read from the cache.", 0},
    {"menu_queries_total", "Queries of the database by readers.", 0},
    {"menu_fills_total", "Menus that were written to the cache.", 0},
    {"menu_fills_refused_total", "Menus not written, since the reader's claim was void.", 0},
    {"menu_updates_total", "Updates of the database.", 0},
    {.name = NULL},
};
enum { HITS, QUERIES, FILLS, FILLS_REFUSED, UPDATES };

/* ---- The cache ------------------------------------------------------------------------------- */

struct serving {
    struct guard guard;
    struct store *store;
    struct database *database;
    struct request *request;
    char key[ITEM_MAX + 16];
    char claim_key[ITEM_MAX + 24];
    struct menu menu;
    struct menu cached; /* what its latest look found; version 0: nothing yet */
    int64_t left_ms;    /* the cached menu's */
};

/* The token that claims the menu; "": none. */
static const char *claim_of(const struct serving *serving, char text[24])
{
    text[0] = '\0';
    if (config.fill == FILL_FENCED && serving->guard.hold != NULL)
        snprintf(text, 24, "%" PRIu64, dlock_token(serving->guard.hold));
    return text;
}

/* Reads "VERSION DISHES". False: it is nothing of that form. */
static bool take_cached(struct menu *cached, const char *text)
{
    char *dishes = NULL;
    const int64_t version = strtoll(text, &dishes, 10);
    if (version < 1 || strncmp(dishes, " [", 2) != 0 || strlen(dishes + 1) > MENU_MAX)
        return false;
    cached->version = version;
    snprintf(cached->dishes, sizeof cached->dishes, "%s", dishes + 1);
    return true;
}

/* Looks into the cache. Under the lock it also claims the menu, if it has to be filled. False: the
 * request is answered. *hit: the menu is there. */
static bool look(struct serving *serving, bool *hit)
{
    char claim[24];
    const redisReply *reply;
    /* INT64_MAX: claim whatever time the menu has left, since it will be filled. */
    const int64_t claims_ms = config.second_look ? config.refresh_ms : INT64_MAX;
    const enum store_status status =
        store_run(serving->store, &lua_look,
                  (const char *const[]){
                      "2", serving->key, serving->claim_key, claim_of(serving, claim),
                      TEXT_OF(config.common.ttl_ms + config.db_ms), TEXT_OF(claims_ms), NULL},
                  &reply);
    if (status != STORE_OK)
        return guard_read_failed(&serving->guard, serving->store, status);
    *hit = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2;
    if (*hit && !take_cached(&serving->cached, reply->element[0]->str)) {
        answer_problem(serving->request, PROBLEM_STORE_INVALID, "%s holds no menu: delete it",
                       serving->key);
        return false;
    }
    if (*hit)
        serving->left_ms = reply->element[1]->integer;
    GUARD_RECORD(&serving->guard, "looked", ",\"hit\":%s,\"version\":%" PRId64 ",\"second\":%s",
                 *hit ? "true" : "false", *hit ? serving->cached.version : 0,
                 serving->guard.hold != NULL ? "true" : "false");
    return true;
}

/* Writes the menu into the cache. A reader has its answer from the database, whatever happens
 * here. */
static void fill(struct serving *serving)
{
    char menu[MENU_MAX + 24], claim[24];
    const char *cache_ms = TEXT_OF(config.cache_ms);
    const redisReply *reply;
    snprintf(menu, sizeof menu, "%" PRId64 " %s", serving->menu.version, serving->menu.dishes);
    const int64_t sent_ns = mono_ns();
    enum store_status status =
        config.fill == FILL_FENCED
            ? store_run(serving->store, &lua_fill,
                        (const char *const[]){"2", serving->key, serving->claim_key, menu, cache_ms,
                                              claim_of(serving, claim), NULL},
                        &reply)
            : store_command(serving->store, 5,
                            (const char *const[]){"SET", serving->key, menu, "PX", cache_ms},
                            &reply);
    if (status == STORE_OK) {
        frame_count(serving->guard.frame, FILLS);
        GUARD_RECORD(&serving->guard, "filled",
                     ",\"version\":%" PRId64 ",\"sent_ns\":%" PRId64 ",\"cache_ms\":%" PRId64,
                     serving->menu.version, sent_ns, config.cache_ms);
    } else if (strcmp(store_code(serving->store), "STALE") == 0) {
        frame_count(serving->guard.frame, FILLS_REFUSED);
        GUARD_RECORD(&serving->guard, "fill_refused", ",\"token\":%s,\"newest\":%s", claim,
                     store_last_word(serving->store));
    } else {
        log_event(LOG_WARNING, "cache", "%s is not filled: %s", serving->key,
                  store_error(serving->store));
        /* A late fenced fill finds that its claim is void. */
        if (status == STORE_LOST && config.fill == FILL_PLAIN)
            guard_end_lost(&serving->guard, serving->store);
    }
}

/* ---- The database ---------------------------------------------------------------------------- */

/* False: the request is answered. */
static bool query(struct serving *serving)
{
    frame_count(serving->guard.frame, QUERIES);
    GUARD_RECORD(&serving->guard, "query", "%s", "");
    enum database_status status = database_read(serving->database, serving->guard.item,
                                                &serving->menu, guard_left_ms(&serving->guard));
    frame_take_ms(config.db_ms);
    if (status == DATABASE_OK)
        GUARD_RECORD(&serving->guard, "queried", ",\"version\":%" PRId64, serving->menu.version);
    else if (status == DATABASE_MISSING)
        answer_problem(serving->request, PROBLEM_UNKNOWN_MENU, "there is no menu %s",
                       serving->guard.item);
    else
        answer_problem(serving->request, PROBLEM_DATABASE_UNAVAILABLE, "%s",
                       database_error(serving->database));
    return status == DATABASE_OK;
}

/* ---- Readers --------------------------------------------------------------------------------- */

static void answer_menu(struct serving *serving, const char *from)
{
    GUARD_RECORD(&serving->guard, "answered",
                 ",\"code\":200,\"version\":%" PRId64 ",\"from\":\"%s\"", serving->menu.version,
                 from);
    answer_json(serving->request, 200,
                "{\"menu\":\"%s\",\"version\":%" PRId64 ",\"dishes\":%s,\"from\":\"%s\","
                "\"instance\":\"%s\"}",
                serving->guard.item, serving->menu.version, serving->menu.dishes, from,
                config.common.instance);
}

/* Whether the cached menu is to be refreshed early. */
static bool is_due(const struct serving *serving)
{
    return serving->left_ms >= 0 && serving->left_ms < config.refresh_ms; /* -1: it never expires */
}

static void answer_cached(struct serving *serving)
{
    frame_count(serving->guard.frame, HITS);
    serving->menu = serving->cached;
    answer_menu(serving, "cache");
}

/* Under the lock: asks the database and fills the cache, unless another reader has just done it. */
static void rebuild(struct serving *serving)
{
    bool hit = false;
    if ((config.second_look || config.fill == FILL_FENCED) && !look(serving, &hit))
        return;
    if (config.second_look && hit && !is_due(serving)) {
        answer_cached(serving);
        return;
    }
    frame_point(serving->guard.frame, "menu", "missed");
    if (!guard_go_on(&serving->guard) || !query(serving))
        return;
    const bool may_fill = guard_is_valid(&serving->guard);
    frame_point(serving->guard.frame, "menu", "before_fill");
    if (may_fill)
        fill(serving);
    answer_menu(serving, "database");
}

/* In --retry-ms, one reader of this instance asks for the lock to refresh a menu. Menus with the
 * same hash take turns. */
static bool is_turn(const struct serving *serving)
{
    static _Atomic int64_t next_ns[256];
    _Atomic int64_t *next = &next_ns[text_hash(TEXT_HASH, serving->guard.item) % 256];
    const int64_t now_ns = mono_ns();
    int64_t turn_ns = atomic_load(next);
    return now_ns >= turn_ns && atomic_compare_exchange_strong(
                                    next, &turn_ns, now_ns + config.common.retry_ms * NS_PER_MS);
}

/* If a refresh fails, its reader has the cached menu still. */
static void refresh(struct serving *serving)
{
    struct answer *answer = &serving->request->answer;
    rebuild(serving);
    if (answer->status == 200)
        return;
    log_event(LOG_WARNING, "refresh", "%s is not refreshed: %s", serving->key, answer->text);
    *answer = (struct answer){0};
    answer_cached(serving);
}

static void read_menu(struct serving *serving)
{
    bool hit = false;
    if (!look(serving, &hit))
        return;
    if (!hit && guard_enter(&serving->guard))
        rebuild(serving);
    else if (hit && is_due(serving) && is_turn(serving) && guard_try(&serving->guard))
        refresh(serving);
    else if (hit)
        answer_cached(serving);
}

/* ---- Updates --------------------------------------------------------------------------------- */

static bool delete_cached(struct serving *serving, int64_t *sent_ns)
{
    *sent_ns = mono_ns();
    if (guard_repeat(&serving->guard, serving->store, 3,
                     (const char *const[]){"DEL", serving->key, serving->claim_key}))
        return true;
    char error[STORE_ERROR_MAX];
    snprintf(error, sizeof error, "%s", store_error(serving->store));
    text_hide_servers(error);
    answer_problem(serving->request, PROBLEM_OUTCOME_UNKNOWN,
                   "the database has version %" PRId64
                   "; the old menu may stay in the cache for %" PRId64 " ms: %s",
                   serving->menu.version, config.cache_ms, error);
    return false;
}

static void update(struct serving *serving)
{
    int64_t sent_ns;
    if (config.guard_update && !guard_enter(&serving->guard))
        return;
    frame_point(serving->guard.frame, "menu", "before_write");
    if (database_write(serving->database, serving->guard.item, &serving->menu,
                       guard_left_ms(&serving->guard)) != DATABASE_OK) {
        answer_problem(serving->request, PROBLEM_DATABASE_UNAVAILABLE, "%s",
                       database_error(serving->database));
        return;
    }
    frame_count(serving->guard.frame, UPDATES);
    GUARD_RECORD(&serving->guard, "updated", ",\"version\":%" PRId64, serving->menu.version);
    frame_point(serving->guard.frame, "menu", "updated");
    if (!delete_cached(serving, &sent_ns))
        return;
    GUARD_RECORD(&serving->guard, "deleted", ",\"version\":%" PRId64 ",\"sent_ns\":%" PRId64,
                 serving->menu.version, sent_ns);
    answer_menu(serving, "database");
}

/* {"dishes":[...]}: false: the request is answered. */
static bool take_dishes(struct request *request, struct menu *menu)
{
    static const char example[] = "{\"dishes\":[\"soup\",\"rice\"]}";
    cJSON *json = json_body(request, example);
    if (json == NULL)
        return false;
    const cJSON *dishes = cJSON_GetObjectItemCaseSensitive(json, "dishes");
    bool right = cJSON_IsArray(dishes) && cJSON_GetArraySize(json) == 1;
    for (const cJSON *dish = right ? dishes->child : NULL; dish != NULL; dish = dish->next)
        right = right && cJSON_IsString(dish);
    char *text = right ? cJSON_PrintUnformatted(dishes) : NULL;
    if (text == NULL || strlen(text) > MENU_MAX)
        answer_problem(
            request, PROBLEM_INVALID_VALUE,
            "the body must have one member, dishes: a list of texts, at most %d bytes as JSON; "
            "as in %s",
            MENU_MAX, example);
    else
        snprintf(menu->dishes, sizeof menu->dishes, "%s", text);
    cJSON_free(text);
    cJSON_Delete(json);
    return request->answer.status == 0;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static bool serve(struct service *of, void *state, struct request *request, const struct menu *menu,
                  void (*run)(struct serving *serving))
{
    const struct worker *worker = state;
    struct serving serving = {
        .store = worker->store, .database = worker->database, .request = request};
    if (menu != NULL)
        serving.menu = *menu;
    if (!guard_begin(&serving.guard, &of->frame, request, request->part))
        return true;
    snprintf(serving.key, sizeof serving.key, "menu:{%.*s}", ITEM_MAX, request->part);
    snprintf(serving.claim_key, sizeof serving.claim_key, "%s:claim", serving.key);
    run(&serving);
    guard_end(&serving.guard);
    store_rest(serving.store);
    return true;
}

static bool work_read(struct service *of, void *state, struct request *request)
{
    return serve(of, state, request, NULL, read_menu);
}

static bool work_update(struct service *of, void *state, struct request *request)
{
    struct menu menu = {0};
    return !take_dishes(request, &menu) || serve(of, state, request, &menu, update);
}

static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_GET, "/menus/{name}", NULL, false, RUN_WORKERS, frame_take_name, NULL,
     work_read, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/menus/{name}", NULL, true, RUN_WORKERS, frame_take_name, NULL,
     work_update, "readers read here; operators have an address of their own"},
    FRAME_ROUTES,
};
static const struct routes routes = {route_rows, sizeof route_rows / sizeof route_rows[0]};

/* ---- The program ----------------------------------------------------------------------------- */

const struct program program = {
    .name = "menud",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .settings = {.about = "menud serves menus that a database has and Redis caches; the lock lets "
                          "one reader fill the cache.",
                 .example = "db-ms",
                 .rows = rows},
    .points = points,
    .example_point = "menu.before_fill",
    .common = frame_common,
    .failpoints = frame_failpoints};

static void close_worker(void *state)
{
    struct worker *worker = state;
    store_free(worker->store);
    database_close(worker->database);
    free(worker);
}

static void *open_worker(struct service *of, struct store *store, char error[PROCESS_ERROR_MAX])
{
    struct database *database = database_open(config.database, error);
    struct worker *worker = database != NULL ? malloc(sizeof *worker) : NULL;
    (void)of;
    if (worker != NULL) {
        *worker = (struct worker){store, database};
        return worker;
    }
    database_close(database);
    store_free(store);
    return NULL;
}

static bool is_ready(void *state, char why[FRAME_WHY_MAX])
{
    const struct worker *worker = state;
    struct menu menu;
    const bool has_cache = store_check(worker->store, "menu:{readyz}") == STORE_OK;
    const bool has_database = database_read(worker->database, "readyz", &menu,
                                            config.common.redis_timeout_ms) != DATABASE_FAILED;
    snprintf(why, FRAME_WHY_MAX, "%s",
             !has_cache ? store_error(worker->store) : database_error(worker->database));
    store_rest(worker->store);
    return has_cache && has_database;
}

static bool fits(char error[PROCESS_ERROR_MAX])
{
    if (config.fill == FILL_FENCED &&
        !frame_has_tokens(&config.common, "--fill fenced", "--fill plain", error))
        return false;
    if (config.refresh_ms >= config.cache_ms) {
        snprintf(error, PROCESS_ERROR_MAX,
                 "--refresh-ms %" PRId64 " must be less than --cache-ms %" PRId64
                 "; otherwise each reader refreshes the menu",
                 config.refresh_ms, config.cache_ms);
        return false;
    }
    return true;
}

static void print_invoke(const struct request *request, char *text, size_t size)
{
    snprintf(text, size, ",\"does\":\"%s\"", request->method == METHOD_PUT ? "update" : "read");
}

static void print_begin(char *text, size_t size)
{
    snprintf(text, size,
             ",\"db_ms\":%" PRId64 ",\"cache_ms\":%" PRId64 ",\"refresh_ms\":%" PRId64
             ",\"second_look\":\"%s\",\"guard_update\":\"%s\",\"fill\":\"%s\"",
             config.db_ms, config.cache_ms, config.refresh_ms, config.second_look ? "on" : "off",
             config.guard_update ? "on" : "off", settings_word(&config, "fill"));
}

int main(int argc, char **argv)
{
    return frame_main(&service.frame,
                      &(struct frame_options){.name = "menu",
                                              .service = &service,
                                              .settings = &config.common,
                                              .routes = &routes,
                                              .request_size = sizeof(struct request),
                                              .fit = fits,
                                              .begin = print_begin,
                                              .invoke = print_invoke,
                                              .open = open_worker,
                                              .close = close_worker,
                                              .ready = is_ready,
                                              .worker_descriptors = DATABASE_DESCRIPTORS,
                                              .meters = meters},
                      &config, argc, argv);
}
