/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts each write to a socket of the process. Only the library's connections use send() during
 * the count. The program is linked with --wrap=send.
 */
#ifndef TESTS_SENDS_H
#define TESTS_SENDS_H

#include <stdatomic.h>
#include <sys/socket.h>

static _Atomic int sends;
ssize_t __real_send(int fd, const void *bytes, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags)
{
    atomic_fetch_add(&sends, 1);
    return __real_send(fd, bytes, size, flags);
}

#endif
