/* SPDX-License-Identifier: Apache-2.0
 *
 * See heard.h. A server's word is a number, which each heard_anew raises, and below it what was
 * heard. A late answer knows the number of its request, and changes only a word that still has it.
 */
#include "heard.h"

#include <stdlib.h>
#include <string.h>

#define NUMBER_SHIFT 4

struct awaited {
    struct late_reply late; /* first */
    struct redis *redis;
    struct hearing hearing;
};

static void note(struct quorum_hold *quorum, size_t server, uint32_t number, uint32_t what)
{
    _Atomic uint32_t *word = &quorum->heard[server];
    uint32_t old = atomic_load(word);
    while (old >> NUMBER_SHIFT == number && !atomic_compare_exchange_weak(word, &old, old | what))
        ;
}

uint32_t heard_from(const struct quorum_hold *quorum, enum heard what)
{
    uint32_t servers = 0;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if ((atomic_load(&quorum->heard[i]) & what) != 0)
            servers |= UINT32_C(1) << i;
    return servers;
}

void heard_key(struct quorum_hold *quorum, uint32_t servers)
{
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if ((servers >> i & 1) != 0)
            atomic_fetch_or(&quorum->heard[i], HEARD_KEY);
}

void heard_anew(struct quorum_hold *quorum, uint32_t servers)
{
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if ((servers >> i & 1) != 0)
            atomic_store(&quorum->heard[i], ((atomic_load(&quorum->heard[i]) >> NUMBER_SHIFT) + 1)
                                                << NUMBER_SHIFT);
}

static uint32_t says(const struct hearing *hearing, const struct redis *redis,
                     const redisReply *reply)
{
    if (reply == NULL)
        return 0;
    if (hearing->asks == ASKS_KILL)
        return redis_kill_says(redis, hearing->server, reply) == KILL_DONE ? HEARD_OVER : 0;
    uint32_t over = hearing->asks == ASKS_LAST ? HEARD_OVER : 0;
    if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0) /* see redlock_acquire.lua */
        reply = reply->element[0];
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer == 0)
        return over | HEARD_NONE;
    if ((reply->type == REDIS_REPLY_INTEGER && reply->integer == 1) ||
        (reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0))
        return over | HEARD_KEY;
    return over | HEARD_REFUSED;
}

void hearing_begin(struct hearing *hearing, struct quorum_hold *quorum, enum asks asks,
                   size_t server)
{
    atomic_fetch_add(&quorum->users, 1);
    *hearing = (struct hearing){.quorum = quorum,
                                .server = server,
                                .asks = asks,
                                .number = atomic_load(&quorum->heard[server]) >> NUMBER_SHIFT};
}

void hearing_end(const struct hearing *hearing, const struct redis *redis, const redisReply *reply)
{
    note(hearing->quorum, hearing->server, hearing->number, says(hearing, redis, reply));
    quorum_drop(hearing->quorum);
}

static void came(struct late_reply *late, const redisReply *reply)
{
    struct awaited *awaited = (struct awaited *)late;
    hearing_end(&awaited->hearing, awaited->redis, reply);
    free(awaited);
}

void heard_await(struct quorum_hold *quorum, enum asks asks, struct redis *redis, size_t server,
                 size_t after)
{
    struct awaited *awaited = malloc(sizeof *awaited);
    if (awaited == NULL)
        return;
    *awaited = (struct awaited){.late = {.came = came}, .redis = redis};
    hearing_begin(&awaited->hearing, quorum, asks, server);
    redis_await_late(redis, server, &awaited->late, after);
}
