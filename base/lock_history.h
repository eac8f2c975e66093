/* SPDX-License-Identifier: Apache-2.0
 *
 * What the history records of locks by itself: renewals, losses, and commands to Redis.
 */
#ifndef LOCK_HISTORY_H
#define LOCK_HISTORY_H

#include "history.h"
#include "lock_owner.h"

/* The holder that the calling thread works for; NULL: none. Its commands are recorded as its. It
 * must live until the next call. */
void lock_history_serve(const struct holder *holder);

/* For dlock_options.on_trace and store_options.on_trace. arg: the history. */
void lock_history_trace(void *arg, const struct dlock_trace *trace);

/* Logs and records an event of a hold, whose `user` is a struct holder. history: NULL: only logs
 * it. */
void lock_history_event(struct history *history, const struct dlock_event *event);

#endif
