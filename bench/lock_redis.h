/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocking connections for the replayed libraries and the bench itself, with as little overhead as
 * hiredis allows.
 */
#ifndef BENCH_LOCK_REDIS_H
#define BENCH_LOCK_REDIS_H

#include "lock_round.h"

#include <hiredis/hiredis.h>
#include <pthread.h>

struct wire {
    redisContext *redis;
    size_t owed; /* unread replies; the next command reads them first */
};

/* A reply. If its text is a number, `number` holds it. */
struct said {
    enum said_kind { SAID_ERROR, SAID_NIL, SAID_NUMBER, SAID_TEXT, SAID_LIST } kind;
    long long number;
    char text[128]; /* cut to fit */
};

/* On failure: false, and `text` holds a sentence. */
bool wire_open(struct wire *wire, const struct plan *plan, char *text, size_t size);
void wire_close(struct wire *wire);
/* Sends one command, argv ending in NULL, and reads its reply. */
struct said wire_ask(struct wire *wire, const char *const *argv);
/* Sends one command and does not wait for its reply. */
void wire_tell(struct wire *wire, const char *const *argv);
/* Reads the unread replies. */
void wire_settle(struct wire *wire);

#define ASK(wire, ...) wire_ask(wire, (const char *const[]){__VA_ARGS__, NULL})
#define TELL(wire, ...) wire_tell(wire, (const char *const[]){__VA_ARGS__, NULL})

/* The section of a sale: GET, check, DECR, one round trip for each command. False: no reply. */
bool wire_section(struct wire *wire, struct sale *sale);

/* A fixed number of connections. One thread at a time uses a connection; the others wait for one.
 */
#define POOL_SIZE 64
struct pool {
    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t freed;
    struct wire *idle[POOL_SIZE]; /* the last used one is on top */
    int idle_count;
    struct wire wires[POOL_SIZE];
};

/* Opens all connections at once, so that no waiter pays for it. On failure as wire_open. */
bool pool_open(struct pool *pool, const struct plan *plan, char *text, size_t size);
struct wire *pool_take(struct pool *pool);
void pool_give(struct pool *pool, struct wire *wire);
void pool_settle(struct pool *pool);
void pool_close(struct pool *pool);

#endif
