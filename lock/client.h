/* SPDX-License-Identifier: Apache-2.0
 *
 * The private inside of clients and locks.
 */
#ifndef DLOCK_CLIENT_H
#define DLOCK_CLIENT_H

#include "pool.h"
#include "rung.h"
#include "timekeeper.h"

struct dlock_cancel {
    int fd; /* an eventfd: readable once cancelled */
};

struct gate_waiter;

struct dlock {
    struct dlock_client *client;
    const struct rung_ops *ops;
    struct dlock_rung rung;
    char name[DLOCK_NAME_MAX + 1];
    size_t opened; /* protected by the client's mutex */

    pthread_mutex_t mutex; /* protects what is below */
    LIST_HEAD(, dlock_hold) holds;
    struct gate_waiter *gate_first; /* CONTEND_ONE_PER_CLIENT: who tries, then who is next */
    struct gate_waiter *gate_last;

    int released_fd; /* eventfd: a release that somebody of this process waits for */
    _Atomic int local_waiters;
    void *state; /* ops->state_size bytes */
};

struct dlock_client {
    struct dlock_options options; /* with the defaults filled in; servers is not kept */
    struct redis_config config;
    struct pool pool;
    struct timekeeper timekeeper;
    char id[37];
    int fork_generation;
    int64_t (*now_ns)(void); /* CLOCK_BOOTTIME */

    pthread_mutex_t mutex; /* protects what is below */
    void *locks;           /* a tree (tsearch) of struct dlock by rung and name */

    _Atomic uint64_t acquisitions;
    _Atomic uint64_t acquired;
    _Atomic uint64_t attempts;
    _Atomic uint64_t released;
    _Atomic uint64_t renewals;
    _Atomic uint64_t renewals_failed;
    _Atomic uint64_t lost;
    _Atomic uint64_t unknown;
    _Atomic uint64_t scripts_loaded;
    _Atomic uint64_t contended;
};

static inline void add_one(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* How often this process is a fork's child; a client remembers the number it was opened under. */
int fork_generation(void);
/* OK, or FORKED with a sentence. */
dlock_status check_fork(const struct dlock_client *client);

/* An env for one slot of a rung, connected unless the rung is serverless; neither begins later than
 * limit_ns, CLOCK_MONOTONIC. Not OK: nothing was sent. env_end in each case. */
dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int cancel_fd, struct rung_env *env);
void env_end(struct dlock *lock, struct rung_env *env);

/* What is believed of a time to live that was sent at `sent_ns`: less 1 % + 2 ms for drift. */
static inline int64_t validity_end_ns(int64_t sent_ns, int64_t ttl_ms)
{
    return sent_ns + ttl_ms * NS_PER_MS - ttl_ms * (NS_PER_MS / 100) - 2 * NS_PER_MS;
}

#endif
