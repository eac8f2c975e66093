/* SPDX-License-Identifier: Apache-2.0
 *
 * redis://[[user]:password@]host[:port][/db] and unix:[[user]:password@]path[?db=N], after
 * https://www.iana.org/assignments/uri-schemes/prov/redis and RFC 3986.
 */
#include "url.h"

#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FORM "redis://[[user]:password@]host[:port][/db] or unix:[[user]:password@]path[?db=N]"

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A %-decoded copy of [from, to); NULL when out of memory, malformed or with an embedded NUL. */
static char *decode(const char *from, const char *to)
{
    char *copy = malloc((size_t)(to - from) + 1);
    char *out = copy;
    for (; copy != NULL && from < to; from++) {
        if (*from != '%') {
            *out++ = *from;
            continue;
        }
        if (to - from < 3 || hex(from[1]) < 0 || hex(from[2]) < 0 ||
            (from[1] == '0' && from[2] == '0')) {
            free(copy);
            return NULL;
        }
        *out++ = (char)(hex(from[1]) * 16 + hex(from[2]));
        from += 2;
    }
    if (copy != NULL)
        *out = '\0';
    return copy;
}

/* Digits only, and at most `max`: what a port and a database number are. */
static bool number(const char *from, const char *to, long max)
{
    if (from == to || to - from > 5 || (size_t)(to - from) != strspn(from, "0123456789"))
        return false;
    return strtol(from, NULL, 10) <= max;
}

/* [from, at) is [user]:password. */
static bool parse_login(const char *from, const char *at, struct url *url)
{
    const char *colon = memchr(from, ':', (size_t)(at - from));
    if (colon == NULL || (colon > from && (url->user = decode(from, colon)) == NULL))
        return false;
    url->password = decode(colon + 1, at);
    return url->password != NULL;
}

static bool parse_redis(const char *rest, struct url *url)
{
    const char *end = rest + strcspn(rest, "/");
    const char *at = memrchr(rest, '@', (size_t)(end - rest));
    if (at != NULL && !parse_login(rest, at, url))
        return false;
    const char *host = at != NULL ? at + 1 : rest;
    const char *host_end = host + strcspn(host, ":/?");
    const char *after = host_end;
    if (*host == '[') {
        const char *bracket = strchr(++host, ']');
        if (bracket == NULL || bracket > end)
            return false;
        host_end = bracket;
        after = bracket + 1;
    }
    if (host == host_end || (*after != '\0' && *after != ':' && *after != '/'))
        return false;
    const char *port = *after == ':' ? after + 1 : NULL;
    if (port != NULL && (!number(port, end, 65535) || strtol(port, NULL, 10) == 0))
        return false;
    const char *db = *end == '/' && end[1] != '\0' ? end + 1 : NULL;
    if (db != NULL && !number(db, db + strlen(db), 99999))
        return false;
    url->host = decode(host, host_end);
    url->port = port != NULL ? strndup(port, (size_t)(end - port)) : strdup("6379");
    url->db = db != NULL ? strdup(db) : NULL;
    return url->host != NULL && url->port != NULL && (db == NULL || url->db != NULL);
}

static bool parse_unix(const char *rest, struct url *url)
{
    if (strncmp(rest, "//", 2) == 0)
        rest += 2;
    const char *end = rest + strcspn(rest, "?");
    /* What begins with '/' is a path, whatever follows. Anything else with a ':' must be a login:
     * a path by mistake would be shown with the password in it. */
    const char *at = *rest != '/' ? memchr(rest, '@', (size_t)(end - rest)) : NULL;
    if (at != NULL && !parse_login(rest, at, url))
        return false;
    if (at == NULL && *rest != '/' && memchr(rest, ':', (size_t)(end - rest)) != NULL)
        return false;
    const char *path = at != NULL ? at + 1 : rest;
    const char *db = NULL;
    if (*end == '?') {
        if (strncmp(end, "?db=", 4) != 0)
            return false;
        db = end + 4;
        if (!number(db, db + strlen(db), 99999))
            return false;
    }
    url->path = decode(path, end);
    url->db = db != NULL ? strdup(db) : NULL;
    return url->path != NULL && url->path[0] != '\0' && strlen(url->path) < 108 &&
           (db == NULL || url->db != NULL);
}

/* What messages show: everything but the login. */
static char *show(const struct url *url)
{
    char *shown = NULL;
    int length;
    const char *db = url->db != NULL ? url->db : "0";
    if (url->path != NULL)
        length = asprintf(&shown, "unix:%s?db=%s", url->path, db);
    else
        length = asprintf(&shown, strchr(url->host, ':') != NULL ? "redis://[%s]:%s/%s"
                                                                 : "redis://%s:%s/%s",
                          url->host, url->port, db);
    return length < 0 ? NULL : shown;
}

/* What is wrong with it, where that is known. */
static const char *reason(const char *text)
{
    const char *at = strrchr(text, '@');
    if (strncmp(text, "rediss://", 9) == 0)
        return "needs TLS, which libdlock does not support: run a local TLS proxy such as stunnel";
    if (strncmp(text, "redis://", 8) == 0 && strchr(at != NULL ? at : text, '?') != NULL)
        return "has a '?': the database follows a '/', as in redis://host:6379/2";
    return "is no server's URL";
}

/* What may be a password is never shown: all before the last '@', and where there is none, all
 * behind the second ':', the first being the scheme's. */
static dlock_status refuse(const char *text)
{
    const char *at = strrchr(text, '@');
    if (at != NULL)
        return fail(DLOCK_INVALID, "'...%.200s' %s; give " FORM, at, reason(text));
    const char *colon = strchr(text, ':');
    if (colon != NULL)
        colon = strchr(colon + 1, ':');
    if (colon == NULL || colon - text >= 200)
        return fail(DLOCK_INVALID, "'%.200s' %s; give " FORM, text, reason(text));
    return fail(DLOCK_INVALID, "'%.*s:...' %s; give " FORM, (int)(colon - text), text,
                reason(text));
}

dlock_status url_parse(const char *text, struct url *url)
{
    *url = (struct url){0};
    if (text == NULL)
        return fail(DLOCK_INVALID, "a server's URL is missing; give " FORM);
    bool right = false;
    if (strncmp(text, "redis://", 8) == 0)
        right = parse_redis(text + 8, url);
    else if (strncmp(text, "unix:", 5) == 0)
        right = parse_unix(text + 5, url);
    if (!right) {
        url_free(url);
        return refuse(text);
    }
    url->shown = show(url);
    if (url->shown == NULL) {
        url_free(url);
        return fail(DLOCK_NO_MEMORY, "out of memory");
    }
    return DLOCK_OK;
}

void url_free(struct url *url)
{
    free(url->host);
    free(url->port);
    free(url->path);
    free(url->user);
    free(url->password);
    free(url->db);
    free(url->shown);
    *url = (struct url){0};
}
