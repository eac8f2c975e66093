/* SPDX-License-Identifier: Apache-2.0
 *
 * For which acquisition a thread sends: dlock_trace.user.
 */
#ifndef DLOCK_TRACE_H
#define DLOCK_TRACE_H

/* The calling thread's commands are for that user from here on. NULL: for none. */
void trace_for(void *user);
void *trace_user(void);

#endif
