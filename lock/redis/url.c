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
#include <sys/un.h>

#define PATH_SIZE_MAX (sizeof((struct sockaddr_un *)NULL)->sun_path - 1)
#define FORM "redis://[[user]:password@]host[:port][/db] or unix:[[user]:password@]path[?db=N]"

static int url_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* What is wrong with a URL: the end of a sentence that begins with the URL. */
#define WRONG_ESCAPE "has a '%' that is not followed by two hex digits other than 00"
#define WRONG_LOGIN "has an '@', but no ':' before the password: user:password@, or :password@"
#define WRONG_HOST "has no host"
#define WRONG_PORT "has a port that is not a number from 1 to 65535"
#define WRONG_DB "has a database that is not a number from 0 to 99999"
#define WRONG_SLASH "has a '/' in its login; write it as %2F"
#define WRONG_QUERY "has a '?': the database follows a '/', as in redis://host:6379/2"
#define WRONG_PATH "has a path that is not of 1 to 107 bytes"
#define WRONG_UNIX_QUERY                                                                           \
    "has a '?' that is not the one of '?db=N', with N from 0 to 99999; write another as %3F"
#define WRONG_UNIX_LOGIN "has a ':' without an '@': begin a path with '/', or write its ':' as %3A"

static bool has_wrong_escape(const char *text)
{
    for (; (text = strchr(text, '%')) != NULL; text++)
        if (url_hex_digit(text[1]) < 0 || url_hex_digit(text[2]) < 0 ||
            (text[1] == '0' && text[2] == '0'))
            return true;
    return false;
}

/* A %-decoded copy of [from, to); NULL when out of memory. */
static char *url_decode(const char *from, const char *to)
{
    char *copy = malloc((size_t)(to - from) + 1);
    char *out = copy;
    for (; copy != NULL && from < to; from++) {
        if (*from != '%') {
            *out++ = *from;
            continue;
        }
        *out++ = (char)(url_hex_digit(from[1]) * 16 + url_hex_digit(from[2]));
        from += 2;
    }
    if (copy != NULL)
        *out = '\0';
    return copy;
}

/* Whether it is a port or a database number: 1 to 5 digits, at most `max`. */
static bool url_is_number(const char *from, const char *to, long max)
{
    if (from == to || to - from > 5 || (size_t)(to - from) != strspn(from, "0123456789"))
        return false;
    return strtol(from, NULL, 10) <= max;
}

/* Removes leading zeros, which Redis refuses. */
static char *copy_db(const char *db)
{
    while (db[0] == '0' && db[1] != '\0')
        db++;
    return strdup(db);
}

/* [from, at) is [user]:password. */
static const char *parse_login(const char *from, const char *at, struct url *url)
{
    const char *colon = memchr(from, ':', (size_t)(at - from));
    if (colon == NULL)
        return WRONG_LOGIN;
    url->user = colon > from ? url_decode(from, colon) : NULL;
    url->password = url_decode(colon + 1, at);
    url->whole &= url->password != NULL && (colon == from || url->user != NULL);
    return NULL;
}

/* NULL: it is correct; else what is wrong. */
static const char *parse_redis(const char *rest, struct url *url)
{
    const char *end = rest + strcspn(rest, "/");
    const char *at = memrchr(rest, '@', (size_t)(end - rest));
    const char *wrong = at != NULL ? parse_login(rest, at, url) : NULL;
    if (wrong != NULL)
        return wrong;
    if (strchr(end, '@') != NULL)
        return WRONG_SLASH;
    const char *host = at != NULL ? at + 1 : rest;
    if (strchr(host, '?') != NULL)
        return WRONG_QUERY;
    const char *host_end = host + strcspn(host, ":/");
    const char *after = host_end;
    if (*host == '[') {
        const char *bracket = strchr(++host, ']');
        if (bracket == NULL || bracket > end)
            return "has a '[' without a ']' after its host";
        host_end = bracket;
        after = bracket + 1;
    }
    if (host == host_end)
        return WRONG_HOST;
    if (*after != '\0' && *after != ':' && *after != '/')
        return "has something else than a ':' or a '/' after its ']'";
    const char *port = *after == ':' ? after + 1 : NULL;
    if (port != NULL && (!url_is_number(port, end, 65535) || strtol(port, NULL, 10) == 0))
        return WRONG_PORT;
    const char *db = *end == '/' && end[1] != '\0' ? end + 1 : NULL;
    if (db != NULL && !url_is_number(db, db + strlen(db), 99999))
        return WRONG_DB;
    url->host = url_decode(host, host_end);
    url->port = port != NULL ? strndup(port, (size_t)(end - port)) : strdup("6379");
    url->db = db != NULL ? copy_db(db) : NULL;
    url->whole &= url->host != NULL && url->port != NULL && (db == NULL || url->db != NULL);
    return NULL;
}

static const char *parse_unix(const char *rest, struct url *url)
{
    if (strncmp(rest, "//", 2) == 0)
        rest += 2;
    const char *end = rest + strcspn(rest, "?");
    /* Text that begins with '/' is a path, whatever follows. Other text with a ':' must be a login.
     * If it were taken for a path, messages would show the password. */
    const char *at = *rest != '/' ? memchr(rest, '@', (size_t)(end - rest)) : NULL;
    const char *wrong = at != NULL ? parse_login(rest, at, url) : NULL;
    if (wrong != NULL)
        return wrong;
    const char *db = strncmp(end, "?db=", 4) == 0 ? end + 4 : NULL;
    if (*end == '?' && (db == NULL || !url_is_number(db, db + strlen(db), 99999)))
        return WRONG_UNIX_QUERY;
    if (at == NULL && *rest != '/' && memchr(rest, ':', (size_t)(end - rest)) != NULL)
        return WRONG_UNIX_LOGIN;
    url->path = url_decode(at != NULL ? at + 1 : rest, end);
    url->db = db != NULL ? copy_db(db) : NULL;
    url->whole &= url->path != NULL && (db == NULL || url->db != NULL);
    size_t size = url->path != NULL ? strlen(url->path) : 1;
    return size >= 1 && size <= PATH_SIZE_MAX ? NULL : WRONG_PATH;
}

/* The URL as messages show it: everything except the login. */
static char *url_shown(const struct url *url)
{
    char *shown = NULL;
    int length;
    const char *db = url->db != NULL ? url->db : "0";
    if (url->path != NULL)
        length = asprintf(&shown, "unix:%s?db=%s", url->path, db);
    else
        length = asprintf(
            &shown, strchr(url->host, ':') != NULL ? "redis://[%s]:%s/%s" : "redis://%s:%s/%s",
            url->host, url->port, db);
    return length < 0 ? NULL : shown;
}

/* NULL: it is correct; else what is wrong. */
static const char *url_find_error(const char *text, struct url *url)
{
    bool is_redis = strncmp(text, "redis://", 8) == 0;
    if (strncmp(text, "rediss://", 9) == 0)
        return "needs TLS, which libdlock does not support: run a local TLS proxy such as stunnel";
    if (!is_redis && strncmp(text, "unix:", 5) != 0)
        return "begins neither with redis:// nor with unix:";
    if (has_wrong_escape(text))
        return WRONG_ESCAPE;
    return is_redis ? parse_redis(text + 8, url) : parse_unix(text + 5, url);
}

/* Never shows what may be a password: all text before the last '@'. Without an '@', all text after
 * the second ':' (the first is the scheme's). */
static dlock_status url_refuse(const char *text, const char *wrong)
{
    const char *at = strrchr(text, '@');
    if (at != NULL)
        return fail(DLOCK_INVALID, "'...%.200s' %s; give " FORM, at, wrong);
    const char *colon = strchr(text, ':');
    if (colon != NULL)
        colon = strchr(colon + 1, ':');
    if (colon == NULL || colon - text >= 200)
        return fail(DLOCK_INVALID, "'%.200s' %s; give " FORM, text, wrong);
    return fail(DLOCK_INVALID, "'%.*s:...' %s; give " FORM, (int)(colon - text), text, wrong);
}

dlock_status url_parse(const char *text, struct url *url)
{
    *url = (struct url){.whole = true};
    if (text == NULL)
        return fail(DLOCK_INVALID, "a server's URL is missing; give " FORM);
    const char *wrong = url_find_error(text, url);
    if (wrong == NULL && url->whole && (url->shown = url_shown(url)) != NULL)
        return DLOCK_OK;
    url_free(url);
    return wrong != NULL ? url_refuse(text, wrong) : fail(DLOCK_NO_MEMORY, "out of memory");
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
