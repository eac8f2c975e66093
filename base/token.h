/* SPDX-License-Identifier: Apache-2.0
 *
 * The operators' token: the admin listener requires it for every PUT and POST.
 */
#ifndef TOKEN_H
#define TOKEN_H

#include <stdbool.h>

#define TOKEN_MIN 16
#define TOKEN_MAX 128

/* TOKEN_MIN to TOKEN_MAX visible ASCII characters. */
bool token_is_valid(const char *token);

/* Whether the value of an Authorization header is "Bearer" and this token. The time that it takes
 * does not reveal how many characters were right. */
bool token_is_given(const char *token, const char *authorization);

#endif
