/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens a lock: checks its name and rung, and chooses how the client holds it.
 */
#include "client.h"
#include "handoff.h"
#include "ladder.h"

#include <search.h>
#include <stdlib.h>
#include <string.h>

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
    const bool hands_off = (ops->traits & TRAIT_HANDOFF) != 0;
    lock->holding = hands_off ? &holding_handoff : &holding_counted;
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
    TAILQ_INIT(&lock->queue.waits);
    if (hands_off)
        lock->handoff = calloc(1, sizeof *lock->handoff);
    if (lock->state != NULL && (lock->handoff != NULL) == hands_off &&
        client->engine->open_lock(lock))
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
    struct dlock **node = tsearch(made, &client->locks, lock_compare);
    /* The node may change after the mutex is released. */
    struct dlock *found = node != NULL ? *node : NULL;
    if (found == made && found != NULL && ops->opened != NULL)
        ops->opened(found->state);
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
    const struct rung_ops *own = client->engine->rung;
    if (own != NULL && (rung == NULL || strcmp(rung, own->name) == 0))
        return dlock_open_ops(client, own, name, lock);
    const struct dlock_rung *known = dlock_rung_find(rung);
    if (known == NULL)
        return fail(DLOCK_INVALID, "there is no rung '%.64s'; there are %s", rung, ladder_names());
    if (own != NULL)
        return fail(DLOCK_INVALID, "rung '%s' is not one of %s; there '%s' is right", known->name,
                    client->engine->name, own->name);
    const struct rung_ops *ops = ladder_ops(rung);
    if (ops == NULL)
        return fail(DLOCK_INVALID,
                    "rung '%s' is of the package libdlock-%s; open a client whose options.engine "
                    "is dlock_%s()",
                    known->name, known->engine, known->engine);
    if (known->flawed && !client->options.allow_flawed)
        return fail(DLOCK_FLAWED, "'%s' is flawed (%s); set allow_flawed to use it all the same",
                    known->name, known->flaw);
    return dlock_open_ops(client, ops, name, lock);
}
