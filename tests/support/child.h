/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts processes and threads of a test, and waits for them.
 */
#ifndef TESTS_CHILD_H
#define TESTS_CHILD_H

#include <pthread.h>
#include <sys/types.h>

/* Forks. The child is killed when the thread that called this ends, even if it ended already. */
pid_t child_fork(void);
/* Starts a process that runs `body` and exits with its result. It dies with this process. */
pid_t child_start(int (*body)(void *arg), void *arg);
/* Waits for the process. Returns its exit status, or 128 + n if signal n ended it. */
int child_wait(pid_t pid);

pthread_t thread_start(void *(*body)(void *arg), void *arg);
void thread_wait(pthread_t thread);

#endif
