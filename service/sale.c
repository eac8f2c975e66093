/* SPDX-License-Identifier: Apache-2.0
 *
 * See sale.h. A step does its part and returns the next step. If the sale must wait before that
 * one, the step sets sale->waits_for. Only sale_suspend begins the wait; after that another thread
 * may run the sale.
 */
#include "sale.h"

#include "../lock/clock.h"
#include "admission.h"
#include "conflict.h"
#include "lock_history.h"
#include "lock_meter.h"
#include "log.h"
#include "metrics.h"
#include "queue.h"
#include "queue_sale.h"
#include "restock.h"
#include "sale_record.h"
#include "selling.h"
#include "span.h"
#include "suspend.h"

#include <string.h>

#define JOIN_PAUSE_MS 50 /* until the stock's server is tried again */

bool sale_is_item(const char *item)
{
    size_t size = strspn(item, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return size > 0 && size <= ITEM_MAX && item[size] == '\0';
}

/* ---- Entering -------------------------------------------------------------------------------- */

/* The record's key is in the same cluster slot as the stock's. */
void sale_name_keys(const struct config *config, struct sale *sale)
{
    const bool article = config->keys == KEYS_ARTICLE;
    snprintf(sale->item_key, KEY_MAX, article ? "inventory" : "inventory:{%s}", sale->item);
    snprintf(sale->stock_key, KEY_MAX, "%s", sale->item_key);
    snprintf(sale->lock_name, KEY_MAX, article ? "redisLock" : "lock:{%s}", sale->item);
    snprintf(sale->record_key, RECORD_KEY_MAX, article ? "{%s}:key:%s" : "%s:key:%s",
             sale->item_key, sale->key);
}

/* False: there is no such item. */
static bool find_keys(const struct sale_env *env, struct sale *sale)
{
    sale_name_keys(env->config, sale);
    if (env->config->keys != KEYS_ARTICLE || strcmp(sale->item, "phone") == 0)
        return true;
    section_end(sale, SALE_UNKNOWN_ITEM, "with --keys article there is one item: phone");
    return false;
}

/* Refuses a key if the write mode stores no answers: the buyer relies on it. */
static void check_key(const struct sale_env *env, struct sale *sale)
{
    const int write = env->mode->now.write;
    char detail[sizeof sale->detail], names[WRITE_NAMES_MAX];
    if (sale->key[0] == '\0' || sale->processes)
        return;
    if (segments_several(env))
        section_end(sale, SALE_KEY_UNSUPPORTED,
                    "the stock lies over several segments, and a stored answer is that of one; "
                    "sales with a key need 1 segment (--segments, or PUT /lock)");
    if (segments_several(env) || write_keeps_keys(write))
        return;
    write_keeper_names(names);
    snprintf(detail, sizeof detail,
             "the write mode \"%s\" cannot keep the answer in the step that sells; these modes do: "
             "%.80s (--write, or PUT /lock)",
             write_ways[write].name, names);
    section_end(sale, SALE_KEY_UNSUPPORTED, detail);
}

/* Its lines of the history begin. The setting must not change until it has ended. */
static void sale_invoke(const struct sale_env *env, struct sale *sale)
{
    if (find_keys(env, sale))
        check_key(env, sale);
    if (!sale->processes)
        sale_record_invoke(env, sale);
    else if (env->mode->now.on_conflict != CONFLICT_QUEUE)
        queue_sale_pass(sale);
}

/* During a switch the old setting says whether a read needs the lock. A read that needs none does
 * not wait for the end of the switch. */
static enum sale_step sale_enter(const struct sale_env *env, struct sale *sale)
{
    const bool reads = sale->purpose == SALE_READ;
    if (!(sale->processes ? mode_enter_working(env->mode) : mode_enter(env->mode)))
        return reads && !mode_copy(env->mode).guard_reads ? STEP_ASIDE : STEP_ENTER;
    if (reads && !env->mode->now.guard_reads) {
        mode_leave(env->mode);
        return STEP_ASIDE;
    }
    sale_invoke(env, sale);
    return STEP_BEGIN;
}

static enum sale_step enter_late(struct sale_worker *worker, struct sale *sale)
{
    enum sale_step next = sale_enter(worker->env, sale);
    if (next == STEP_ENTER)
        sale->waits_for = WAIT_SWITCH;
    return next;
}

/* It is not in flight, so the setting may change meanwhile: it reads under a copy. */
static enum sale_step read_aside(struct sale_worker *worker, struct sale *sale)
{
    struct mode mode = {.now = mode_copy(worker->env->mode)};
    struct sale_env env = *worker->env;
    struct sale_worker aside = {.env = &env, .stock = worker->stock};
    env.mode = &mode;
    if (find_keys(&env, sale) && !section_end_by_outage(&env, sale, section_away_stock(&env)))
        section_read(&aside, sale, NULL, &sale->left);
    return STEP_OVER;
}

/* ---- Acquiring the lock ---------------------------------------------------------------------- */

/* Opens the lock of the sale's item on the current rung. The lock_owner keeps the lock of its
 * previous sale, because the next sale mostly needs the same one. */
static bool sale_open_lock(const struct sale_env *env, struct sale *sale)
{
    const struct dlock_rung *rung = env->mode->now.rung;
    struct lock_owner *lock_owner = sale->lock_owner;
    if (lock_owner->lock != NULL &&
        strcmp(dlock_rung_of(lock_owner->lock)->name, rung->name) == 0 &&
        strcmp(dlock_name(lock_owner->lock), sale->lock_name) == 0)
        return true;
    dlock_close(lock_owner->lock);
    lock_owner->lock = NULL;
    if (dlock_open(sale_locks(env)->client, rung->name, sale->lock_name, &lock_owner->lock) ==
        DLOCK_OK)
        return true;
    section_end(sale, SALE_INTERNAL, dlock_error());
    return false;
}

/* Opens what the sale needs at first: its segment's lock, or all segments' for a restock and for a
 * guarded read. Sales of other owners begin at other segments. */
static bool sale_open_locks(const struct sale_env *env, struct sale *sale)
{
    const int count = env->mode->now.segments.count;
    if (!segments_several(env))
        return sale_open_lock(env, sale);
    if (sale->purpose != SALE_SELL) {
        sale->span = span_first(sale, (size_t)count);
        return sale->span != NULL && span_open(env, sale);
    }
    segments_turn(env, sale, (int)(sale->lock_owner->number % (unsigned)count) + 1);
    return sale_open_lock(env, sale);
}

static bool take_lock_owner(const struct sale_env *env, struct sale *sale)
{
    sale->lock_owner = lock_owner_take(env->lock_owner_pool);
    if (sale->lock_owner == NULL) {
        section_end(sale, SALE_INTERNAL, "out of memory");
        return false;
    }
    struct holder *holder = sale->lock_owner->holder;
    holder->purpose = sale->purpose;
    holder->thread = sale->lock_owner->number;
    snprintf(holder->request, sizeof holder->request, "%s", sale->request);
    snprintf(holder->item, sizeof holder->item, "%s", sale->item);
    lock_history_serve(holder);
    return true;
}

/* If the rung has no read lock, guarded reads take the exclusive one, and wait for each other. */
static enum dlock_mode first_mode(const struct sale_env *env, const struct sale *sale)
{
    const struct setting *now = &env->mode->now;
    const bool looks = sale->upgrade == 1 && !segments_several(env);
    const bool reads = now->guard_reads && (sale->purpose == SALE_READ || looks);
    return reads && now->rung->shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
}

/* Which server is away that a sale needs; ROLE_COUNT: none. */
static enum server_role sale_server_away(const struct sale_env *env, const struct sale *sale)
{
    const enum server_role role = sale_locks(env)->role;
    if (!conflict_needs_lock(env, sale))
        return section_away_stock(env);
    bool lasts = env->mode->now.rung->distributed && outage_lasts(env->outage, role);
    return lasts ? role : section_away_stock(env);
}

static enum sale_step sale_begin(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    const int64_t begins_ns = mono_ns();
    const bool locks = conflict_needs_lock(env, sale);
    sale->deadline_ns = sale->arrived_ns + env->config->wait_ms * NS_PER_MS;
    if (sale->processes && !sale->expires)
        sale->deadline_ns =
            min_ns(sale->deadline_ns, sale->arrived_ns + sale->entry->left_ms * NS_PER_MS);
    sale->mode = first_mode(env, sale);
    enum server_role needs =
        env->mode->now.rung->distributed && locks ? sale_locks(env)->role : ROLE_STOCK;
    sale->patience = outage_patience(env->outage, needs);
    if (!take_lock_owner(env, sale) ||
        section_end_by_outage(env, sale, sale_server_away(env, sale)))
        return STEP_END;
    if (sale->passed || sale->result != SALE_SOLD) /* sale_enter has refused it */
        return STEP_END;
    if (sale->deadline_ns - begins_ns < NS_PER_MS) {
        section_end(sale, SALE_DEADLINE, "it waited in the queue for longer than --wait-ms");
        return STEP_END;
    }
    return !locks || sale_open_locks(env, sale) ? STEP_JOIN : STEP_END;
}

/* The stock was not reached. If it has the same server as the lock, both are away. */
static void end_unjoined(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    section_end_by_stock(worker, sale, STOCK_UNAVAILABLE);
    if (conflict_needs_lock(env, sale) && env->mode->now.rung->distributed &&
        !sale_locks(env)->apart)
        sale->result = SALE_LOCK_UNAVAILABLE;
}

/* What is in a queue was admitted before. */
static enum sale_step sale_joined(struct sale_worker *worker, struct sale *sale)
{
    if (sale->expires)
        return STEP_EXPIRE;
    if (conflict_needs_lock(worker->env, sale) && !epoch_begin(worker, sale))
        return STEP_END;
    return sale->processes ? STEP_ASK : STEP_ADMIT;
}

/* A sale that had the lock while it waits for a connection would keep the lock from others, which
 * have one. Without a connection it waits here, as it would wait for a lock's server. An attempt
 * may take --redis-timeout-ms, so none begins after the waits have ended. */
static enum sale_step sale_join(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    const bool has_waited = sale->until_ns != 0;
    if (!(has_waited && outage_waits_ended(env->outage)) &&
        stock_connect(worker->stock) == STOCK_OK)
        return sale_joined(worker, sale);
    outage_hint(env->outage, ROLE_STOCK, OUTAGE_LOOK);
    sale->until_ns = min_ns(mono_ns() + JOIN_PAUSE_MS * NS_PER_MS, sale->deadline_ns);
    if (section_end_by_outage(env, sale, sale_server_away(env, sale)))
        return STEP_END;
    if (outage_waits_ended(env->outage))
        section_end(sale, SALE_DRAINING,
                    "the instance began to shut down while the sale waited for the stock's server");
    else if (stock_refused(worker->stock) || mono_ns() >= sale->deadline_ns)
        end_unjoined(worker, sale);
    else
        sale->waits_for = WAIT_TIME;
    return sale->waits_for == WAIT_TIME ? STEP_JOIN : STEP_END;
}

static enum sale_step sale_admit(struct sale_worker *worker, struct sale *sale)
{
    if (!admission_ask(worker, sale))
        return STEP_END;
    return conflict_needs_lock(worker->env, sale) ? STEP_ASK : STEP_ACCEPT;
}

static enum sale_step sale_ask(struct sale_worker *worker, struct sale *sale)
{
    (void)worker;
    sale->acquire_ns = mono_ns();
    sale->waits_for = WAIT_LOCK;
    return STEP_ANSWERED;
}

static void sale_let_go(struct sale_worker *worker, struct sale *sale, dlock_hold *hold)
{
    /* A failed release does not undo the write: the result stays. */
    dlock_status released = sale->abandons ? dlock_abandon(hold) : dlock_release(hold, NULL);
    const char *status =
        sale->abandons && released == DLOCK_OK ? "ABANDONED" : dlock_status_name(released);
    lock_meter_held(mono_ns() - sale->granted_ns);
    if (released == DLOCK_OK && !sale->abandons)
        lock_meter_release();
    if (sale->purpose != SALE_RESTOCK)
        RECORD(worker->env, sale, "release", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
               status);
    if (sale->abandons)
        log_event(LOG_WARNING, "abandoned",
                  "%s is left to expire: the reply to a write under it was lost, and the write may "
                  "still arrive: %s",
                  sale->lock_name, stock_error(worker->stock));
    else if (released != DLOCK_OK)
        log_event(LOG_WARNING, "release", "%s: %s", sale->lock_name, dlock_error());
}

/* In reverse order. */
static void let_go_all(struct sale_worker *worker, struct sale *sale)
{
    sale_worker_rest(worker); /* the lock's server may hang */
    for (size_t i = span_count(sale); i-- > 0;) {
        span_turn(worker->env, sale, i);
        if (sale->hold != NULL)
            sale_let_go(worker, sale, sale->hold);
        sale->hold = NULL;
        if (sale->span != NULL)
            sale->span->holds[i] = NULL;
    }
}

static void record_exit(const struct sale_env *env, struct sale *sale)
{
    for (size_t i = span_count(sale); i-- > 0 && sale->purpose != SALE_RESTOCK;) {
        span_turn(env, sale, i);
        RECORD(env, sale, "exit", ",\"hold\":\"%s\"", sale->hold_id);
    }
}

/* The acquire of the write lock was answered, so the read lock is no longer needed. */
static void sale_end_look(struct sale_worker *worker, struct sale *sale)
{
    RECORD(worker->env, sale, "reacquire", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
           dlock_status_name(sale->answer.status));
    record_exit(worker->env, sale);
    sale_let_go(worker, sale, sale->read_hold);
    sale->read_hold = NULL;
}

static enum sale_step sale_answered(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    const bool looks = sale->purpose == SALE_SELL && sale->mode == DLOCK_SHARED;
    if (sale->read_hold != NULL) {
        sale_end_look(worker, sale);
        /* the read lock is released by now; under the write lock the sale reads again */
        if (sale->answer.status == DLOCK_UPGRADE)
            return STEP_ASK;
    }
    sale->hold = sale->answer.hold;
    if (sale->hold == NULL) {
        section_end_by_lock(env, sale, sale->answer.status, sale->answer.error);
        return STEP_END;
    }
    sale->granted_ns = mono_ns();
    sale->token = dlock_token(sale->hold);
    lock_meter_acquired(sale->granted_ns - sale->acquire_ns);
    for (size_t i = span_count(sale); i-- > 0;) {
        span_turn(env, sale, i);
        lock_servers_note(env->locks[sale_locks(env)->role], sale->hold);
        sale_record_enter(env, sale);
    }
    if (looks)
        return selling_read_shared(worker, sale)
                   ? section_point(sale, "before_upgrade", STEP_UPGRADE)
                   : STEP_LEAVE;
    return sale->purpose == SALE_RESTOCK ? STEP_SECTION
                                         : section_point(sale, "entered", STEP_SECTION);
}

static enum sale_step sale_acquire_write(struct sale_worker *worker, struct sale *sale)
{
    (void)worker;
    sale->read_hold = sale->hold;
    sale->hold = NULL;
    sale->mode = DLOCK_EXCLUSIVE;
    return STEP_ASK;
}

/* ---- The critical section -------------------------------------------------------------------- */

static void read_alone(struct sale_worker *worker, struct sale *sale)
{
    int64_t stocks[SEGMENTS_MAX];
    if (!section_may_go_on(worker->env, sale))
        return;
    if (!segments_several(worker->env)) {
        if (section_read(worker, sale, NULL, &sale->left))
            sale_record_read(worker->env, sale, sale->left);
    } else if (segments_read(worker, sale, stocks)) {
        sale->left = segments_sum(worker->env, stocks);
        sale_record_segments(worker->env, sale, stocks);
    }
}

static enum sale_step sale_in_section(struct sale_worker *worker, struct sale *sale)
{
    if (section_end_by_outage(worker->env, sale, section_away_stock(worker->env)))
        return STEP_LEAVE;
    if (sale->purpose == SALE_READ)
        read_alone(worker, sale);
    else if (sale->driver->is_client_closed(sale))
        section_end(sale, SALE_CLIENT_CLOSED, "the client has closed the connection");
    else if (!epoch_granted(worker, sale))
        return STEP_LEAVE;
    else if (sale->purpose == SALE_RESTOCK)
        return restock(worker, sale);
    else
        return sale->processes ? queue_sale_take(worker, sale) : selling_read(worker, sale);
    return STEP_LEAVE;
}

static enum sale_step sale_write(struct sale_worker *worker, struct sale *sale)
{
    return sale->processes ? queue_sale_sell(worker, sale) : selling_write(worker, sale);
}

static enum sale_step sale_reenter(struct sale_worker *worker, struct sale *sale)
{
    (void)worker;
    sale->waits_for = WAIT_LOCK;
    return STEP_REENTERED;
}

static enum sale_step sale_work(struct sale_worker *worker, struct sale *sale)
{
    const int64_t work_ms = worker->env->config->work_ms;
    if (work_ms > 0) {
        sale->waits_for = WAIT_TIME;
        sale->until_ns = mono_ns() + work_ms * NS_PER_MS;
    }
    return STEP_DECIDE;
}

static enum sale_step sale_leave(struct sale_worker *worker, struct sale *sale)
{
    record_exit(worker->env, sale);
    return STEP_END;
}

/* Too few units are in its segments, or a restock needs the locks of more of them. */
static enum sale_step sale_elsewhere(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    struct span *next = sale->next_span;
    const bool one = next->count == 1;
    record_exit(env, sale);
    let_go_all(worker, sale);
    span_free(sale->span);
    sale->span = one ? NULL : next;
    sale->next_span = NULL;
    if (one) {
        segments_turn(env, sale, next->parts[0].segment);
        span_free(next);
    }
    if (mono_ns() >= sale->deadline_ns)
        section_end(sale, SALE_DEADLINE,
                    sale->purpose == SALE_SELL
                        ? "its time (--wait-ms) was over while it tried other segments"
                        : "its time (--wait-ms) was over before it had the locks of all segments");
    else if (one ? sale_open_lock(env, sale) : span_open(env, sale))
        return sale->purpose == SALE_RESTOCK ? STEP_ASK
                                             : section_point(sale, "between_segments", STEP_ASK);
    return STEP_END;
}

static enum sale_step sale_forget(struct sale_worker *worker, struct sale *sale)
{
    enum sale_step next = sale_leave(worker, sale);
    if (sale->span != NULL)
        span_forget(worker->env, sale);
    else if (lock_owner_forget(sale->lock_owner, sale->hold))
        sale->hold = NULL;
    return next;
}

static enum sale_step sale_finish(struct sale_worker *worker, struct sale *sale)
{
    const struct sale_env *env = worker->env;
    /* before the release: after it, the next sale's stock would be overwritten by this one. A sale
     * of a segment does not know what the others have. */
    const bool knows = sale->segment == 0 || sale->purpose != SALE_SELL;
    if (!sale->replayed && knows &&
        (sale->result == SALE_SOLD || sale->result == SALE_SOLD_OUT ||
         sale->result == SALE_INSUFFICIENT_STOCK))
        metrics_stock(sale->item, sale->left);
    let_go_all(worker, sale);
    span_close(sale->span);
    sale_record_end(env, sale);
    outage_give_back(sale->patience);
    if (sale->lock_owner != NULL)
        lock_owner_give(env->lock_owner_pool, sale->lock_owner);
    mode_leave(env->mode);
    return STEP_OVER;
}

/* ---- Running the steps ----------------------------------------------------------------------- */

void sale_arrive(const struct sale_env *env, struct sale *sale)
{
    sale->step = sale_enter(env, sale);
}

/* The sale has its result. */
static void sale_end_early(const struct sale_env *env, struct sale *sale)
{
    sale_record_end(env, sale);
    if (sale->step > STEP_ASIDE)
        mode_leave(env->mode);
    sale->step = STEP_OVER;
}

/* A switch keeps the sale out. It is recorded under the setting that is in force at this moment. */
static void sale_refuse_outside(const struct sale_env *env, struct sale *sale,
                                enum sale_result result, const char *detail)
{
    mode_hold(env->mode);
    sale_invoke(env, sale);
    sale->step = STEP_BEGIN;
    section_end(sale, result, detail);
    sale_record_end(env, sale);
    mode_let_go(env->mode);
    sale->step = STEP_OVER;
}

void sale_refuse(const struct sale_env *env, struct sale *sale, enum sale_result result,
                 const char *detail)
{
    if (sale->step == STEP_ENTER)
        sale->step = sale_enter(env, sale);
    if (sale->step == STEP_ENTER) {
        sale_refuse_outside(env, sale, result, detail);
        return;
    }
    section_end(sale, result, detail);
    sale_end_early(env, sale);
}

bool sale_refuse_by_outage(const struct sale_env *env, struct sale *sale)
{
    if (sale->step != STEP_BEGIN || !section_end_by_outage(env, sale, sale_server_away(env, sale)))
        return false;
    sale_end_early(env, sale);
    return true;
}

static enum sale_step (*const steps[])(struct sale_worker *worker, struct sale *sale) = {
    [STEP_ENTER] = enter_late,         [STEP_ASIDE] = read_aside,
    [STEP_BEGIN] = sale_begin,         [STEP_JOIN] = sale_join,
    [STEP_ADMIT] = sale_admit,         [STEP_ACCEPT] = queue_sale_accept,
    [STEP_EXPIRE] = queue_sale_expire, [STEP_ASK] = sale_ask,
    [STEP_ANSWERED] = sale_answered,   [STEP_UPGRADE] = sale_acquire_write,
    [STEP_SECTION] = sale_in_section,  [STEP_TAKEN] = queue_sale_taken,
    [STEP_REENTER] = sale_reenter,     [STEP_REENTERED] = selling_reentered,
    [STEP_WORK] = sale_work,           [STEP_DECIDE] = selling_decide,
    [STEP_WRITE] = sale_write,         [STEP_ACKNOWLEDGE] = queue_sale_acknowledge,
    [STEP_FORGET] = sale_forget,       [STEP_ELSEWHERE] = sale_elsewhere,
    [STEP_LEAVE] = sale_leave,         [STEP_END] = sale_finish,
};

enum sale_progress sale_go_on(struct sale_worker *worker, struct sale *sale)
{
    bool suspended = false;
    lock_history_serve(sale->lock_owner != NULL ? sale->lock_owner->holder : NULL);
    while (!suspended && sale->step != STEP_OVER) {
        sale->waits_for = WAIT_NOTHING;
        sale->step = steps[sale->step](worker, sale);
        suspended = sale_suspend(worker->env, sale);
    }
    lock_history_serve(NULL);
    return suspended ? SALE_WAITING : SALE_OVER;
}
