/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of tasks. A pick gives a task to one worker for lease_ms. Redis carried it out at some
 * time from sent_ns to t_ns, and counts whole milliseconds. So two picks of a task were certainly
 * at once only if they were so at all of these times, with a millisecond to spare. A request of
 * unknown outcome proves nothing, but may explain: it may have picked its task, or written its
 * result. What Redis has in the end tells which tasks have no result.
 */
#include "check.h"
#include "memory.h"
#include "tasks.h"

#include <stdlib.h>
#include <string.h>

enum { MS_NS = 1000000 };

/* ---- What proves something ------------------------------------------------------------------- */

bool tasks_is_denied(const struct run *run, size_t number)
{
    const struct request *request = &run->requests[number];
    const struct worker worker = tasks_worker(run, number);
    const bool told = request->sampled && !request->transport_error;
    return worker.denied || request->accepted_twice ||
           (told &&
            (request->client_code != request->code ||
             (request->outcome == OUTCOME_ANSWERED &&
              (request->client_task != worker.answered || request->client_item != request->item))));
}

/* Adds the picks that nobody could record, and finds out which ones prove nothing. */
static void settle_picks(struct run *run)
{
    struct tasks *tasks = run->tasks;
    for (size_t i = 0; i < tasks->pick_count; i++) {
        struct pick *pick = &tasks->picks[i];
        pick->denied = pick->item == NONE || tasks_is_denied(run, pick->request);
    }
    for (size_t i = 0; i < tasks->worker_count; i++) {
        const struct worker *worker = &tasks->workers[i];
        const struct request *request = &run->requests[i];
        if (worker->looked <= 0 || worker->pick != NONE || worker->refused ||
            request->item == NONE || !is_unknown(run, request))
            continue;
        tasks->picks = memory_grow(tasks->picks, tasks->pick_count, &tasks->pick_capacity,
                                   sizeof *tasks->picks);
        tasks->picks[tasks->pick_count++] = (struct pick){
            .request = (uint32_t)i,
            .item = request->item,
            .section = NONE,
            .history = request->history,
            .possible = true,
            .task = worker->looked,
            .sent_ns = worker->looked_ns,
            .t_ns = INT64_MAX,
            .worked_ns = NOT_STAMPED,
            .sending_ns = NOT_STAMPED,
            .result_sent_ns = NOT_STAMPED,
            .result_ns = NOT_STAMPED,
            .refused_ns = NOT_STAMPED,
        };
    }
}

static bool is_proof(const struct pick *pick)
{
    return !pick->possible && !pick->denied;
}

static bool is_timed(const struct run *run, const struct pick *pick)
{
    return is_proof(pick) && run_is_request_timed(run, &run->requests[pick->request]);
}

static bool has_result(const struct pick *pick)
{
    return is_proof(pick) && pick->result_ns != NOT_STAMPED;
}

/* Whether its result may be written, and nobody could record it. */
static bool may_have_result(const struct run *run, const struct pick *pick)
{
    return pick->sending_ns != NOT_STAMPED && pick->result_ns == NOT_STAMPED &&
           pick->refused_ns == NOT_STAMPED && is_unknown(run, &run->requests[pick->request]);
}

/* ---- The picks of each task ------------------------------------------------------------------ */

static int compare_tasks(const struct pick *one, const struct pick *two)
{
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    return (one->task > two->task) - (one->task < two->task);
}

static int by_sent(const void *a, const void *b)
{
    const struct pick *one = *(const struct pick *const *)a;
    const struct pick *two = *(const struct pick *const *)b;
    const int order = compare_tasks(one, two);
    if (order != 0)
        return order;
    if (one->sent_ns != two->sent_ns)
        return one->sent_ns < two->sent_ns ? -1 : 1;
    return (one > two) - (one < two);
}

static int by_answered(const void *a, const void *b)
{
    const struct pick *one = *(const struct pick *const *)a;
    const struct pick *two = *(const struct pick *const *)b;
    const int order = compare_tasks(one, two);
    if (order != 0)
        return order;
    return (one->t_ns > two->t_ns) - (one->t_ns < two->t_ns);
}

/* The picks of one task. Those whose times are proof come in two orders. */
struct group {
    struct pick *const *all; /* by sent_ns, with those that are no proof */
    size_t all_count;
    const struct pick **sent;     /* by sent_ns */
    const struct pick **answered; /* by t_ns */
    const struct pick **newest;   /* newest[i]: of answered[0..i], the one with the newest token */
    const struct pick **latest;   /* latest[i]: of them, the one that was sent last */
    size_t *lowest;               /* for find_rival */
    size_t count;
};

/* The number of picks that were surely carried out before that time. */
static size_t answered_before(const struct group *group, int64_t t_ns)
{
    size_t from = 0;
    size_t to = group->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (group->answered[middle]->t_ns < t_ns)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

static void sort_group(const struct run *run, struct group *group)
{
    group->count = 0;
    for (size_t i = 0; i < group->all_count; i++)
        if (is_timed(run, group->all[i]))
            group->sent[group->count++] = group->all[i];
    if (group->count == 0)
        return;
    memcpy(group->answered, group->sent, group->count * sizeof *group->sent);
    qsort(group->answered, group->count, sizeof *group->answered, by_answered);
    for (size_t i = 0; i < group->count; i++) {
        const struct pick *pick = group->answered[i];
        group->newest[i] =
            i > 0 && group->newest[i - 1]->token >= pick->token ? group->newest[i - 1] : pick;
        group->latest[i] =
            i > 0 && group->latest[i - 1]->sent_ns >= pick->sent_ns ? group->latest[i - 1] : pick;
    }
}

/* ---- Two workers with one task --------------------------------------------------------------- */

/* Of the picks that were sent before number `at`, one whose lease surely ran when that one was
 * carried out, or the other way round; NULL. group->lowest holds the numbers of the earlier picks
 * whose t_ns is below that of all behind them, so each of them has the lowest t_ns of all from the
 * one before it on. */
static const struct pick *find_rival(const struct tasks *tasks, const struct group *group,
                                     size_t at, size_t lowest_count)
{
    const int64_t sure_ns = (tasks->lease_ms - 1) * MS_NS;
    const struct pick *pick = group->sent[at];
    size_t from = 0;
    size_t to = lowest_count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (pick->t_ns - group->sent[group->lowest[middle]]->sent_ns >= sure_ns)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == lowest_count)
        return NULL;
    const struct pick *rival = group->sent[group->lowest[from]];
    return rival->t_ns - pick->sent_ns < sure_ns ? rival : NULL;
}

/* Two examples of a fault: the first one found of the earliest time. */
struct example {
    const struct pick *first, *second;
    int64_t t_ns;
};

static void note(struct example *example, const struct pick *first, const struct pick *second,
                 int64_t t_ns)
{
    if (example->first == NULL || t_ns < example->t_ns)
        *example = (struct example){first, second, t_ns};
}

/* How many picks of the group came while another one was valid. Without leases it is valid for
 * ever. */
static int64_t count_rivals(const struct run *run, const struct group *group,
                            struct example *example)
{
    const struct tasks *tasks = run->tasks;
    const struct pick *first = NULL;
    int64_t count = 0;
    size_t lowest_count = 0;
    if (tasks->lease_ms == 0) {
        for (size_t i = 0; i < group->all_count; i++) {
            const struct pick *pick = group->all[i];
            if (!is_proof(pick))
                continue;
            if (first == NULL) {
                first = pick;
                continue;
            }
            count++;
            note(example, first, pick, pick->t_ns);
        }
        return count;
    }
    for (size_t i = 0; i < group->count; i++) {
        const struct pick *pick = group->sent[i];
        const struct pick *rival = find_rival(tasks, group, i, lowest_count);
        if (rival != NULL) {
            count++;
            note(example, rival, pick, pick->t_ns);
        }
        while (lowest_count > 0 && group->sent[group->lowest[lowest_count - 1]]->t_ns >= pick->t_ns)
            lowest_count--;
        group->lowest[lowest_count++] = i;
    }
    return count;
}

/* How many picks of the group came though the task had its result. */
static int64_t count_finished(const struct group *group, struct example *example)
{
    const struct pick *done = NULL;
    int64_t count = 0;
    for (size_t i = 0; i < group->count; i++)
        if (has_result(group->sent[i]) &&
            (done == NULL || group->sent[i]->result_ns < done->result_ns))
            done = group->sent[i];
    for (size_t i = 0; done != NULL && i < group->count; i++) {
        if (group->sent[i]->sent_ns <= done->result_ns)
            continue;
        count++;
        note(example, done, group->sent[i], group->sent[i]->t_ns);
    }
    return count;
}

/* The first two results of the task. Returns how many it has. */
static int64_t count_results(const struct group *group, struct example *example)
{
    const struct pick *first[2] = {NULL, NULL};
    int64_t count = 0;
    for (size_t i = 0; i < group->all_count; i++) {
        const struct pick *pick = group->all[i];
        if (!has_result(pick))
            continue;
        count++;
        if (first[0] == NULL || pick->result_ns < first[0]->result_ns) {
            first[1] = first[0];
            first[0] = pick;
        } else if (first[1] == NULL || pick->result_ns < first[1]->result_ns) {
            first[1] = pick;
        }
    }
    if (count > 1)
        note(example, first[0], first[1], first[1]->result_ns);
    return count;
}

/* ---- Late workers ---------------------------------------------------------------------------- */

/* How many picks and results of the group came with a token older than that of a pick which was
 * surely carried out before. A result without a fence may. */
static int64_t count_old_tokens(const struct run *run, const struct group *group,
                                struct example *example)
{
    int64_t count = 0;
    for (size_t i = 0; i < group->count; i++) {
        const struct pick *pick = group->sent[i];
        const bool compared = is_fenced(run) && has_result(pick);
        const int64_t times[2] = {pick->sent_ns, compared ? pick->result_sent_ns : INT64_MIN};
        for (size_t step = 0; step < 2 && pick->token > 0; step++) {
            const size_t before = answered_before(group, times[step]);
            if (before == 0 || group->newest[before - 1]->token <= pick->token)
                continue;
            count++;
            note(example, group->newest[before - 1], pick, times[step]);
        }
    }
    return count;
}

/* Results of workers whose task another one had picked since. */
static int64_t count_late(const struct group *group)
{
    int64_t count = 0;
    for (size_t i = 0; i < group->count; i++) {
        const struct pick *pick = group->sent[i];
        const size_t before = has_result(pick) ? answered_before(group, pick->result_sent_ns) : 0;
        count += before > 0 && group->latest[before - 1]->sent_ns > pick->t_ns;
    }
    return count;
}

/* ---- Nothing to pick ------------------------------------------------------------------------- */

/* A time in which a task surely could be picked. */
struct window {
    uint32_t item;
    int64_t task; /* 0: one of those that nobody ever picked */
    int64_t from_ns;
    int64_t to_ns;
    size_t longest; /* of the item's windows so far, the one that ends last */
};

struct windows {
    struct window *list;
    size_t count;
};

static int by_window(const void *a, const void *b)
{
    const struct window *one = a;
    const struct window *two = b;
    if (one->item != two->item)
        return one->item < two->item ? -1 : 1;
    if (one->from_ns != two->from_ns)
        return one->from_ns < two->from_ns ? -1 : 1;
    return (one->to_ns > two->to_ns) - (one->to_ns < two->to_ns);
}

/* The time from which on the task may have a result; INT64_MAX: none. */
static int64_t closes_ns(const struct group *group)
{
    int64_t closes_ns = INT64_MAX;
    for (size_t i = 0; i < group->all_count; i++) {
        const struct pick *pick = group->all[i];
        if (pick->sending_ns == NOT_STAMPED || (pick->refused_ns != NOT_STAMPED && !pick->denied))
            continue;
        if (pick->worked_ns < closes_ns)
            closes_ns = pick->worked_ns;
    }
    return closes_ns;
}

static void add_windows(const struct run *run, const struct group *group, struct windows *windows)
{
    const struct tasks *tasks = run->tasks;
    const int64_t closed_ns = closes_ns(group);
    int64_t from_ns = INT64_MIN;
    for (size_t i = 0; i <= group->all_count && from_ns < closed_ns; i++) {
        const struct pick *pick = i < group->all_count ? group->all[i] : NULL;
        const int64_t next_ns = pick == NULL ? INT64_MAX : pick->sent_ns;
        const int64_t to_ns = next_ns < closed_ns ? next_ns : closed_ns;
        if (from_ns < to_ns)
            windows->list[windows->count++] = (struct window){
                .item = group->all[0]->item,
                .task = group->all[0]->task,
                .from_ns = from_ns,
                .to_ns = to_ns,
            };
        if (pick == NULL || !is_timed(run, pick) || tasks->lease_ms == 0)
            return;
        const int64_t free_ns = pick->t_ns + (tasks->lease_ms + 1) * MS_NS;
        from_ns = free_ns > from_ns ? free_ns : from_ns;
    }
}

/* A task that nobody ever picked could be picked all the time. */
static void add_untouched(const struct run *run, const int64_t *touched, struct windows *windows)
{
    for (size_t i = 0; i < run->item_count; i++)
        if (touched[i] < run->items[i].stock)
            windows->list[windows->count++] = (struct window){
                .item = (uint32_t)i, .task = 0, .from_ns = INT64_MIN, .to_ns = INT64_MAX};
}

static void sort_windows(struct windows *windows)
{
    struct window *list = windows->list;
    qsort(list, windows->count, sizeof *list, by_window);
    for (size_t i = 0; i < windows->count; i++) {
        const bool goes_on = i > 0 && list[i - 1].item == list[i].item &&
                             list[list[i - 1].longest].to_ns >= list[i].to_ns;
        list[i].longest = goes_on ? list[i - 1].longest : i;
    }
}

/* A task that could be picked all the time of the look; NULL. */
static const struct window *find_window(const struct windows *windows, const struct idle *idle)
{
    const struct window wanted = {.item = idle->item, .from_ns = idle->from_ns, .to_ns = INT64_MAX};
    size_t from = 0;
    size_t to = windows->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (by_window(&windows->list[middle], &wanted) <= 0)
            from = middle + 1;
        else
            to = middle;
    }
    if (from == 0 || windows->list[from - 1].item != idle->item)
        return NULL;
    const struct window *found = &windows->list[windows->list[from - 1].longest];
    return found->to_ns > idle->to_ns ? found : NULL;
}

static void check_idles(struct run *run, struct windows *windows)
{
    struct tasks *tasks = run->tasks;
    const struct idle *first = NULL;
    const struct window *window = NULL;
    char which[64] = "a task that nobody ever picked";
    sort_windows(windows);
    for (size_t i = 0; i < tasks->idle_count; i++) {
        const struct idle *idle = &tasks->idles[i];
        if (idle->item == NONE || tasks_is_denied(run, idle->request) ||
            !run_is_request_timed(run, &run->requests[idle->request]))
            continue;
        const struct window *found = find_window(windows, idle);
        if (found == NULL)
            continue;
        tasks->sent_away++;
        if (first == NULL || idle->to_ns < first->to_ns) {
            first = idle;
            window = found;
        }
    }
    if (first == NULL)
        return;
    if (window->task > 0)
        snprintf(which, sizeof which, "task %lld", (long long)window->task);
    findings_add(&run->findings, RESULT_UNFINISHED,
                 "workers that found nothing to pick, though a task could be picked: %lld; first: "
                 "request %.60s on %.40s looked into %.80s by %.3f ms, when %s was free",
                 (long long)tasks->sent_away, run_request_id(run, first->request),
                 run->spec.instances[run->requests[first->request].instance],
                 run->items[first->item].name, run_ms(run, first->to_ns), which);
}

/* ---- Redis ----------------------------------------------------------------------------------- */

/* How many tasks of a list have a result, as the histories say. */
struct told {
    int64_t results;  /* tasks with one that was accepted */
    int64_t possible; /* other tasks that may have one */
};

static void check_before(struct run *run, const struct item *item, const struct list_side *before)
{
    if (before->known && (before->open != item->stock || before->leased != 0 || before->done != 0))
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "the run began with %lld open, %lld leased and %lld done tasks of %.80s; "
                     "run.json says %lld, and all must be open",
                     (long long)before->open, (long long)before->leased, (long long)before->done,
                     item->name, (long long)item->stock);
}

/* What Redis has must fit the number of tasks and the results that were recorded. */
static void check_after(struct run *run, const struct item *item, const struct list_side *after,
                        const struct told *told)
{
    if (after->done + after->missing_count != item->stock ||
        after->missing_count < after->open + after->leased)
        findings_add(
            &run->findings, RESULT_INCOMPLETE,
            "redis.json contradicts itself: of %lld tasks of %.80s %lld are done, %lld have "
            "no result, %lld are open and %lld leased",
            (long long)item->stock, item->name, (long long)after->done,
            (long long)after->missing_count, (long long)after->open, (long long)after->leased);
    if (after->done > told->results + told->possible)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "results of %.80s in Redis that nobody wrote: %lld; a result must be recorded "
                     "for each, or a request without an end",
                     item->name, (long long)(after->done - told->results - told->possible));
    if (after->done > told->results)
        run->tasks->unknown_done += after->done - told->results;
}

static int tasks_by_number(const void *a, const void *b)
{
    const int64_t one = *(const int64_t *)a;
    const int64_t two = *(const int64_t *)b;
    return (one > two) - (one < two);
}

static bool is_missing(const struct list_side *after, int64_t task)
{
    return bsearch(&task, after->missing, after->named, sizeof task, tasks_by_number) != NULL;
}

/* Whether what Redis had before and after fits the number of tasks. Otherwise it proves nothing. */
static bool is_sound(const struct run *run, size_t item)
{
    const struct list_side *before = &run->tasks->lists[item].side[BEFORE];
    const struct list_side *after = &run->tasks->lists[item].side[AFTER];
    const int64_t all = run->items[item].stock;
    return before->known && after->known && before->open == all && before->leased == 0 &&
           before->done == 0 && after->done + after->missing_count == all &&
           after->missing_count >= after->open + after->leased;
}

/* Tasks that have no result in the end and cannot be picked any more. The number follows from
 * Redis; an example from the picks, if a pick takes the task out of its list. */
static void check_lost(struct run *run)
{
    struct tasks *tasks = run->tasks;
    const struct pick *example = NULL;
    const struct item *first = NULL;
    char which[160] = "";
    for (size_t i = 0; i < run->item_count; i++) {
        if (!is_sound(run, i))
            continue;
        const struct list_side *after = &tasks->lists[i].side[AFTER];
        const int64_t lost = after->missing_count - after->open - after->leased;
        if (lost <= 0)
            continue;
        tasks->lost += lost;
        first = first == NULL ? &run->items[i] : first;
    }
    for (size_t i = 0; i < tasks->pick_count && tasks->lost > 0 && tasks->lease_ms == 0; i++) {
        const struct pick *pick = &tasks->picks[i];
        if (is_proof(pick) && is_sound(run, pick->item) &&
            is_missing(&tasks->lists[pick->item].side[AFTER], pick->task) &&
            (example == NULL || pick->t_ns < example->t_ns))
            example = pick;
    }
    if (example != NULL)
        snprintf(which, sizeof which,
                 ". Request %.60s picked task %lld at %.3f ms, and wrote no "
                 "result",
                 run_request_id(run, example->request), (long long)example->task,
                 run_ms(run, example->t_ns));
    if (first != NULL)
        findings_add(&run->findings, RESULT_LOST_TASK,
                     "%lld task%s lost: without a result in the end, and nobody can pick %s any "
                     "more; first: of list %.80s%s",
                     (long long)tasks->lost, tasks->lost == 1 ? " is" : "s are",
                     tasks->lost == 1 ? "it" : "them", first->name, which);
}

/* Results that were accepted, and are gone. */
static void check_vanished(struct run *run, const struct told *told)
{
    struct tasks *tasks = run->tasks;
    const struct pick *example = NULL;
    for (size_t i = 0; i < tasks->pick_count; i++) {
        const struct pick *pick = &tasks->picks[i];
        if (!has_result(pick) || !is_sound(run, pick->item) ||
            !is_missing(&tasks->lists[pick->item].side[AFTER], pick->task))
            continue;
        tasks->vanished++;
        if (example == NULL || pick->result_ns < example->result_ns)
            example = pick;
    }
    if (example != NULL)
        findings_add(&run->findings, RESULT_LOST_TASK,
                     "%lld result%s accepted, and %s not in Redis in the end; first: task %lld of "
                     "%.80s, whose result request %.60s had written by %.3f ms",
                     (long long)tasks->vanished, tasks->vanished == 1 ? " was" : "s were",
                     tasks->vanished == 1 ? "is" : "are", (long long)example->task,
                     run->items[example->item].name, run_request_id(run, example->request),
                     run_ms(run, example->result_ns));
    for (size_t i = 0; i < run->item_count && example == NULL; i++) {
        const struct list_side *after = &tasks->lists[i].side[AFTER];
        if (!is_sound(run, i) || after->done >= told[i].results)
            continue;
        tasks->vanished = told[i].results - after->done;
        findings_add(&run->findings, RESULT_LOST_TASK,
                     "%.80s: %lld tasks got a result, and Redis has %lld in the end",
                     run->items[i].name, (long long)told[i].results, (long long)after->done);
        return;
    }
}

static void check_redis(struct run *run, const struct told *told)
{
    struct tasks *tasks = run->tasks;
    if (tasks->lists == NULL) /* no item, or no redis.json: that is reported */
        return;
    for (size_t i = 0; i < run->item_count; i++) {
        const struct list_side *after = &tasks->lists[i].side[AFTER];
        check_before(run, &run->items[i], &tasks->lists[i].side[BEFORE]);
        if (!after->known)
            continue;
        check_after(run, &run->items[i], after, &told[i]);
        tasks->open += after->open;
        tasks->leased += after->leased;
    }
    check_lost(run);
    check_vanished(run, told);
}

/* ---- All ------------------------------------------------------------------------------------- */

#define TIMES_MAX 600 /* bytes of what it tells */

static const char *tell_times(const struct run *run, const struct pick *pick, char text[TIMES_MAX])
{
    char result[80] = "and wrote no result";
    if (pick->result_ns != NOT_STAMPED)
        snprintf(result, sizeof result, "and its result was accepted by %.3f ms",
                 run_ms(run, pick->result_ns));
    snprintf(text, TIMES_MAX, "request %.60s on %.40s picked it at %.3f ms, %s",
             run_request_id(run, pick->request),
             run->spec.instances[run->requests[pick->request].instance], run_ms(run, pick->t_ns),
             result);
    return text;
}

static void tell_repeated(struct run *run, int64_t count, const char *what,
                          const struct example *example)
{
    char texts[2][TIMES_MAX];
    findings_add(&run->findings, RESULT_REPEATED, "%lld task%s; first: task %lld of %.80s: %s; %s",
                 (long long)count, what, (long long)example->first->task,
                 run->items[example->first->item].name, tell_times(run, example->first, texts[0]),
                 tell_times(run, example->second, texts[1]));
}

static void tell_old(struct run *run, int64_t count, const struct example *example)
{
    findings_add(&run->findings, RESULT_OVERLAP,
                 "picks or results accepted with an old token: %lld; first: request %.60s at %.3f "
                 "ms with token %lld, but request %.60s had picked task %lld of %.80s by %.3f ms "
                 "with token %lld",
                 (long long)count, run_request_id(run, example->second->request),
                 run_ms(run, example->t_ns), (long long)example->second->token,
                 run_request_id(run, example->first->request), (long long)example->first->task,
                 run->items[example->first->item].name, run_ms(run, example->first->t_ns),
                 (long long)example->first->token);
}

/* The sections of the two show it best. */
static void show(struct run *run, const struct example *example)
{
    if (example->first->section == NONE || example->second->section == NONE)
        return;
    struct section *one = &run->sections[example->first->section];
    struct section *two = &run->sections[example->second->section];
    if (one->at_ns[STAGE_ENTER] > two->at_ns[STAGE_ENTER]) {
        struct section *saved = one;
        one = two;
        two = saved;
    }
    run->shown = (struct collision){one, two};
    if (one != two && one->lock == two->lock && two->at_ns[STAGE_ENTER] < one->ended_ns &&
        run->meeting.first != NULL)
        run->meeting = run->shown;
}

struct faults {
    int64_t twice, rival_tasks, finished_tasks, old;
    struct example results, picks, finished, tokens;
};

/* From pick to pick: how long a task waited that its worker did not finish. */
static size_t measure_take_overs(const struct group *group, double *values)
{
    size_t count = 0;
    for (size_t i = 1; i < group->count; i++)
        if (!has_result(group->sent[i - 1]))
            values[count++] = (double)(group->sent[i]->t_ns - group->sent[i - 1]->t_ns) / 1e6;
    return count;
}

static void check_group(struct run *run, struct group *group, struct faults *faults,
                        struct told *told)
{
    struct tasks *tasks = run->tasks;
    int64_t picks = 0, possible = 0;
    sort_group(run, group);
    for (size_t i = 0; i < group->all_count; i++) {
        picks += is_proof(group->all[i]);
        possible += may_have_result(run, group->all[i]) || group->all[i]->denied;
    }
    const int64_t results = count_results(group, &faults->results);
    const int64_t rivals = count_rivals(run, group, &faults->picks);
    const int64_t finished = count_finished(group, &faults->finished);
    faults->twice += results > 1;
    tasks->picked_twice += rivals > 0 || finished > 0;
    tasks->picked_wrongly += (rivals > 0 && !is_fenced(run)) || finished > 0;
    faults->rival_tasks += rivals > 0;
    faults->finished_tasks += finished > 0;
    faults->old += count_old_tokens(run, group, &faults->tokens);
    tasks->late += count_late(group);
    if (picks > 1 && picks - 1 > rivals)
        tasks->taken_over += picks - 1 - rivals;
    told->results += results > 0;
    told->possible += results == 0 && possible > 0;
}

static void tell_faults(struct run *run, const struct faults *faults)
{
    const struct example *shown = NULL;
    if (faults->twice > 0) {
        tell_repeated(run, faults->twice,
                      faults->twice == 1 ? " has two results" : "s have two results or more",
                      &faults->results);
        shown = &faults->results;
    }
    if (faults->rival_tasks > 0 && !is_fenced(run)) {
        tell_repeated(run, faults->rival_tasks,
                      faults->rival_tasks == 1 ? " was picked while another worker had it"
                                               : "s were picked while another worker had them",
                      &faults->picks);
        shown = shown == NULL ? &faults->picks : shown;
    }
    if (faults->finished_tasks > 0) {
        tell_repeated(run, faults->finished_tasks,
                      faults->finished_tasks == 1 ? " was picked though it had its result"
                                                  : "s were picked though they had their results",
                      &faults->finished);
        shown = shown == NULL ? &faults->finished : shown;
    }
    if (faults->old > 0)
        tell_old(run, faults->old, &faults->tokens);
    if (shown != NULL)
        show(run, shown);
}

static struct pick **sort_picks(const struct run *run, size_t *count)
{
    const struct tasks *tasks = run->tasks;
    struct pick **list = memory_new(tasks->pick_count, sizeof *list);
    *count = 0;
    for (size_t i = 0; i < tasks->pick_count; i++)
        if (tasks->picks[i].item != NONE)
            list[(*count)++] = &tasks->picks[i];
    qsort(list, *count, sizeof *list, by_sent);
    return list;
}

static void check_groups(struct run *run, struct told *told, struct windows *windows)
{
    struct tasks *tasks = run->tasks;
    struct faults faults = {.twice = 0};
    size_t count = 0, waits = 0;
    struct pick **picks = sort_picks(run, &count);
    struct group group = {
        .sent = memory_new(count, sizeof *group.sent),
        .answered = memory_new(count, sizeof *group.answered),
        .newest = memory_new(count, sizeof *group.newest),
        .latest = memory_new(count, sizeof *group.latest),
        .lowest = memory_new(count, sizeof *group.lowest),
    };
    double *waited_ms = memory_new(count, sizeof *waited_ms);
    int64_t *touched = memory_new(run->item_count, sizeof *touched);
    for (size_t i = 0; i < count; i += group.all_count) {
        group.all = &picks[i];
        group.all_count = 1;
        while (i + group.all_count < count &&
               compare_tasks(picks[i], picks[i + group.all_count]) == 0)
            group.all_count++;
        check_group(run, &group, &faults, &told[picks[i]->item]);
        waits += measure_take_overs(&group, waited_ms + waits);
        add_windows(run, &group, windows);
        touched[picks[i]->item]++;
    }
    add_untouched(run, touched, windows);
    tasks->repeated = faults.twice;
    tasks->take_over_ms = verdict_spread(waited_ms, waits);
    tell_faults(run, &faults);
    free(touched);
    free(waited_ms);
    free(group.lowest);
    free(group.latest);
    free(group.newest);
    free(group.answered);
    free(group.sent);
    free(picks);
}

/* A refusal or a failure says that no result was written. */
static void check_refused(struct run *run)
{
    const struct pick *first = NULL;
    long long times = 0;
    for (size_t i = 0; i < run->tasks->pick_count; i++) {
        const struct pick *pick = &run->tasks->picks[i];
        const enum outcome outcome = run->requests[pick->request].outcome;
        if (pick->result_ns != NOT_STAMPED &&
            (outcome == OUTCOME_REFUSED || outcome == OUTCOME_FAILED) && times++ == 0)
            first = pick;
    }
    if (first != NULL)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "results that were accepted, of requests that ended with refused or fail: "
                     "%lld; first: request %.60s, task %lld; it must end with answered or unknown",
                     times, run_request_id(run, first->request), (long long)first->task);
}

static void count_all(struct run *run)
{
    struct tasks *tasks = run->tasks;
    for (size_t i = 0; i < run->item_count; i++)
        tasks->tasks += run->items[i].stock;
    for (size_t i = 0; i < tasks->pick_count; i++) {
        const struct pick *pick = &tasks->picks[i];
        tasks->picked += !pick->possible;
        tasks->results += pick->result_ns != NOT_STAMPED;
        tasks->unknown += pick->possible || may_have_result(run, pick);
    }
    tasks->refused = run->counts.token_refusals;
}

void tasks_check(struct run *run)
{
    settle_picks(run);
    count_all(run);
    struct told *told = memory_new(run->item_count, sizeof *told);
    struct windows windows = {
        .list = memory_new(2 * run->tasks->pick_count + run->item_count, sizeof *windows.list)};
    check_groups(run, told, &windows);
    check_idles(run, &windows);
    check_redis(run, told);
    check_refused(run);
    free(windows.list);
    free(told);
}
