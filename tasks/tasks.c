/* SPDX-License-Identifier: Apache-2.0
 *
 * tasksd: lists of tasks in Redis. Each request is a step of a worker: it picks a task under the
 * lock, releases the lock, does the task, and writes its result. A pick is a lease. If the worker
 * dies, the lease ends, and another worker takes the task over.
 */
#include "../lock/clock.h"
#include "frame.h"
#include "guard.h"
#include "json.h"
#include "meter.h"
#include "program.h"
#include "tasks_scripts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct config {
    struct settings_common common;
    int64_t task_ms;
    int64_t lease_ms;
    bool lease;
    int result; /* enum result */
} config;
enum result { RESULT_PLAIN, RESULT_FENCED };

static const struct settings_row rows[] = {
    {.flag = "listen", .fallback = "127.0.0.1:8400", .help = "where workers take their steps"},
    {.flag = "admin-listen",
     .fallback = "127.0.0.1:8401",
     .help =
         "where the admin listener listens, for operators: PUT /lists/{name}, /readyz, /metrics "
         "and others"},
    {"task-ms", SETTING_NUMBER, "", "ms", "50", 0, 600000, offsetof(struct config, task_ms),
     "how long a task takes"},
    {"lease", SETTING_SWITCH, "off|on", "", "on", 0, 0, offsetof(struct config, lease),
     "a pick ends after --lease-ms, and another worker may take the task over. With off, a picked "
     "task leaves the list at once: if its worker dies, it is lost"},
    {"lease-ms", SETTING_NUMBER, "", "ms", "5000", 10, 86400000, offsetof(struct config, lease_ms),
     "how long a pick lasts by the clock of Redis; longer than a task takes. If that clock jumps, "
     "leases end early or late"},
    {"result", SETTING_CHOICE, "plain|fenced", "", "plain", 0, 0, offsetof(struct config, result),
     "how a result is written. With plain: over any other. With fenced: one script writes it if "
     "the task has none, and nobody has picked the task since; picks compare the token, too. It "
     "needs a rung with tokens"},
    {.flag = NULL},
};

struct service {
    struct frame frame;
};
static struct service service;

enum {
    PROBLEM_UNKNOWN_LIST = PROBLEM_FRAME_COUNT,
    PROBLEM_NO_TASK,
    PROBLEM_ALL_DONE,
    PROBLEM_RESULT_REFUSED,
    PROBLEM_LIST_REPLACED,
};
static const struct problem_row problems[] = {
    FRAME_PROBLEMS,
    {PROBLEM_UNKNOWN_LIST, "unknown-list", 404, "There is no such list", "operators PUT lists"},
    {PROBLEM_NO_TASK, "no-task", 409, "Other workers have all tasks",
     "Retry-After tells when the first lease ends"},
    {PROBLEM_ALL_DONE, "all-done", 409, "No task is left", "each was picked and has left the list"},
    {PROBLEM_RESULT_REFUSED, "result-refused", 409, "Another worker has the task",
     "the result was not written"},
    {PROBLEM_LIST_REPLACED, "list-replaced", 409, "The list was laid anew",
     "nothing of the new list was changed"},
};

static const struct failpoint_row points[] = {
    {"tasks.looked", ""}, /* a task was found, and is not picked yet */
    {"tasks.picked", ""}, /* the task is picked, and the lock is released */
    {"tasks.worked", ""}, /* the task is done, and its result is not written yet */
    {.name = NULL},
};

static struct frame_meter meters[] = {
    {"tasks_picked_total", "Tasks that were picked.", 0},
    {"tasks_taken_over_total", "Of these: tasks whose earlier pick's lease had ended.", 0},
    {"tasks_results_total", "Results that were written.", 0},
    {"tasks_refused_total", "Picks and results that the token refused.", 0},
    {.name = NULL},
};
enum { PICKED, TAKEN_OVER, RESULTS, REFUSED };

static void count(int meter)
{
    meter_add(&meters[meter].count, 1);
}

/* ---- The list in Redis ----------------------------------------------------------------------- */

struct step {
    struct guard guard;
    struct store *store;
    struct request *request;
    char laid[32]; /* which list it is */
    char task[24]; /* of the list; "": none */
    char token[24];
    const redisReply *reply;
};

static void step_init(struct step *step, struct store *store, struct request *request)
{
    *step = (struct step){.store = store, .request = request, .task = "0", .token = "0"};
}

static bool is_fenced(void)
{
    return config.result == RESULT_FENCED;
}

/* Runs a script with the list's keys. */
#define SCRIPT_ARGS_MAX 5
#define RUN(step, script, ...)                                                                     \
    run_script(step, script, (const char *const[SCRIPT_ARGS_MAX]){__VA_ARGS__})
static enum store_status run_script(struct step *step, const struct script *script,
                                    const char *const args[SCRIPT_ARGS_MAX])
{
    static const char *const kinds[] = {"", ":tokens", ":results", ":list"};
    enum { KEYS = sizeof kinds / sizeof kinds[0] };
    char keys[KEYS][ITEM_MAX + 32];
    const char *argv[1 + KEYS + SCRIPT_ARGS_MAX + 1] = {"4"};
    for (int i = 0; i < KEYS; i++) {
        snprintf(keys[i], sizeof keys[i], "tasks:{%.*s}%s", ITEM_MAX, step->request->part,
                 kinds[i]);
        argv[1 + i] = keys[i];
    }
    for (int i = 0; i < SCRIPT_ARGS_MAX; i++)
        argv[1 + KEYS + i] = args[i];
    return store_run(step->store, script, argv, &step->reply);
}

/* Answers a script that refused, or failed. Returns false. */
static bool answer_failed(struct step *step, enum store_status status, bool writes)
{
    const char *code = store_code(step->store);
    if (strcmp(code, "NOLIST") == 0)
        answer_problem(step->request, PROBLEM_UNKNOWN_LIST, "there is no list %s",
                       step->request->part);
    else if (strcmp(code, "LAID") == 0)
        answer_problem(step->request, PROBLEM_LIST_REPLACED, "task %s is of an older list",
                       step->task);
    else if (writes)
        guard_write_failed(&step->guard, step->store, status);
    else
        guard_read_failed(&step->guard, step->store, status);
    return false;
}

static bool is_stale(const struct step *step, enum store_status status)
{
    return status != STORE_OK && strcmp(store_code(step->store), "STALE") == 0;
}

/* The token is too old. Returns false. */
static bool refuse(struct step *step, const char *event, int problem)
{
    const char *newest = store_last_word(step->store);
    count(REFUSED);
    GUARD_RECORD(&step->guard, event, ",\"task\":%s,\"token\":%s,\"newest\":%s", step->task,
                 step->token, newest);
    answer_problem(step->request, problem, "this worker has token %s, and another one has %s",
                   step->token, newest);
    return false;
}

/* ---- A worker's step ------------------------------------------------------------------------- */

static void answer_none(struct step *step, long long leased, long long ends_ms)
{
    if (leased == 0) {
        answer_problem(step->request, PROBLEM_ALL_DONE, "no task of %s is left",
                       step->request->part);
        return;
    }
    answer_problem(step->request, PROBLEM_NO_TASK,
                   "workers have the %lld that are left; the first lease ends in %lld ms", leased,
                   ends_ms);
    step->request->answer.retry_s = (ends_ms + 999) / 1000;
}

/* Finds the first task that may be picked. False: there is none, and the request is answered. */
static bool look(struct step *step)
{
    snprintf(step->token, sizeof step->token, "%" PRIu64, dlock_token(step->guard.hold));
    const enum store_status status = RUN(step, &lua_look, is_fenced() ? step->token : "");
    if (is_stale(step, status))
        return refuse(step, "pick_refused", PROBLEM_LOCK_LOST);
    if (status != STORE_OK)
        return answer_failed(step, status, is_fenced());
    redisReply *const *parts = step->reply->element;
    char *end;
    const long long task = strtoll(parts[1]->str, &end, 10);
    if (*end != '\0' || parts[1]->len >= sizeof step->task) {
        answer_problem(step->request, PROBLEM_STORE_INVALID,
                       "tasks:{%s} has a task that is no number: lay the list anew",
                       step->request->part);
        return false;
    }
    snprintf(step->laid, sizeof step->laid, "%s", parts[0]->str);
    snprintf(step->task, sizeof step->task, "%lld", task);
    GUARD_RECORD(&step->guard, "looked", ",\"task\":%s", step->task);
    if (task == 0)
        answer_none(step, parts[2]->integer, parts[3]->integer);
    return task != 0;
}

/* Picks the task. False: the request is answered. */
static bool take(struct step *step)
{
    const int64_t lease_ms = config.lease ? config.lease_ms : 0;
    char lease[24];
    snprintf(lease, sizeof lease, "%" PRId64, lease_ms);
    const int64_t sent_ns = mono_ns();
    const enum store_status status = RUN(step, &lua_take, step->task, step->laid, step->token,
                                         lease, settings_word(&config, "result"));
    if (is_stale(step, status))
        return refuse(step, "pick_refused", PROBLEM_LOCK_LOST);
    if (status != STORE_OK)
        return answer_failed(step, status, true);
    count(PICKED);
    if (step->reply->integer == 1)
        count(TAKEN_OVER);
    GUARD_RECORD(&step->guard, "picked",
                 ",\"hold\":\"%s\",\"task\":%s,\"token\":%s,\"sent_ns\":%" PRId64
                 ",\"lease_ms\":%" PRId64,
                 step->guard.hold_id, step->task, step->token, sent_ns, lease_ms);
    return true;
}

static void work(struct step *step)
{
    const struct timespec until = timespec_of(mono_deadline_ns(config.task_ms));
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
    GUARD_RECORD(&step->guard, "worked", ",\"task\":%s", step->task);
}

/* False: the request is answered. */
static bool write_result(struct step *step)
{
    GUARD_RECORD(&step->guard, "sending", ",\"task\":%s,\"token\":%s", step->task, step->token);
    const int64_t sent_ns = mono_ns();
    const enum store_status status = RUN(step, &lua_result, step->task, step->laid, step->token,
                                         step->request->id, settings_word(&config, "result"));
    if (is_stale(step, status))
        return refuse(step, "result_refused", PROBLEM_RESULT_REFUSED);
    if (status != STORE_OK)
        return answer_failed(step, status, true);
    count(RESULTS);
    GUARD_RECORD(&step->guard, "result", ",\"task\":%s,\"token\":%s,\"sent_ns\":%" PRId64,
                 step->task, step->token, sent_ns);
    return true;
}

static void take_step(struct step *step)
{
    struct frame *frame = step->guard.frame;
    if (!guard_enter(&step->guard) || !look(step))
        return;
    frame_point(frame, "tasks", "looked");
    if (!take(step))
        return;
    guard_leave(&step->guard);
    store_rest(step->store); /* others may use the connection meanwhile */
    frame_point(frame, "tasks", "picked");
    work(step);
    frame_point(frame, "tasks", "worked");
    if (!write_result(step))
        return;
    GUARD_RECORD(&step->guard, "answered", ",\"code\":200,\"task\":%s", step->task);
    answer_json(step->request, 200,
                "{\"list\":\"%s\",\"task\":%s,\"token\":%s,\"instance\":\"%s\"}",
                step->guard.item, step->task, step->token, config.common.instance);
}

static bool serve(struct service *of, void *state, struct request *request,
                  void (*run)(struct step *step))
{
    struct step step;
    step_init(&step, state, request);
    if (!guard_begin(&step.guard, &of->frame, request, request->part))
        return true;
    run(&step);
    guard_end(&step.guard);
    store_rest(step.store);
    return true;
}

static bool work_step(struct service *of, void *state, struct request *request)
{
    return serve(of, state, request, take_step);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

/* False: the request is answered. */
static bool answer_list(struct step *step)
{
    const enum store_status status = RUN(step, &lua_count, NULL);
    if (status != STORE_OK)
        return answer_failed(step, status, false);
    redisReply *const *counts = step->reply->element;
    answer_json(step->request, 200,
                "{\"list\":\"%s\",\"tasks\":%lld,\"open\":%lld,\"leased\":%lld,\"done\":%lld,"
                "\"instance\":\"%s\"}",
                step->request->part, counts[0]->integer, counts[1]->integer, counts[2]->integer,
                counts[3]->integer, config.common.instance);
    return true;
}

static void show_list(struct step *step)
{
    if (answer_list(step))
        GUARD_RECORD(&step->guard, "answered", ",\"code\":200");
}

static bool work_look(struct service *of, void *state, struct request *request)
{
    return serve(of, state, request, show_list);
}

/* Reads {"tasks":N}. One script lays them, so that nobody sees a part of the list: hence the limit.
 * False: the request is answered. */
#define TASKS_MAX 100000
static bool take_count(struct request *request, char tasks[24])
{
    static const char example[] = "{\"tasks\":1000}";
    cJSON *json = json_body(request, example);
    if (json == NULL)
        return false;
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(json, "tasks");
    if (cJSON_IsNumber(number) && cJSON_GetArraySize(json) == 1 && json_is_digits(request) &&
        number->valuedouble >= 1 && number->valuedouble <= TASKS_MAX)
        snprintf(tasks, 24, "%.0f", number->valuedouble);
    else
        answer_problem(request, PROBLEM_INVALID_VALUE,
                       "the body must be {\"tasks\":N} with N a whole number in digits alone, from "
                       "1 to %d; as in %s",
                       TASKS_MAX, example);
    cJSON_Delete(json);
    return request->answer.status == 0;
}

/* An operator's, so the history does not have it. */
static bool work_lay(struct service *of, void *state, struct request *request)
{
    char tasks[24];
    struct step step;
    step_init(&step, state, request);
    step.guard = (struct guard){.frame = &of->frame, .request = request}; /* for a lost reply */
    if (!take_count(request, tasks))
        return true;
    const enum store_status status = RUN(&step, &lua_lay, tasks);
    if (status == STORE_OK)
        answer_list(&step);
    else
        answer_failed(&step, status, true);
    store_rest(step.store);
    return true;
}

static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_POST, "/lists/{name}/work", NULL, false, RUN_WORKERS, frame_take_name,
     NULL, work_step, NULL},
    {LISTENER_PUBLIC, METHOD_GET, "/lists/{name}", NULL, false, RUN_WORKERS, frame_take_name, NULL,
     work_look, NULL},
    {LISTENER_ADMIN, METHOD_PUT, "/lists/{name}", NULL, true, RUN_ASIDE, frame_take_name, NULL,
     work_lay, "workers work here; operators have an address of their own"},
    FRAME_ROUTES,
};
static const struct routes routes = {route_rows, sizeof route_rows / sizeof route_rows[0]};

/* ---- The program ----------------------------------------------------------------------------- */

const struct program program = {
    .name = "tasksd",
    .problems = problems,
    .problem_count = sizeof problems / sizeof problems[0],
    .settings = {.about = "tasksd has lists of tasks in Redis; the lock lets each task be picked "
                          "by one worker.",
                 .example = "task-ms",
                 .rows = rows},
    .points = points,
    .example_point = "tasks.picked",
    .common = frame_common,
    .failpoints = frame_failpoints};

static void *open_worker(struct service *of, struct store *store)
{
    (void)of;
    return store;
}

static void close_worker(void *state)
{
    store_free(state);
}

static bool is_ready(void *state, char why[FRAME_WHY_MAX])
{
    const bool ready = store_check(state, "tasks:{readyz}") == STORE_OK;
    snprintf(why, FRAME_WHY_MAX, "%s", store_error(state));
    store_rest(state);
    return ready;
}

static bool fits(char error[PROCESS_ERROR_MAX])
{
    if (!is_fenced() || config.common.lock->tokens)
        return true;
    snprintf(error, PROCESS_ERROR_MAX,
             "--result fenced needs a rung that gives tokens, as --lock fair does; --lock %s gives "
             "none: take another, or --result plain",
             config.common.lock->name);
    return false;
}

static void print_invoke(const struct request *request, char *text, size_t size)
{
    snprintf(text, size, ",\"does\":\"%s\"", request->method == METHOD_POST ? "work" : "look");
}

static void print_begin(char *text, size_t size)
{
    snprintf(text, size,
             ",\"task_ms\":%" PRId64 ",\"lease_ms\":%" PRId64 ",\"result\":\"%s\"", config.task_ms,
             config.lease ? config.lease_ms : 0, settings_word(&config, "result"));
}

int main(int argc, char **argv)
{
    return frame_main(&service.frame,
                      &(struct frame_options){.name = "tasks",
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
                                              .meters = meters},
                      &config, argc, argv);
}
