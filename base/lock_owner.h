/* SPDX-License-Identifier: Apache-2.0
 *
 * The owners of the locks that requests hold. A suspended request keeps its lock_owner, and no
 * thread.
 */
#ifndef LOCK_OWNER_H
#define LOCK_OWNER_H

#include "request.h"

#include <dlock.h>
#include <pthread.h>
#include <stdbool.h>

/* On whose behalf a hold was acquired: the `user` of its events. The timekeeper may report a hold
 * after its request has left without releasing it. */
struct holder {
    int purpose; /* the service's own */
    unsigned thread;
    char request[REQUEST_ID_MAX + 1];
    char item[ITEM_MAX + 1]; /* what the lock guards */
    dlock_hold *forgotten;   /* a hold that was not released; or NULL */
    dlock *lock;             /* of that hold, and open as long as it */
    struct holder *next;
};

/* The lock owner of one request at a time, from its begin to its end, whichever threads run it. Its
 * number is the owner_id of the request's locks. It keeps the lock of its latest item open. */
struct lock_owner {
    unsigned number; /* from 1 */
    dlock *lock;
    struct holder *holder;   /* the current request's; then those of forgotten holds */
    struct lock_owner *next; /* the next free one */
};

/* All lock_owners: as many as there ever were requests in flight at once. */
struct lock_owner_pool {
    pthread_mutex_t mutex;   /* protects what is below */
    struct lock_owner *free; /* a stack */
    unsigned count;
};
void lock_owner_pool_init(struct lock_owner_pool *lock_owner_pool);
/* All requests must be over. */
void lock_owner_pool_free(struct lock_owner_pool *lock_owner_pool);

/* Any thread. NULL when out of memory. */
struct lock_owner *lock_owner_take(struct lock_owner_pool *lock_owner_pool);
void lock_owner_give(struct lock_owner_pool *lock_owner_pool, struct lock_owner *lock_owner);
/* Closes the locks of other rungs than this one that idle lock_owners keep open, so that nothing of
 * theirs is left on servers that no request needs any more. May block for a request. */
void lock_owner_close_locks(struct lock_owner_pool *lock_owner_pool, const struct dlock_rung *rung);
/* Keeps the hold until lock_owner_pool_free, with its holder and with its lock open. It is renewed
 * if its rung renews. False: out of memory; the hold is still the caller's. */
bool lock_owner_forget(struct lock_owner *lock_owner, dlock_hold *hold);

#endif
