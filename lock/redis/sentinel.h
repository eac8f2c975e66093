/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out from the sentinels of a sentinel:// URL which server is the master: on a thread of its
 * own, one for each such server of a client. Each sentinel is asked for the configuration epoch
 * (SENTINEL MASTER), the address (SENTINEL GET-MASTER-ADDR-BY-NAME) and the epoch once more, which
 * must be the same. The pair that a majority of
 * the URL's sentinels names is the master, unless its epoch is older than one that was the master
 * before. All of them are asked when a connection is to be made, when one of them reports
 * +switch-master, and every second.
 */
#ifndef DLOCK_SENTINEL_H
#define DLOCK_SENTINEL_H

#include "redis.h"

/* The thread and what it knows. */
struct watch;

/* Starts the thread. It asks no sentinel before the first connection is to be made. The server is
 * of kind SERVER_OF_SENTINEL; its URL is copied. The time limits are those of connections to Redis.
 * NULL: out of memory or threads. */
struct watch *watch_start(struct server *server, const struct redis_config *config,
                          const char *user, const char *password);
/* Ends the thread. Connections that are made from then on find no master. */
void watch_stop(struct watch *watch);
/* NULL is allowed. The thread has been ended. */
void watch_free(struct watch *watch);

#endif
