/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a hold: each hold must pass through its stages in order.
 */
#include "history.h"
#include "memory.h"
#include "rules.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const stage_names[] = {"granted", "enter",   "read",   "write",
                                          "exit",    "release", "nothing"};

/* Names of holds begin with the UUID of a process, and a process has many holds. To save memory, a
 * number stands for the UUID, as in 5:x1.17#17. A name of another form, or with a part that is too
 * long, is kept as it is. */
enum { PROCESS_MAX = 64, REST_MAX = 40, SHORT_NAME_MAX = 10 + REST_MAX + 1 };

/* Returns the part of the name from the last colon on, and copies the part before it. NULL if the
 * name has another form. */
static const char *hold_split(const char *hold, char process[PROCESS_MAX])
{
    const char *rest = strrchr(hold, ':');
    if (rest == NULL || rest - hold >= PROCESS_MAX || strlen(rest) > REST_MAX)
        return NULL;
    memcpy(process, hold, (size_t)(rest - hold));
    process[rest - hold] = '\0';
    return rest;
}

uint32_t find_hold(const struct run *run, const char *hold)
{
    char process[PROCESS_MAX], name[SHORT_NAME_MAX];
    const char *rest = hold_split(hold, process);
    if (rest == NULL)
        return names_find(&run->holds, hold); /* NO_NAME is NONE */
    uint32_t number = names_find(&run->processes, process);
    if (number == NO_NAME)
        return NONE;
    snprintf(name, sizeof name, "%u%s", number, rest);
    return names_find(&run->holds, name);
}

bool read_section(struct reader *reader, struct record *record, uint32_t *section)
{
    const struct run *run = reader->run;
    const char *hold = NULL;
    *section = NONE;
    if (!json_text(record->json, "hold", JSON_OPTIONAL, &hold, record->error))
        return false;
    if (hold == NULL)
        return true;
    *section = find_hold(run, hold);
    if (*section != NONE && run->sections[*section].request == record->request &&
        run->sections[*section].stage == STAGE_ENTER)
        return true;
    snprintf(record->error, sizeof record->error,
             "%s under hold %.80s, in which its request is not inside; it must be",
             events[record->event].name, hold);
    return false;
}

bool read_sent(struct reader *reader, struct record *record, int64_t from_ns, int64_t *sent_ns)
{
    if (!json_line_time(reader->lines, record->json, "sent_ns", sent_ns, record->error))
        return false;
    if (*sent_ns >= from_ns && *sent_ns <= record->t_ns)
        return true;
    reader->run->requests[record->request].mistimed = true;
    snprintf(record->error, sizeof record->error,
             "\"sent_ns\" is %lld; it must lie between the line before it, %lld, and t_ns",
             (long long)*sent_ns, (long long)from_ns);
    return false;
}

static void add_hold(struct run *run, const char *hold)
{
    char process[PROCESS_MAX], name[SHORT_NAME_MAX];
    const char *rest = hold_split(hold, process);
    if (rest != NULL)
        snprintf(name, sizeof name, "%u%s", names_add(&run->processes, process), rest);
    names_add(&run->holds, rest != NULL ? name : hold);
}

void keep_shares(struct run *run)
{
    size_t from = run->share_capacity;
    if (from < run->section_capacity) {
        struct share *shares = memory_new(run->section_capacity, sizeof *shares);
        if (from > 0)
            memcpy(shares, run->shares, from * sizeof *shares);
        free(run->shares);
        run->shares = shares;
        run->share_capacity = run->section_capacity;
    }
    for (size_t i = from; i < run->share_capacity; i++)
        run->shares[i] =
            (struct share){.all = NOT_KNOWN, .left = NOT_KNOWN, .segments = 1, .segment = 1};
}

/* The section of the hold. Its `granted` creates it. NULL if there is none. */
static struct section *section_of(struct reader *reader, struct record *record, const char *hold)
{
    struct run *run = reader->run;
    struct request *request = &run->requests[record->request];
    uint32_t number = find_hold(run, hold);
    if (number != NONE)
        return &run->sections[number];
    if (record->event != EVENT_granted || run->section_count == REQUESTS_MAX)
        return NULL;
    add_hold(run, hold);
    run->sections = memory_grow(run->sections, run->section_count, &run->section_capacity,
                                sizeof *run->sections);
    struct section *section = &run->sections[run->section_count];
    *section = (struct section){
        .request = record->request,
        .next = request->section,
        .history = reader->index,
        .instance = (uint8_t)reader->history->instance,
        .stage = STAGE_NONE,
        .item = request->item,
        .lock = NO_NAME,
        .again = NONE,
        .stock_before = NOT_KNOWN,
        .stock_after = NOT_KNOWN,
        .unit = NOT_KNOWN,
    };
    for (size_t stage = 0; stage < STAGE_COUNT; stage++)
        section->at_ns[stage] = NOT_STAMPED;
    if (run->shares != NULL || reader->history->segments > 1) {
        keep_shares(run);
        run->shares[run->section_count].segments = reader->history->segments;
    }
    request->section = (uint32_t)run->section_count++;
    return section;
}

static bool stage_fits(enum stage last, enum stage next)
{
    switch (next) {
    case STAGE_GRANTED:
        return last == STAGE_NONE;
    case STAGE_ENTER: /* a hold may also be released without an enter */
        return last == STAGE_GRANTED;
    case STAGE_READ:
        return last == STAGE_ENTER;
    case STAGE_WRITE:
        return last == STAGE_READ;
    case STAGE_EXIT:
        return last >= STAGE_ENTER && last <= STAGE_WRITE;
    case STAGE_RELEASE:
        return last == STAGE_GRANTED || last == STAGE_EXIT;
    default:
        return false;
    }
}

/* Which segment's lock that is, if the first segment has the lock `first`. The others' have the
 * same name, a colon and their number. 0: none of them. */
static uint8_t segment_of(const char *first, const char *lock)
{
    const size_t size = strlen(first);
    int64_t segment = 0;
    if (strcmp(first, lock) == 0)
        return 1;
    if (strncmp(first, lock, size) != 0 || lock[size] != ':' || lock[size + 1] == '0' ||
        strspn(lock + size + 1, "0123456789") != strlen(lock + size + 1) ||
        !text_int(lock + size + 1, &segment))
        return 0;
    return segment >= 2 && segment <= SEGMENTS_MAX ? (uint8_t)segment : 0;
}

/* The lock of the first segment, from that of any one. */
static uint32_t first_lock(struct run *run, const char *lock)
{
    enum { LOCK_NAME_MAX = 512 };
    char first[LOCK_NAME_MAX];
    const char *colon = strrchr(lock, ':');
    if (colon == NULL || colon - lock >= LOCK_NAME_MAX)
        return names_add(&run->locks, lock);
    snprintf(first, sizeof first, "%.*s", (int)(colon - lock), lock);
    return names_add(&run->locks, segment_of(first, lock) > 1 ? first : lock);
}

/* An item has one lock, or one for each segment. */
static bool read_lock_name(struct reader *reader, struct record *record,
                           const struct section *section, const char *lock)
{
    struct run *run = reader->run;
    struct item *item = &run->items[section->item];
    const uint8_t segments = reader->history->segments;
    const bool reads = run->requests[section->request].reads; /* it needs the locks of all */
    if (item->lock == NO_NAME)
        item->lock = segments > 1 || reads ? first_lock(run, lock) : section->lock;
    const uint8_t segment = segment_of(names_text(&run->locks, item->lock), lock);
    if (run->shares != NULL)
        run->shares[section - run->sections].segment = segment;
    if (segment >= 1 && (segment <= segments || reads))
        return true;
    snprintf(record->error, sizeof record->error,
             "%.40s is sold under lock \"%.40s\" and under \"%.40s\"; it must have one%s",
             item->name, names_text(&run->locks, item->lock), lock,
             segments > 1 ? " for each of its segments" : "");
    return false;
}

static bool read_granted(struct reader *reader, struct record *record, struct section *section)
{
    const char *lock = NULL;
    const char *mode = "exclusive";
    if (!json_text(record->json, "lock", JSON_REQUIRED, &lock, record->error) ||
        !json_text(record->json, "mode", JSON_OPTIONAL, &mode, record->error) ||
        !json_int(record->json, "token", JSON_OPTIONAL, 0, JSON_EXACT_MAX, &section->token,
                  record->error))
        return false;
    section->shared = strcmp(mode, "shared") == 0;
    if (!section->shared && strcmp(mode, "exclusive") != 0) {
        snprintf(record->error, sizeof record->error,
                 "\"mode\" is \"%.40s\"; it must be exclusive or shared", mode);
        return false;
    }
    section->lock = names_add(&reader->run->locks, lock);
    if (reader->run->rules->item_of_lock != NULL)
        section->item = reader->run->rules->item_of_lock(reader->run, lock);
    return section->item == NONE || read_lock_name(reader, record, section, lock);
}

/* Every line of a hold must name the same lock. If they differ, the lock is unknown. */
static bool follow_lock(struct reader *reader, struct record *record, struct section *section)
{
    const char *lock = names_text(&reader->run->locks, section->lock);
    const char *here = lock;
    if (!json_text(record->json, "lock", JSON_OPTIONAL, &here, record->error))
        return false;
    if (section->lock == NO_NAME || strcmp(here, lock) == 0)
        return true;
    snprintf(record->error, sizeof record->error,
             "lock \"%.60s\" in a line of a hold of \"%.60s\"; it must be the same", here, lock);
    section->lock = NO_NAME;
    return false;
}

bool read_status(struct record *record, const char **status)
{
    static const char
        *const
            words[] = {"OK",      "BUSY",        "TIMED_OUT", "CANCELLED",  "LOST",
                       "UNKNOWN", "UNREACHABLE", "REFUSED",   "WRONG_TYPE", "FLAWED",
                       "INVALID", "UNSUPPORTED", "UPGRADE",   "LIMIT",      "NO_MEMORY",
                       "FORKED",  "ABANDONED" /* from the service: the lock was left to expire */};
    if (!json_text(record->json, "status", JSON_REQUIRED, status, record->error))
        return false;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(*status, words[i]) == 0)
            return true;
    snprintf(
        record->error, sizeof record->error,
        "there is no status \"%.40s\"; it must be the name of a dlock_status, as OK or TIMED_OUT, "
        "or ABANDONED",
        *status);
    return false;
}

static bool read_release(struct record *record, struct section *section)
{
    const char *status = "";
    if (!read_status(record, &status))
        return false;
    section->kept = strcmp(status, "OK") != 0 && strcmp(status, "LOST") != 0;
    return true;
}

void about_hold(struct reader *reader, struct record *record)
{
    const enum stage stage = STAGE_GRANTED + (enum stage)(record->event - EVENT_granted);
    const char *hold = NULL;
    if (!json_text(record->json, "hold", JSON_REQUIRED, &hold, record->error)) {
        wrong(reader, record);
        return;
    }
    struct section *section = section_of(reader, record, hold);
    if (section == NULL || section->request != record->request ||
        section->history != reader->index) {
        complain(&reader->source, record->line, "%s of hold %.80s, which %s", stage_names[stage],
                 hold,
                 section == NULL ? "was never granted; its granted line must come first"
                                 : "belongs to another request or instance; it must not");
        return;
    }
    enum stage last = section->stage;
    if (!stage_fits(last, stage) || (last != STAGE_NONE && record->t_ns < section->at_ns[last])) {
        complain(&reader->source, record->line,
                 "%s of hold %.80s comes %s %s; the order must be "
                 "granted, enter, read, write, exit, release",
                 stage_names[stage], hold,
                 stage_fits(last, stage) ? "with an earlier time than" : "right after",
                 stage_names[last]);
        return;
    }
    section->stage = stage;
    section->at_ns[stage] = record->t_ns;
    bool fine = true;
    if (stage == STAGE_GRANTED)
        fine = read_granted(reader, record, section);
    else if (stage == STAGE_READ || stage == STAGE_WRITE)
        fine = reader->run->rules->read_stage(reader, record, section);
    else if (stage == STAGE_RELEASE)
        fine = read_release(record, section);
    if (!fine || !follow_lock(reader, record, section))
        wrong(reader, record);
}

/* The timekeeper's record may come before the hold's `granted`, or after its `release`. */
void about_keeper(struct reader *reader, struct record *record)
{
    struct run *run = reader->run;
    const char *hold = NULL;
    if (!json_text(record->json, "hold", JSON_REQUIRED, &hold, record->error)) {
        wrong(reader, record);
        return;
    }
    struct mark *mark = add_mark(run, record->event == EVENT_lost ? MARK_LOST : MARK_RENEW, record,
                                 reader->history->instance);
    mark->section = find_hold(run, hold);
}
