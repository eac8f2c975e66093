/* SPDX-License-Identifier: Apache-2.0
 *
 * Renewals under way: many on one connection, none of which waits for another. This file decides
 * when to give the connection up; the engine's renewer sends and receives. Only the timekeeper uses
 * it.
 */
#ifndef DLOCK_RENEWALS_H
#define DLOCK_RENEWALS_H

#include "engine.h"

#define RENEWALS_UNDER_WAY_MAX 1024

struct renewal {
    struct dlock_hold *hold; /* NULL: its answer is not needed any more */
    int64_t sent_ns;         /* CLOCK_BOOTTIME, read before it was sent */
    int64_t ttl_ms;          /* the time to live that it asks for */
    bool in_full;            /* it was sent in full: see renewer_ops.add */
};

struct renewals {
    struct dlock_client *client;
    const struct renewer_ops *ops;
    struct renewer *renewer;
    struct renewal all[RENEWALS_UNDER_WAY_MAX]; /* a ring, in the order of the requests */
    size_t first;                               /* the oldest that has no answer yet */
    size_t count;
    /* The holds, by the end of their validity, for which a renewal is under way. The timekeeper
     * adds them. */
    struct heap under_way;
    int64_t heard_ns;    /* CLOCK_BOOTTIME: when the latest answer came */
    int64_t answer_ns;   /* how long an answer takes; 0: unknown */
    bool distrusted;     /* an answer was not one that the request can have: drop the connection */
    bool broke;          /* the connection was given up: the missing answers will not come */
    dlock_status status; /* of the missing answers, with a sentence */
    char why[SENTENCE_MAX];
};

/* False: out of memory. Call renewals_end in both cases. */
bool renewals_init(struct renewals *renewals, struct dlock_client *client);
void renewals_end(struct renewals *renewals);

/* No renewal is under way, and the connection is ready. */
void renewals_begin(struct renewals *renewals);
static inline bool renewals_has_room(const struct renewals *renewals)
{
    return renewals->count < RENEWALS_UNDER_WAY_MAX;
}
/* Adds a renewal; there must be room. If an earlier one of the same hold is under way, its answer
 * is not needed any more. */
void renewals_add(struct renewals *renewals, struct dlock_hold *hold, int64_t ttl_ms,
                  int64_t sent_ns);
/* When the connection is given up, unless an answer comes before; CLOCK_BOOTTIME. due: holds that
 * are sent after that, by the end of their validity. */
int64_t renewals_limit_ns(const struct renewals *renewals, const struct heap *due);
/* Sends the added renewals, and waits for an answer, or until wake_fd is readable. With `late` it
 * does not wait: if no answer has arrived, it gives up the connection. Only this function is called
 * without the timekeeper's mutex. */
void renewals_wait(struct renewals *renewals, int wake_fd, bool late);
/* The answer to the hold's renewal, if one is under way, is not needed any more. */
void renewals_drop(struct dlock_hold *hold);

struct renewed {
    struct dlock_hold *hold; /* NULL: its answer is not needed */
    int64_t sent_ns;
    int64_t ttl_ms;
    dlock_status status;
    bool again;      /* nothing was done: it must be sent again, in full */
    const char *why; /* unless OK */
};
/* Takes the next answer; false: there is none yet. */
bool renewals_take(struct renewals *renewals, struct renewed *renewed);

#endif
