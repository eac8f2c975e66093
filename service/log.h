/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON logs on standard error, one line an event. A flood is cut, and so is what nobody reads: what
 * was left out is counted in the next line that is written.
 */
#ifndef LOG_H
#define LOG_H

#include "output.h"

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
#define LOG_LEVELS "error|warning|info|debug"

/* Before any thread; the instance is kept by reference. */
void log_setup(enum log_level level, const char *instance);

/* The log goes there instead; called again, the file is opened anew. False: error[] says why, and
 * nothing has changed. */
bool log_open(const char *file, char error[OUTPUT_ERROR_MAX]);

/* event: a word ("started"). The sentence behind it goes to "detail", escaped. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A line for a request, when asked for (--log-requests): no flood. All texts need no escaping. */
void log_request(const char *id, const char *method, const char *path, unsigned status,
                 double time_ms);

#endif
