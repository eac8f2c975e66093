/* SPDX-License-Identifier: Apache-2.0
 *
 * See zk_url.h. A sentence about a URL never has its password.
 */
#include "zk_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEME "zk://"
#define TICK "?tick_ms="
#define TICK_MS_DEFAULT 2000 /* of ZooKeeper's sample configuration */
#define TICK_MS_MOST 60000
#define DEFAULT_PORT ":2181"

static dlock_status refuse(const char *what)
{
    return fail(DLOCK_INVALID,
                "servers[0] %s; right is zk://[user:password@]host[:port],...[/path]"
                "[?tick_ms=N]",
                what);
}

static dlock_status read_login(struct zk_url *url, const char *from, const char *at)
{
    if (memchr(from, ':', (size_t)(at - from)) == NULL)
        return refuse("has a login without ':'");
    url->login = strndup(from, (size_t)(at - from));
    if (url->login == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    return url_decode(url->login)
               ? DLOCK_OK
               : refuse("has a '%' in its login that is not followed by two hex digits "
                        "other than 00");
}

static void strip_brackets(char *to, const char *from)
{
    for (; *from != '\0'; from++)
        if (*from != '[' && *from != ']')
            *to++ = *from;
}

static dlock_status read_hosts(struct zk_url *url, const char *from, const char *to)
{
    const size_t size = (size_t)(to - from);
    const size_t room = size + (size + 1) * strlen(DEFAULT_PORT) + 1;
    char *list = strndup(from, size);
    url->hosts = calloc(1, room);
    url->addresses = calloc(1, room);
    dlock_status status = DLOCK_OK;
    if (list == NULL || url->hosts == NULL || url->addresses == NULL) {
        free(list);
        return fail(DLOCK_NO_MEMORY, "out of memory");
    }
    for (char *host, *rest = list; status == DLOCK_OK && (host = strsep(&rest, ",")) != NULL;) {
        const char *colon;
        if (!url_is_host(host, &colon))
            status = refuse("has a host that is not host or host:port, with a port from 1 to "
                            "65535");
        else
            sprintf(url->hosts + strlen(url->hosts), "%s%s%s", url->hosts[0] != '\0' ? "," : "",
                    host, colon == NULL ? DEFAULT_PORT : "");
    }
    free(list);
    strip_brackets(url->addresses, url->hosts);
    return status;
}

static dlock_status read_root(struct zk_url *url, const char *from, const char *to)
{
    const char *wrong = url_read_root(url->root, from, to);
    if (wrong != NULL)
        return refuse(wrong);
    if (strcmp(url->root, "/zookeeper") == 0 || strncmp(url->root, "/zookeeper/", 11) == 0)
        return refuse("has a path that is /zookeeper, or one below /zookeeper");
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
    free(url->addresses);
    url->login = url->hosts = url->addresses = NULL;
}
