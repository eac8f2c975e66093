/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON of requests. What two parsers may read differently is refused: bytes that are no UTF-8;
 * bytes after the value; a name twice in an object; a number with leading zeros; \u0000 in a text.
 */
#ifndef JSON_H
#define JSON_H

#include "request.h"

#include <cjson/cJSON.h>

/* Parses the request's body; the caller deletes the result. NULL: the request is answered with what
 * is wrong, and with `example`, which would be right. */
cJSON *json_body(struct request *request, const char *example);

/* Answers 200 with the JSON, which it deletes. */
void json_answer(struct request *request, cJSON *json);

/* Reads the body {"NAME":N}, with N in digits alone, since cJSON rounds other numbers. N is from
 * min to max, which is below 2^53. False: the request is answered. */
bool json_take_number(struct request *request, const char *name, int64_t min, int64_t max,
                      int64_t *number);

#endif
