/* SPDX-License-Identifier: Apache-2.0
 *
 * The use case: sell under a lock. Steps over a struct -- begin, granted, finish -- because a sale
 * that must wait for its lock keeps no thread meanwhile. Setting the stock anew takes the same way, and
 * with --guard-reads so does reading it.
 */
#ifndef SALE_H
#define SALE_H

#include "config.h"
#include "failpoints.h"
#include "history.h"
#include "mode.h"
#include "outage.h"
#include "stock.h"

#include <pthread.h>
#include <stdatomic.h>

#define REQUEST_ID_MAX 64
#define ITEM_MAX 64
#define KEY_MAX (ITEM_MAX + 32)
#define SALE_KEY_MAX 64 /* of an Idempotency-Key */
#define RECORD_KEY_MAX (KEY_MAX + SALE_KEY_MAX + 8)
#define QUANTITY_MAX 1000000
#define STOCK_MAX 1000000000000

/* X(NAME, event of the history, its reason). The names are those of the problems in problem.def; who asks need not
 * know by whom the loss was seen. */
#define PROBLEM_STALE_TOKEN PROBLEM_LOCK_LOST
#define PROBLEM_CODE_STALE_TOKEN PROBLEM_CODE_LOCK_LOST
#define SALE_RESULTS(X)                                                                            \
    X(SOLD, "write", "")                                                                           \
    X(SOLD_OUT, "refused", "sold-out")                                                             \
    X(TOO_FEW, "refused", "too-few")                                                               \
    X(KEY_NOT_KEPT, "refused", "key-not-kept")                                                     \
    X(KEY_REUSED, "refused", "key-reused")                                                         \
    X(REQUEST_IN_FLIGHT, "refused", "request-in-flight")                                           \
    X(RECORD_INVALID, "fail", "key-record")                                                        \
    X(UNKNOWN_ITEM, "refused", "unknown-item")                                                     \
    X(TOO_MANY, "refused", "too-many")                                                             \
    X(QUEUE_FULL, "refused", "queue-full")                                                         \
    X(DEADLINE, "refused", "deadline")                                                             \
    X(DRAINING, "refused", "draining")                                                             \
    X(HUNG_UP, "refused", "hung-up")                                                               \
    X(LOCK_TIMEOUT, "refused", "lock-timeout")                                                     \
    X(LOCK_LOST, "refused", "lock-lost")                                                           \
    X(STALE_TOKEN, "refused", "stale-token")                                                       \
    X(LOCK_UNAVAILABLE, "refused", "lock-error")                                                   \
    X(LOCK_INVALID, "fail", "lock-error")                                                          \
    X(STOCK_UNAVAILABLE, "refused", "stock-error")                                                 \
    X(STOCK_INVALID, "fail", "stock-error")                                                        \
    X(OUTCOME_UNKNOWN, "unknown", "")                                                              \
    X(INTERNAL, "fail", "internal-error")

enum sale_result {
#define X(name, event, reason) SALE_##name,
    SALE_RESULTS(X)
#undef X
    SALE_RESULT_COUNT
};

/* What all sales share. */
struct sale_env {
    const struct config *config;
    struct mode *mode;
    dlock_client *client;
    struct stock_server *stock_server;
    bool apart; /* lock and stock are on different servers */
    struct history *history; /* or NULL */
    struct outage *outage;
    struct failpoints *failpoints; /* or NULL */
    struct tills *tills;
    atomic_long *waiting; /* acquires that are not answered yet */
};

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

/* Where a sale stands from its beginning to its end, whichever threads work on it: one sale at a time.
 * Its number is the owner_id of its locks. It keeps the lock of the item it sold last. */
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

/* A thread that works on sales, and its connection to the stock. */
struct seller {
    const struct sale_env *env;
    struct stock *stock;
};

/* NULL when out of memory. */
struct seller *seller_new(const struct sale_env *env);
void seller_free(struct seller *seller);

struct sale {
    /* what is asked for */
    enum sale_purpose purpose;
    const char *request;     /* its id */
    char item[ITEM_MAX + 1]; /* valid: see sale_is_item */
    int64_t quantity;        /* of a restock: what the stock shall be, or how many are added */
    bool adds;               /* of a restock: to the stock that is there */
    int64_t gift;            /* 1: inside its section it asks for the same lock again */
    int64_t look;            /* 1: it looks first, under the read lock if reads are guarded by one */
    char key[SALE_KEY_MAX + 1]; /* its Idempotency-Key; "": none. See idempotency.h */
    int64_t arrived_ns;
    /* Called when a sale that waited can go on: on a thread of the lock library's, which must not be
     * kept. */
    void (*resume)(struct sale *sale);
    bool (*is_hung_up)(const struct sale *sale); /* nobody waits for its answer any more */

    /* what came of it */
    enum sale_result result;
    int64_t left; /* what is left; with SOLD_OUT and TOO_FEW, and of a read, what was read */
    int64_t unit; /* the lowest unit that was sold */
    bool kept;     /* the answer, sold out, is kept under its key */
    bool replayed; /* the answer is the one that was kept under its key: nothing was sold now */
    char seller[STOCK_SELLER_MAX + 1]; /* the instance that sold */
    char detail[256];

    /* on the way */
    bool accepted; /* its invoke is recorded */
    bool forgets;  /* to let go of its lock */
    bool abandons; /* its write may still come, and nothing keeps it from the stock: its lock is left to expire */
    struct till *till;
    char stock_key[KEY_MAX];
    char lock_name[KEY_MAX];
    char record_key[RECORD_KEY_MAX]; /* of what is kept under its key */
    bool claimed; /* idempotency.c's own, with the next line */
    struct sale *next_claim;
    int64_t deadline_ns;
    int64_t acquire_ns; /* when the lock was asked for */
    int64_t granted_ns;
    enum dlock_mode mode; /* in which it asks for the lock now */
    dlock_hold *hold;
    dlock_hold *looked; /* the read lock that it keeps while it asks for the other */
    uint64_t token;  /* of its hold, or of the newest that it asked for inside its section; 0: none */
    uint64_t newest; /* with STALE_TOKEN: the one that stood against it; 0: not known */
    char hold_id[192]; /* for the history */
    atomic_long *waiting; /* the env's */
    struct patience *patience;
    dlock_status lock_status; /* how the wait ended, and its sentence */
    char lock_error[256];
};

bool sale_is_item(const char *item);
/* Whether its rung asks a server for the lock. */
bool sale_asks_lock_server(const struct setting *setting);

/* The sale was accepted: from here on mode->now is its setting, so mode_enter comes first. */
void sale_accept(const struct sale_env *env, struct sale *sale);
/* It ends before it began. */
void sale_refuse(const struct sale_env *env, struct sale *sale, enum sale_result result,
                 const char *detail);

/* Sells, restocks or reads. False: the lock is not free, and the sale waits for it without this thread:
 * sale->resume will be called, and then sale_resume must be, which may say the same again. */
bool sale_run(struct seller *seller, struct sale *sale);
bool sale_resume(struct seller *seller, struct sale *sale);

/* Reads without the lock, at once. It was not accepted, and is not counted. */
void sale_read_aside(struct seller *seller, struct sale *sale);

/* For the client's on_event: what happened to a hold of a sale, or to the lock's server. arg: the env. */
void sale_on_event(void *arg, const struct dlock_event *event);
/* For the client's on_trace, and the stock's. arg: the history. */
void sale_on_trace(void *arg, const struct dlock_trace *trace);

#endif
