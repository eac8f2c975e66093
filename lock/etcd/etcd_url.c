/* SPDX-License-Identifier: Apache-2.0
 *
 * See etcd_url.h. A sentence about a URL never has its password.
 */
#include "etcd_url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAIN "etcd://"
#define TLS "etcds://"
#define DEFAULT_PORT ":2379"
#define HOST_MAX 300 /* bytes, with its port */

static dlock_status refuse(const char *what)
{
    return fail(DLOCK_INVALID,
                "servers[0] %s; right is etcd://[user:password@]host[:port],...[/path], or etcds:// "
                "with [?ca=FILE][&cert=FILE&key=FILE]",
                what);
}

static dlock_status no_memory(void)
{
    return fail(DLOCK_NO_MEMORY, "out of memory");
}

static dlock_status read_login(struct etcd_url *url, const char *from, const char *at)
{
    const char *colon = memchr(from, ':', (size_t)(at - from));
    if (colon == NULL || colon == from)
        return refuse("has a login that is not user:password");
    url->user = strndup(from, (size_t)(colon - from));
    url->password = strndup(colon + 1, (size_t)(at - colon - 1));
    if (url->user == NULL || url->password == NULL)
        return no_memory();
    return url_decode(url->user) && url_decode(url->password)
               ? DLOCK_OK
               : refuse("has a '%' in its login that is not followed by two hex digits other than "
                        "00");
}

static dlock_status add_host(struct etcd_url *url, const char *host)
{
    const char *colon;
    if (strlen(host) > HOST_MAX || !url_is_host(host, &colon))
        return refuse("has a host that is not host or host:port, with a port from 1 to 65535");
    if (url->endpoint_count == ENDPOINTS_MAX)
        return refuse("has more than 16 hosts");
    if (asprintf(&url->endpoints[url->endpoint_count], "%s://%s%s", url->tls ? "https" : "http",
                 host, colon == NULL ? DEFAULT_PORT : "") < 0)
        return no_memory();
    url->endpoint_count++;
    return DLOCK_OK;
}

static dlock_status read_hosts(struct etcd_url *url, const char *from, const char *to)
{
    char *list = strndup(from, (size_t)(to - from));
    url->hosts = strndup(from, (size_t)(to - from));
    dlock_status status = list != NULL && url->hosts != NULL ? DLOCK_OK : no_memory();
    for (char *host, *rest = list; status == DLOCK_OK && (host = strsep(&rest, ",")) != NULL;)
        status = add_host(url, host);
    free(list);
    return status;
}

static dlock_status read_option(struct etcd_url *url, char *option)
{
    const struct {
        const char *name;
        char **value;
    } known[] = {{"ca=", &url->ca}, {"cert=", &url->cert}, {"key=", &url->key}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t size = strlen(known[i].name);
        if (strncmp(option, known[i].name, size) != 0 || option[size] == '\0' ||
            *known[i].value != NULL)
            continue;
        *known[i].value = strdup(option + size);
        if (*known[i].value == NULL)
            return no_memory();
        return url_decode(*known[i].value) ? DLOCK_OK
                                           : refuse("has a '%' in a file's name that is not "
                                                    "followed by two hex digits other than 00");
    }
    return refuse("has an option that is not ca=, cert= or key=, with a file, once each");
}

static dlock_status read_options(struct etcd_url *url, const char *query)
{
    if (query[0] == '\0')
        return DLOCK_OK;
    char *list = strdup(query + 1);
    dlock_status status = list != NULL ? DLOCK_OK : no_memory();
    for (char *option, *rest = list; status == DLOCK_OK && (option = strsep(&rest, "&")) != NULL;)
        status = read_option(url, option);
    free(list);
    if (status == DLOCK_OK && !url->tls)
        return refuse("has options, and these belong to etcds://");
    if (status == DLOCK_OK && (url->cert == NULL) != (url->key == NULL))
        return refuse("has one of cert= and key=, which belong together");
    return status;
}

dlock_status etcd_url_read(struct etcd_url *url, const char *text)
{
    *url = (struct etcd_url){.tls = strncmp(text, TLS, strlen(TLS)) == 0};
    if (!url->tls && strncmp(text, PLAIN, strlen(PLAIN)) != 0)
        return refuse("begins with neither etcd:// nor etcds://");
    const char *from = strchr(text, '/') + 2, *query = strchrnul(text, '?');
    const char *path = memchr(from, '/', (size_t)(query - from));
    const char *end = path != NULL ? path : query;
    const char *at = memrchr(from, '@', (size_t)(end - from));
    dlock_status status = at != NULL ? read_login(url, from, at) : DLOCK_OK;
    if (status == DLOCK_OK)
        status = read_hosts(url, at != NULL ? at + 1 : from, end);
    const char *wrong = url_read_root(url->root, end, query);
    if (status == DLOCK_OK && wrong != NULL)
        status = refuse(wrong);
    if (status == DLOCK_OK)
        status = read_options(url, query);
    if (status != DLOCK_OK)
        etcd_url_free(url);
    return status;
}

void etcd_url_free(struct etcd_url *url)
{
    for (size_t i = 0; i < url->endpoint_count; i++)
        free(url->endpoints[i]);
    if (url->password != NULL)
        explicit_bzero(url->password, strlen(url->password));
    free(url->hosts);
    free(url->user);
    free(url->password);
    free(url->ca);
    free(url->cert);
    free(url->key);
    *url = (struct etcd_url){.tls = false};
}
