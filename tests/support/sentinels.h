/* SPDX-License-Identifier: Apache-2.0
 *
 * A master, two replicas and three sentinels that watch them as `shop`: all of them real, on ports
 * of their own. On a busy machine sentinels find servers down that are not, and two may stand for
 * election at once, which takes 10 s more. So these have much patience, and a test orders each
 * fail-over.
 */
#ifndef TESTS_SENTINELS_H
#define TESTS_SENTINELS_H

#include "server.h"

#define NODES 3
#define SENTINELS 3

struct sentinels {
    struct server *nodes[NODES]; /* nodes[0] is the master at first */
    struct server *watchers[SENTINELS];
    char url[160]; /* of all the sentinels: sentinel://.../shop */
};

/* Returns when each sentinel knows the other sentinels and both replicas, and the replicas get what
 * the master writes. */
void sentinels_start(struct sentinels *sentinels);
void sentinels_free(struct sentinels *sentinels);

/* The URL of the sentinels [first, end), with such a login and rest as "user:password@" and
 * "/shop". */
void sentinels_url(const struct sentinels *sentinels, int first, int end, const char *login,
                   const char *rest, char *url, size_t size);

/* The index of the node that this sentinel names. */
int sentinels_named(const struct sentinels *sentinels, int watcher);
/* Orders the first sentinel to promote a replica, whether the master lives or not. watchers: bits
 * of the sentinels that run. Returns the new master's index. */
int sentinels_fail_over(const struct sentinels *sentinels, int former, unsigned watchers);
/* Starts a node that was killed as a replica of that master, and waits until all is as after
 * sentinels_start. */
void sentinels_rejoin(struct sentinels *sentinels, int node, int master);

#endif
