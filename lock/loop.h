/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: a few threads that run the calls of a client that have no thread of their own. One
 * thread listens: it keeps time, receives wake-ups and notices cancels. Others ask servers, and
 * others deliver completions. They are started when first needed.
 */
#ifndef DLOCK_LOOP_H
#define DLOCK_LOOP_H

#include "completion.h"
#include "heap.h"
#include "rung.h"

#include <pthread.h>

#define LOOP_THREADS_MAX (1 + LOOP_ASKERS_MAX + LOOP_DELIVERERS_MAX) /* one listens */
#define LOOP_THREADS_LEAST 2  /* one to listen, one to work */
#define LOOP_ASKERS_MAX 2     /* threads that may wait for a server */
#define LOOP_DELIVERERS_MAX 2 /* threads that the application's `done` may block */
#define CANCEL_BITS 10
#define OWNER_BITS 10

struct wait;

/* A descriptor of the engine's that the listening thread watches. Protected by the loop's mutex. */
struct watched {
    int fd;                                 /* a duplicate of the engine's; -1: none */
    void (*ready)(struct watched *watched); /* called when it is readable; the mutex is held */
    LIST_ENTRY(watched) of_loop;
};

struct loop {
    struct dlock_client *client;
    int epoll_fd;
    int wake_fd;           /* an eventfd: wakes the listening thread */
    pthread_mutex_t mutex; /* protects what is below, and all waiters of the client */
    pthread_cond_t work;   /* a thread that waits for work should look again */
    bool stop;
    bool led; /* a thread listens */
    /* CLOCK_MONOTONIC: the listening thread sleeps until then, unless it is woken; 0: it is awake.
     */
    int64_t sleeps_until_ns;
    pthread_t threads[LOOP_THREADS_MAX];
    size_t thread_count;
    bool short_of_threads; /* the latest attempt to start a thread failed */
    int64_t thread_ns;     /* CLOCK_MONOTONIC: after a failure, no thread is started before this */
    size_t idle_count;
    size_t asker_count;
    size_t deliverer_count;
    LIST_HEAD(, watched) watched;
    TAILQ_HEAD(waits_in_order, wait) due; /* to be run, in order */
    size_t due_count;
    struct waits_in_order asking; /* their exchanges wait to be sent, in order */
    size_t asking_count;
    size_t due_turns;     /* waiters of `due` that are run before the next exchanges are sent */
    size_t over_count;    /* completions that have not been delivered */
    size_t wait_count;    /* acquires without a thread that do not nest */
    size_t nested_count;  /* acquires without a thread that nest */
    size_t cleanup_count; /* cleanups; each of the three counts is at most waiters_max */
    LIST_HEAD(waits, wait) by_cancel[1 << CANCEL_BITS]; /* waiters with a cancel, by its address */
    struct waits by_owner[1 << OWNER_BITS]; /* waiters of named owners, also those with a thread */
    struct heap timed;                      /* waiters that are due at a time */
    uint32_t random_state;                  /* of the jitter in the pauses of waiters that poll */
};

/* OK, NO_MEMORY. Call loop_stop in both cases. */
dlock_status loop_init(struct loop *loop, struct dlock_client *client);
/* All waits must have ended. */
void loop_stop(struct loop *loop);

/* The mutex is held. Starts the threads, unless they run already. OK, NO_MEMORY. */
dlock_status loop_start(struct loop *loop);
/* The mutex is held. Wakes the listening thread. */
void loop_wake(struct loop *loop);

/* The mutex is held. Calls watched->ready whenever fd is readable, until loop_unwatch. False: no
 * descriptor is left; call loop_unwatch all the same. */
bool loop_watch(struct loop *loop, struct watched *watched, int fd);
void loop_unwatch(struct loop *loop, struct watched *watched);

/* The mutex is held. Adds a waiter without a thread, and watches its cancel. OK, NO_MEMORY, LIMIT.
 * After OK, loop_leave must follow. */
dlock_status loop_join(struct loop *loop, struct wait *wait);
void loop_leave(struct loop *loop, struct wait *wait);
/* The mutex is held. Runs the waiter at wait->until_ns, unless it is taken out of the heap before.
 */
void loop_time(struct loop *loop, struct wait *wait);
/* The mutex is held. Runs the waiter soon, unless it is already due to run. The listening thread
 * runs it in one case: all threads that ask are busy, and the waiter needs no server. It needs none
 * if its time has passed, if it is cancelled, or if it was handed the lock. */
void loop_run(struct loop *loop, struct wait *wait);
/* The mutex is held, and the waiter is being run. Sends its exchange soon, with others in one
 * write. If its time passes or it is cancelled before the exchange begins, the waiter is run
 * instead. */
void loop_ask(struct loop *loop, struct wait *wait);
/* The mutex is held. Runs the waiter again after so long. */
void loop_put_off(struct loop *loop, struct wait *wait, int64_t ms);
/* The mutex is held. Runs a waiter now that was put off. */
void loop_hasten(struct loop *loop, struct wait *wait);
/* The call has ended. One of the threads calls its `done`; with own_loop, dlock_process does. */
void loop_deliver(struct loop *loop, struct completion *completion);
/* The calling thread may wait for a server from here on. If it is a thread of the loop, another
 * takes over the work that it has queued. Takes the mutex. */
void loop_may_block(struct loop *loop);
/* Whether the calling thread listens: then it must not wait for anything. */
bool loop_listens(void);
/* The mutex is held. Whether the calling thread may ask a server only to improve an error sentence.
 * It may if it does not listen, and no waiter needs it. */
bool loop_may_ask(const struct loop *loop);

#endif
