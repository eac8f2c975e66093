/* SPDX-License-Identifier: Apache-2.0
 *
 * See sale.h.
 */
#include "sale.h"

#include "clock.h"
#include "log.h"
#include "metrics.h"
#include "problem.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- Tills and sellers ----------------------------------------------------------------------- */

void tills_init(struct tills *tills)
{
    *tills = (struct tills){0};
    pthread_mutex_init(&tills->mutex, NULL);
}

static void till_free(struct till *till)
{
    while (till->bearer != NULL) {
        struct bearer *bearer = till->bearer;
        till->bearer = bearer->next;
        if (bearer->forgotten != NULL)
            dlock_release(bearer->forgotten, NULL);
        dlock_close(bearer->lock);
        free(bearer);
    }
    dlock_close(till->lock);
    free(till);
}

void tills_free(struct tills *tills)
{
    while (tills->free != NULL) {
        struct till *till = tills->free;
        tills->free = till->next;
        till_free(till);
    }
    pthread_mutex_destroy(&tills->mutex);
}

/* NULL when out of memory. */
static struct till *till_take(struct tills *tills)
{
    pthread_mutex_lock(&tills->mutex);
    struct till *till = tills->free;
    if (till != NULL)
        tills->free = till->next;
    unsigned number = till == NULL ? ++tills->count : 0;
    pthread_mutex_unlock(&tills->mutex);
    if (till != NULL || (till = calloc(1, sizeof *till)) == NULL)
        return till;
    till->number = number;
    till->bearer = calloc(1, sizeof *till->bearer);
    if (till->bearer != NULL)
        return till;
    free(till);
    return NULL;
}

static void till_give(struct tills *tills, struct till *till)
{
    pthread_mutex_lock(&tills->mutex);
    till->next = tills->free;
    tills->free = till;
    pthread_mutex_unlock(&tills->mutex);
}

struct seller *seller_new(const struct sale_env *env)
{
    struct seller *seller = calloc(1, sizeof *seller);
    if (seller == NULL)
        return NULL;
    *seller = (struct seller){.env = env, .stock = stock_new(env->stock_server)};
    if (seller->stock != NULL)
        return seller;
    free(seller);
    return NULL;
}

void seller_free(struct seller *seller)
{
    stock_free(seller->stock);
    free(seller);
}

bool sale_is_item(const char *item)
{
    size_t size = strspn(item, "abcdefghijklmnopqrstuvwxyz0123456789_-");
    return size > 0 && size <= ITEM_MAX && item[size] == '\0';
}

/* ---- Records --------------------------------------------------------------------------------- */

static struct history_request record_of(const struct sale_env *env, const struct sale *sale)
{
    return (struct history_request){.thread = sale->till != NULL ? sale->till->number : 0,
                                    .request = sale->request,
                                    .item = sale->item,
                                    .rung = env->mode->now.rung->name,
                                    .lock = sale->lock_name};
}

#define RECORD(env, sale, event, ...)                                                              \
    do {                                                                                           \
        if ((env)->history != NULL) {                                                              \
            struct history_request record = record_of(env, sale);                                  \
            history_event((env)->history, &record, event, __VA_ARGS__);                            \
        }                                                                                          \
    } while (0)

static void end(struct sale *sale, enum sale_result result, const char *detail)
{
    sale->result = result;
    snprintf(sale->detail, sizeof sale->detail, "%s", detail);
}

/* How it ended, unless a `read`, `write` or `unknown` in the section said so already. restock() records its own end. */
static void record_end(const struct sale_env *env, const struct sale *sale)
{
    static const struct {
        const char *event, *reason;
        int code;
    } rows[] = {
#define PROBLEM_CODE_SOLD 200
#define X(name, event, reason) {event, reason, PROBLEM_CODE_##name},
        SALE_RESULTS(X)
#undef X
    };
    if (sale->purpose == SALE_RESTOCK)
        return;
    if (sale->purpose == SALE_READ)
        metrics_read((int)sale->result);
    else if (sale->replayed)
        metrics_replayed();
    else
        metrics_sale((int)sale->result);
    if (sale->replayed) /* replay() has recorded it */
        return;
    if (sale->accepted && sale->result == SALE_STALE_TOKEN)
        RECORD(env, sale, "refused",
               ",\"code\":%d,\"reason\":\"stale-token\",\"token\":%" PRIu64 ",\"newest\":%" PRIu64,
               PROBLEM_CODE_STALE_TOKEN, sale->token, sale->newest);
    else if (sale->accepted && rows[sale->result].reason[0] != '\0')
        RECORD(env, sale, rows[sale->result].event, ",\"code\":%d,\"reason\":\"%s\"%s",
               rows[sale->result].code, rows[sale->result].reason,
               sale->kept ? ",\"kept\":true" : "");
}

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
    end(sale, SALE_UNKNOWN_ITEM, "with --keys article there is one item: phone");
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
    snprintf(detail, sizeof detail,
             "the way to write \"%s\" cannot keep the answer in the step that sells; these ways do: "
             "%.80s (--write, or PUT /lock)",
             write_ways[write].name, names);
    end(sale, SALE_KEY_NOT_KEPT, detail);
}

void sale_accept(const struct sale_env *env, struct sale *sale)
{
    char key[2 * SALE_KEY_MAX + 4] = "";
    if (find_keys(env, sale))
        check_key(env, sale);
    sale->accepted = true;
    text_quote(key, sizeof key, sale->key);
    if (sale->key[0] != '\0')
        RECORD(env, sale, "invoke", ",\"quantity\":%" PRId64 ",\"key\":\"%s\"", sale->quantity,
               key);
    else if (sale->purpose != SALE_RESTOCK)
        RECORD(env, sale, "invoke", ",\"quantity\":%" PRId64,
               sale->purpose == SALE_READ ? 0 : sale->quantity);
}

void sale_refuse(const struct sale_env *env, struct sale *sale, enum sale_result result,
                 const char *detail)
{
    end(sale, result, detail);
    record_end(env, sale);
}

/* Whom the calling thread serves; NULL: nobody. */
static _Thread_local const struct bearer *served;

static struct history_request record_for(const struct bearer *bearer)
{
    return (struct history_request){
        .thread = bearer->thread, .request = bearer->request, .item = bearer->item};
}

void sale_on_trace(void *arg, const struct dlock_trace *trace)
{
    const int64_t sent_ns = now_ns() - trace->took_us * 1000;
    char sent[900], reply[400];
    struct history_request record;
    const struct bearer *bearer = trace->user != NULL ? trace->user : served;
    if (bearer != NULL)
        record = record_for(bearer);
    text_quote(sent, sizeof sent, trace->sent);
    text_quote(reply, sizeof reply, trace->reply);
    history_event(arg, bearer != NULL ? &record : NULL, "command",
                  ",\"sent_ns\":%" PRId64 ",\"sent\":\"%s\",\"reply\":\"%s\"", sent_ns, sent,
                  reply);
}

void sale_on_event(void *arg, const struct dlock_event *event)
{
    const struct sale_env *env = arg;
    struct history *history = env->history;
    const struct bearer *bearer = event->user;
    char reason[160];
    if (event->name == NULL) {
        outage_hint(env->outage, REDIS_LOCK,
                    event->kind == DLOCK_EVENT_CONNECTION_BACK ? OUTAGE_BACK : OUTAGE_LOST);
        if (event->kind == DLOCK_EVENT_CONNECTION_REFUSED)
            log_event(LOG_WARNING, "lock-server-refuses", "%s", event->reason);
        return;
    }
    if (event->kind == DLOCK_EVENT_LOST)
        log_event(LOG_WARNING, "lock-lost", "%s: %s", event->name, event->reason);
    else if (event->kind == DLOCK_EVENT_RENEWAL_FAILED)
        log_event(LOG_WARNING, "renewal-failed", "%s: %s", event->name, event->reason);
    if (history == NULL || event->kind == DLOCK_EVENT_RENEWAL_FAILED ||
        bearer->purpose == SALE_RESTOCK)
        return;
    struct history_request record = record_for(bearer);
    record.rung = event->rung;
    record.lock = event->name;
    if (event->kind == DLOCK_EVENT_RENEWED) {
        history_event(history, &record, "renew", ",\"hold\":\"%s#%" PRIu64 "\"", event->owner,
                      event->acquisition);
        return;
    }
    text_quote(reason, sizeof reason, event->reason);
    history_event(history, &record, "lost", ",\"hold\":\"%s#%" PRIu64 "\",\"reason\":\"%s\"",
                  event->owner, event->acquisition, reason);
}

/* ---- Begin ----------------------------------------------------------------------------------- */

/* The lock of the sale's item under the rung of now: mostly the one of the sale before. */
static bool open_lock(struct seller *seller, struct sale *sale)
{
    const struct dlock_rung *rung = seller->env->mode->now.rung;
    struct till *till = sale->till;
    if (till->lock != NULL && strcmp(dlock_rung_of(till->lock)->name, rung->name) == 0 &&
        strcmp(dlock_name(till->lock), sale->lock_name) == 0)
        return true;
    dlock_close(till->lock);
    till->lock = NULL;
    if (dlock_open(seller->env->client, rung->name, sale->lock_name, &till->lock) == DLOCK_OK)
        return true;
    end(sale, SALE_INTERNAL, dlock_error());
    return false;
}

static bool is_late(const struct sale *sale)
{
    return now_ns() >= sale->deadline_ns;
}

/* With --owner object no owner ever acquires twice. */
static uint64_t owner_of(const struct config *config, const struct till *till)
{
    static _Atomic uint64_t objects = 1000000;
    return config->owner == OWNER_OBJECT ? ++objects : till->number;
}

/* A reader that finds no read lock waits for other readers, too. */
static enum dlock_mode first_mode(const struct sale_env *env, const struct sale *sale)
{
    const struct setting *now = &env->mode->now;
    bool reads = now->guard_reads && (sale->purpose == SALE_READ || sale->look == 1);
    return reads && now->rung->shared ? DLOCK_SHARED : DLOCK_EXCLUSIVE;
}

static struct dlock_want want_of(const struct sale_env *env, const struct sale *sale, int64_t wait_ms)
{
    return (struct dlock_want){.size = sizeof(struct dlock_want),
                               .wait_ms = wait_ms,
                               .owner_id = owner_of(env->config, sale->till),
                               .cancel = sale->patience->cancel,
                               .user = sale->till->bearer,
                               .mode = sale->mode};
}

static bool take_till(struct seller *seller, struct sale *sale)
{
    sale->till = till_take(seller->env->tills);
    if (sale->till == NULL) {
        end(sale, SALE_INTERNAL, "out of memory");
        return false;
    }
    struct bearer *bearer = sale->till->bearer;
    bearer->purpose = sale->purpose;
    bearer->thread = sale->till->number;
    snprintf(bearer->request, sizeof bearer->request, "%s", sale->request);
    snprintf(bearer->item, sizeof bearer->item, "%s", sale->item);
    served = bearer;
    return true;
}

/* False: the server answers, and the sale goes on. */
static bool end_by_outage(struct sale *sale, enum redis_role role)
{
    if (role == REDIS_LOCK)
        end(sale, SALE_LOCK_UNAVAILABLE, "the lock's server is away; the instance goes on looking for it");
    else if (role == REDIS_STOCK)
        end(sale, SALE_STOCK_UNAVAILABLE, "the stock's server is away; the instance goes on looking for it");
    return role != REDIS_ROLES;
}

static enum redis_role away_stock(const struct sale_env *env)
{
    return outage_lasts(env->outage, REDIS_STOCK) ? REDIS_STOCK : REDIS_ROLES;
}

bool sale_asks_lock_server(const struct setting *setting)
{
    const char *rung = setting->rung->name;
    return strcmp(rung, "none") != 0 && strcmp(rung, "local") != 0;
}

/* The server that is away, without which nothing can be sold; REDIS_ROLES: none is. */
static enum redis_role away(const struct sale_env *env)
{
    bool lasts = sale_asks_lock_server(&env->mode->now) && outage_lasts(env->outage, REDIS_LOCK);
    return lasts ? REDIS_LOCK : away_stock(env);
}

/* Takes a till, and opens the lock. False: it is over, sale->result says how. */
static bool begin(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    sale->deadline_ns = sale->arrived_ns + env->config->wait_ms * NS_PER_MS;
    sale->acquire_ns = now_ns();
    sale->mode = first_mode(env, sale);
    enum redis_role needs = sale_asks_lock_server(&env->mode->now) ? REDIS_LOCK : REDIS_STOCK;
    sale->patience = outage_patience(env->outage, needs);
    if (!take_till(seller, sale) || end_by_outage(sale, away(env)))
        return false;
    if (sale->result != SALE_SOLD) /* sale_accept has found something */
        return false;
    if (sale->deadline_ns - sale->acquire_ns < NS_PER_MS) {
        end(sale, SALE_DEADLINE, "it waited in the queue for longer than --wait-ms");
        return false;
    }
    return open_lock(seller, sale);
}

static int64_t left_ms(const struct sale *sale)
{
    int64_t left_ns = sale->deadline_ns - now_ns();
    return left_ns > 0 ? left_ns / NS_PER_MS : 0;
}

/* ---- The section ----------------------------------------------------------------------------- */

static void end_by_lock(const struct sale_env *env, struct sale *sale, dlock_status status, const char *error)
{
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_TIMED_OUT:
        end(sale, SALE_LOCK_TIMEOUT, error);
        break;
    case DLOCK_CANCELLED:
        if (!end_by_outage(sale, (enum redis_role)atomic_load(&sale->patience->role)))
            end(sale, SALE_DRAINING, "the instance was told to end while the sale waited for the lock");
        break;
    case DLOCK_UNKNOWN:
    case DLOCK_UNREACHABLE:
    case DLOCK_REFUSED:
        outage_hint(env->outage, REDIS_LOCK, OUTAGE_LOOK);
        end(sale, SALE_LOCK_UNAVAILABLE, error);
        break;
    case DLOCK_LIMIT:
        end(sale, SALE_QUEUE_FULL, "more sales than --queue wait for their lock");
        break;
    case DLOCK_WRONG_TYPE:
        end(sale, SALE_LOCK_INVALID, error);
        break;
    default:
        end(sale, SALE_INTERNAL, error);
    }
}

/* What an answer of the stock means before (or without) a write. */
static void end_by_stock(struct seller *seller, struct sale *sale, enum stock_status status)
{
    if (status == STOCK_STALE)
        sale->newest = stock_newest(seller->stock);
    else if (status == STOCK_UNAVAILABLE || status == STOCK_LOST)
        outage_hint(seller->env->outage, REDIS_STOCK, OUTAGE_LOOK);
    end(sale,
        status == STOCK_MISSING   ? SALE_UNKNOWN_ITEM
        : status == STOCK_INVALID ? SALE_STOCK_INVALID
        : status == STOCK_STALE   ? SALE_STALE_TOKEN
                                  : SALE_STOCK_UNAVAILABLE,
        stock_error(seller->stock));
}

/* ---- The fence ------------------------------------------------------------------------------- */

struct fence {
    char lock_key[KEY_MAX + 16];
    char mark[KEY_MAX + 8]; /* the stock's own */
    struct stock_fence fence;
};

/* What the way to write of now makes of the hold's token. NULL: nothing. */
static const struct stock_fence *fence_of(const struct sale_env *env, const struct sale *sale,
                                          struct fence *room)
{
    const int write = env->mode->now.write;
    if (!write_is_fenced(write))
        return NULL;
    enum fence_kind kind = write == WRITE_FENCED_TEXTBOOK ? FENCE_LAST_WRITE
                           : env->apart                   ? FENCE_LAST_READ
                                                          : FENCE_NEWEST;
    snprintf(room->lock_key, sizeof room->lock_key,
             strchr(sale->lock_name, '{') != NULL ? "dlock:token:%s" : "dlock:token={%s}", sale->lock_name);
    snprintf(room->mark, sizeof room->mark, "%s:fence", sale->stock_key);
    room->fence = (struct stock_fence){.kind = kind,
                                       .key = kind == FENCE_NEWEST ? room->lock_key : room->mark,
                                       .lock_key = room->lock_key,
                                       .token = sale->token};
    return &room->fence;
}

static void note_reading(const struct sale_env *env, struct sale *sale, int64_t stock)
{
    RECORD(env, sale, "read", ",\"hold\":\"%s\",\"stock_before\":%" PRId64, sale->hold_id, stock);
    sale->left = stock;
}

/* Whether what was read is enough. */
static bool is_enough(const struct sale_env *env, struct sale *sale, int64_t stock)
{
    note_reading(env, sale, stock);
    if (stock >= sale->quantity)
        return true;
    end(sale, stock <= 0 ? SALE_SOLD_OUT : SALE_TOO_FEW, "");
    return false;
}

static void work(const struct sale_env *env)
{
    if (env->config->work_ms == 0)
        return;
    struct timespec until = timespec_of(now_ns() + env->config->work_ms * NS_PER_MS);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0)
        ;
}

/* The last look before the write, or of who only reads before that. */
static bool may_go_on(const struct sale_env *env, struct sale *sale)
{
    bool reads = sale->purpose == SALE_READ;
    if (env->mode->now.check_hold && !dlock_valid(sale->hold))
        end(sale, SALE_LOCK_LOST, reads ? "the hold was not valid any more; nothing was read"
                                        : "the hold was not valid any more; nothing was written");
    else if (is_late(sale))
        end(sale, SALE_DEADLINE, reads ? "its time (--wait-ms) was over before it read"
                                       : "its time (--wait-ms) was over before the write");
    else
        return true;
    return false;
}

/* Reads, decides and writes in one step. */
static enum stock_status take_if_enough(struct seller *seller, struct sale *sale, int64_t *after)
{
    int64_t before = 0;
    enum stock_status status =
        stock_take(seller->stock, sale->stock_key, sale->quantity, &before);
    if ((status == STOCK_OK || status == STOCK_TOO_FEW) &&
        !is_enough(seller->env, sale, before))
        return STOCK_TOO_FEW;
    *after = before - sale->quantity;
    return status;
}

/* Writes the stock in the way of now. *after: what it is said to be. */
static enum stock_status write_stock(struct seller *seller, struct sale *sale, int64_t *after)
{
    struct fence room;
    switch ((enum write_mode)seller->env->mode->now.write) {
    case WRITE_SET:
        *after = sale->left - sale->quantity;
        return stock_write(seller->stock, sale->stock_key, *after);
    case WRITE_ATOMIC:
        return take_if_enough(seller, sale, after);
    default: /* DECR, perhaps fenced */
        return stock_decrement(seller->stock, sale->stock_key, sale->quantity,
                               fence_of(seller->env, sale, &room), after);
    }
}

/* fence: NULL where nothing is written on what is read. Readers that share a lock would shut each other out. */
static bool read_stock(struct seller *seller, struct sale *sale, const struct stock_fence *fence,
                       int64_t *stock)
{
    enum stock_status status = stock_read(seller->stock, sale->stock_key, fence, stock);
    if (status != STOCK_OK)
        end_by_stock(seller, sale, status);
    return status == STOCK_OK;
}

/* With tokens: the section has a newer one now, under which it has read nothing yet. It is the section's as long as
 * the hold is that it began with. */
static bool is_unchanged(struct seller *seller, struct sale *sale)
{
    int64_t stock;
    struct fence room;
    const struct stock_fence *fence = fence_of(seller->env, sale, &room);
    if (fence == NULL)
        return true;
    if (!read_stock(seller, sale, fence, &stock))
        return false;
    bool unchanged = stock == sale->left && dlock_valid(sale->hold);
    if (!unchanged)
        end(sale, SALE_LOCK_LOST, "the lock was lost, or the stock changed, while the gift was packed");
    return unchanged;
}

/* The gift is packed by a helper that takes the lock for itself, as it would anywhere else. */
static bool pack_gift(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    struct dlock_want want = want_of(env, sale, left_ms(sale));
    dlock_hold *again;
    dlock_status status = dlock_acquire(sale->till->lock, &want, &again);
    RECORD(env, sale, "again", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
           dlock_status_name(status));
    if (status == DLOCK_OK) {
        sale->token = dlock_token(again);
        status = dlock_release(again, NULL);
    }
    if (status == DLOCK_OK)
        return is_unchanged(seller, sale);
    if (status == DLOCK_LOST)
        end(sale, SALE_LOCK_LOST, "the lock was lost while the gift was packed");
    else
        end_by_lock(seller->env, sale, status, dlock_error());
    return false;
}

/* ---- A write without an answer --------------------------------------------------------------- */

struct finding {
    const char *key;
    struct stock_doubt doubt;
    bool ended;    /* the write was carried out, or never will be */
    int64_t stock; /* what the key holds since */
};

static enum stock_status find(struct stock *stock, void *arg)
{
    struct finding *finding = arg;
    enum stock_status status = finding->ended ? STOCK_OK : stock_end_doubt(stock, &finding->doubt);
    if (status != STOCK_OK)
        return status;
    finding->ended = true;
    status = stock_read(stock, finding->key, NULL, &finding->stock);
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

static enum stock_status shut_out(struct stock *stock, void *fence)
{
    enum stock_status status = stock_shut_out(stock, fence);
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

/* Repeats `attempt` while the hold is valid, for at most 2 * --redis-timeout-ms. `attempt` must be
 * safe to repeat. */
static enum stock_status insist(struct seller *seller, const struct sale *sale,
                                enum stock_status (*attempt)(struct stock *stock, void *arg), void *arg)
{
    const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
    const int64_t ends_ns = now_ns() + 2 * seller->env->config->redis_timeout_ms * NS_PER_MS;
    enum stock_status status;
    while ((status = attempt(seller->stock, arg)) == STOCK_UNAVAILABLE && dlock_valid(sale->hold) &&
           now_ns() < ends_ns)
        nanosleep(&pause, NULL);
    return status;
}

/* The lost write may still arrive. The client may hand its lock on with a token that the stock
 * cannot tell from this one. So the stock is told first. */
static bool is_kept_out(struct seller *seller, const struct sale *sale)
{
    struct fence room;
    const struct stock_fence *fence = fence_of(seller->env, sale, &room);
    if (fence == NULL)
        return sale->purpose == SALE_SELL && seller->env->mode->now.write == WRITE_ATOMIC; /* it looks for itself */
    return fence->kind != FENCE_NEWEST || insist(seller, sale, shut_out, &room.fence) == STOCK_OK;
}

/* What became of a write whose reply was lost. OK: *stock is the key's value, with or without the
 * write. MISSING, INVALID: there is no key, or it holds no number. In all three the lock is still
 * ours, so no other sale wrote; with `atomic` one may have: the late write of a sale that gave its
 * lock back. LOST: it is not known. */
static enum stock_status find_out(struct seller *seller, struct sale *sale, int64_t *stock)
{
    struct finding finding = {.key = sale->stock_key, .doubt = stock_doubt(seller->stock)};
    if (seller->env->mode->now.rung->flawed) /* somebody else may have written as well */
        return STOCK_LOST;
    enum stock_status status = insist(seller, sale, find, &finding);
    bool known = status == STOCK_OK || status == STOCK_MISSING || status == STOCK_INVALID;
    *stock = finding.stock;
    if (!finding.ended)
        sale->abandons = !is_kept_out(seller, sale);
    return known && dlock_extend(sale->hold) == DLOCK_OK ? status : STOCK_LOST;
}

/* Of a sale: *after is what the stock is then. */
static enum stock_status find_out_sale(struct seller *seller, struct sale *sale, int64_t *after)
{
    int64_t stock;
    if (seller->env->mode->now.write == WRITE_ATOMIC) /* it read in the step that wrote */
        return STOCK_LOST;
    if (find_out(seller, sale, &stock) != STOCK_OK)
        return STOCK_LOST;
    *after = sale->left - sale->quantity;
    return stock == *after ? STOCK_OK : stock == sale->left ? STOCK_UNAVAILABLE : STOCK_LOST;
}

/* ---- How a sale ended ------------------------------------------------------------------------ */

/* Under a lock that is flawed, or lost, a DECR that goes below zero is the lesson. Under a hold that lasts, somebody
 * has changed the stock without the lock. */
static bool is_not_there(const struct sale *sale, const struct setting *now, int64_t after)
{
    return after < 0 && !now->rung->flawed && !write_ways[now->write].flawed && dlock_valid(sale->hold);
}

/* The DECR went below zero: refuse the sale and add the units again. */
static void put_back(struct seller *seller, struct sale *sale, int64_t after)
{
    struct fence room;
    const struct stock_fence *fence = fence_of(seller->env, sale, &room);
    char detail[sizeof sale->detail];
    snprintf(detail, sizeof detail,
             "somebody changed the stock without the lock: %" PRId64 " when it was read, %" PRId64 " after the write",
             sale->left, after);
    end(sale, SALE_STOCK_INVALID, detail);
    enum stock_status added = stock_add(seller->stock, sale->stock_key, sale->quantity, fence, &after);
    if (added == STOCK_LOST)
        sale->abandons = !is_kept_out(seller, sale);
    if (added != STOCK_OK)
        log_event(LOG_WARNING, "stock", "%s may be %" PRId64 " too low: what was taken and not sold was not put back: %s",
                  sale->stock_key, sale->quantity, stock_error(seller->stock));
}

/* sale->left: what was read. */
static void end_sold(const struct sale_env *env, struct sale *sale, int64_t after)
{
    const int64_t before = sale->left;
    outage_hint(env->outage, REDIS_STOCK, OUTAGE_THERE);
    sale->left = after;
    sale->unit = after + 1;
    RECORD(env, sale, "write",
           ",\"hold\":\"%s\",\"stock_before\":%" PRId64 ",\"stock_after\":%" PRId64
           ",\"unit\":%" PRId64 ",\"quantity\":%" PRId64,
           sale->hold_id, before, after, sale->unit, sale->quantity);
    sale->forgets = failpoint(env->failpoints, "sale", "after_write");
}

static void end_unknown(struct seller *seller, struct sale *sale)
{
    RECORD(seller->env, sale, "unknown", ",\"hold\":\"%s\",\"code\":500,\"quantity\":%" PRId64,
           sale->hold_id, sale->quantity);
    end(sale, SALE_OUTCOME_UNKNOWN, stock_error(seller->stock));
}

/* ---- Selling once, under a key --------------------------------------------------------------- */

/* The answer that was kept is given again. */
static void replay(const struct sale_env *env, struct sale *sale, const struct stock_record *kept)
{
    char detail[sizeof sale->detail], unit[48] = "";
    if (kept->quantity != sale->quantity) {
        snprintf(detail, sizeof detail,
                 "the sale that this key belongs to had quantity=%" PRId64
                 ", this one has quantity=%" PRId64,
                 kept->quantity, sale->quantity);
        end(sale, SALE_KEY_REUSED, detail);
        return;
    }
    end(sale, kept->code == 200 ? SALE_SOLD : SALE_SOLD_OUT, "");
    sale->replayed = true;
    sale->left = kept->left;
    sale->unit = kept->left + 1;
    snprintf(sale->seller, sizeof sale->seller, "%s", kept->seller);
    if (kept->code == 200)
        snprintf(unit, sizeof unit, ",\"unit\":%" PRId64, sale->unit);
    RECORD(env, sale, "replay",
           ",\"hold\":\"%s\",\"code\":%d,\"seller\":\"%s\",\"stock_after\":%" PRId64
           "%s,\"quantity\":%" PRId64,
           sale->hold_id, kept->code, kept->seller, kept->left, unit, sale->quantity);
}

/* Looks for what is kept under the sale's key, ahead of the stock. False: nothing is, or it has no
 * key. */
static bool ends_by_record(struct seller *seller, struct sale *sale)
{
    struct stock_record record;
    if (sale->key[0] == '\0')
        return false;
    enum stock_status status = stock_recall(seller->stock, sale->record_key, &record);
    if (status == STOCK_OK)
        replay(seller->env, sale, &record);
    else if (status == STOCK_INVALID)
        end(sale, SALE_RECORD_INVALID, stock_error(seller->stock));
    else if (status != STOCK_MISSING)
        end_by_stock(seller, sale, status);
    return status != STOCK_MISSING;
}

struct search {
    const char *record_key;
    struct stock_doubt doubt;
    bool ended; /* the write was carried out, or never will be */
    struct stock_record record;
};

/* A record that is there says what became of the write, wherever that is by now. MISSING: it was not
 * carried out, and never will be. */
static enum stock_status search_record(struct stock *stock, void *arg)
{
    struct search *search = arg;
    enum stock_status ended = search->ended ? STOCK_OK : stock_end_doubt(stock, &search->doubt);
    search->ended = ended == STOCK_OK;
    enum stock_status status = stock_recall(stock, search->record_key, &search->record);
    if (status == STOCK_MISSING && !search->ended)
        return ended;
    return status == STOCK_LOST ? STOCK_UNAVAILABLE : status;
}

/* What became of a sale whose reply was lost: needs neither the stock nor the lock. UNAVAILABLE: it
 * was not carried out; LOST: nobody knows. sent_ns: a record that is not there may have been, and
 * have expired since. */
static enum stock_status find_out_once(struct seller *seller, struct sale *sale, int64_t sent_ns,
                                       struct stock_record *record)
{
    const int64_t keep_ns = seller->env->config->idempotency_ms * NS_PER_MS;
    struct search search = {.record_key = sale->record_key, .doubt = stock_doubt(seller->stock)};
    enum stock_status status = insist(seller, sale, search_record, &search);
    *record = search.record;
    if (status == STOCK_OK)
        return STOCK_OK;
    if (!search.ended)
        sale->abandons = !is_kept_out(seller, sale);
    return status == STOCK_MISSING && now_ns() - sent_ns < keep_ns ? STOCK_UNAVAILABLE : STOCK_LOST;
}

/* The step that sells has found less than was asked for. */
static void end_too_few(const struct sale_env *env, struct sale *sale, int64_t stock)
{
    char detail[sizeof sale->detail];
    if (env->mode->now.write == WRITE_ATOMIC) {
        is_enough(env, sale, stock);
        sale->kept = sale->result == SALE_SOLD_OUT;
        return;
    }
    snprintf(detail, sizeof detail,
             "somebody changed the stock without the lock: %" PRId64 " when it was read, %" PRId64
             " before the write",
             sale->left, stock);
    end(sale, SALE_STOCK_INVALID, detail);
}

/* Not 0, and of no other sale of any process. */
static uint64_t new_mark(void)
{
    uint64_t mark = 0;
    while (mark == 0)
        if (getrandom(&mark, sizeof mark, 0) != sizeof mark)
            mark = 0;
    return mark;
}

/* Writes, and keeps the answer, in one step. Nothing is taken that is not there, so nothing is ever
 * put back. */
static void sell_once(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    const int64_t sent_ns = now_ns();
    const uint64_t mark = new_mark();
    struct fence room;
    struct stock_record record;
    bool kept = false;
    enum stock_status written =
        stock_sell_once(seller->stock,
                        &(struct stock_once){.key = sale->stock_key,
                                             .record_key = sale->record_key,
                                             .quantity = sale->quantity,
                                             .seller = env->config->instance,
                                             .mark = mark,
                                             .keep_ms = env->config->idempotency_ms,
                                             .fence = fence_of(env, sale, &room)},
                        &record, &kept);
    bool lost = written == STOCK_LOST;
    if (lost)
        written = find_out_once(seller, sale, sent_ns, &record);
    if (lost && written == STOCK_OK) {
        kept = record.mark != mark; /* another request under this key has sold meanwhile */
        written = !kept && record.code == 409 ? STOCK_TOO_FEW : STOCK_OK;
    }
    if (written == STOCK_LOST) {
        end_unknown(seller, sale);
    } else if (written == STOCK_OK && kept) {
        replay(env, sale, &record);
    } else if (written == STOCK_OK) {
        if (env->mode->now.write == WRITE_ATOMIC) /* it read in the step that wrote */
            note_reading(env, sale, record.left + sale->quantity);
        end_sold(env, sale, record.left);
    } else if (written == STOCK_TOO_FEW) {
        end_too_few(env, sale, record.left);
    } else {
        end_by_stock(seller, sale, written);
    }
}

/* ---- Selling --------------------------------------------------------------------------------- */

static void sell(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    int64_t stock, after = 0;
    struct fence room;
    if (ends_by_record(seller, sale))
        return;
    if (env->mode->now.write != WRITE_ATOMIC &&
        (!read_stock(seller, sale, fence_of(env, sale, &room), &stock) ||
         !is_enough(env, sale, stock)))
        return;
    failpoint(env->failpoints, "sale", "after_read");
    if (sale->gift && !pack_gift(seller, sale))
        return;
    work(env);
    if (!may_go_on(env, sale))
        return;
    failpoint(env->failpoints, "sale", "before_write");
    if (sale->key[0] != '\0') {
        sell_once(seller, sale);
        return;
    }
    enum stock_status written = write_stock(seller, sale, &after);
    if (written == STOCK_LOST)
        written = find_out_sale(seller, sale, &after);
    if (written == STOCK_LOST) {
        end_unknown(seller, sale);
    } else if (written == STOCK_OK && is_not_there(sale, &env->mode->now, after)) {
        put_back(seller, sale, after);
    } else if (written == STOCK_OK) {
        end_sold(env, sale, after);
    } else if (written != STOCK_TOO_FEW) {
        end_by_stock(seller, sale, written);
    }
}

/* A fence that goes by who read last takes no write from who has not. */
static bool read_for_write(struct seller *seller, struct sale *sale, const struct stock_fence *fence)
{
    int64_t stock;
    if (fence == NULL || fence->kind != FENCE_LAST_READ)
        return true;
    enum stock_status status = stock_read(seller->stock, sale->stock_key, fence, &stock);
    if (status == STOCK_OK || status == STOCK_MISSING || status == STOCK_INVALID)
        return true;
    end_by_stock(seller, sale, status);
    return false;
}

/* Units are added to a stock that is there: a slip in the name shall not put another item on sale. */
static bool may_add(struct seller *seller, struct sale *sale, const struct stock_fence *fence)
{
    int64_t stock;
    char detail[160];
    if (!read_stock(seller, sale, fence, &stock))
        return false;
    sale->left = stock;
    if (stock <= STOCK_MAX - sale->quantity)
        return true;
    snprintf(detail, sizeof detail, "there are %" PRId64 " of %s, and there may be at most %" PRId64, stock,
             sale->item, (int64_t)STOCK_MAX);
    end(sale, SALE_TOO_MANY, detail);
    return false;
}

/* *before: what was there, or STOCK_NONE. */
static enum stock_status write_restock(struct seller *seller, struct sale *sale,
                                       const struct stock_fence *fence, int64_t *before)
{
    if (!sale->adds) {
        sale->left = sale->quantity;
        return stock_replace(seller->stock, sale->stock_key, sale->quantity, fence, before);
    }
    enum stock_status written =
        stock_add(seller->stock, sale->stock_key, sale->quantity, fence, &sale->left);
    *before = sale->left - sale->quantity;
    return written;
}

/* Of a write whose reply was lost. sale->left: what was read, where units are added. UNAVAILABLE:
 * nothing was written. */
static enum stock_status find_out_restock(struct seller *seller, struct sale *sale, int64_t *before)
{
    int64_t stock, after = sale->adds ? sale->left + sale->quantity : sale->quantity;
    *before = sale->adds ? sale->left : STOCK_NONE;
    enum stock_status found = find_out(seller, sale, &stock);
    bool known = found == STOCK_OK && (stock == after || stock == *before);
    if (seller->env->mode->now.write == WRITE_ATOMIC) /* a late sale may have written beside the lock: see find_out */
        return STOCK_LOST;
    if (found == STOCK_LOST || (sale->adds && !known))
        return STOCK_LOST;
    sale->left = after;
    return found == STOCK_OK && stock == after ? STOCK_OK : STOCK_UNAVAILABLE;
}

/* The intent is recorded ahead of the write: the judge sees it even if this process does not live to tell the outcome. */
static void restock(struct seller *seller, struct sale *sale)
{
    struct fence room;
    const struct stock_fence *fence = fence_of(seller->env, sale, &room);
    bool ready = sale->adds ? may_add(seller, sale, fence) : read_for_write(seller, sale, fence);
    if (!ready || !may_go_on(seller->env, sale))
        return;
    int64_t before;
    RECORD(seller->env, sale, "restocking", ",\"%s\":%" PRId64, sale->adds ? "add" : "set", sale->quantity);
    enum stock_status written = write_restock(seller, sale, fence, &before);
    bool doubted = written == STOCK_LOST;
    if (doubted)
        written = find_out_restock(seller, sale, &before);
    if (written == STOCK_OK)
        outage_hint(seller->env->outage, REDIS_STOCK, OUTAGE_THERE);
    if (written == STOCK_OK && before != STOCK_NONE) {
        RECORD(seller->env, sale, "restock",
               ",\"stock_before\":%" PRId64 ",\"stock_after\":%" PRId64, before, sale->left);
    } else if (written == STOCK_OK) {
        RECORD(seller->env, sale, "restock", ",\"stock_after\":%" PRId64, sale->left);
    } else if (written == STOCK_LOST) {
        RECORD(seller->env, sale, "restock_unknown", "%s", "");
        end(sale, SALE_OUTCOME_UNKNOWN, stock_error(seller->stock));
    } else {
        RECORD(seller->env, sale, "restock_none", "%s", "");
        if (doubted)
            end(sale, SALE_STOCK_UNAVAILABLE, "the connection was lost before the write was carried out");
        else
            end_by_stock(seller, sale, written);
    }
}

static void read_alone(struct seller *seller, struct sale *sale)
{
    int64_t stock;
    if (may_go_on(seller->env, sale) && read_stock(seller, sale, NULL, &stock))
        note_reading(seller->env, sale, stock);
}

void sale_read_aside(struct seller *seller, struct sale *sale)
{
    if (find_keys(seller->env, sale) && !end_by_outage(sale, away_stock(seller->env)))
        read_stock(seller, sale, NULL, &sale->left);
}

/* The hold stays, renewed where its rung renews, with a bearer to speak of it and its lock open. */
static void forget(struct sale *sale)
{
    struct till *till = sale->till;
    struct bearer *next = calloc(1, sizeof *next);
    if (next == NULL)
        return;
    till->bearer->forgotten = sale->hold;
    till->bearer->lock = till->lock;
    till->lock = NULL;
    next->next = till->bearer;
    till->bearer = next;
    sale->hold = NULL;
}

/* The acquire was answered. False: without the lock, and it is over. */
static bool enter(const struct sale_env *env, struct sale *sale)
{
    const dlock_hold *hold = sale->hold;
    if (hold == NULL) {
        end_by_lock(env, sale, sale->lock_status, sale->lock_error);
        return false;
    }
    sale->granted_ns = now_ns();
    sale->token = dlock_token(hold);
    metrics_acquired(sale->granted_ns - sale->acquire_ns);
    if (sale->purpose != SALE_RESTOCK && env->history != NULL) {
        snprintf(sale->hold_id, sizeof sale->hold_id, "%s#%" PRIu64, dlock_owner(hold),
                 dlock_acquisition(hold));
        RECORD(env, sale, "granted",
               ",\"hold\":\"%s\",\"mode\":\"%s\",\"owner\":\"%s\",\"token\":%" PRIu64
               ",\"waited_ns\":%" PRId64,
               sale->hold_id, sale->mode == DLOCK_SHARED ? "shared" : "exclusive",
               dlock_owner(hold), dlock_token(hold), sale->granted_ns - sale->arrived_ns);
        RECORD(env, sale, "enter", ",\"hold\":\"%s\"", sale->hold_id);
    }
    return true;
}

static void leave(const struct sale_env *env, const struct sale *sale)
{
    RECORD(env, sale, "exit", ",\"hold\":\"%s\"", sale->hold_id);
}

static void serve(struct seller *seller, struct sale *sale)
{
    if (end_by_outage(sale, away_stock(seller->env)))
        return;
    if (sale->purpose == SALE_READ)
        read_alone(seller, sale);
    else if (sale->is_hung_up(sale))
        end(sale, SALE_HUNG_UP, "the client has closed the connection");
    else if (sale->purpose == SALE_RESTOCK)
        restock(seller, sale);
    else
        sell(seller, sale);
}

/* The critical section. */
static void work_inside(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    bool is_restock = sale->purpose == SALE_RESTOCK;
    if (!is_restock)
        failpoint(env->failpoints, sale->purpose == SALE_READ ? "read" : "sale", "entered");
    serve(seller, sale);
    if (!is_restock)
        leave(env, sale);
    if (sale->forgets)
        forget(sale);
}

static void let_go(struct seller *seller, struct sale *sale, dlock_hold **hold)
{
    const struct sale_env *env = seller->env;
    /* What was written is written, whatever becomes of the lock. */
    dlock_status released = sale->abandons ? dlock_abandon(*hold) : dlock_release(*hold, NULL);
    const char *status = sale->abandons && released == DLOCK_OK ? "ABANDONED" : dlock_status_name(released);
    *hold = NULL;
    metrics_held(now_ns() - sale->granted_ns);
    if (sale->purpose != SALE_RESTOCK)
        RECORD(env, sale, "release", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id, status);
    if (sale->abandons)
        log_event(LOG_WARNING, "abandoned",
                  "%s is left to expire: the reply to a write under it was lost, and the write may still come: %s",
                  sale->lock_name, stock_error(seller->stock));
    else if (released != DLOCK_OK)
        log_event(LOG_WARNING, "release", "%s: %s", sale->lock_name, dlock_error());
}

/* Releases, and records how it ended. */
static void finish(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    if (sale->hold != NULL)
        let_go(seller, sale, &sale->hold);
    if (!sale->replayed && (sale->result == SALE_SOLD || sale->result == SALE_SOLD_OUT ||
                            sale->result == SALE_TOO_FEW))
        metrics_stock(sale->item, sale->left);
    record_end(env, sale);
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static void note_answer(struct sale *sale, dlock_status status, dlock_hold *hold)
{
    sale->lock_status = status;
    sale->hold = hold;
    if (hold == NULL)
        snprintf(sale->lock_error, sizeof sale->lock_error, "%s", dlock_error());
}

/* dlock_done. */
static void on_answer(void *arg, dlock_status status, dlock_hold *hold)
{
    struct sale *sale = arg;
    note_answer(sale, status, hold);
    atomic_fetch_sub(sale->waiting, 1);
    sale->resume(sale);
}

/* Asks for the lock. False: it waits without this thread, and may be resumed on another by now. */
static bool acquire(const struct sale_env *env, struct sale *sale)
{
    struct dlock_want want = want_of(env, sale, left_ms(sale));
    sale->waiting = env->waiting;
    atomic_fetch_add(env->waiting, 1);
    dlock_status status = dlock_acquire_start(sale->till->lock, &want, on_answer, sale);
    if (status == DLOCK_OK)
        return false;
    atomic_fetch_sub(env->waiting, 1);
    note_answer(sale, status, NULL);
    if (status == DLOCK_UNSUPPORTED) { /* this rung's count is in its thread's memory: it waits here */
        dlock_hold *hold = NULL;
        status = dlock_acquire(sale->till->lock, &want, &hold);
        note_answer(sale, status, hold);
    }
    return true;
}

/* ---- Looking first --------------------------------------------------------------------------- */

/* Reads under the read lock, which it keeps from here on. False: it is over, with nothing to buy. */
static bool look(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    int64_t stock;
    if (!enter(env, sale))
        return false;
    if (ends_by_record(seller, sale) || !read_stock(seller, sale, NULL, &stock) ||
        !is_enough(env, sale, stock)) {
        leave(env, sale);
        return false;
    }
    failpoint(env->failpoints, "sale", "looked");
    sale->looked = sale->hold;
    sale->hold = NULL;
    sale->mode = DLOCK_EXCLUSIVE;
    return true;
}

/* The write lock's answer is there: the read lock is of no use any more. */
static void end_look(struct seller *seller, struct sale *sale)
{
    const struct sale_env *env = seller->env;
    RECORD(env, sale, "again", ",\"hold\":\"%s\",\"status\":\"%s\"", sale->hold_id,
           dlock_status_name(sale->lock_status));
    leave(env, sale);
    let_go(seller, sale, &sale->looked);
}

enum next { ASK, WORK, OVER };

/* From an answer of the lock to what comes next. */
static enum next next_of(struct seller *seller, struct sale *sale)
{
    if (sale->purpose == SALE_SELL && sale->mode == DLOCK_SHARED)
        return look(seller, sale) ? ASK : OVER;
    if (sale->looked != NULL) {
        end_look(seller, sale);
        if (sale->lock_status == DLOCK_UPGRADE) /* it reads again, under the write lock */
            return ASK;
    }
    return enter(seller->env, sale) ? WORK : OVER;
}

/* ---- All of it ------------------------------------------------------------------------------- */

/* The lock was answered. False: it waits for another answer. */
static bool go_on(struct seller *seller, struct sale *sale)
{
    enum next next;
    while ((next = next_of(seller, sale)) == ASK) {
        sale->acquire_ns = now_ns();
        if (!acquire(seller->env, sale))
            return false;
    }
    if (next == WORK)
        work_inside(seller, sale);
    return true;
}

static void conclude(struct seller *seller, struct sale *sale)
{
    finish(seller, sale);
    outage_give_back(sale->patience);
    if (sale->till != NULL)
        till_give(seller->env->tills, sale->till);
}

bool sale_run(struct seller *seller, struct sale *sale)
{
    bool over = !begin(seller, sale) || (acquire(seller->env, sale) && go_on(seller, sale));
    if (over)
        conclude(seller, sale);
    served = NULL;
    return over;
}

bool sale_resume(struct seller *seller, struct sale *sale)
{
    served = sale->till->bearer;
    bool over = go_on(seller, sale);
    if (over)
        conclude(seller, sale);
    served = NULL;
    return over;
}
