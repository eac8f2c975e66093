/* SPDX-License-Identifier: Apache-2.0
 *
 * The identity of the lock's server, see dlock_identity(): a random value in the server's memory,
 * and over Sentinel also the epoch in which the sentinels had named this connection's server. It is
 * asked for just before an acquire, so it is never newer than the grant that follows.
 */
#ifndef DLOCK_REDIS_IDENTITY_H
#define DLOCK_REDIS_IDENTITY_H

#include "redis_rung.h"

/* Appends the question to the write of the hold's acquire. Returns how many replies it has: 0, if
 * the hold does not want the identity. */
size_t identity_append(struct redis *redis, struct dlock_hold *hold);
/* Takes its reply; NULL: there is none. redis: the connection that it came on. False: the key holds
 * another type than a string. */
bool identity_take(const struct redis *redis, struct dlock_hold *hold, const redisReply *reply);
/* Always WRONG_TYPE, with a sentence that names the key. */
dlock_status identity_wrong_type(const char *server);
/* Asks in a write of its own, for a rung that sends its acquire itself. OK, or why the server was
 * not asked, or identity_wrong_type(). */
dlock_status identity_ask(struct rung_env *env, struct dlock_hold *hold);

#endif
