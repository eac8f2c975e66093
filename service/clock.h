/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines and stamps run on CLOCK_MONOTONIC, which all processes of a host share.
 */
#ifndef SERVICE_CLOCK_H
#define SERVICE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

#define NS_PER_MS 1000000
#define NS_PER_S 1000000000

static inline int64_t clock_now_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static inline int64_t now_ns(void)
{
    return clock_now_ns(CLOCK_MONOTONIC);
}

static inline struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
}

/* Its timed waits end by this clock too. */
static inline void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

#endif
