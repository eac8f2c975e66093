/* SPDX-License-Identifier: Apache-2.0
 *
 * See timekeeper.h. The thread does one thing at a time, the most urgent first. It reports a loss,
 * takes an answer, or sends what is due. While it waits for a server, its timer is set to its next
 * task. So a server that hangs delays no report, and no renewal waits for another's answer.
 */
#include "timekeeper.h"

#include "client.h"
#include "owner.h"
#include "thread.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RENEWALS_PER_TTL 3
#define RETRIES_PER_TTL 30
#define TOGETHER_NS (10 * NS_PER_MS) /* sent together with one that is due */
/* The pauses between attempts to send what is kept: each is twice as long as the one before. */
#define KEPT_NS (100 * NS_PER_MS)
#define KEPT_MOST_NS (1000 * NS_PER_MS)
#define LOOK_AGAIN_NS (10 * NS_PER_MS) /* what is due and could not be sent beside others */

static int64_t valid_until(const struct dlock_hold *hold)
{
    return atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
}

/* ---- The timer ------------------------------------------------------------------------------- */

/* until_ns: absolute, CLOCK_BOOTTIME; INT64_MAX: the timer is stopped. */
static void set_timer(int fd, int64_t until_ns)
{
    struct itimerspec at = {0};
    if (until_ns <= 0)
        at.it_value.tv_nsec = 1; /* in the past; 0 would stop the timer */
    else if (until_ns != INT64_MAX)
        at.it_value = timespec_of(until_ns);
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void set_lost_fd(const struct dlock_hold *hold)
{
    if (hold->lost_fd >= 0)
        set_timer(hold->lost_fd, valid_until(hold));
}

/* When the thread's next task is due. While it is busy, only a loss counts. */
static int64_t next_moment(const struct timekeeper *timekeeper)
{
    int64_t end_ns = heap_soonest_ns(&timekeeper->ends);
    int64_t next_ns = min_ns(heap_soonest_ns(&timekeeper->waiting), timekeeper->sends_kept_ns);
    return timekeeper->busy ? end_ns : min_ns(end_ns, next_ns);
}

static void wake_at(struct timekeeper *timekeeper, int64_t at_ns)
{
    if (at_ns >= timekeeper->next_ns)
        return;
    timekeeper->next_ns = at_ns;
    set_timer(timekeeper->timer_fd, at_ns);
}

/* From here to stop_waiting the mutex is released. The timer interrupts the wait, at until_ns at
 * the latest. */
static void start_waiting(struct timekeeper *timekeeper, int64_t until_ns)
{
    timekeeper->next_ns = min_ns(next_moment(timekeeper), until_ns);
    set_timer(timekeeper->timer_fd, timekeeper->next_ns);
    pthread_mutex_unlock(&timekeeper->mutex);
}

static void stop_waiting(struct timekeeper *timekeeper)
{
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper->next_ns = INT64_MIN;
    timekeeper->busy = false;
}

/* ---- Holds that share a key ------------------------------------------------------------------ */

static bool timekeeper_shares_key(const struct dlock_hold *hold, const struct dlock_hold *other)
{
    return hold == other || hold->lock->holding->shares_key(hold, other);
}

static struct dlock_hold *timekeeper_next_sharing(const struct dlock_hold *hold,
                                                  struct dlock_hold *from)
{
    while (from != NULL && !timekeeper_shares_key(hold, from))
        from = LIST_NEXT(from, of_lock);
    return from;
}

/* Iterates over the holds that depend on the hold's key, itself included. The lock's mutex is held.
 */
static struct dlock_hold *first_sharing(struct dlock_hold *hold)
{
    return owner_may_nest(hold)
               ? timekeeper_next_sharing(hold, LIST_FIRST(holds_of(&hold->lock->holds, hold)))
               : hold;
}

static struct dlock_hold *next_sharing(const struct dlock_hold *hold, struct dlock_hold *other)
{
    return owner_may_nest(hold) ? timekeeper_next_sharing(hold, LIST_NEXT(other, of_lock)) : NULL;
}

#define EACH_SHARING(other, hold)                                                                  \
    for ((other) = first_sharing(hold); (other) != NULL; (other) = next_sharing(hold, other))

/* ---- What a hold is given -------------------------------------------------------------------- */

int64_t renewal_ms(const struct dlock_hold *hold, int64_t sent_ns)
{
    if (hold->ends_ns == INT64_MAX)
        return hold->ttl_ms;
    return min_ns(hold->ttl_ms, (hold->ends_ns - sent_ns) / NS_PER_MS);
}

int64_t hold_valid_until(const struct dlock_hold *hold, int64_t sent_ns, int64_t ttl_ms)
{
    int64_t until_ns = validity_end_ns(sent_ns, min_ns(ttl_ms, hold->ttl_ms));
    if (hold->ends_ns == INT64_MAX)
        return until_ns;
    int64_t from_ns = max_ns(sent_ns, hold->ends_ns - hold->hold_max_ms * NS_PER_MS);
    return min_ns(until_ns, validity_end_ns(from_ns, (hold->ends_ns - from_ns) / NS_PER_MS));
}

static void put_turn(struct heap *heap, struct dlock_hold *hold, int64_t at_ns)
{
    bool renewed = hold->lock->rung.renewed && hold->lock->client->engine->renewer != NULL &&
                   hold->watched && !hold->ending && dlock_valid(hold);
    heap_put(heap, &hold->turn, renewed ? at_ns : INT64_MAX);
}

/* Sets when the thread renews the hold next. */
static void set_turn(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t at_ns)
{
    put_turn(&timekeeper->waiting, hold, at_ns);
}

/* A renewal under way is for this hold, too. */
static void set_awaiting(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    put_turn(&timekeeper->renewals.under_way, hold, valid_until(hold));
}

static bool timekeeper_has_turn(const struct timekeeper *timekeeper, const struct dlock_hold *hold)
{
    return hold->turn.in == &timekeeper->waiting || hold->turn.in == &timekeeper->due;
}

static void set_due(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    heap_put(&timekeeper->due, &hold->turn, valid_until(hold));
}

/* How long after a renewal that gave it `given_ms` the hold is renewed again. */
static int64_t renewed_after_ns(const struct dlock_hold *hold, int64_t given_ms)
{
    int64_t after_ns = given_ms * NS_PER_MS / RENEWALS_PER_TTL;
    return hold->renews_ms > 0 ? min_ns(after_ns, hold->renews_ms * NS_PER_MS) : after_ns;
}

/* A hold that has expired stays expired: another client may have held the lock since, even if the
 * owner has it again. `awaited`: a renewal of a hold with the same key is under way, and its answer
 * sets their turns. If another one were sent first, that answer would be dropped. */
static void extend_one(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                       int64_t ttl_ms, bool awaited)
{
    int64_t given_ms = min_ns(ttl_ms, renewal_ms(hold, sent_ns));
    int64_t until_ns = hold_valid_until(hold, sent_ns, ttl_ms);
    if (!dlock_valid(hold))
        return;
    bool later = until_ns >= valid_until(hold);
    if (later) {
        atomic_store_explicit(&hold->valid_until_ns, until_ns, memory_order_release);
        set_lost_fd(hold);
        hold->ending = sent_ns + given_ms * NS_PER_MS > hold->ends_ns - NS_PER_MS;
    }
    if (hold->watched && later)
        heap_put(&timekeeper->ends, &hold->end, until_ns);
    if (awaited)
        set_awaiting(timekeeper, hold);
    else if (later || !timekeeper_has_turn(timekeeper, hold))
        set_turn(timekeeper, hold, sent_ns + renewed_after_ns(hold, given_ms));
}

/* Both use one key, which gets the longer of their times to live. */
static void timekeeper_extend_shared(struct dlock_hold *hold, struct dlock_hold *other)
{
    int64_t ms = hold_longest_ms(hold), other_ms = hold_longest_ms(other);
    if (hold->shared_ms < other_ms)
        hold->shared_ms = other_ms;
    if (other->shared_ms < ms)
        other->shared_ms = ms;
}

/* A request sent at sent_ns gave a time to live to the hold, and to those that share its key. If
 * one of them now ends before all others that await an answer, the thread must wait less long. */
static void timekeeper_extend_all(struct timekeeper *timekeeper, struct dlock_hold *hold,
                                  int64_t sent_ns, int64_t ttl_ms)
{
    struct dlock_hold *other;
    bool awaited = false;
    int64_t soonest_ns = heap_soonest_ns(&timekeeper->renewals.under_way);
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_SHARING(other, hold)
        awaited |= other->renewal_sent != NULL;
    EACH_SHARING(other, hold) {
        if (other != hold)
            timekeeper_extend_shared(hold, other);
        extend_one(timekeeper, other, sent_ns, ttl_ms, awaited);
    }
    pthread_mutex_unlock(&hold->lock->mutex);
    if (heap_soonest_ns(&timekeeper->renewals.under_way) < soonest_ns)
        wake_at(timekeeper, 0);
}

/* The thread reports them in its next rounds. */
static void timekeeper_lose_all(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    struct dlock_hold *other;
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_SHARING(other, hold) {
        if (other->leaving)
            continue;
        atomic_store_explicit(&other->valid_until_ns, 0, memory_order_release);
        set_lost_fd(other);
        heap_take(&other->turn);
        if (other->watched && !other->told)
            heap_put(&timekeeper->ends, &other->end, 0);
    }
    EACH_NEAR(other, &hold->lock->calls, hold, of_calls)
        other->lost_while_nesting |= strcmp(other->owner, hold->owner) == 0;
    pthread_mutex_unlock(&hold->lock->mutex);
}

/* No renewal of the hold is sent, and no answer to one is read, after this. If holds that share its
 * key relied on its renewal, they get one of their own. */
static void leave_renewals(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    struct dlock_hold *other;
    bool relied_on = hold->renewal_sent != NULL || hold->turn.in == &timekeeper->due;
    heap_take(&hold->turn);
    renewals_drop(hold);
    if (!relied_on)
        return;
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_SHARING(other, hold)
        if (other != hold && !timekeeper_has_turn(timekeeper, other))
            set_turn(timekeeper, other, 0);
    pthread_mutex_unlock(&hold->lock->mutex);
}

/* ---- Reporting ------------------------------------------------------------------------------- */

/* The mutex is held at call and return, and released between them. busy_with keeps the hold alive.
 */
static void timekeeper_notify(struct timekeeper *timekeeper, struct dlock_hold *hold,
                              enum dlock_event_kind kind, const char *reason)
{
    struct dlock_client *client = timekeeper->client;
    char kept[SENTENCE_MAX]; /* the hook may change dlock_error() of this thread */
    snprintf(kept, sizeof kept, "%s", reason);
    timekeeper->busy_with = hold;
    pthread_mutex_unlock(&timekeeper->mutex);
    if (kind == DLOCK_EVENT_LOST)
        hold->lock->holding->lost(hold);
    struct dlock_event event = {
        .size = sizeof event,
        .kind = kind,
        .name = hold->lock->name,
        .rung = hold->lock->rung.name,
        .owner = hold->owner,
        .acquisition = hold->acquisition,
        .remaining_ms = dlock_remaining_ms(hold),
        .reason = kept,
        .user = hold->user,
    };
    if (client->options.on_event != NULL)
        client->options.on_event(client->options.on_event_arg, &event);
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper->busy_with = NULL;
    pthread_cond_broadcast(&timekeeper->idle);
}

static void tell_lost(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    hold->told = true;
    heap_take(&hold->end);
    leave_renewals(timekeeper, hold);
    add_one(&timekeeper->client->lost);
    timekeeper_notify(timekeeper, hold, DLOCK_EVENT_LOST,
                      valid_until(hold) == 0     ? "the lock no longer belongs to this owner"
                      : hold->ending             ? "its hold_max_ms has passed"
                      : hold->lock->rung.renewed ? "it could not be renewed in time"
                                                 : "its time to live has ended");
}

struct notice {
    STAILQ_ENTRY(notice) of_notices;
    enum dlock_event_kind kind;
    char reason[];
};

void timekeeper_notice(void *arg, enum outage outage, const char *reason)
{
    static const enum dlock_event_kind kinds[] = {
        [OUTAGE_LOST] = DLOCK_EVENT_CONNECTION_LOST,
        [OUTAGE_REFUSED] = DLOCK_EVENT_CONNECTION_REFUSED,
        [OUTAGE_RESTORED] = DLOCK_EVENT_CONNECTION_RESTORED,
    };
    struct timekeeper *timekeeper = arg;
    size_t size = strlen(reason) + 1;
    if (timekeeper->client->options.on_event == NULL)
        return;
    struct notice *notice = malloc(sizeof *notice + size);
    if (notice == NULL)
        return;
    notice->kind = kinds[outage];
    memcpy(notice->reason, reason, size);
    pthread_mutex_lock(&timekeeper->mutex);
    STAILQ_INSERT_TAIL(&timekeeper->notices, notice, of_notices);
    if (timekeeper->busy_with == NULL) /* else it looks later: no renewal is cut off */
        wake_at(timekeeper, 0);
    pthread_mutex_unlock(&timekeeper->mutex);
}

static struct notice *take_notice(struct timekeeper *timekeeper)
{
    struct notice *notice = STAILQ_FIRST(&timekeeper->notices);
    if (notice != NULL)
        STAILQ_REMOVE_HEAD(&timekeeper->notices, of_notices);
    return notice;
}

static void tell_notice(struct timekeeper *timekeeper)
{
    struct dlock_client *client = timekeeper->client;
    struct notice *notice = take_notice(timekeeper);
    struct dlock_event event = {
        .size = sizeof event, .kind = notice->kind, .reason = notice->reason};
    pthread_mutex_unlock(&timekeeper->mutex);
    client->options.on_event(client->options.on_event_arg, &event);
    free(notice);
    pthread_mutex_lock(&timekeeper->mutex);
}

/* ---- Renewing -------------------------------------------------------------------------------- */

/* Takes the turns of all holds that share the key; they await one answer. Returns the longest time
 * to live that one of them wants. */
static int64_t take_turns(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns)
{
    struct dlock_hold *other;
    int64_t ttl_ms = renewal_ms(hold, sent_ns);
    set_awaiting(timekeeper, hold);
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_SHARING(other, hold) {
        set_awaiting(timekeeper, other);
        int64_t other_ms = renewal_ms(other, sent_ns);
        if (dlock_valid(other) && other_ms > ttl_ms)
            ttl_ms = other_ms;
    }
    pthread_mutex_unlock(&hold->lock->mutex);
    return ttl_ms;
}

/* Sets the next turn of all holds that share the key. */
static void retry_at(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t now_ns)
{
    struct dlock_hold *other;
    pthread_mutex_lock(&hold->lock->mutex);
    EACH_SHARING(other, hold)
        set_turn(timekeeper, other, now_ns + other->ttl_ms * NS_PER_MS / RETRIES_PER_TTL);
    pthread_mutex_unlock(&hold->lock->mutex);
}

static void timekeeper_conclude(struct timekeeper *timekeeper, const struct renewed *renewed)
{
    struct dlock_client *client = timekeeper->client;
    struct dlock_hold *hold = renewed->hold;
    if (renewed->status == DLOCK_LOST) {
        timekeeper_lose_all(timekeeper, hold);
        return;
    }
    bool ok = renewed->status == DLOCK_OK;
    add_one(ok ? &client->renewals : &client->renewals_failed);
    if (ok)
        timekeeper_extend_all(timekeeper, hold, renewed->sent_ns, renewed->ttl_ms);
    else
        retry_at(timekeeper, hold, client->now_ns());
    if (client->options.on_event != NULL)
        timekeeper_notify(timekeeper, hold, ok ? DLOCK_EVENT_RENEWED : DLOCK_EVENT_RENEWAL_FAILED,
                          ok ? "renewed" : renewed->why);
}

static struct dlock_hold *first_due(const struct timekeeper *timekeeper)
{
    return HEAP_THING(timekeeper->due.first, struct dlock_hold, turn);
}

/* No server answers: all renewals that are due have failed. */
static void fail_due(struct timekeeper *timekeeper, dlock_status status)
{
    char why[SENTENCE_MAX];
    struct renewed failed = {.status = status, .why = why};
    snprintf(why, sizeof why, "%s", dlock_error());
    while ((failed.hold = first_due(timekeeper)) != NULL &&
           heap_soonest_ns(&timekeeper->ends) > timekeeper->client->now_ns())
        timekeeper_conclude(timekeeper, &failed);
}

/* Renews by the rung's own slot, which waits for its answer. */
static void renew_alone(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns)
{
    struct renewed renewed = {
        .hold = hold, .sent_ns = sent_ns, .ttl_ms = take_turns(timekeeper, hold, sent_ns)};
    struct renewals *renewals = &timekeeper->renewals;
    int64_t deadline_ns = mono_ns() + (valid_until(hold) - sent_ns) / 2;
    timekeeper->busy_with = hold;
    timekeeper->busy = true;
    start_waiting(timekeeper, INT64_MAX);
    renewed.status = renewals->ops->alone(renewals->renewer, hold, renewed.ttl_ms, deadline_ns,
                                          timekeeper->timer_fd);
    renewed.why = dlock_error();
    stop_waiting(timekeeper);
    timekeeper_conclude(timekeeper, &renewed);
    timekeeper->busy_with = NULL;
    pthread_cond_broadcast(&timekeeper->idle);
}

static bool timekeeper_goes(const struct timekeeper *timekeeper, const struct dlock_hold *hold,
                            enum renewal_way way)
{
    return hold != NULL && timekeeper->renewals.ops->way(hold) == way;
}

/* Begins the hold's round, without the mutex. busy_with keeps the hold alive. */
static void begin_round(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns)
{
    struct renewed failed = {
        .hold = hold, .status = DLOCK_NO_MEMORY, .why = "out of memory", .sent_ns = sent_ns};
    struct renewals *renewals = &timekeeper->renewals;
    int64_t ttl_ms = take_turns(timekeeper, hold, sent_ns);
    int64_t deadline_ns = mono_ns() + (valid_until(hold) - sent_ns) / 2;
    timekeeper->busy_with = hold;
    pthread_mutex_unlock(&timekeeper->mutex);
    struct renewal *renewal =
        renewals->ops->round_begin(renewals->renewer, hold, ttl_ms, deadline_ns);
    pthread_mutex_lock(&timekeeper->mutex);
    if (renewal != NULL) {
        *renewal = (struct renewal){.hold = hold, .sent_ns = sent_ns, .ttl_ms = ttl_ms};
        hold->renewal_sent = renewal;
    } else {
        timekeeper_conclude(timekeeper, &failed);
    }
    timekeeper->busy_with = NULL;
    pthread_cond_broadcast(&timekeeper->idle);
}

static bool timekeeper_is_in_round(const struct timekeeper *timekeeper,
                                   const struct dlock_hold *hold)
{
    return timekeeper->busy_with == hold || hold->in_round || hold->renewal_sent != NULL;
}

/* Begins a round for each hold that is due, unless a loss is to be told first. They are sent in
 * wait_for_rounds. A hold has one round at a time, and gets its turn again at that one's end. */
static void begin_rounds(struct timekeeper *timekeeper, int64_t sent_ns)
{
    const struct renewals *renewals = &timekeeper->renewals;
    struct dlock_hold *hold;
    while ((hold = first_due(timekeeper)) != NULL &&
           timekeeper_goes(timekeeper, hold, RENEWED_IN_ROUNDS) &&
           renewals->ops->rounds(renewals->renewer) < RENEWALS_UNDER_WAY_MAX &&
           heap_soonest_ns(&timekeeper->ends) > timekeeper->client->now_ns()) {
        if (timekeeper_is_in_round(timekeeper, hold))
            heap_take(&hold->turn);
        else
            begin_round(timekeeper, hold, sent_ns);
    }
}

static struct renewal *round_over(const struct timekeeper *timekeeper)
{
    const struct renewals *renewals = &timekeeper->renewals;
    return renewals->ops != NULL ? renewals->ops->round_over(renewals->renewer) : NULL;
}

/* If its hold has ended meanwhile, only the engine's part is left to do. */
static void end_round(struct timekeeper *timekeeper, struct renewal *renewal)
{
    struct renewals *renewals = &timekeeper->renewals;
    struct dlock_hold *hold = renewal->hold;
    struct renewed renewed = {.hold = hold, .sent_ns = renewal->sent_ns, .ttl_ms = renewal->ttl_ms};
    if (hold != NULL)
        renewals_drop(hold);
    timekeeper->busy_with = hold;
    pthread_mutex_unlock(&timekeeper->mutex);
    renewed.status = renewals->ops->round_end(renewals->renewer, renewal, hold);
    renewed.why = dlock_error();
    pthread_mutex_lock(&timekeeper->mutex);
    if (hold != NULL)
        timekeeper_conclude(timekeeper, &renewed);
    timekeeper->busy_with = NULL;
    pthread_cond_broadcast(&timekeeper->idle);
}

static bool has_rounds(const struct timekeeper *timekeeper)
{
    const struct renewals *renewals = &timekeeper->renewals;
    return renewals->ops != NULL && renewals->ops->rounds(renewals->renewer) > 0;
}

/* What becomes due in the meantime is sent without waiting for answers. A server that was lost is
 * connected again in the meantime; what cannot be sent before that looks again soon. */
static void wait_for_rounds(struct timekeeper *timekeeper)
{
    struct renewals *renewals = &timekeeper->renewals;
    int64_t until_ns = INT64_MAX;
    if (first_due(timekeeper) != NULL) {
        const uint32_t servers = atomic_load(&first_due(timekeeper)->servers);
        int64_t left_ns = valid_until(first_due(timekeeper)) - timekeeper->client->now_ns();
        int64_t limit_ns = mono_ns() + left_ns / 2;
        pthread_mutex_unlock(&timekeeper->mutex);
        dlock_status status = renewals->ops->ready(renewals->renewer, servers, limit_ns, -1);
        pthread_mutex_lock(&timekeeper->mutex);
        if (status == DLOCK_OK)
            begin_rounds(timekeeper, timekeeper->client->now_ns());
        if (timekeeper->stop || !STAILQ_EMPTY(&timekeeper->notices))
            return; /* they came while it was awake, so the timer was not set for them */
        if (first_due(timekeeper) != NULL)
            until_ns = timekeeper->client->now_ns() + LOOK_AGAIN_NS;
    }
    start_waiting(timekeeper, until_ns);
    renewals->ops->rounds_wait(renewals->renewer, timekeeper->timer_fd);
    stop_waiting(timekeeper);
}

/* Adds what is due. It is sent in renewals_wait, without the mutex. */
static void send_due(struct timekeeper *timekeeper, int64_t sent_ns)
{
    struct renewals *renewals = &timekeeper->renewals;
    struct dlock_hold *hold;
    while ((hold = first_due(timekeeper)) != NULL &&
           timekeeper_goes(timekeeper, hold, RENEWED_TOGETHER) && renewals_has_room(renewals))
        renewals_add(renewals, hold, take_turns(timekeeper, hold, sent_ns), sent_ns);
}

static bool timekeeper_is_lent(const struct timekeeper *timekeeper)
{
    const struct renewals *renewals = &timekeeper->renewals;
    return renewals->ops != NULL && renewals->ops->is_lent(renewals->renewer);
}

/* Connects, within half of the time that is left. A loss or the next turn interrupts it. It then
 * goes on for the hold that ends first. */
static dlock_status get_connection(struct timekeeper *timekeeper, const struct dlock_hold *hold)
{
    struct renewals *renewals = &timekeeper->renewals;
    const uint32_t servers = atomic_load(&hold->servers);
    int64_t left_ns = valid_until(hold) - timekeeper->client->now_ns();
    int64_t now_ns = mono_ns();
    int64_t since_ns = timekeeper->connects_since_ns != 0 ? timekeeper->connects_since_ns : now_ns;
    int64_t limit_ns = since_ns + (now_ns - since_ns + left_ns) / 2;
    start_waiting(timekeeper, INT64_MAX);
    dlock_status status =
        renewals->ops->ready(renewals->renewer, servers, limit_ns, timekeeper->timer_fd);
    stop_waiting(timekeeper);
    timekeeper->connects_since_ns = status == DLOCK_CANCELLED ? since_ns : 0;
    return status;
}

/* No renewal is under way, and one is due. */
static void renew_first(struct timekeeper *timekeeper)
{
    dlock_status status = get_connection(timekeeper, first_due(timekeeper));
    struct dlock_hold *hold = first_due(timekeeper);
    int64_t now_ns = timekeeper->client->now_ns();
    if (status == DLOCK_CANCELLED || hold == NULL || heap_soonest_ns(&timekeeper->ends) <= now_ns)
        return; /* that is more urgent; the thread comes here again */
    if (status != DLOCK_OK) {
        fail_due(timekeeper, status);
    } else if (timekeeper_goes(timekeeper, hold, RENEWED_ALONE)) {
        renew_alone(timekeeper, hold, now_ns);
    } else if (timekeeper_goes(timekeeper, hold, RENEWED_IN_ROUNDS)) {
        begin_rounds(timekeeper, now_ns);
    } else {
        renewals_begin(&timekeeper->renewals);
        send_due(timekeeper, now_ns);
    }
}

/* What becomes due in the meantime is sent without waiting for answers, if the connection allows
 * that. Otherwise it stays due, and goes in the next write. */
static void send_and_wait(struct timekeeper *timekeeper, int64_t now_ns)
{
    struct renewals *renewals = &timekeeper->renewals;
    if (renewals->ops->may_add(renewals->renewer))
        send_due(timekeeper, now_ns);
    int64_t limit_ns = renewals_limit_ns(renewals, &timekeeper->due);
    start_waiting(timekeeper, limit_ns);
    renewals_wait(renewals, timekeeper->timer_fd, limit_ns <= now_ns);
    stop_waiting(timekeeper);
}

static void timekeeper_take_answer(struct timekeeper *timekeeper, const struct renewed *renewed)
{
    if (renewed->hold != NULL && renewed->again)
        set_due(timekeeper, renewed->hold);
    else if (renewed->hold != NULL)
        timekeeper_conclude(timekeeper, renewed);
}

/* Without the mutex, which the report of the outage takes. */
static void drop_connection(struct timekeeper *timekeeper)
{
    timekeeper->renewals.distrusted = false;
    pthread_mutex_unlock(&timekeeper->mutex);
    timekeeper->renewals.ops->distrust(timekeeper->renewals.renewer);
    pthread_mutex_lock(&timekeeper->mutex);
}

/* To the pool, which may send on it what it was to send when it is back. */
static void return_connection(struct timekeeper *timekeeper)
{
    pthread_mutex_unlock(&timekeeper->mutex);
    timekeeper->renewals.ops->rest(timekeeper->renewals.renewer);
    pthread_mutex_lock(&timekeeper->mutex);
}

static void send_kept(struct timekeeper *timekeeper)
{
    struct dlock_client *client = timekeeper->client;
    timekeeper->sends_kept_ns = INT64_MAX;
    pthread_mutex_unlock(&timekeeper->mutex);
    bool again = client->engine->send_kept(client);
    pthread_mutex_lock(&timekeeper->mutex);
    if (!again)
        return;
    timekeeper->sends_kept_ns =
        min_ns(timekeeper->sends_kept_ns, client->now_ns() + timekeeper->kept_pause_ns);
    timekeeper->kept_pause_ns = min_ns(2 * timekeeper->kept_pause_ns, KEPT_MOST_NS);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static void note_due(struct timekeeper *timekeeper, int64_t now_ns)
{
    if (heap_soonest_ns(&timekeeper->waiting) > now_ns)
        return;
    while (heap_soonest_ns(&timekeeper->waiting) <= now_ns + TOGETHER_NS)
        set_due(timekeeper, HEAP_THING(timekeeper->waiting.first, struct dlock_hold, turn));
}

static void sleep_until_next(struct timekeeper *timekeeper)
{
    struct pollfd timer = {.fd = timekeeper->timer_fd, .events = POLLIN};
    timekeeper->connects_since_ns = 0; /* nothing is due */
    start_waiting(timekeeper, INT64_MAX);
    poll(&timer, 1, -1);
    stop_waiting(timekeeper);
}

static void *timekeeper_run(void *arg)
{
    struct timekeeper *timekeeper = arg;
    pthread_mutex_lock(&timekeeper->mutex);
    while (!timekeeper->stop) {
        int64_t now_ns = timekeeper->client->now_ns();
        struct renewed renewed;
        note_due(timekeeper, now_ns);
        if (heap_soonest_ns(&timekeeper->ends) <= now_ns)
            tell_lost(timekeeper, HEAP_THING(timekeeper->ends.first, struct dlock_hold, end));
        else if (!STAILQ_EMPTY(&timekeeper->notices))
            tell_notice(timekeeper);
        else if (timekeeper->renewals.distrusted)
            drop_connection(timekeeper);
        else if (timekeeper->sends_kept_ns <= now_ns)
            send_kept(timekeeper);
        else if (round_over(timekeeper) != NULL)
            end_round(timekeeper, round_over(timekeeper));
        else if (has_rounds(timekeeper))
            wait_for_rounds(timekeeper);
        else if (renewals_take(&timekeeper->renewals, &renewed))
            timekeeper_take_answer(timekeeper, &renewed);
        else if (timekeeper->renewals.count > 0)
            send_and_wait(timekeeper, now_ns);
        else if (timekeeper_is_lent(timekeeper))
            return_connection(timekeeper);
        else if (timekeeper->due.first != NULL)
            renew_first(timekeeper);
        else
            sleep_until_next(timekeeper);
    }
    pthread_mutex_unlock(&timekeeper->mutex);
    return NULL;
}

dlock_status timekeeper_start(struct timekeeper *timekeeper, struct dlock_client *client)
{
    *timekeeper =
        (struct timekeeper){.client = client, .sends_kept_ns = INT64_MAX, .next_ns = INT64_MIN};
    STAILQ_INIT(&timekeeper->notices);
    pthread_mutex_init(&timekeeper->mutex, NULL);
    pthread_cond_init(&timekeeper->idle, NULL);
    timekeeper->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    bool made = renewals_init(&timekeeper->renewals, client);
    if (timekeeper->timer_fd >= 0 && made &&
        thread_begin(&timekeeper->thread, timekeeper_run, timekeeper))
        return DLOCK_OK;
    renewals_end(&timekeeper->renewals);
    if (timekeeper->timer_fd >= 0)
        close(timekeeper->timer_fd);
    return fail(DLOCK_NO_MEMORY, "no memory, descriptor or thread is left for the timekeeper");
}

void timekeeper_stop(struct timekeeper *timekeeper)
{
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper->stop = true;
    wake_at(timekeeper, 0);
    pthread_mutex_unlock(&timekeeper->mutex);
    pthread_join(timekeeper->thread, NULL);
    renewals_end(&timekeeper->renewals);
    for (struct notice *notice; (notice = take_notice(timekeeper)) != NULL;)
        free(notice);
    close(timekeeper->timer_fd);
    pthread_mutex_destroy(&timekeeper->mutex);
    pthread_cond_destroy(&timekeeper->idle);
}

/* ---- Calls of other threads ------------------------------------------------------------------ */

void timekeeper_watch(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                      int64_t ttl_ms)
{
    pthread_mutex_lock(&timekeeper->mutex);
    hold->watched = true;
    heap_put(&timekeeper->ends, &hold->end, valid_until(hold));
    timekeeper_extend_all(timekeeper, hold, sent_ns, ttl_ms);
    wake_at(timekeeper, next_moment(timekeeper));
    pthread_mutex_unlock(&timekeeper->mutex);
}

void timekeeper_extend(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                       int64_t ttl_ms)
{
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper_extend_all(timekeeper, hold, sent_ns, ttl_ms);
    pthread_mutex_unlock(&timekeeper->mutex);
}

void timekeeper_lose(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    if (!hold->lock->rung.expires)
        return; /* its holds are not watched */
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper_lose_all(timekeeper, hold);
    wake_at(timekeeper, 0);
    pthread_mutex_unlock(&timekeeper->mutex);
}

void timekeeper_send_kept(void *arg)
{
    struct timekeeper *timekeeper = arg;
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper->kept_pause_ns = KEPT_NS;
    timekeeper->sends_kept_ns = timekeeper->client->now_ns() + KEPT_NS;
    wake_at(timekeeper, next_moment(timekeeper));
    pthread_mutex_unlock(&timekeeper->mutex);
}

/* The mutex is held. */
static bool await_round(struct timekeeper *timekeeper, const struct dlock_hold *hold,
                        int64_t until_ns)
{
    struct timespec until = timespec_of(until_ns);
    int waited = 0;
    while (timekeeper_is_in_round(timekeeper, hold) && waited == 0)
        waited =
            pthread_cond_clockwait(&timekeeper->idle, &timekeeper->mutex, CLOCK_MONOTONIC, &until);
    return !timekeeper_is_in_round(timekeeper, hold);
}

bool timekeeper_await_round(struct timekeeper *timekeeper, const struct dlock_hold *hold,
                            int64_t until_ns)
{
    pthread_mutex_lock(&timekeeper->mutex);
    bool over = await_round(timekeeper, hold, until_ns);
    pthread_mutex_unlock(&timekeeper->mutex);
    return over;
}

bool timekeeper_begin_round(struct timekeeper *timekeeper, struct dlock_hold *hold,
                            int64_t until_ns)
{
    pthread_mutex_lock(&timekeeper->mutex);
    bool begun = await_round(timekeeper, hold, until_ns);
    if (begun)
        hold->in_round = true;
    pthread_mutex_unlock(&timekeeper->mutex);
    return begun;
}

void timekeeper_end_round(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    pthread_mutex_lock(&timekeeper->mutex);
    hold->in_round = false;
    if (!timekeeper_has_turn(timekeeper, hold)) /* its turn came meanwhile */
        set_turn(timekeeper, hold, 0);
    wake_at(timekeeper, next_moment(timekeeper));
    pthread_cond_broadcast(&timekeeper->idle);
    pthread_mutex_unlock(&timekeeper->mutex);
}

/* One that is valid, if there is one: one that has ended is watched until it is released. A watched
 * hold cannot be freed while the timekeeper's mutex is held. */
static struct dlock_hold *watched_of(struct dlock *lock, const char *owner)
{
    struct dlock_hold *hold;
    struct dlock_hold *found = NULL;
    pthread_mutex_lock(&lock->mutex);
    EACH_HOLD(hold, &lock->holds, of_lock)
        if (hold->watched && strcmp(hold->owner, owner) == 0 && !dlock_valid(found))
            found = hold;
    pthread_mutex_unlock(&lock->mutex);
    return found;
}

bool timekeeper_extend_owner(struct dlock *lock, const char *owner, int64_t sent_ns, int64_t ttl_ms)
{
    struct timekeeper *timekeeper = &lock->client->timekeeper;
    pthread_mutex_lock(&timekeeper->mutex);
    struct dlock_hold *hold = watched_of(lock, owner);
    if (hold != NULL)
        timekeeper_extend_all(timekeeper, hold, sent_ns, ttl_ms);
    bool valid = dlock_valid(hold);
    pthread_mutex_unlock(&timekeeper->mutex);
    return valid;
}

bool timekeeper_lose_owner(struct dlock *lock, const char *owner)
{
    struct timekeeper *timekeeper = &lock->client->timekeeper;
    pthread_mutex_lock(&timekeeper->mutex);
    struct dlock_hold *hold = watched_of(lock, owner);
    if (hold != NULL) {
        timekeeper_lose_all(timekeeper, hold);
        wake_at(timekeeper, 0);
    }
    pthread_mutex_unlock(&timekeeper->mutex);
    return hold != NULL;
}

/* The mutex is held. */
static void stop_watching(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    heap_take(&hold->end);
    leave_renewals(timekeeper, hold);
    hold->watched = false;
    wake_at(timekeeper, next_moment(timekeeper));
}

void timekeeper_forget(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    pthread_mutex_lock(&timekeeper->mutex);
    while (timekeeper->busy_with == hold)
        pthread_cond_wait(&timekeeper->idle, &timekeeper->mutex);
    stop_watching(timekeeper, hold);
    pthread_mutex_unlock(&timekeeper->mutex);
}

bool timekeeper_try_to_forget(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    pthread_mutex_lock(&timekeeper->mutex);
    bool may = timekeeper->busy_with != hold;
    if (may)
        stop_watching(timekeeper, hold);
    pthread_mutex_unlock(&timekeeper->mutex);
    return may;
}

int timekeeper_lost_fd(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    pthread_mutex_lock(&timekeeper->mutex);
    if (hold->lost_fd < 0) {
        hold->lost_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
        set_lost_fd(hold);
    }
    int fd = hold->lost_fd;
    pthread_mutex_unlock(&timekeeper->mutex);
    return fd;
}
