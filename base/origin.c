/* SPDX-License-Identifier: Apache-2.0
 *
 * See origin.h.
 */
#include "origin.h"

#include "net.h"
#include "text.h"

#include <string.h>
#include <strings.h>

#define HOST_MAX 255

/* The length of HOST in HOST or HOST:PORT; an IPv6 address is in brackets. 0: the text is
 * neither. */
static size_t host_size(const char *text, size_t size)
{
    size_t host = text[0] == '[' ? strcspn(text, "]") + 1 : strcspn(text, ": \t");
    if (host >= size)
        return host == size ? size : 0;
    return text[host] == ':' && host + 1 + strspn(text + host + 1, "0123456789") == size ? host : 0;
}

static bool origin_is_same(const char *a, size_t a_size, const char *b, size_t b_size)
{
    return a_size == b_size && strncasecmp(a, b, a_size) == 0;
}

bool origin_is_local_host(const char *host, const char *listen)
{
    static const char name[] = "localhost";
    char address[HOST_MAX + 1];
    size_t size = host_size(host, text_trimmed_size(host));
    if (size == 0 || size > HOST_MAX)
        return false;
    memcpy(address, host, size);
    address[size] = '\0';
    return origin_is_same(host, size, name, sizeof name - 1) || net_is_loopback(address) ||
           origin_is_same(host, size, listen, host_size(listen, strlen(listen)));
}

bool origin_is_local(const char *origin, const char *listen)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++)
        if (strncasecmp(origin, schemes[i], strlen(schemes[i])) == 0)
            return origin_is_local_host(origin + strlen(schemes[i]), listen);
    return false;
}
