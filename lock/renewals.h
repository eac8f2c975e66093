/* SPDX-License-Identifier: Apache-2.0
 *
 * Renewals under way: many on one connection, none of which waits for another. When the connection
 * is given up is decided here; the engine's renewer sends and receives. The timekeeper's alone.
 */
#ifndef DLOCK_RENEWALS_H
#define DLOCK_RENEWALS_H

#include "engine.h"

#define RENEWALS_UNDER_WAY_MAX 1024 /* under way */

struct renewal {
    struct dlock_hold *hold; /* NULL: nobody asks for its answer any more */
    int64_t sent_ns;         /* CLOCK_BOOTTIME, from before it was sent */
    int64_t ttl_ms;          /* that was asked for */
    bool in_full;            /* it was sent in full */
};

struct renewals {
    struct dlock_client *client;
    const struct renewer_ops *ops;
    struct renewer *renewer;
    struct renewal all[RENEWALS_UNDER_WAY_MAX]; /* a ring, in the order of their answers */
    size_t first;                               /* the oldest whose answer was not taken */
    size_t count;
    struct heap under_way; /* the holds, put there by the timekeeper, that a renewal under way is
                              for; each until it has no time for another try; by the end of
                              their validity */
    int64_t heard_ns;      /* CLOCK_BOOTTIME: when an answer came last */
    int64_t answer_ns;     /* how long an answer takes; 0: not known */
    bool distrusted;       /* an answer was none that can come: the connection must be dropped */
    bool broke;            /* those without an answer get none: */
    dlock_status status;   /* what they get, and why */
    char why[SENTENCE_MAX];
};

/* False: out of memory; renewals_end in each case. */
bool renewals_init(struct renewals *renewals, struct dlock_client *client);
void renewals_end(struct renewals *renewals);

/* None is under way, and the connection is ready. */
void renewals_begin(struct renewals *renewals);
static inline bool renewals_has_room(const struct renewals *renewals)
{
    return renewals->count < RENEWALS_UNDER_WAY_MAX;
}
/* Adds one, as there is room. If one of the same hold is under way, nobody asks for that one any
 * more. */
void renewals_add(struct renewals *renewals, struct dlock_hold *hold, int64_t ttl_ms,
                  int64_t sent_ns);
/* When the connection is given up, unless something comes; CLOCK_BOOTTIME. */
int64_t renewals_limit_ns(struct renewals *renewals);
/* Sends those that were added, and waits until there is an answer to take, or until wake_fd is
 * readable. late: an answer that is not here now is given up, and those behind it. Only this is
 * called without the timekeeper's mutex. */
void renewals_wait(struct renewals *renewals, int wake_fd, bool late);
/* Nobody asks for the hold's answer any more, if one is under way. */
void renewals_drop(struct dlock_hold *hold);

struct renewed {
    struct dlock_hold *hold; /* NULL: it was dropped */
    int64_t sent_ns;
    int64_t ttl_ms;
    dlock_status status;
    bool again;      /* nothing was done: it must be sent again, in full */
    const char *why; /* unless OK */
};
/* The next answer that is here; false: none is. */
bool renewals_take(struct renewals *renewals, struct renewed *renewed);

#endif
