/* SPDX-License-Identifier: Apache-2.0
 *
 * See token.h.
 */
#include "token.h"

#include "text.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

bool token_is_valid(const char *token)
{
    size_t size = strlen(token);
    for (const char *c = token; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~')
            return false;
    return size >= TOKEN_MIN && size <= TOKEN_MAX;
}

/* Compares every character, also after a difference. */
static bool token_is_same(const char *token, const char *given, size_t given_size)
{
    size_t size = strlen(token);
    volatile unsigned differs = given_size != size;
    for (size_t i = 0; i < size; i++)
        differs |= (unsigned char)token[i] ^ (unsigned char)given[i < given_size ? i : given_size];
    return differs == 0;
}

bool token_is_given(const char *token, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    if (strncasecmp(authorization, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *given = authorization + sizeof scheme - 1;
    given += strspn(given, " ");
    return token_is_same(token, given, text_trimmed_size(given));
}
