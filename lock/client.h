/* SPDX-License-Identifier: Apache-2.0
 *
 * The private structs of clients and locks.
 */
#ifndef DLOCK_CLIENT_H
#define DLOCK_CLIENT_H

#include "completion.h"
#include "engine.h"
#include "exchange.h"
#include "explain.h"
#include "holding.h"
#include "holds.h"
#include "loop.h"
#include "timekeeper.h"
#include "wait.h"

struct dlock_cancel {
    int fd;        /* an eventfd: readable once the cancel is set */
    pid_t process; /* the process that made it; a forked child inherits the descriptor */
    _Atomic int64_t requested_ns; /* CLOCK_MONOTONIC: when it was set; INT64_MAX: not yet */
};
bool cancel_is_inherited(const dlock_cancel *cancel);
/* False for NULL. */
bool cancel_requested(const dlock_cancel *cancel);
/* Its requested_ns; INT64_MAX for NULL. */
int64_t cancel_requested_ns(const dlock_cancel *cancel);

#define TTL_MS_DEFAULT 30000 /* if neither the options nor the rung give one */
#define TTL_MS_LEAST 100
#define TTL_MS_MOST INT64_C(86400000)
#define HOLD_MS_MOST INT64_C(31536000000) /* a year */
#define CONTENDERS_MOST 10000

struct dlock {
    struct dlock_client *client;
    const struct rung_ops *ops;
    const struct holding *holding; /* how a client holds it */
    struct dlock_rung rung;
    char name[DLOCK_NAME_MAX + 1];
    int64_t ttl_ms;
    size_t opened;             /* protected by the client's mutex */
    void *engine_state;        /* the engine's data for this lock; NULL: none */
    const char *const *beside; /* the keys that the engine keeps beside the lock's own; or NULL */
    unsigned abilities;        /* what the engine can do with this rung */

    pthread_mutex_t mutex; /* protects what is below */
    struct holds holds;
    struct holds calls;             /* of named owners: the holds that have a request under way */
    TAILQ_HEAD(, dlock_hold) turns; /* those that wait for another request of their owner */
    pthread_cond_t answered;        /* a hold has left `calls` or `turns` */
    struct last_seen last_seen;
    /* Why the latest attempt of this client failed; "": it acquired the lock, or found it busy. */
    char trouble[SENTENCE_MAX];
    dlock_status trouble_status;
    int64_t trouble_ns; /* CLOCK_MONOTONIC: when the latest attempt failed */
    /* CLOCK_MONOTONIC: when an attempt last acquired the lock, or found it busy. */
    int64_t answered_ns;

    /* Protected by the loop's mutex. */
    struct wait_queue queue;
    enum wait_kind woken_by; /* what wakes its waiters; WAIT_POLL: nothing does */
    bool subscribed;         /* its waiters are woken by a message */
    struct handoff *handoff; /* with TRAIT_HANDOFF; else NULL */

    void *state; /* ops->state_size bytes */
};

struct dlock_client {
    struct dlock_options options; /* with the defaults filled in; no server, no login is kept */
    const struct dlock_engine *engine;
    void *engine_state; /* the engine's data for this client */
    struct timekeeper timekeeper;
    struct loop loop;
    struct completions completions;
    char id[37];
    int fork_generation;
    int64_t (*now_ns)(void); /* CLOCK_BOOTTIME */

    /* Requests that acquires left on a server: see cleanup.h. Protected by the loop's mutex. */
    LIST_HEAD(cleanups, cleanup) cleanups;
    uint64_t cleanups_started;
    uint64_t cleanups_finished;
    pthread_cond_t cleanup_over;
    /* An exchange that a thread waits for was answered. With the loop's mutex. */
    pthread_cond_t exchange_over;
    /* CLOCK_MONOTONIC. While the client is being closed: when all cleanups must have ended. Else
     * INT64_MAX. */
    int64_t closes_ns;

    pthread_mutex_t mutex; /* protects what is below */
    void *locks;           /* a tree (tsearch) of struct dlock, by rung and name */

    _Atomic int64_t answered_ns; /* CLOCK_MONOTONIC: when an exchange was last answered */
    _Atomic uint64_t acquisitions;
    _Atomic uint64_t identities; /* values proposed, see redis/identity.h */
    _Atomic uint64_t tries;
    _Atomic uint64_t acquired;
    _Atomic uint64_t attempts;
    _Atomic uint64_t released;
    _Atomic uint64_t renewals;
    _Atomic uint64_t renewals_failed;
    _Atomic uint64_t lost;
    _Atomic uint64_t unknown;
    _Atomic uint64_t abandoned;
    _Atomic uint64_t scripts_loaded;
    _Atomic uint64_t contended;
    _Atomic uint64_t handoffs;
    _Atomic uint64_t grants_expired;
    _Atomic uint64_t missed_wakeups;
};

static inline void add_one(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Whether a server has answered an exchange of this client since since_ns. */
static inline bool was_answered(const struct dlock_client *client, int64_t since_ns)
{
    return atomic_load_explicit(&client->answered_ns, memory_order_relaxed) >= since_ns;
}

/* Forks are counted from this call on. Call it before the first client is opened. */
void watch_forks(void);
/* The number of forks between the process that called watch_forks() and this one. A client keeps
 * the number of the process that opened it. */
int fork_generation(void);
/* OK, or FORKED with a sentence. */
dlock_status check_fork(const struct dlock_client *client);

/* Ends the locks that are still open. */
void locks_end(struct dlock_client *client);

/* The order of the client's tree: by rung, then by name. */
int lock_compare(const void *a, const void *b);
/* The lock must be in no tree. */
void lock_free(struct dlock *lock);
/* Counts one more opening of the lock: a lock_close must follow. */
void lock_keep_open(struct dlock *lock);
/* Closes one opening of the lock. 0: done. Otherwise this client may not acquire the lock before
 * the returned time (CLOCK_MONOTONIC), and the lock stays open for the caller. */
int64_t lock_close(struct dlock *lock);

/* A call lasts no longer than its wait and this bound. The bound covers a connection, a request,
 * and finding out what became of the request. */
static inline int64_t bound_ms(const struct dlock_client *client)
{
    return client->options.connect_timeout_ms + 2 * client->options.command_timeout_ms;
}

/* A hold of the lock, with its key set. NULL: out of memory. */
struct dlock_hold *hold_new(struct dlock *lock);
/* NULL: nothing. */
void hold_free(struct dlock_hold *hold);
/* Lets no renewal reach beyond hold_max_ms after begin_ns (CLOCK_BOOTTIME). */
void hold_set_end(struct dlock_hold *hold, int64_t begin_ns);

/* The end of the validity of a time to live that was sent at `sent_ns`. It ends 1 % and 2 ms early,
 * for clock drift. */
static inline int64_t validity_end_ns(int64_t sent_ns, int64_t ttl_ms)
{
    return sent_ns + ttl_ms * NS_PER_MS - ttl_ms * (NS_PER_MS / 100) - 2 * NS_PER_MS;
}

#endif
