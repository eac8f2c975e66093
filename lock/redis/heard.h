/* SPDX-License-Identifier: Apache-2.0
 *
 * What servers say about a hold's key after the round that asked them has ended. An answer is noted
 * when somebody reads it, on whatever thread. It does not count if the server was asked anew since:
 * the key may have been lost and set again.
 */
#ifndef DLOCK_HEARD_H
#define DLOCK_HEARD_H

#include "redis.h"
#include "rung.h"

enum heard {
    HEARD_KEY = 1,     /* the server has had this hold's key */
    HEARD_NONE = 2,    /* it has had none */
    HEARD_OVER = 4,    /* a request that sets the key is not on its way to it any more */
    HEARD_REFUSED = 8, /* it has answered an error, or that another key is there */
};
enum asks {
    ASKS_KEY,  /* OK or 1: it has the key; 0: it has none */
    ASKS_LAST, /* the same, and no other request that sets the key can come after it */
    ASKS_KILL, /* CLIENT KILL, for the connection of such a request */
};

/* From which servers it was heard, a bit each. */
uint32_t heard_from(const struct quorum_hold *quorum, enum heard what);
/* They have just said that they have the key. */
void heard_key(struct quorum_hold *quorum, uint32_t servers);
/* Forgets what was heard from them. What they were asked before this does not count. */
void heard_anew(struct quorum_hold *quorum, uint32_t servers);
/* One answer that may come late. It keeps `quorum` alive. hearing_end notes what the answer says;
 * NULL: nothing. */
struct hearing {
    struct quorum_hold *quorum;
    size_t server;
    enum asks asks;
    uint32_t number; /* of the request: see heard.c */
};
void hearing_begin(struct hearing *hearing, struct quorum_hold *quorum, enum asks asks,
                   size_t server);
void hearing_end(const struct hearing *hearing, const struct redis *redis, const redisReply *reply);

/* The answer of that server was left behind: see redis_await_late. Without memory nothing is
 * heard. */
void heard_await(struct quorum_hold *quorum, enum asks asks, struct redis *redis, size_t server,
                 size_t after);

#endif
