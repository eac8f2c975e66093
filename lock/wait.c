/* SPDX-License-Identifier: Apache-2.0
 *
 * See wait.h.
 */
#include "wait.h"

#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void give(int event_fd)
{
    uint64_t one = 1;
    (void)!write(event_fd, &one, sizeof one);
}

static dlock_status cancelled(const struct wait *wait)
{
    return fail(DLOCK_CANCELLED, "the wait for '%s' was cancelled", wait->lock->name);
}

/* Sleeps until the time, CANCELLED, or OK when `event_fd` has something, which is taken. */
static dlock_status sleep_until(const struct wait *wait, int64_t until_ns, int event_fd)
{
    for (;;) {
        int64_t left_ns = until_ns == INT64_MAX ? INT64_MAX : until_ns - mono_ns();
        if (left_ns <= 0)
            return DLOCK_TIMED_OUT;
        struct timespec left = {left_ns / 1000000000, left_ns % 1000000000};
        struct pollfd polls[] = {{.fd = wait->cancel_fd, .events = POLLIN},
                                 {.fd = event_fd, .events = POLLIN}};
        ppoll(polls, 2, until_ns == INT64_MAX ? NULL : &left, NULL);
        uint64_t count;
        if (polls[0].revents != 0)
            return cancelled(wait);
        if (polls[1].revents != 0 && read(event_fd, &count, sizeof count) > 0)
            return DLOCK_OK;
    }
}

/* ---- The client's own queue ------------------------------------------------------------------ */

static dlock_status gate_enter(struct wait *wait)
{
    struct dlock *lock = wait->lock;
    wait->place.turn_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->place.turn_fd < 0)
        return fail(DLOCK_NO_MEMORY, "no descriptor is left to wait with");
    pthread_mutex_lock(&lock->mutex);
    bool first = lock->gate_first == NULL;
    if (first || wait->deadline_ns != 0) {
        if (first)
            lock->gate_first = &wait->place;
        else
            lock->gate_last->next = &wait->place;
        lock->gate_last = &wait->place;
        wait->queued = true;
    }
    pthread_mutex_unlock(&lock->mutex);
    if (first)
        return DLOCK_OK;
    if (!wait->queued)
        return fail(DLOCK_BUSY, "'%s': others of this client wait for it already", lock->name);
    dlock_status status = sleep_until(wait, wait->deadline_ns, wait->place.turn_fd);
    if (status == DLOCK_TIMED_OUT)
        fail(status, "'%s' was not had in time: others of this client were first", lock->name);
    return status;
}

static void gate_leave(struct wait *wait)
{
    struct dlock *lock = wait->lock;
    pthread_mutex_lock(&lock->mutex);
    bool was_first = lock->gate_first == &wait->place;
    struct gate_waiter *before = NULL;
    struct gate_waiter **link = &lock->gate_first;
    while (*link != &wait->place) {
        before = *link;
        link = &before->next;
    }
    *link = wait->place.next;
    if (lock->gate_last == &wait->place)
        lock->gate_last = before;
    if (was_first && lock->gate_first != NULL)
        give(lock->gate_first->turn_fd);
    pthread_mutex_unlock(&lock->mutex);
}

/* ---- Wake-ups -------------------------------------------------------------------------------- */

/* Subscribes, or blocks on the list. Whether it worked shows in wait->listening. */
static void listen_to(struct wait *wait, const struct busy *busy)
{
    if (wait->ear == NULL)
        wait->ear = redis_new(&wait->lock->client->config, RESOLVE);
    if (wait->ear == NULL)
        return;
    bool other = strcmp(wait->source, busy->source) != 0;
    if (other)
        redis_disconnect(wait->ear);
    strcpy(wait->source, busy->source);
    if (redis_ready(wait->ear, wait->deadline_ns, wait->cancel_fd) != DLOCK_OK)
        return;
    redis_begin(wait->ear);
    if (busy->kind == WAIT_CHANNEL) {
        redis_append(wait->ear, 0, 2, (const char *const[]){"SUBSCRIBE", busy->source}, NULL);
        wait->listening = redis_gather(wait->ear, wait->deadline_ns, wait->cancel_fd) == DLOCK_OK;
    } else {
        redis_append(wait->ear, 0, 3, (const char *const[]){"BLPOP", busy->source, "0"}, NULL);
        wait->listening = true;
    }
}

/* Listens first and tries again at once: a release in between would not be heard otherwise. */
static dlock_status wait_for_message(struct wait *wait, const struct busy *busy, int64_t until_ns)
{
    if (!wait->listening || strcmp(wait->source, busy->source) != 0) {
        wait->listening = false;
        listen_to(wait, busy);
        return wait->listening ? DLOCK_OK : sleep_until(wait, until_ns, -1);
    }
    if (busy->kind == WAIT_CHANNEL)
        redis_begin(wait->ear);
    dlock_status heard = redis_listen(wait->ear, 0, until_ns, wait->cancel_fd);
    if (heard == DLOCK_CANCELLED)
        return cancelled(wait);
    if (heard == DLOCK_UNREACHABLE || (heard == DLOCK_OK && busy->kind == WAIT_LIST))
        wait->listening = false;
    return heard;
}

static dlock_status wait_for_release(struct wait *wait, int64_t until_ns)
{
    if (!wait->local) {
        atomic_fetch_add(&wait->lock->local_waiters, 1);
        wait->local = true;
        return DLOCK_OK;
    }
    return sleep_until(wait, until_ns, wait->lock->released_fd);
}

void wait_wake_local(struct dlock *lock)
{
    if (atomic_load(&lock->local_waiters) > 0)
        give(lock->released_fd);
}

/* ---- The wait -------------------------------------------------------------------------------- */

dlock_status wait_begin(struct wait *wait, struct dlock *lock, const struct dlock_want *want)
{
    *wait = (struct wait){
        .lock = lock,
        .deadline_ns = want->wait_ms == 0 ? 0 : mono_deadline_ns(want->wait_ms),
        .cancel_fd = want->cancel != NULL ? want->cancel->fd : -1,
        .place.turn_fd = -1,
    };
    struct pollfd thrown = {.fd = wait->cancel_fd, .events = POLLIN};
    if (wait->cancel_fd >= 0 && poll(&thrown, 1, 0) > 0)
        return cancelled(wait);
    if (lock->ops->contend == CONTEND_ONE_PER_CLIENT)
        return gate_enter(wait);
    return DLOCK_OK;
}

dlock_status wait_again(struct wait *wait, const struct busy *busy)
{
    int64_t now_ns = mono_ns();
    if (wait->deadline_ns == 0)
        return DLOCK_BUSY;
    if (now_ns >= wait->deadline_ns)
        return DLOCK_TIMED_OUT;
    int64_t again_ms =
        busy->again_ms > 0 ? busy->again_ms : wait->lock->client->options.retry_ms;
    int64_t until_ns = min_ns(now_ns + again_ms * NS_PER_MS, wait->deadline_ns);
    dlock_status status;
    switch (busy->kind) {
    case WAIT_LOCAL:
        status = wait_for_release(wait, until_ns);
        break;
    case WAIT_CHANNEL:
    case WAIT_LIST:
        status = wait_for_message(wait, busy, until_ns);
        break;
    default:
        status = sleep_until(wait, until_ns, -1);
    }
    return status == DLOCK_CANCELLED ? DLOCK_CANCELLED : DLOCK_OK;
}

void wait_end(struct wait *wait)
{
    if (wait->queued)
        gate_leave(wait);
    if (wait->local)
        atomic_fetch_sub(&wait->lock->local_waiters, 1);
    if (wait->place.turn_fd >= 0)
        close(wait->place.turn_fd);
    redis_free(wait->ear);
}
