/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_history.h.
 */
#include "lock_history.h"

#include "../lock/clock.h"
#include "log.h"
#include "text.h"

#include <inttypes.h>

/* The holder that the calling thread works for; NULL: none. */
static _Thread_local const struct holder *served;

void lock_history_serve(const struct holder *holder)
{
    served = holder;
}

static struct history_request record_for(const struct holder *holder)
{
    return (struct history_request){
        .thread = holder->thread, .request = holder->request, .item = holder->item};
}

void lock_history_trace(void *arg, const struct dlock_trace *trace)
{
    const int64_t sent_ns = mono_ns() - trace->took_us * 1000;
    char sent[900], reply[400], server[300];
    struct history_request record;
    const struct holder *holder = trace->user != NULL ? trace->user : served;
    if (holder != NULL)
        record = record_for(holder);
    text_quote(sent, sizeof sent, trace->sent);
    text_quote(reply, sizeof reply, trace->reply);
    text_quote(server, sizeof server, trace->server);
    history_event(arg, holder != NULL ? &record : NULL, "command",
                  ",\"sent_ns\":%" PRId64 ",\"server\":\"%s\",\"sent\":\"%s\",\"reply\":\"%s\"",
                  sent_ns, server, sent, reply);
}

void lock_history_event(struct history *history, const struct dlock_event *event)
{
    const struct holder *holder = event->user;
    char reason[160];
    if (event->kind == DLOCK_EVENT_LOST)
        log_event(LOG_WARNING, "lock-lost", "%s: %s", event->name, event->reason);
    else if (event->kind == DLOCK_EVENT_RENEWAL_FAILED)
        log_event(LOG_WARNING, "renewal-failed", "%s: %s", event->name, event->reason);
    if (history == NULL || event->kind == DLOCK_EVENT_RENEWAL_FAILED)
        return;
    struct history_request record = record_for(holder);
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
