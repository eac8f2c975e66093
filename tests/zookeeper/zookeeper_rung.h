/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung that works with ZooKeeper, for what knows the library's public header alone.
 */
#ifndef TESTS_ZOOKEEPER_RUNG_H
#define TESTS_ZOOKEEPER_RUNG_H

#include "dlock.h"

/* Adds the engine, once, before a client is opened; what is known of its rung. */
const struct dlock_rung *zookeeper_rung(void);
dlock_status zookeeper_open(dlock_client *client, const char *name, dlock **lock);

#endif
