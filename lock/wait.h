/* SPDX-License-Identifier: Apache-2.0
 *
 * How a waiter waits. It takes its place in the client's wait queue of the lock. At the front it
 * tries, and then sleeps until something wakes it. That is the end of a pause, a message, an
 * element of the wake list, or a release by this process. It stops at its deadline, or when it is
 * cancelled. This is the same for every rung. It is also the same for a waiter that has a thread
 * and for one that is only this struct.
 *
 * The waiters at the front of the queue contend: they try for the lock. There are `contenders` of
 * them if waiters poll, and one if a wake-up is for one waiter. The client's other waiters wait in
 * order. If the client hands the lock off (holding.keeps_place), the holder keeps the one place of
 * a contender.
 */
#ifndef DLOCK_WAIT_H
#define DLOCK_WAIT_H

#include "heap.h"
#include "rung.h"

struct wait_queue {
    TAILQ_HEAD(waits_in_queue, wait) waits;
    size_t contenders;
    uint64_t wakes;   /* counts wake-ups, so that a wake-up during an attempt is not missed */
    int64_t again_ms; /* the pause that the latest BUSY answer asked for */
    int64_t closed_until_ns; /* CLOCK_MONOTONIC: no waiter tries before this */
};

struct wait {
    /* Set by the caller of wait_begin. */
    struct dlock *lock;
    const struct dlock_hold *hold; /* the hold that it wants to acquire */
    enum dlock_mode mode;          /* the mode in which it wants the lock */
    dlock_cancel *cancel;          /* or NULL */
    int64_t deadline_ns;           /* CLOCK_MONOTONIC; 0: one attempt */
    /* CLOCK_MONOTONIC. A waiter without a deadline or in state WAIT_GIVEN is run then, if no thread
     * was free to ask for it. */
    int64_t ends_ns;
    int64_t holds_ms;      /* how long it will hold the lock, unless it is renewed */
    size_t contenders_max; /* it contends while fewer than so many do */
    /* Goes on with a waiter that is due. A worker calls it; or the thread that listens, if the
     * waiter's time has passed or it has nothing to ask. NULL: the waiter has a thread, which calls
     * wait_sleep. */
    void (*run)(struct wait *wait);
    /* For waiters whose requests share connections: see loop_ask. */
    struct exchange *exchange;
    /* Fills in the exchange; false: the waiter was put off. NULL: the exchange is filled in. */
    bool (*ask)(struct wait *wait);
    /* Takes the exchange's result. */
    void (*answered)(struct wait *wait);

    /* Protected by the loop's mutex. */
    enum wait_state {
        WAIT_OUTSIDE,  /* not in the queue */
        WAIT_BEHIND,   /* in the queue, after the contenders */
        WAIT_TRYING,   /* a contender that tries, or is about to */
        WAIT_SLEEPING, /* a contender that sleeps until it is woken */
        WAIT_CHOSEN,   /* the lock is about to be handed to it: it must not leave */
        WAIT_GIVEN,    /* the lock was handed to it */
        WAIT_LEFT,     /* it leaves without the lock from WAIT_BEHIND: no hand-off chooses it */
    } state;
    /* CLOCK_MONOTONIC. WAIT_TRYING: since when it has tried, or earlier contenders have, one
     * after another until they timed out. WAIT_LEFT: since when the contender before it has
     * tried. */
    int64_t trying_ns;
    /* An eventfd that wakes a waiter with a thread; -1 until that must sleep. */
    int wake_fd;
    bool cancelled;
    bool woken; /* it was woken, and has not tried since */
    /* Only its time woke it: the wake-up that it waited for was lost, or was never sent. */
    bool missed_wakeup;
    bool reads;             /* after WAIT_GIVEN, it still has commands for the server */
    bool only_looks;        /* without a thread: its `run` waits for nothing */
    bool running;           /* without a thread: due, being run, or asking */
    bool due;               /* no thread has begun to run it */
    bool asking;            /* its exchange has not begun */
    bool has_answer;        /* its exchange was answered, and it is due */
    int64_t until_ns;       /* CLOCK_MONOTONIC: it is due then in any case */
    uint64_t wakes_seen;    /* queue.wakes before its attempt */
    struct heap_node timed; /* in loop.timed */
    TAILQ_ENTRY(wait) in_queue;
    TAILQ_ENTRY(wait) of_due;
    size_t *counted;            /* the loop's count that includes it; NULL: none does */
    LIST_ENTRY(wait) by_cancel; /* in the loop, if it has a cancel */
    LIST_ENTRY(wait) by_owner;  /* in the loop, if its owner may nest and it was in the queue */
};

enum wait_next {
    NEXT_TRY,
    /* With a thread: call wait_sleep. Without one: it may have been run, and freed, by now. */
    NEXT_SLEEP,
    NEXT_ACQUIRED, /* the lock was handed to it */
    NEXT_BUSY,     /* its only attempt is over */
    NEXT_TIMED_OUT,
    NEXT_CANCELLED,
    NEXT_NO_TIME, /* its time passed before it could send a request */
    NEXT_OVER,    /* its status is set */
};

/* Begins to wait. It does not try at once if other waiters of this client are before it, unless its
 * owner has the lock. Call wait_end in each case. */
enum wait_next wait_begin(struct wait *wait);
/* Says how to go on. Call it before each attempt, and when the waiter is due. */
enum wait_next wait_look(struct wait *wait);
/* The attempt was answered BUSY, or could not be made. nested: its owner has the lock. */
enum wait_next wait_again(struct wait *wait, const struct busy *busy, bool nested);
/* Sleeps until wait_look has something to look at. */
void wait_sleep(struct wait *wait);
/* acquired: it leaves with the lock. */
void wait_end(struct wait *wait, bool acquired);

enum wake {
    WAKE_ONE,     /* one waiter that wants the lock alone */
    WAKE_READERS, /* all waiters that want it shared */
    WAKE_ALL,
};
/* The mutex is held. Wakes waiters that sleep at the lock. */
void wait_wake(struct dlock *lock, enum wake whom) EXPORTED_AS(wait_wake);
/* The same for the waiter whose hold has that owner, also if it waits behind the contenders. */
void wait_wake_owner(struct dlock *lock, const char *owner) EXPORTED_AS(wait_wake_owner);
/* The mutex is held. One waiter that sleeps and wants the lock alone tries after `ms` at the
 * latest. */
void wait_look_in(struct dlock *lock, int64_t ms);
/* A hold was released in this process. Wakes one waiter, unless the server wakes them. */
void wait_released(struct dlock *lock);

/* The mutex is held. Whether the waiter's owner has the lock in this client. */
bool wait_nests(const struct wait *wait);
/* The mutex is held. The hold was acquired: waiters of its owner try at once, and nest. Not with
 * TRAIT_HANDOFF. */
void wait_nest(const struct dlock_hold *hold);

/* TRAIT_HANDOFF; the mutex is held. */
/* The first of this client's waiters that does not contend; NULL: there is none. */
struct wait *wait_first(const struct dlock *lock);
/* The same. That waiter must not leave from here on. */
struct wait *wait_choose(struct dlock *lock);
/* The same among the waiters of that hold's owner. */
struct wait *wait_choose_same(const struct dlock_hold *hold);
/* The chosen waiter has the lock; or, if not has_it, it must try for it. */
void wait_give(struct wait *chosen, bool has_it);
/* The client no longer has the lock; the first waiter in the queue contends for it. It tries at
 * once, with one exception. If the client is queued at the server, and no wake-up has come since
 * `wakes_seen` (queue.wakes), it sleeps. */
void wait_open(struct dlock *lock, bool queued, uint64_t wakes_seen);

/* For the loop; the mutex is held. The waiter's wake-up or cancel has come: runs it. */
void wait_due(struct wait *wait);

#endif
