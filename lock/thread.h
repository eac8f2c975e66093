/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's own threads. They run in the application's process, and take none of its signals.
 */
#ifndef DLOCK_THREAD_H
#define DLOCK_THREAD_H

#include "exported.h"

#include <pthread.h>
#include <stdbool.h>

/* As pthread_create. The thread blocks all signals except those of a fault of its own, and has a
 * large enough stack. False: no thread is left. */
bool thread_begin(pthread_t *thread, void *(*body)(void *), void *arg) EXPORTED_AS(thread_begin);

#endif
