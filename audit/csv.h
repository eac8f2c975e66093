/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of comma-separated fields, RFC 4180: quotes, doubled quotes, line ends within quotes.
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
    char *buffer; /* the fields, each with its NUL */
    char *fields[CSV_FIELDS_MAX];
    size_t count;
    int64_t line;     /* the record's first, from 1 */
    int64_t lines;    /* read so far */
    const char *flaw; /* why this record cannot be used; NULL: it can */
};

/* False: a sentence is in error. */
bool csv_open(struct csv *csv, const char *path, char error[INPUT_ERROR_MAX]);
bool csv_next(struct csv *csv); /* false at the end; blank lines are skipped */
void csv_close(struct csv *csv);

#endif
