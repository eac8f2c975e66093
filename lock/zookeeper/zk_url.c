/* SPDX-License-Identifier: Apache-2.0
 *
 * See zk_url.h. A sentence about a URL never has its password.
 */
#include "zk_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME "zk://"
#define TICK "?tick_ms="
#define TICK_MS_DEFAULT 2000 /* of ZooKeeper's sample configuration */
#define TICK_MS_MOST 60000
#define DEFAULT_PORT ":2181"
#define DEFAULT_ROOT "/dlock"

static dlock_status refuse(const char *what)
{
    return fail(DLOCK_INVALID,
                "servers[0] %s; right is zk://[user:password@]host[:port],...[/path]"
                "[?tick_ms=N]",
                what);
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

/* Decodes %XX in place. False: a '%' is not followed by two hex digits other than 00. */
static bool decode(char *text)
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

static dlock_status read_login(struct zk_url *url, const char *from, const char *at)
{
    if (memchr(from, ':', (size_t)(at - from)) == NULL)
        return refuse("has a login without ':'");
    url->login = strndup(from, (size_t)(at - from));
    if (url->login == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    return decode(url->login)
               ? DLOCK_OK
               : refuse("has a '%' in its login that is not followed by two hex digits "
                        "other than 00");
}

/* One of the list: host, host:port, [host], [host]:port. */
static bool is_host(const char *host, const char **colon)
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

static dlock_status read_hosts(struct zk_url *url, const char *from, const char *to)
{
    const size_t size = (size_t)(to - from);
    char *list = strndup(from, size);
    url->hosts = calloc(1, size + (size + 1) * strlen(DEFAULT_PORT) + 1);
    dlock_status status = DLOCK_OK;
    if (list == NULL || url->hosts == NULL) {
        free(list);
        return fail(DLOCK_NO_MEMORY, "out of memory");
    }
    for (char *host, *rest = list; status == DLOCK_OK && (host = strsep(&rest, ",")) != NULL;) {
        const char *colon;
        if (!is_host(host, &colon))
            status = refuse("has a host that is not host or host:port, with a port from 1 to "
                            "65535");
        else
            sprintf(url->hosts + strlen(url->hosts), "%s%s%s", url->hosts[0] != '\0' ? "," : "",
                    host, colon == NULL ? DEFAULT_PORT : "");
    }
    free(list);
    return status;
}

/* What ZooKeeper takes for a path: no empty name, no "." or "..", no control character. */
static dlock_status read_root(struct zk_url *url, const char *from, const char *to)
{
    size_t size = (size_t)(to - from);
    while (size > 0 && from[size - 1] == '/')
        size--;
    if (size == 0)
        return strcpy(url->root, DEFAULT_ROOT), DLOCK_OK;
    if (size >= sizeof url->root)
        return refuse("has a path that is longer than 199 bytes");
    snprintf(url->root, sizeof url->root, "%.*s", (int)size, from);
    for (const char *at = url->root; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 0x7f || (unsigned char)*at >= 0x80 || *at == '%')
            return refuse("has a path with a blank, a '%', or a byte that is not printable ASCII");
    char whole[ROOT_MAX + 1];
    snprintf(whole, sizeof whole, "%s/", url->root);
    if (strstr(whole, "//") != NULL || strstr(whole, "/./") != NULL ||
        strstr(whole, "/../") != NULL || strncmp(whole, "/zookeeper/", 11) == 0)
        return refuse("has a path with an empty name, '.' or '..', or one below /zookeeper");
    return DLOCK_OK;
}

static dlock_status read_tick(struct zk_url *url, const char *query)
{
    url->tick_ms = TICK_MS_DEFAULT;
    if (query[0] == '\0')
        return DLOCK_OK;
    const char *number = query + strlen(TICK);
    if (strncmp(query, TICK, strlen(TICK)) != 0 || number[0] == '\0' || strlen(number) > 5 ||
        number[strspn(number, "0123456789")] != '\0')
        return refuse("has a '?' that is not the one of '?tick_ms=N'");
    url->tick_ms = strtol(number, NULL, 10);
    if (url->tick_ms < 1 || url->tick_ms > TICK_MS_MOST)
        return refuse("has a tick_ms that is not 1 to 60000");
    return DLOCK_OK;
}

dlock_status zk_url_read(struct zk_url *url, const char *text)
{
    *url = (struct zk_url){.login = NULL};
    if (strncmp(text, SCHEME, strlen(SCHEME)) != 0)
        return refuse("does not begin with zk://");
    const char *query = strchrnul(text, '?'), *from = text + strlen(SCHEME);
    const char *path = memchr(from, '/', (size_t)(query - from));
    const char *end = path != NULL ? path : query;
    const char *at = memrchr(from, '@', (size_t)(end - from));
    dlock_status status = at != NULL ? read_login(url, from, at) : DLOCK_OK;
    if (status == DLOCK_OK)
        status = read_hosts(url, at != NULL ? at + 1 : from, end);
    if (status == DLOCK_OK)
        status = read_root(url, end, query);
    if (status == DLOCK_OK)
        status = read_tick(url, query);
    if (status != DLOCK_OK)
        zk_url_free(url);
    return status;
}

void zk_url_free(struct zk_url *url)
{
    if (url->login != NULL)
        explicit_bzero(url->login, strlen(url->login));
    free(url->login);
    free(url->hosts);
    url->login = url->hosts = NULL;
}
