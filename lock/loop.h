/* SPDX-License-Identifier: Apache-2.0
 *
 * What drives the calls of a client that have no thread of their own: a few threads, one of which
 * keeps their time, hears what the server says and sees what is cancelled, while others ask servers
 * for them and another tells of those that are over. Started when first needed.
 */
#ifndef DLOCK_LOOP_H
#define DLOCK_LOOP_H

#include "completion.h"
#include "heap.h"
#include "rung.h"

#include <pthread.h>

#define LOOP_THREADS_MAX 4
#define LOOP_THREADS_LEAST 2  /* one listens, one does */
#define LOOP_ASKERS_MAX 2     /* that may wait for a server */
#define LOOP_DELIVERERS_MAX 2 /* that may be kept by the application */
#define CANCEL_BITS 10
#define OWNER_BITS 10

struct wait;

/* A descriptor of an engine's, looked at by the thread that listens. Protected by the loop's
 * mutex. */
struct watched {
    int fd;                                 /* a duplicate of it; -1: none */
    void (*ready)(struct watched *watched); /* there is something to read; the mutex is held */
    LIST_ENTRY(watched) of_loop;
};

struct loop {
    struct dlock_client *client;
    int epoll_fd;
    int wake_fd;           /* eventfd: the listener shall look again */
    pthread_mutex_t mutex; /* protects what is below, and all waiters of the client */
    pthread_cond_t work;   /* something is due */
    bool stop;
    bool led;                /* one listens */
    int64_t sleeps_until_ns; /* CLOCK_MONOTONIC: it does, unless it is woken; 0: it is awake */
    pthread_t threads[LOOP_THREADS_MAX];
    size_t thread_count;
    bool short_of_threads; /* the latest could not be made, */
    int64_t thread_ns;     /* CLOCK_MONOTONIC: and no other is tried before */
    size_t idle_count;
    size_t asker_count;
    size_t deliverer_count;
    LIST_HEAD(, watched) watched;
    TAILQ_HEAD(waits_in_order, wait) due; /* to be run, in order */
    size_t due_count;
    struct waits_in_order asking; /* whose exchanges are to be made, in order */
    size_t asking_count;
    size_t due_turns;     /* so many of those due come before the next that ask */
    size_t over_count;    /* completions to be told of */
    size_t wait_count;    /* acquires that have no thread; */
    size_t nested_count;  /* those of owners that have the lock already; */
    size_t cleanup_count; /* what acquires left behind: each is waiters_max at most */
    LIST_HEAD(waits, wait) by_cancel[1 << CANCEL_BITS]; /* those with a cancel, by its address */
    struct waits by_owner[1 << OWNER_BITS]; /* those of named owners, also with a thread */
    struct heap timed;                      /* those that wait for a moment */
    uint32_t chance;                        /* spreads the pauses of those that poll */
};

/* OK, NO_MEMORY; loop_stop in each case. */
dlock_status loop_init(struct loop *loop, struct dlock_client *client);
/* All waits must be over. */
void loop_stop(struct loop *loop);

/* The mutex is held. Makes sure that there are threads. OK, NO_MEMORY. */
dlock_status loop_start(struct loop *loop);
/* The mutex is held. The listener looks again. */
void loop_wake(struct loop *loop);

/* The mutex is held. watched->ready is called when there is something to read, until loop_unwatch.
 * False: no descriptor is left; loop_unwatch all the same. */
bool loop_watch(struct loop *loop, struct watched *watched, int fd);
void loop_unwatch(struct loop *loop, struct watched *watched);

/* The mutex is held. Takes on a waiter without a thread, and watches its cancel. OK, NO_MEMORY,
 * LIMIT. loop_leave in the end. */
dlock_status loop_join(struct loop *loop, struct wait *wait);
void loop_leave(struct loop *loop, struct wait *wait);
/* The mutex is held. Runs it at wait->until_ns, unless it is taken out of the heap before. */
void loop_time(struct loop *loop, struct wait *wait);
/* The mutex is held. Runs it soon; by the thread that listens when its time is over, or it is
 * cancelled, or has nothing to ask, and all that ask are kept. Not if it is to be run already. */
void loop_run(struct loop *loop, struct wait *wait);
/* The mutex is held, and the waiter runs. Makes its exchange soon, with those of others in one
 * write; when its time is over, or it is cancelled, it is run instead, unless that has begun. */
void loop_ask(struct loop *loop, struct wait *wait);
/* The mutex is held. It is run again after so long. */
void loop_put_off(struct loop *loop, struct wait *wait, int64_t ms);
/* It is over: its `done` is called on one of the threads, or with own_loop by dlock_process. */
void loop_deliver(struct loop *loop, struct completion *completion);
/* The calling thread may wait for a server from here on: if it is one of the loop's, another takes
 * what it has brought about. Takes the mutex. */
void loop_may_block(struct loop *loop);
/* Whether this thread listens: it may wait for nothing. */
bool loop_listens(void);
/* The mutex is held. Whether this thread may ask a server something that only makes an answer
 * better: it does not listen, and nobody waits for it. */
bool loop_may_ask(const struct loop *loop);

#endif
