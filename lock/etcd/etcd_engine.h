/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine for etcd, and its rung.
 */
#ifndef DLOCK_ETCD_ENGINE_H
#define DLOCK_ETCD_ENGINE_H

#include "engine.h"

/* etcd://host:port[,host:port...] */
extern const struct dlock_engine engine_etcd;

/* A queue of keys under /dlock/locks/<name>, all with their client's lease: the owner of the one
 * with the lowest create revision holds the lock. */
extern const struct rung_ops rung_etcd;

/* The client's lease; 0: it has none. */
uint64_t etcd_lease(struct dlock_client *client);

#endif
