/* SPDX-License-Identifier: Apache-2.0
 *
 * See http_loop.h. MHD_run() handles what is ready and never sleeps. The loop sleeps in its own
 * poll(), which includes libmicrohttpd's epoll descriptor.
 */
#include "http_loop.h"

#include "../lock/clock.h"
#include "log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_MAX 8 /* a turn, so that all loops get about the same number */
#define PAUSE_MS 10   /* when nothing can be accepted now */

enum { SET, WAKE, LISTEN };

static unsigned connections_left(struct http_loop *loop)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    unsigned left = loop->connections_max > info->num_connections
                        ? loop->connections_max - info->num_connections
                        : 0;
    if (left != loop->counted)
        atomic_fetch_add(loop->room, left - loop->counted);
    loop->counted = left;
    return left;
}

/* For poll(); -1: no limit. */
static int timeout_ms(struct http_loop *loop)
{
    MHD_UNSIGNED_LONG_LONG left_ms;
    int64_t look_ns = http_timeouts_look(&loop->timeouts);
    int64_t sleep_ms = look_ns != INT64_MAX ? (look_ns - mono_ns()) / NS_PER_MS + 1 : INT64_MAX;
    if (MHD_get_timeout(loop->daemon, &left_ms) == MHD_YES && left_ms < (uint64_t)INT_MAX &&
        (int64_t)left_ms < sleep_ms)
        sleep_ms = (int64_t)left_ms;
    return sleep_ms < 0 ? 0 : sleep_ms <= INT_MAX ? (int)sleep_ms : -1;
}

/* False: accepting fails for now, for instance because no descriptor is left. */
static bool accept_some(const struct http_loop *loop, unsigned left)
{
    for (unsigned i = 0; i < left && i < ACCEPTS_MAX; i++) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof peer;
        int fd =
            accept4(loop->listen_fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) /* which closes fd if it fails */
            MHD_add_connection(loop->daemon, fd, (struct sockaddr *)&peer, size);
        else if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED ||
                 atomic_load(&loop->quiesced))
            return true;
        else {
            log_event(LOG_DEBUG, "http", "connections have to wait: %s", strerror(errno));
            return false;
        }
    }
    return true;
}

/* False: the connection has to wait, or another loop accepts it. */
static bool make_room(struct http_loop *loop)
{
    return atomic_load(loop->room) == 0 && http_timeouts_make_room(&loop->timeouts);
}

static void *http_loop_run(void *arg)
{
    struct http_loop *loop = arg;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(loop->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct pollfd polls[] = {[SET] = {.fd = info->epoll_fd, .events = POLLIN},
                             [WAKE] = {.fd = loop->wake_fd, .events = POLLIN},
                             [LISTEN] = {.events = POLLIN}};
    bool paused = false;
    uint64_t count;
    while (!atomic_load(&loop->stopping)) {
        unsigned left = connections_left(loop);
        int sleep_ms = timeout_ms(loop);
        if (paused && (sleep_ms < 0 || sleep_ms > PAUSE_MS))
            sleep_ms = PAUSE_MS;
        bool full = left == 0 && loop->timeouts.reading == 0;
        polls[LISTEN].fd = full || paused || atomic_load(&loop->quiesced) ? -1 : loop->listen_fd;
        paused = false;
        if (poll(polls, sizeof polls / sizeof polls[0], sleep_ms) < 0)
            continue;
        if (polls[WAKE].revents != 0) {
            (void)!read(loop->wake_fd, &count, sizeof count);
            atomic_store(&loop->woken, false);
        }
        if (polls[LISTEN].fd >= 0 && polls[LISTEN].revents != 0)
            paused = left > 0 ? !accept_some(loop, left) : !make_room(loop);
        MHD_run(loop->daemon);
    }
    return NULL;
}

bool http_loop_start(struct http_loop *loop)
{
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->wake_fd < 0)
        return false;
    if (pthread_create(&loop->thread, NULL, http_loop_run, loop) == 0)
        return true;
    close(loop->wake_fd);
    return false;
}

void http_loop_wake(struct http_loop *loop)
{
    const uint64_t one = 1;
    if (!atomic_exchange(&loop->woken, true))
        (void)!write(loop->wake_fd, &one, sizeof one);
}

void http_loop_quiesce(struct http_loop *loop)
{
    atomic_store(&loop->quiesced, true);
    http_loop_wake(loop);
}

void http_loop_stop(struct http_loop *loop)
{
    atomic_store(&loop->stopping, true);
    http_loop_wake(loop);
    pthread_join(loop->thread, NULL);
    close(loop->wake_fd);
}
