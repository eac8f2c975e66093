/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds under way: renewals that each ask all of several servers. Many go in one write to each
 * server, and each is decided by its own votes. None waits for another, nor for a server that its
 * decision does not need. A thread at a time uses them, with the connection.
 */
#ifndef DLOCK_REDIS_ROUNDS_H
#define DLOCK_REDIS_ROUNDS_H

#include "redis_rung.h"
#include "renewals.h"

#define ROUNDS_MAX RENEWALS_UNDER_WAY_MAX
#define SAYS_MAX 64

struct round;

struct rounds {
    TAILQ_HEAD(round_list, round) under_way; /* not decided */
    struct round_list over;                  /* decided, or too late; they wait for rounds_end */
    size_t count;                            /* of both */
    /* By server: the error that says it is not a master any more; "": none. */
    char demoted[SERVERS_MAX][SAYS_MAX];
};

void rounds_init(struct rounds *rounds);
/* Forgets those under way. Their late answers are heard, as long as the connection lasts. */
void rounds_free(struct rounds *rounds);

/* Begins a round on env->redis, which stays its connection. It is sent in rounds_wait. There are
 * fewer than ROUNDS_MAX. NULL: out of memory. */
struct renewal *rounds_begin(struct rounds *rounds, const struct rung_env *env,
                             struct dlock_hold *hold, int64_t ttl_ms);
/* Sends what was begun, in one write to each server, and reads answers: until a round is over, or
 * wake_fd is readable. A round is over when it is decided, when no answer can come any more, or at
 * its deadline or after command_timeout_ms. */
void rounds_wait(struct rounds *rounds, struct redis *redis, int wake_fd);
/* Those under way are over by then, at the latest. */
void rounds_limit(struct rounds *rounds, int64_t until_ns);
/* One that is over; NULL: there is none. */
struct renewal *rounds_over(const struct rounds *rounds);
/* Ends that one, and frees it. Missing answers are left behind, see heard.h. Returns what the
 * rung's end_renew says. hold NULL: the hold has ended meanwhile. */
dlock_status rounds_end(struct rounds *rounds, struct renewal *renewal, struct dlock_hold *hold);

#endif
