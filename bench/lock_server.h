/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis of a round, from the outside: made ready, its counters read, swept.
 */
#ifndef BENCH_LOCK_SERVER_H
#define BENCH_LOCK_SERVER_H

#include "lock_redis.h"

/* Since some moment; this connection's own are in none but cpu_us. */
struct counters {
    int64_t commands; /* those inside scripts too; INFO, CLIENT and their like left out */
    int64_t reads;    /* pieces of input that the server read from its clients: round trips */
    int64_t cpu_us;
};

struct server {
    struct wire wire;
    const struct plan *plan;
    int64_t asked; /* INFO, so often */
};

/* What the round left in Redis. */
struct remains {
    int64_t stock;
    bool locked; /* the lock's key is there */
};

/* Connects and sets the stock. Refuses a server that holds any key: it is swept at the end.
 * False: the sentence is in `text`. */
bool server_open(struct server *server, const struct plan *plan, char *text, size_t size);
/* False: the server did not answer. */
bool server_counters(struct server *server, struct counters *counters);
int server_clients(struct server *server); /* connected, this one left out; -1: it did not answer */
bool server_remains(struct server *server, struct remains *remains);
void server_close(struct server *server); /* and empties the database */

#endif
