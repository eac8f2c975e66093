/* SPDX-License-Identifier: Apache-2.0
 *
 * See net.h.
 */
#include "net.h"

#include "../lock/clock.h"
#include "text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 4096

struct address {
    char host[256];
    char port[8];
};

/* Splits [text, end), which must be host:port. An IPv6 host is in brackets. */
static bool net_split(const char *text, const char *end, struct address *address)
{
    const char *colon = memrchr(text, ':', (size_t)(end - text));
    if (colon == NULL || colon == text || end - colon < 2 || end - colon > 6)
        return false;
    const char *host = text, *host_end = colon;
    if (*host == '[' && host_end[-1] == ']')
        host++, host_end--;
    else if (memchr(host, ':', (size_t)(host_end - host)) != NULL)
        return false;
    size_t digits = strspn(colon + 1, "0123456789");
    if (digits < (size_t)(end - colon - 1) || host_end <= host ||
        host_end - host >= (ptrdiff_t)sizeof address->host)
        return false;
    snprintf(address->host, sizeof address->host, "%.*s", (int)(host_end - host), host);
    snprintf(address->port, sizeof address->port, "%.*s", (int)(end - colon - 1), colon + 1);
    return strtol(address->port, NULL, 10) <= 65535;
}

bool net_is_address(const char *address)
{
    struct address parts;
    return net_split(address, address + strlen(address), &parts);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    }
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;
    return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}

bool net_is_loopback(const char *host)
{
    struct in_addr in;
    struct in6_addr in6;
    char inside[INET6_ADDRSTRLEN];
    size_t size = strlen(host);
    if (inet_pton(AF_INET, host, &in) == 1)
        return ntohl(in.s_addr) >> 24 == IN_LOOPBACKNET;
    if (size < 2 || host[0] != '[' || host[size - 1] != ']' || size - 2 >= sizeof inside)
        return false;
    memcpy(inside, host + 1, size - 2);
    inside[size - 2] = '\0';
    return inet_pton(AF_INET6, inside, &in6) == 1 && IN6_IS_ADDR_LOOPBACK(&in6);
}

/* Sets the actual address of the socket, as text. */
static void name_socket(struct listening *listening)
{
    struct sockaddr_storage bound;
    socklen_t size = sizeof bound;
    char host[INET6_ADDRSTRLEN + 8] = "?", port[8] = "?";
    memset(&bound, 0, sizeof bound);
    getsockname(listening->fd, (struct sockaddr *)&bound, &size);
    getnameinfo((struct sockaddr *)&bound, size, host, sizeof host, port, sizeof port,
                NI_NUMERICHOST | NI_NUMERICSERV);
    listening->loopback = is_loopback((struct sockaddr *)&bound);
    snprintf(listening->address, sizeof listening->address,
             bound.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

bool net_listen(const char *address, struct listening *listening, char error[NET_ERROR_MAX])
{
    struct address parts;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    int on = 1;
    *listening = (struct listening){.fd = -1};
    if (!net_split(address, address + strlen(address), &parts)) {
        snprintf(error, NET_ERROR_MAX, "%s is not host:port", address);
        return false;
    }
    int failed = getaddrinfo(parts.host, parts.port, &hints, &found);
    if (failed != 0) {
        snprintf(error, NET_ERROR_MAX, "cannot listen on %s: %s", address, gai_strerror(failed));
        return false;
    }
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool listens = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                   bind(fd, found->ai_addr, found->ai_addrlen) == 0 &&
                   listen(fd, LISTEN_BACKLOG) == 0;
    int reason = errno;
    freeaddrinfo(found);
    if (!listens) {
        snprintf(error, NET_ERROR_MAX, "cannot listen on %s: %s%s", address, strerror(reason),
                 reason == EADDRINUSE
                     ? "; end the process that listens there, or choose another port"
                     : "");
        if (fd >= 0)
            close(fd);
        return false;
    }
    listening->fd = fd;
    name_socket(listening);
    return true;
}

/* ---- A GET ----------------------------------------------------------------------------------- */

/* Waits for the socket until the deadline. */
static bool net_wait_for(int fd, short events, int64_t deadline_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int64_t left_ms = (deadline_ns - mono_ns()) / NS_PER_MS;
    return left_ms > 0 && poll(&poll_fd, 1, (int)left_ms) == 1;
}

static int connect_to(const struct address *address, int64_t deadline_ns)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1;
    if (getaddrinfo(address->host, address->port, &hints, &found) != 0)
        return -1;
    for (struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        int error = 0;
        socklen_t size = sizeof error;
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 ||
            (errno == EINPROGRESS && net_wait_for(fd, POLLOUT, deadline_ns) &&
             getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0))
            break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(found);
    return fd;
}

/* Waits for the status line and returns its code; 0: there is none. */
static int read_status(int fd, int64_t deadline_ns)
{
    char answer[16];
    size_t size = 0;
    int status;
    while (size < 12 && net_wait_for(fd, POLLIN, deadline_ns)) {
        ssize_t got = recv(fd, answer + size, 12 - size, 0);
        if (got <= 0 && errno != EAGAIN && errno != EINTR)
            return 0;
        size += got > 0 ? (size_t)got : 0;
        if (got == 0)
            return 0;
    }
    answer[size] = '\0';
    return sscanf(answer, "HTTP/1.%*1[01] %3d", &status) == 1 ? status : 0;
}

int net_get(const char *url, int timeout_ms, char error[NET_ERROR_MAX])
{
    int64_t deadline_ns = mono_ns() + (int64_t)timeout_ms * NS_PER_MS;
    struct address address;
    char request[1024];
    const char *host = url + 7;
    const char *path = strncmp(url, "http://", 7) == 0 ? host + strcspn(host, "/") : NULL;
    if (path == NULL || !net_split(host, path, &address)) {
        snprintf(error, NET_ERROR_MAX, "%s is not http://host:port/path", text_without_logins(url));
        return 0;
    }
    int length = snprintf(request, sizeof request,
                          "GET %s HTTP/1.1\r\nHost: %.*s\r\nConnection: close\r\n\r\n",
                          *path != '\0' ? path : "/", (int)(path - host), host);
    int fd = length < (int)sizeof request ? connect_to(&address, deadline_ns) : -1;
    if (fd < 0) {
        snprintf(error, NET_ERROR_MAX, "%s: cannot connect", url);
        return 0;
    }
    int status = 0;
    if (send(fd, request, (size_t)length, MSG_NOSIGNAL) == length)
        status = read_status(fd, deadline_ns);
    if (status == 0)
        snprintf(error, NET_ERROR_MAX, "%s: no answer within %d ms", url, timeout_ms);
    close(fd);
    return status;
}
