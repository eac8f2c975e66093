/* SPDX-License-Identifier: Apache-2.0
 *
 * See timekeeper.h. A renewal may take as long as the hold that ends first is still valid, not
 * longer: so a server that hangs delays no telling.
 */
#include "timekeeper.h"

#include "client.h"
#include "owner.h"
#include "thread.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define RENEWALS_PER_TTL 3
#define RETRIES_PER_TTL 30

static void wake(struct timekeeper *timekeeper)
{
    uint64_t one = 1;
    (void)!write(timekeeper->wake_fd, &one, sizeof one);
}

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t valid_until(const struct dlock_hold *hold)
{
    return atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
}

static int64_t next_event_ns(const struct dlock_hold *hold)
{
    if (hold->told)
        return INT64_MAX;
    return min_ns(valid_until(hold), hold->renew_at_ns);
}

/* Absolute, CLOCK_BOOTTIME; INT64_MAX: it never ends. */
static void set_timer(int fd, int64_t until_ns)
{
    struct itimerspec at = {0};
    if (until_ns <= 0)
        at.it_value.tv_nsec = 1; /* long over; 0 would stop it */
    else if (until_ns != INT64_MAX)
        at.it_value = (struct timespec){until_ns / 1000000000, until_ns % 1000000000};
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void set_lost_fd(const struct dlock_hold *hold)
{
    if (hold->lost_fd >= 0)
        set_timer(hold->lost_fd, valid_until(hold));
}

/* What is over stays over: another may have held the lock since, though the owner has it again. */
static void extend_one(struct dlock_hold *hold, int64_t sent_ns, int64_t ttl_ms)
{
    if (!dlock_valid(hold))
        return;
    int64_t until_ns = validity_end_ns(sent_ns, min_ns(ttl_ms, hold->ttl_ms));
    if (until_ns > valid_until(hold))
        atomic_store_explicit(&hold->valid_until_ns, until_ns, memory_order_release);
    set_lost_fd(hold);
    if (hold->lock->rung.renewed)
        hold->renew_at_ns = sent_ns + hold->ttl_ms * NS_PER_MS / RENEWALS_PER_TTL;
}

/* A full time to live was given at sent_ns: to this hold, and where one key counts all holds of
 * an owner, to those too. */
static void extend(struct dlock_hold *hold, int64_t sent_ns)
{
    struct dlock *lock = hold->lock;
    struct dlock_hold *other;
    extend_one(hold, sent_ns, hold->ttl_ms);
    if (hold->named_by == 0 || (lock->ops->traits & TRAIT_REENTRANT) == 0)
        return;
    pthread_mutex_lock(&lock->mutex);
    LIST_FOREACH(other, &lock->holds, of_lock)
        if (owner_is_same(other, hold))
            extend_one(other, sent_ns, hold->ttl_ms);
    pthread_mutex_unlock(&lock->mutex);
}

/* The mutex is held. Told of in the thread's next round. */
static void lose(const struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    struct dlock_hold *other;
    pthread_mutex_lock(&lock->mutex);
    LIST_FOREACH(other, &lock->holds, of_lock) {
        if (!owner_is_same(other, hold) || other->leaving || other->tenure != hold->tenure ||
            (hold->tenure == 0 && strcmp(other->owner, hold->owner) != 0))
            continue; /* it may have lost the lock before, and acquired it anew */
        atomic_store_explicit(&other->valid_until_ns, 0, memory_order_release);
        set_lost_fd(other);
    }
    LIST_FOREACH(other, &lock->calls, of_calls)
        other->doomed |= strcmp(other->owner, hold->owner) == 0;
    pthread_mutex_unlock(&lock->mutex);
}

static void tell(struct timekeeper *timekeeper, struct dlock_hold *hold,
                 enum dlock_event_kind kind, const char *reason)
{
    struct dlock_client *client = timekeeper->client;
    if (client->options.on_event == NULL)
        return;
    struct dlock_event event = {
        .size = sizeof event,
        .kind = kind,
        .name = hold->lock->name,
        .rung = hold->lock->rung.name,
        .owner = hold->owner,
        .acquisition = hold->acquisition,
        .remaining_ms = dlock_remaining_ms(hold),
        .reason = reason,
        .user = hold->user,
    };
    client->options.on_event(client->options.on_event_arg, &event);
}

/* The mutex is held at call and return, not in between; busy_with keeps the hold alive. */
static void tell_lost(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    bool taken = valid_until(hold) == 0;
    hold->told = true;
    add_one(&timekeeper->client->lost);
    pthread_mutex_unlock(&timekeeper->mutex);
    hold_lost(hold);
    tell(timekeeper, hold, DLOCK_EVENT_LOST,
         taken                      ? "the lock is not this owner's any more"
         : hold->lock->rung.renewed ? "it could not be renewed in time"
                                    : "its time to live is over");
    pthread_mutex_lock(&timekeeper->mutex);
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
        [OUTAGE_BACK] = DLOCK_EVENT_CONNECTION_BACK,
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
    if (timekeeper->busy_with == NULL) /* else it looks when it is through: no renewal is cut off */
        wake(timekeeper);
    pthread_mutex_unlock(&timekeeper->mutex);
}

/* As tell_lost. */
static void tell_notices(struct timekeeper *timekeeper)
{
    struct dlock_client *client = timekeeper->client;
    struct notice *notice;
    while ((notice = STAILQ_FIRST(&timekeeper->notices)) != NULL) {
        STAILQ_REMOVE_HEAD(&timekeeper->notices, of_notices);
        pthread_mutex_unlock(&timekeeper->mutex);
        struct dlock_event event = {
            .size = sizeof event, .kind = notice->kind, .reason = notice->reason};
        client->options.on_event(client->options.on_event_arg, &event);
        free(notice);
        pthread_mutex_lock(&timekeeper->mutex);
    }
}

static dlock_status renew(struct timekeeper *timekeeper, struct dlock_hold *hold,
                          int64_t deadline_ns)
{
    struct dlock_client *client = timekeeper->client;
    struct rung_env env = {
        .redis = timekeeper->redis,
        .deadline_ns = mono_ns() + (deadline_ns - client->now_ns()),
        .wake_fd = timekeeper->wake_fd,
        .now_ns = client->now_ns,
        .rung = hold->lock->ops->name,
        .on_point = client->options.on_point,
        .on_point_arg = client->options.on_point_arg,
        .scripts_loaded = &client->scripts_loaded,
    };
    dlock_status status = redis_ready(env.redis, env.deadline_ns, env.wake_fd);
    return status == DLOCK_OK ? rung_renew(&env, hold) : status;
}

/* As tell_lost. deadline_ns: when the next hold must be told of, CLOCK_BOOTTIME. */
static void renew_one(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t deadline_ns)
{
    struct dlock_client *client = timekeeper->client;
    timekeeper->next_ns = deadline_ns;
    pthread_mutex_unlock(&timekeeper->mutex);
    int64_t sent_ns = client->now_ns();
    dlock_status status = renew(timekeeper, hold, deadline_ns);
    pthread_mutex_lock(&timekeeper->mutex);

    if (status == DLOCK_OK) {
        add_one(&client->renewals);
        extend(hold, sent_ns);
    } else if (status == DLOCK_LOST) {
        lose(hold);
        return;
    } else {
        add_one(&client->renewals_failed);
        hold->renew_at_ns = client->now_ns() + hold->ttl_ms * NS_PER_MS / RETRIES_PER_TTL;
    }
    pthread_mutex_unlock(&timekeeper->mutex);
    tell(timekeeper, hold, status == DLOCK_OK ? DLOCK_EVENT_RENEWED : DLOCK_EVENT_RENEWAL_FAILED,
         status == DLOCK_OK ? "renewed" : dlock_error());
    pthread_mutex_lock(&timekeeper->mutex);
}

static void sleep_until(struct timekeeper *timekeeper, int64_t until_ns)
{
    set_timer(timekeeper->timer_fd, until_ns);
    struct pollfd polls[] = {{.fd = timekeeper->timer_fd, .events = POLLIN},
                             {.fd = timekeeper->wake_fd, .events = POLLIN}};
    poll(polls, 2, -1);
}

static void *run(void *arg)
{
    struct timekeeper *timekeeper = arg;
    pthread_mutex_lock(&timekeeper->mutex);
    while (!timekeeper->stop) {
        uint64_t woken;
        while (read(timekeeper->wake_fd, &woken, sizeof woken) > 0)
            ;
        tell_notices(timekeeper);
        int64_t now_ns = timekeeper->client->now_ns();
        int64_t next_ns = INT64_MAX;
        int64_t tell_ns = INT64_MAX;
        struct dlock_hold *hold;
        struct dlock_hold *lost = NULL;
        struct dlock_hold *due = NULL;
        LIST_FOREACH(hold, &timekeeper->holds, timed) {
            if (hold->told)
                continue;
            if (valid_until(hold) <= now_ns)
                lost = hold;
            else if (hold->renew_at_ns <= now_ns)
                due = hold;
            tell_ns = min_ns(tell_ns, valid_until(hold));
            next_ns = min_ns(next_ns, next_event_ns(hold));
        }
        if (lost == NULL && due == NULL) {
            timekeeper->next_ns = next_ns;
            pthread_mutex_unlock(&timekeeper->mutex);
            sleep_until(timekeeper, next_ns);
            pthread_mutex_lock(&timekeeper->mutex);
            continue;
        }
        timekeeper->busy_with = lost != NULL ? lost : due;
        if (lost != NULL)
            tell_lost(timekeeper, lost);
        else
            renew_one(timekeeper, due, tell_ns);
        timekeeper->busy_with = NULL;
        pthread_cond_broadcast(&timekeeper->idle);
    }
    pthread_mutex_unlock(&timekeeper->mutex);
    return NULL;
}

dlock_status timekeeper_start(struct timekeeper *timekeeper, struct dlock_client *client)
{
    *timekeeper = (struct timekeeper){.client = client, .next_ns = INT64_MAX};
    STAILQ_INIT(&timekeeper->notices);
    pthread_mutex_init(&timekeeper->mutex, NULL);
    pthread_cond_init(&timekeeper->idle, NULL);
    timekeeper->timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    timekeeper->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    timekeeper->redis = redis_new(&client->config);
    if (timekeeper->timer_fd >= 0 && timekeeper->wake_fd >= 0 && timekeeper->redis != NULL &&
        thread_begin(&timekeeper->thread, run, timekeeper))
        return DLOCK_OK;
    redis_free(timekeeper->redis);
    close(timekeeper->timer_fd);
    close(timekeeper->wake_fd);
    return fail(DLOCK_NO_MEMORY, "no memory, descriptor or thread is left for the timekeeper");
}

void timekeeper_stop(struct timekeeper *timekeeper)
{
    pthread_mutex_lock(&timekeeper->mutex);
    timekeeper->stop = true;
    pthread_mutex_unlock(&timekeeper->mutex);
    wake(timekeeper);
    pthread_join(timekeeper->thread, NULL);
    redis_free(timekeeper->redis);
    for (struct notice *notice; (notice = STAILQ_FIRST(&timekeeper->notices)) != NULL;) {
        STAILQ_REMOVE_HEAD(&timekeeper->notices, of_notices);
        free(notice);
    }
    close(timekeeper->timer_fd);
    close(timekeeper->wake_fd);
    pthread_mutex_destroy(&timekeeper->mutex);
    pthread_cond_destroy(&timekeeper->idle);
}

void timekeeper_watch(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns)
{
    pthread_mutex_lock(&timekeeper->mutex);
    hold->renew_at_ns = INT64_MAX;
    LIST_INSERT_HEAD(&timekeeper->holds, hold, timed);
    extend(hold, sent_ns);
    /* A renewal under way is cut off only for a hold that must be told of before it would end. */
    int64_t event_ns = timekeeper->busy_with != NULL ? valid_until(hold) : next_event_ns(hold);
    bool sooner = event_ns < timekeeper->next_ns;
    pthread_mutex_unlock(&timekeeper->mutex);
    if (sooner)
        wake(timekeeper);
}

void timekeeper_lose(struct timekeeper *timekeeper, const struct dlock_hold *hold)
{
    pthread_mutex_lock(&timekeeper->mutex);
    lose(hold);
    pthread_mutex_unlock(&timekeeper->mutex);
    wake(timekeeper);
}

void timekeeper_forget(struct timekeeper *timekeeper, struct dlock_hold *hold)
{
    pthread_mutex_lock(&timekeeper->mutex);
    while (timekeeper->busy_with == hold)
        pthread_cond_wait(&timekeeper->idle, &timekeeper->mutex);
    LIST_REMOVE(hold, timed);
    pthread_mutex_unlock(&timekeeper->mutex);
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
