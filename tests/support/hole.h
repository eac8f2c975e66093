/* SPDX-License-Identifier: Apache-2.0
 *
 * An address that accepts no more connections: the first packet of each is dropped.
 */
#ifndef TESTS_HOLE_H
#define TESTS_HOLE_H

#include "must.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

struct hole {
    int listener;
    int port;
    int fillers[8];
};

static inline void hole_make(struct hole *hole)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(hole->listener, (struct sockaddr *)&address, size) == 0);
    must(listen(hole->listener, 0) == 0);
    must(getsockname(hole->listener, (struct sockaddr *)&address, &size) == 0);
    hole->port = ntohs(address.sin_port);
    for (int i = 0; i < 8; i++) {
        hole->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(hole->fillers[i], (struct sockaddr *)&address, sizeof address);
    }
}

static inline void hole_free(struct hole *hole)
{
    for (int i = 0; i < 8; i++)
        close(hole->fillers[i]);
    close(hole->listener);
}

#endif
