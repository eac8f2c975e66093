/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that looks at a key on several servers all the time: it never lives longer than was
 * asked for.
 */
#ifndef TORTURE_KEY_WATCH_H
#define TORTURE_KEY_WATCH_H

#include "world.h"

#include "server.h"

#define WATCHED_MAX SERVERS_MOST

struct key_watch;
/* A time to live above most_ms, or none, is a violation. Forks. */
struct key_watch *key_watch_start(struct world *world, struct server *const *servers, int count,
                                  const char *key, int64_t most_ms);
/* Ends it. Returns how often it found the key. */
long key_watch_end(struct key_watch *watch);

#endif
