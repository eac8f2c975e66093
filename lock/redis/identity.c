/* SPDX-License-Identifier: Apache-2.0
 *
 * See identity.h. One command both makes the value and reads it: SET with NX and GET (Redis 7). The
 * value is copied to replicas, the epoch of a promoted one is its own.
 * The reply is not bounded: a foreign value of more than 1 MiB costs each such acquire its
 * connection.
 */
#include "identity.h"

#include "client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IDENTITY_KEY "dlock:identity"

/* A value that was never proposed before. So a server that has lost its memory gets another one. */
static void propose(struct dlock_hold *hold)
{
    struct dlock_client *client = hold->lock->client;
    snprintf(hold->identity.text, sizeof hold->identity.text, "%s:%llu", client->id,
             (unsigned long long)atomic_fetch_add(&client->identities, 1) + 1);
}

size_t identity_append(struct redis *redis, struct dlock_hold *hold)
{
    if (!hold->wants_identity)
        return 0;
    propose(hold);
    redis_append(redis, 0, 5,
                 (const char *const[]){"SET", IDENTITY_KEY, hold->identity.text, "NX", "GET"},
                 NULL);
    return 1;
}

/* Appends the epoch, if sentinels have named the server. If it does not fit: unknown. */
static void add_epoch(const struct redis *redis, struct identity *identity)
{
    const size_t used = strlen(identity->text), room = sizeof identity->text - used;
    uint64_t epoch;
    if (used == 0 || redis == NULL || !redis_sentinel_epoch(redis, 0, &epoch))
        return;
    int size = snprintf(identity->text + used, room, "@%" PRIu64, epoch);
    if (size < 0 || (size_t)size >= room)
        identity->text[0] = '\0';
}

/* nil: the proposed value was stored. An error, or a value that is too long: it is unknown. */
static void identity_keep(const struct redis *redis, struct dlock_hold *hold,
                          enum dlock_reply_kind kind, const char *text)
{
    struct identity *identity = &hold->identity;
    const bool fits = kind == DLOCK_REPLY_TEXT && strlen(text) < sizeof identity->text;
    if (kind != DLOCK_REPLY_NIL)
        snprintf(identity->text, sizeof identity->text, "%s", fits ? text : "");
    add_epoch(redis, identity);
}

bool identity_take(const struct redis *redis, struct dlock_hold *hold, const redisReply *reply)
{
    enum dlock_reply_kind kind = reply == NULL                       ? DLOCK_REPLY_NONE
                                 : reply->type == REDIS_REPLY_NIL    ? DLOCK_REPLY_NIL
                                 : reply->type == REDIS_REPLY_STRING ? DLOCK_REPLY_TEXT
                                                                     : DLOCK_REPLY_OTHER;
    identity_keep(redis, hold, kind, kind == DLOCK_REPLY_TEXT ? reply->str : "");
    return reply == NULL || reply->type != REDIS_REPLY_ERROR ||
           strncmp(reply->str, "WRONGTYPE", 9) != 0;
}

dlock_status identity_wrong_type(const char *server)
{
    return fail(DLOCK_WRONG_TYPE,
                "%s: " IDENTITY_KEY " holds no string, so the library did not set it; delete this "
                "key",
                server);
}

dlock_status identity_ask(struct rung_env *env, struct dlock_hold *hold)
{
    struct dlock_batch *reads = env->reads;
    if (!hold->wants_identity)
        return DLOCK_OK;
    propose(hold);
    env->reads = NULL; /* they ride with the acquire */
    struct answer answer = CALL(env, "SET", IDENTITY_KEY, hold->identity.text, "NX", "GET");
    env->reads = reads;
    identity_keep(env->redis, hold, answer.status == DLOCK_UNKNOWN ? DLOCK_REPLY_NONE : answer.kind,
                  answer.text);
    if (answer.status == DLOCK_WRONG_TYPE)
        return identity_wrong_type(redis_server(env->redis, 0));
    bool asked = answer.status == DLOCK_OK || answer.kind == DLOCK_REPLY_ERROR;
    return asked ? DLOCK_OK : answer.status == DLOCK_UNKNOWN ? DLOCK_UNREACHABLE : answer.status;
}
