/* SPDX-License-Identifier: Apache-2.0
 *
 * See set_token.h. Two tokens of one identity were each accepted by a majority, so one server has
 * accepted both. It gets an identity only once. So it has kept its memory in between, and has
 * accepted the second token only above the first.
 */
#include "set_token.h"

#include "client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDENTITY_KEY "dlock:identity:set" /* `dlock:identity` is that of one server */
#define TOKEN_MS "86400000"               /* else each name would leave a key for ever */
#define PROPOSALS_MAX 2
#define FOREIGN_NUMBER 1000000000000000 /* of more digits than redlock_identity.lua accepts */

static void raise_token(struct set_told *told, long long least)
{
    if (least > 0 && (uint64_t)least > told->token)
        told->token = (uint64_t)least;
}

/* ---- The first round, with the acquire ------------------------------------------------------- */

/* An identity that is too long, or has a zero byte, is not one of the library's. */
static bool note_told(void *arg, size_t server, const struct answer *answer)
{
    struct set_told *told = arg;
    const redisReply *reply = answer->reply;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER ||
        reply->element[2]->type != REDIS_REPLY_STRING)
        return false;
    struct identity *identity = &told->by[server];
    const size_t size = reply->element[2]->len;
    if (size < sizeof identity->text && strlen(reply->element[2]->str) == size)
        strcpy(identity->text, reply->element[2]->str);
    raise_token(told, reply->element[1]->integer);
    return reply->element[0]->integer == 1;
}

struct votes set_token_ask(struct rung_env *env, const struct dlock_hold *hold,
                           struct set_told *told)
{
    const struct question question = {
        .is_yes = note_told, .needs_most = true, .hears = hold->quorum, .follows = UINT32_MAX};
    const char *const argv[] = {"3",       hold->key, hold->beside[0], IDENTITY_KEY, hold->id,
                                hold->ttl, NULL};
    return rung_poll(env, &lua_redlock_acquire, argv, &question, told);
}

/* ---- The identity ---------------------------------------------------------------------------- */

/* NULL: no majority of all servers told the same one. */
static const struct identity *told_by_most(const struct set_told *told, size_t servers)
{
    for (size_t i = 0; i < servers; i++) {
        size_t same = 0;
        for (size_t j = 0; j < servers; j++)
            same += strcmp(told->by[i].text, told->by[j].text) == 0;
        if (told->by[i].text[0] != '\0' && same > servers / 2)
            return &told->by[i];
    }
    return NULL;
}

static bool is_answer(void *arg, size_t server, const struct answer *answer)
{
    (void)arg;
    (void)server;
    return answer->kind == DLOCK_REPLY_INTEGER;
}

/* Proposes a new identity, larger than all that were told. No other proposal has this text, and
 * each server is sent it once: a server that loses its memory after that never has it again. */
static void make_identity(struct rung_env *env, const struct dlock_hold *hold,
                          const struct set_told *told)
{
    static const struct question question = {.is_yes = is_answer};
    struct dlock_client *client = hold->lock->client;
    struct identity new;
    uint64_t number = 0;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        uint64_t its = strtoull(told->by[i].text, NULL, 10);
        number = its > number && its < FOREIGN_NUMBER ? its : number;
    }
    snprintf(new.text, sizeof new.text, "%" PRIu64 ":%s:%llu", number + 1, client->id,
             (unsigned long long)atomic_fetch_add(&client->identities, 1) + 1);
    const char *const argv[] = {"1", IDENTITY_KEY, new.text, NULL};
    rung_poll(env, &lua_redlock_identity, argv, &question, NULL);
}

/* ---- The second round ------------------------------------------------------------------------ */

/* A refusal says above which tokens the server is by now. */
static bool note_accepted(void *arg, size_t server, const struct answer *answer)
{
    (void)server;
    if (answer->kind != DLOCK_REPLY_INTEGER)
        return false;
    if (answer->integer > 1)
        raise_token(arg, answer->integer);
    return answer->integer == 1;
}

static struct votes propose(struct rung_env *env, const struct dlock_hold *hold, uint64_t token,
                            const struct identity *identity, struct set_told *told)
{
    static const struct question question = {.is_yes = note_accepted, .needs_most = true};
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, token);
    const char *const argv[] = {"2", hold->beside[0], IDENTITY_KEY, text, identity->text, TOKEN_MS,
                                NULL};
    return rung_poll(env, &lua_redlock_token, argv, &question, told);
}

dlock_status set_token_draw(struct rung_env *env, struct dlock_hold *hold, struct set_told *told)
{
    struct votes votes = {0};
    const struct identity *identity = told_by_most(told, redis_nodes(env->redis));
    if (identity == NULL) {
        make_identity(env, hold, told);
        return fail(DLOCK_REFUSED,
                    "'%s' was granted without a token: no majority of its servers has the same "
                    "identity, and a new one was proposed to them; try again",
                    hold->key);
    }
    for (int i = 0; i < PROPOSALS_MAX; i++) {
        const uint64_t token = told->token;
        votes = propose(env, hold, token, identity, told);
        if (votes.yes >= votes.needed) {
            hold->token = token;
            hold->identity = *identity;
            return DLOCK_OK;
        }
        raise_token(told, (long long)token + 1); /* some may have accepted it */
    }
    return fail(DLOCK_REFUSED, "%zu of %zu servers accepted its token, and %zu are needed (%s)",
                votes.yes, votes.servers, votes.needed, votes.answers);
}
