/* SPDX-License-Identifier: Apache-2.0
 *
 * How a waiter waits: in its client's wait queue of the lock, then by pausing, or until a message
 * or an element of the wake list, where none comes also until a release of this process; until its
 * deadline or its cancelling.
 * The same for every rung, and for a waiter that has a thread as for one that is only this struct.
 *
 * A line has a front of contenders, who try: `contenders` of them where waiters poll, one where a
 * wake-up is for one. The others of this client stand behind them, in order. Where the
 * client hands the lock off (holding.keeps_place) whoever has it keeps the one place of a
 * contender.
 */
#ifndef DLOCK_WAIT_H
#define DLOCK_WAIT_H

#include "heap.h"
#include "rung.h"

struct wait_queue {
    TAILQ_HEAD(, wait) waits;
    size_t contenders;
    uint64_t wakes;          /* counts them, so that one that comes during a try is not missed */
    int64_t again_ms;        /* what the latest busy answer said */
    int64_t closed_until_ns; /* CLOCK_MONOTONIC: nobody tries before */
};

struct wait {
    /* Set by the caller of wait_begin. */
    struct dlock *lock;
    const struct dlock_hold *hold; /* that it waits to get */
    enum dlock_mode mode;          /* how it wants the lock */
    dlock_cancel *cancel;          /* or NULL */
    int64_t deadline_ns;           /* CLOCK_MONOTONIC; 0: one try */
    int64_t ends_ns;  /* CLOCK_MONOTONIC: of one without a deadline, or that was GIVEN the lock: it
                        is run then, if nobody was free to ask for it */
    int64_t holds_ms; /* once it has the lock: so long, unless it is renewed */
    /* It is due: goes on with it. Called on a worker; on the thread that listens where its time is
     * over, or it has nothing to ask. NULL: it has a thread, which calls wait_sleep. */
    void (*run)(struct wait *wait);
    /* Of one whose requests share connections, see loop_ask. */
    struct exchange *exchange;
    bool (*ask)(struct wait *wait);      /* fills it in; false: it was put off. NULL: it is */
    void (*answered)(struct wait *wait); /* and what came of it is there */

    /* Protected by the loop's mutex. */
    enum wait_state {
        WAIT_OUTSIDE,  /* not queued */
        WAIT_BEHIND,   /* others of this client are before it */
        WAIT_TRYING,   /* a contender that tries, or is about to */
        WAIT_SLEEPING, /* a contender until something comes */
        WAIT_CHOSEN,   /* the lock is about to be passed on to it: it may not leave */
        WAIT_GIVEN,    /* the lock was passed on to it */
        WAIT_LEFT,     /* was BEHIND, and leaves without the lock: nobody chooses it any more */
    } state;
    int64_t
        trying_ns; /* CLOCK_MONOTONIC. WAIT_TRYING: since when it does, or those before it did, one
                          after another, to the end of their time. WAIT_LEFT: since when one did */
    int wake_fd;   /* eventfd, of one with a thread: it is due; -1 until it must sleep */
    bool cancelled;
    bool woken; /* and has not tried since */
    /* Its time came, nothing else: what it waits for was lost, or is not there. */
    bool missed_wakeup;
    bool reads;             /* GIVEN the lock, it still asks the server for something */
    bool running;           /* of one without a thread: due, being run, or asking */
    bool due;               /* nobody has begun to run it */
    bool asking;            /* its exchange has not begun */
    bool has_answer;        /* and it is due */
    int64_t until_ns;       /* CLOCK_MONOTONIC: when it is due anyway */
    uint64_t seen;          /* line.wakes before its try */
    struct heap_node timed; /* in the loop */
    TAILQ_ENTRY(wait) in_queue;
    TAILQ_ENTRY(wait) of_due;
    size_t *counted;            /* the loop's number that it counts in; NULL: in none */
    LIST_ENTRY(wait) by_cancel; /* in the loop, if it has a cancel */
    LIST_ENTRY(wait) by_owner;  /* in the loop, if its owner may nest and it has been queued */
};

enum wait_next {
    NEXT_TRY,
    NEXT_SLEEP, /* with a thread: call wait_sleep. Without: it may be run, even be gone, by now */
    NEXT_ACQUIRED, /* the lock was passed on to it */
    NEXT_BUSY,     /* it was to try once, and that is over */
    NEXT_TIMED_OUT,
    NEXT_CANCELLED,
    NEXT_NO_TIME, /* others came first until its limit was over, and it has asked nobody */
    NEXT_OVER,    /* its status is there */
};

/* Begins: not at once, when others of this client are before it, unless its owner has the lock.
 * wait_end must follow in each case. */
enum wait_next wait_begin(struct wait *wait);
/* It was asked to go on. Before each try. */
enum wait_next wait_look(struct wait *wait);
/* The try was answered BUSY, or could not be made. nested: its owner has the lock. */
enum wait_next wait_again(struct wait *wait, const struct busy *busy, bool nested);
/* Sleeps until there is something to look at. */
void wait_sleep(struct wait *wait);
/* had: it leaves with the lock. */
void wait_end(struct wait *wait, bool acquired);

enum wake {
    WAKE_ONE,     /* who wants it alone */
    WAKE_READERS, /* all who want it shared */
    WAKE_ALL,
};
/* The mutex is held. Wakes those that sleep at the lock. */
void wait_wake(struct dlock *lock, enum wake whom);
/* The mutex is held. One that sleeps and wants it alone tries in so many ms at the latest. */
void wait_look_in(struct dlock *lock, int64_t ms);
/* A hold was released in this process: of those whom the server does not tell one looks. */
void wait_released(struct dlock *lock);

/* The mutex is held. Its owner has the lock in this client. */
bool wait_nests(const struct wait *wait);
/* The mutex is held. The hold was acquired: those that wait for its owner try at once, and nest.
 * Not with TRAIT_HANDOFF. */
void wait_nest(const struct dlock_hold *hold);

/* TRAIT_HANDOFF; the mutex is held. */
/* The first of this client's that wait; NULL: there is none. */
struct wait *wait_first(const struct dlock *lock);
/* The same, which may not leave from here on. */
struct wait *wait_choose(struct dlock *lock);
/* The same of those that wait for the owner of that hold. */
struct wait *wait_choose_same(const struct dlock_hold *hold);
/* It has the lock, or must try for it. */
void wait_give(struct wait *chosen, bool has_it);
/* The client does not have the lock any more; the first in the queue contends for it, at once
 * unless it is queued at the server and nothing has come since `seen` (queue.wakes). */
void wait_open(struct dlock *lock, bool queued, uint64_t seen);

/* For the loop; the mutex is held. What was to be waited for, or the cancel, has come: runs it. */
void wait_due(struct wait *wait);

#endif
