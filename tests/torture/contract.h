/* SPDX-License-Identifier: Apache-2.0
 *
 * What dlock.h promises, as far as the judge holds the library to it: bounds of time, and names of
 * keys. To be changed with the header, and nowhere else.
 */
#ifndef TORTURE_CONTRACT_H
#define TORTURE_CONTRACT_H

#include "history.h"

#include <string.h>

#define TTL_MS_LEAST 100

/* Beyond what is bounded below: threads that wait for a processor although the witness runs. */
#define SLACK_MS 400

/* A hold that comes to its end was told of a renewal at most so long before, or was acquired: what
 * the next one waits for, and the time to connect. Its answer is waited for only until half of what
 * is left is over. */
static inline int64_t renewal_ms(const struct plan *plan, int64_t ttl_ms, bool again)
{
    return ttl_ms / (again ? 15 : 3) + plan->connect_ms;
}

/* How long a call may take beyond its wait_ms, or after a cancel. */
static inline int64_t bound_ms(const struct plan *plan)
{
    return plan->connect_ms + 2 * plan->command_ms;
}

/* A lock whose holders are gone is acquired within this: the time to live, a poll, and of `fair`
 * the grants of clients that are gone. */
static inline int64_t rest_bound_ms(const struct plan *plan)
{
    return plan_ttl_ms_max(plan) + 3 * plan->retry_ms + PROCESSES_MAX * 2 * plan->grant_ms;
}

/* `fair` has the lock for its client, and hands it on and nests in it without the server: all that
 * came from one grant is one hold to the server. */
static inline bool is_handed_on(const struct plan *plan)
{
    return strcmp(plan->rung->name, "fair") == 0;
}

/* The keys that a client uses beside a lock's own: of the batches that ride, and the library's. */
/* A channel is a key to the script that it is handed to. */
#define CONTRACT_KEYS "app:*", "dlock:*", "redisson_unlock_latch:*", "redisson_lock__channel:*"
#define DAY_MS 86400000LL

/* Names beside a lock's that an application might use. %s is the lock's. */
#define CONFUSABLE_NAMES                                                                           \
    "%s:queue", "%s:token", "%s:holds", "%s:grant", "%s:readers", "%s:writers", "%s:invited",      \
        "%s:signal", "{%s}:token", "%s:lock", "wake:%s", "token:%s"

#endif
