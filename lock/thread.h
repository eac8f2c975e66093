/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own threads. They are guests of the process: its signals are none of theirs.
 */
#ifndef DLOCK_THREAD_H
#define DLOCK_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create, but the thread takes no signal other than for a fault of its own, and has a
 * stack that is large enough. False: no thread is left. */
bool thread_begin(pthread_t *thread, void *(*body)(void *), void *arg);

#endif
