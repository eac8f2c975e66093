/* SPDX-License-Identifier: Apache-2.0
 *
 * See acks.h.
 */
#include "acks.h"

#include "clock.h"

#include <stdio.h>

/* An even number of servers has no middle: of 4 servers 3 are a majority, the master and 2. */
static size_t acks_of(enum dlock_replicas_ack rule, size_t replicas)
{
    size_t needed = rule == DLOCK_REPLICAS_MAJORITY ? (1 + replicas) / 2
                    : rule == DLOCK_REPLICAS_ALL    ? replicas
                                                    : 1;
    return needed > 0 ? needed : 1; /* no replica is known: nothing can be confirmed */
}

size_t acks_needed(const struct redis *redis)
{
    const struct redis_config *config = redis_config_of(redis);
    if (config->replicas_ack == DLOCK_REPLICAS_NONE)
        return 0;
    return acks_of(config->replicas_ack, server_replicas(&config->servers[0]));
}

/* WAIT's time-out. 0 would mean for ever. */
static int64_t acks_wait_ms(const struct redis *redis, int64_t ends_ns, int64_t valid_ms)
{
    int64_t most_ms = redis_config_of(redis)->command_timeout_ms;
    int64_t left_ms = ends_ns == INT64_MAX ? most_ms : (ends_ns - mono_ns()) / NS_PER_MS;
    int64_t half_ms = min_ns(min_ns(left_ms, most_ms), valid_ms) / 2;
    return half_ms > 0 ? half_ms : 1;
}

void acks_append(struct acks *acks, struct redis *redis, size_t index, int64_t ends_ns,
                 int64_t valid_ms)
{
    char needed[24], wait_ms[24];
    *acks = (struct acks){.asked = acks_needed(redis) > 0, .index = index};
    if (!acks->asked)
        return;
    snprintf(needed, sizeof needed, "%zu", acks_needed(redis));
    snprintf(wait_ms, sizeof wait_ms, "%lld", (long long)acks_wait_ms(redis, ends_ns, valid_ms));
    redis_append_wait(redis, 0, needed, wait_ms);
}

void acks_take(struct acks *acks, const struct redis *redis)
{
    if (!acks->asked)
        return;
    const redisReply *reply = redis_reply(redis, 0, acks->index);
    const char *url = redis_server(redis, 0);
    size_t needed = acks_needed(redis);
    size_t replicas = server_replicas(&redis_config_of(redis)->servers[0]);
    acks->status = DLOCK_REFUSED;
    acks->transient = true;
    if (reply == NULL) {
        snprintf(acks->why, sizeof acks->why,
                 "%s: it is not known how many replicas have the write: WAIT was not answered",
                 url);
    } else if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= (long long)needed) {
        acks->status = DLOCK_OK;
    } else if (reply->type == REDIS_REPLY_INTEGER) {
        snprintf(acks->why, sizeof acks->why,
                 "%s: %lld of %zu replicas confirmed the write in time; %zu must", url,
                 reply->integer, replicas, needed);
    } else {
        acks->transient = reply->type != REDIS_REPLY_ERROR || redis_is_demotion(reply->str);
        snprintf(acks->why, sizeof acks->why,
                 "%s: it is not known how many replicas have the write: WAIT was answered: %s", url,
                 reply->type == REDIS_REPLY_ERROR ? reply->str : "no number");
    }
}
