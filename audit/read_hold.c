/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a hold: each hold must pass through its stages in order.
 */
#include "history.h"
#include "memory.h"
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

static void add_hold(struct run *run, const char *hold)
{
    char process[PROCESS_MAX], name[SHORT_NAME_MAX];
    const char *rest = hold_split(hold, process);
    if (rest != NULL)
        snprintf(name, sizeof name, "%u%s", names_add(&run->processes, process), rest);
    names_add(&run->holds, rest != NULL ? name : hold);
}

/* Keeps a share for each section, from the first one on whose stock is in segments. */
static void keep_shares(struct run *run)
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

/* The line must be about the segment whose lock the hold is. */
static bool read_segment(struct record *record, const struct share *share)
{
    int64_t segment = 0;
    if (!json_int(record->json, "segment", JSON_REQUIRED, 1, share->segments, &segment,
                  record->error))
        return false;
    if (share->segment == 0 || segment == share->segment)
        return true;
    snprintf(record->error, sizeof record->error,
             "segment %d under the lock of segment %d; they must be the same", (int)segment,
             share->segment);
    return false;
}

/* What a `read` states about the segments, if there are several. */
static bool read_share(struct reader *reader, struct record *record, const struct section *section)
{
    struct share *share = &reader->run->shares[section - reader->run->sections];
    return json_int(record->json, "all", reader->history->naive ? JSON_OPTIONAL : JSON_REQUIRED,
                    -UNITS_MAX, UNITS_MAX, &share->all, record->error) &&
           read_segment(record, share);
}

/* A request that only reads ends here; it may read one segment after the other. */
static bool read_stock(struct reader *reader, struct record *record, struct section *section)
{
    struct request *request = &reader->run->requests[record->request];
    if (!json_int(record->json, "stock_before", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX,
                  &section->stock_before, record->error) ||
        !json_int(record->json, "epoch", JSON_OPTIONAL, 0, JSON_EXACT_MAX, &section->epoch,
                  record->error))
        return false;
    const bool again = reader->history->segments > 1 && request->outcome == OUTCOME_READ;
    if (request->reads && !again) {
        set_outcome(reader, record, OUTCOME_READ);
        request->code = 200;
    }
    return reader->history->segments == 1 || read_share(reader, record, section);
}

/* The parts of a sale come in their order. Together they take what was asked for. `rest` of it is
 * left for this part and later ones. */
static void follow_parts(struct reader *reader, struct record *record, struct section *section,
                         int64_t rest, int part)
{
    const struct share *share = &reader->run->shares[section - reader->run->sections];
    const bool last = share->part == share->parts;
    if (share->part != part || share->parts > share->segments)
        complain(&reader->source, record->line,
                 "part %d of %d of a sale by request %.60s; it must be part %d, since each comes "
                 "once, and in order",
                 share->part, share->parts, run_request_id(reader->run, record->request), part);
    const bool denied = section->quantity > rest || (last && section->quantity != rest);
    for (size_t i = reader->run->requests[record->request].section; denied && i != NONE;
         i = reader->run->sections[i].next)
        reader->run->sections[i].quantity_denied = true; /* any of its parts may be wrong */
    if (denied)
        complain(&reader->source, record->line,
                 "part %d of %d of a sale by request %.60s takes %lld, and %lld of the %lld that "
                 "it asked for were left to take; the parts must add up to that",
                 share->part, share->parts, run_request_id(reader->run, record->request),
                 (long long)section->quantity, (long long)rest,
                 (long long)reader->run->requests[record->request].quantity);
    if (section->quantity > rest)
        section->quantity = rest > 0 ? rest : 0; /* the smaller quantity is proven */
}

/* A sale, or a part of one, of a stock over segments. */
static bool read_part(struct reader *reader, struct record *record, struct section *section)
{
    struct run *run = reader->run;
    struct request *request = &run->requests[record->request];
    struct share *share = &run->shares[section - run->sections];
    int64_t segments = 0, part = 0, parts = 0, rest = request->quantity;
    int before = 0;
    if (!json_int(record->json, "segments", JSON_REQUIRED, 1, SEGMENTS_MAX, &segments,
                  record->error) ||
        !json_int(record->json, "part", JSON_REQUIRED, 1, SEGMENTS_MAX, &part, record->error) ||
        !json_int(record->json, "parts", JSON_REQUIRED, 1, SEGMENTS_MAX, &parts, record->error) ||
        !json_int(record->json, "left", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX, &share->left,
                  record->error))
        return false;
    for (size_t i = request->section; i != NONE; i = run->sections[i].next) {
        if (!run->sections[i].sold)
            continue;
        rest -= run->sections[i].quantity;
        before++;
    }
    share->part = (uint8_t)part;
    share->parts = (uint8_t)parts;
    follow_parts(reader, record, section, rest, before + 1);
    section->sold = true;
    if (before == 0 || request->outcome != OUTCOME_SOLD || part == 1)
        set_outcome(reader, record, OUTCOME_SOLD);
    request->outcome_ns = record->t_ns;
    request->code = 200;
    if (segments == share->segments)
        return read_segment(record, share);
    snprintf(record->error, sizeof record->error,
             "a sale of a stock in %lld segments; its begin says %d", (long long)segments,
             share->segments);
    share->segments = 0;
    return false;
}

/* If the life's `begin` is missing or unreadable, its first sale says over how many segments its
 * instance has a stock. False: over no more than one. */
static bool learn_segments(struct reader *reader, struct record *record,
                           const struct section *section)
{
    struct run *run = reader->run;
    int64_t segments = 1;
    if (!json_int(record->json, "segments", JSON_OPTIONAL, 1, SEGMENTS_MAX, &segments,
                  record->error) ||
        segments == 1)
        return false;
    keep_shares(run);
    if (!reader->history->told_segments)
        reader->history->segments = (uint8_t)segments;
    run->shares[section - run->sections].segments = reader->history->segments;
    run->shares[section - run->sections].segment = 0; /* its lock was read as that of one key */
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
    if (reader->history->segments > 1 || learn_segments(reader, record, section))
        return read_part(reader, record, section);
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
