/* SPDX-License-Identifier: Apache-2.0
 *
 * The token of a lock that a majority of several servers grants, and the identity of this set of
 * servers. See docs/design/redlock.md.
 */
#ifndef DLOCK_REDIS_SET_TOKEN_H
#define DLOCK_REDIS_SET_TOKEN_H

#include "redis_rung.h"

/* What the servers told with their grants. All zero at first. */
struct set_told {
    uint64_t token;                  /* the largest of the numbers that they would accept */
    struct identity by[SERVERS_MAX]; /* by server: the set's identity there; "": none */
};

/* Asks all servers for the lock, and for what its token needs. The votes are on the lock, as of
 * rung_poll. */
struct votes set_token_ask(struct rung_env *env, const struct dlock_hold *hold,
                           struct set_told *told);

/* After a majority has granted the lock: sets hold->token and hold->identity. OK. REFUSED, with a
 * sentence: no token counts, and a later acquire may get one. */
dlock_status set_token_draw(struct rung_env *env, struct dlock_hold *hold, struct set_told *told);

#endif
