/* SPDX-License-Identifier: Apache-2.0
 *
 * The addresses of a server's host. The resolver may hang: it is asked on a thread of its own
 * (lock/lookup.h), and at most one for each host.
 */
#ifndef HOST_H
#define HOST_H

#include <stdbool.h>
#include <stdint.h>

#define HOST_ADDRESSES_MAX 8
#define HOST_ADDRESS_SIZE 64 /* an IPv6 address with its scope, as text */

struct host;

/* NULL: out of memory. */
struct host *host_new(const char *name, int port);
void host_free(struct host *host);

/* Finds the addresses, as numeric text, before by_ns and before end_fd (-1: none) is readable. The
 * addresses that were found last serve while the resolver fails, or has not answered for half of
 * the time. Returns NULL, or why there are none. Any thread. */
struct host_addresses {
    char list[HOST_ADDRESSES_MAX][HOST_ADDRESS_SIZE];
    int count;
};
const char *host_find(struct host *host, int64_t by_ns, int end_fd, struct host_addresses *found);

#endif
