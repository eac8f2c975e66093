/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes and threads of a test.
 */
#ifndef TESTS_CHILD_H
#define TESTS_CHILD_H

#include <pthread.h>
#include <sys/types.h>

/* A process that runs `body` and exits with what it returns; it dies with this one. */
pid_t child_start(int (*body)(void *arg), void *arg);
/* Its exit status, 128 + n when signal n ended it. */
int child_wait(pid_t pid);

pthread_t thread_start(void *(*body)(void *arg), void *arg);
void thread_wait(pthread_t thread);

#endif
