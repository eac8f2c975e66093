/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about tasks: looks into the list, picks, work and results.
 */
#include "memory.h"
#include "tasks.h"

#include <string.h>

static const struct worker fresh = {
    .looked = NOT_KNOWN,
    .looked_ns = NOT_STAMPED,
    .pick = NONE,
    .answered = NOT_KNOWN,
};

struct worker tasks_worker(const struct run *run, size_t request)
{
    return request < run->tasks->worker_count ? run->tasks->workers[request] : fresh;
}

static struct worker *worker_of(struct run *run, uint32_t request)
{
    struct tasks *tasks = run->tasks;
    while (tasks->worker_count <= request) {
        tasks->workers = memory_grow(tasks->workers, tasks->worker_count, &tasks->worker_capacity,
                                     sizeof *tasks->workers);
        tasks->workers[tasks->worker_count++] = fresh;
    }
    return &tasks->workers[request];
}

bool tasks_invoked(struct reader *reader, struct record *record, uint32_t item)
{
    const char *does = NULL;
    if (!json_text(record->json, "does", JSON_REQUIRED, &does, record->error))
        return false;
    reader->run->requests[record->request].item = item;
    reader->run->requests[record->request].reads = strcmp(does, "look") == 0;
    if (strcmp(does, "work") == 0 || strcmp(does, "look") == 0)
        return true;
    snprintf(record->error, sizeof record->error, "\"does\" is \"%.40s\"; it must be work or look",
             does);
    return false;
}

/* ---- Fields ---------------------------------------------------------------------------------- */

/* A task of the request's list, which has the numbers 1 to N. */
static bool read_task(struct reader *reader, struct record *record, int64_t least, int64_t *task)
{
    const struct run *run = reader->run;
    const uint32_t item = run->requests[record->request].item;
    const int64_t most = item == NONE ? JSON_EXACT_MAX : run->items[item].stock;
    return json_int(record->json, "task", JSON_REQUIRED, least, most, task, record->error);
}

static bool read_token(struct record *record, int64_t *token)
{
    return json_int(record->json, "token", JSON_REQUIRED, 0, JSON_EXACT_MAX, token, record->error);
}

static bool out_of_order(struct record *record)
{
    snprintf(record->error, sizeof record->error,
             "%s is out of order; it must be looked, picked or pick_refused, worked, sending, "
             "result or result_refused",
             events[record->event].name);
    return false;
}

/* ---- A pick ---------------------------------------------------------------------------------- */

/* Since when the request has done nothing but look: its last line, or the enter of its section. */
static int64_t free_since_ns(const struct run *run, uint32_t request, const struct worker *worker)
{
    const struct request *asked = &run->requests[request];
    int64_t since_ns = asked->invoke_ns;
    if (asked->section != NONE && run->sections[asked->section].stage == STAGE_ENTER)
        since_ns = run->sections[asked->section].at_ns[STAGE_ENTER];
    return worker->looked_ns > since_ns ? worker->looked_ns : since_ns;
}

static bool tasks_read_look(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct tasks *tasks = run->tasks;
    struct worker *worker = worker_of(run, record->request);
    int64_t task = 0;
    if (!read_task(reader, record, 0, &task))
        return false;
    if (worker->pick != NONE || worker->refused)
        return out_of_order(record);
    if (task == 0) {
        tasks->idles = memory_grow(tasks->idles, tasks->idle_count, &tasks->idle_capacity,
                                   sizeof *tasks->idles);
        tasks->idles[tasks->idle_count++] = (struct idle){
            .request = record->request,
            .item = run->requests[record->request].item,
            .from_ns = free_since_ns(run, record->request, worker),
            .to_ns = record->t_ns,
        };
    }
    worker->looked = task;
    worker->looked_ns = record->t_ns;
    return true;
}

/* The line must name the task that the request found. */
static bool follow_task(struct record *record, int64_t task, int64_t wanted)
{
    if (task == wanted)
        return true;
    snprintf(record->error, sizeof record->error,
             "%s of task %lld, and its request had task %lld; they must be the same",
             events[record->event].name, (long long)task, (long long)wanted);
    return false;
}

/* The line must name the token of its request. */
static bool follow_token(struct reader *reader, struct record *record, int64_t token,
                         int64_t wanted)
{
    if (token == wanted && (token > 0 || !reader->run->spec.fenced))
        return true;
    reader->run->requests[record->request].mistimed = true; /* nor does its section prove a thing */
    snprintf(record->error, sizeof record->error,
             "%s with token %lld, and its lock was granted with %lld; they must be the same%s",
             events[record->event].name, (long long)token, (long long)wanted,
             reader->run->spec.fenced ? ", and above 0" : "");
    return false;
}

static bool read_pick(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct tasks *tasks = run->tasks;
    struct worker *worker = worker_of(run, record->request);
    int64_t task = 0, token = 0, sent_ns = 0, lease_ms = 0;
    uint32_t section = NONE;
    if (worker->looked == NOT_KNOWN || worker->pick != NONE || worker->refused)
        return out_of_order(record);
    if (!read_task(reader, record, 1, &task) || !follow_task(record, task, worker->looked) ||
        !read_token(record, &token) || !read_sent(reader, record, worker->looked_ns, &sent_ns) ||
        !json_int(record->json, "lease_ms", JSON_REQUIRED, tasks->lease_ms, tasks->lease_ms,
                  &lease_ms, record->error) ||
        !read_section(reader, record, &section))
        return false;
    tasks->picks =
        memory_grow(tasks->picks, tasks->pick_count, &tasks->pick_capacity, sizeof *tasks->picks);
    worker->pick = (uint32_t)tasks->pick_count;
    tasks->picks[tasks->pick_count++] = (struct pick){
        .request = record->request,
        .item = run->requests[record->request].item,
        .section = section,
        .history = reader->index,
        .task = task,
        .token = token,
        .sent_ns = sent_ns,
        .t_ns = record->t_ns,
        .worked_ns = NOT_STAMPED,
        .sending_ns = NOT_STAMPED,
        .result_sent_ns = NOT_STAMPED,
        .result_ns = NOT_STAMPED,
        .refused_ns = NOT_STAMPED,
    };
    if (section == NONE)
        return follow_token(reader, record, token, token);
    run->sections[section].filled = true;
    return follow_token(reader, record, token, run->sections[section].token);
}

static bool read_pick_refused(struct reader *reader, struct record *record)
{
    struct worker *worker = worker_of(reader->run, record->request);
    int64_t task = 0;
    if (worker->looked == NOT_KNOWN || worker->pick != NONE || worker->refused)
        return out_of_order(record);
    worker->refused = true;
    reader->run->counts.token_refusals++;
    return read_task(reader, record, 1, &task) && follow_task(record, task, worker->looked);
}

/* ---- Its result ------------------------------------------------------------------------------ */

/* The pick that the line goes on with. The events lie in their order, and all name its task. */
static struct pick *pick_of(struct reader *reader, struct record *record)
{
    const uint32_t number = worker_of(reader->run, record->request)->pick;
    struct pick *pick = number == NONE ? NULL : &reader->run->tasks->picks[number];
    int64_t task = 0;
    if (pick == NULL || pick->history != reader->index || pick->result_ns != NOT_STAMPED ||
        pick->refused_ns != NOT_STAMPED ||
        (pick->worked_ns == NOT_STAMPED) != (record->event == EVENT_worked) ||
        (pick->sending_ns == NOT_STAMPED) !=
            (record->event == EVENT_worked || record->event == EVENT_sending)) {
        out_of_order(record);
        return NULL;
    }
    return read_task(reader, record, 1, &task) && follow_task(record, task, pick->task) ? pick
                                                                                        : NULL;
}

static bool read_worked(struct reader *reader, struct record *record)
{
    struct pick *pick = pick_of(reader, record);
    if (pick == NULL)
        return false;
    pick->worked_ns = record->t_ns;
    return true;
}

static bool read_sending(struct reader *reader, struct record *record)
{
    struct pick *pick = pick_of(reader, record);
    int64_t token = 0;
    if (pick == NULL)
        return false;
    pick->sending_ns = record->t_ns;
    return read_token(record, &token) && follow_token(reader, record, token, pick->token);
}

static bool read_result(struct reader *reader, struct record *record)
{
    struct pick *pick = pick_of(reader, record);
    int64_t token = 0, sent_ns = 0;
    if (pick == NULL || !read_sent(reader, record, pick->worked_ns, &sent_ns))
        return false;
    pick->result_sent_ns = sent_ns;
    pick->result_ns = record->t_ns;
    return read_token(record, &token) && follow_token(reader, record, token, pick->token);
}

static bool read_result_refused(struct reader *reader, struct record *record)
{
    struct pick *pick = pick_of(reader, record);
    int64_t token = 0;
    if (pick == NULL)
        return false;
    pick->refused_ns = record->t_ns;
    reader->run->counts.token_refusals++;
    return read_token(record, &token) && follow_token(reader, record, token, pick->token);
}

/* ---- The answer ------------------------------------------------------------------------------ */

static bool tasks_read_answer(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    struct request *request = &run->requests[record->request];
    struct worker *worker = worker_of(run, record->request);
    int64_t code = 0;
    if (!json_int(record->json, "code", JSON_REQUIRED, 200, 299, &code, record->error))
        return false;
    set_outcome(reader, record, request->reads ? OUTCOME_READ : OUTCOME_ANSWERED);
    request->code = (int16_t)code;
    if (request->reads)
        return true;
    const struct pick *pick = worker->pick == NONE ? NULL : &run->tasks->picks[worker->pick];
    if (pick == NULL || pick->result_ns == NOT_STAMPED) {
        snprintf(record->error, sizeof record->error,
                 "request %.60s is answered without a result; its result must come first",
                 run_request_id(run, record->request));
        return false;
    }
    return read_task(reader, record, 1, &worker->answered) &&
           follow_task(record, worker->answered, pick->task);
}

/* Whether the line names the item of its request, if it names any. */
static bool names_its_item(const struct reader *reader, const struct record *record)
{
    char error[JSON_ERROR_MAX];
    const char *item = NULL;
    return json_text(record->json, "item", JSON_OPTIONAL, &item, error) &&
           (item == NULL ||
            run_item(reader->run, item) == reader->run->requests[record->request].item);
}

void tasks_read_event(struct reader *reader, struct record *record)
{
    static bool (*const read[EVENT_COUNT])(struct reader *, struct record *) = {
        [EVENT_looked] = tasks_read_look,
        [EVENT_picked] = read_pick,
        [EVENT_pick_refused] = read_pick_refused,
        [EVENT_worked] = read_worked,
        [EVENT_sending] = read_sending,
        [EVENT_result] = read_result,
        [EVENT_result_refused] = read_result_refused,
        [EVENT_answered] = tasks_read_answer,
    };
    bool fine = read[record->event](reader, record);
    if (!fine)
        wrong(reader, record);
    if (!fine || !names_its_item(reader, record))
        worker_of(reader->run, record->request)->denied = true;
}
