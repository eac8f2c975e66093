/* SPDX-License-Identifier: Apache-2.0
 *
 * See url_parts.h.
 */
#include "url_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_ROOT "/dlock"

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

bool url_decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        int byte = (unsigned char)*from;
        if (*from == '%') {
            int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
            byte = low < 0 ? 0 : high * 16 + low;
            from += 2;
        }
        if (byte == 0)
            return false;
        *to++ = (char)byte;
    }
    *to = '\0';
    return true;
}

bool url_is_host(const char *host, const char **colon)
{
    const char *end = host[0] == '[' ? strchr(host, ']') : NULL;
    if (host[0] == '[' && end == NULL)
        return false;
    *colon = end != NULL ? (end[1] != '\0' ? end + 1 : NULL) : strchr(host, ':');
    if (strpbrk(host, " @?%") != NULL || host[0] == '\0' || host[0] == ':')
        return false;
    if (*colon == NULL)
        return true;
    long port = strtol(*colon + 1, NULL, 10);
    size_t digits = strspn(*colon + 1, "0123456789");
    return **colon == ':' && (*colon)[1 + digits] == '\0' && digits <= 5 && port >= 1 &&
           port <= 65535;
}

/* What all servers take for a path: no empty name, no "." or "..", no control character. */
const char *url_read_root(char root[ROOT_MAX], const char *from, const char *to)
{
    size_t size = (size_t)(to - from);
    while (size > 0 && from[size - 1] == '/')
        size--;
    if (size == 0)
        return strcpy(root, DEFAULT_ROOT), NULL;
    if (size >= ROOT_MAX)
        return "has a path that is longer than 199 bytes";
    snprintf(root, ROOT_MAX, "%.*s", (int)size, from);
    for (const char *at = root; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f || (unsigned char)*at >= 0x80 || *at == '%')
            return "has a path with a blank, a '%', or a byte that is not printable ASCII";
    char whole[ROOT_MAX + 1];
    snprintf(whole, sizeof whole, "%s/", root);
    if (strstr(whole, "//") != NULL || strstr(whole, "/./") != NULL || strstr(whole, "/../") != NULL)
        return "has a path with an empty name, '.' or '..'";
    return NULL;
}
