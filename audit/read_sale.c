/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the lines of a history about a sale: what it asked for, read and wrote.
 */
#include "history.h"
#include "memory.h"
#include "shop.h"

#include <stdio.h>
#include <string.h>

/* Compares the key with that of sale.jtl, which may lack the item. key is NULL if the request has
 * none. A request that was accepted twice, with two keys, counts as one without a key: its sales
 * cannot be told apart. */
static void sale_take_key(struct reader *reader, struct record *record, struct request *request,
                          const char *key)
{
    bool twice = request->accepted_twice;
    uint32_t number = key == NULL ? NONE
                      : twice     ? keys_find(reader->run, request->item, key)
                                  : keys_add(reader->run, request->item, key);
    bool same = request->key == number ||
                (key != NULL && request->key == keys_find(reader->run, NONE, key));
    if (request->key != NONE && !same)
        complain(&reader->source, record->line,
                 "request %.60s has another idempotency key than in sale.jtl; it must have the "
                 "same",
                 run_request_id(reader->run, record->request));
    request->key = twice && request->key != number ? NONE : number;
}

bool sale_invoked(struct reader *reader, struct record *record, uint32_t item)
{
    struct request *request = &reader->run->requests[record->request];
    const char *key = NULL;
    const int64_t quantity = request->quantity;
    if (!json_text(record->json, "key", JSON_OPTIONAL, &key, record->error) ||
        !json_int(record->json, "quantity", JSON_OPTIONAL, 0, UNITS_MAX, &request->quantity,
                  record->error))
        return false;
    request->reads = request->quantity == 0;
    if (request->taken && (request->quantity != quantity || request->item != item))
        complain(&reader->source, record->line,
                 "request %.60s asked for another item or quantity than an instance took for it; "
                 "they must be the same",
                 run_request_id(reader->run, record->request));
    request->item = item;
    sale_take_key(reader, record, request, key);
    return true;
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

bool sale_stage(struct reader *reader, struct record *record, struct section *section)
{
    return record->event == EVENT_read ? read_stock(reader, record, section)
                                       : read_sale(reader, record, section);
}

static struct replay *replay_of(struct run *run, struct request *request)
{
    if (request->replay == NONE) {
        run->replays = memory_grow(run->replays, run->replay_count, &run->replay_capacity,
                                   sizeof *run->replays);
        request->replay = (uint32_t)run->replay_count++;
        run->replays[request->replay] = (struct replay){NOT_KNOWN, NOT_KNOWN, NONE};
    }
    return &run->replays[request->replay];
}

/* It got the stored answer of its key: nothing was sold to it. Where there is a queue, that is
 * looked at without a lock, so without a hold. */
void sale_replayed(struct reader *reader, struct record *record)
{
    struct request *request = &reader->run->requests[record->request];
    const char *hold = NULL, *answered_by = NULL;
    int64_t code = 0;
    struct replay *told = replay_of(reader->run, request);
    if (!json_text(record->json, "hold", JSON_OPTIONAL, &hold, record->error) ||
        !json_text(record->json, "answered_by", JSON_REQUIRED, &answered_by, record->error) ||
        !json_int(record->json, "code", JSON_REQUIRED, 0, 999, &code, record->error) ||
        !json_int(record->json, "stock_after", JSON_REQUIRED, -UNITS_MAX, UNITS_MAX, &told->left,
                  record->error) ||
        !json_int(record->json, "unit", code == 200 ? JSON_REQUIRED : JSON_OPTIONAL, -UNITS_MAX,
                  UNITS_MAX, &told->unit, record->error)) {
        wrong(reader, record);
        return;
    }
    uint32_t number = hold != NULL ? find_hold(reader->run, hold) : NONE;
    if ((hold != NULL &&
         (number == NONE || reader->run->sections[number].request != record->request)) ||
        request->key == NONE)
        complain(&reader->source, record->line,
                 "replay of hold %.80s, which was not granted to that request, or without a key; "
                 "it must have both",
                 hold != NULL ? hold : "none");
    set_outcome(reader, record, OUTCOME_REPLAYED);
    request->code = (int16_t)code;
    told->answered_by = run_instance(reader->run, answered_by);
    reader->run->counts.replayed++;
}

/* The version of the stock had changed, so the section reads again. */
void sale_aborted(struct reader *reader, struct record *record)
{
    const char *hold = NULL;
    if (!json_text(record->json, "hold", JSON_REQUIRED, &hold, record->error)) {
        wrong(reader, record);
        return;
    }
    uint32_t number = find_hold(reader->run, hold);
    struct section *section = number == NONE ? NULL : &reader->run->sections[number];
    if (section == NULL || section->request != record->request || section->stage != STAGE_READ) {
        complain(&reader->source, record->line,
                 "abort of hold %.80s, which has not read the stock; it must follow a read of its "
                 "own",
                 hold);
        return;
    }
    section->stage = STAGE_ENTER;
    section->at_ns[STAGE_READ] = NOT_STAMPED;
    section->stock_before = NOT_KNOWN;
}
