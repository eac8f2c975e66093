/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses and listening sockets; a time-bounded GET for --healthcheck.
 */
#ifndef NET_H
#define NET_H

#include <stdbool.h>
#include <stddef.h>

#define NET_ERROR_MAX 256
#define NET_ADDRESS_MAX 64

/* Whether the address is "host:port" or "[::1]:port". */
bool net_is_address(const char *address);

/* Whether the host is a loopback address as a number, such as "127.0.0.1" or "[::1]". */
bool net_is_loopback(const char *host);

struct listening {
    int fd;
    bool loopback;
    /* the actual address; for port 0 the kernel has chosen the port */
    char address[NET_ADDRESS_MAX];
};

/* Opens a listening socket. False: error[] says why. */
bool net_listen(const char *address, struct listening *listening, char error[NET_ERROR_MAX]);

/* GET url (http://host:port/path) within timeout_ms. Returns the answer's status; 0: error[] says
 * why there is none. */
int net_get(const char *url, int timeout_ms, char error[NET_ERROR_MAX]);

#endif
