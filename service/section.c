/* SPDX-License-Identifier: Apache-2.0
 *
 * See section.h.
 */
#include "section.h"

#include "../lock/clock.h"
#include "conflict.h"
#include "span.h"

#include <stdlib.h>
#include <string.h>

struct sale_worker *sale_worker_new(const struct sale_env *env, struct stock *stock)
{
    struct sale_worker *worker = calloc(1, sizeof *worker);
    if (worker != NULL && stock != NULL) {
        *worker = (struct sale_worker){.env = env, .stock = stock};
        return worker;
    }
    stock_free(stock);
    free(worker);
    return NULL;
}

void sale_worker_free(struct sale_worker *worker)
{
    stock_free(worker->stock);
    free(worker);
}

void sale_worker_rest(struct sale_worker *worker)
{
    stock_rest(worker->stock);
}

void section_end(struct sale *sale, enum sale_result result, const char *detail)
{
    sale->result = result;
    snprintf(sale->detail, sizeof sale->detail, "%s", detail);
}

enum server_role section_away_stock(const struct sale_env *env)
{
    return outage_lasts(env->outage, ROLE_STOCK) ? ROLE_STOCK : ROLE_COUNT;
}

bool section_end_by_outage(const struct sale_env *env, struct sale *sale, enum server_role role)
{
    char away[STOCK_ERROR_MAX - 128], detail[STOCK_ERROR_MAX];
    const char *server = role == ROLE_STOCK ? "the stock's server" : "the lock's server";
    if (role == ROLE_COUNT)
        return false;
    const bool unconfirmed = outage_say_away(env->outage, role, away, sizeof away);
    if (role >= ROLE_LOCK_SERVERS && role < LOCK_ROLES)
        snprintf(detail, sizeof detail,
                 "too many of the lock's servers are away%s%s%s; the instance keeps trying to "
                 "reach them",
                 away[0] != '\0' ? " (" : "", away, away[0] != '\0' ? ")" : "");
    else if (unconfirmed)
        snprintf(detail, sizeof detail,
                 "too few replicas of %s confirm its writes (%s); the instance keeps asking them",
                 server, away);
    else
        snprintf(detail, sizeof detail, "%s is away; the instance keeps trying to reach it",
                 server);
    section_end(sale, role == ROLE_STOCK ? SALE_STOCK_UNAVAILABLE : SALE_LOCK_UNAVAILABLE, detail);
    return true;
}

void section_end_by_lock(const struct sale_env *env, struct sale *sale, dlock_status status,
                         const char *error)
{
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_TIMED_OUT:
        conflict_end(env, sale, error);
        break;
    case DLOCK_CANCELLED:
        if (!section_end_by_outage(env, sale, (enum server_role)atomic_load(&sale->patience->role)))
            section_end(sale, SALE_DRAINING,
                        "the instance began to shut down while the sale waited for the lock");
        break;
    case DLOCK_UNKNOWN:
    case DLOCK_UNREACHABLE:
    case DLOCK_REFUSED:
    case DLOCK_INVALID: /* --ttl-ms is not one that the ensemble grants */
        outage_hint(env->outage, sale_locks(env)->role, OUTAGE_LOOK);
        section_end(sale, SALE_LOCK_UNAVAILABLE, error);
        break;
    case DLOCK_LOST: /* of several locks one was lost before it had all of them */
        section_end(sale, SALE_LOCK_LOST, error);
        break;
    case DLOCK_LIMIT:
        section_end(sale, SALE_QUEUE_FULL,
                    "as many sales as --queue allows wait for their lock already");
        break;
    case DLOCK_WRONG_TYPE:
        section_end(sale, SALE_LOCK_INVALID, error);
        break;
    default:
        section_end(sale, SALE_INTERNAL, error);
    }
}

enum stock_layout section_layout(const struct sale_env *env)
{
    return segments_several(env)               ? LAYOUT_SEGMENTS
           : env->mode->now.write == WRITE_CAS ? LAYOUT_VERSION
                                               : LAYOUT_NUMBER;
}

#define LAYOUT_TEXT_MAX 32
static void say_layout(enum stock_layout layout, int segments, char text[LAYOUT_TEXT_MAX])
{
    if (layout == LAYOUT_SEGMENTS)
        snprintf(text, LAYOUT_TEXT_MAX, "in %d segments", segments);
    else
        snprintf(text, LAYOUT_TEXT_MAX, "%s",
                 layout == LAYOUT_VERSION ? "with a version" : "as one number");
}

/* Ends the sale if its stock is laid otherwise than this instance sells it, or was so when the
 * request met it (was_other). The text of stock_error() is lost then. */
static bool section_end_by_layout(struct sale_worker *worker, struct sale *sale, bool was_other)
{
    const struct setting *now = &worker->env->mode->now;
    const enum stock_layout wanted = section_layout(worker->env);
    const bool wants_segments = wanted == LAYOUT_SEGMENTS;
    char detail[sizeof sale->detail], is[LAYOUT_TEXT_MAX], wants[LAYOUT_TEXT_MAX];
    enum stock_layout found;
    int segments;
    if (stock_find_layout(worker->stock, sale->item_key, &found, &segments) != STOCK_OK) {
        outage_hint(worker->env->outage, ROLE_STOCK, OUTAGE_LOOK);
        section_end(sale, SALE_STOCK_UNAVAILABLE, stock_error(worker->stock));
        return true;
    }
    const bool as_wanted =
        found == wanted && segments == (wants_segments ? now->segments.count : 0);
    if (found == LAYOUT_NONE || (as_wanted && !was_other))
        return false;
    if (as_wanted) {
        section_end(sale, SALE_OTHER_LAYOUT,
                    "the layout of the stock changed during the request; send it again");
        return true;
    }
    say_layout(found, segments, is);
    say_layout(wanted, now->segments.count, wants);
    snprintf(detail, sizeof detail,
             "the stock of %s is laid out %s, and this instance sells one that is laid out %s; set "
             "it on this instance (PUT /inventory/%s), or switch this instance (PUT /lock)",
             sale->item, is, wants, sale->item);
    section_end(sale, SALE_OTHER_LAYOUT, detail);
    return true;
}

void section_end_by_stock(struct sale_worker *worker, struct sale *sale, enum stock_status status)
{
    if (status == STOCK_STALE)
        sale->newest = stock_newest(worker->stock);
    else if (status == STOCK_UNAVAILABLE || status == STOCK_LOST)
        outage_hint(worker->env->outage, ROLE_STOCK, OUTAGE_LOOK);
    char error[STOCK_ERROR_MAX];
    snprintf(error, sizeof error, "%s", stock_error(worker->stock));
    const bool was_other =
        status == STOCK_SEGMENTED ||
        (status == STOCK_INVALID && stock_was_of_other_type(worker->stock, sale->item_key));
    if ((status == STOCK_INVALID || was_other) && section_end_by_layout(worker, sale, was_other))
        return;
    section_end(sale,
                status == STOCK_MISSING                                ? SALE_UNKNOWN_ITEM
                : status == STOCK_INVALID || status == STOCK_SEGMENTED ? SALE_STOCK_INVALID
                : status == STOCK_STALE                                ? SALE_STALE_TOKEN
                : status == STOCK_EPOCH                                ? SALE_STALE_EPOCH
                                                                       : SALE_STOCK_UNAVAILABLE,
                error);
    if (status == STOCK_EPOCH)
        epoch_refused(worker);
}

const struct stock_fence *section_fence(const struct sale_env *env, const struct sale *sale,
                                        struct section_fence *room)
{
    const int write = env->mode->now.write;
    if (!write_is_fenced(write))
        return NULL;
    enum fence_kind kind = write == WRITE_FENCED_TEXTBOOK ? FENCE_LAST_WRITE
                           : sale_locks(env)->apart       ? FENCE_LAST_READ
                                                          : FENCE_NEWEST;
    snprintf(room->lock_key, sizeof room->lock_key,
             strchr(sale->lock_name, '{') != NULL ? "dlock:token:%s" : "dlock:token={%s}",
             sale->lock_name);
    snprintf(room->mark, sizeof room->mark, "%s:fence", sale->stock_key);
    room->fence = (struct stock_fence){.kind = kind,
                                       .key = kind == FENCE_NEWEST ? room->lock_key : room->mark,
                                       .lock_key = room->lock_key,
                                       .token = sale->token,
                                       .epoch = sale->epoch};
    return &room->fence;
}

bool section_read(struct sale_worker *worker, struct sale *sale, const struct stock_fence *fence,
                  int64_t *stock)
{
    int64_t stocks[SEGMENTS_MAX];
    if (segments_several(worker->env)) {
        if (!segments_read(worker, sale, stocks))
            return false;
        *stock = segments_sum(worker->env, stocks);
        return true;
    }
    enum stock_status status =
        section_layout(worker->env) == LAYOUT_VERSION
            ? stock_read_version(worker->stock, sale->stock_key, stock, &sale->version)
            : stock_read(worker->stock, sale->stock_key, fence, stock);
    if (status != STOCK_OK)
        section_end_by_stock(worker, sale, status);
    return status == STOCK_OK;
}

bool section_asks_replicas(const struct sale_worker *worker)
{
    return worker->env->config->replicas_ack != DLOCK_REPLICAS_NONE;
}

bool section_may_go_on(const struct sale_env *env, struct sale *sale)
{
    const bool reads = sale->purpose == SALE_READ;
    if (env->mode->now.check_hold && !span_is_valid(sale))
        section_end(sale, SALE_LOCK_LOST,
                    reads ? "the hold was no longer valid; nothing was read"
                          : "the hold was no longer valid; nothing was written");
    else if (mono_ns() >= sale->deadline_ns)
        section_end(sale, SALE_DEADLINE,
                    reads ? "its time (--wait-ms) was over before the read"
                          : "its time (--wait-ms) was over before the write");
    else
        return true;
    return false;
}

enum sale_step section_point(struct sale *sale, const char *point, enum sale_step next)
{
    sale->waits_for = WAIT_POINT;
    sale->point = point;
    sale->point_group = NULL;
    return next;
}
