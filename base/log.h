/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON logs on standard error, one line an event. A flood is cut, and a line that no reader takes
 * is left out. The next written line counts the lines left out.
 */
#ifndef LOG_H
#define LOG_H

#include "output.h"

#include <stdbool.h>

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };
#define LOG_LEVELS "error|warning|info|debug"

/* Call it before any thread starts. The instance's text is not copied. */
void log_setup(enum log_level level, const char *instance);

/* From now on the log goes to the file. A second call opens the file again. False: error[] says
 * why, and nothing has changed. */
bool log_open(const char *file, char error[OUTPUT_ERROR_MAX]);

/* event: a word, such as "started". The formatted text is written as "detail", escaped. */
void log_event(enum log_level level, const char *event, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A line for a request (--log-requests). It does not count as a flood. id and method must need no
 * escaping. */
void log_request(const char *id, const char *method, const char *path, unsigned status,
                 double time_ms);

#endif
