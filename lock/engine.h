/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands behind the locks of a client: servers of one kind, and how they are asked. The core
 * asks through this table alone, and knows no server.
 */
#ifndef DLOCK_ENGINE_H
#define DLOCK_ENGINE_H

#include "rung.h"

#define SERVERS_MAX 16

struct exchange;
struct renewer;

/* What becomes of a client's connections. */
enum outage { OUTAGE_LOST, OUTAGE_REFUSED, OUTAGE_RESTORED };

/* What an engine can do with a lock of a rung. */
enum {
    ABLE_TO_ASK_AGAIN = 1, /* an acquire whose reply was lost may be sent again, or asked about */
    ABLE_TO_GIVE_UP = 2,   /* a waiter that leaves has something to take back */
};

/* What a look at a lock showed. */
struct look {
    struct dlock_holder holder;
    bool refused; /* WRONG_TYPE: by the server, which names neither the key nor what it holds */
};

/* How many holds are renewed on one connection, none waiting for another's answer. Made for a
 * client's timekeeper, and used by its thread alone. "With the mutex": the timekeeper's is held. */
struct renewer_ops {
    /* NULL: out of memory. */
    struct renewer *(*make)(struct dlock_client *client);
    void (*free)(struct renewer *renewer);
    /* Connects, not beyond limit_ns (CLOCK_MONOTONIC), or until wake_fd is readable. */
    dlock_status (*ready)(struct renewer *renewer, int64_t limit_ns, int wake_fd);
    /* With the mutex. The connection is on loan: it takes no more than was sent on it at once. */
    bool (*is_lent)(const struct renewer *renewer);
    /* With the mutex. Nothing is under way any more. */
    void (*rest)(struct renewer *renewer);
    /* Drops the connection: an answer was none that can come. */
    void (*distrust)(struct renewer *renewer);

    /* The hold is renewed by itself: `alone` sends, and waits for the answer. */
    bool (*is_alone)(const struct dlock_hold *hold);
    dlock_status (*alone)(struct renewer *renewer, struct dlock_hold *hold, int64_t ttl_ms,
                          int64_t deadline_ns, int wake_fd);

    /* With the mutex. Nothing is under way, and the connection is ready. How long it took to make;
     * 0: not known. */
    int64_t (*begin)(struct renewer *renewer);
    /* With the mutex. Adds a request; in_full: with all that the server may not know. True: it is
     * sent in full. */
    bool (*add)(struct renewer *renewer, const struct dlock_hold *hold, int64_t ttl_ms);
    /* Sends what was added, and waits until there are answers, or until wake_fd is readable.
     * late: for none that is not here. OK, CANCELLED. */
    dlock_status (*wait)(struct renewer *renewer, int wake_fd, bool late);
    /* Whether there is an answer that was not taken. */
    bool (*has_answer)(const struct renewer *renewer);
    /* Those that are missing do not come any more: why, with its sentence. */
    dlock_status (*give_up)(struct renewer *renewer);
    /* With the mutex. Takes the next answer, in the order of the requests. hold NULL: nobody asks
     * for it. OK, LOST or as it came; *again: nothing was done, and it must be sent again;
     * *distrusted: it is none that can come. */
    dlock_status (*take)(struct renewer *renewer, struct dlock_hold *hold, bool in_full,
                         bool *again, bool *distrusted);
};

struct engine {
    const char *name;           /* for sentences */
    const char *const *schemes; /* what its servers' URLs begin with, ended by NULL */
    const char *fallback_url;   /* where the client's options name no server */
    /* It answers exchanges on threads of its own: see `exchange`. */
    bool answers_later;

    /* Sets client->engine_state. Not OK: nothing is left of it. */
    dlock_status (*open)(struct dlock_client *client, const char *const *urls, size_t count);
    /* The client is being closed, and no call of it is under way. From the return on the engine
     * tells the core nothing. NULL: it has no thread of its own that does. */
    void (*stop)(struct dlock_client *client);
    /* No thread of the client runs any more. */
    void (*close)(struct dlock_client *client);
    /* Fills in what is counted of connections and commands. */
    void (*stats)(const struct dlock_client *client, struct dlock_stats *stats);

    /* Whether a lock of that rung and name can be there: OK, INVALID. */
    dlock_status (*check_lock)(const struct dlock_client *client, const struct rung_ops *ops,
                               const char *name);
    /* Sets lock->engine_state and lock->beside. False: out of memory. */
    bool (*open_lock)(struct dlock *lock);
    void (*close_lock)(struct dlock *lock);
    unsigned (*abilities)(const struct rung_ops *ops);

    /* Forgets the replies of the commands that are to ride. False: there are no commands. */
    bool (*begin_batch)(struct dlock_batch *batch);
    /* Whether the two may go in one write: both have the time for a lost reply, or have to end at
     * about the same moment. */
    bool (*shares)(const struct exchange *exchange, const struct exchange *other);
    /* Makes them, and fills in what came of each: see exchange.h. At its return all are answered;
     * or, with answers_later, it calls exchange_answered() once for each, before its return or
     * later, on any thread, but not beyond ends_ns. */
    void (*exchange)(struct dlock_client *client, struct exchange *const *all, size_t count);
    /* How long a waiter does well to wait before its next attempt: until a pause is over. */
    int64_t (*pause_ms)(struct dlock_client *client);

    /* The loop's mutex is held. Sees to it that the lock hears of its wake-ups, as `busy` says.
     * True: it does. False: it will, and is woken then; or it can't for now; or perhaps nobody
     * tells. Connects if need be, without the mutex meanwhile, not beyond limit_ns or cancel_fd. */
    bool (*listen)(struct dlock *lock, const struct busy *busy, int64_t limit_ns, int cancel_fd);
    /* The loop's mutex is held. The lock goes: nothing is heard for it any more. */
    void (*forget)(struct dlock *lock);
    /* The loop's mutex is held, on the thread that listens, before it sleeps: sends what is to be
     * sent. */
    void (*tend)(struct dlock_client *client);

    /* Renews the hold, and waits for the answer: what was asked for, and when (CLOCK_BOOTTIME). A
     * ttl_ms of 0 or less: nothing was sent. */
    dlock_status (*extend)(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                           int64_t *ttl_ms);
    /* Who holds the lock; WRONG_TYPE, with a sentence. Not beyond ends_ns, or cancel_fd. */
    dlock_status (*inspect)(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look);
    /* The same, and frees it. It can't come later. */
    dlock_status (*break_lock)(struct dlock *lock, int64_t ends_ns, struct look *look);
    /* WRONG_TYPE, with a sentence: one of the keys beside the lock's holds something else. */
    dlock_status (*check_beside)(struct dlock *lock, int64_t ends_ns, int cancel_fd);

    const struct renewer_ops *renewer; /* NULL: holds live as long as the engine says */
};

/* What an engine tells the core, besides answers, from any of its threads, from the client's first
 * exchange until `stop` returns:
 *     wait_wake() with the loop's mutex: the lock may be free, whom to wake
 *     timekeeper_lose_owner(): the owner's holds are not its own any more
 *     timekeeper_extend_owner(): they were given a time to live
 *     timekeeper_notice(): a server was lost, refuses, or is back
 * A lock may be named until its close_lock returns. A hold may not: it ends without the engine
 * where it is abandoned, or released after its time. So the two functions find it by its owner. A
 * forked child calls nothing of it: check_fork() keeps its calls out. */

/* The engine of these URLs. NULL, with a sentence: they are of several. One that no engine knows is
 * the first engine's to refuse. */
const struct engine *engine_for(const char *const *urls, size_t count);
/* Adds one, for tests, before any client is opened. False: there is no room. */
bool engine_add(const struct engine *engine);

extern const struct engine engine_redis;

#endif
