/* SPDX-License-Identifier: Apache-2.0
 *
 * See sale_record.h.
 */
#include "sale_record.h"

#include "../lock/clock.h"
#include "lock_history.h"
#include "log.h"
#include "metrics.h"
#include "queue.h"
#include "span.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

struct history_request sale_record_of(const struct sale_env *env, const struct sale *sale)
{
    return (struct history_request){.thread =
                                        sale->lock_owner != NULL ? sale->lock_owner->number : 0,
                                    .request = sale->request,
                                    .item = sale->item,
                                    .rung = env->mode->now.rung->name,
                                    .lock = sale->lock_name};
}

void sale_record_end(const struct sale_env *env, const struct sale *sale)
{
    static const struct {
        const char *event, *reason;
    } rows[] = {
#define X(name, event, reason) {event, reason},
        SALE_RESULTS(X)
#undef X
    };
    const bool is_recorded = sale->step > STEP_ASIDE; /* its invoke was recorded */
    char entry[STOCK_ENTRY_MAX + 16] = "";
    if (sale->purpose == SALE_RESTOCK)
        return;
    if (sale->processes)
        metrics_queue(sale->settled, sale->passed);
    if (sale->passed)
        return;
    if (sale->processes && !sale->settled) {
        RECORD(env, sale, "requeued", ",\"code\":%d,\"reason\":\"%s\"", env->codes[sale->result],
               rows[sale->result].reason[0] != '\0' ? rows[sale->result].reason
                                                    : "outcome-unknown");
        return;
    }
    if (sale->processes)
        snprintf(entry, sizeof entry, ",\"entry\":\"%s\"", sale->entry->number);
    if (sale->purpose == SALE_READ)
        metrics_read((int)sale->result);
    else if (sale->replayed)
        metrics_replayed();
    else
        metrics_sale((int)sale->result);
    if (sale->replayed) /* selling_replay has recorded it */
        return;
    if (is_recorded && sale->result == SALE_STALE_TOKEN)
        RECORD(env, sale, "refused",
               ",\"code\":%d,\"reason\":\"stale-token\",\"token\":%" PRIu64 ",\"newest\":%" PRIu64,
               env->codes[SALE_STALE_TOKEN], sale->token, sale->newest);
    else if (is_recorded && rows[sale->result].reason[0] != '\0')
        RECORD(env, sale, rows[sale->result].event, ",\"code\":%d,\"reason\":\"%s\"%s%s",
               env->codes[sale->result], rows[sale->result].reason,
               sale->kept ? ",\"kept\":true" : "", entry);
}

void sale_record_invoke(const struct sale_env *env, const struct sale *sale)
{
    char key[2 * SALE_KEY_MAX + 4] = "";
    text_quote(key, sizeof key, sale->key);
    if (sale->key[0] != '\0')
        RECORD(env, sale, "invoke", ",\"quantity\":%" PRId64 ",\"key\":\"%s\"", sale->quantity,
               key);
    else if (sale->purpose != SALE_RESTOCK)
        RECORD(env, sale, "invoke", ",\"quantity\":%" PRId64,
               sale->purpose == SALE_READ ? 0 : sale->quantity);
}

void sale_record_enter(const struct sale_env *env, struct sale *sale)
{
    const dlock_hold *hold = sale->hold;
    if (sale->purpose == SALE_RESTOCK || env->history == NULL)
        return;
    span_name_hold(sale);
    RECORD(env, sale, "granted",
           ",\"hold\":\"%s\",\"mode\":\"%s\",\"owner\":\"%s\",\"token\":%" PRIu64
           ",\"waited_ns\":%" PRId64,
           sale->hold_id, sale->mode == DLOCK_SHARED ? "shared" : "exclusive", dlock_owner(hold),
           dlock_token(hold), sale->granted_ns - sale->arrived_ns);
    RECORD(env, sale, "enter", ",\"hold\":\"%s\"", sale->hold_id);
}

void sale_record_read(const struct sale_env *env, const struct sale *sale, int64_t stock)
{
    char epoch[40] = "";
    if (sale->epoch != 0)
        snprintf(epoch, sizeof epoch, ",\"epoch\":%" PRIu64, sale->epoch);
    RECORD(env, sale, "read", ",\"hold\":\"%s\",\"stock_before\":%" PRId64 "%s", sale->hold_id,
           stock, epoch);
}

void sale_record_segments(const struct sale_env *env, struct sale *sale,
                          const int64_t stocks[SEGMENTS_MAX])
{
    const int64_t all = segments_sum(env, stocks);
    for (size_t i = span_count(sale); i-- > 0;) {
        span_turn(env, sale, i);
        RECORD(env, sale, "read",
               ",\"hold\":\"%s\",\"segment\":%d,\"stock_before\":%" PRId64 ",\"all\":%" PRId64,
               sale->hold_id, sale->segment, stocks[sale->segment - 1], all);
    }
}

/* ---- Events of the lock library -------------------------------------------------------------- */

void sale_on_event(void *arg, const struct dlock_event *event)
{
    const struct lock_servers *locks = arg;
    const struct sale_env *env = locks->env;
    const struct holder *holder = event->user;
    if (event->name == NULL) {
        outage_hint_about(env->outage, locks->role, event->reason,
                          event->kind == DLOCK_EVENT_CONNECTION_RESTORED ? OUTAGE_RESTORED
                                                                         : OUTAGE_LOST);
        if (event->kind == DLOCK_EVENT_CONNECTION_REFUSED)
            log_event(LOG_WARNING, "lock-server-refuses", "%s", event->reason);
        return;
    }
    if (holder == NULL) /* a check of the servers: see lock_servers_try */
        return;
    lock_history_event(holder->purpose == SALE_RESTOCK ? NULL : env->history, event);
}
