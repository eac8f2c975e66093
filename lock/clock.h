/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks. Validity is also counted while the machine sleeps; waiting is not.
 */
#ifndef DLOCK_CLOCK_H
#define DLOCK_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000

static inline int64_t clock_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
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

/* A deadline `ms` from now; INT64_MAX if ms < 0 or too large to matter. */
static inline int64_t mono_deadline_ns(int64_t ms)
{
    if (ms < 0 || ms > INT64_MAX / 4 / NS_PER_MS)
        return INT64_MAX;
    return mono_ns() + ms * NS_PER_MS;
}

static inline struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* A condition whose timed waits use the clock of mono_ns(). */
static inline void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

#endif
