/* SPDX-License-Identifier: Apache-2.0
 *
 * The owners for whom sales hold locks. A sale that waits keeps its lock_owner, and no thread.
 */
#ifndef LOCK_OWNER_H
#define LOCK_OWNER_H

#include <dlock.h>
#include <pthread.h>
#include <stdbool.h>

#define REQUEST_ID_MAX 64
#define ITEM_MAX 64

enum sale_purpose { SALE_SELL, SALE_RESTOCK, SALE_READ };

/* For whom a hold was acquired: what the client's timekeeper is told, who may speak of a hold that
 * its sale forgot. */
struct holder {
    enum sale_purpose purpose;
    unsigned thread;
    char request[REQUEST_ID_MAX + 1];
    char item[ITEM_MAX + 1];
    dlock_hold *forgotten; /* or NULL */
    dlock *lock;           /* of what was forgotten: it may not be closed before */
    struct holder *next;
};

/* Where a sale stands from its beginning to its end, whichever threads work on it: one sale at a
 * time. Its number is the owner_id of its locks. It keeps the lock of the item it sold last. */
struct lock_owner {
    unsigned number; /* from 1 */
    dlock *lock;
    struct holder *holder;   /* of the sale of now; behind it those of forgotten holds */
    struct lock_owner *next; /* a free one */
};

/* All lock_owner_pool: as many as sales were ever in flight at once. */
struct lock_owner_pool {
    pthread_mutex_t mutex;   /* protects what is below */
    struct lock_owner *free; /* a stack */
    unsigned count;
};
void lock_owner_pool_init(struct lock_owner_pool *lock_owner_pool);
/* All sales must be over. */
void lock_owner_pool_free(struct lock_owner_pool *lock_owner_pool);

/* Any thread. NULL when out of memory. */
struct lock_owner *lock_owner_take(struct lock_owner_pool *lock_owner_pool);
void lock_owner_give(struct lock_owner_pool *lock_owner_pool, struct lock_owner *lock_owner);
/* The hold stays until lock_owner_pool_free, renewed where its rung renews, with a holder to speak
 * of it and its lock open. False: out of memory, and the hold is the caller's. */
bool lock_owner_forget(struct lock_owner *lock_owner, dlock_hold *hold);

#endif
