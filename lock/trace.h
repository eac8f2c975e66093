/* SPDX-License-Identifier: Apache-2.0
 *
 * For whom a thread sends: dlock_trace.user.
 */
#ifndef DLOCK_TRACE_H
#define DLOCK_TRACE_H

/* What the calling thread sends from here on is for that user. NULL: for nobody. */
void trace_for(void *user);
void *trace_user(void);

#endif
