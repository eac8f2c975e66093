/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread per client, with a connection of its own. It renews the holds that are to be renewed:
 * those that end first are first, and none waits for another's answer. It tells of each hold that
 * is lost, in time also when the server hangs.
 */
#ifndef DLOCK_TIMEKEEPER_H
#define DLOCK_TIMEKEEPER_H

#include "heap.h"
#include "renewals.h"

#include <pthread.h>

struct timekeeper {
    struct dlock_client *client;
    int64_t connects_since_ns; /* CLOCK_MONOTONIC: that one is being made; 0: it is not */
    pthread_t thread;
    int timer_fd; /* on CLOCK_BOOTTIME, so that it fires right after the machine slept; readable:
                     the thread shall look again */

    pthread_mutex_t mutex;    /* protects what is below */
    pthread_cond_t idle;      /* signalled when busy_with was let go */
    struct heap ends;         /* the holds that nobody was told of, by the end of their validity */
    struct heap waiting;      /* those to be renewed later, by when */
    struct heap due;          /* those to be renewed now, by the end of their validity */
    struct renewals renewals; /* its holds; the rest is the thread's alone */
    bool busy;                /* with a request that only a loss may interrupt */
    const struct dlock_hold *busy_with; /* told of, or renewed alone, without the mutex */
    STAILQ_HEAD(, notice) notices;      /* to be told */
    int64_t next_ns; /* CLOCK_BOOTTIME: what the timer is set to; INT64_MIN: the thread looks
                        anyway */
    bool stop;
};

/* OK, NO_MEMORY. */
dlock_status timekeeper_start(struct timekeeper *timekeeper, struct dlock_client *client);
void timekeeper_stop(struct timekeeper *timekeeper);

/* Watches a hold that was just acquired: it, and those nested with it, were given ttl_ms by a
 * request sent at sent_ns. */
void timekeeper_watch(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                      int64_t ttl_ms);
/* The same again for a hold that is watched. */
void timekeeper_extend(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                       int64_t ttl_ms);
/* Tells of a server's outage; the text is copied. Does not block. */
void timekeeper_notice(void *timekeeper, enum outage outage, const char *reason);
/* Readable once the hold's validity is over, by the kernel's own clock: no thread need run for it.
 * Made when first asked for, the hold's from then on; -1: no descriptor is left. */
int timekeeper_lost_fd(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* The server says that the owner has not the lock any more: none of its holds is valid. Each is
 * told of once. */
void timekeeper_lose(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* The same two for an engine, which is not told how each hold ends: for those of the owner that are
 * watched. Extending answers whether one of them is valid. */
bool timekeeper_extend_owner(struct dlock *lock, const char *owner, int64_t sent_ns,
                             int64_t ttl_ms);
void timekeeper_lose_owner(struct dlock *lock, const char *owner);
/* No renewal of the hold is sent, and nothing is told of it, after this. Waits for the hook that is
 * told of it, but not for an answer: what a late renewal does to a released name harms nobody. */
void timekeeper_forget(struct timekeeper *timekeeper, struct dlock_hold *hold);

/* What a renewal that is sent at sent_ns asks for: never beyond the hold's last moment. */
int64_t renewal_ms(const struct dlock_hold *hold, int64_t sent_ns);

#endif
