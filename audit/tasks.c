/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks.h"

#include "check.h"
#include "memory.h"
#include "read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What is read ---------------------------------------------------------------------------- */

/* The settings, as run.json and each `begin` state them. */
static bool tasks_read_settings(const cJSON *json, struct tasks *tasks, char error[JSON_ERROR_MAX])
{
    enum { DAY_MS = 86400000 };
    if (!json_int(json, "task_ms", JSON_REQUIRED, 0, DAY_MS, &tasks->task_ms, error) ||
        !json_int(json, "lease_ms", JSON_REQUIRED, 0, DAY_MS, &tasks->lease_ms, error) ||
        !json_text(json, "result", JSON_REQUIRED, &tasks->result, error))
        return false;
    if (strcmp(tasks->result, "plain") == 0 || strcmp(tasks->result, "fenced") == 0)
        return true;
    snprintf(error, JSON_ERROR_MAX, "\"result\" is \"%.40s\"; it must be plain or fenced",
             tasks->result);
    return false;
}

static bool tasks_read_spec(struct run *run, char error[JSON_ERROR_MAX])
{
    run->tasks = memory_new(1, sizeof *run->tasks);
    run->spec.quantity = 1;
    if (!tasks_read_settings(run->spec.json, run->tasks, error))
        return false;
    run->spec.fenced = strcmp(run->tasks->result, "fenced") == 0;
    return true;
}

static void tasks_check_begin(struct reader *reader, struct record *record)
{
    const struct tasks *tasks = reader->run->tasks;
    struct tasks begun = {.result = NULL};
    if (!tasks_read_settings(record->json, &begun, record->error))
        wrong(reader, record);
    else if (begun.task_ms != tasks->task_ms || begun.lease_ms != tasks->lease_ms ||
             strcmp(begun.result, tasks->result) != 0)
        complain(&reader->source, record->line,
                 "recorded with another task_ms, lease_ms or result; they must be run.json's");
}

static bool tasks_is_sample(const char *label)
{
    return strncmp(label, "POST work", 9) == 0;
}

/* POST /lists/{name}/work */
static bool tasks_is_request(const char *method, const char *uri)
{
    static const char tail[] = "/work";
    const size_t length = strcspn(uri, "?");
    return strcmp(method, "POST") == 0 && strncmp(uri, "/lists/", 7) == 0 &&
           length >= sizeof tail - 1 &&
           memcmp(uri + length - (sizeof tail - 1), tail, sizeof tail - 1) == 0;
}

static int tasks_by_number(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a;
    const int64_t two = *(const int64_t *)b;
    return (one > two) - (one < two);
}

/* The tasks without a result, of which the first ones are named. */
static bool tasks_read_missing(const cJSON *json, const struct item *item, struct list_side *side,
                               char error[JSON_ERROR_MAX])
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "missing");
    const cJSON *entry = NULL;
    if (!json_int(json, "missing_count", JSON_REQUIRED, 0, item->stock, &side->missing_count,
                  error))
        return false;
    cJSON_ArrayForEach(entry, list) {
        if (!cJSON_IsNumber(entry) || entry->valuedouble < 1 ||
            entry->valuedouble > (double)item->stock || side->named == MISSING_MAX)
            break;
        side->missing[side->named++] = (int64_t)entry->valuedouble;
    }
    qsort(side->missing, side->named, sizeof *side->missing, tasks_by_number);
    const int64_t wanted = side->missing_count < MISSING_MAX ? side->missing_count : MISSING_MAX;
    if (cJSON_IsArray(list) && entry == NULL && (int64_t)side->named == wanted)
        return true;
    snprintf(error, JSON_ERROR_MAX,
             "\"missing\" must list %lld tasks from 1 to %lld, as \"missing_count\" says",
             (long long)wanted, (long long)item->stock);
    return false;
}

static void tasks_read_redis(struct source *source, const cJSON *json, const char *when,
                             const struct item *item, struct redis_side *side)
{
    struct run *run = source->run;
    const enum moment moment = side == &item->redis[AFTER] ? AFTER : BEFORE;
    const cJSON *lists = cJSON_GetObjectItemCaseSensitive(json, "tasks");
    const cJSON *entry = cJSON_GetObjectItemCaseSensitive(lists, item->name);
    char error[JSON_ERROR_MAX];
    side->stock = NOT_KNOWN;
    if (run->tasks->lists == NULL)
        run->tasks->lists = memory_new(run->item_count, sizeof *run->tasks->lists);
    struct list_side *read = &run->tasks->lists[item - run->items].side[moment];
    if (!cJSON_IsObject(entry))
        redis_missing(source, when, "tasks", item);
    else if (!json_int(entry, "open", JSON_REQUIRED, 0, UNITS_MAX, &read->open, error) ||
             !json_int(entry, "leased", JSON_REQUIRED, 0, UNITS_MAX, &read->leased, error) ||
             !json_int(entry, "done", JSON_REQUIRED, 0, UNITS_MAX, &read->done, error) ||
             (moment == AFTER && !tasks_read_missing(entry, item, read, error)))
        complain(source, 0, "%s, tasks of %.60s: %s", when, item->name, error);
    else
        read->known = true;
}

static void tasks_settle(struct run *run)
{
    run_find_rejected(run);
}

void tasks_free(struct tasks *tasks)
{
    free(tasks->lists);
    free(tasks->workers);
    free(tasks->picks);
    free(tasks->idles);
    free(tasks);
}

static const char *tasks_answer_differs(const struct run *run, const struct request *request)
{
    if (request->outcome != OUTCOME_ANSWERED)
        return NULL;
    if (request->client_instance != request->instance)
        return "another instance's history has the answer";
    if (request->client_item != request->item)
        return "the instance's history has an answer about another list";
    return request->client_task != tasks_worker(run, (size_t)(request - run->requests)).answered
               ? "the instance's history says that it told another task"
               : NULL;
}

/* ---- The verdict ----------------------------------------------------------------------------- */

/* Of the workers that wrote a result, as their clients measured them. */
static void tasks_measure(struct run *run)
{
    size_t count = 0;
    double *values = memory_new(run->request_count, sizeof *values);
    for (size_t i = 0; i < run->request_count; i++)
        if (run->requests[i].sampled && run->requests[i].outcome == OUTCOME_ANSWERED)
            values[count++] = run->requests[i].elapsed_ms;
    run->tasks->step_ms = verdict_spread(values, count);
    free(values);
}

/* With a fence each pick's token is compared with those of its own task only. So a section with an
 * old token may have picked another task, and did no harm. */
static void tasks_check_all(struct run *run)
{
    if (!is_fenced(run))
        check_tokens(run);
    tasks_check(run);
    tasks_measure(run);
}

static int64_t tasks_amount(const struct run *run, enum result result)
{
    const struct tasks *tasks = run->tasks;
    switch (result) {
    case RESULT_REPEATED:
        return tasks->repeated > 0 ? tasks->repeated : tasks->picked_wrongly;
    case RESULT_LOST_TASK:
        return -(tasks->lost > 0 ? tasks->lost : tasks->vanished);
    case RESULT_UNFINISHED:
        return -tasks->sent_away;
    default:
        return 0;
    }
}

static void tasks_tell(struct run *run, enum result result)
{
    const struct tasks *tasks = run->tasks;
    const long long open = (long long)tasks->open;
    const long long leased = (long long)tasks->leased;
    if (result == RESULT_OK)
        findings_add(&run->findings, RESULT_OK,
                     "requests: %lld, tasks: %lld, results: %lld, none of a task that had one; "
                     "sections: %zu, %s; picked again after another worker's lease: %lld",
                     (long long)run->counts.requests, (long long)tasks->tasks,
                     (long long)tasks->results, run->by_lock_count,
                     run->counts.overlaps > 0 ? "some while another was inside"
                                              : "no two of one lock at the same time",
                     (long long)tasks->taken_over);
    if (open + leased > 0)
        findings_add(&run->findings, RESULT_OK,
                     "tasks that nobody had finished when the run ended: %lld (%lld open, %lld "
                     "leased); they can still be picked",
                     open + leased, open, leased);
    if (tasks->unknown > 0)
        findings_add(&run->findings, RESULT_OK,
                     "requests of which nobody knows whether they picked a task or wrote its "
                     "result: %lld; results of theirs in Redis: %lld",
                     (long long)tasks->unknown, (long long)tasks->unknown_done);
    if (result == RESULT_OK && tasks->refused > 0)
        findings_add(&run->findings, RESULT_OK,
                     "picks and results that were refused for their old token, or since the task "
                     "had its result: %lld",
                     (long long)tasks->refused);
}

static const char *tasks_settings(const struct run *run, char *text, size_t size)
{
    const struct tasks *tasks = run->tasks;
    snprintf(text, size, "rung %.40s, result %.10s, lease %lld ms, task %lld ms, fault %.40s",
             run->spec.rung, tasks->result, (long long)tasks->lease_ms, (long long)tasks->task_ms,
             run->spec.fault);
    return text;
}

static void tasks_add_settings(cJSON *json, const struct run *run)
{
    const struct tasks *tasks = run->tasks;
    const struct number numbers[] = {{"task_ms", tasks->task_ms}, {"lease_ms", tasks->lease_ms}};
    /* "result" is the verdict's */
    cJSON_AddStringToObject(json, "service", "tasks");
    cJSON_AddStringToObject(json, "write_result", tasks->result);
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

static void tasks_add_counts(cJSON *json, const struct run *run)
{
    const struct tasks *tasks = run->tasks;
    const struct number numbers[] = {
        {"requests", run->counts.requests},
        {"tasks", tasks->tasks},
        {"picks", tasks->picked},
        {"results", tasks->results},
        {"repeated", tasks->repeated},
        {"picked_twice", tasks->picked_twice},
        {"taken_over", tasks->taken_over},
        {"late", tasks->late},
        {"refused", tasks->refused},
        {"nothing_found", (int64_t)tasks->idle_count},
        {"sent_away", tasks->sent_away},
        {"lost", tasks->lost},
        {"vanished", tasks->vanished},
        {"unfinished", tasks->open + tasks->leased},
        {"open", tasks->open},
        {"leased", tasks->leased},
        {"unknown", tasks->unknown},
        {"unknown_done", tasks->unknown_done},
    };
    verdict_add_numbers(json, numbers, sizeof numbers / sizeof *numbers);
}

static void tasks_add_instance(cJSON *json, const struct run *run, size_t instance)
{
    int64_t picks = 0, results = 0;
    for (size_t i = 0; i < run->tasks->pick_count; i++) {
        const struct pick *pick = &run->tasks->picks[i];
        if (run->requests[pick->request].instance != instance)
            continue;
        picks += !pick->possible;
        results += pick->result_ns != NOT_STAMPED;
    }
    cJSON_AddNumberToObject(json, "picks", (double)picks);
    cJSON_AddNumberToObject(json, "results", (double)results);
}

static void tasks_add_measures(cJSON *json, const struct run *run)
{
    verdict_add_spread(json, "step_ms", &run->tasks->step_ms);
    verdict_add_spread(json, "take_over_ms", &run->tasks->take_over_ms);
}

/* ---- A row of the table ---------------------------------------------------------------------- */

#define TASKS_ROW "%-13s %-6s %7s %8s %7s %7s %7s %8s %6s %7s %6s %11s %11s  %-16s %s%s%s\n"

static void tasks_print_head(void)
{
    printf(TASKS_ROW, "", "", "lease", "", "", "", "", "two", "taken", "", "", "overlapping",
           "p50/p99", "", "", "", "");
    printf(TASKS_ROW, "rung", "result", "ms", "requests", "tasks", "picks", "results", "results",
           "over", "refused", "lost", "sections", "ms", "expected", "got", "", "");
}

static const char *tasks_number(int64_t value, char text[24])
{
    snprintf(text, 24, "%lld", (long long)value);
    return text;
}

static void tasks_print_row(const struct run *run, const struct verdict *verdict)
{
    const struct tasks *tasks = run->tasks;
    char texts[10][24];
    char spread[48] = "-";
    char expected[128];
    char got[64];
    if (tasks->step_ms.known)
        snprintf(spread, sizeof spread, "%.0f/%.0f", tasks->step_ms.p50, tasks->step_ms.p99);
    verdict_expected(verdict, "|", expected, sizeof expected);
    verdict_got(run, verdict, got, sizeof got);
    const bool broken = strcmp(run->spec.fault, "none") != 0;
    printf(TASKS_ROW, run->spec.rung, tasks->result, tasks_number(tasks->lease_ms, texts[0]),
           tasks_number(run->counts.requests, texts[1]), tasks_number(tasks->tasks, texts[2]),
           tasks_number(tasks->picked, texts[3]), tasks_number(tasks->results, texts[4]),
           tasks_number(tasks->repeated, texts[5]), tasks_number(tasks->taken_over, texts[6]),
           tasks_number(tasks->refused, texts[7]), tasks_number(tasks->lost, texts[8]),
           tasks_number(run->counts.overlaps, texts[9]), spread, expected, got, broken ? ", " : "",
           broken ? run->spec.fault : "");
}

/* ---- The picture ----------------------------------------------------------------------------- */

static void tasks_title(const struct run *run, char text[SVG_LABEL_MAX])
{
    const struct tasks *tasks = run->tasks;
    char rung[SVG_LABEL_MAX];
    char lease[32] = "off";
    if (tasks->lease_ms > 0)
        snprintf(lease, sizeof lease, "%lld ms", (long long)tasks->lease_ms);
    snprintf(text, SVG_LABEL_MAX, "rung %.80s, lease %s, result %.10s",
             shortened(run->spec.rung, 260, 22, rung), lease, tasks->result);
}

static void tasks_facts(const struct run *run, char text[SVG_LABEL_MAX])
{
    const struct tasks *tasks = run->tasks;
    snprintf(text, SVG_LABEL_MAX, "Tasks: %lld, picks: %lld, results: %lld.",
             (long long)tasks->tasks, (long long)tasks->picked, (long long)tasks->results);
}

/* The results, up to the number of tasks. */
static void tasks_chart(const struct run *run, struct chart *chart)
{
    const struct tasks *tasks = run->tasks;
    chart->name = "results";
    chart->limit_name = "tasks";
    chart->limit = tasks->tasks;
    chart->points = memory_new(tasks->pick_count, sizeof *chart->points);
    for (size_t i = 0; i < tasks->pick_count; i++)
        if (tasks->picks[i].result_ns != NOT_STAMPED)
            chart->points[chart->count++] = (struct point){tasks->picks[i].result_ns, 1};
}

static void tasks_add_steps(const struct run *run, const struct section *section, int who,
                            const char *actor, struct story *story)
{
    const struct worker worker = tasks_worker(run, section->request);
    const long long task = (long long)worker.looked;
    if (worker.looked > 0)
        story_step(story, worker.looked_ns, who, STAGE_NONE, "%s finds task %lld", actor, task);
    else if (worker.looked == 0)
        story_step(story, worker.looked_ns, who, STAGE_NONE, "%s finds nothing to pick", actor);
    if (worker.pick == NONE)
        return;
    const struct pick *pick = &run->tasks->picks[worker.pick];
    story_step(story, pick->t_ns == INT64_MAX ? NOT_STAMPED : pick->t_ns, who, STAGE_NONE,
               "%s has picked task %lld", actor, task);
    story_step(story, pick->worked_ns, who, STAGE_NONE, "%s has done the work of task %lld", actor,
               task);
    story_step(story, pick->result_ns, who, STAGE_NONE, "the result of %s for task %lld is there",
               actor, task);
    story_step(story, pick->refused_ns, who, STAGE_NONE,
               "the result of %s for task %lld is refused", actor, task);
}

/* Of two sections that were inside at the same time. */
static const char *tasks_together(const struct run *run, const struct section *first,
                                  const struct section *second, char text[SVG_LABEL_MAX])
{
    const int64_t task = tasks_worker(run, first->request).looked;
    if (task > 0 && first->filled && second->filled &&
        tasks_worker(run, second->request).looked == task)
        snprintf(text, SVG_LABEL_MAX, "Both picked task %lld.", (long long)task);
    else
        snprintf(text, SVG_LABEL_MAX, "Nothing kept them apart.");
    return text;
}

/* Of a request that never had the lock. */
static void tasks_add_answer(const struct run *run, size_t request, const char *id,
                             struct story *story)
{
    story_step(story, run->requests[request].outcome_ns, 0, STAGE_NONE,
               "%s has written the result of task %lld", id,
               (long long)tasks_worker(run, request).answered);
}

const struct rules tasks_rules = {
    .service = "tasks",
    .kind = SERVICE_TASKS,
    .items = "number of tasks, as {\"list\":1000}",
    .samples = "load.jtl",
    .sampled = "working",
    .labels = "\"POST work\"",
    .is_sample = tasks_is_sample,
    .is_request = tasks_is_request,
    .path_head = "/lists/",
    .path_tail = "/work",
    .read_spec = tasks_read_spec,
    .check_begin = tasks_check_begin,
    .read_invoke = tasks_invoked,
    .read_event = tasks_read_event,
    .read_redis = tasks_read_redis,
    .redis = "\"tasks\":{\"list\":{\"open\":1000,\"leased\":0,\"done\":0}},\"locks\":{\"list\":{"
             "\"type\":\"none\",",
    .settle = tasks_settle,
    .check = tasks_check_all,
    .answer_differs = tasks_answer_differs,
    .unsampled = "it is not in load.jtl, though nginx or an instance saw it",
    .ends = "answered, refused, fail or unknown",
    .mended = "",
    .expected = tasks_expected,
    .amount = tasks_amount,
    .tell = tasks_tell,
    .settings = tasks_settings,
    .add_settings = tasks_add_settings,
    .add_counts = tasks_add_counts,
    .add_instance = tasks_add_instance,
    .add_measures = tasks_add_measures,
    .title = tasks_title,
    .facts = tasks_facts,
    .chart = tasks_chart,
    .did = "inside, picked a task",
    .did_nothing = "inside, picked nothing",
    .add_steps = tasks_add_steps,
    .together = tasks_together,
    .unknown = "picked a task or wrote its result",
    .add_answer = tasks_add_answer,
    .print_head = tasks_print_head,
    .print_row = tasks_print_row,
};
