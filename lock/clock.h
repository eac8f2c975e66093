/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks: a lock's validity counts while the machine sleeps, waiting does not.
 */
#ifndef DLOCK_CLOCK_H
#define DLOCK_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000

static inline int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* For validity: CLOCK_BOOTTIME. */
static inline int64_t boot_ns(void)
{
    return clock_ns(CLOCK_BOOTTIME);
}

/* For deadlines of waits and requests: CLOCK_MONOTONIC. */
static inline int64_t mono_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static inline int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_ns(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* A deadline `ms` from now; INT64_MAX where ms < 0 or too far away to matter. */
static inline int64_t mono_deadline_ns(int64_t ms)
{
    if (ms < 0 || ms > INT64_MAX / 4 / NS_PER_MS)
        return INT64_MAX;
    return mono_ns() + ms * NS_PER_MS;
}

#endif
