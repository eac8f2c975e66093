/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine: the client of one kind of server. The core reaches servers only through this table,
 * and knows no command of any of them.
 */
#ifndef DLOCK_ENGINE_H
#define DLOCK_ENGINE_H

#include "rung.h"

struct exchange;
struct renewal;
struct renewer;

/* What happens to a client's connections. */
enum outage { OUTAGE_LOST, OUTAGE_REFUSED, OUTAGE_RESTORED };

/* What an engine can do with the locks of a rung. */
enum {
    /* After a lost reply, an acquire may be sent again, or its outcome may be asked for. */
    ABLE_TO_ASK_AGAIN = 1,
    /* A waiter that leaves without the lock can take its request back. */
    ABLE_TO_GIVE_UP = 2,
};

/* The answer to an inspection of a lock. */
struct look {
    struct dlock_holder holder;
    bool refused; /* WRONG_TYPE came from the server, which names neither the key nor its type */
};

/* How a hold is renewed. */
enum renewal_way {
    RENEWED_TOGETHER,  /* in one write with others; the answers come in order */
    RENEWED_ALONE,     /* by a call of its own */
    RENEWED_IN_ROUNDS, /* in one write with others to several servers, which decide on each */
};

/* How an engine renews many holds on one connection, without waiting for one answer before it sends
 * the next request. One renewer is made for each client's timekeeper, and only the timekeeper's
 * thread uses it. "With the mutex": the timekeeper's mutex is held. */
struct renewer_ops {
    /* NULL: out of memory. */
    struct renewer *(*make)(struct dlock_client *client);
    void (*free)(struct renewer *renewer);
    /* Connects, until limit_ns (CLOCK_MONOTONIC) at the latest, or until wake_fd is readable.
     * servers: dlock_hold.servers of the hold that is renewed first. Others use the connection,
     * too. While rounds are under way it does not wait. If this hold needs another connection than
     * they have, they are over by limit_ns. */
    dlock_status (*ready)(struct renewer *renewer, uint32_t servers, int64_t limit_ns, int wake_fd);
    /* With the mutex. The connection is on loan: return it with `rest`. */
    bool (*is_lent)(const struct renewer *renewer);
    /* No request is under way any more: returns a connection that is on loan. */
    void (*rest)(struct renewer *renewer);
    /* With the mutex. Whether requests may be added while others are under way. If not, all that is
     * due is sent in one write, and the next write follows when each of its requests has an
     * answer. */
    bool (*may_add)(const struct renewer *renewer);
    /* Drops the connection, because an answer was not one that the request can have. */
    void (*distrust)(struct renewer *renewer);

    enum renewal_way (*way)(const struct dlock_hold *hold);
    /* RENEWED_ALONE: sends, and waits for the answer. */
    dlock_status (*alone)(struct renewer *renewer, struct dlock_hold *hold, int64_t ttl_ms,
                          int64_t deadline_ns, int wake_fd);

    /* RENEWED_IN_ROUNDS. How many rounds are under way: RENEWALS_UNDER_WAY_MAX at most. */
    size_t (*rounds)(const struct renewer *renewer);
    /* Begins a round, which ends at deadline_ns (CLOCK_MONOTONIC) at the latest. The core fills in
     * what is returned. NULL: out of memory. */
    struct renewal *(*round_begin)(struct renewer *renewer, struct dlock_hold *hold, int64_t ttl_ms,
                                   int64_t deadline_ns);
    /* Sends what was begun, and waits until a round is over, or wake_fd is readable. Meanwhile no
     * hold is used: it may end, and renewal.hold is NULL then. */
    void (*rounds_wait)(struct renewer *renewer, int wake_fd);
    /* With the mutex. A round that is over; NULL: there is none. */
    struct renewal *(*round_over)(const struct renewer *renewer);
    /* Ends the round, and frees it. hold NULL: its hold has ended. */
    dlock_status (*round_end)(struct renewer *renewer, struct renewal *renewal,
                              struct dlock_hold *hold);

    /* With the mutex. No request is under way, and the connection is ready. Returns how long it
     * took to connect; 0: unknown. */
    int64_t (*begin)(struct renewer *renewer);
    /* With the mutex. Adds a request. True: it was added in full, with everything that the server
     * may not know yet. */
    bool (*add)(struct renewer *renewer, const struct dlock_hold *hold, int64_t ttl_ms);
    /* Sends what was added, and waits for answers, or until wake_fd is readable. With `late` it
     * does not wait: it takes only answers that have arrived. OK, CANCELLED. */
    dlock_status (*wait)(struct renewer *renewer, int wake_fd, bool late);
    /* Whether there is an answer that `take` has not taken. */
    bool (*has_answer)(const struct renewer *renewer);
    /* Whether the server has carried out the requests, and asks its replicas. */
    bool (*is_confirming)(const struct renewer *renewer);
    /* The missing answers will not come. Returns why, with a sentence. */
    dlock_status (*give_up)(struct renewer *renewer);
    /* With the mutex. Takes the next answer, in the order of the requests. hold NULL: the answer is
     * not needed. in_full: what `add` returned. OK, LOST, or the failure. *again: nothing was done,
     * and the request must be sent again. *distrusted: the answer is not one that the request can
     * have. */
    dlock_status (*take)(struct renewer *renewer, struct dlock_hold *hold, bool in_full,
                         bool *again, bool *distrusted);
};

struct dlock_engine {
    /* DLOCK_VERSION of the headers that it was compiled with. The first member in every version. */
    const char *version;
    const char *name;            /* as error sentences name it */
    const char *fallback_url;    /* if the client's options name no server */
    const struct rung_ops *rung; /* the one rung of its locks; NULL: the ladder's */
    /* It answers exchanges on its own threads: see `exchange`. */
    bool answers_later;

    /* Sets client->engine_state. If it fails, nothing of it remains. */
    dlock_status (*open)(struct dlock_client *client, const char *const *urls, size_t count);
    /* The client is being closed, and none of its calls is under way. After the return the engine
     * calls the core no more. NULL: the engine has no threads that call the core. */
    void (*stop)(struct dlock_client *client);
    /* Frees engine_state. No thread of the client runs any more. */
    void (*close)(struct dlock_client *client);
    /* Fills in the counts of connections and commands. */
    void (*stats)(const struct dlock_client *client, struct dlock_stats *stats);

    /* Whether a lock of that rung may have that name: OK, INVALID. */
    dlock_status (*check_lock)(const struct dlock_client *client, const struct rung_ops *ops,
                               const char *name);
    /* Sets lock->engine_state and lock->beside. False: out of memory. */
    bool (*open_lock)(struct dlock *lock);
    void (*close_lock)(struct dlock *lock);
    unsigned (*abilities)(const struct rung_ops *ops);

    /* Forgets the replies to the batch's commands. False: the batch has no commands. */
    bool (*begin_batch)(struct dlock_batch *batch);
    /* Whether the two exchanges may go in one write. They may if both have time to recover from a
     * lost reply, or if both end at about the same time. */
    bool (*shares)(const struct exchange *exchange, const struct exchange *other);
    /* Sends the exchanges and fills in their results: see exchange.h. All are answered at the
     * return. With answers_later it calls exchange_answered() once for each: before its return or
     * later, on any thread, but not after ends_ns. */
    void (*exchange)(struct dlock_client *client, struct exchange *const *all, size_t count);
    /* On the timekeeper's thread, after timekeeper_send_kept(): sends what is kept for servers that
     * were away. Does not wait. True: it must be called again. NULL: nothing is kept. */
    bool (*send_kept)(struct dlock_client *client);
    /* How long a waiter should pause before its next attempt, because no connection is made for so
     * long. */
    int64_t (*pause_ms)(struct dlock_client *client);

    /* The loop's mutex is held. Subscribes to the lock's wake-ups, as `busy` says. True: the
     * subscription works. False: it does not work yet, and the lock's waiters are woken once it
     * does; or it cannot work now; or messages may never be sent. Connects if necessary, and
     * releases the mutex for that time; it stops at limit_ns, or when cancel_fd is readable. */
    bool (*listen)(struct dlock *lock, const struct busy *busy, int64_t limit_ns, int cancel_fd);
    /* The loop's mutex is held. The lock is being closed: ends its subscription. */
    void (*forget)(struct dlock *lock);
    /* The loop's mutex is held, on the thread that listens, before it sleeps. Sends what waits to
     * be sent. */
    void (*tend)(struct dlock_client *client);

    /* Renews the hold and waits for the answer. Sets what was asked for, and when (CLOCK_BOOTTIME).
     * A ttl_ms of 0 or less: nothing was sent. */
    dlock_status (*extend)(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                           int64_t *ttl_ms);
    /* Finds out which owner holds the lock. WRONG_TYPE has a sentence. Stops at ends_ns, or when
     * cancel_fd is readable. */
    dlock_status (*inspect)(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look);
    /* As inspect, and frees the lock. The command cannot be carried out after the return. */
    dlock_status (*break_lock)(struct dlock *lock, int64_t ends_ns, struct look *look);
    /* WRONG_TYPE, with a sentence, if one of the keys beside the lock's own holds another type. */
    dlock_status (*check_beside)(struct dlock *lock, int64_t ends_ns, int cancel_fd);

    /* NULL: the core renews no holds; the engine reports how long they live. */
    const struct renewer_ops *renewer;
};

/* What an engine reports to the core besides answers. It may do so on any of its threads, from the
 * client's first exchange until `stop` returns.
 *
 *     wait_wake(), wait_wake_owner() with the loop's mutex: the lock may be free; wake waiters
 *     timekeeper_lose_owner(): the owner has lost its holds
 *     timekeeper_extend_owner(): the owner's holds were given a time to live
 *     timekeeper_notice(): a server was lost, refuses, or is back
 *     timekeeper_send_kept(): call engine.send_kept, until nothing is left to send
 *     cleanup_take_back_name(): an acquire continues under a new name; the old one is uncertain
 *
 * A lock may be used until its close_lock returns. A hold may not be used, because it can end
 * without a call of the engine. It does if it is abandoned, or released after its validity. So the
 * two timekeeper functions find a hold by its owner. A forked child calls none of these, because
 * check_fork() rejects its calls. */

extern const struct dlock_engine engine_redis;

#endif
