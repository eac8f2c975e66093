/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine for ZooKeeper, and its rung.
 */
#ifndef DLOCK_ZOOKEEPER_ENGINE_H
#define DLOCK_ZOOKEEPER_ENGINE_H

#include "engine.h"

#define THREADED
#include <zookeeper/zookeeper.h>

/* zk://host:port[,host:port...] */
extern const struct dlock_engine engine_zookeeper;

/* A queue of ephemeral sequential nodes under /dlock/<name>: the owner of the first one holds the
 * lock. */
extern const struct rung_ops rung_zookeeper;

/* The client's session, with which another handle can end it. */
clientid_t zookeeper_session(struct dlock_client *client);

#endif
