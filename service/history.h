/* SPDX-License-Identifier: Apache-2.0
 *
 * What really happened, for the judge: a JSON object a line, as docs/reference/run.md says. A line
 * is stamped, numbered and handed to the kernel in one step, so that the order of lines, numbers
 * and stamps is one, and a killed process loses none.
 *
 * A NULL history records nothing and costs nothing. All functions may be called from any thread.
 */
#ifndef HISTORY_H
#define HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_ERROR_MAX 512
#define HISTORY_FORMAT 2 /* rises when a name in it changes; ladder-audit refuses another one */

struct history;

/* What the events of one request have in common. Texts need no escaping. */
struct history_request {
    unsigned thread;
    const char *request;
    const char *item;
    const char *rung; /* NULL: neither it nor the lock is said */
    const char *lock;
};

/* Starts (or continues) the file. begin: the further members of its first line, as JSON without
 * braces. NULL: error[] says why. */
struct history *history_open(const char *file, const char *instance, const char *begin,
                             char error[HISTORY_ERROR_MAX]);
/* Writes the last line. */
void history_close(struct history *history);

/* Ends the file and starts DIR/<run>/FILE, where DIR/FILE is what history_open was given.
 * False: error[] says why, and the old file goes on. */
bool history_switch(struct history *history, const char *run, const char *begin,
                    char error[HISTORY_ERROR_MAX]);
/* Ends the life that the file tells of, and begins another one in it: what begin says has changed.
 */
void history_begin(struct history *history, const char *begin);
/* If the file was moved, ends it and opens a new file of the same name. False: error[] says why,
 * the old file goes on, and the history is failing until a reopen or a switch succeeds. Lines in a
 * file without a name count as lost. */
bool history_reopen(struct history *history, char error[HISTORY_ERROR_MAX]);
/* How many lines were lost. *failing: the newest one was, or the last reopen failed. */
uint64_t history_lost(struct history *history, bool *failing);
/* The file that is written now; the text is the caller's. */
void history_file(struct history *history, char *file, size_t size);

/* One line. format: the further members, beginning with a comma, or "". */
void history_event(struct history *history, const struct history_request *request,
                   const char *event, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
