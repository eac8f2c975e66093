/* SPDX-License-Identifier: Apache-2.0
 *
 * Secrets are read from files: the first line of each.
 */
#ifndef FIRST_LINE_H
#define FIRST_LINE_H

#include "settings.h"

/* Reads the file's first line, cut to fit. flag: which names the file, for messages. False: error[]
 * says what was wrong. */
bool first_line_read(const char *flag, const char *file, char *line, int size,
                     char error[SETTINGS_ERROR_MAX]);

#endif
