/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads comma-separated records, RFC 4180: quotes, doubled quotes, line ends within quotes.
 */
#ifndef CSV_H
#define CSV_H

#include "input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CSV_FIELDS_MAX = 128, CSV_RECORD_MAX = 256 * 1024 };

struct csv {
    FILE *file;
    char *buffer; /* holds the fields, each with its NUL */
    char *fields[CSV_FIELDS_MAX];
    size_t count;
    int64_t line;     /* the first line of the record, from 1 */
    int64_t lines;    /* lines read so far */
    const char *flaw; /* why the record cannot be used, or NULL */
};

/* On failure: false, and error holds a sentence. */
bool csv_open(struct csv *csv, const char *path, char error[INPUT_ERROR_MAX]);
bool csv_next(struct csv *csv); /* false at the end; blank lines are skipped */
void csv_close(struct csv *csv);

#endif
