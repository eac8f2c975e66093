/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_timeout.h. The kernel counts a connection's bytes. If none has arrived since the last
 * answer, the connection is idle, and libmicrohttpd's own time-out ends it.
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
    bool begun;       /* a part of a request had arrived at the last check */
    uint64_t bytes;   /* that had arrived when the last answer was sent */
    int64_t at_ns;    /* when to check it */
    int64_t since_ns; /* when its last answer was sent */
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

bool http_timeouts_make_room(struct http_timeouts *timeouts)
{
    struct http_timeout *timeout;
    if (timeouts->closing != NULL)
        return true;
    TAILQ_FOREACH(timeout, &timeouts->watched, of_watched) {
        const struct http_timeout *longest = timeouts->closing;
        if (timeout->phase == HTTP_READING &&
            (longest == NULL || timeout->since_ns < longest->since_ns) &&
            bytes_of(timeout->fd) == timeout->bytes)
            timeouts->closing = timeout;
    }
    if (timeouts->closing != NULL)
        shutdown(timeouts->closing->fd, SHUT_RDWR);
    return timeouts->closing != NULL;
}

void http_timeout_set(struct http_timeouts *timeouts, struct http_timeout *timeout,
                      enum http_phase phase)
{
    if (timeout == NULL || timeout->phase == phase)
        return;
    if (timeout->phase != HTTP_ANSWERING)
        TAILQ_REMOVE(&timeouts->watched, timeout, of_watched);
    timeouts->reading += phase == HTTP_READING;
    timeouts->reading -= timeout->phase == HTTP_READING;
    timeout->phase = phase;
    if (timeouts->closing == timeout)
        timeouts->closing = NULL; /* it was not idle: its request came first */
    if (phase == HTTP_ANSWERING)
        return;
    timeout->begun = false;
    look_later(timeouts, timeout);
    if (phase == HTTP_READING) {
        timeout->bytes = bytes_of(timeout->fd);
        timeout->since_ns = timeout->at_ns - timeouts->after_ns;
    }
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
    http_timeout_set(timeouts, timeout, HTTP_ANSWERING); /* in this phase it is not in the list */
    free(timeout);
}
