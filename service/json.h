/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON that requests carry. What two readers may take for two different things is refused:
 * bytes behind the value, a name twice in an object, a number with leading zeros, \u0000 in a text.
 */
#ifndef JSON_H
#define JSON_H

#include "request.h"

#include <cjson/cJSON.h>

/* The request's body; the caller deletes it. NULL: answered with what is wrong, and with `example`,
 * which would be right. */
cJSON *json_body(struct request *request, const char *example);

/* Of a body {"NAME":N} that json_body() took: whether N is written in digits alone. cJSON rounds
 * any other number. */
bool json_is_digits(const struct request *request);

#endif
