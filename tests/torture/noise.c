/* SPDX-License-Identifier: Apache-2.0
 *
 * See noise.h. The linker puts this function in the place of the one that the library calls.
 */
#include "noise.h"

#include "world.h"

#include <pthread.h>
#include <unistd.h>

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

static _Atomic int often, pause_us;
static _Atomic uint64_t threads;
static _Thread_local uint64_t random_state;

void noise_set(int of_10000, int pause_us_max)
{
    atomic_store(&pause_us, pause_us_max);
    atomic_store(&often, of_10000);
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
        usleep(1 + (unsigned)random_below(&random_state, (uint64_t)atomic_load(&pause_us)));
    return result;
}
