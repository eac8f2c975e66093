/* SPDX-License-Identifier: Apache-2.0
 *
 * See guard.h.
 */
#include "guard.h"

#include "../lock/clock.h"
#include "lock_history.h"
#include "lock_meter.h"
#include "log.h"
#include "text.h"

#include <inttypes.h>
#include <string.h>

struct history_request guard_record(const struct guard *guard)
{
    return (struct history_request){.thread = guard->owner->number,
                                    .request = guard->request->id,
                                    .item = guard->item,
                                    .rung = guard->frame->options.settings->lock->name,
                                    .lock = guard->lock};
}

bool guard_begin(struct guard *guard, struct frame *frame, struct request *request,
                 const char *item)
{
    *guard = (struct guard){.frame = frame, .request = request, .item = item};
    snprintf(guard->lock, sizeof guard->lock, "lock:{%s}", item);
    guard->owner = lock_owner_take(&frame->owners);
    if (guard->owner == NULL) {
        answer_problem(request, PROBLEM_INTERNAL, "out of memory");
        return false;
    }
    struct holder *holder = guard->owner->holder;
    holder->thread = guard->owner->number;
    snprintf(holder->request, sizeof holder->request, "%s", request->id);
    snprintf(holder->item, sizeof holder->item, "%s", item);
    lock_history_serve(holder);
    return true;
}

/* The owner keeps the lock of its latest item open. */
static dlock_status open_lock(const struct guard *guard)
{
    struct lock_owner *owner = guard->owner;
    if (owner->lock != NULL && strcmp(dlock_name(owner->lock), guard->lock) == 0)
        return DLOCK_OK;
    dlock_close(owner->lock);
    owner->lock = NULL;
    return dlock_open(guard->frame->client, guard->frame->options.settings->lock->name, guard->lock,
                      &owner->lock);
}

static void answer_not_granted(struct request *request, dlock_status status)
{
    char detail[512];
    snprintf(detail, sizeof detail, "%s", dlock_error());
    text_hide_servers(detail);
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_TIMED_OUT:
        answer_problem(request, PROBLEM_LOCK_TIMEOUT, "%s", detail);
        break;
    case DLOCK_CANCELLED:
        answer_problem(request, PROBLEM_DRAINING,
                       "the instance began to shut down while the request waited for the lock");
        break;
    case DLOCK_UNKNOWN:
    case DLOCK_UNREACHABLE:
    case DLOCK_REFUSED:
        answer_problem(request, PROBLEM_LOCK_UNAVAILABLE, "%s", detail);
        break;
    case DLOCK_WRONG_TYPE:
        answer_problem(request, PROBLEM_LOCK_INVALID, "%s", detail);
        break;
    default:
        answer_problem(request, PROBLEM_INTERNAL, "%s", detail);
    }
}

bool guard_enter(struct guard *guard, struct request *request)
{
    const struct settings_common *settings = guard->frame->options.settings;
    const int64_t asked_ns = mono_ns();
    const int64_t left_ms = settings->wait_ms - (asked_ns - request->arrived_ns) / NS_PER_MS;
    struct dlock_want want = {.size = sizeof want,
                              .wait_ms = left_ms > 0 ? left_ms : 0,
                              .owner_id = guard->owner->number,
                              .cancel = guard->frame->cancel,
                              .user = guard->owner->holder};
    dlock_status status = open_lock(guard);
    if (status == DLOCK_OK)
        status = dlock_acquire(guard->owner->lock, &want, &guard->hold);
    if (guard->hold == NULL) {
        answer_not_granted(request, status);
        return false;
    }
    guard->granted_ns = mono_ns();
    lock_meter_hold();
    lock_meter_acquired(guard->granted_ns - asked_ns);
    const char *owner = dlock_owner(guard->hold);
    snprintf(guard->hold_id, sizeof guard->hold_id, "%s#%" PRIu64, owner,
             dlock_acquisition(guard->hold));
    GUARD_RECORD(guard, "granted",
                 ",\"hold\":\"%s\",\"mode\":\"exclusive\",\"owner\":\"%s\",\"token\":%" PRIu64
                 ",\"waited_ns\":%" PRId64,
                 guard->hold_id, owner, dlock_token(guard->hold),
                 guard->granted_ns - request->arrived_ns);
    GUARD_RECORD(guard, "enter", ",\"hold\":\"%s\"", guard->hold_id);
    return true;
}

bool guard_is_valid(const struct guard *guard)
{
    return dlock_valid(guard->hold);
}

void guard_leave(struct guard *guard)
{
    if (guard->hold == NULL)
        return;
    GUARD_RECORD(guard, "exit", ",\"hold\":\"%s\"", guard->hold_id);
    const dlock_status released = dlock_release(guard->hold, NULL);
    guard->hold = NULL;
    lock_meter_held(mono_ns() - guard->granted_ns);
    if (released == DLOCK_OK)
        lock_meter_release();
    else
        log_event(LOG_WARNING, "release", "%s: %s", guard->lock, dlock_error());
    GUARD_RECORD(guard, "release", ",\"hold\":\"%s\",\"status\":\"%s\"", guard->hold_id,
                 dlock_status_name(released));
}

void guard_end(struct guard *guard)
{
    guard_leave(guard);
    lock_history_serve(NULL);
    lock_owner_give(&guard->frame->owners, guard->owner);
}
