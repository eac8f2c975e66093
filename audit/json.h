/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON as the records hold it: whole small files, files of one object a line, and typed fields
 * with a sentence for each that is missing or of another kind.
 */
#ifndef JSON_H
#define JSON_H

#include "input.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
    JSON_FILE_MAX = 4 * 1024 * 1024,
    JSON_LINE_MAX = 64 * 1024,
    JSON_ERROR_MAX = INPUT_ERROR_MAX,
};

/* cJSON keeps numbers as doubles: whole ones are exact up to here, 2^53. */
#define JSON_EXACT_MAX INT64_C(9007199254740992)

/* The file's one object, or NULL and a sentence in error. */
cJSON *json_file(const char *path, char error[JSON_ERROR_MAX]);

struct json_lines {
    FILE *file;
    char *chunk; /* of the file; read so far up to `at` */
    size_t at, end;
    char *buffer; /* the line, without its end */
    size_t size;
    int64_t number;   /* the line's, from 1 */
    const char *flaw; /* why this line cannot be an object; NULL: it may be one */
};
/* One file at a time. False: a sentence is in error. */
bool json_lines_open(struct json_lines *lines, const char *path, char error[JSON_ERROR_MAX]);
bool json_lines_next(struct json_lines *lines); /* false at the end; blank lines are skipped */
void json_lines_close(struct json_lines *lines);

/* The current line as an object, or NULL and a sentence in error. It is good until the next one,
 * and not to be deleted. */
cJSON *json_line(const struct json_lines *lines, char error[JSON_ERROR_MAX]);

enum json_need { JSON_OPTIONAL, JSON_REQUIRED };

/* Each: true when *value was set, or the field is absent (or null) and optional: then *value is
 * left alone. False: a sentence is in error. Texts are cleaned, and live as long as the object. */
bool json_text(const cJSON *object, const char *field, enum json_need need, const char **value,
               char error[JSON_ERROR_MAX]);
bool json_int(const cJSON *object, const char *field, enum json_need need, int64_t min, int64_t max,
              int64_t *value, char error[JSON_ERROR_MAX]);
bool json_real(const cJSON *object, const char *field, enum json_need need, double *value,
               char error[JSON_ERROR_MAX]);
bool json_bool(const cJSON *object, const char *field, enum json_need need, bool *value,
               char error[JSON_ERROR_MAX]);

#define JSON_TIME_MAX (INT64_C(1) << 61) /* 73 years in ns: the year 2043 */

/* A time of the current line, a required whole number from 0 to JSON_TIME_MAX, exact in all its
 * bits: t_ns passes 2^53 after 104 days without a restart of the machine. */
bool json_line_time(const struct json_lines *lines, const cJSON *object, const char *field,
                    int64_t *t_ns, char error[JSON_ERROR_MAX]);

#endif
