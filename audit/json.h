/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the JSON of the records: whole small files, files with one object a line, and typed fields.
 * A field that is missing or of another type gives a sentence.
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

/* cJSON stores numbers as doubles: whole numbers are exact up to 2^53. */
#define JSON_EXACT_MAX INT64_C(9007199254740992)

/* The one object in the file. On failure: NULL, and error holds a sentence. */
cJSON *json_file(const char *path, char error[JSON_ERROR_MAX]);

struct json_lines {
    FILE *file;
    char *chunk; /* a part of the file, parsed up to `at` */
    size_t at, end;
    char *buffer; /* the line, without its line end */
    size_t size;
    int64_t number;   /* of the line, from 1 */
    const char *flaw; /* why the line cannot be parsed, or NULL */
};
/* Only one file may be open at a time. On failure: false, and error holds a sentence. */
bool json_lines_open(struct json_lines *lines, const char *path, char error[JSON_ERROR_MAX]);
bool json_lines_next(struct json_lines *lines); /* false at the end; blank lines are skipped */
void json_lines_close(struct json_lines *lines);

/* The current line as an object. On failure: NULL, and error holds a sentence. The object is valid
 * until the next call; the caller must not delete it. */
cJSON *json_line(const struct json_lines *lines, char error[JSON_ERROR_MAX]);

enum json_need { JSON_OPTIONAL, JSON_REQUIRED };

/* Each returns true if it set *value, or if the field is optional and absent or null; then *value
 * keeps its old value. On failure: false, and error holds a sentence. Texts are passed through
 * text_clean(), and live as long as the object. */
bool json_text(const cJSON *object, const char *field, enum json_need need, const char **value,
               char error[JSON_ERROR_MAX]);
bool json_int(const cJSON *object, const char *field, enum json_need need, int64_t min, int64_t max,
              int64_t *value, char error[JSON_ERROR_MAX]);
bool json_real(const cJSON *object, const char *field, enum json_need need, double *value,
               char error[JSON_ERROR_MAX]);
bool json_bool(const cJSON *object, const char *field, enum json_need need, bool *value,
               char error[JSON_ERROR_MAX]);

#define JSON_TIME_MAX (INT64_C(1) << 61) /* 73 years in ns: the year 2043 */

/* A time of the current line: a required whole number from 0 to JSON_TIME_MAX, exact to the last
 * bit. (t_ns exceeds 2^53 if the machine runs for 104 days without a restart.) */
bool json_line_time(const struct json_lines *lines, const cJSON *object, const char *field,
                    int64_t *t_ns, char error[JSON_ERROR_MAX]);

#endif
