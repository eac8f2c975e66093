/* SPDX-License-Identifier: Apache-2.0
 *
 * The private inside of clients and locks.
 */
#ifndef DLOCK_CLIENT_H
#define DLOCK_CLIENT_H

#include "completion.h"
#include "engine.h"
#include "exchange.h"
#include "explain.h"
#include "holding.h"
#include "loop.h"
#include "timekeeper.h"
#include "wait.h"

struct dlock_cancel {
    int fd;                       /* an eventfd: readable once cancelled */
    pid_t process;                /* that made it: a forked child has the descriptor, too */
    _Atomic int64_t requested_ns; /* CLOCK_MONOTONIC: when it was first; INT64_MAX: not yet */
};
bool cancel_is_inherited(const dlock_cancel *cancel);
/* False of NULL. */
bool cancel_requested(const dlock_cancel *cancel);
/* Its requested_ns; INT64_MAX of NULL. */
int64_t cancel_requested_ns(const dlock_cancel *cancel);

#define TTL_MS_DEFAULT 30000 /* where neither the options nor the rung name one */
#define TTL_MS_LEAST 100
#define TTL_MS_MOST INT64_C(86400000)
#define HOLD_MS_MOST INT64_C(31536000000) /* a year */

struct dlock {
    struct dlock_client *client;
    const struct rung_ops *ops;
    const struct holding *holding; /* how a client holds it */
    struct dlock_rung rung;
    char name[DLOCK_NAME_MAX + 1];
    int64_t ttl_ms;
    size_t opened;             /* protected by the client's mutex */
    void *engine_state;        /* what the engine keeps for it; NULL: nothing */
    const char *const *beside; /* the names that the engine keeps beside its own; or NULL */
    unsigned abilities;        /* of the engine, with this rung */

    pthread_mutex_t mutex; /* protects what is below */
    LIST_HEAD(, dlock_hold) holds;
    LIST_HEAD(, dlock_hold) calls;  /* of named owners, that have a request under way */
    TAILQ_HEAD(, dlock_hold) turns; /* that wait for another one of their owner, in order */
    pthread_cond_t answered;        /* one of either has it no more */
    struct last_seen last_seen;
    char trouble[256]; /* why the latest try of this client got no answer; "": it got one */
    dlock_status trouble_status;
    int64_t trouble_ns;  /* CLOCK_MONOTONIC: when that was */
    int64_t answered_ns; /* likewise: when one got an answer last */

    /* Protected by the loop's mutex. */
    struct wait_queue queue;
    enum wait_kind woken_by; /* as its first waiter was told; WAIT_POLL: by nobody */
    bool subscribed;         /* its waiters are woken by a message */
    struct handoff *handoff; /* TRAIT_HANDOFF; else NULL */

    void *state; /* ops->state_size bytes */
};

struct dlock_client {
    struct dlock_options options; /* with the defaults filled in; servers is not kept */
    const struct engine *engine;
    void *engine_state; /* what the engine keeps for it */
    struct timekeeper timekeeper;
    struct loop loop;
    struct completions completions;
    char id[37];
    int fork_generation;
    int64_t (*now_ns)(void); /* CLOCK_BOOTTIME */

    /* What acquires left behind: see cleanup.h. Protected by the loop's mutex. */
    LIST_HEAD(cleanups, cleanup) cleanups;
    uint64_t cleanups_started;
    uint64_t cleanups_finished;
    pthread_cond_t cleanup_over;
    pthread_cond_t exchange_over; /* one that a thread waits for; with the loop's mutex */
    int64_t closes_ns; /* CLOCK_MONOTONIC: it is closed, and they are over by then; INT64_MAX: it is
                          not */

    pthread_mutex_t mutex; /* protects what is below */
    void *locks;           /* a tree (tsearch) of struct dlock by rung and name */

    _Atomic int64_t answered_ns; /* CLOCK_MONOTONIC: when an exchange was answered last */
    _Atomic uint64_t acquisitions;
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

/* A server has answered one of its exchanges since then. */
static inline bool was_answered(const struct dlock_client *client, int64_t since_ns)
{
    return atomic_load_explicit(&client->answered_ns, memory_order_relaxed) >= since_ns;
}

/* Before the first client is opened: forks are counted from here on. */
void watch_forks(void);
/* How often this process is a fork's child; a client remembers the number it was opened under. */
int fork_generation(void);
/* OK, or FORKED with a sentence. */
dlock_status check_fork(const struct dlock_client *client);

/* Ends those that are still open. */
void locks_end(struct dlock_client *client);

/* The order of the client's tree: by rung and name. */
int lock_compare(const void *a, const void *b);
/* It is in no tree. */
void lock_free(struct dlock *lock);
/* It is opened once more: a dlock_close must follow. */
void lock_keep_open(struct dlock *lock);
/* 0: closed. Else nobody of this client may have it before then, CLOCK_MONOTONIC, and it stays open
 * for the caller. */
int64_t lock_close(struct dlock *lock);

/* No call lasts longer than what it is told to wait and this: it may have to connect, to send a
 * request, and to find out what became of it. */
static inline int64_t bound_ms(const struct dlock_client *client)
{
    return client->options.connect_timeout_ms + 2 * client->options.command_timeout_ms;
}

/* Of the lock, with its key. NULL: no memory is left. */
struct dlock_hold *hold_new(struct dlock *lock);
/* No renewal reaches beyond hold_max_ms from begin_ns, CLOCK_BOOTTIME. */
void hold_set_end(struct dlock_hold *hold, int64_t begin_ns);

/* What is believed of a time to live that was sent at `sent_ns`: less 1 % + 2 ms for drift. */
static inline int64_t validity_end_ns(int64_t sent_ns, int64_t ttl_ms)
{
    return sent_ns + ttl_ms * NS_PER_MS - ttl_ms * (NS_PER_MS / 100) - 2 * NS_PER_MS;
}

#endif
