/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis server of a round: prepares it, reads its counters, and empties it.
 */
#ifndef BENCH_LOCK_SERVER_H
#define BENCH_LOCK_SERVER_H

#include "lock_redis.h"

/* Counters of the server. The bench's own connection counts only in cpu_us. */
struct counters {
    int64_t commands; /* also those inside scripts; without INFO, CLIENT and their like */
    int64_t reads;    /* reads of client input by the server: round trips */
    int64_t cpu_us;
};

struct server {
    struct wire wire;
    const struct plan *plan;
    int64_t asked; /* how often INFO was sent */
};

/* What the round left in Redis. */
struct remains {
    int64_t stock;
    bool locked; /* the lock's key exists */
};

/* Connects and sets the stock. It rejects a server that holds any key, because server_close()
 * empties the database. On failure: false, and `text` holds a sentence. */
bool server_open(struct server *server, const struct plan *plan, char *text, size_t size);
/* False if the server did not answer. */
bool server_counters(struct server *server, struct counters *counters);
/* Connected clients, without this one; -1 if the server did not answer. */
int server_clients(struct server *server);
bool server_remains(struct server *server, struct remains *remains);
void server_close(struct server *server); /* also empties the database */

#endif
