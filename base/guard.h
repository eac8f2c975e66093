/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock under which a worker of a frame serves a request. The worker waits for it, blocked. The
 * history gets `granted`, `enter`, `exit` and `release`, and the meters what they count.
 *
 * A request that needs several locks at once has a guard for each. The first one begins and ends
 * for all of them; the others join it.
 */
#ifndef GUARD_H
#define GUARD_H

#include "frame.h"

struct guard {
    struct frame *frame;
    struct request *request;
    const char *item; /* what the lock guards; it must outlive the guard */
    char lock[ITEM_MAX + 8];
    struct lock_owner *owner;
    dlock_hold *hold;
    char hold_id[192];
    int64_t granted_ns;
    struct guard *first;  /* of the request: this one, or the one that it has joined */
    struct guard *joined; /* the one that joined before it; of the first: the latest that joined */
    dlock *own;           /* the open lock, if it has joined; the first one's is its owner's */
    bool abandons; /* of the first: a write may still arrive, so the locks are left to expire */
};

/* Begins to serve the request, and records its `invoke`: from now on the history's lines name
 * it, and its item, which has at most ITEM_MAX bytes. False: out of memory, and the request is
 * answered. */
bool guard_begin(struct guard *guard, struct frame *frame, struct request *request,
                 const char *item);
/* One more lock of the request for which `first` has begun: that of another item. It ends with
 * `first`. The history's lines still name the item of `first`. At most DLOCK_MANY_MAX guards. */
void guard_join(struct guard *guard, struct guard *first, const char *item);
/* Acquires lock:{item} on the rung of --lock, until --wait-ms after the request arrived; the guard
 * must not hold it. False: it was not granted, or the client has closed its connection; and the
 * request is answered. If the request has other locks, `wants` is recorded before the wait. */
bool guard_enter(struct guard *guard);
/* The same for `first` and all guards that have joined it: all locks or none, in an order in which
 * no cycle of waits can arise (dlock_acquire_many). */
bool guard_enter_all(struct guard *first);
/* Makes one attempt. False: another request has the lock, or its server does not answer; nothing is
 * answered. */
bool guard_try(struct guard *guard);
/* Whether the hold is valid now. */
bool guard_is_valid(const struct guard *guard);
/* The same. False: the request is answered, too: lock-lost. */
bool guard_go_on(struct guard *guard);
/* What is left of the request's --wait-ms; at least 0. */
int64_t guard_left_ms(const struct guard *guard);
/* Answers the request with that problem and sentence, without the addresses of servers. */
void guard_answer(const struct guard *guard, int problem, const char *why);
/* Answers a request whose command was not STORE_OK, and returns false. The first is for a command
 * that only reads. After the second one's STORE_LOST the write may be carried out later: so the
 * server is made to end its connection. If that fails, all locks of the request are left to expire.
 * A guard that has not begun needs only its frame and request. */
bool guard_read_failed(struct guard *guard, struct store *store, enum store_status status);
bool guard_write_failed(struct guard *guard, struct store *store, enum store_status status);
/* What guard_write_failed does after STORE_LOST, without the answer. */
void guard_end_lost(struct guard *guard, struct store *store);
/* Sends a command that may be carried out twice until it is answered, for --wait-ms at most. After
 * STORE_LOST it first does what guard_end_lost does, so that none comes late.
 * False: the latest one was not answered; the request is not, either. */
bool guard_repeat(struct guard *guard, struct store *store, int argc, const char *const *argv);
/* Releases the lock, if it is held. A failed release undoes nothing: it is logged. */
void guard_leave(struct guard *guard);
/* Leaves, as do the guards that have joined, and ends what guard_begin began. If the answer is a
 * problem, it is recorded as the request's end: as `refused`, `fail` or, if nobody knows what
 * became of a write, as `unknown`. An answer of another kind was recorded by the service. */
void guard_end(struct guard *guard);

/* Records an event of the request, with its hold if it has one; the rest is as of history_event. */
#define GUARD_RECORD(guard, event, ...) guard_record_event(guard, event, __VA_ARGS__)
void guard_record_event(const struct guard *guard, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
struct history_request guard_record(const struct guard *guard);

#endif
