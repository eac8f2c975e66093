/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that a client belongs to. A forked child has a copy of the client's memory, but none
 * of its threads.
 */
#include "client.h"

static _Atomic int forks;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

static void count_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

void watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, count_forks);
}

int fork_generation(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

dlock_status check_fork(const struct dlock_client *client)
{
    if (client->fork_generation == fork_generation())
        return DLOCK_OK;
    return fail(DLOCK_FORKED, "this client belongs to the parent process; open one in the child");
}
