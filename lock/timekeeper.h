/* SPDX-License-Identifier: Apache-2.0
 *
 * The timekeeper: one thread per client, with a connection of its own. It renews holds, the one
 * that ends first before the others, and waits for no answer before it sends the next. It reports
 * each lost hold, in time even if the server hangs.
 */
#ifndef DLOCK_TIMEKEEPER_H
#define DLOCK_TIMEKEEPER_H

#include "heap.h"
#include "renewals.h"

#include <pthread.h>

struct timekeeper {
    struct dlock_client *client;
    /* CLOCK_MONOTONIC: when it began to connect; 0: it is not connecting. */
    int64_t connects_since_ns;
    pthread_t thread;
    /* On CLOCK_BOOTTIME, so that it fires right after the machine slept. Readable: the thread must
     * look again. */
    int timer_fd;

    pthread_mutex_t mutex; /* protects what is below */
    pthread_cond_t idle;   /* signalled when busy_with, or a hold's in_round, is cleared */
    struct heap ends;      /* holds whose loss is not reported yet, by the end of their validity */
    struct heap waiting;   /* holds to be renewed later, by the time of their turn */
    struct heap due;       /* holds to be renewed now, by the end of their validity */
    struct renewals renewals; /* its holds; the other members belong to the thread */
    bool busy;                /* a request is under way that only a loss may interrupt */
    /* The hold that a hook is called for, or that is renewed alone. Used without the mutex. */
    const struct dlock_hold *busy_with;
    /* Outages to be reported. */
    STAILQ_HEAD(, notice) notices;
    int64_t sends_kept_ns; /* CLOCK_BOOTTIME: when it calls engine.send_kept; INT64_MAX: never */
    int64_t kept_pause_ns; /* the pause before its next call */
    /* CLOCK_BOOTTIME: the time that the timer is set to. INT64_MIN: the thread is awake, and looks
     * anyway. */
    int64_t next_ns;
    bool stop;
};

/* OK, NO_MEMORY. */
dlock_status timekeeper_start(struct timekeeper *timekeeper, struct dlock_client *client);
void timekeeper_stop(struct timekeeper *timekeeper);

/* Watches a hold that was just acquired. A request sent at sent_ns gave ttl_ms to it, and to the
 * holds that share its key. */
void timekeeper_watch(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                      int64_t ttl_ms);
/* The same for a hold that is watched already. */
void timekeeper_extend(struct timekeeper *timekeeper, struct dlock_hold *hold, int64_t sent_ns,
                       int64_t ttl_ms);
/* Reports a server's outage to the application. The text is copied. Does not block. */
void timekeeper_notice(void *timekeeper, enum outage outage, const char *reason)
    EXPORTED_AS(timekeeper_notice);
/* The engine keeps requests that it can send only later: see engine.send_kept. Does not block. */
void timekeeper_send_kept(void *timekeeper);
/* One round of a hold of TRAIT_QUORUM at a time: its servers' state belongs to that round. The
 * first waits for a renewal of the hold, for another dlock_extend, and for a hook that is running
 * for it. The second one waits, too, then begins a round for dlock_extend.
 * The thread keeps the hold's turn; if that comes during the round, it is taken at the round's end.
 * False: until_ns (CLOCK_MONOTONIC; 0: do not wait) has passed. */
bool timekeeper_await_round(struct timekeeper *timekeeper, const struct dlock_hold *hold,
                            int64_t until_ns);
bool timekeeper_begin_round(struct timekeeper *timekeeper, struct dlock_hold *hold,
                            int64_t until_ns);
void timekeeper_end_round(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* A descriptor that is readable once the hold's validity has ended. The kernel's timer makes it so;
 * no thread has to run. Made at the first call, and kept by the hold. -1: no descriptor is left. */
int timekeeper_lost_fd(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* The server says that the owner has lost the lock: none of its holds is valid. Each loss is
 * reported once. */
void timekeeper_lose(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* The same two for an engine, which cannot know when a hold ends. They apply to the owner's holds
 * that are watched: whether there are any, and, of extend, whether one is valid. */
bool timekeeper_extend_owner(struct dlock *lock, const char *owner, int64_t sent_ns, int64_t ttl_ms)
    EXPORTED_AS(timekeeper_extend_owner);
bool timekeeper_lose_owner(struct dlock *lock, const char *owner)
    EXPORTED_AS(timekeeper_lose_owner);
/* After this, no renewal of the hold is sent, and no hook is called for it. Waits for a hook that
 * is running for it, but not for an answer. A renewal that arrives after the release changes
 * nothing. */
void timekeeper_forget(struct timekeeper *timekeeper, struct dlock_hold *hold);
/* The same without waiting for a hook. False: one is running for the hold. */
bool timekeeper_try_to_forget(struct timekeeper *timekeeper, struct dlock_hold *hold);

/* The end of the validity that a time to live gives, if it was asked for at sent_ns: not beyond
 * hold_max_ms. With an ensemble, sent_ns may be earlier than the acquire. hold_max_ms begins with
 * the acquire, and so does its margin. */
int64_t hold_valid_until(const struct dlock_hold *hold, int64_t sent_ns, int64_t ttl_ms);

/* The time to live that a renewal sent at sent_ns asks for: not beyond hold_max_ms. */
int64_t renewal_ms(const struct dlock_hold *hold, int64_t sent_ns);

#endif
