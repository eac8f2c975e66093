/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of operators and scripts: the state of the instance, failpoints, and the switch of the
 * lock.
 */
#include "handlers.h"

#include "../lock/clock.h"
#include "conflict.h"
#include "json.h"
#include "lock_meter.h"
#include "log.h"
#include "metrics.h"
#include "readiness.h"
#include "text.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SESSION_MS 5000 /* two ticks of an ensemble, and more */

static void answer_ready(struct service *service, struct request *request, const char *why)
{
    if (why != NULL)
        answer_problem(request, PROBLEM_NOT_READY, "%s", why);
    else
        answer_json(request, 200, "{\"ready\":true,\"instance\":\"%s\"}", service->config.instance);
}

/* False: a check is under way, and its result will answer this request, too. */
static bool admin_begin_look(struct readiness *readiness, struct request *request)
{
    pthread_mutex_lock(&readiness->mutex);
    bool begun = !readiness->looking;
    readiness->looking = true;
    if (!begun) {
        request->next = readiness->waiting;
        readiness->waiting = request;
    }
    pthread_mutex_unlock(&readiness->mutex);
    return begun;
}

/* The requests that arrived during the check. */
static struct request *admin_end_look(struct readiness *readiness)
{
    pthread_mutex_lock(&readiness->mutex);
    struct request *waiting = readiness->waiting;
    readiness->waiting = NULL;
    readiness->looking = false;
    pthread_mutex_unlock(&readiness->mutex);
    return waiting;
}

/* One check at a time. While a server hangs, more checks would occupy every thread of this pool,
 * and PUT /lock would wait for them. */
bool admin_ready(struct service *service, void *worker, struct request *request)
{
    const struct sale_worker *asker = worker;
    char text[STOCK_ERROR_MAX];
    if (!admin_begin_look(&service->readiness, request))
        return false;
    const char *why = readiness_fault(service, asker->stock, text);
    struct request *next, *waiting = admin_end_look(&service->readiness);
    for (; waiting != NULL; waiting = next) {
        next = waiting->next;
        answer_ready(service, waiting, why);
        http_answer(waiting);
    }
    answer_ready(service, request, why);
    return true;
}

void admin_metrics(struct service *service, struct request *request)
{
    const struct lock_servers *several = &service->locks[ROLE_LOCK_SERVERS];
    struct setting setting = mode_copy(&service->mode);
    char admit[ADMISSION_TEXT_MAX], segments[SEGMENTS_TEXT_MAX];
    admission_print(&setting.admission, admit);
    segments_print(&setting.segments, segments);
    struct metrics_now now = {
        .version = DLOCK_VERSION,
        .instance = service->config.instance,
        .rung = setting.rung->name,
        .write = write_ways[setting.write].name,
        .admit = admit,
        .segments = segments,
        .on_conflict = conflict_word(setting.on_conflict),
        .local_first = setting.local_first,
        .queue_depth = workers_depth(service->sales),
        .queue_max = (size_t)service->config.queue,
        .in_flight = atomic_load(&service->mode.in_flight),
        .queued = queue_worker_length(service->queue),
        .waiting = atomic_load(&service->waiting),
        .lock = {.size = sizeof now.lock},
    };
    const struct epochs_seen seen = epochs_seen(&service->epochs);
    now.epoch = seen.latest.number;
    now.epoch_refused = seen.refused;
    now.epochs_raised = seen.raised;
    now.history_lost = history_lost(service->env.history, &(bool){false});
    for (size_t i = 0; i < LOCK_ROLES; i++)
        lock_meter_add(&now.lock, service->locks[i].client);
    now.valid_ms = atomic_load(&service->locks[lock_servers_role(setting.rung)].valid_ms);
    now.lock_server_count = several->count;
    for (size_t i = 0; i < several->count; i++)
        now.lock_servers[i] = several->names[i];
    for (size_t i = 0; i < ENGINE_COUNT; i++)
        now.ensembles[i] = service->locks[ROLE_ENGINES + i].names[0];
    answer_long(request, 200, "text/plain; version=0.0.4", metrics_print(&now));
}

/* ---- The lock -------------------------------------------------------------------------------- */

/* The stock's epoch as this instance saw it last; null if it has not. `ours`: it stands for this
 * instance's lock, so this instance sells. */
static void add_epoch(cJSON *json, struct epochs *epochs)
{
    const struct epochs_seen seen = epochs_seen(epochs);
    const struct stock_epoch *latest = &seen.latest;
    if (latest->number == 0) {
        cJSON_AddNullToObject(json, "epoch");
        return;
    }
    cJSON *epoch = cJSON_AddObjectToObject(json, "epoch");
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, latest->number);
    cJSON_AddRawToObject(epoch, "number", number); /* cJSON would print 1.8e+15 */
    cJSON_AddStringToObject(epoch, "rung", latest->rung);
    cJSON_AddStringToObject(epoch, "engine", latest->engine);
    cJSON_AddStringToObject(epoch, "servers", latest->servers);
    cJSON_AddStringToObject(epoch, "identity", latest->identity);
    cJSON_AddBoolToObject(epoch, "ours", !seen.refused);
}

/* The addresses of the servers that the lock is kept on. */
static void add_servers(cJSON *json, const struct service *service, const struct dlock_rung *rung)
{
    const struct lock_servers *locks = &service->locks[lock_servers_role(rung)];
    cJSON *servers = cJSON_AddArrayToObject(json, "servers");
    for (size_t i = 0; i < locks->count && rung->distributed; i++)
        cJSON_AddItemToArray(servers, cJSON_CreateString(locks->names[i]));
}

/* What the servers grant may be more than --ttl-ms. */
static void add_validity(cJSON *json, struct service *service, const struct dlock_rung *rung)
{
    const long long ms = atomic_load(&service->locks[lock_servers_role(rung)].valid_ms);
    if (ms > 0 && rung->expires)
        cJSON_AddNumberToObject(json, "valid_ms", (double)ms);
    else
        cJSON_AddNullToObject(json, "valid_ms");
}

static void answer_setting(struct service *service, struct request *request,
                           const struct setting *setting)
{
    cJSON *json = cJSON_CreateObject();
    char file[4352], admit[ADMISSION_TEXT_MAX], segments[SEGMENTS_TEXT_MAX];
    cJSON_AddStringToObject(json, "rung", setting->rung->name);
    cJSON_AddStringToObject(json, "write", write_ways[setting->write].name);
    cJSON_AddStringToObject(json, "on_conflict", conflict_word(setting->on_conflict));
    cJSON_AddBoolToObject(json, "local_first", setting->local_first);
    cJSON_AddBoolToObject(json, "check_hold", setting->check_hold);
    cJSON_AddBoolToObject(json, "guard_reads", setting->guard_reads);
    admission_print(&setting->admission, admit);
    cJSON_AddStringToObject(json, "admit", admit);
    segments_print(&setting->segments, segments);
    cJSON_AddStringToObject(json, "segments", segments);
    if (setting->run[0] != '\0')
        cJSON_AddStringToObject(json, "run", setting->run);
    else
        cJSON_AddNullToObject(json, "run");
    if (service->env.history != NULL) {
        history_file(service->env.history, file, sizeof file);
        cJSON_AddStringToObject(json, "history", file);
    } else {
        cJSON_AddNullToObject(json, "history");
    }
    add_servers(json, service, setting->rung);
    cJSON_AddNumberToObject(json, "ttl_ms", (double)service->config.ttl_ms);
    add_validity(json, service, setting->rung);
    add_epoch(json, &service->epochs);
    cJSON_AddBoolToObject(json, "switching", atomic_load(&service->mode.closed));
    cJSON_AddStringToObject(json, "instance", service->config.instance);
    json_answer(request, json);
}

void admin_get_lock(struct service *service, struct request *request)
{
    struct setting setting = mode_copy(&service->mode);
    answer_setting(service, request, &setting);
}

void admin_accept_lock(struct service *service, struct request *request)
{
    if (!service->config.admin_writes)
        answer_problem(request, PROBLEM_WRITES_OFF,
                       "start the instance with --admin-writes to allow PUT /lock");
    else if (atomic_load(&service->draining))
        answer_problem(request, PROBLEM_DRAINING, "the instance takes no more changes");
}

/* What PUT /lock asks for. A setting that the request does not name keeps the value that it has at
 * the switch. Another PUT /lock may have changed it since this one was read. */
struct wish {
    cJSON *json; /* the body */
    struct setting setting;
    struct write_choice choice; /* its rung is NULL if none was named */
    bool named_run;
};

/* Reads true or false into *value. Returns false if the member is neither: the request is
 * answered. */
static bool take_switch(struct request *request, const cJSON *member, bool *value)
{
    *value = cJSON_IsTrue(member);
    if (!cJSON_IsBool(member))
        answer_problem(request, PROBLEM_INVALID_VALUE, "%s must be true or false", member->string);
    return cJSON_IsBool(member);
}

/* "16", "naive:16" or 16. */
static bool take_segments(struct request *request, const cJSON *member, struct wish *wish)
{
    char number[24] = "", error[SEGMENTS_ERROR_MAX];
    if (cJSON_IsNumber(member))
        snprintf(number, sizeof number, "%.17g", member->valuedouble);
    const bool valid = segments_parse(cJSON_IsString(member) ? member->valuestring : number,
                                      &wish->setting.segments, error);
    if (!valid)
        answer_problem(request, PROBLEM_INVALID_VALUE, "segments: %s", error);
    return valid;
}

/* Reads one member of the body into the wish. False: it is wrong, and the request is answered. */
static bool take_member(struct request *request, const cJSON *member, struct wish *wish)
{
    const char *name = member->string;
    const char *text = cJSON_IsString(member) ? member->valuestring : "";
    char names[WRITE_NAMES_MAX], error[ADMISSION_ERROR_MAX];
    if (strcmp(name, "rung") == 0) {
        bool found = write_find_lock(text, &wish->choice);
        write_lock_names(names);
        if (!found)
            answer_problem(request, PROBLEM_INVALID_VALUE, "rung must be one of %s", names);
        return found;
    }
    if (strcmp(name, "write") == 0) {
        bool found = write_find(text, &wish->choice.by_write);
        write_names("|", names);
        if (!found)
            answer_problem(request, PROBLEM_INVALID_VALUE, "write must be one of %s", names);
        return found;
    }
    if (strcmp(name, "on_conflict") == 0) {
        bool found = conflict_find(text, &wish->setting.on_conflict);
        if (!found)
            answer_problem(request, PROBLEM_INVALID_VALUE, "on_conflict must be one of %s",
                           CONFLICT_WORDS);
        return found;
    }
    if (strcmp(name, "local_first") == 0)
        return take_switch(request, member, &wish->setting.local_first);
    if (strcmp(name, "check_hold") == 0)
        return take_switch(request, member, &wish->setting.check_hold);
    if (strcmp(name, "guard_reads") == 0)
        return take_switch(request, member, &wish->setting.guard_reads);
    if (strcmp(name, "admit") == 0) {
        bool valid = admission_parse(text, &wish->setting.admission, error);
        if (!valid)
            answer_problem(request, PROBLEM_INVALID_VALUE, "admit: %s", error);
        return valid;
    }
    if (strcmp(name, "segments") == 0)
        return take_segments(request, member, wish);
    if (strcmp(name, "run") == 0) {
        wish->named_run = settings_is_name(text, RUN_MAX);
        if (!wish->named_run)
            answer_problem(request, PROBLEM_INVALID_VALUE,
                           "run must be 1 to %d letters, digits, . _ -, a letter or digit first",
                           RUN_MAX);
        snprintf(wish->setting.run, sizeof wish->setting.run, "%s", wish->named_run ? text : "");
        return wish->named_run;
    }
    answer_problem(
        request, PROBLEM_INVALID_VALUE,
        "\"%.40s\" is not known: the members are rung, write, run, on_conflict, local_first, "
        "check_hold, guard_reads, admit, segments",
        name);
    return false;
}

/* Reads the body into the wish, over `now`. False: it is wrong, and the request is answered. */
static bool take_members(struct request *request, struct wish *wish, const struct setting *now)
{
    bool valid = true;
    wish->setting = *now;
    for (const cJSON *member = wish->json->child; valid && member != NULL; member = member->next)
        valid = take_member(request, member, wish);
    return valid;
}

/* Completes the wish with the current settings. False: the lock and the write mode do not fit, and
 * the request is answered. */
static bool admin_settle(const struct service *service, struct request *request, struct wish *wish,
                         const struct setting *now)
{
    char error[WRITE_ERROR_MAX], unfit[CONFLICT_ERROR_MAX], apart[SEGMENTS_ERROR_MAX];
    if (!take_members(request, wish, now))
        return false;
    if (wish->choice.rung == NULL)
        wish->choice.rung = now->rung;
    wish->setting.rung = wish->choice.rung;
    if (!write_settle(&wish->choice, now->write, &wish->setting.write, error))
        answer_problem(request, PROBLEM_INVALID_VALUE, "%s", error);
    else if (!conflict_fits(wish->setting.on_conflict, wish->setting.write,
                            service->config.enable_failpoints, unfit))
        answer_problem(request, PROBLEM_INVALID_VALUE, "on_conflict %s", unfit);
    else if (!segments_fit(&wish->setting.segments, wish->setting.rung, wish->setting.write,
                           wish->setting.on_conflict, apart))
        answer_problem(request, PROBLEM_INVALID_VALUE, "%s", apart);
    else
        return true;
    return false;
}

/* Reads the body; the caller deletes wish->json. False: it is wrong, and the request is
 * answered. */
static bool admin_take_wish(struct service *service, struct request *request, struct wish *wish)
{
    char lack[CONFIG_LACK_MAX];
    *wish = (struct wish){.choice = {NULL, -1, -1}};
    wish->json = json_body(request, "{\"rung\":\"watchdog\"}");
    if (wish->json == NULL)
        return false;
    bool valid = cJSON_IsObject(wish->json);
    if (!valid)
        answer_problem(request, PROBLEM_INVALID_JSON,
                       "the body must be a JSON object, as in {\"rung\":\"watchdog\"}");
    valid = valid && take_members(request, wish, &(struct setting){0});
    if (valid && wish->choice.rung != NULL &&
        config_lacks(&service->config, wish->choice.rung, lack)) {
        answer_problem(request, PROBLEM_INVALID_VALUE, "%s %s", wish->choice.rung->name, lack);
        return false;
    }
    if (valid && wish->named_run && service->env.history == NULL) {
        answer_problem(request, PROBLEM_NO_HISTORY,
                       "start the instance with --history FILE, or leave run out");
        return false;
    }
    return valid;
}

/* A sale in flight may still wait for its lock, and then need time for its section. */
static int64_t finish_by_ns(const struct config *config)
{
    return mono_ns() + (config->wait_ms + service_section_ms(config)) * NS_PER_MS;
}

static void log_switch(const struct setting *setting)
{
    const struct dlock_rung *rung = setting->rung;
    const struct write_way *way = &write_ways[setting->write];
    const bool flawed = admission_is_flawed(&setting->admission);
    const bool naive = setting->segments.naive;
    char admit[ADMISSION_TEXT_MAX], segments[SEGMENTS_TEXT_MAX];
    admission_print(&setting->admission, admit);
    segments_print(&setting->segments, segments);
    log_event(rung->flawed || way->flawed || flawed || naive ? LOG_WARNING : LOG_INFO, "lock",
              "%s with %s, admit %s, segments %s, run %s%s%s%s%s%s%s%s%s", rung->name, way->name,
              admit, segments, setting->run[0] != '\0' ? setting->run : "-",
              rung->flawed ? "; this rung is flawed: " : "", rung->flawed ? rung->flaw : "",
              way->flawed ? "; this write mode is flawed: " : "", way->flawed ? way->flaw : "",
              flawed ? "; this admission is flawed: " : "", flawed ? ADMISSION_FLAW : "",
              naive ? "; these segments are flawed: " : "", naive ? SEGMENTS_FLAW : "");
}

static bool is_same_setting(const struct setting *one, const struct setting *two)
{
    return one->rung == two->rung && one->write == two->write &&
           one->on_conflict == two->on_conflict && one->local_first == two->local_first &&
           one->check_hold == two->check_hold && one->guard_reads == two->guard_reads &&
           one->segments.count == two->segments.count &&
           one->segments.naive == two->segments.naive &&
           admission_is_same(&one->admission, &two->admission);
}

/* Records the switch: a new run gets a new file; any other change is another `begin` in the same
 * file. False: error[] says why, and nothing has changed. */
static bool record_switch(struct service *service, const struct wish *wish,
                          char error[HISTORY_ERROR_MAX])
{
    struct history *history = service->env.history;
    char begin[640];
    service_begin_members(service, &wish->setting, begin, sizeof begin);
    if (wish->named_run)
        return history_switch(history, wish->setting.run, begin, error);
    if (history != NULL && !is_same_setting(&wish->setting, &service->mode.now))
        history_begin(history, begin);
    return true;
}

/* Raises the stock's epoch for the wish. False: the request is answered. */
static bool switch_epoch(struct service *service, struct sale_worker *worker,
                         struct request *request, const struct wish *wish)
{
    char error[EPOCH_ERROR_MAX];
    enum epoch_switch switched =
        epoch_switch(&service->epochs, worker->stock, &service->mode.now, &wish->setting, error);
    text_hide_servers(error);
    if (switched == EPOCH_OVERTAKEN)
        answer_problem(request, PROBLEM_SWITCHING, "%s", error);
    else if (switched == EPOCH_UNKNOWN)
        answer_problem(request, PROBLEM_STOCK_UNAVAILABLE, "%s", error);
    else if (switched == EPOCH_INVALID)
        answer_problem(request, PROBLEM_STOCK_INVALID, "%s", error);
    return switched == EPOCH_SWITCHED;
}

/* No sale is in flight. False: this instance was not switched, and the request is answered. The
 * epoch comes first: if the rest fails, this instance sells nothing until it is switched. */
static bool switch_now(struct service *service, struct sale_worker *worker, struct request *request,
                       const struct wish *wish)
{
    char error[HISTORY_ERROR_MAX];
    if (!switch_epoch(service, worker, request, wish))
        return false;
    mode_hold(&service->mode); /* a sale that is refused meanwhile is recorded before it or after */
    const bool recorded = record_switch(service, wish, error);
    const bool other = strcmp(wish->setting.rung->name, service->mode.now.rung->name) != 0;
    struct lock_servers *locks = &service->locks[lock_servers_role(wish->setting.rung)];
    if (recorded && other && locks->engine == NULL) /* these servers have several rungs */
        atomic_store(&locks->valid_ms, 0);
    if (recorded)
        service->mode.now = wish->setting;
    mode_let_go(&service->mode);
    if (!recorded)
        answer_problem(request, PROBLEM_INTERNAL, "%s", error);
    return recorded;
}

/* A session that was idle proves itself within a tick; checks of the ensemble have less time. What
 * else is wrong with the servers, sales and checks will say. */
static void await_session(struct service *service, const struct setting *setting)
{
    const int64_t until_ns = mono_deadline_ns(SESSION_MS);
    const int64_t try_ms = 3 * service->config.redis_timeout_ms;
    struct lock_servers *locks = &service->locks[lock_servers_role(setting->rung)];
    const struct timespec pause = {.tv_nsec = 50 * NS_PER_MS};
    char ignored[STOCK_ERROR_MAX];
    dlock_status status = DLOCK_BUSY;
    if (locks->engine == NULL)
        return;
    while (status == DLOCK_BUSY && mono_ns() < until_ns && !atomic_load(&service->draining)) {
        int64_t left_ms = (until_ns - mono_ns()) / NS_PER_MS + 1;
        status = lock_servers_try(locks, "switch", min_ns(try_ms, left_ms), NULL, ignored);
        if (status == DLOCK_BUSY)
            nanosleep(&pause, NULL);
    }
    if (status == DLOCK_OK) /* a check may have had too little time meanwhile */
        outage_hint(service->env.outage, locks->role, OUTAGE_THERE);
}

/* As switch_now, and makes the new lock ready. */
static bool switch_to(struct service *service, struct sale_worker *worker, struct request *request,
                      const struct wish *wish)
{
    if (!switch_now(service, worker, request, wish))
        return false;
    lock_owner_close_locks(&service->lock_owner_pool, wish->setting.rung);
    for (size_t i = 0; i < LOCK_ROLES; i++)
        lock_servers_use(&service->locks[i], i == lock_servers_role(wish->setting.rung));
    await_session(service, &wish->setting);
    return true;
}

/* Lets what was accepted be processed. False: that took too long, and the request is answered. */
static bool drain_queues(struct service *service, struct sale_worker *worker,
                         struct request *request)
{
    const int64_t deadline_ns = finish_by_ns(&service->config);
    char why[STOCK_ERROR_MAX] = "sales of queues are still in flight";
    mode_drain(&service->mode);
    const bool done = queue_worker_drain(service->queue, worker->stock, deadline_ns, why);
    const bool ended = mode_end_drain(&service->mode, finish_by_ns(&service->config));
    text_hide_servers(why);
    if (!done || !ended)
        answer_problem(request, PROBLEM_SWITCH_TIMEOUT,
                       "sales that were accepted before are not decided yet, and on_conflict "
                       "remains queue (%s)",
                       why);
    return done && ended;
}

/* Before a switch that ends the processing of queues, what was accepted is processed. If the new
 * lock and way to write can do that, they are switched to first: they may be the cure for a queue
 * that does not move. False: the request is answered. */
static bool leave_queues(struct service *service, struct sale_worker *worker,
                         struct request *request, const struct wish *wish)
{
    const struct setting *now = &service->mode.now;
    const bool keeps = write_keeps_keys(wish->setting.write);
    const bool stays = wish->setting.on_conflict == CONFLICT_QUEUE;
    if (now->on_conflict != CONFLICT_QUEUE || (stays && keeps))
        return true;
    struct wish first = {.setting = *now};
    first.setting.rung = wish->setting.rung;
    first.setting.write = wish->setting.write;
    if (keeps && !switch_to(service, worker, request, &first))
        return false;
    if (keeps)
        log_switch(&first.setting);
    return drain_queues(service, worker, request);
}

/* Lets the sales in flight end, then switches. Answers the request. */
static void switch_lock(struct service *service, struct sale_worker *worker,
                        struct request *request, struct wish *wish)
{
    enum mode_close closed = mode_close(&service->mode, finish_by_ns(&service->config));
    if (closed == MODE_BUSY) {
        answer_problem(request, PROBLEM_SWITCHING, "try again when it is done");
        return;
    }
    if (closed == MODE_NOT_EMPTY) {
        workers_go_on(service->sales);
        answer_problem(request, PROBLEM_SWITCH_TIMEOUT, "%ld sales are still in flight",
                       atomic_load(&service->mode.in_flight));
        return;
    }
    const bool switched = admin_settle(service, request, wish, &service->mode.now) &&
                          leave_queues(service, worker, request, wish) &&
                          switch_to(service, worker, request, wish);
    mode_open(&service->mode);
    workers_go_on(service->sales);
    if (switched) {
        log_switch(&wish->setting);
        answer_setting(service, request, &wish->setting);
    }
}

bool admin_put_lock(struct service *service, void *worker, struct request *request)
{
    struct wish wish;
    if (admin_take_wish(service, request, &wish))
        switch_lock(service, worker, request, &wish);
    cJSON_Delete(wish.json);
    return true;
}
