/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine for ZooKeeper, and the one rung that works with it. For tests: it shows that the
 * library's core needs no Redis. See docs/design/engine.md.
 */
#ifndef TESTS_ZOOKEEPER_ENGINE_H
#define TESTS_ZOOKEEPER_ENGINE_H

#include "engine.h"

#define THREADED
#include <zookeeper/zookeeper.h>

/* zookeeper://host:port[,host:port...] */
extern const struct engine engine_zookeeper;

/* A queue of ephemeral sequential nodes under /dlock/<name>: the owner of the first one holds the
 * lock. */
extern const struct rung_ops rung_ephemeral;

/* The client's session, with which another handle can end it. */
clientid_t zookeeper_session(struct dlock_client *client);

#endif
