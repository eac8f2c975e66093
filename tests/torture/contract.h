/* SPDX-License-Identifier: Apache-2.0
 *
 * What dlock.h promises and the judge checks: time limits and names of keys. Change it only
 * together with dlock.h.
 */
#ifndef TORTURE_CONTRACT_H
#define TORTURE_CONTRACT_H

#include "history.h"

#include <string.h>

#define TTL_MS_LEAST 100

/* Tolerance above the limits below: threads may wait for a processor although the witness runs. */
#define SLACK_MS 400

/* The longest time from a hold's acquire or last renewal to the next renewal's attempt: its
 * interval plus the time to connect. If `again`, the last renewal failed. The answer is awaited
 * only until half of the remaining time is over. */
static inline int64_t renewal_ms(const struct plan *plan, int64_t ttl_ms, bool again)
{
    return ttl_ms / (again ? 15 : 3) + plan->connect_ms;
}

/* The limit of a call after its wait_ms, or after a cancel. */
static inline int64_t bound_ms(const struct plan *plan)
{
    return plan->connect_ms + 2 * plan->command_ms;
}

/* Whether the lock is on several servers. Clients may then split the votes, at random. */
static inline bool is_on_several(const struct plan *plan)
{
    return strcmp(plan->rung->name, REDLOCK) == 0;
}

#define SENTINEL_MS 1000  /* a client that heard of no switch asks the sentinels so often */
#define SPLIT_MS_MOST 200 /* the pause after a split vote */
#define SPLITS_MOST 20    /* so many in a row do not happen by chance */

/* A lock without a holder is acquired within this time. It covers the TTL, polls, finding the
 * master, and with `fair` the grants of clients that are gone. */
static inline int64_t rest_bound_ms(const struct plan *plan)
{
    int64_t polls_ms = is_on_several(plan) ? SPLITS_MOST * SPLIT_MS_MOST : 3 * plan->retry_ms;
    int64_t finds_ms = plan->sentinel ? SENTINEL_MS : 0;
    return plan_ttl_ms_max(plan) + polls_ms + finds_ms + PROCESSES_MAX * 2 * plan->grant_ms;
}

/* Whether the client hands the lock off, and nests, without the server, as `fair` does. To the
 * server, everything from one grant is one hold. */
static inline bool is_handed_on(const struct plan *plan)
{
    return strcmp(plan->rung->name, "fair") == 0;
}

/* The keys that a client uses besides those of a lock: those of its batches, and the library's. A
 * script treats a channel that it gets as a key. */
#define CONTRACT_KEYS "app:*", "dlock:*", "redisson_unlock_latch:*", "redisson_lock__channel:*"
#define DAY_MS 86400000LL

/* Names similar to a lock's that an application might use. %s is the lock's name. */
#define CONFUSABLE_NAMES                                                                           \
    "%s:queue", "%s:token", "%s:holds", "%s:grant", "%s:readers", "%s:writers", "%s:invited",      \
        "%s:signal", "{%s}:token", "%s:lock", "wake:%s", "token:%s"

#endif
