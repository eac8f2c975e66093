/* SPDX-License-Identifier: Apache-2.0
 *
 * See noise.h. The linker replaces the library's pthread_mutex_unlock() by this function.
 */
#include "noise.h"

#include "world.h"

#include <pthread.h>
#include <unistd.h>

#define SPAN_MS 100

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

static _Atomic int often, pause_us;
static _Atomic uint64_t threads;
static _Thread_local uint64_t random_state;
static _Thread_local int64_t span_begin_ns; /* begin of the thread's current span of SPAN_MS */
static _Thread_local int span_left_us;      /* how long it may still pause in that span */

void noise_set(int of_10000, int pause_us_max)
{
    atomic_store(&pause_us, pause_us_max);
    atomic_store(&often, of_10000);
}

static void pause_for(int us)
{
    int64_t now_ns = boot_ns();
    if (now_ns - span_begin_ns >= SPAN_MS * NS_A_MS) {
        span_begin_ns = now_ns;
        span_left_us = SPAN_MS * 1000 / 2;
    }
    if (us > span_left_us)
        return;
    span_left_us -= us;
    usleep((useconds_t)us);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int result = __real_pthread_mutex_unlock(mutex);
    int chances = atomic_load_explicit(&often, memory_order_relaxed);
    if (chances == 0)
        return result;
    if (random_state == 0)
        random_state = atomic_fetch_add(&threads, 1) + 1;
    if ((int)random_below(&random_state, 10000) < chances)
        pause_for(1 + (int)random_below(&random_state, (uint64_t)atomic_load(&pause_us)));
    return result;
}
