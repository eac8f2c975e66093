/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks a host name up without blocking the caller. The resolver runs on a detached thread, and may
 * take any time. A caller polls a descriptor, and leaves when its own time is over.
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

/* Reads a host that is a numeric address. 0; else getaddrinfo's error. Does not block. */
int lookup_numeric(const char *host, const char *port, struct addresses *addresses);

/* One look-up, shared by its callers and its thread. The last one to leave frees it. */
struct lookup;

/* Starts a look-up, and joins the caller to it. NULL: no thread, descriptor or memory is left, or
 * 64 look-ups of this process run. */
struct lookup *lookup_begin(const char *host, const char *port);
/* A look-up without a thread: somebody else finds the addresses, and calls lookup_answer once. */
struct lookup *lookup_promise(void);
/* error 0: these are the addresses; else getaddrinfo's error. */
void lookup_answer(struct lookup *lookup, int error, const struct addresses *found);
void lookup_join(struct lookup *lookup);
void lookup_leave(struct lookup *lookup); /* NULL is allowed */

/* A descriptor to poll: readable once the look-up is over. Do not read from it. */
int lookup_fd(const struct lookup *lookup);
bool lookup_over(struct lookup *lookup);
/* The result of a look-up that is over: 0, and the addresses replace those in the list; or
 * getaddrinfo's error, and the list stays. */
int lookup_found(struct lookup *lookup, struct addresses *addresses);

#endif
