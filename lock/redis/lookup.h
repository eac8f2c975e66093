/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking a host name up without waiting for it: the resolver may take as long as it likes, on a
 * thread that nobody joins. Who waits polls a descriptor, and leaves when its time is over.
 */
#ifndef DLOCK_LOOKUP_H
#define DLOCK_LOOKUP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define ADDRESSES_MAX 8

struct address {
    struct sockaddr_storage at;
    socklen_t size;
};

struct addresses {
    struct address list[ADDRESSES_MAX];
    size_t count;
};

/* What a host is called, where it is no name: 0; else getaddrinfo's error. Does not block. */
int lookup_numeric(const char *host, const char *port, struct addresses *addresses);

/* One look-up, shared by those who wait for it and by its thread; the last to leave frees it. */
struct lookup;

/* NULL: no thread, descriptor or memory is left. The caller has joined it. */
struct lookup *lookup_begin(const char *host, const char *port);
void lookup_join(struct lookup *lookup);
void lookup_leave(struct lookup *lookup); /* NULL is allowed */

/* Readable once it is over; not to be read. */
int lookup_fd(const struct lookup *lookup);
bool lookup_over(struct lookup *lookup);
/* Of one that is over: 0, or getaddrinfo's error; what was found is added to an empty list. */
int lookup_found(struct lookup *lookup, struct addresses *addresses);

#endif
