/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock_url.h.
 */
#include "stock_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A %-decoded copy of [from, to). */
static char *decode(const char *from, const char *to)
{
    char *copy = malloc((size_t)(to - from) + 1);
    char *out = copy;
    for (; copy != NULL && from < to; out++) {
        unsigned byte = (unsigned char)*from++;
        if (byte == '%' && to - from >= 2 && sscanf(from, "%2x", &byte) == 1)
            from += 2;
        *out = (char)byte;
    }
    if (copy != NULL)
        *out = '\0';
    return copy;
}

/* Takes [user]:password@ off [*from, end). */
static bool take_login(const char **from, const char *end, struct stock_url *parts)
{
    const char *at = memrchr(*from, '@', (size_t)(end - *from));
    const char *colon = at != NULL ? memchr(*from, ':', (size_t)(at - *from)) : NULL;
    if (colon == NULL)
        return true;
    if (colon > *from && (parts->user = decode(*from, colon)) == NULL)
        return false;
    parts->password = decode(colon + 1, at);
    *from = at + 1;
    return parts->password != NULL;
}

static bool parse_tcp(const char *rest, struct stock_url *parts)
{
    const char *end = rest + strcspn(rest, "/");
    if (!take_login(&rest, end, parts))
        return false;
    const char *host_end = *rest == '[' ? strchr(rest, ']') : rest + strcspn(rest, ":/");
    rest += *rest == '[';
    parts->host = decode(rest, host_end);
    const char *after = host_end + (*host_end == ']');
    parts->port = *after == ':' ? atoi(after + 1) : 6379;
    if (end[0] == '/' && end[1] != '\0')
        parts->db = strdup(end + 1);
    return parts->host != NULL &&
           asprintf(&parts->shown, "redis://%s:%d/%s", parts->host, parts->port,
                    parts->db != NULL ? parts->db : "0") > 0;
}

static bool parse_unix(const char *rest, struct stock_url *parts)
{
    if (strncmp(rest, "//", 2) == 0)
        rest += 2;
    const char *end = rest + strcspn(rest, "?");
    /* An @ behind the first / belongs to the path. */
    if (!take_login(&rest, rest + strcspn(rest, "/?"), parts))
        return false;
    parts->path = decode(rest, end);
    if (strncmp(end, "?db=", 4) == 0)
        parts->db = strdup(end + 4);
    return parts->path != NULL && asprintf(&parts->shown, "unix:%s?db=%s", parts->path,
                                           parts->db != NULL ? parts->db : "0") > 0;
}

bool stock_url_parse(const char *url, struct stock_url *parts)
{
    *parts = (struct stock_url){0};
    bool parsed = strncmp(url, "unix:", 5) == 0 ? parse_unix(url + 5, parts)
                                                : parse_tcp(url + strlen("redis://"), parts);
    if (!parsed)
        stock_url_free(parts);
    return parsed;
}

void stock_url_free(struct stock_url *parts)
{
    free(parts->host);
    free(parts->path);
    free(parts->user);
    free(parts->password);
    free(parts->db);
    free(parts->shown);
    *parts = (struct stock_url){0};
}
