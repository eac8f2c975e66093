/* SPDX-License-Identifier: Apache-2.0
 *
 * See mode.h. mode_enter counts the sale in, then reads `closed`. mode_close sets `closed`, then
 * reads the count. So at least one of the two sees the other.
 */
#include "mode.h"

#include "../lock/clock.h"

void mode_init(struct mode *mode, const struct setting *setting)
{
    *mode = (struct mode){.now = *setting};
    atomic_init(&mode->in_flight, 0);
    atomic_init(&mode->closed, false);
    atomic_init(&mode->drains, false);
    pthread_mutex_init(&mode->mutex, NULL);
    cond_init(&mode->emptied);
}

void mode_destroy(struct mode *mode)
{
    pthread_cond_destroy(&mode->emptied);
    pthread_mutex_destroy(&mode->mutex);
}

bool mode_enter(struct mode *mode)
{
    atomic_fetch_add(&mode->in_flight, 1);
    if (!atomic_load(&mode->closed))
        return true;
    mode_leave(mode);
    return false;
}

bool mode_enter_working(struct mode *mode)
{
    atomic_fetch_add(&mode->in_flight, 1);
    if (!atomic_load(&mode->closed) || atomic_load(&mode->drains))
        return true;
    mode_leave(mode);
    return false;
}

void mode_leave(struct mode *mode)
{
    if (atomic_fetch_sub(&mode->in_flight, 1) > 1 || !atomic_load(&mode->closed))
        return;
    pthread_mutex_lock(&mode->mutex);
    pthread_cond_signal(&mode->emptied);
    pthread_mutex_unlock(&mode->mutex);
}

/* The mutex is held. False: the deadline came first. */
static bool mode_await_empty(struct mode *mode, int64_t deadline_ns)
{
    const struct timespec deadline = timespec_of(deadline_ns);
    int waited = 0;
    while (waited == 0 && atomic_load(&mode->in_flight) > 0)
        waited = pthread_cond_timedwait(&mode->emptied, &mode->mutex, &deadline);
    return waited == 0;
}

enum mode_close mode_close(struct mode *mode, int64_t deadline_ns)
{
    pthread_mutex_lock(&mode->mutex);
    bool busy = atomic_exchange(&mode->closed, true);
    bool emptied = !busy && mode_await_empty(mode, deadline_ns);
    pthread_mutex_unlock(&mode->mutex);
    if (busy)
        return MODE_BUSY;
    if (emptied)
        return MODE_CLOSED;
    mode_open(mode);
    return MODE_NOT_EMPTY;
}

void mode_drain(struct mode *mode)
{
    atomic_store(&mode->drains, true);
}

bool mode_end_drain(struct mode *mode, int64_t deadline_ns)
{
    pthread_mutex_lock(&mode->mutex);
    atomic_store(&mode->drains, false);
    bool emptied = mode_await_empty(mode, deadline_ns);
    pthread_mutex_unlock(&mode->mutex);
    return emptied;
}

void mode_open(struct mode *mode)
{
    pthread_mutex_lock(&mode->mutex);
    atomic_store(&mode->closed, false);
    pthread_mutex_unlock(&mode->mutex);
}

void mode_hold(struct mode *mode)
{
    pthread_mutex_lock(&mode->mutex);
}

void mode_let_go(struct mode *mode)
{
    pthread_mutex_unlock(&mode->mutex);
}

struct setting mode_copy(struct mode *mode)
{
    pthread_mutex_lock(&mode->mutex);
    struct setting now = mode->now;
    pthread_mutex_unlock(&mode->mutex);
    return now;
}
