/* SPDX-License-Identifier: Apache-2.0
 *
 * The use case: sell under a lock. A sale is one list of steps (enum sale_step) with one state;
 * sale_go_on drives it, whoever calls that: a worker, an event loop, a test. Where it must wait it
 * is suspended, and keeps no thread. Setting the stock anew takes the same way, and with
 * --guard-reads so does reading it.
 *
 * A suspended sale costs its own struct, a lock_owner and perhaps a hold. There are as many as
 * requests that are not answered: --connections at most on the shop's listener, and CHANGES_MAX
 * (shop.c) on the admin's. Of those, at most
 * --queue wait for locks.
 */
#ifndef SALE_H
#define SALE_H

#include "config.h"
#include "failpoints.h"
#include "history.h"
#include "mode.h"
#include "outage.h"
#include "stock.h"
#include "lock_owner.h"

#include <stdatomic.h>

#define KEY_MAX (ITEM_MAX + 32)
#define SALE_KEY_MAX 64 /* of an Idempotency-Key */
#define RECORD_KEY_MAX (KEY_MAX + SALE_KEY_MAX + 8)
#define QUANTITY_MAX 1000000
#define STOCK_MAX 1000000000000

/* X(NAME, event of the history, its reason). */
#define SALE_RESULTS(X)                                                                            \
    X(SOLD, "write", "")                                                                           \
    X(SOLD_OUT, "refused", "sold-out")                                                             \
    X(INSUFFICIENT_STOCK, "refused", "insufficient-stock")                                         \
    X(KEY_UNSUPPORTED, "refused", "key-unsupported")                                               \
    X(KEY_REUSED, "refused", "key-reused")                                                         \
    X(REQUEST_IN_FLIGHT, "refused", "request-in-flight")                                           \
    X(RECORD_INVALID, "fail", "key-record")                                                        \
    X(UNKNOWN_ITEM, "refused", "unknown-item")                                                     \
    X(STOCK_TOO_LARGE, "refused", "stock-too-large")                                               \
    X(QUEUE_FULL, "refused", "queue-full")                                                         \
    X(DEADLINE, "refused", "deadline")                                                             \
    X(DRAINING, "refused", "draining")                                                             \
    X(CLIENT_CLOSED, "refused", "client-closed")                                                   \
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

/* In the order in which a sale takes them. */
enum sale_step {
    STEP_ENTER,    /* it is counted in; waits for the end of a switch of the lock */
    STEP_ASIDE,    /* a read that needs no lock: no sale, and not counted in; the steps below are of
                      one that is */
    STEP_BEGIN,    /* takes a lock_owner, and opens the lock */
    STEP_ASK,      /* waits for the lock */
    STEP_ANSWERED, /* the lock's answer is there. upgrade=1: reads, keeps the read lock, and asks
                      for the other */
    STEP_UPGRADE,
    STEP_SECTION, /* the critical section; a sale reads, a restock and a read do all of theirs */
    STEP_REENTER, /* reenter=1: asks for the same lock again, and waits for it */
    STEP_REENTERED,
    STEP_WORK,   /* --work-ms: waits for that moment */
    STEP_DECIDE, /* the last look at the hold and the clock */
    STEP_WRITE,
    STEP_FORGET, /* in place of LEAVE: it keeps its lock */
    STEP_LEAVE,
    STEP_END, /* releases, records how it ended, gives back what it had */
    STEP_OVER,
};

/* What it waits for before it takes its next step. */
enum sale_wait { WAIT_NOTHING, WAIT_SWITCH, WAIT_LOCK, WAIT_TIME, WAIT_POINT };

struct sale;

/* What whoever drives sales does for them. */
struct sale_driver {
    /* The sale can go on: call sale_go_on. On any thread, which must not be kept; perhaps before
     * the sale_go_on that suspended it has returned. */
    void (*resume)(struct sale *sale);
    /* To be resumed at that moment, or once the switch that is under way has ended. */
    void (*resume_at)(struct sale *sale, int64_t at_ns);
    void (*resume_after_switch)(struct sale *sale);
    bool (*is_client_closed)(const struct sale *sale); /* nobody waits for its answer any more */
};

/* What all sales share. */
struct sale_env {
    const struct config *config;
    struct mode *mode;
    dlock_client *client;
    struct stock_server *stock_server;
    bool apart;              /* lock and stock are on different servers */
    struct history *history; /* or NULL */
    const int *codes;        /* by enum sale_result: what the history says of each */
    struct outage *outage;
    struct failpoints *failpoints; /* or NULL */
    struct lock_owner_pool *lock_owner_pool;
    atomic_long *waiting; /* acquires that are not answered yet */
};

/* A thread that works on sales, and its connection to the stock. */
struct sale_worker {
    const struct sale_env *env;
    struct stock *stock;
};

/* NULL when out of memory. */
struct sale_worker *sale_worker_new(const struct sale_env *env);
void sale_worker_free(struct sale_worker *worker);

struct sale {
    /* what is asked for */
    enum sale_purpose purpose;
    const char *request;     /* its id */
    char item[ITEM_MAX + 1]; /* valid: see sale_is_item */
    int64_t quantity;        /* of a restock: what the stock shall be, or how many are added */
    bool adds;               /* of a restock: to the stock that is there */
    int64_t reenter;         /* 1: inside its section it asks for the same lock again */
    int64_t upgrade; /* 1: it looks first, under the read lock if reads are guarded by one */
    char key[SALE_KEY_MAX + 1]; /* its Idempotency-Key; "": none. See idempotency.h */
    int64_t arrived_ns;
    const struct sale_driver *driver;

    /* what came of it */
    enum sale_result result;
    int64_t
        left; /* what is left; with SOLD_OUT and INSUFFICIENT_STOCK, and of a read, what was read */
    int64_t unit;  /* the lowest unit that was sold */
    bool kept;     /* the answer, sold out, is kept under its key */
    bool replayed; /* the answer is the one that was kept under its key: nothing was sold now */
    char answered_by[STOCK_ANSWERED_BY_MAX + 1]; /* the instance that sold */
    char detail[256];

    /* on the way */
    enum sale_step step; /* the next one */
    enum sale_wait waits_for;
    int64_t until_ns;  /* WAIT_TIME */
    const char *point; /* WAIT_POINT: its name, in the group of the sale's purpose */
    struct failpoint_stay stay;
    bool keeps_thread; /* its rung counts in the thread's memory: what it waits for, it waits for on
                          this thread */
    bool abandons;     /* its write may still come, and nothing keeps it from the stock: its lock is
                          left to expire */
    struct lock_owner *lock_owner;
    char stock_key[KEY_MAX];
    char lock_name[KEY_MAX];
    char record_key[RECORD_KEY_MAX]; /* of what is kept under its key */
    bool claimed;                    /* idempotency.c's own, with the next line */
    struct sale *next_claim;
    int64_t deadline_ns;
    int64_t acquire_ns; /* when the lock was asked for */
    int64_t granted_ns;
    enum dlock_mode mode; /* in which it asks for the lock now */
    dlock_hold *hold;
    dlock_hold *read_hold; /* the read lock that it keeps while it asks for the other */
    uint64_t
        token; /* of its hold, or of the newest that it asked for inside its section; 0: none */
    uint64_t newest;   /* with STALE_TOKEN: the one that stood against it; 0: not known */
    char hold_id[192]; /* for the history */
    struct patience *patience;
    struct lock_answer { /* how the wait for the lock ended */
        dlock_status status;
        dlock_hold *hold;
        char error[256]; /* the sentence */
    } answer;
    atomic_long *waiting; /* the env's */
};

bool sale_is_item(const char *item);

/* The sale has come in: it is counted in and its invoke is recorded, if no switch is under way;
 * those that come during one enter later. Blocks nowhere. */
void sale_arrive(const struct sale_env *env, struct sale *sale);
/* It ends before it began. */
void sale_refuse(const struct sale_env *env, struct sale *sale, enum sale_result result,
                 const char *detail);
/* Takes its steps, until it is over or waits. Each call may come from another thread, with another
 * worker. WAITING: the sale may be another thread's by now. */
enum sale_progress { SALE_OVER, SALE_WAITING };
enum sale_progress sale_go_on(struct sale_worker *worker, struct sale *sale);

/* For the client's on_event: what happened to a hold of a sale, or to the lock's server. arg: the
 * env. */
void sale_on_event(void *arg, const struct dlock_event *event);
/* For the client's on_trace, and the stock's. arg: the history. */
void sale_on_trace(void *arg, const struct dlock_trace *trace);

#endif
