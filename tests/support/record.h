/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's hooks, recorded as lines of text; and a point at which a thread can be held.
 */
#ifndef TESTS_RECORD_H
#define TESTS_RECORD_H

#include "dlock.h"

#include <stdarg.h>

struct record;
struct record *record_new(void);
void record_free(struct record *record);

/* Hooks; `arg` is the record. Of a server: "SERVER_GONE: redis://...: Connection refused",
 * SERVER_REFUSES, SERVER_BACK.
 * "LOST #3 lock:a watchdog <owner> 0 ms: its time to live is over"
 * "SETNX lock:a 1 -> (integer) 1"
 * "setnx.acquired" */
void record_event(void *arg, const struct dlock_event *event);
void record_trace(void *arg, const struct dlock_trace *trace);
void record_point(void *arg, const char *rung, const char *point);

void record_add(struct record *record, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* How many lines contain the text; "" counts all. */
size_t record_count(struct record *record, const char *text);
/* How many events of that kind the hold had. */
size_t record_told(struct record *record, const char *kind, const dlock_hold *hold);
/* The index-th line that contains the text, from 0, cut to fit; "" when there is none. */
void record_line(struct record *record, const char *text, size_t index, char *line, size_t size);
/* Its position among all lines, or SIZE_MAX. */
size_t record_position(struct record *record, const char *text);
void record_clear(struct record *record);

/* Holds the threads that pass a point until it is opened. */
struct gate;
struct gate *gate_new(const char *point);
void gate_free(struct gate *gate);
/* Comes to it, and goes on when it is open. */
void gate_pass(struct gate *gate);
/* The hook; `arg` is the gate, whose point is "<rung>.<point>". */
void gate_point(void *arg, const char *rung, const char *point);
/* How many have come to it so far. */
size_t gate_arrived(struct gate *gate);
void gate_open(struct gate *gate);

#endif
