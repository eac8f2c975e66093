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

/* "host:port", "[::1]:port". False: it has not that form. */
bool net_is_address(const char *address);

/* Whether it is the number of a loopback address, "127.0.0.1" or "[::1]". */
bool net_is_loopback(const char *host);

struct listening {
    int fd;
    bool loopback;
    char address[NET_ADDRESS_MAX]; /* where it really listens: port 0 asked the kernel for one */
};

/* A listening socket. False: error[] says why. */
bool net_listen(const char *address, struct listening *listening, char error[NET_ERROR_MAX]);

/* GET url (http://host:port/path) within timeout_ms. The answer's status; 0: error[] says why. */
int net_get(const char *url, int timeout_ms, char error[NET_ERROR_MAX]);

#endif
