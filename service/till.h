/* SPDX-License-Identifier: Apache-2.0
 *
 * Where sales stand, and for whom they hold locks. A sale that waits keeps its till, and no thread.
 */
#ifndef TILL_H
#define TILL_H

#include <dlock.h>
#include <pthread.h>
#include <stdbool.h>

#define REQUEST_ID_MAX 64
#define ITEM_MAX 64

enum sale_purpose { SALE_SELL, SALE_RESTOCK, SALE_READ };

/* For whom a hold was acquired: what the client's timekeeper is told, who may speak of a hold that
 * its sale forgot. */
struct bearer {
    enum sale_purpose purpose;
    unsigned thread;
    char request[REQUEST_ID_MAX + 1];
    char item[ITEM_MAX + 1];
    dlock_hold *forgotten; /* or NULL */
    dlock *lock;           /* of what was forgotten: it may not be closed before */
    struct bearer *next;
};

/* Where a sale stands from its beginning to its end, whichever threads work on it: one sale at a
 * time. Its number is the owner_id of its locks. It keeps the lock of the item it sold last. */
struct till {
    unsigned number; /* from 1 */
    dlock *lock;
    struct bearer *bearer; /* of the sale of now; behind it those of forgotten holds */
    struct till *next;     /* a free one */
};

/* All tills: as many as sales were ever in flight at once. */
struct tills {
    pthread_mutex_t mutex; /* protects what is below */
    struct till *free;     /* a stack */
    unsigned count;
};
void tills_init(struct tills *tills);
/* All sales must be over. */
void tills_free(struct tills *tills);

/* Any thread. NULL when out of memory. */
struct till *till_take(struct tills *tills);
void till_give(struct tills *tills, struct till *till);
/* The hold stays until tills_free, renewed where its rung renews, with a bearer to speak of it and
 * its lock open. False: out of memory, and the hold is the caller's. */
bool till_forget(struct till *till, dlock_hold *hold);

#endif
