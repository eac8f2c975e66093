/* SPDX-License-Identifier: Apache-2.0
 *
 * See thread.h.
 */
#include "thread.h"

#include <signal.h>

bool thread_begin(pthread_t *thread, void *(*body)(void *), void *arg)
{
    /* Of the thread's own doing: blocked, they would end the process past its handlers. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t signals, before;
    sigfillset(&signals);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&signals, faults[i]);
    pthread_sigmask(SIG_BLOCK, &signals, &before); /* a new thread has its maker's mask */
    bool begun = pthread_create(thread, NULL, body, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return begun;
}
