/* SPDX-License-Identifier: Apache-2.0
 *
 * The connections that the replayed libraries and the bench itself speak over: blocking, as lean as
 * hiredis allows.
 */
#ifndef BENCH_LOCK_REDIS_H
#define BENCH_LOCK_REDIS_H

#include "lock_round.h"

#include <hiredis/hiredis.h>
#include <pthread.h>

struct wire {
    redisContext *redis;
    size_t owed; /* replies that nobody waits for; the next to ask reads past them */
};

/* What was said: a text that is a number has it in `number`. */
struct said {
    enum said_kind { SAID_ERROR, SAID_NIL, SAID_NUMBER, SAID_TEXT, SAID_LIST } kind;
    long long number;
    char text[128]; /* cut to fit */
};

/* False: the sentence is in `text`. */
bool wire_open(struct wire *wire, const struct plan *plan, char *text, size_t size);
void wire_close(struct wire *wire);
/* One command, argv ending in NULL, and its reply. */
struct said wire_ask(struct wire *wire, const char *const *argv);
/* One command whose reply nobody waits for. */
void wire_tell(struct wire *wire, const char *const *argv);
/* Reads what is owed. */
void wire_settle(struct wire *wire);

#define ASK(wire, ...) wire_ask(wire, (const char *const[]){__VA_ARGS__, NULL})
#define TELL(wire, ...) wire_tell(wire, (const char *const[]){__VA_ARGS__, NULL})

/* The GET, the look and the DECR of a sale, each its own round trip. False: no answer. */
bool wire_section(struct wire *wire, struct sale *sale);

/* A fixed number of connections, one thread each at a time; who finds none waits. */
#define POOL_SIZE 64
struct pool {
    pthread_mutex_t mutex; /* protects what follows */
    pthread_cond_t freed;
    struct wire *idle[POOL_SIZE]; /* the one used last is on top */
    int idle_count;
    struct wire wires[POOL_SIZE];
};

/* All are connected at once, so that no waiter pays for it. False: as wire_open. */
bool pool_open(struct pool *pool, const struct plan *plan, char *text, size_t size);
struct wire *pool_take(struct pool *pool);
void pool_give(struct pool *pool, struct wire *wire);
void pool_settle(struct pool *pool);
void pool_close(struct pool *pool);

#endif
