/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks: a name under a rung, of which a client has one, however often it is opened.
 */
#include "client.h"
#include "ladder.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_locks(const void *a, const void *b)
{
    const struct dlock *one = a;
    const struct dlock *other = b;
    int rungs = strcmp(one->ops->name, other->ops->name);
    return rungs != 0 ? rungs : strcmp(one->name, other->name);
}

static void lock_free(struct dlock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
    pthread_cond_destroy(&lock->answered);
    if (lock->engine_state != NULL)
        lock->client->engine->close_lock(lock);
    free(lock->state);
    free(lock);
}

static dlock_status check_name(const char *name)
{
    size_t size = strlen(name);
    if (size == 0 || size > DLOCK_NAME_MAX)
        return fail(DLOCK_INVALID, "a lock's name has 1 to %d bytes; this one has %zu",
                    DLOCK_NAME_MAX, size);
    return DLOCK_OK;
}

static struct dlock *lock_new(dlock_client *client, const struct rung_ops *ops, const char *name)
{
    struct dlock *lock = calloc(1, sizeof *lock);
    if (lock == NULL)
        return NULL;
    lock->client = client;
    lock->ops = ops;
    lock->rung = ladder_describe(ops);
    lock->abilities = client->engine->abilities(ops);
    strcpy(lock->name, name);
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_cond_init(&lock->answered, NULL);
    lock->state = calloc(1, ops->state_size + 1);
    lock->ttl_ms = client->options.ttl_ms != 0 ? client->options.ttl_ms
                   : ops->ttl_ms != 0          ? ops->ttl_ms
                                               : TTL_MS_DEFAULT;
    TAILQ_INIT(&lock->turns);
    TAILQ_INIT(&lock->line.waits);
    if (lock->state != NULL && client->engine->open_lock(lock))
        return lock;
    lock_free(lock);
    return NULL;
}

dlock_status dlock_open_ops(dlock_client *client, const struct rung_ops *ops, const char *name,
                            dlock **lock)
{
    *lock = NULL;
    dlock_status status = check_fork(client);
    if (status != DLOCK_OK)
        return status;
    status = check_name(name);
    if (status == DLOCK_OK)
        status = client->engine->check_lock(client, ops, name);
    if (status != DLOCK_OK)
        return status;
    struct dlock *made = lock_new(client, ops, name);
    if (made == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    pthread_mutex_lock(&client->mutex);
    struct dlock **node = tsearch(made, &client->locks, compare_locks);
    struct dlock *found = node != NULL ? *node : NULL; /* the node itself may go with the mutex */
    if (found != NULL)
        found->opened++;
    pthread_mutex_unlock(&client->mutex);
    if (found != made)
        lock_free(made);
    if (found == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    *lock = found;
    return DLOCK_OK;
}

dlock_status dlock_open(dlock_client *client, const char *rung, const char *name, dlock **lock)
{
    if (!GIVEN(lock))
        return DLOCK_INVALID;
    *lock = NULL;
    if (!GIVEN(client) || !GIVEN(name))
        return DLOCK_INVALID;
    const struct rung_ops *ops = ladder_ops(rung);
    if (ops == NULL)
        return fail(DLOCK_INVALID, "there is no rung '%.64s'; there are %s", rung, ladder_names());
    const struct dlock_rung *known = dlock_rung_find(rung);
    if (known->flawed && !client->options.allow_flawed)
        return fail(DLOCK_FLAWED, "'%s' is flawed (%s); set allow_flawed to use it all the same",
                    known->name, known->flaw);
    return dlock_open_ops(client, ops, name, lock);
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

static int64_t line_closed_until_ns(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    int64_t until_ns = lock->line.closed_until_ns;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return until_ns;
}

/* The client's mutex is held. Whether nobody has it open any more, and nobody finds it. */
static bool let_go(struct dlock *lock)
{
    if (--lock->opened > 0)
        return false;
    tdelete(lock, &lock->client->locks, compare_locks);
    return true;
}

/* It is in the client's tree no more. */
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
    int64_t closed_until_ns = line_closed_until_ns(lock); /* in one step: a hold may be abandoned */
    bool lingers = lock->opened == 1 && closed_until_ns > mono_ns();
    bool last = !lingers && let_go(lock);
    pthread_mutex_unlock(mutex);
    if (last)
        lock_end(lock);
    return lingers ? closed_until_ns : 0;
}

void locks_end(struct dlock_client *client)
{
    while (client->locks != NULL) {
        struct dlock *lock = *(struct dlock **)client->locks; /* of the tree's root */
        tdelete(lock, &client->locks, compare_locks);
        lock_end(lock);
    }
}
