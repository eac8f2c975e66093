/* SPDX-License-Identifier: Apache-2.0
 *
 * See selling.h.
 */
#include "selling.h"

#include "../lock/clock.h"
#include "resolve.h"
#include "log.h"
#include "conflict.h"
#include "lock_meter.h"
#include "metrics.h"
#include "queue.h"
#include "sale_record.h"
#include "span.h"

#include <inttypes.h>
#include <sys/random.h>

#define ABORTS_MAX 32      /* --write cas: how often a sale finds the stock changed */
#define ABORT_PAUSE_MS 512 /* the longest pause before it reads again */

/* ---- Results --------------------------------------------------------------------------------- */

bool selling_is_enough(const struct sale_env *env, struct sale *sale, int64_t stock)
{
    sale_record_read(env, sale, stock);
    sale->left = stock;
    if (stock >= sale->quantity)
        return true;
    section_end(sale, stock <= 0 ? SALE_SOLD_OUT : SALE_INSUFFICIENT_STOCK, "");
    return false;
}

/* Whether a DECR below zero must be undone. If the rung or the write mode is flawed, or the lock
 * was lost, it stays: it shows the flaw. If the hold is still valid, the stock was changed without
 * the lock. So it was if the fence accepted the write, whatever became of the hold since. */
static bool is_not_there(const struct sale *sale, const struct setting *now, int64_t after)
{
    return after < 0 && !now->rung->flawed && !write_ways[now->write].flawed &&
           (now->write == WRITE_FENCED || span_is_valid(sale));
}

/* The DECR went below zero: ends the sale, and adds its units to the stock again. */
static void put_back(struct sale_worker *worker, struct sale *sale, int64_t after)
{
    struct section_fence room;
    const struct stock_fence *fence = section_fence(worker->env, sale, &room);
    char detail[sizeof sale->detail];
    int64_t again;
    snprintf(detail, sizeof detail,
             "the stock was changed without the lock: %" PRId64 " when it was read, %" PRId64
             " after the write",
             sale->left, after);
    section_end(sale, SALE_STOCK_INVALID, detail);
    stock_pin(worker->stock, sale->stock_master);
    enum stock_status added =
        sale->segment != 0
            ? stock_write_segment(worker->stock, sale->item_key, sale->segments, sale->stock_key,
                                  "INCRBY", sale->quantity, &again)
            : stock_add(worker->stock, sale->stock_key, sale->quantity, fence, &again);
    stock_pin(worker->stock, 0);
    if (added == STOCK_LOST)
        added = resolve_put_back(worker, sale, after);
    if (added != STOCK_OK)
        log_event(LOG_WARNING, "stock",
                  "%s may be %" PRId64
                  " too low: the units of a refused sale were not put back: %s",
                  sale->stock_key, sale->quantity, stock_error(worker->stock));
}

/* The write of a sale that took units of segments. */
static void record_parts(const struct sale_env *env, struct sale *sale, int64_t after)
{
    const struct span_part alone = {.quantity = sale->quantity, .after = after};
    const size_t count = span_count(sale);
    sale->left = sale->all - sale->quantity;
    for (size_t i = 0; i < count; i++) {
        const struct span_part *part = sale->span != NULL ? &sale->span->parts[i] : &alone;
        const int64_t before = part->after + part->quantity;
        span_turn(env, sale, i);
        RECORD(env, sale, "write",
               ",\"hold\":\"%s\",\"stock_before\":%" PRId64 ",\"stock_after\":%" PRId64
               ",\"unit\":%" PRId64 ",\"quantity\":%" PRId64
               ",\"segment\":%d,\"segments\":%d,\"part\":%zu,\"parts\":%zu,\"left\":%" PRId64,
               sale->hold_id, before, part->after,
               segments_unit(sale->segments, sale->segment, part->after), part->quantity,
               sale->segment, sale->segments, i + 1, count, sale->left);
    }
    span_turn(env, sale, 0);
    sale->unit = segments_unit(sale->segments, sale->segment, after);
}

void selling_sold(const struct sale_env *env, struct sale *sale, int64_t after)
{
    const int64_t before = sale->left;
    if (segments_several(env)) {
        record_parts(env, sale, after);
        return;
    }
    sale->left = after;
    sale->unit = after + 1;
    RECORD(env, sale, "write",
           ",\"hold\":\"%s\",\"stock_before\":%" PRId64 ",\"stock_after\":%" PRId64
           ",\"unit\":%" PRId64 ",\"quantity\":%" PRId64,
           sale->hold_id, before, after, sale->unit, sale->quantity);
}

/* After a lost reply the entry's number may be unknown. */
static void selling_accepted(const struct sale_env *env, const struct sale *sale, const char *entry)
{
    char place[STOCK_ENTRY_MAX + 16] = "";
    if (entry[0] != '\0')
        snprintf(place, sizeof place, ",\"entry\":\"%s\"", entry);
    RECORD(env, sale, "accepted", ",\"code\":%d,\"id\":\"%s.%s\"%s,\"quantity\":%" PRId64,
           env->codes[SALE_ACCEPTED], sale->item, sale->random, place, sale->quantity);
}

/* The stock's server is checked: while too few replicas answer, each further sale would cost a
 * unit. */
static void end_unknown(struct sale_worker *worker, struct sale *sale)
{
    outage_hint(worker->env->outage, ROLE_STOCK, OUTAGE_LOOK);
    char parts[24] = "";
    if (segments_several(worker->env))
        snprintf(parts, sizeof parts, ",\"parts\":%zu", span_count(sale));
    if (sale->hold_id[0] != '\0') /* a queue is looked at without the lock */
        RECORD(worker->env, sale, "unknown",
               ",\"hold\":\"%s\",\"code\":%d,\"quantity\":%" PRId64 "%s", sale->hold_id,
               worker->env->codes[SALE_OUTCOME_UNKNOWN], sale->quantity, parts);
    section_end(sale, SALE_OUTCOME_UNKNOWN, stock_error(worker->stock));
}

/* The write found fewer units than the read. */
static void end_insufficient_stock(struct sale *sale, int64_t stock)
{
    char detail[sizeof sale->detail];
    if (sale->span != NULL) {
        section_end(sale, SALE_STOCK_INVALID,
                    "a segment was changed without its lock after it was read; nothing was sold");
        return;
    }
    snprintf(detail, sizeof detail,
             "the stock was changed without the lock: %" PRId64 " when it was read, %" PRId64
             " before the write",
             sale->left, stock);
    section_end(sale, SALE_STOCK_INVALID, detail);
}

/* ---- Selling once, under a key --------------------------------------------------------------- */

bool selling_is_confirmed(struct sale_worker *worker, const struct sale *sale)
{
    const int64_t keep_ms = worker->env->config->idempotency_ms;
    return !section_asks_replicas(worker) ||
           (stock_confirm_record(worker->stock, sale->record_key, keep_ms) == STOCK_OK &&
            stock_is_confirmed(worker->stock));
}

static enum sale_result selling_result_of(const struct stock_record *record)
{
    switch (record->code) {
    case 200:
        return SALE_SOLD;
    case 202:
        return SALE_ACCEPTED;
    case 404:
        return SALE_UNKNOWN_ITEM;
    case 503:
        return SALE_DEADLINE;
    default:
        return record->left <= 0 ? SALE_SOLD_OUT : SALE_INSUFFICIENT_STOCK;
    }
}

void selling_end_by_record(struct sale *sale, const struct stock_record *record)
{
    char detail[sizeof sale->detail] = "";
    sale->left = record->left;
    sale->unit = record->left + 1;
    snprintf(sale->answered_by, sizeof sale->answered_by, "%s", record->answered_by);
    if (record->code == 202)
        snprintf(sale->random, sizeof sale->random, "%s", record->random);
    if (record->code == 404)
        snprintf(detail, sizeof detail, "there was no key %.100s", sale->stock_key);
    else if (record->code == 503)
        snprintf(detail, sizeof detail,
                 "it waited in its item's queue for longer than --queue-life-ms; this is its "
                 "outcome, so a new attempt needs a new Idempotency-Key");
    section_end(sale, selling_result_of(record), detail);
}

/* A refusal that a queue stores needs it, too. If it were lost, the sale would be in the queue
 * again, and might be sold. */
static bool selling_must_confirm(const struct sale_env *env, const struct stock_record *kept)
{
    const bool is_refusal = kept->code == env->codes[SALE_SOLD_OUT];
    return kept->code != env->codes[SALE_ACCEPTED] &&
           (!is_refusal || env->mode->now.on_conflict == CONFLICT_QUEUE);
}

void selling_replay(struct sale_worker *worker, struct sale *sale, const struct stock_record *kept)
{
    const struct sale_env *env = worker->env;
    char detail[sizeof sale->detail], unit[48] = "", hold[sizeof sale->hold_id + 16] = "";
    const bool sold = kept->code == env->codes[SALE_SOLD];
    if (kept->quantity != sale->quantity) {
        snprintf(detail, sizeof detail,
                 "the sale that this key belongs to had quantity=%" PRId64
                 ", this one has quantity=%" PRId64,
                 kept->quantity, sale->quantity);
        section_end(sale, SALE_KEY_REUSED, detail);
        return;
    }
    if (selling_must_confirm(env, kept) && !selling_is_confirmed(worker, sale)) {
        end_unknown(worker, sale);
        return;
    }
    selling_end_by_record(sale, kept);
    if (sale->result == SALE_ACCEPTED) {
        selling_accepted(env, sale, kept->entry);
        return;
    }
    sale->replayed = true;
    if (sold)
        snprintf(unit, sizeof unit, ",\"unit\":%" PRId64, sale->unit);
    if (sale->hold_id[0] != '\0') /* a queue is looked at without the lock */
        snprintf(hold, sizeof hold, ",\"hold\":\"%s\"", sale->hold_id);
    RECORD(env, sale, "replay",
           "%s,\"code\":%d,\"answered_by\":\"%s\",\"stock_after\":%" PRId64
           "%s,\"quantity\":%" PRId64,
           hold, kept->code, kept->answered_by, kept->left, unit, sale->quantity);
}

/* Ends the sale if an answer is stored under its key, or if that cannot be found out. False: the
 * sale continues; it has no key, or nothing is stored. */
static bool ends_by_record(struct sale_worker *worker, struct sale *sale)
{
    struct stock_record record;
    if (sale->key[0] == '\0')
        return false;
    enum stock_status status = stock_recall(worker->stock, sale->record_key, &record);
    if (status == STOCK_OK && record.code == worker->env->codes[SALE_ACCEPTED]) {
        queue_name_keys(worker->env->config, sale);
        status = queue_recall(worker->stock, sale, &record);
    }
    if (status == STOCK_OK)
        selling_replay(worker, sale, &record);
    else if (status == STOCK_INVALID)
        section_end(sale, SALE_RECORD_INVALID, stock_error(worker->stock));
    else if (status != STOCK_MISSING)
        section_end_by_stock(worker, sale, status);
    return status != STOCK_MISSING;
}

uint64_t selling_new_mark(void)
{
    uint64_t mark = 0;
    while (mark == 0)
        if (getrandom(&mark, sizeof mark, 0) != sizeof mark)
            mark = 0;
    return mark;
}

/* What a sale's write did. */
struct outcome {
    int64_t after; /* the stock after it; with STOCK_INSUFFICIENT, what it would have been */
    struct stock_record record; /* of a sale with a key */
    bool kept;     /* with STOCK_OK: the stored answer is another request's; nothing was sold now */
    bool resolved; /* its reply was lost, and resolve.h has found this out */
};

/* Around the write itself, and not around what finds out later what became of it. What was read of
 * one master says nothing of another one, which may lack the last sales. */
static void write_begin(struct sale_worker *worker, const struct sale *sale)
{
    stock_pin(worker->stock, sale->stock_master);
    stock_ask_replicas(worker->stock, true);
}

static void write_end(struct sale_worker *worker)
{
    stock_ask_replicas(worker->stock, false);
    stock_pin(worker->stock, 0);
}

/* Writes the stock and stores the answer, in one script. It never takes more than there is, so
 * nothing is ever put back. */
static enum stock_status write_once(struct sale_worker *worker, struct sale *sale,
                                    struct outcome *outcome)
{
    const struct config *config = worker->env->config;
    const int64_t sent_ns = mono_ns();
    struct section_fence room;
    const struct stock_once once = {.key = sale->stock_key,
                                    .record_key = sale->record_key,
                                    .quantity = sale->quantity,
                                    .answered_by = config->instance,
                                    .mark = selling_new_mark(),
                                    .keep_ms = config->idempotency_ms,
                                    .fence = section_fence(worker->env, sale, &room)};
    struct stock_record *record = &outcome->record;
    write_begin(worker, sale);
    enum stock_status written = stock_sell_once(worker->stock, &once, record, &outcome->kept);
    write_end(worker);
    if (written == STOCK_LOST) {
        outcome->resolved = true;
        written = resolve_sale_once(worker, sale, sent_ns, record);
        /* another request sold meanwhile */
        outcome->kept = written == STOCK_OK && record->mark != once.mark;
        if (written == STOCK_OK && !outcome->kept &&
            record->code == worker->env->codes[SALE_SOLD_OUT])
            written = STOCK_INSUFFICIENT;
    }
    outcome->after = record->left - (written == STOCK_INSUFFICIENT ? sale->quantity : 0);
    return written;
}

/* ---- Read, decide, write --------------------------------------------------------------------- */

/* Takes the units of all its segments by one script, whatever the write mode is. *after: what the
 * first of them has after that. */
static enum stock_status write_span(struct sale_worker *worker, struct sale *sale, int64_t *after)
{
    struct span *span = sale->span;
    struct segment_keys keys;
    const char *list[SEGMENTS_MAX];
    int64_t quantities[SEGMENTS_MAX], left[SEGMENTS_MAX];
    segments_keys(worker->env->config, sale, SEGMENTS_MAX, &keys);
    for (size_t i = 0; i < span->count; i++) {
        list[i] = keys.list[span->parts[i].segment - 1];
        quantities[i] = span->parts[i].quantity;
    }
    enum stock_status status = stock_take_segments(worker->stock, sale->item_key, sale->segments,
                                                   list, quantities, span->count, left);
    for (size_t i = 0; i < span->count; i++)
        span->parts[i].after =
            status == STOCK_OK ? left[i] : span->parts[i].stock - span->parts[i].quantity;
    *after = span->parts[0].after;
    return status;
}

/* Each write looks first whether the stock still has so many segments. So a write that is late
 * meets no stock that was laid otherwise since, where the units have other numbers. */
static enum stock_status write_segments(struct sale_worker *worker, struct sale *sale,
                                        int64_t *after)
{
    const char *const key = sale->stock_key;
    if (sale->span != NULL)
        return write_span(worker, sale, after);
    *after = sale->left - sale->quantity;
    switch ((enum write_mode)worker->env->mode->now.write) {
    case WRITE_SET:
        return stock_write_segment(worker->stock, sale->item_key, sale->segments, key, "SET",
                                   *after, after);
    case WRITE_ATOMIC:
        return stock_take_segments(worker->stock, sale->item_key, sale->segments, &key,
                                   &sale->quantity, 1, after);
    default: /* DECR */
        return stock_write_segment(worker->stock, sale->item_key, sale->segments, key, "DECRBY",
                                   sale->quantity, after);
    }
}

/* Writes the stock in the current write mode. *after: the stock after that; with
 * STOCK_INSUFFICIENT, what it would have been. */
static enum stock_status write_stock(struct sale_worker *worker, struct sale *sale, int64_t *after)
{
    struct section_fence room;
    enum stock_status status;
    if (segments_several(worker->env))
        return write_segments(worker, sale, after);
    switch ((enum write_mode)worker->env->mode->now.write) {
    case WRITE_SET:
        *after = sale->left - sale->quantity;
        return stock_write(worker->stock, sale->stock_key, *after);
    case WRITE_CAS:
        return stock_take_version(worker->stock, sale->stock_key, sale->version, sale->quantity,
                                  after);
    case WRITE_ATOMIC:
        status = stock_take(worker->stock, sale->stock_key, sale->quantity, after);
        *after -= sale->quantity;
        return status;
    default: /* DECR, perhaps fenced */
        return stock_decrement(worker->stock, sale->stock_key, sale->quantity,
                               section_fence(worker->env, sale, &room), after);
    }
}

/* As write_stock. STOCK_LOST: the outcome could not be found out, either. */
static enum stock_status write_sale(struct sale_worker *worker, struct sale *sale,
                                    struct outcome *outcome)
{
    *outcome = (struct outcome){0};
    if (sale->key[0] != '\0')
        return write_once(worker, sale, outcome);
    write_begin(worker, sale);
    enum stock_status written = write_stock(worker, sale, &outcome->after);
    write_end(worker);
    outcome->resolved = written == STOCK_LOST;
    return outcome->resolved ? resolve_sale(worker, sale, &outcome->after) : written;
}

/* Whether the replicas have the sale's write. If its reply was lost, no connection is left that
 * could ask them about it: another write must be confirmed, which comes after it. */
static bool is_confirmed(struct sale_worker *worker, const struct sale *sale,
                         const struct outcome *outcome)
{
    if (!section_asks_replicas(worker))
        return true;
    if (outcome->resolved && sale->key[0] != '\0')
        return selling_is_confirmed(worker, sale);
    if (outcome->resolved &&
        stock_confirm(worker->stock, sale->stock_key, outcome->after) != STOCK_OK)
        return false;
    return stock_is_confirmed(worker->stock);
}

static bool reads_as_it_writes(const struct sale_env *env)
{
    return env->mode->now.write == WRITE_ATOMIC && !segments_several(env);
}

/* --segments with atomic: without a lock others may sell between its read and its write. */
static bool may_be_overtaken(const struct sale_env *env)
{
    return env->mode->now.write == WRITE_ATOMIC && segments_several(env);
}

/* The stock was changed since the sale read it: it reads again after a pause. The pauses grow, and
 * are random, so that the sales that met here do not meet again. */
static enum sale_step selling_try_again(const struct sale_worker *worker, struct sale *sale)
{
    uint32_t chance = 0;
    metrics_abort();
    for (size_t i = span_count(sale); i-- > 0;) {
        span_turn(worker->env, sale, i);
        RECORD(worker->env, sale, "abort", ",\"hold\":\"%s\"", sale->hold_id);
    }
    if (++sale->aborts >= ABORTS_MAX) {
        char detail[sizeof sale->detail];
        snprintf(detail, sizeof detail,
                 "other sales of %s changed the stock %d times between its read and its write",
                 sale->item, ABORTS_MAX);
        section_end(sale, SALE_CONTENDED, detail);
        return STEP_LEAVE;
    }
    (void)!getrandom(&chance, sizeof chance, 0);
    const int64_t most_us =
        min_ns(INT64_C(1000) << min_ns(sale->aborts, 20), ABORT_PAUSE_MS * 1000);
    sale->waits_for = WAIT_TIME;
    sale->until_ns = mono_ns() + chance % most_us * 1000;
    return STEP_SECTION;
}

/* --segments: reads all segments, and sells from those whose locks it has if they have enough.
 * Otherwise it tries others, unless all of them have too few. */
static enum sale_step read_segments(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    const struct segments *segments = &env->mode->now.segments;
    int64_t stocks[SEGMENTS_MAX];
    int chosen[SEGMENTS_MAX];
    if (!segments_read(worker, sale, stocks))
        return STEP_LEAVE;
    sale_record_segments(env, sale, stocks);
    sale->all = segments_sum(env, stocks);
    sale->left = stocks[sale->segment - 1];
    for (size_t i = 0; sale->span != NULL && i < sale->span->count; i++)
        sale->span->parts[i].stock = stocks[sale->span->parts[i].segment - 1];
    const int64_t seen = segments->naive ? sale->left : sale->all;
    sale->stock_master = stock_master(worker->stock);
    if (sale->span != NULL ? span_share(sale) : sale->left >= sale->quantity)
        return section_point(sale, "after_read", sale->reenter ? STEP_REENTER : STEP_WORK);
    if (seen >= sale->quantity) {
        const size_t count =
            segments_choose(stocks, segments->count, sale->segment, sale->quantity, chosen);
        sale->next_span = span_new(chosen, count);
        if (sale->next_span != NULL)
            return STEP_ELSEWHERE;
        section_end(sale, SALE_INTERNAL, "out of memory");
        return STEP_LEAVE;
    }
    sale->left = seen;
    section_end(sale, seen <= 0 ? SALE_SOLD_OUT : SALE_INSUFFICIENT_STOCK, "");
    return STEP_LEAVE;
}

enum sale_step selling_read(struct sale_worker *worker, struct sale *sale)
{
    int64_t stock;
    struct section_fence room;
    if (segments_several(worker->env))
        return read_segments(worker, sale);
    if (ends_by_record(worker, sale))
        return STEP_LEAVE;
    if (!reads_as_it_writes(worker->env) &&
        (!section_read(worker, sale, section_fence(worker->env, sale, &room), &stock) ||
         !selling_is_enough(worker->env, sale, stock)))
        return STEP_LEAVE;
    sale->stock_master = reads_as_it_writes(worker->env) ? 0 : stock_master(worker->stock);
    return section_point(sale, "after_read", sale->reenter ? STEP_REENTER : STEP_WORK);
}

enum sale_step selling_decide(struct sale_worker *worker, struct sale *sale)
{
    if (section_end_by_outage(worker->env, sale, section_away_stock(worker->env)) ||
        !section_may_go_on(worker->env, sale))
        return STEP_LEAVE;
    return section_point(sale, "before_write", STEP_WRITE);
}

enum sale_step selling_write(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    struct outcome outcome;
    const enum stock_status written = write_sale(worker, sale, &outcome);
    const int64_t after = outcome.after;
    const bool answered = written == STOCK_OK || written == STOCK_INSUFFICIENT;
    if (written == STOCK_LOST) {
        end_unknown(worker, sale);
        return STEP_LEAVE;
    }
    if (written == STOCK_CHANGED || (written == STOCK_INSUFFICIENT && may_be_overtaken(env)))
        return selling_try_again(worker, sale);
    if (written == STOCK_OK && outcome.kept) {
        selling_replay(worker, sale, &outcome.record);
    } else if (!answered) {
        section_end_by_stock(worker, sale, written);
    } else if (reads_as_it_writes(env) && !selling_is_enough(env, sale, after + sale->quantity)) {
        sale->kept = sale->key[0] != '\0' && sale->result == SALE_SOLD_OUT;
    } else if (written == STOCK_INSUFFICIENT) {
        end_insufficient_stock(sale, after + sale->quantity);
    } else if (is_not_there(sale, &env->mode->now, after)) {
        put_back(worker, sale, after);
    } else if (!is_confirmed(worker, sale, &outcome)) {
        end_unknown(worker, sale);
    } else {
        outage_hint(env->outage, ROLE_STOCK, OUTAGE_THERE);
        selling_sold(env, sale, after);
        return section_point(sale, "after_write", STEP_LEAVE);
    }
    return STEP_LEAVE;
}

/* ---- upgrade=1 and reenter=1 ----------------------------------------------------------------- */

bool selling_read_shared(struct sale_worker *worker, struct sale *sale)
{
    int64_t stock;
    return !ends_by_record(worker, sale) && section_read(worker, sale, NULL, &stock) &&
           selling_is_enough(worker->env, sale, stock);
}

/* With tokens: the second acquire drew a newer token, and the sale has read nothing under it. So it
 * reads again. The stock must be unchanged, and the sale's first hold must still be valid. */
static bool is_unchanged(struct sale_worker *worker, struct sale *sale)
{
    int64_t stock;
    struct section_fence room;
    const struct stock_fence *fence = section_fence(worker->env, sale, &room);
    if (fence == NULL)
        return true;
    if (!section_read(worker, sale, fence, &stock))
        return false;
    bool unchanged = stock == sale->left && dlock_valid(sale->hold);
    if (!unchanged)
        section_end(sale, SALE_LOCK_LOST,
                    "the lock was lost, or the stock changed, during the re-entrant acquire");
    return unchanged;
}

enum sale_step selling_reentered(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    const char *error = sale->answer.error;
    dlock_status status = sale->answer.status;
    RECORD(env, sale, "reacquire", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
           dlock_status_name(status));
    if (status == DLOCK_OK) {
        bool same = epoch_is_same(sale, sale->answer.hold);
        sale->token = dlock_token(sale->answer.hold);
        status = dlock_release(sale->answer.hold, NULL);
        error = dlock_error();
        if (status == DLOCK_OK)
            lock_meter_release();
        if (!same) /* another server has the lock by now */
            status = DLOCK_LOST;
    }
    if (status == DLOCK_OK)
        return is_unchanged(worker, sale) ? STEP_WORK : STEP_LEAVE;
    if (status == DLOCK_LOST)
        section_end(sale, SALE_LOCK_LOST, "the lock was lost during the re-entrant acquire");
    else
        section_end_by_lock(env, sale, status, error);
    return STEP_LEAVE;
}
