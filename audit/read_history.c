/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads history-<instance>.jsonl: what each instance did, one event a line. Every hold must pass
 * through its stages in order, every request must end once, and no line may be missing.
 */
#include "history.h"
#include "memory.h"
#include "read.h"
#include "rules.h"
#include "text.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

const struct event_kind events[EVENT_COUNT] = {
#define X(name, about, service) {#name, ABOUT_##about, SERVICE_##service},
    EVENTS(X)
#undef X
#define X(name) {#name, ABOUT_OWN, SERVICE_ACCOUNT},
        ACCOUNT_EVENTS(X)
#undef X
};

void wrong(struct reader *reader, const struct record *record)
{
    complain(&reader->source, record->line, "%s", record->error);
}

/* ---- Lines about the instance --------------------------------------------------------------- */

/* Reads which clock the file's times come from, so that check_clocks can compare it with the
 * others. */
static void read_clock(struct reader *reader, struct record *record, struct clock *clock)
{
    const char *boot_id = NULL;
    const char *name = NULL;
    const char *time_namespace = NULL;
    int64_t realtime_ns = 0;
    if (!json_text(record->json, "boot_id", JSON_REQUIRED, &boot_id, record->error) ||
        !json_text(record->json, "clock", JSON_REQUIRED, &name, record->error) ||
        !json_text(record->json, "time_namespace", JSON_REQUIRED, &time_namespace, record->error) ||
        !json_line_time(reader->lines, record->json, "clock_ns_realtime", &realtime_ns,
                        record->error)) {
        wrong(reader, record);
        return;
    }
    if (strcmp(name, "CLOCK_MONOTONIC") != 0) {
        complain(&reader->source, record->line, "\"clock\" is %.60s; it must be CLOCK_MONOTONIC",
                 name);
        return;
    }
    snprintf(clock->boot_id, sizeof clock->boot_id, "%s", boot_id);
    snprintf(clock->time_namespace, sizeof clock->time_namespace, "%s", time_namespace);
    clock->realtime_offset_ns = realtime_ns - record->t_ns;
    clock->known = true;
}

/* A history of another run proves nothing about this one: the rest of it is not read. A lock that
 * was switched during this run shows in a later `begin`: that is reported, and reading goes on. */
static void check_begin(struct reader *reader, struct record *record)
{
    const struct run_spec *spec = &reader->run->spec;
    const char *const fields[] = {"run", "service", "rung", "write"};
    const char *const wanted[] = {spec->run, reader->run->rules->service, spec->rung, spec->write};
    int64_t format = 1; /* format 1 had no such field */
    if (!json_int(record->json, "format", JSON_OPTIONAL, 1, JSON_EXACT_MAX, &format,
                  record->error)) {
        wrong(reader, record);
        return;
    }
    if (format != HISTORY_FORMAT) {
        complain(&reader->source, record->line,
                 "written in format %lld; this ladder-audit reads format %d: use the ladder-audit "
                 "of the release that wrote it",
                 (long long)format, HISTORY_FORMAT);
        reader->foreign = true;
        return;
    }
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const char *value = "shop"; /* only others name their service */
        if (wanted[i] == NULL)
            continue; /* only a shop has a write mode */
        if (!json_text(record->json, fields[i], i == 1 ? JSON_OPTIONAL : JSON_REQUIRED, &value,
                       record->error)) {
            wrong(reader, record);
            return;
        }
        if (strcmp(value, wanted[i]) != 0) {
            complain(&reader->source, record->line,
                     "recorded with %s \"%.60s\"; it must be run.json's \"%.60s\"", fields[i],
                     value, wanted[i]);
            reader->foreign = i <= 1 || reader->index == reader->first;
            return;
        }
    }
    reader->run->rules->check_begin(reader, record);
}

struct mark *add_mark(struct run *run, enum mark_kind kind, const struct record *record,
                      size_t instance)
{
    run->marks = memory_grow(run->marks, run->mark_count, &run->mark_capacity, sizeof *run->marks);
    struct mark *mark = &run->marks[run->mark_count++];
    *mark =
        (struct mark){.kind = kind, .instance = instance, .section = NONE, .t_ns = record->t_ns};
    return mark;
}

static void add_stall(struct reader *reader, struct record *record)
{
    int64_t late_ns = 0;
    if (json_int(record->json, "late_ns", JSON_REQUIRED, 0, JSON_EXACT_MAX, &late_ns,
                 record->error))
        add_mark(reader->run, MARK_STALL, record, reader->history->instance)->late_ns = late_ns;
    else
        wrong(reader, record);
}

static void about_file(struct reader *reader, struct record *record)
{
    if (record->event == EVENT_begin) {
        check_begin(reader, record);
    } else if (record->event == EVENT_end) {
        reader->history->ended = true;
        if (!json_bool(record->json, "continued", JSON_OPTIONAL, &reader->history->continued,
                       record->error))
            wrong(reader, record);
    } else if (record->event == EVENT_stall) {
        add_stall(reader, record);
    }
    /* a `command` is for human readers; the other lines hold its effect */
}

/* ---- Lines about a request ------------------------------------------------------------------ */

static void history_invoke(struct reader *reader, struct record *record, struct request *request)
{
    const char *item = NULL;
    request->history = reader->index;
    request->instance = (uint8_t)reader->history->instance;
    request->invoke_ns = record->t_ns;
    request->accepted_twice = request->accepted;
    request->accepted = true;
    if (request->accepted_twice)
        complain(&reader->source, record->line,
                 "request %.60s was accepted twice; it must be accepted once",
                 run_request_id(reader->run, record->request));
    if (!json_text(record->json, "item", JSON_REQUIRED, &item, record->error) ||
        !reader->run->rules->read_invoke(reader, record, run_item(reader->run, item)))
        wrong(reader, record);
}

static enum reason reason_of(const char *text)
{
    if (strcmp(text, "sold-out") == 0 || strcmp(text, "insufficient-stock") == 0)
        return REASON_SOLD_OUT;
    if (strcmp(text, "lock-timeout") == 0)
        return REASON_LOCK_TIMEOUT;
    if (strcmp(text, "lock-error") == 0 || strcmp(text, "lock-unavailable") == 0 ||
        strcmp(text, "lock-invalid") == 0)
        return REASON_LOCK_ERROR;
    if (strcmp(text, "lock-lost") == 0)
        return REASON_LOCK_LOST;
    if (strcmp(text, "client-closed") == 0)
        return REASON_CLIENT_CLOSED;
    if (strcmp(text, "unknown-item") == 0)
        return REASON_UNKNOWN_ITEM;
    if (strcmp(text, "request-in-flight") == 0)
        return REASON_IN_FLIGHT;
    if (strcmp(text, "key-reused") == 0)
        return REASON_KEY_REUSED;
    if (strcmp(text, "stale-token") == 0 || strcmp(text, "stale-epoch") == 0)
        return REASON_STALE_TOKEN;
    if (strcmp(text, "lock-busy") == 0)
        return REASON_LOCK_BUSY;
    if (strcmp(text, "contended") == 0 || strcmp(text, "not-admitted") == 0)
        return REASON_TRY_AGAIN;
    return REASON_OTHER;
}

void set_outcome(struct reader *reader, struct record *record, enum outcome outcome)
{
    struct request *request = &reader->run->requests[record->request];
    if (request->outcome != OUTCOME_NONE)
        complain(&reader->source, record->line,
                 "request %.60s ends a second time, with %s; it must end once",
                 run_request_id(reader->run, record->request), events[record->event].name);
    request->outcome = outcome;
    request->outcome_ns = record->t_ns;
}

static void set_again(struct run *run, struct section *section, int64_t t_ns)
{
    if (section->again == NONE) {
        run->again_ns = memory_grow(run->again_ns, run->again_count, &run->again_capacity,
                                    sizeof *run->again_ns);
        section->again = (uint32_t)run->again_count++;
    }
    run->again_ns[section->again] = t_ns;
}

/* The holder's second request for its own lock was answered. */
static void ask_again(struct reader *reader, struct record *record)
{
    const char *hold = NULL, *status = NULL;
    if (!json_text(record->json, "hold", JSON_REQUIRED, &hold, record->error) ||
        !read_status(record, &status)) {
        wrong(reader, record);
        return;
    }
    struct run *run = reader->run;
    uint32_t number = find_hold(run, hold);
    if (number == NONE || run->sections[number].request != record->request)
        complain(&reader->source, record->line,
                 "reacquire of hold %.80s, which was not granted to that request; it must be",
                 hold);
    else if (strcmp(status, "TIMED_OUT") == 0 || strcmp(status, "BUSY") == 0)
        set_again(run, &run->sections[number], record->t_ns);
}

/* The line must state the same quantity as the request's `invoke`. */
static void follow_quantity(struct reader *reader, struct record *record,
                            const struct request *request)
{
    int64_t quantity = request->quantity;
    if (!json_int(record->json, "quantity", JSON_OPTIONAL, 0, UNITS_MAX, &quantity, record->error))
        wrong(reader, record);
    else if (quantity != request->quantity)
        complain(&reader->source, record->line,
                 "%s of %lld by request %.60s, which asked for %lld; they must be the same",
                 events[record->event].name, (long long)quantity,
                 run_request_id(reader->run, record->request), (long long)request->quantity);
}

static void about_request(struct reader *reader, struct record *record)
{
    struct request *request = &reader->run->requests[record->request];
    const char *reason = "";
    bool kept = request->kept;
    int64_t code = 0;
    if (record->event == EVENT_invoke) {
        history_invoke(reader, record, request);
        return;
    }
    if (record->event == EVENT_reacquire) {
        ask_again(reader, record);
        return;
    }
    if (!json_int(record->json, "code", JSON_REQUIRED, 0, 999, &code, record->error) ||
        !json_bool(record->json, "kept", JSON_OPTIONAL, &kept, record->error) ||
        !json_text(record->json, "reason", JSON_OPTIONAL, &reason, record->error)) {
        wrong(reader, record);
        return;
    }
    if (code < 400)
        complain(&reader->source, record->line,
                 "%s of request %.60s with code %lld; it must be one of 400 to 599",
                 events[record->event].name, run_request_id(reader->run, record->request),
                 (long long)code);
    request->kept = kept;
    follow_quantity(reader, record, request);
    if (cJSON_HasObjectItem(record->json, "entry")) {
        request->reason = reason_of(reason);
        queue_decide(reader, record, OUTCOME_REFUSED, code);
        return;
    }
    request->doubted = record->event == EVENT_unknown;
    request->denied = record->event != EVENT_unknown;
    if (request->doubted && request->taken && request->outcome != OUTCOME_NONE)
        return; /* it was accepted, and its outcome is known */
    set_outcome(reader, record,
                record->event == EVENT_refused ? OUTCOME_REFUSED
                : record->event == EVENT_fail  ? OUTCOME_FAILED
                                               : OUTCOME_UNKNOWN);
    request->code = (int16_t)code;
    request->reason = reason_of(reason);
}

/* ---- Any line ------------------------------------------------------------------------------- */

static bool find_event(const struct run *run, struct record *record)
{
    const char *name = NULL;
    if (!json_text(record->json, "event", JSON_REQUIRED, &name, record->error))
        return false;
    for (size_t i = 0; i < EVENT_COUNT; i++) {
        if (strcmp(name, events[i].name) == 0 && (events[i].service & run->rules->kind) != 0) {
            record->event = (enum event)i;
            return true;
        }
    }
    snprintf(record->error, sizeof record->error,
             "there is no event \"%.40s\"; it must be one of "
             "docs/reference/run.md",
             name);
    return false;
}

static bool find_instance(struct reader *reader, struct record *record)
{
    const char *name = NULL;
    if (!json_text(record->json, "instance", JSON_REQUIRED, &name, record->error))
        return false;
    uint32_t instance = run_instance(reader->run, name);
    if (instance == NONE) {
        snprintf(record->error, sizeof record->error,
                 "instance \"%.60s\" is not in run.json; \"instances\" must name it", name);
        return false;
    }
    if (reader->history->instance != NONE && reader->history->instance != instance) {
        snprintf(record->error, sizeof record->error,
                 "instance \"%.60s\" in the history of another one; a file must be of one", name);
        return false;
    }
    reader->history->instance = instance;
    return true;
}

/* seq counts the lines: a gap means that lines are missing. */
static bool follow_seq(struct reader *reader, struct record *record)
{
    int64_t seq = 0;
    if (!json_int(record->json, "seq", JSON_REQUIRED, 1, JSON_EXACT_MAX, &seq, record->error))
        return false;
    int64_t expected = reader->seq + 1;
    reader->seq = seq;
    if (seq == expected)
        return true;
    reader->run->truncated = true;
    complain(&reader->source, record->line, "seq is %lld; it must be %lld: lines are missing",
             (long long)seq, (long long)expected);
    return true;
}

static void history_mark_mistimed(struct run *run, uint32_t request)
{
    if (request != NONE)
        run->requests[request].mistimed = true;
}

/* A line is stamped and written in one step, so no time may be before that of the previous line.
 * One of the two is wrong, and neither is proof. */
static void follow_time(struct reader *reader, const struct record *record)
{
    if (record->t_ns < reader->t_ns) {
        complain(&reader->source, record->line,
                 "t_ns is %lld, before that of the line above, %lld; it must not go back",
                 (long long)record->t_ns, (long long)reader->t_ns);
        history_mark_mistimed(reader->run, record->request);
        history_mark_mistimed(reader->run, reader->request);
    }
    reader->t_ns = record->t_ns;
    reader->request = record->request;
}

/* Every line of a request must name its item and run.json's rung, if it names any. */
static void follow_item(struct reader *reader, struct record *record, struct request *request)
{
    const char *item = NULL;
    if (!json_text(record->json, "item", JSON_OPTIONAL, &item, record->error))
        wrong(reader, record);
    const char *rung = reader->run->spec.rung;
    if (!json_text(record->json, "rung", JSON_OPTIONAL, &rung, record->error))
        wrong(reader, record);
    else if (strcmp(rung, reader->run->spec.rung) != 0)
        complain(&reader->source, record->line,
                 "recorded with rung \"%.60s\"; it must be run.json's \"%.60s\"", rung,
                 reader->run->spec.rung);
    if (item != NULL && !request->accepted && request->item == NONE)
        request->item = run_item(reader->run, item); /* its `invoke` is in a file to be read */
    if (item != NULL && run_item(reader->run, item) != request->item)
        complain(
            &reader->source, record->line,
            "%s of %.80s by request %.60s, which asked for another item; they must be the same",
            events[record->event].name, item, run_request_id(reader->run, record->request));
}

static bool find_request(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    enum about about = events[record->event].about;
    const char *id = NULL;
    record->request = NONE;
    if (about == ABOUT_FILE || about == ABOUT_OWN_FILE || about == ABOUT_KEEPER)
        return true;
    if (!json_text(record->json, "request", JSON_REQUIRED, &id, record->error))
        return false;
    record->request = run_request(run, id);
    if (record->request == NONE) {
        snprintf(record->error, sizeof record->error,
                 "more than %d requests; a run must have fewer", REQUESTS_MAX);
        return false;
    }
    struct request *request = &run->requests[record->request];
    const bool works = record->event != EVENT_invoke && is_worker_line(reader, record, request);
    if (record->event != EVENT_invoke && !request->accepted && !works) {
        snprintf(record->error, sizeof record->error,
                 "%s of request %.60s, which was not accepted; its invoke must come first",
                 events[record->event].name, id);
        return false;
    }
    if (record->event != EVENT_invoke)
        follow_item(reader, record, request);
    if (!works && (request->last_ns == NOT_STAMPED || record->t_ns > request->last_ns))
        request->last_ns = record->t_ns; /* a worker goes on after the answer */
    if (request->first_ns == NOT_STAMPED || record->t_ns < request->first_ns)
        request->first_ns = record->t_ns;
    return true;
}

static bool add_life(struct reader *reader, uint32_t instance)
{
    struct run *run = reader->run;
    if (run->history_count == HISTORIES_MAX)
        return false;
    struct history *history = &run->histories[run->history_count];
    history->instance = instance;
    history->segments = 1;
    history->file = memory_new(strlen(reader->source.file) + 1, 1);
    strcpy(history->file, reader->source.file);
    reader->history = history;
    reader->index = (uint8_t)run->history_count++;
    return true;
}

/* Only a fault explains a missing `end`: a killed instance writes none. */
static void check_end(struct reader *reader, int64_t line)
{
    if (!reader->history->ended && strcmp(reader->run->spec.fault, "none") == 0)
        complain(&reader->source, line,
                 "no end line, and no fault was asked for; the instance must "
                 "end its history before it is %s",
                 line > 0 ? "restarted" : "judged");
}

/* Over how many segments the instance has a stock: as --segments says it. */
static void read_segments(struct reader *reader, struct record *record, struct history *begun)
{
    static const char naive[] = "naive:";
    const char *text = "1";
    int64_t segments = 0;
    if (!json_text(record->json, "segments", JSON_OPTIONAL, &text, record->error)) {
        wrong(reader, record);
        return;
    }
    const bool is_naive = strncmp(text, naive, sizeof naive - 1) == 0;
    if (text_int(text + (is_naive ? sizeof naive - 1 : 0), &segments) && segments >= 1 &&
        segments <= SEGMENTS_MAX) {
        begun->segments = (uint8_t)segments;
        begun->naive = is_naive;
        begun->told_segments = true;
    } else {
        complain(&reader->source, record->line,
                 "\"segments\" is \"%.40s\"; it must be N or naive:N, N from 1 to %d", text,
                 SEGMENTS_MAX);
    }
}

/* Reads what a `begin` states about the life that it begins or continues. */
static struct history read_begin(struct reader *reader, struct record *record)
{
    struct history begun = {.instance = reader->history->instance, .part = 1, .segments = 1};
    if (!json_int(record->json, "pid", JSON_OPTIONAL, 0, JSON_EXACT_MAX, &begun.pid,
                  record->error) ||
        !json_int(record->json, "part", JSON_OPTIONAL, 1, JSON_EXACT_MAX, &begun.part,
                  record->error))
        wrong(reader, record);
    read_clock(reader, record, &begun.clock);
    read_segments(reader, record, &begun);
    return begun;
}

static bool is_one_machine(const struct clock *one, const struct clock *two)
{
    return one->known && two->known && strcmp(one->boot_id, two->boot_id) == 0 &&
           strcmp(one->time_namespace, two->time_namespace) == 0;
}

/* The life that this `begin` continues: the latest one of its instance. NULL if it fits none. */
static struct history *life_before(const struct reader *reader, const struct record *record,
                                   const struct history *begun)
{
    struct run *run = reader->run;
    for (size_t i = run->history_count; i-- > 0;) {
        struct history *life = &run->histories[i];
        if (life->instance != begun->instance || (i == reader->index && !reader->begun))
            continue;
        bool fits = life->continued && life->part + 1 == begun->part && life->pid == begun->pid &&
                    life->last_ns <= record->t_ns && is_one_machine(&life->clock, &begun->clock);
        return fits ? life : NULL;
    }
    return NULL;
}

/* A process has one clock. If two parts state different ones, none of its times can be compared. */
static void check_step(struct reader *reader, const struct record *record, struct history *life,
                       const struct history *begun)
{
    int64_t realtime_offset_ns = begun->clock.realtime_offset_ns - life->clock.realtime_offset_ns;
    if (realtime_offset_ns <= APART_NS_MAX && realtime_offset_ns >= -APART_NS_MAX)
        return;
    life->stepped = true;
    complain(
        &reader->source, record->line,
        "the times of part %lld are %.3f ms off those of the first part, %s, as CLOCK_REALTIME "
        "in both shows; they must agree within %.1f ms",
        (long long)begun->part, -(double)realtime_offset_ns / 1e6, life->file, APART_NS_MAX / 1e6);
}

static void history_go_on(struct reader *reader, struct history *life, int64_t part)
{
    struct run *run = reader->run;
    if (!reader->begun) { /* undo what read_file added for a new life */
        free(reader->history->file);
        *reader->history = (struct history){.file = NULL};
        run->history_count--;
    }
    life->part = part;
    life->ended = life->continued = false;
    reader->history = life;
    reader->index = (uint8_t)(life - run->histories);
    if (reader->index < reader->first)
        reader->first = reader->index;
}

/* Starts the file's first life, the next life of a restarted instance, or continues a life of
 * another file. */
static bool begin_life(struct reader *reader, struct record *record)
{
    struct history begun = read_begin(reader, record);
    if (reader->begun)
        check_end(reader, record->line);
    struct history *life = life_before(reader, record, &begun);
    if (life != NULL) {
        check_step(reader, record, life, &begun);
        history_go_on(reader, life, begun.part);
        return true;
    }
    if (begun.part > 1)
        complain(
            &reader->source, record->line,
            "part %lld of a history, and no file ends with its part %lld; all parts must be there",
            (long long)begun.part, (long long)begun.part - 1);
    if (reader->begun && !add_life(reader, begun.instance)) {
        complain(&reader->source, record->line,
                 "more than %d histories and restarts; a run must have fewer", HISTORIES_MAX);
        return false;
    }
    reader->history->pid = begun.pid;
    reader->history->part = begun.part;
    reader->history->clock = begun.clock;
    reader->history->segments = begun.segments;
    reader->history->naive = begun.naive;
    reader->history->told_segments = begun.told_segments;
    return true;
}

static void history_read_record(struct reader *reader, struct record *record)
{
    if (!json_line_time(reader->lines, record->json, "t_ns", &record->t_ns, record->error) ||
        !follow_seq(reader, record) || !find_event(reader->run, record) ||
        !find_instance(reader, record) || !find_request(reader, record)) {
        wrong(reader, record);
        return;
    }
    if (reader->run->mark_count >= REQUESTS_MAX || reader->run->restock_count >= REQUESTS_MAX ||
        reader->run->intent_count >= REQUESTS_MAX || reader->run->take_count >= REQUESTS_MAX) {
        complain(&reader->source, record->line,
                 "more than %d marks, restocks or takes; a run must have "
                 "fewer",
                 REQUESTS_MAX);
        return;
    }
    if (record->event == EVENT_begin) {
        if (!begin_life(reader, record))
            return;
    } else if (!reader->begun) {
        complain(&reader->source, record->line, "the first event must be a begin");
    } else if (reader->history->ended) {
        complain(&reader->source, record->line,
                 "after the end; only a begin of the restarted instance may follow it");
    }
    reader->begun = true;
    follow_time(reader, record);
    if (reader->history->first_ns == 0)
        reader->history->first_ns = record->t_ns;
    if (record->t_ns > reader->history->last_ns)
        reader->history->last_ns = record->t_ns;
    switch (events[record->event].about) {
    case ABOUT_FILE:
        about_file(reader, record);
        break;
    case ABOUT_REQUEST:
        about_request(reader, record);
        break;
    case ABOUT_HOLD:
        about_hold(reader, record);
        break;
    case ABOUT_KEEPER:
        about_keeper(reader, record);
        break;
    case ABOUT_OWN:
    case ABOUT_OWN_FILE:
        reader->run->rules->read_event(reader, record);
        break;
    }
}

static void read_history(struct reader *reader, const char *path)
{
    struct json_lines lines;
    char error[JSON_ERROR_MAX];
    if (!json_lines_open(&lines, path, error)) {
        complain(&reader->source, 0, "%s", error);
        return;
    }
    reader->lines = &lines;
    while (!reader->foreign && json_lines_next(&lines)) {
        struct record record = {.line = lines.number};
        cJSON *json = json_line(&lines, record.error);
        record.json = json;
        if (json == NULL)
            wrong(reader, &record);
        else
            history_read_record(reader, &record);
    }
    if (lines.number == 0)
        complain(&reader->source, 0, "empty; its first line must be a begin event");
    reader->lines = NULL;
    json_lines_close(&lines);
}

/* ---- All histories --------------------------------------------------------------------------- */

/* history-*.jsonl, and its names after logrotate: history-*.jsonl.1, history-*.jsonl-20260101 */
static int is_history(const struct dirent *entry)
{
    static const char head[] = "history-";
    static const char tail[] = ".jsonl";
    size_t length = strlen(entry->d_name);
    size_t digits = 0;
    while (digits < length && strchr("0123456789", entry->d_name[length - digits - 1]) != NULL)
        digits++;
    if (digits > 0 && digits < length && strchr(".-", entry->d_name[length - digits - 1]) != NULL)
        length -= digits + 1;
    return length >= sizeof head + sizeof tail - 2 &&
           strncmp(entry->d_name, head, sizeof head - 1) == 0 &&
           strncmp(entry->d_name + length - (sizeof tail - 1), tail, sizeof tail - 1) == 0;
}

/* A file of the folder, before it is read. */
struct history_file {
    char *file;
    char instance[64]; /* from its first line; "" */
    int64_t t_ns;
    int64_t part;
};

static struct history_file look_into(const struct run *run, char *file)
{
    struct history_file entry = {.file = file};
    struct json_lines lines;
    char path[PATH_MAX_BYTES], ignored[JSON_ERROR_MAX];
    const char *instance = "";
    if (!source_path(run, file, path) || !json_lines_open(&lines, path, ignored))
        return entry;
    const cJSON *first = json_lines_next(&lines) ? json_line(&lines, ignored) : NULL;
    if (first != NULL && json_text(first, "instance", JSON_REQUIRED, &instance, ignored))
        json_line_time(&lines, first, "t_ns", &entry.t_ns, ignored);
    if (first != NULL)
        json_int(first, "part", JSON_OPTIONAL, 1, JSON_EXACT_MAX, &entry.part, ignored);
    snprintf(entry.instance, sizeof entry.instance, "%s", instance);
    json_lines_close(&lines);
    return entry;
}

/* Sorts an instance's files in the order in which they were written. */
static int by_instance_time(const void *a, const void *b)
{
    const struct history_file *one = a;
    const struct history_file *two = b;
    int order = strcmp(one->instance, two->instance);
    if (order == 0 && one->t_ns != two->t_ns)
        order = one->t_ns < two->t_ns ? -1 : 1;
    if (order == 0 && one->part != two->part) /* two parts may have equal stamps */
        order = one->part < two->part ? -1 : 1;
    return order != 0 ? order : strcmp(one->file, two->file);
}

static void read_file(struct run *run, const char *file)
{
    char path[PATH_MAX_BYTES];
    struct reader reader = {
        .source = {.run = run, .file = file, .rank = RESULT_INCOMPLETE},
        .run = run,
        .request = NONE,
    };
    add_life(&reader, NONE);
    reader.first = reader.index;
    if (source_path(run, file, path))
        read_history(&reader, path);
    check_end(&reader, 0);
    for (size_t i = reader.first; i < run->history_count; i++)
        run->histories[i].damaged |= reader.source.complaints > 0;
    source_close(&reader.source);
}

/* Reports lives whose next file is missing. */
static void check_parts(struct run *run)
{
    for (size_t i = 0; i < run->history_count; i++) {
        struct history *history = &run->histories[i];
        if (!history->continued)
            continue;
        history->ended = false;
        history->damaged = true;
        findings_add(
            &run->findings, RESULT_INCOMPLETE,
            "%s: its part %lld continues in a file that is missing; all parts must be there",
            history->file, (long long)history->part);
    }
}

/* An instance has one life at a time. If two files cover the same time, one of them is wrong. */
static void check_lives(struct run *run)
{
    for (size_t i = 0; i < run->history_count; i++) {
        for (size_t j = i + 1; j < run->history_count; j++) {
            struct history *one = &run->histories[i];
            struct history *two = &run->histories[j];
            if (one->instance != two->instance || one->instance == NONE ||
                one->first_ns >= two->last_ns || two->first_ns >= one->last_ns)
                continue;
            one->damaged = two->damaged = true;
            findings_add(&run->findings, RESULT_INCOMPLETE,
                         "%s and %s cover the same time of instance %.60s; one of them must go",
                         one->file, two->file, run->spec.instances[one->instance]);
        }
    }
}

static void find_segments(struct run *run)
{
    for (size_t i = 0; i < run->history_count; i++) {
        const struct history *history = &run->histories[i];
        bool first = i == 0 || run->segments == history->segments;
        run->segments = first ? history->segments : 0;
        if (!first)
            return;
    }
}

/* Sections are stored in the order in which the files are read. The files are sorted, so that a
 * verdict is repeatable. */
void read_histories(struct run *run)
{
    struct dirent **names = NULL;
    int count = scandir(run->folder, &names, is_history, alphasort);
    struct history_file *entries = memory_new(count > 0 ? (size_t)count : 0, sizeof *entries);
    int left_out = 0;
    for (int i = 0; i < count; i++)
        entries[i] = look_into(run, names[i]->d_name);
    if (count > 0)
        qsort(entries, (size_t)count, sizeof *entries, by_instance_time);
    for (int i = 0; i < count; i++) {
        if (run->history_count < HISTORIES_MAX)
            read_file(run, entries[i].file);
        else
            left_out++;
    }
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    free(entries);
    check_parts(run);
    check_lives(run);
    find_segments(run);
    names_free(&run->holds); /* they are not needed any more */
    names_free(&run->processes);
    names_close(&run->request_ids);
    names_close(&run->keys);
    names_close(&run->sale_ids);
    if (left_out > 0)
        findings_add(&run->findings, RESULT_INCOMPLETE,
                     "more than %d histories and restarts; a run must have fewer", HISTORIES_MAX);
    for (size_t i = 0; i < run->spec.instance_count; i++) {
        bool found = false;
        for (size_t j = 0; j < run->history_count; j++)
            found = found || run->histories[j].instance == i;
        if (!found)
            findings_add(&run->findings, RESULT_INCOMPLETE,
                         "history-%s.jsonl: missing or empty; every instance must leave one",
                         run->spec.instances[i]);
    }
}
