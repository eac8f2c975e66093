/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_owner.h.
 */
#include "lock_owner.h"

#include <stdlib.h>
#include <string.h>

void lock_owner_pool_init(struct lock_owner_pool *lock_owner_pool)
{
    *lock_owner_pool = (struct lock_owner_pool){0};
    pthread_mutex_init(&lock_owner_pool->mutex, NULL);
}

static void lock_owner_free(struct lock_owner *lock_owner)
{
    while (lock_owner->holder != NULL) {
        struct holder *holder = lock_owner->holder;
        lock_owner->holder = holder->next;
        if (holder->forgotten != NULL)
            dlock_release(holder->forgotten, NULL);
        dlock_close(holder->lock);
        free(holder);
    }
    dlock_close(lock_owner->lock);
    free(lock_owner);
}

void lock_owner_pool_free(struct lock_owner_pool *lock_owner_pool)
{
    while (lock_owner_pool->free != NULL) {
        struct lock_owner *lock_owner = lock_owner_pool->free;
        lock_owner_pool->free = lock_owner->next;
        lock_owner_free(lock_owner);
    }
    pthread_mutex_destroy(&lock_owner_pool->mutex);
}

struct lock_owner *lock_owner_take(struct lock_owner_pool *lock_owner_pool)
{
    pthread_mutex_lock(&lock_owner_pool->mutex);
    struct lock_owner *lock_owner = lock_owner_pool->free;
    if (lock_owner != NULL)
        lock_owner_pool->free = lock_owner->next;
    unsigned number = lock_owner == NULL ? ++lock_owner_pool->count : 0;
    pthread_mutex_unlock(&lock_owner_pool->mutex);
    if (lock_owner != NULL || (lock_owner = calloc(1, sizeof *lock_owner)) == NULL)
        return lock_owner;
    lock_owner->number = number;
    lock_owner->holder = calloc(1, sizeof *lock_owner->holder);
    if (lock_owner->holder != NULL)
        return lock_owner;
    free(lock_owner);
    return NULL;
}

void lock_owner_give(struct lock_owner_pool *lock_owner_pool, struct lock_owner *lock_owner)
{
    pthread_mutex_lock(&lock_owner_pool->mutex);
    lock_owner->next = lock_owner_pool->free;
    lock_owner_pool->free = lock_owner;
    pthread_mutex_unlock(&lock_owner_pool->mutex);
}

/* They are taken out of the pool meanwhile: its mutex is not held while a call blocks. */
void lock_owner_close_locks(struct lock_owner_pool *lock_owner_pool, const struct dlock_rung *rung)
{
    struct lock_owner *idle, *next;
    pthread_mutex_lock(&lock_owner_pool->mutex);
    idle = lock_owner_pool->free;
    lock_owner_pool->free = NULL;
    pthread_mutex_unlock(&lock_owner_pool->mutex);
    for (; idle != NULL; idle = next) {
        next = idle->next;
        if (idle->lock != NULL && strcmp(dlock_rung_of(idle->lock)->name, rung->name) != 0) {
            dlock_close(idle->lock);
            idle->lock = NULL;
        }
        lock_owner_give(lock_owner_pool, idle);
    }
}

bool lock_owner_forget(struct lock_owner *lock_owner, dlock_hold *hold)
{
    struct holder *next = calloc(1, sizeof *next);
    if (next == NULL)
        return false;
    lock_owner->holder->forgotten = hold;
    lock_owner->holder->lock = lock_owner->lock;
    lock_owner->lock = NULL;
    next->next = lock_owner->holder;
    lock_owner->holder = next;
    return true;
}
