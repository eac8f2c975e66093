/* SPDX-License-Identifier: Apache-2.0
 *
 * See sale.h. A step does its part and answers which one is next; it may say what is to be waited
 * for ahead of that (sale->waits_for). Only sale_suspend begins a wait: from there on the sale may
 * be another thread's.
 */
#include "sale.h"

#include "../lock/clock.h"
#include "log.h"
#include "metrics.h"
#include "restock.h"
#include "sale_record.h"
#include "selling.h"
#include "suspend.h"

#include <string.h>

bool sale_is_item(const char *item)
{
    size_t size = strspn(item, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return size > 0 && size <= ITEM_MAX && item[size] == '\0';
}

bool sale_asks_lock_server(const struct setting *setting)
{
    return setting->rung->distributed;
}

/* ---- Entering -------------------------------------------------------------------------------- */

/* False: there is no such item. The record lies in the stock's slot. */
static bool find_keys(const struct sale_env *env, struct sale *sale)
{
    bool article = env->config->keys == KEYS_ARTICLE;
    snprintf(sale->stock_key, KEY_MAX, article ? "inventory" : "inventory:{%s}", sale->item);
    snprintf(sale->lock_name, KEY_MAX, article ? "redisLock" : "lock:{%s}", sale->item);
    snprintf(sale->record_key, RECORD_KEY_MAX, article ? "{%s}:key:%s" : "%s:key:%s",
             sale->stock_key, sale->key);
    if (!article || strcmp(sale->item, "phone") == 0)
        return true;
    section_end(sale, SALE_UNKNOWN_ITEM, "with --keys article there is one item: phone");
    return false;
}

/* A key that would not be kept is refused: its buyer relies on it. */
static void check_key(const struct sale_env *env, struct sale *sale)
{
    const int write = env->mode->now.write;
    char detail[sizeof sale->detail], names[WRITE_NAMES_MAX];
    if (sale->key[0] == '\0' || write_keeps_keys(write))
        return;
    write_keeper_names(names);
    snprintf(
        detail, sizeof detail,
        "the way to write \"%s\" cannot keep the answer in the step that sells; these ways do: "
        "%.80s (--write, or PUT /lock)",
        write_ways[write].name, names);
    section_end(sale, SALE_KEY_NOT_KEPT, detail);
}

/* What comes while a switch is under way goes by the setting of before: a read needs to wait only
 * where that has a lock to wait for. */
static enum sale_step enter(const struct sale_env *env, struct sale *sale)
{
    const bool reads = sale->purpose == SALE_READ;
    if (!mode_enter(env->mode))
        return reads && !mode_copy(env->mode).guard_reads ? STEP_ASIDE : STEP_ENTER;
    if (reads && !env->mode->now.guard_reads) {
        mode_leave(env->mode);
        return STEP_ASIDE;
    }
    if (find_keys(env, sale))
        check_key(env, sale);
    sale_record_invoke(env, sale);
    return STEP_BEGIN;
}

static enum sale_step enter_late(struct seller *seller, struct sale *sale)
{
    enum sale_step next = enter(seller->env, sale);
    if (next == STEP_ENTER)
        sale->waits_for = WAIT_SWITCH;
    return next;
}

static enum redis_role away_stock(const struct sale_env *env)
{
    return outage_lasts(env->outage, REDIS_STOCK) ? REDIS_STOCK : REDIS_ROLES;
}

static enum sale_step read_aside(struct seller *seller, struct sale *sale)
{
    if (find_keys(seller->env, sale) && !section_end_by_outage(sale, away_stock(seller->env)))
        section_read(seller, sale, NULL, &sale->left);
    return STEP_OVER;
}

/* ---- To the lock ----------------------------------------------------------------------------- */

/* The lock of the sale's item under the rung of now: mostly the one of the sale before. */
static bool open_lock(const struct sale_env *env, struct sale *sale)
{
    const struct dlock_rung *rung = env->mode->now.rung;
    struct till *till = sale->till;
    if (till->lock != NULL && strcmp(dlock_rung_of(till->lock)->name, rung->name) == 0 &&
        strcmp(dlock_name(till->lock), sale->lock_name) == 0)
        return true;
    dlock_close(till->lock);
    till->lock = NULL;
    if (dlock_open(env->client, rung->name, sale->lock_name, &till->lock) == DLOCK_OK)
        return true;
    section_end(sale, SALE_INTERNAL, dlock_error());
    return false;
}

static bool take_till(const struct sale_env *env, struct sale *sale)
{
    sale->till = till_take(env->tills);
    if (sale->till == NULL) {
        section_end(sale, SALE_INTERNAL, "out of memory");
        return false;
    }
    struct bearer *bearer = sale->till->bearer;
    bearer->purpose = sale->purpose;
    bearer->thread = sale->till->number;
    snprintf(bearer->request, sizeof bearer->request, "%s", sale->request);
    snprintf(bearer->item, sizeof bearer->item, "%s", sale->item);
    sale_record_serve(bearer);
    return true;
}

/* A reader that finds no read lock waits for other readers, too. */
static enum dlock_mode first_mode(const struct sale_env *env, const struct sale *sale)
{
    const struct setting *now = &env->mode->now;
    bool reads = now->guard_reads && (sale->purpose == SALE_READ || sale->look == 1);
    return reads && now->rung->shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
}

/* The server that is away, without which nothing can be sold; REDIS_ROLES: none is. */
static enum redis_role away(const struct sale_env *env)
{
    bool lasts = sale_asks_lock_server(&env->mode->now) && outage_lasts(env->outage, REDIS_LOCK);
    return lasts ? REDIS_LOCK : away_stock(env);
}

static enum sale_step begin(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    const int64_t begins_ns = mono_ns();
    sale->deadline_ns = sale->arrived_ns + env->config->wait_ms * NS_PER_MS;
    sale->mode = first_mode(env, sale);
    enum redis_role needs = sale_asks_lock_server(&env->mode->now) ? REDIS_LOCK : REDIS_STOCK;
    sale->patience = outage_patience(env->outage, needs);
    if (!take_till(env, sale) || section_end_by_outage(sale, away(env)))
        return STEP_END;
    if (sale->result != SALE_SOLD) /* enter() has found something */
        return STEP_END;
    if (sale->deadline_ns - begins_ns < NS_PER_MS) {
        section_end(sale, SALE_DEADLINE, "it waited in the queue for longer than --wait-ms");
        return STEP_END;
    }
    return open_lock(env, sale) ? STEP_ASK : STEP_END;
}

static enum sale_step ask(struct seller *seller, struct sale *sale)
{
    (void)seller;
    sale->acquire_ns = mono_ns();
    sale->waits_for = WAIT_LOCK;
    return STEP_ANSWERED;
}

static void let_go(struct seller *seller, struct sale *sale, dlock_hold *hold)
{
    /* What was written is written, whatever becomes of the lock. */
    dlock_status released = sale->abandons ? dlock_abandon(hold) : dlock_release(hold, NULL);
    const char *status =
        sale->abandons && released == DLOCK_OK ? "ABANDONED" : dlock_status_name(released);
    metrics_held(mono_ns() - sale->granted_ns);
    if (sale->purpose != SALE_RESTOCK)
        RECORD(seller->env, sale, "release", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
               status);
    if (sale->abandons)
        log_event(LOG_WARNING, "abandoned",
                  "%s is left to expire: the reply to a write under it was lost, and the write may "
                  "still come: %s",
                  sale->lock_name, stock_error(seller->stock));
    else if (released != DLOCK_OK)
        log_event(LOG_WARNING, "release", "%s: %s", sale->lock_name, dlock_error());
}

static void record_exit(const struct sale_env *env, const struct sale *sale)
{
    RECORD(env, sale, "exit", ",\"hold\":\"%s\"", sale->hold_id);
}

/* The write lock's answer is there: the read lock is of no use any more. */
static void end_look(struct seller *seller, struct sale *sale)
{
    RECORD(seller->env, sale, "again", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
           dlock_status_name(sale->answer.status));
    record_exit(seller->env, sale);
    let_go(seller, sale, sale->looked);
    sale->looked = NULL;
}

static enum sale_step answered(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    const bool looks = sale->purpose == SALE_SELL && sale->mode == DLOCK_SHARED;
    if (sale->looked != NULL) {
        end_look(seller, sale);
        if (sale->answer.status == DLOCK_UPGRADE) /* it reads again, under the write lock */
            return STEP_ASK;
    }
    sale->hold = sale->answer.hold;
    if (sale->hold == NULL) {
        section_end_by_lock(env, sale, sale->answer.status, sale->answer.error);
        return STEP_END;
    }
    sale->granted_ns = mono_ns();
    sale->token = dlock_token(sale->hold);
    metrics_acquired(sale->granted_ns - sale->acquire_ns);
    sale_record_enter(env, sale);
    if (looks)
        return selling_look(seller, sale) ? section_point(sale, "looked", STEP_LOOKED) : STEP_LEAVE;
    return sale->purpose == SALE_RESTOCK ? STEP_SECTION
                                         : section_point(sale, "entered", STEP_SECTION);
}

static enum sale_step looked(struct seller *seller, struct sale *sale)
{
    (void)seller;
    sale->looked = sale->hold;
    sale->hold = NULL;
    sale->mode = DLOCK_EXCLUSIVE;
    return STEP_ASK;
}

/* ---- The critical section -------------------------------------------------------------------- */

static void read_alone(struct seller *seller, struct sale *sale)
{
    if (section_may_go_on(seller->env, sale) && section_read(seller, sale, NULL, &sale->left))
        sale_record_read(seller->env, sale, sale->left);
}

static enum sale_step section(struct seller *seller, struct sale *sale)
{
    if (section_end_by_outage(sale, away_stock(seller->env)))
        return STEP_LEAVE;
    if (sale->purpose == SALE_READ)
        read_alone(seller, sale);
    else if (sale->driver->is_hung_up(sale))
        section_end(sale, SALE_HUNG_UP, "the client has closed the connection");
    else if (sale->purpose == SALE_RESTOCK)
        restock(seller, sale);
    else
        return selling_read(seller, sale);
    return STEP_LEAVE;
}

static enum sale_step pack(struct seller *seller, struct sale *sale)
{
    (void)seller;
    sale->waits_for = WAIT_LOCK;
    return STEP_PACKED;
}

static enum sale_step work(struct seller *seller, struct sale *sale)
{
    const int64_t work_ms = seller->env->config->work_ms;
    if (work_ms > 0) {
        sale->waits_for = WAIT_TIME;
        sale->until_ns = mono_ns() + work_ms * NS_PER_MS;
    }
    return STEP_DECIDE;
}

static enum sale_step leave(struct seller *seller, struct sale *sale)
{
    if (sale->purpose != SALE_RESTOCK)
        record_exit(seller->env, sale);
    return STEP_END;
}

static enum sale_step forget(struct seller *seller, struct sale *sale)
{
    enum sale_step next = leave(seller, sale);
    if (till_forget(sale->till, sale->hold))
        sale->hold = NULL;
    return next;
}

static enum sale_step finish(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    if (sale->hold != NULL)
        let_go(seller, sale, sale->hold);
    if (!sale->replayed && (sale->result == SALE_SOLD || sale->result == SALE_SOLD_OUT ||
                            sale->result == SALE_TOO_FEW))
        metrics_stock(sale->item, sale->left);
    sale_record_end(env, sale);
    outage_give_back(sale->patience);
    if (sale->till != NULL)
        till_give(env->tills, sale->till);
    mode_leave(env->mode);
    return STEP_OVER;
}

/* ---- All of it ------------------------------------------------------------------------------- */

void sale_arrive(const struct sale_env *env, struct sale *sale)
{
    sale->step = enter(env, sale);
}

void sale_refuse(const struct sale_env *env, struct sale *sale, enum sale_result result,
                 const char *detail)
{
    if (sale->step == STEP_ENTER)
        sale->step = enter(env, sale);
    section_end(sale, result, detail);
    sale_record_end(env, sale);
    if (sale->step > STEP_ASIDE)
        mode_leave(env->mode);
    sale->step = STEP_OVER;
}

static enum sale_step (*const steps[])(struct seller *seller, struct sale *sale) = {
    [STEP_ENTER] = enter_late,
    [STEP_ASIDE] = read_aside,
    [STEP_BEGIN] = begin,
    [STEP_ASK] = ask,
    [STEP_ANSWERED] = answered,
    [STEP_LOOKED] = looked,
    [STEP_SECTION] = section,
    [STEP_PACK] = pack,
    [STEP_PACKED] = selling_packed,
    [STEP_WORK] = work,
    [STEP_DECIDE] = selling_decide,
    [STEP_WRITE] = selling_write,
    [STEP_FORGET] = forget,
    [STEP_LEAVE] = leave,
    [STEP_END] = finish,
};

enum sale_progress sale_go_on(struct seller *seller, struct sale *sale)
{
    bool suspended = false;
    sale_record_serve(sale->till != NULL ? sale->till->bearer : NULL);
    while (!suspended && sale->step != STEP_OVER) {
        sale->waits_for = WAIT_NOTHING;
        sale->step = steps[sale->step](seller, sale);
        suspended = sale_suspend(seller->env, sale);
    }
    sale_record_serve(NULL);
    return suspended ? SALE_WAITING : SALE_OVER;
}
