/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_timeout.h. The kernel counts a connection's bytes: if none has come since the last answer, it is idle, and
 * libmicrohttpd's to end.
 */
#include "http_timeout.h"

#include "clock.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

struct http_timeout {
    int fd;
    bool reading;
    bool begun; /* a part of a request was there when it was looked at */
    uint64_t bytes; /* that had come when the last answer was sent */
    int64_t at_ns;  /* when it is looked at */
    TAILQ_ENTRY(http_timeout) of_reading;
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
    TAILQ_INIT(&timeouts->reading);
}

static void look_later(struct http_timeouts *timeouts, struct http_timeout *timeout)
{
    timeout->at_ns = now_ns() + timeouts->after_ns;
    TAILQ_INSERT_TAIL(&timeouts->reading, timeout, of_reading);
}

int64_t http_timeouts_look(struct http_timeouts *timeouts)
{
    struct http_timeout *timeout;
    while ((timeout = TAILQ_FIRST(&timeouts->reading)) != NULL && timeout->at_ns <= now_ns()) {
        TAILQ_REMOVE(&timeouts->reading, timeout, of_reading);
        look_later(timeouts, timeout);
        if (timeout->begun)
            shutdown(timeout->fd, SHUT_RDWR); /* libmicrohttpd sees the end, and closes it */
        timeout->begun = bytes_of(timeout->fd) != timeout->bytes;
    }
    return timeout != NULL ? timeout->at_ns : INT64_MAX;
}

void http_timeout_set(struct http_timeouts *timeouts, struct http_timeout *timeout, bool reading)
{
    if (timeout == NULL || timeout->reading == reading)
        return;
    timeout->reading = reading;
    if (!reading) {
        TAILQ_REMOVE(&timeouts->reading, timeout, of_reading);
        return;
    }
    timeout->begun = false;
    timeout->bytes = bytes_of(timeout->fd);
    look_later(timeouts, timeout);
}

struct http_timeout *http_timeout_new(struct http_timeouts *timeouts, int fd)
{
    struct http_timeout *timeout = calloc(1, sizeof *timeout);
    if (timeout == NULL)
        return NULL;
    timeout->fd = fd;
    timeout->reading = true;
    look_later(timeouts, timeout);
    return timeout;
}

void http_timeout_free(struct http_timeouts *timeouts, struct http_timeout *timeout)
{
    http_timeout_set(timeouts, timeout, false);
    free(timeout);
}
