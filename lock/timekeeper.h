/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread per client, with connections of its own: renews what is to be renewed, tells of what
 * is lost, in time also when the server hangs.
 */
#ifndef DLOCK_TIMEKEEPER_H
#define DLOCK_TIMEKEEPER_H

#include "rung.h"

struct timekeeper {
    struct dlock_client *client;
    struct redis *redis;
    pthread_t thread;
    int timer_fd; /* on CLOCK_BOOTTIME, so that it fires right after the machine slept */
    int wake_fd;  /* something changed: ends the sleep and cuts a renewal off */

    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t idle;   /* signalled when busy_with was let go */
    LIST_HEAD(, dlock_hold) holds;
    const struct dlock_hold *busy_with; /* renewed or told of right now, without the mutex */
    int64_t next_ns;                    /* CLOCK_BOOTTIME: when the thread looks again */
    STAILQ_HEAD(, notice) notices;      /* to be told */
    bool stop;
};

/* OK, NO_MEMORY. */
dlock_status timekeeper_start(struct timekeeper *timekeeper, struct dlock_client *client);
void timekeeper_stop(struct timekeeper *timekeeper);

/* Watches a hold that was just acquired; its valid_until_ns and its first renewal are set. */
void timekeeper_watch(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns);
/* Tells of a server's outage; the text is copied. Does not block. */
void timekeeper_notice(void *timekeeper, enum outage outage, const char *reason);
/* Readable once the hold's validity is over, by the kernel's own clock: no thread need run for it.
 * Made when first asked for, the hold's from then on; -1: no descriptor is left. */
int timekeeper_lost_fd(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* None of the owner's holds is valid any more. */
void timekeeper_lose(struct timekeeper *timekeeper, const struct dlock_hold *hold);
/* Nothing is renewed or told of the hold after this; waits for what is under way. */
void timekeeper_forget(struct timekeeper *timekeeper, struct dlock_hold *hold);

#endif
