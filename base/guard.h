/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock under which a worker of a frame serves a request. The worker waits for it, blocked. The
 * history gets `granted`, `enter`, `exit` and `release`, and the meters what they count.
 */
#ifndef GUARD_H
#define GUARD_H

#include "frame.h"

struct guard {
    struct frame *frame;
    const struct request *request;
    const char *item; /* what the lock guards; it must outlive the guard */
    char lock[ITEM_MAX + 8];
    struct lock_owner *owner;
    dlock_hold *hold;
    char hold_id[192];
    int64_t granted_ns;
};

/* Begins to serve the request: the history's lines name it, and its item, from now on. False: out
 * of memory, and the request is answered. */
bool guard_begin(struct guard *guard, struct frame *frame, struct request *request,
                 const char *item);
/* Acquires lock:{item} on the rung of --lock, until --wait-ms after the request arrived. False: it
 * was not granted, and the request is answered. */
bool guard_enter(struct guard *guard, struct request *request);
/* Whether the hold is valid now. */
bool guard_is_valid(const struct guard *guard);
/* Releases the lock, if it is held. A failed release undoes nothing: it is logged. */
void guard_leave(struct guard *guard);
/* Leaves, and ends what guard_begin began. */
void guard_end(struct guard *guard);

/* Records an event of the request; the rest is as of history_event. */
struct history_request guard_record(const struct guard *guard);
#define GUARD_RECORD(guard, event, ...)                                                            \
    do {                                                                                           \
        const struct history_request record = guard_record(guard);                                 \
        history_event((guard)->frame->history, &record, event, __VA_ARGS__);                       \
    } while (0)

#endif
