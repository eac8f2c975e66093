/* SPDX-License-Identifier: Apache-2.0
 *
 * redis://[[user]:password@]host[:port][/db] and unix:[[user]:password@]path[?db=N], after
 * https://www.iana.org/assignments/uri-schemes/prov/redis and RFC 3986; and a list of sentinels,
 * sentinel://[[user]:password@]host[:port],.../master[/db].
 */
#include "url.h"

#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#define PATH_SIZE_MAX (sizeof((struct sockaddr_un *)NULL)->sun_path - 1)
#define NAME_MAX_SIZE 100 /* of a master; Redis itself has no limit */
#define FORM                                                                                       \
    "redis://[[user]:password@]host[:port][/db] or unix:[[user]:password@]path[?db=N] or "         \
    "sentinel://[[user]:password@]host[:port],.../master[/db]"

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
#define WRONG_HOST_BYTES                                                                           \
    "has a blank, a ';' or a control character in a host; between two sentinels stands one ','"
#define WRONG_PORT "has a port that is not a number from 1 to 65535"
#define WRONG_DB "has a database that is not a number from 0 to 99999"
#define WRONG_SLASH "has a '/' in its login; write it as %2F"
#define WRONG_QUERY "has a '?': the database follows a '/', as in redis://host:6379/2"
#define WRONG_BRACKET "has a '[' without a ']' after its host"
#define WRONG_AFTER_BRACKET "has something else than a ':' or a '/' after its ']'"
#define WRONG_COLONS                                                                               \
    "has two ':' in an address; an IPv6 address stands in brackets, as in redis://[::1]:6379"
#define WRONG_LIST "has a ',': only sentinel:// takes a list of hosts"
#define WRONG_SENTINEL                                                                             \
    "has a sentinel without a host in its list; give each as host or host:port, and put one ',' "  \
    "between two"
#define WRONG_SENTINEL_COUNT "has more than 16 sentinels"
#define WRONG_SENTINEL_TWICE "has the same sentinel twice, which would count as two"
#define WRONG_NO_MASTER                                                                            \
    "does not name the master; its name in the sentinels' configuration follows a '/', as in "     \
    "sentinel://host/shop"
#define WRONG_MASTER "has a master's name that is not of 1 to 100 letters, digits, '.', '-' and '_'"
#define WRONG_SENTINEL_QUERY "has a '?': the database follows the master's name, as in /shop/2"
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

/* [from, to) is host or host:port or [host]:port. NULL: it is correct; else what is wrong. */
static const char *parse_endpoint(const char *from, const char *to, const char *default_port,
                                  struct endpoint *endpoint)
{
    const char *host = from;
    const char *host_end = from + strcspn(from, ":");
    const char *after;
    if (host_end > to)
        host_end = to;
    after = host_end;
    if (from < to && *from == '[') {
        host++;
        host_end = memchr(host, ']', (size_t)(to - host));
        if (host_end == NULL)
            return WRONG_BRACKET;
        after = host_end + 1;
    } else if (memchr(host_end, ':', (size_t)(to - host_end)) !=
               memrchr(host_end, ':', (size_t)(to - host_end))) {
        return WRONG_COLONS;
    }
    if (host == host_end)
        return WRONG_HOST;
    for (const char *at = host; at < host_end; at++)
        if ((unsigned char)*at <= ' ' || *at == ';' || *at == 0x7f)
            return WRONG_HOST_BYTES;
    if (after < to && *after != ':')
        return WRONG_AFTER_BRACKET;
    const char *port = after < to ? after + 1 : NULL;
    if (port != NULL && (!url_is_number(port, to, 65535) || strtol(port, NULL, 10) == 0))
        return WRONG_PORT;
    endpoint->host = url_decode(host, host_end);
    endpoint->port = port != NULL ? strndup(port, (size_t)(to - port)) : strdup(default_port);
    return NULL;
}

/* slash: where the database begins, if it is not the end. */
static const char *parse_db(const char *slash, struct url *url)
{
    const char *db = *slash == '/' && slash[1] != '\0' ? slash + 1 : NULL;
    if (db != NULL && !url_is_number(db, db + strlen(db), 99999))
        return WRONG_DB;
    url->db = db != NULL ? copy_db(db) : NULL;
    url->whole &= db == NULL || url->db != NULL;
    return NULL;
}

/* The login of redis:// and sentinel://; the hosts begin at *hosts. */
static const char *parse_authority(const char *rest, const char *end, const char *wrong_query,
                                   const char **hosts, struct url *url)
{
    const char *at = memrchr(rest, '@', (size_t)(end - rest));
    const char *wrong = at != NULL ? parse_login(rest, at, url) : NULL;
    *hosts = at != NULL ? at + 1 : rest;
    if (wrong != NULL)
        return wrong;
    if (strchr(end, '@') != NULL)
        return WRONG_SLASH;
    return strchr(*hosts, '?') != NULL ? wrong_query : NULL;
}

/* NULL: it is correct; else what is wrong. */
static const char *parse_redis(const char *rest, struct url *url)
{
    const char *end = rest + strcspn(rest, "/");
    struct endpoint endpoint = {0};
    const char *host;
    const char *wrong = parse_authority(rest, end, WRONG_QUERY, &host, url);
    if (wrong == NULL && memchr(host, ',', (size_t)(end - host)) != NULL)
        wrong = WRONG_LIST;
    if (wrong == NULL)
        wrong = parse_endpoint(host, end, "6379", &endpoint);
    if (wrong != NULL)
        return wrong;
    url->host = endpoint.host;
    url->port = endpoint.port;
    url->whole &= url->host != NULL && url->port != NULL;
    return parse_db(end, url);
}

static bool is_same_endpoint(const struct endpoint *one, const struct endpoint *other)
{
    return strcasecmp(one->host, other->host) == 0 &&
           strtol(one->port, NULL, 10) == strtol(other->port, NULL, 10);
}

/* Whether one of the URL's first `count` sentinels is that one. */
static bool has_sentinel(const struct url *url, size_t count, const struct endpoint *sentinel)
{
    for (size_t i = 0; i < count; i++)
        if (is_same_endpoint(&url->sentinels[i], sentinel))
            return true;
    return false;
}

static bool has_sentinel_of(const struct url *one, const struct url *other)
{
    for (size_t i = 0; i < other->sentinel_count; i++)
        if (has_sentinel(one, one->sentinel_count, &other->sentinels[i]))
            return true;
    return false;
}

bool url_is_same_server(const struct url *one, const struct url *other)
{
    if (one->master != NULL && other->master != NULL)
        return strcmp(one->master, other->master) == 0 && has_sentinel_of(one, other);
    if (one->path != NULL && other->path != NULL)
        return strcmp(one->path, other->path) == 0;
    return one->host != NULL && other->host != NULL &&
           is_same_endpoint(&(struct endpoint){one->host, one->port},
                            &(struct endpoint){other->host, other->port});
}

static const char *parse_sentinels(const char *from, const char *end, struct url *url)
{
    for (const char *to; from <= end; from = to + 1) {
        to = from + strcspn(from, ",/");
        if (url->sentinel_count == SENTINELS_MAX)
            return WRONG_SENTINEL_COUNT;
        struct endpoint *sentinel = &url->sentinels[url->sentinel_count++];
        const char *wrong = parse_endpoint(from, to, "26379", sentinel);
        if (wrong != NULL)
            return strcmp(wrong, WRONG_HOST) == 0 ? WRONG_SENTINEL : wrong;
        url->whole &= sentinel->host != NULL && sentinel->port != NULL;
        if (url->whole && has_sentinel(url, url->sentinel_count - 1, sentinel))
            return WRONG_SENTINEL_TWICE;
    }
    return NULL;
}

/* The names that Redis's own sentinel.conf allows. */
static bool is_master_name(const char *name, size_t size)
{
    return size >= 1 && size <= NAME_MAX_SIZE &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_") >=
               size;
}

static const char *parse_sentinel(const char *rest, struct url *url)
{
    const char *end = rest + strcspn(rest, "/");
    const char *name = *end == '/' ? end + 1 : end;
    size_t size = strcspn(name, "/");
    const char *hosts;
    const char *wrong = parse_authority(rest, end, WRONG_SENTINEL_QUERY, &hosts, url);
    if (wrong == NULL)
        wrong = parse_sentinels(hosts, end, url);
    if (wrong == NULL && !is_master_name(name, size))
        wrong = size == 0 ? WRONG_NO_MASTER : WRONG_MASTER;
    if (wrong != NULL)
        return wrong;
    url->master = strndup(name, size);
    url->whole &= url->master != NULL;
    return parse_db(name + size, url);
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

/* "sentinel://h1:26379,h2:26379/shop", and "/2" if a database is given. */
static char *sentinel_shown(const struct url *url)
{
    char *shown = NULL;
    size_t size;
    FILE *out = open_memstream(&shown, &size);
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < url->sentinel_count; i++) {
        const char *host = url->sentinels[i].host;
        fputs(i == 0 ? "sentinel://" : ",", out);
        fprintf(out, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, url->sentinels[i].port);
    }
    fprintf(out, "/%s%s%s", url->master, url->db != NULL ? "/" : "",
            url->db != NULL ? url->db : "");
    if (fclose(out) == 0)
        return shown;
    free(shown);
    return NULL;
}

/* The URL as messages show it: everything except the login. */
static char *url_shown(const struct url *url)
{
    char *shown = NULL;
    int length;
    const char *db = url->db != NULL ? url->db : "0";
    if (url->master != NULL)
        return sentinel_shown(url);
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
    bool is_sentinel = strncmp(text, "sentinel://", 11) == 0;
    if (strncmp(text, "rediss://", 9) == 0)
        return "needs TLS, which libdlock does not support: run a local TLS proxy such as stunnel";
    if (!is_redis && !is_sentinel && strncmp(text, "unix:", 5) != 0)
        return "begins with none of redis://, unix: and sentinel://";
    if (has_wrong_escape(text))
        return WRONG_ESCAPE;
    return is_redis      ? parse_redis(text + 8, url)
           : is_sentinel ? parse_sentinel(text + 11, url)
                         : parse_unix(text + 5, url);
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
    free(url->master);
    for (size_t i = 0; i < url->sentinel_count; i++) {
        free(url->sentinels[i].host);
        free(url->sentinels[i].port);
    }
    free(url->shown);
    *url = (struct url){0};
}
