/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a hold: each hold must pass through its stages in order.
 */
#include "history.h"
#include "memory.h"

#include <stdio.h>
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

static void add_hold(struct run *run, const char *hold)
{
    char process[PROCESS_MAX], name[SHORT_NAME_MAX];
    const char *rest = hold_split(hold, process);
    if (rest != NULL)
        snprintf(name, sizeof name, "%u%s", names_add(&run->processes, process), rest);
    names_add(&run->holds, rest != NULL ? name : hold);
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
    if (section->item == NONE)
        return true;
    struct item *item = &reader->run->items[section->item];
    if (item->lock == NO_NAME)
        item->lock = section->lock;
    if (item->lock == section->lock)
        return true;
    snprintf(record->error, sizeof record->error,
             "%.40s is sold under lock \"%.40s\" and under \"%.40s\"; it must have one", item->name,
             names_text(&reader->run->locks, item->lock), lock);
    return false;
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

/* A request that only reads ends here. */
static bool read_stock(struct reader *reader, struct record *record, struct section *section)
{
    struct request *request = &reader->run->requests[record->request];
    if (!json_int(record->json, "stock_before", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX,
                  &section->stock_before, record->error) ||
        !json_int(record->json, "epoch", JSON_OPTIONAL, 0, JSON_EXACT_MAX, &section->epoch,
                  record->error))
        return false;
    if (request->reads) {
        set_outcome(reader, record, OUTCOME_READ);
        request->code = 200;
    }
    return true;
}

static bool read_sale(struct reader *reader, struct record *record, struct section *section)
{
    struct request *request = &reader->run->requests[record->request];
    if (run_only_reads(reader->run, section)) {
        snprintf(record->error, sizeof record->error,
                 "a sale under a read lock, or by a request that only reads; it must have "
                 "the lock alone");
        return false;
    }
    section->quantity = request->quantity;
    if (!json_int(record->json, "stock_after", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX,
                  &section->stock_after, record->error) ||
        !json_int(record->json, "unit", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX, &section->unit,
                  record->error) ||
        !json_int(record->json, "quantity", JSON_OPTIONAL, 1, UNITS_MAX, &section->quantity,
                  record->error))
        return false;
    if (section->item == NONE) {
        snprintf(record->error, sizeof record->error,
                 "a sale of an item that run.json does not name; \"items\" must name it");
        return false;
    }
    if (section->quantity != request->quantity)
        complain(&reader->source, record->line,
                 "a sale of %lld by request %.60s, which asked for %lld; they must be the same",
                 (long long)section->quantity, run_request_id(reader->run, record->request),
                 (long long)request->quantity);
    section->quantity_denied = section->quantity != request->quantity;
    if (section->quantity > request->quantity)
        section->quantity = request->quantity; /* the smaller quantity is proven */
    section->sold = true;
    if (strcmp(reader->run->spec.on_conflict, "queue") == 0 &&
        queue_decide(reader, record, OUTCOME_SOLD, 200))
        return true;
    set_outcome(reader, record, OUTCOME_SOLD);
    request->code = 200;
    return true;
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
    else if (stage == STAGE_READ)
        fine = read_stock(reader, record, section);
    else if (stage == STAGE_WRITE)
        fine = read_sale(reader, record, section);
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
