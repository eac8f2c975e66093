/* SPDX-License-Identifier: Apache-2.0
 *
 * Hand-off: what a client keeps about a lock from one grant of the server to the next.
 */
#ifndef DLOCK_HANDOFF_H
#define DLOCK_HANDOFF_H

#include "client.h"

#define GRANT_TOKENS 1000 /* the number of tokens that belong to one grant */

struct grant {
    int64_t started_ns; /* CLOCK_MONOTONIC */
    int64_t sent_ns;    /* CLOCK_BOOTTIME: when its time to live was asked for */
    int64_t ttl_ms;     /* the time to live that was asked for then */
    int64_t longest_ms; /* the longest time to live of its holds; a renewal may have asked for it */
    uint64_t token;     /* its first token; each acquisition of the grant has the next one */
    uint64_t tokens;    /* how many tokens it has used after the first */
    uint64_t try;       /* the attempt that acquired it */
    struct identity identity; /* as the attempt that acquired it read it, */
    uint64_t master;          /* and the master that gave it: see struct handoff_hold */
    size_t passed;            /* how often it was handed off */
    size_t holds;   /* its holds; more than 1: nested; 0: the last one is being released */
    size_t sending; /* nested releases that are sending the caller's commands */
    bool open;      /* a holder's commands may still be carried out, so it is left to expire */
    bool queued;    /* the server may list this client in its queue, or grant it the lock */
};

/* One for each lock. Protected by the loop's mutex. */
struct handoff {
    struct grant grant;
    /* This attempt, or an earlier one, may still have the lock on the server, and no hold uses it.
     * 0: no attempt does. */
    uint64_t left_try;
    int64_t left_until_ns; /* CLOCK_MONOTONIC: left_try's lock has expired by then */
    uint64_t leaving_try;  /* the latest attempt that a cleanup releases; 0: none */
};

/* CLOCK_MONOTONIC: the server has let the grant expire by then, even if its latest renewal asked
 * for the longest time to live. */
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
