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
#include <stdarg.h>
#include <string.h>

struct history_request guard_record(const struct guard *guard)
{
    return (struct history_request){.thread = guard->owner->number,
                                    .request = guard->owner->holder->request,
                                    .item = guard->owner->holder->item,
                                    .rung = guard->frame->options.settings->lock->name,
                                    .lock = guard->lock};
}

/* Its own lines name the hold themselves. */
#define RECORD(guard, event, ...)                                                                  \
    do {                                                                                           \
        const struct history_request record = guard_record(guard);                                 \
        history_event((guard)->frame->history, &record, event, __VA_ARGS__);                       \
    } while (0)

void guard_record_event(const struct guard *guard, const char *event, const char *format, ...)
{
    char members[512];
    va_list values;
    va_start(values, format);
    vsnprintf(members, sizeof members, format, values);
    va_end(values);
    if (guard->hold != NULL)
        RECORD(guard, event, ",\"hold\":\"%s\"%s", guard->hold_id, members);
    else
        RECORD(guard, event, "%s", members);
}

bool guard_begin(struct guard *guard, struct frame *frame, struct request *request,
                 const char *item)
{
    *guard = (struct guard){.frame = frame, .request = request, .item = item, .first = guard};
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
    const struct history_request record = guard_record(guard);
    frame_record_invoke(frame, &record, request);
    return true;
}

void guard_join(struct guard *guard, struct guard *first, const char *item)
{
    *guard = (struct guard){.frame = first->frame,
                            .request = first->request,
                            .item = item,
                            .owner = first->owner,
                            .first = first,
                            .joined = first->joined};
    snprintf(guard->lock, sizeof guard->lock, "lock:{%s}", item);
    first->joined = guard;
}

/* ---- Acquiring ------------------------------------------------------------------------------- */

/* The owner keeps the lock of its latest item open. */
static dlock_status open_lock(struct guard *guard, dlock **lock)
{
    dlock **open = guard->first == guard ? &guard->owner->lock : &guard->own;
    dlock_status status = DLOCK_OK;
    if (*open == NULL || strcmp(dlock_name(*open), guard->lock) != 0) {
        dlock_close(*open);
        *open = NULL;
        status = dlock_open(guard->frame->client, guard->frame->options.settings->lock->name,
                            guard->lock, open);
    }
    *lock = *open;
    return status;
}

void guard_answer(const struct guard *guard, int problem, const char *why)
{
    char detail[512];
    snprintf(detail, sizeof detail, "%s", why);
    text_hide_servers(detail);
    answer_problem(guard->request, problem, "%s", detail);
}

static int problem_of(dlock_status status)
{
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_TIMED_OUT:
        return PROBLEM_LOCK_TIMEOUT;
    case DLOCK_CANCELLED:
        return PROBLEM_DRAINING;
    case DLOCK_UNKNOWN:
    case DLOCK_UNREACHABLE:
    case DLOCK_REFUSED:
        return PROBLEM_LOCK_UNAVAILABLE;
    case DLOCK_LIMIT:
        return PROBLEM_QUEUE_FULL;
    case DLOCK_LOST:
        return PROBLEM_LOCK_LOST;
    case DLOCK_WRONG_TYPE:
        return PROBLEM_LOCK_INVALID;
    default:
        return PROBLEM_INTERNAL;
    }
}

static struct dlock_want want_of(const struct guard *guard, int64_t wait_ms)
{
    return (struct dlock_want){.size = sizeof(struct dlock_want),
                               .wait_ms = wait_ms,
                               .owner_id = guard->owner->number,
                               .cancel = guard->frame->cancel,
                               .user = guard->owner->holder};
}

int64_t guard_left_ms(const struct guard *guard)
{
    const int64_t waited_ms = (mono_ns() - guard->request->arrived_ns) / NS_PER_MS;
    return max_ns(guard->frame->options.settings->wait_ms - waited_ms, 0);
}

static void take_hold(struct guard *guard, dlock_hold *hold, int64_t asked_ns)
{
    guard->hold = hold;
    guard->granted_ns = mono_ns();
    lock_meter_hold();
    lock_meter_acquired(guard->granted_ns - asked_ns);
    const char *owner = dlock_owner(guard->hold);
    snprintf(guard->hold_id, sizeof guard->hold_id, "%s#%" PRIu64, owner,
             dlock_acquisition(guard->hold));
    RECORD(guard, "granted",
           ",\"hold\":\"%s\",\"mode\":\"exclusive\",\"owner\":\"%s\",\"token\":%" PRIu64
           ",\"waited_ns\":%" PRId64,
           guard->hold_id, owner, dlock_token(guard->hold),
           guard->granted_ns - guard->request->arrived_ns);
    RECORD(guard, "enter", ",\"hold\":\"%s\"", guard->hold_id);
}

/* dlock_error() says why there is no hold. */
static dlock_status acquire(struct guard *guard, int64_t wait_ms)
{
    const int64_t asked_ns = mono_ns();
    const struct dlock_want want = want_of(guard, wait_ms);
    dlock *lock;
    dlock_hold *hold = NULL;
    dlock_status status = open_lock(guard, &lock);
    if (status == DLOCK_OK)
        status = dlock_acquire(lock, &want, &hold);
    if (hold != NULL)
        take_hold(guard, hold, asked_ns);
    return status;
}

static dlock_status acquire_all(struct guard *first, int64_t wait_ms)
{
    const int64_t asked_ns = mono_ns();
    const struct dlock_want want = want_of(first, wait_ms);
    dlock *locks[DLOCK_MANY_MAX];
    dlock_hold *holds[DLOCK_MANY_MAX];
    size_t count = 0;
    dlock_status status = DLOCK_OK;
    for (struct guard *guard = first; guard != NULL && status == DLOCK_OK; guard = guard->joined)
        status = open_lock(guard, &locks[count++]);
    if (status == DLOCK_OK)
        status = dlock_acquire_many(locks, count, &want, holds, NULL);
    count = 0;
    for (struct guard *guard = first; guard != NULL && status == DLOCK_OK; guard = guard->joined)
        take_hold(guard, holds[count++], asked_ns);
    return status;
}

/* Answers the request if it does not have its lock, or nobody waits for the answer any more. */
static bool is_entered(const struct guard *guard, dlock_status status)
{
    struct request *request = guard->request;
    if (guard->hold == NULL)
        guard_answer(guard, problem_of(status),
                     status == DLOCK_CANCELLED
                         ? "the instance began to shut down while the request "
                           "waited for the lock"
                         : dlock_error());
    else if (http_is_client_closed(request)) /* it may have sent the request again */
        answer_problem(request, PROBLEM_CLIENT_CLOSED, "it left while it waited for the lock");
    return request->answer.status == 0;
}

bool guard_enter(struct guard *guard)
{
    for (const struct guard *other = guard->first; other != NULL; other = other->joined)
        if (other->hold != NULL)
            GUARD_RECORD(other, "wants", ",\"wants\":\"%s\"", guard->lock);
    return is_entered(guard, acquire(guard, guard_left_ms(guard)));
}

bool guard_enter_all(struct guard *first)
{
    return is_entered(first, acquire_all(first, guard_left_ms(first)));
}

bool guard_try(struct guard *guard)
{
    acquire(guard, 0);
    return guard->hold != NULL;
}

bool guard_is_valid(const struct guard *guard)
{
    return dlock_valid(guard->hold);
}

bool guard_go_on(struct guard *guard)
{
    const bool valid = guard_is_valid(guard);
    if (!valid)
        answer_problem(guard->request, PROBLEM_LOCK_LOST, "the hold is no longer valid");
    return valid;
}

/* ---- Its data -------------------------------------------------------------------------------- */

bool guard_read_failed(struct guard *guard, struct store *store, enum store_status status)
{
    guard_answer(guard, status == STORE_INVALID ? PROBLEM_STORE_INVALID : PROBLEM_STORE_UNAVAILABLE,
                 store_error(store));
    return false;
}

#define KILL_PAUSE_MS 50

void guard_end_lost(struct guard *guard, struct store *store)
{
    const struct store_broken broken = store_broken(store);
    const int64_t ends_ns = mono_deadline_ns(2 * guard->frame->options.settings->redis_timeout_ms);
    enum store_status killed;
    while ((killed = store_kill_broken(store, &broken)) == STORE_UNAVAILABLE && mono_ns() < ends_ns)
        frame_take_ms(KILL_PAUSE_MS);
    struct guard *first = guard->first != NULL ? guard->first : guard; /* it has not begun */
    first->abandons |= killed != STORE_OK;
}

bool guard_repeat(struct guard *guard, struct store *store, int argc, const char *const *argv)
{
    const struct settings_common *settings = guard->frame->options.settings;
    const int64_t until_ns = mono_deadline_ns(settings->wait_ms);
    const redisReply *reply;
    enum store_status status;
    while ((status = store_command(store, argc, argv, &reply)) != STORE_OK) {
        if (status == STORE_LOST)
            guard_end_lost(guard, store);
        if (mono_ns() >= until_ns)
            return false;
        frame_take_ms(settings->retry_ms);
    }
    return true;
}

bool guard_write_failed(struct guard *guard, struct store *store, enum store_status status)
{
    if (status != STORE_LOST)
        return guard_read_failed(guard, store, status);
    guard_answer(guard, PROBLEM_OUTCOME_UNKNOWN, store_error(store));
    guard_end_lost(guard, store);
    return false;
}

/* ---- The end --------------------------------------------------------------------------------- */

/* False: this rung cannot leave a lock to expire. It must be released, though a write may come. */
static bool guard_abandon(struct guard *guard)
{
    const dlock_status status = dlock_abandon(guard->hold);
    if (status != DLOCK_OK && status != DLOCK_LOST)
        return false;
    guard->hold = NULL;
    lock_meter_held(mono_ns() - guard->granted_ns);
    log_event(LOG_WARNING, "abandoned",
              "%s: a write may still arrive, so the lock is left to expire", guard->lock);
    RECORD(guard, "release", ",\"hold\":\"%s\",\"status\":\"ABANDONED\"", guard->hold_id);
    return true;
}

void guard_leave(struct guard *guard)
{
    if (guard->hold == NULL)
        return;
    RECORD(guard, "exit", ",\"hold\":\"%s\"", guard->hold_id);
    if (guard->first->abandons && guard_abandon(guard))
        return;
    const dlock_status released = dlock_release(guard->hold, NULL);
    guard->hold = NULL;
    lock_meter_held(mono_ns() - guard->granted_ns);
    if (released == DLOCK_OK)
        lock_meter_release();
    else
        log_event(LOG_WARNING, "release", "%s: %s", guard->lock, dlock_error());
    RECORD(guard, "release", ",\"hold\":\"%s\",\"status\":\"%s\"", guard->hold_id,
           dlock_status_name(released));
}

static void record_problem(const struct guard *guard)
{
    const struct answer *answer = &guard->request->answer;
    const char *reason = problem_type(answer->problem);
    const char *event = strcmp(reason, "outcome-unknown") == 0          ? "unknown"
                        : answer->status < 500 || answer->status == 503 ? "refused"
                                                                        : "fail";
    RECORD(guard, event, ",\"code\":%u,\"reason\":\"%s\"", answer->status, reason);
}

void guard_end(struct guard *guard)
{
    if (guard->owner == NULL)
        return;
    for (struct guard *other = guard->joined; other != NULL; other = other->joined) {
        guard_leave(other);
        dlock_close(other->own);
    }
    guard_leave(guard);
    if (guard->request->answer.status >= 400)
        record_problem(guard);
    lock_history_serve(NULL);
    lock_owner_give(&guard->frame->owners, guard->owner);
}
