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
#include "program.h"
#include "tasks_scripts.h"
#include "text.h"

#include <inttypes.h>
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

/* ---- The list in Redis ----------------------------------------------------------------------- */

struct step {
    struct guard guard;
    struct store *store;
    struct request *request;
    char laid[32]; /* which list it is */
    char task[24]; /* "0": none */
    char token[24];
    bool picked;
    const redisReply *reply;
};

/* A script; and, if it refuses a token as too old, what is recorded (NULL: nothing) and told. */
struct call {
    const struct script *script;
    bool writes;
    const char *refused;
    int problem;
};
static const struct call lay = {&lua_lay, true, NULL, 0}, counts = {&lua_count, false, NULL, 0},
                         look = {&lua_look, false, NULL, PROBLEM_LOCK_LOST},
                         take = {&lua_take, true, "pick_refused", PROBLEM_LOCK_LOST},
                         result = {&lua_result, true, "result_refused", PROBLEM_RESULT_REFUSED};

static void answer_failed(struct step *step, const struct call *call, enum store_status status)
{
    const char *code = store_code(step->store), *newest = store_last_word(step->store);
    if (strcmp(code, "NOLIST") == 0) {
        answer_problem(step->request, PROBLEM_UNKNOWN_LIST, "there is no list %s",
                       step->request->part);
    } else if (strcmp(code, "LAID") == 0) {
        answer_problem(step->request, PROBLEM_LIST_REPLACED, "task %s is of an older list",
                       step->task);
    } else if (strcmp(code, "STALE") == 0) {
        frame_count(step->guard.frame, REFUSED);
        if (call->refused != NULL)
            GUARD_RECORD(&step->guard, call->refused, ",\"task\":%s,\"token\":%s,\"newest\":%s",
                         step->task, step->token, newest);
        if (strcmp(newest, step->token) == 0)
            answer_problem(step->request, call->problem, "task %s has a result by now", step->task);
        else
            answer_problem(step->request, call->problem, "token %s is not the newest, which is %s",
                           step->token, newest);
    } else if (call->writes) {
        guard_write_failed(&step->guard, step->store, status);
    } else {
        guard_read_failed(&step->guard, step->store, status);
    }
}

/* Runs a script with the list's keys. False: the request is answered. */
#define ARGS_MAX 5
#define CALL(step, call, ...) run_call(step, &(call), (const char *const[ARGS_MAX]){__VA_ARGS__})
static bool run_call(struct step *step, const struct call *call, const char *const args[ARGS_MAX])
{
    static const char *const kinds[] = {"", ":tokens", ":results", ":list"};
    char keys[4][ITEM_MAX + 32];
    const char *argv[1 + 4 + ARGS_MAX + 1] = {"4"};
    for (int i = 0; i < 4; i++) {
        snprintf(keys[i], sizeof keys[i], "tasks:{%.64s}%s", step->request->part, kinds[i]);
        argv[1 + i] = keys[i];
    }
    for (int i = 0; i < ARGS_MAX; i++)
        argv[1 + 4 + i] = args[i];
    const enum store_status status = store_run(step->store, call->script, argv, &step->reply);
    if (status != STORE_OK)
        answer_failed(step, call, status);
    return status == STORE_OK;
}

/* ---- A worker's step ------------------------------------------------------------------------- */

/* Finds the first task that may be picked. False: there is none, and the request is answered. */
static bool find_task(struct step *step)
{
    snprintf(step->token, sizeof step->token, "%" PRIu64, dlock_token(step->guard.hold));
    if (!CALL(step, look, step->token, settings_word(&config, "result")))
        return false;
    redisReply *const *found = step->reply->element;
    const long long leased = found[2]->integer, ends_ms = found[3]->integer;
    snprintf(step->laid, sizeof step->laid, "%s", found[0]->str);
    snprintf(step->task, sizeof step->task, "%s", found[1]->str);
    GUARD_RECORD(&step->guard, "looked", ",\"task\":%s", step->task);
    if (strcmp(step->task, "0") != 0)
        return true;
    if (leased == 0) {
        answer_problem(step->request, PROBLEM_ALL_DONE, "no task of %s is left", step->guard.item);
        return false;
    }
    answer_problem(step->request, PROBLEM_NO_TASK,
                   "workers have all %lld that are left; the first lease ends in %lld ms", leased,
                   ends_ms);
    step->request->answer.retry_s = (ends_ms + 999) / 1000;
    return false;
}

/* False: the request is answered. True, and not picked: look again, the task has a result. */
static bool pick(struct step *step)
{
    const int64_t lease_ms = config.lease ? config.lease_ms : 0;
    const int64_t sent_ns = mono_ns();
    if (!CALL(step, take, step->task, step->laid, step->token, TEXT_OF(lease_ms),
              settings_word(&config, "result")))
        return false;
    step->picked = step->reply->integer >= 0;
    if (!step->picked)
        return true;
    frame_count(step->guard.frame, PICKED);
    if (step->reply->integer == 1)
        frame_count(step->guard.frame, TAKEN_OVER);
    GUARD_RECORD(&step->guard, "picked",
                 ",\"task\":%s,\"token\":%s,\"sent_ns\":%" PRId64 ",\"lease_ms\":%" PRId64,
                 step->task, step->token, sent_ns, lease_ms);
    return true;
}

/* False: the request is answered. */
static bool write_result(struct step *step)
{
    GUARD_RECORD(&step->guard, "sending", ",\"task\":%s,\"token\":%s", step->task, step->token);
    const int64_t sent_ns = mono_ns();
    if (!CALL(step, result, step->task, step->laid, step->token, step->request->id,
              settings_word(&config, "result")))
        return false;
    frame_count(step->guard.frame, RESULTS);
    GUARD_RECORD(&step->guard, "result", ",\"task\":%s,\"token\":%s,\"sent_ns\":%" PRId64,
                 step->task, step->token, sent_ns);
    return true;
}

/* False: the request is answered. */
static bool may_look_again(struct step *step)
{
    if (atomic_load(&step->guard.frame->draining))
        answer_problem(step->request, PROBLEM_DRAINING,
                       "the instance began to shut down while the request looked for a task");
    else if (guard_left_ms(&step->guard) == 0)
        answer_problem(step->request, PROBLEM_DEADLINE,
                       "it looked for a task for longer than --wait-ms");
    return step->request->answer.status == 0;
}

static void take_step(struct step *step)
{
    if (!guard_enter(&step->guard))
        return;
    while (!step->picked) {
        if (!find_task(step) || !guard_go_on(&step->guard))
            return;
        frame_point(step->guard.frame, "tasks", "looked");
        if (!pick(step) || (!step->picked && !may_look_again(step)))
            return;
    }
    guard_leave(&step->guard);
    store_rest(step->store); /* others may use the connection meanwhile */
    frame_point(step->guard.frame, "tasks", "picked");
    frame_take_ms(config.task_ms);
    GUARD_RECORD(&step->guard, "worked", ",\"task\":%s", step->task);
    frame_point(step->guard.frame, "tasks", "worked");
    if (!write_result(step))
        return;
    GUARD_RECORD(&step->guard, "answered", ",\"code\":200,\"task\":%s", step->task);
    answer_json(step->request, 200,
                "{\"list\":\"%s\",\"task\":%s,\"token\":%s,\"instance\":\"%s\"}", step->guard.item,
                step->task, step->token, config.common.instance);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static void show_list(struct step *step)
{
    if (!CALL(step, counts, NULL))
        return;
    redisReply *const *of = step->reply->element;
    GUARD_RECORD(&step->guard, "answered", ",\"code\":200");
    answer_json(step->request, 200,
                "{\"list\":\"%s\",\"tasks\":%lld,\"open\":%lld,\"leased\":%lld,\"done\":%lld,"
                "\"instance\":\"%s\"}",
                step->guard.item, of[0]->integer, of[1]->integer, of[2]->integer, of[3]->integer,
                config.common.instance);
}

/* One script lays them, and Redis does nothing else meanwhile: hence the limit. */
#define TASKS_MAX 100000

/* An operator's, so the history does not have it: the guard only ends a command whose reply is
 * lost. */
static bool work_lay(struct service *of, void *state, struct request *request)
{
    int64_t tasks;
    struct step step = {
        .guard = {.frame = &of->frame, .request = request}, .store = state, .request = request};
    if (!json_take_number(request, "tasks", 1, TASKS_MAX, &tasks))
        return true;
    if (CALL(&step, lay, TEXT_OF(tasks)))
        answer_json(request, 200, "{\"list\":\"%s\",\"tasks\":%" PRId64 ",\"instance\":\"%s\"}",
                    request->part, tasks, config.common.instance);
    store_rest(step.store);
    return true;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

static bool serve(struct service *of, void *state, struct request *request,
                  void (*run)(struct step *step))
{
    struct step step = {.store = state, .request = request, .task = "0"};
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

static bool work_show(struct service *of, void *state, struct request *request)
{
    return serve(of, state, request, show_list);
}

static const struct route route_rows[] = {
    {LISTENER_PUBLIC, METHOD_POST, "/lists/{name}/work", NULL, false, RUN_WORKERS, frame_take_name,
     NULL, work_step, NULL},
    {LISTENER_PUBLIC, METHOD_GET, "/lists/{name}", NULL, false, RUN_WORKERS, frame_take_name, NULL,
     work_show, NULL},
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

static bool is_ready(void *state, char why[FRAME_WHY_MAX])
{
    return frame_store_ready(state, "tasks:{readyz}", why);
}

static bool fits(char error[PROCESS_ERROR_MAX])
{
    return config.result == RESULT_PLAIN ||
           frame_has_tokens(&config.common, "--result fenced", "--result plain", error);
}

static void print_invoke(const struct request *request, char *text, size_t size)
{
    snprintf(text, size, ",\"does\":\"%s\"", request->method == METHOD_POST ? "work" : "look");
}

static void print_begin(char *text, size_t size)
{
    snprintf(text, size, ",\"task_ms\":%" PRId64 ",\"lease_ms\":%" PRId64 ",\"result\":\"%s\"",
             config.task_ms, config.lease ? config.lease_ms : 0, settings_word(&config, "result"));
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
                                              .open = frame_open_store,
                                              .close = frame_close_store,
                                              .ready = is_ready,
                                              .meters = meters},
                      &config, argc, argv);
}
