/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks. A lock is a name and a rung; a client has one of each, even if it is opened several times.
 * See open.c.
 */
#include "client.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int lock_compare(const void *a, const void *b)
{
    const struct dlock *one = a;
    const struct dlock *other = b;
    int rungs = strcmp(one->ops->name, other->ops->name);
    return rungs != 0 ? rungs : strcmp(one->name, other->name);
}

void lock_free(struct dlock *lock)
{
    if (lock->engine_state != NULL) /* first: the engine's threads may still use the lock */
        lock->client->engine->close_lock(lock);
    pthread_mutex_destroy(&lock->mutex);
    pthread_cond_destroy(&lock->answered);
    free(lock->state);
    free(lock->handoff);
    free(lock);
}

void lock_keep_open(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->mutex);
    lock->opened++;
    pthread_mutex_unlock(&lock->client->mutex);
}

const char *dlock_name(const dlock *lock)
{
    return lock != NULL ? lock->name : "";
}

const struct dlock_rung *dlock_rung_of(const dlock *lock)
{
    return lock != NULL ? &lock->rung : NULL;
}

/* ---- Closing --------------------------------------------------------------------------------- */

static int64_t queue_closed_until_ns(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    int64_t until_ns = lock->queue.closed_until_ns;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return until_ns;
}

/* The client's mutex is held. Closes one opening. True: it was the last, and the lock is no longer
 * in the client's tree. */
static bool lock_close_last(struct dlock *lock)
{
    if (--lock->opened > 0)
        return false;
    tdelete(lock, &lock->client->locks, lock_compare);
    return true;
}

/* The lock is no longer in the client's tree. */
static void lock_end(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    lock->client->engine->forget(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    if (lock->ops->closed != NULL)
        lock->ops->closed(lock->state);
    lock_free(lock);
}

int64_t lock_close(struct dlock *lock)
{
    pthread_mutex_t *mutex = &lock->client->mutex;
    pthread_mutex_lock(mutex);
    /* Both under the mutex: a hold may be abandoned at this moment. */
    int64_t closed_until_ns = queue_closed_until_ns(lock);
    bool lingers = lock->opened == 1 && closed_until_ns > mono_ns();
    bool last = !lingers && lock_close_last(lock);
    pthread_mutex_unlock(mutex);
    if (last)
        lock_end(lock);
    return lingers ? closed_until_ns : 0;
}

void locks_end(struct dlock_client *client)
{
    while (client->locks != NULL) {
        struct dlock *lock = *(struct dlock **)client->locks; /* the tree's root */
        tdelete(lock, &client->locks, lock_compare);
        lock_end(lock);
    }
}
