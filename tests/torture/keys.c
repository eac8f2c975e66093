/* SPDX-License-Identifier: Apache-2.0
 *
 * See keys.h.
 */
#include "keys.h"

#include "contract.h"
#include "must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {CONFUSABLE_NAMES};
#define NAME_COUNT (sizeof names / sizeof names[0])

#pragma GCC diagnostic ignored "-Wformat-nonliteral"
static void name_of(char *name, size_t size, size_t index, const char *lock)
{
    snprintf(name, size, names[index], lock);
}

/* Creates a list, a string, a hash, a sorted set or a set. */
static void plant(struct server *server, const char *name, size_t kind)
{
    static const char *const commands[] = {"RPUSH %s a b c", "SET %s 7", "HSET %s field value",
                                           "ZADD %s 1 member", "SADD %s member"};
    server_ask(server, "DEL %s", name);
    server_ask(server, commands[kind % 5], name);
}

/* Whether all keys are allowed. Flawed rungs may use any key. TORTURE_KEYS=any allows it for all
 * rungs, to look for other faults in an older library, in which every rung did so. */
static bool any_keys(const struct plan *plan)
{
    const char *keys = getenv("TORTURE_KEYS");
    return plan->rung->flawed || (keys != NULL && strcmp(keys, "any") == 0);
}

void keys_allow(struct server *server, const char *rules)
{
    char command[1024];
    for (int i = 0; i < PROCESSES_MAX; i++) {
        snprintf(command, sizeof command, "ACL SETUSER " KEYS_USER "%d %s", i, rules);
        must(server_ask(server, command)->type == REDIS_REPLY_STATUS);
    }
}

void keys_users(const struct plan *plan, struct server *server)
{
    static const char *const ours[] = {CONTRACT_KEYS};
    char command[960];
    int used = snprintf(command, sizeof command, "reset on >" KEYS_PASSWORD " +@all allchannels");
    for (size_t i = 0; i < sizeof ours / sizeof ours[0] && !any_keys(plan); i++)
        used += snprintf(command + used, sizeof command - (size_t)used, " ~%s", ours[i]);
    for (int i = 0; i < plan->locks && !any_keys(plan); i++)
        used += snprintf(command + used, sizeof command - (size_t)used, " ~%s", plan->names[i]);
    if (any_keys(plan))
        snprintf(command + used, sizeof command - (size_t)used, " allkeys");
    keys_allow(server, command);
}

void keys_prepare(const struct plan *plan, struct server *server)
{
    char name[80];
    keys_users(plan, server);
    for (int i = 0; i < plan->locks && !any_keys(plan); i++)
        for (size_t j = 0; j < NAME_COUNT; j++) {
            name_of(name, sizeof name, j, plan->names[i]);
            plant(server, name, j + plan->seed);
        }
}

static bool planted(const struct plan *plan, const char *key)
{
    char name[80];
    for (int i = 0; i < plan->locks && !any_keys(plan); i++)
        for (size_t j = 0; j < NAME_COUNT; j++) {
            name_of(name, sizeof name, j, plan->names[i]);
            if (strcmp(name, key) == 0)
                return true;
        }
    return false;
}

/* Compares the dump of each planted key with that of a fresh copy. */
static void judge_planted(const struct plan *plan, struct server *server, struct world *world)
{
    char name[80];
    for (int i = 0; i < plan->locks && !any_keys(plan); i++)
        for (size_t j = 0; j < NAME_COUNT; j++) {
            name_of(name, sizeof name, j, plan->names[i]);
            plant(server, "app:copy", j + plan->seed);
            const redisReply *reply = server_ask(server, "DUMP app:copy");
            char copy[256];
            size_t size = reply->len < sizeof copy ? reply->len : sizeof copy;
            memcpy(copy, reply->str, size);
            reply = server_ask(server, "DUMP %s", name);
            if (reply->type != REDIS_REPLY_STRING || reply->len != size ||
                memcmp(copy, reply->str, size) != 0)
                violation(world, VIOLATION_KEY, "the application's key %s was changed", name);
            if (server_integer(server, "PTTL %s", name) != -1)
                violation(world, VIOLATION_KEY, "the application's key %s was given an expiry",
                          name);
        }
}

void keys_judge_refused(struct server *server, struct world *world)
{
    const redisReply *log = server_ask(server, "ACL LOG 128");
    for (size_t i = 0; i < log->elements; i++) {
        const char *reason = "", *object = "";
        for (size_t j = 0; j + 1 < log->element[i]->elements; j += 2) {
            const char *field = log->element[i]->element[j]->str;
            const char *value = log->element[i]->element[j + 1]->str;
            if (strcmp(field, "reason") == 0)
                reason = value;
            else if (strcmp(field, "object") == 0)
                object = value;
        }
        if (strcmp(reason, "key") == 0)
            violation(world, VIOLATION_KEY, "the key %s was asked for, which is not the library's",
                      object);
    }
}

/* A key of `redlock` is of one hold, apart from those of its tokens. Other rungs have keys that
 * outlive it. */
static void judge_lives(const struct plan *plan, struct server *server, struct world *world)
{
    char key[256];
    int64_t most_ms = is_on_several(plan) && !plan->asks_tokens ? plan_ttl_ms_max(plan) : DAY_MS;
    for (size_t i = 0;; i++) { /* there are few keys, so KEYS may be sent each time */
        const redisReply *keys = server_ask(server, "KEYS *");
        if (i >= keys->elements)
            return;
        snprintf(key, sizeof key, "%s", keys->element[i]->str);
        bool stays = plan->asks_tokens && strcmp(key, "dlock:identity:set") == 0;
        if (planted(plan, key) || strncmp(key, "app:", 4) == 0 || stays)
            continue;
        long long left_ms = server_integer(server, "PTTL %s", key);
        if (left_ms == -1 || left_ms > most_ms)
            violation(world, VIOLATION_KEY, "the key %s is left with a time to live of %lld ms",
                      key, left_ms);
    }
}

void keys_judge(const struct plan *plan, struct server *server, struct world *world)
{
    judge_planted(plan, server, world);
    if (plan->rung->expires)
        judge_lives(plan, server, world);
}
