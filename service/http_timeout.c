/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_timeout.h. The kernel counts a connection's bytes: if none has come since the last
 * answer, it is idle, and libmicrohttpd's to end.
 */
#include "http_timeout.h"

#include "../lock/clock.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

struct http_timeout {
    int fd;
    enum http_phase phase;
    bool begun;     /* a part of a request was there when it was looked at */
    uint64_t bytes; /* that had come when the last answer was sent */
    int64_t at_ns;  /* when it is looked at */
    TAILQ_ENTRY(http_timeout) of_watched;
};

static uint64_t bytes_of(int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 ? info.tcpi_bytes_received : 0;
}

void http_timeouts_init(struct http_timeouts *timeouts, int64_t after_ms)
{
    timeouts->after_ns = after_ms * NS_PER_MS;
    TAILQ_INIT(&timeouts->watched);
}

static void look_later(struct http_timeouts *timeouts, struct http_timeout *timeout)
{
    timeout->at_ns = mono_ns() + timeouts->after_ns;
    TAILQ_INSERT_TAIL(&timeouts->watched, timeout, of_watched);
}

static void http_timeout_look(struct http_timeout *timeout)
{
    const bool has_sent = bytes_of(timeout->fd) != timeout->bytes;
    if (timeout->begun || timeout->phase == HTTP_SENDING ||
        (timeout->phase == HTTP_NEW && !has_sent))
        shutdown(timeout->fd, SHUT_RDWR); /* libmicrohttpd sees the end, and closes it */
    timeout->begun = has_sent;
}

int64_t http_timeouts_look(struct http_timeouts *timeouts)
{
    struct http_timeout *timeout;
    while ((timeout = TAILQ_FIRST(&timeouts->watched)) != NULL && timeout->at_ns <= mono_ns()) {
        TAILQ_REMOVE(&timeouts->watched, timeout, of_watched);
        look_later(timeouts, timeout);
        http_timeout_look(timeout);
    }
    return timeout != NULL ? timeout->at_ns : INT64_MAX;
}

void http_timeout_set(struct http_timeouts *timeouts, struct http_timeout *timeout,
                      enum http_phase phase)
{
    if (timeout == NULL || timeout->phase == phase)
        return;
    if (timeout->phase != HTTP_ANSWERING)
        TAILQ_REMOVE(&timeouts->watched, timeout, of_watched);
    timeout->phase = phase;
    if (phase == HTTP_ANSWERING)
        return;
    timeout->begun = false;
    if (phase == HTTP_READING)
        timeout->bytes = bytes_of(timeout->fd);
    look_later(timeouts, timeout);
}

struct http_timeout *http_timeout_new(struct http_timeouts *timeouts, int fd)
{
    struct http_timeout *timeout = calloc(1, sizeof *timeout);
    if (timeout == NULL)
        return NULL;
    timeout->fd = fd;
    timeout->phase = HTTP_NEW;
    look_later(timeouts, timeout);
    return timeout;
}

void http_timeout_free(struct http_timeouts *timeouts, struct http_timeout *timeout)
{
    http_timeout_set(timeouts, timeout, HTTP_ANSWERING); /* is not watched */
    free(timeout);
}
