/* SPDX-License-Identifier: Apache-2.0
 *
 * See thread.h.
 */
#include "thread.h"

#include <signal.h>

#define STACK_SIZE_LEAST ((size_t)256 << 10) /* what it needs itself, and a hook or `done` */

bool thread_begin(pthread_t *thread, void *(*body)(void *), void *arg)
{
    /* Of the thread's own doing: blocked, they would end the process past its handlers. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t signals, before;
    pthread_attr_t attributes;
    size_t stack_size;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_getstacksize(&attributes, &stack_size); /* what the process gives its threads */
    if (stack_size < STACK_SIZE_LEAST)
        pthread_attr_setstacksize(&attributes, STACK_SIZE_LEAST);
    sigfillset(&signals);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&signals, faults[i]);
    pthread_sigmask(SIG_BLOCK, &signals, &before); /* a new thread has its maker's mask */
    bool begun = pthread_create(thread, &attributes, body, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}
