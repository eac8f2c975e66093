/* SPDX-License-Identifier: Apache-2.0
 *
 * A client that hands a lock off: what it has from one grant of the server to the next.
 */
#ifndef DLOCK_HANDOFF_H
#define DLOCK_HANDOFF_H

#include "client.h"

#define GRANT_TOKENS 1000 /* so many tokens belong to one grant */

struct grant {
    int64_t started_ns; /* CLOCK_MONOTONIC */
    int64_t sent_ns;    /* CLOCK_BOOTTIME: its time to live counts from here */
    int64_t ttl_ms;     /* that was sent then */
    int64_t longest_ms; /* that one of its holds has; renewals may have given it */
    uint64_t token;     /* the first; each acquisition of the grant has the next */
    uint64_t tokens;    /* how many it has used beyond the first */
    uint64_t try;       /* that got it */
    size_t passed;      /* how often it was passed on */
    size_t holds;       /* of now: more than one when nested; 0: the last is being released */
    size_t sending;     /* how many nested releases send commands of the caller's */
    bool open;          /* commands of a holder may still be carried out: it is left to expire */
    bool queued;        /* this client may stand in the server's queue, or be granted the lock */
};

/* Of a lock. Protected by the loop's mutex. */
struct handoff {
    struct grant grant;
    uint64_t left_try; /* nobody relies on what this try got, or an earlier one, and it may still be
                          there; 0: not so */
    int64_t left_until_ns; /* CLOCK_MONOTONIC: that has expired by then */
    uint64_t leaving_try;  /* the latest that a cleanup sees to; 0: none does */
};

/* CLOCK_MONOTONIC: when the server has forgotten the grant at the latest, whatever its last
 * renewal asked for. */
static inline int64_t forgotten_ns(const struct grant *grant)
{
    int64_t drift_ms = grant->longest_ms / 100;
    return mono_ns() + (grant->longest_ms + drift_ms) * NS_PER_MS;
}

static inline struct grant *grant_of(const struct dlock *lock)
{
    return &lock->handoff->grant;
}

#endif
