/* SPDX-License-Identifier: Apache-2.0
 *
 * Records calls of the library's hooks as lines of text. Also has a gate, which stops threads at a
 * point.
 */
#ifndef TESTS_RECORD_H
#define TESTS_RECORD_H

#include "dlock.h"

#include <stdarg.h>

struct record;
struct record *record_new(void);
void record_free(struct record *record);

/* Hooks; `arg` is the record. The lines are, for a server's event (also SERVER_REFUSES,
 * SERVER_BACK), for a hold's event, for a trace and for a point:
 *
 *    "SERVER_GONE: redis://...: Connection refused"
 *    "LOST #3 lock:a watchdog <owner> 0 ms: its time to live has ended"
 *    "SETNX lock:a 1 -> (integer) 1"
 *    "setnx.acquired" */
void record_event(void *arg, const struct dlock_event *event);
void record_trace(void *arg, const struct dlock_trace *trace);
void record_point(void *arg, const char *rung, const char *point);

void record_add(struct record *record, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* How many lines contain the text; "" counts all. */
size_t record_count(struct record *record, const char *text);
/* How many events of that kind were recorded for the hold. */
size_t record_told(struct record *record, const char *kind, const dlock_hold *hold);
/* Waits until the hold was renewed so often, and asserts that it was not lost. */
#define assert_renewed(record, hold, times)                                                        \
    do {                                                                                           \
        eventually(record_told((record), "RENEWED", (hold)) >= (times) ||                          \
                   record_told((record), "LOST", (hold)) > 0);                                     \
        assert_int_equal(record_told((record), "LOST", (hold)), 0);                                \
    } while (0)
/* Copies the index-th line that contains the text, counted from 0, cut to fit; "" if there is none.
 */
void record_line(struct record *record, const char *text, size_t index, char *line, size_t size);
/* The position of the first line that contains the text, or SIZE_MAX. */
size_t record_position(struct record *record, const char *text);
void record_clear(struct record *record);

/* Stops each thread that reaches a point, until the gate is opened. */
struct gate;
struct gate *gate_new(const char *point);
void gate_free(struct gate *gate);
/* Waits until the gate is open. */
void gate_pass(struct gate *gate);
/* The on_point hook; `arg` is the gate, whose point is "<rung>.<point>". */
void gate_point(void *arg, const char *rung, const char *point);
/* How many threads have reached it so far. */
size_t gate_arrived(struct gate *gate);
void gate_open(struct gate *gate);

#endif
