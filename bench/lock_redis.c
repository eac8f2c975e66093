/* SPDX-License-Identifier: Apache-2.0
 *
 * See lock_redis.h.
 */
#include "lock_redis.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_S 10
#define ARGC_MAX 32

bool wire_open(struct wire *wire, const struct plan *plan, char *text, size_t size)
{
    struct timeval connect = {.tv_sec = CONNECT_S};
    /* A blocking command may last as long as a waiter waits. */
    struct timeval patience = {.tv_sec = plan->wait_ms / 1000 + CONNECT_S};
    wire->owed = 0;
    wire->redis = redisConnectWithTimeout(plan->host, plan->port, connect);
    if (wire->redis != NULL && wire->redis->err == 0 &&
        redisSetTimeout(wire->redis, patience) == REDIS_OK)
        return true;
    snprintf(text, size, "no connection to %s: %s", plan->url,
             wire->redis != NULL ? wire->redis->errstr : "out of memory");
    wire_close(wire);
    return false;
}

void wire_close(struct wire *wire)
{
    if (wire->redis != NULL)
        redisFree(wire->redis);
    wire->redis = NULL;
}

static void append(struct wire *wire, const char *const *argv)
{
    const char *words[ARGC_MAX];
    int argc = 0;
    while (argc < ARGC_MAX && argv[argc] != NULL) {
        words[argc] = argv[argc];
        argc++;
    }
    redisAppendCommandArgv(wire->redis, argc, words, NULL);
}

static redisReply *next_reply(struct wire *wire)
{
    void *reply = NULL;
    return redisGetReply(wire->redis, &reply) == REDIS_OK ? reply : NULL;
}

static struct said understand(const redisReply *reply, const char *error)
{
    struct said said = {.kind = SAID_ERROR};
    const char *text = error;
    if (reply != NULL) {
        text = reply->str != NULL ? reply->str : "";
        switch (reply->type) {
        case REDIS_REPLY_INTEGER:
            said.kind = SAID_NUMBER;
            said.number = reply->integer;
            break;
        case REDIS_REPLY_STRING:
        case REDIS_REPLY_STATUS:
            said.kind = SAID_TEXT;
            said.number = strtoll(text, NULL, 10);
            break;
        case REDIS_REPLY_NIL:
            said.kind = SAID_NIL;
            break;
        case REDIS_REPLY_ARRAY:
            said.kind = SAID_LIST;
            break;
        default:
            break;
        }
    }
    snprintf(said.text, sizeof said.text, "%s", text);
    return said;
}

struct said wire_ask(struct wire *wire, const char *const *argv)
{
    append(wire, argv);
    for (; wire->owed > 0; wire->owed--)
        freeReplyObject(next_reply(wire));
    redisReply *reply = next_reply(wire);
    struct said said = understand(reply, wire->redis->errstr);
    freeReplyObject(reply);
    return said;
}

void wire_tell(struct wire *wire, const char *const *argv)
{
    int sent = 0;
    append(wire, argv);
    while (sent == 0 && redisBufferWrite(wire->redis, &sent) == REDIS_OK)
        ;
    wire->owed++;
}

void wire_settle(struct wire *wire)
{
    for (; wire->owed > 0; wire->owed--)
        freeReplyObject(next_reply(wire));
}

bool wire_section(struct wire *wire, struct sale *sale)
{
    struct said stock = ASK(wire, "GET", STOCK_KEY);
    if (stock.kind != SAID_TEXT)
        return false;
    if (stock.number <= 0) {
        sale->outcome = OUTCOME_SOLD_OUT;
        return true;
    }
    struct said left = ASK(wire, "DECR", STOCK_KEY);
    if (left.kind != SAID_NUMBER)
        return false;
    sale->outcome = OUTCOME_SOLD;
    sale->overlapped = left.number != stock.number - 1;
    return true;
}

bool pool_open(struct pool *pool, const struct plan *plan, char *text, size_t size)
{
    memset(pool, 0, sizeof *pool);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->freed, NULL);
    for (int i = 0; i < POOL_SIZE; i++) {
        if (!wire_open(&pool->wires[i], plan, text, size)) {
            pool_close(pool);
            return false;
        }
        pool->idle[pool->idle_count++] = &pool->wires[i];
    }
    return true;
}

/* This wait ends: each connection returns to the pool within the time limit of its reply. */
struct wire *pool_take(struct pool *pool)
{
    pthread_mutex_lock(&pool->mutex);
    while (pool->idle_count == 0)
        pthread_cond_wait(&pool->freed, &pool->mutex);
    struct wire *wire = pool->idle[--pool->idle_count];
    pthread_mutex_unlock(&pool->mutex);
    return wire;
}

void pool_give(struct pool *pool, struct wire *wire)
{
    pthread_mutex_lock(&pool->mutex);
    pool->idle[pool->idle_count++] = wire;
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_signal(&pool->freed);
}

void pool_settle(struct pool *pool)
{
    for (int i = 0; i < POOL_SIZE; i++)
        wire_settle(&pool->wires[i]);
}

void pool_close(struct pool *pool)
{
    for (int i = 0; i < POOL_SIZE; i++)
        wire_close(&pool->wires[i]);
    pthread_cond_destroy(&pool->freed);
    pthread_mutex_destroy(&pool->mutex);
}
