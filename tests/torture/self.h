/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that the threads of one process share, and the process's calls of the library. All code
 * that depends on the library's interface is in calls.c.
 */
#ifndef TORTURE_SELF_H
#define TORTURE_SELF_H

#include "client.h"

#include <pthread.h>

#define KEPT_MAX 8
#define CANCELS_MAX 24

/* A hold that no thread is using. Any thread may release it later. */
struct kept {
    dlock_hold *hold; /* NULL if this place is free */
    struct call *call;
};

struct cancelling {
    dlock_cancel *cancel; /* NULL if this place is free */
    struct call *call;
};

/* One dlock_client and its locks. */
struct member {
    uint64_t number;
    dlock_client *client;
    dlock *locks[LOCKS_MAX];
};

struct self {
    struct world *world;
    const struct plan *plan;
    struct process *shared;
    int process;
    const char *urls[SERVERS_MOST];
    struct member main;
    _Atomic int running; /* threads that make calls */
    _Atomic int started; /* calls started and not completed */
    _Atomic bool stop_loop, stop_keeper;

    pthread_mutex_t mutex; /* protects the fields below */
    struct kept kept[KEPT_MAX];
    struct cancelling cancels[CANCELS_MAX];
};

struct thread {
    struct self *self;
    int number;
    uint64_t random;
    pthread_t id;
    int depth;
    void *place; /* of the plan's visitor */
};

/* How to acquire; see struct dlock_want. */
struct how {
    int lock;
    uint64_t owner_id; /* 0: this acquisition alone */
    enum dlock_mode mode;
    int64_t wait_ms, call_max_ms;
    int64_t ttl_ms; /* 0: the client's default */
    bool rides, cancels, rest;
};

bool member_open(struct self *self, struct member *member, bool own_loop);
void member_close(struct self *self, struct member *member);

/* The record of a call that acquires, and what it wants of the library. */
struct call *acquire_begin(struct thread *thread, const struct member *member, enum what what,
                           const struct how *how);
struct dlock_want acquire_want(const struct self *self, struct call *call, dlock_batch *reads,
                               dlock_cancel *cancel);
/* It was answered; hold: NULL unless OK. */
void acquire_answered(struct self *self, struct call *call, dlock_status status, dlock_hold *hold);
dlock_batch *reads_new(bool rides); /* NULL: nothing rides */
dlock_cancel *cancel_offer(struct self *self, struct call *call);
void cancel_withdraw(struct self *self, dlock_cancel *cancel, const struct call *call);

dlock_hold *hold_acquire(struct thread *thread, const struct member *member, dlock *lock,
                         const struct how *how, struct call **call);
void hold_start(struct thread *thread, const struct how *how, bool keep);
void hold_release(struct thread *thread, dlock_hold *hold, struct call *call, bool rides);
/* Releases with dlock_release_start(). */
void hold_release_start(struct thread *thread, dlock_hold *hold, struct call *call, bool rides);

/* Checks that the hold's loss descriptor agrees with dlock_valid(). */
void judge_lost_fd(struct self *self, struct call *call, dlock_hold *hold);

/* Keeps the hold for a later release. False if there is no place. */
bool hold_keep(struct self *self, dlock_hold *hold, struct call *call);
struct kept hold_take(struct self *self);
void look_at_kept(struct self *self);
/* Cancels some call that waits. */
void cancel_one(struct self *self, uint64_t *random);

void lock_break(struct thread *thread, int lock);
void lock_inspect(struct thread *thread, int lock);
void lock_reopen(struct thread *thread, const struct how *how);
/* In a forked child: checks that it can use nothing of the parent's. */
void judge_inherited(struct self *self, dlock_hold *hold);

#endif
