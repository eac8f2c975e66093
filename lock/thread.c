/* SPDX-License-Identifier: Apache-2.0
 *
 * See thread.h.
 */
#include "thread.h"

#include <signal.h>

#define STACK_SIZE_LEAST ((size_t)256 << 10) /* enough for the library, and for a hook or `done` */

bool thread_begin(pthread_t *thread, void *(*body)(void *), void *arg)
{
    /* Signals of a fault in the thread itself. If they were blocked, they would end the process
     * without a call of its handlers. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t signals, before;
    pthread_attr_t attributes;
    size_t stack_size;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    pthread_attr_getstacksize(&attributes, &stack_size); /* the process's own default */
    if (stack_size < STACK_SIZE_LEAST)
        pthread_attr_setstacksize(&attributes, STACK_SIZE_LEAST);
    sigfillset(&signals);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&signals, faults[i]);
    /* A new thread inherits the mask of its creator. */
    pthread_sigmask(SIG_BLOCK, &signals, &before);
    bool begun = pthread_create(thread, &attributes, body, arg) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return begun;
}
