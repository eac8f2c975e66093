/* SPDX-License-Identifier: Apache-2.0
 *
 * The use case: sell under a lock. A sale is one list of steps (enum sale_step) over one struct.
 * sale_go_on runs the steps; a worker, an event loop or a test calls it. A sale that must wait is
 * suspended and keeps no thread (one exception: keeps_thread). A restock takes the same steps, and
 * so does a read with --guard-reads.
 *
 * A suspended sale costs its struct, a lock_owner and perhaps a hold. Each open request has at most
 * one sale. So there are at most --connections on the shop's listener, and CHANGES_MAX (shop.c) on
 * the admin's. At most --queue of them wait for locks.
 */
#ifndef SALE_H
#define SALE_H

#include "config.h"
#include "epoch.h"
#include "failpoints.h"
#include "history.h"
#include "mode.h"
#include "outage.h"
#include "stock.h"
#include "lock_owner.h"
#include "lock_servers.h"

#include <stdatomic.h>

enum sale_purpose { SALE_SELL, SALE_RESTOCK, SALE_READ };

#define KEY_MAX (ITEM_MAX + 32)
#define SALE_KEY_MAX 64 /* the longest Idempotency-Key */
#define RECORD_KEY_MAX (KEY_MAX + SALE_KEY_MAX + 8)
#define QUANTITY_MAX 1000000
#define STOCK_MAX 1000000000000

/* X(NAME, event of the history, its reason). */
#define SALE_RESULTS(X)                                                                            \
    X(SOLD, "write", "")                                                                           \
    X(ACCEPTED, "accepted", "")                                                                    \
    X(SOLD_OUT, "refused", "sold-out")                                                             \
    X(INSUFFICIENT_STOCK, "refused", "insufficient-stock")                                         \
    X(KEY_UNSUPPORTED, "refused", "key-unsupported")                                               \
    X(KEY_REUSED, "refused", "key-reused")                                                         \
    X(REQUEST_IN_FLIGHT, "refused", "request-in-flight")                                           \
    X(RECORD_INVALID, "fail", "key-record")                                                        \
    X(UNKNOWN_ITEM, "refused", "unknown-item")                                                     \
    X(STOCK_TOO_LARGE, "refused", "stock-too-large")                                               \
    X(QUEUE_FULL, "refused", "queue-full")                                                         \
    X(NOT_ADMITTED, "refused", "not-admitted")                                                     \
    X(DEADLINE, "refused", "deadline")                                                             \
    X(DRAINING, "refused", "draining")                                                             \
    X(CLIENT_CLOSED, "refused", "client-closed")                                                   \
    X(LOCK_BUSY, "refused", "lock-busy")                                                           \
    X(CONTENDED, "refused", "contended")                                                           \
    X(OTHER_LAYOUT, "refused", "other-layout")                                                     \
    X(LOCK_TIMEOUT, "refused", "lock-timeout")                                                     \
    X(LOCK_LOST, "refused", "lock-lost")                                                           \
    X(STALE_TOKEN, "refused", "stale-token")                                                       \
    X(STALE_EPOCH, "refused", "stale-epoch")                                                       \
    X(NOT_SWITCHED, "refused", "not-switched")                                                     \
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

/* In the order in which a sale takes them. A sale is counted in from STEP_BEGIN on. */
enum sale_step {
    STEP_ENTER,    /* counts the sale in; waits while a switch of the lock is under way */
    STEP_ASIDE,    /* a read without a lock: all of it is this step, and it is not counted in */
    STEP_BEGIN,    /* takes a lock_owner and opens the lock */
    STEP_JOIN,     /* has a connection to the stock; waits until there is one */
    STEP_ADMIT,    /* --admit: is refused if more sales are asked for than are admitted */
    STEP_ACCEPT,   /* --on-conflict queue: puts the sale into its item's queue; ends it */
    STEP_EXPIRE,   /* ends an entry of the queue whose life is over; ends the sale */
    STEP_ASK,      /* acquires the lock and waits for the answer */
    STEP_ANSWERED, /* the acquire was answered. With upgrade=1: reads under the read lock */
    STEP_UPGRADE,
    STEP_SECTION, /* the critical section: a sale reads; a restock and a read do all their work */
    STEP_TAKEN,   /* an entry of the queue: it is the oldest one, and is this instance's */
    STEP_REENTER, /* reenter=1: acquires the same lock again and waits for the answer */
    STEP_REENTERED,
    STEP_WORK,   /* waits for --work-ms: the business of a sale */
    STEP_DECIDE, /* checks the server, the hold and the deadline for the last time */
    STEP_WRITE,
    STEP_ACKNOWLEDGE, /* an entry of the queue was sold; a flawed write acknowledges it now */
    STEP_FORGET,      /* failpoint sale.after_write: leaves without releasing the lock */
    STEP_ELSEWHERE,   /* --segments: releases its locks, and opens those of other segments */
    STEP_LEAVE,
    STEP_END, /* releases the lock, records the result, frees what the sale took */
    STEP_OVER,
};

/* What the sale waits for before its next step. */
enum sale_wait { WAIT_NOTHING, WAIT_SWITCH, WAIT_LOCK, WAIT_TIME, WAIT_POINT };

struct sale;
struct span;

/* The callbacks of the caller that drives sales. */
struct sale_driver {
    /* The sale can continue: call sale_go_on. Called on any thread, which must not be blocked, and
     * perhaps before the sale_go_on that suspended the sale has returned. */
    void (*resume)(struct sale *sale);
    /* Resume the sale at that time, or when the current switch has ended. */
    void (*resume_at)(struct sale *sale, int64_t at_ns);
    void (*resume_after_switch)(struct sale *sale);
    bool (*is_client_closed)(const struct sale *sale); /* nobody reads the answer any more */
};

/* What all sales share. */
struct sale_env {
    const struct config *config;
    struct mode *mode;
    struct lock_servers *locks[LOCK_ROLES]; /* by lock_servers_role; NULL: not given */
    struct store_server *stock_server;
    struct history *history; /* or NULL */
    const int *codes;        /* by enum sale_result: the code that the history records */
    struct outage *outage;
    struct failpoints *failpoints; /* or NULL */
    struct lock_owner_pool *lock_owner_pool;
    struct epochs *epochs;
    struct queue_worker *queue; /* or NULL: accepted sales are left to other instances */
    atomic_long *waiting;       /* acquires not answered yet */
};

/* What a thread needs to run sales: its connection to the stock. */
struct sale_worker {
    const struct sale_env *env;
    struct stock *stock;
};

/* Takes the stock, which may be NULL. NULL when out of memory. */
struct sale_worker *sale_worker_new(const struct sale_env *env, struct stock *stock);
void sale_worker_free(struct sale_worker *worker);
/* After it has run a sale: others may use its connection. */
void sale_worker_rest(struct sale_worker *worker);

struct sale {
    /* the request */
    enum sale_purpose purpose;
    const char *request;     /* the request's id */
    char item[ITEM_MAX + 1]; /* sale_is_item accepts it */
    int64_t quantity;        /* restock: the new stock, or the units to add */
    bool adds;               /* restock: `quantity` is added, not set */
    int64_t reenter;         /* 1: acquires the same lock again inside the section */
    int64_t upgrade;         /* 1: reads first under the read lock, if reads are guarded by one */
    char key[SALE_KEY_MAX + 1]; /* its Idempotency-Key; "": none */
    int64_t arrived_ns;
    const struct sale_driver *driver;
    bool processes;                       /* it sells an entry of its item's queue, see queue.h */
    bool expires;                         /* processes: the entry's life is over */
    const struct queue_entry *entry;      /* of processes */
    char random[STOCK_RANDOM_DIGITS + 1]; /* the random part of its id, if it is queued; "": none */

    /* the result */
    enum sale_result result;
    /* the stock after the sale; with SOLD_OUT and INSUFFICIENT_STOCK, and for a read, the stock
     * read */
    int64_t left;
    int64_t version;       /* of the stock that was read: --write cas */
    int64_t aborts;        /* how often it has found the version changed */
    uint64_t stock_master; /* which one the stock was read of: see stock_pin */
    int64_t unit;          /* the lowest unit sold */
    int64_t wait_us;       /* NOT_ADMITTED: until one more can be admitted */
    bool kept;             /* the answer SOLD_OUT was stored under its key */
    bool replayed;         /* the answer had been stored under its key: nothing was sold now */
    bool settled;          /* processes: the entry has its outcome, and left the queue */
    bool passed;           /* processes: the entry was finished elsewhere meanwhile */
    char answered_by[STOCK_ANSWERED_BY_MAX + 1]; /* replayed: the instance that gave that answer */
    char detail[STOCK_ERROR_MAX];

    /* state between steps */
    enum sale_step step; /* the next step */
    enum sale_wait waits_for;
    int64_t until_ns;        /* WAIT_TIME: the end */
    const char *point;       /* WAIT_POINT: the point's name, without its group */
    const char *point_group; /* NULL: by its purpose */
    struct failpoint_stay stay;
    /* its rung counts in the thread's memory, so each wait of this sale blocks this thread */
    bool keeps_thread;
    int64_t resolve_ends_ns; /* how long resolve.c goes on to ask; 0: it has not asked yet */
    /* a lost write may still arrive, and nothing excludes it: the lock is left to expire */
    bool abandons;
    struct lock_owner *lock_owner;
    char item_key[KEY_MAX];
    char stock_key[SEGMENT_KEY_MAX]; /* what it writes: the item's key, or that of its segment */
    int segment;                     /* 0: the stock lies in one piece */
    int segments;                    /* segment: of how many */
    int64_t all;                     /* segment: what all segments had when it read them */
    struct span *span;               /* if it needs several segments at once; or NULL */
    struct span *next_span;          /* what it tries next, or NULL */
    char lock_name[KEY_MAX];
    char record_key[RECORD_KEY_MAX]; /* of the answer stored under its key */
    char queue_key[KEY_MAX + 8];     /* if it is queued: its item's queue, and the pointer from */
    char pointer_key[KEY_MAX + 48];  /* the random part of its id to its key */
    bool claimed;                    /* private to idempotency.c, as is next_claim */
    struct sale *next_claim;
    int64_t deadline_ns;
    int64_t acquire_ns; /* when it asked for the lock */
    int64_t granted_ns;
    enum dlock_mode mode; /* of its latest acquire */
    dlock_hold *hold;
    dlock_hold *read_hold; /* the read lock, kept while it asks for the write lock */
    uint64_t token;        /* of its hold, or of its re-entrant acquire; 0: none */
    uint64_t epoch;        /* of the stock, as known before it asked for the lock; 0: none */
    char identity[96];     /* the lock's server that this epoch stands for; "": not known yet */
    uint64_t newest;       /* STALE_TOKEN: the token that the fence knows; 0: not known */
    char hold_id[192];     /* for the history */
    struct patience *patience;
    struct lock_answer { /* the answer to its latest acquire */
        dlock_status status;
        dlock_hold *hold;
        char error[STOCK_ERROR_MAX]; /* why there is no hold */
    } answer;
    atomic_long *waiting; /* env->waiting */
};

bool sale_is_item(const char *item);
/* Sets the names of the keys in Redis and of the lock, by item and key. */
void sale_name_keys(const struct config *config, struct sale *sale);

/* The servers of the locks, under the current setting. For a sale in flight. */
static inline const struct lock_servers *sale_locks(const struct sale_env *env)
{
    return env->locks[lock_servers_role(env->mode->now.rung)];
}

/* Counts the sale in and records its invoke. If a switch is under way, that happens later, in
 * STEP_ENTER. Does not block. */
void sale_arrive(const struct sale_env *env, struct sale *sale);
/* Ends a sale before STEP_BEGIN has run. */
void sale_refuse(const struct sale_env *env, struct sale *sale, enum sale_result result,
                 const char *detail);
/* The same, if a server that the sale needs is away. Does not block. True: the sale has ended. */
bool sale_refuse_by_outage(const struct sale_env *env, struct sale *sale);
/* Runs the steps until the sale is over or suspended. Each call may come from another thread, with
 * another worker. After SALE_WAITING do not touch the sale: another thread may run it already. */
enum sale_progress { SALE_OVER, SALE_WAITING };
enum sale_progress sale_go_on(struct sale_worker *worker, struct sale *sale);

/* For dlock_options.on_event: an event of a sale's hold, or of a lock's server. arg: the struct
 * lock_servers. */
void sale_on_event(void *arg, const struct dlock_event *event);

#endif
