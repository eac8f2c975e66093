/* SPDX-License-Identifier: Apache-2.0
 *
 * What really happened, for the judge: a JSON object a line (docs/reference/run.md). A line gets
 * its time and its number, and is written, under one mutex. So lines, numbers and times are in the
 * same order. A killed process loses no line, because the kernel has them all.
 *
 * All functions may be called from any thread. history_event, history_lost and history_close accept
 * NULL, which records nothing.
 */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_ERROR_MAX 512
#define HISTORY_FORMAT 2 /* raised when a name in it changes; ladder-audit accepts only its own */

struct history;

/* What all events of a request have in common. The texts must need no escaping. */
struct history_request {
    unsigned thread;
    const char *request;
    const char *item;
    const char *rung; /* NULL: neither rung nor lock is written */
    const char *lock;
};

/* Starts or continues the file. begin: further members of the `begin` line, as JSON without braces.
 * NULL: error[] says why. */
struct history *history_open(const char *file, const char *instance, const char *begin,
                             char error[HISTORY_ERROR_MAX]);
/* Writes the `end` line and closes the file. */
void history_close(struct history *history);

/* Ends the file and starts DIR/<run>/FILE; history_open was given DIR/FILE. False: error[] says
 * why, and the old file continues. */
bool history_switch(struct history *history, const char *run, const char *begin,
                    char error[HISTORY_ERROR_MAX]);
/* Writes `end` and another `begin` into the same file, because a setting in `begin` has changed. */
void history_begin(struct history *history, const char *begin);
/* If the file was moved or removed, ends it and opens a new file of the same name. False: error[]
 * says why, the old file continues, and the history is failing until a reopen or a switch succeeds.
 * Lines in a removed file count as lost. */
bool history_reopen(struct history *history, char error[HISTORY_ERROR_MAX]);
/* How many lines were lost. *failing: the newest line was lost, or the last reopen failed. */
uint64_t history_lost(struct history *history, bool *failing);
/* Copies the name of the current file. */
void history_file(struct history *history, char *file, size_t size);

/* Writes one line. format: further members, beginning with a comma, or "". */
void history_event(struct history *history, const struct history_request *request,
                   const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
