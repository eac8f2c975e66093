/* SPDX-License-Identifier: Apache-2.0
 *
 * read_write -- readers together, writers alone, in turns.
 * ADDS   a time to live for each reader; readers and writers take turns
 * FLAW   no order among writers; while a process is frozen, it cannot notice that it lost the lock
 * SHOW   scripts/rung break read_write
 * CURE   fenced
 * NEXT   fenced
 * COST   2 round trips, and one every TTL/3
 */
#include "redis_rung.h"

#include <string.h>

#define AGAIN_MS_MAX 5000 /* ASK_AGAIN_MS in the script */

enum { HOLDS, READERS, WRITERS, INVITED, TOKEN, FREE }; /* indices in rung_ops.beside */

static void say(struct request *request, const struct dlock_hold *hold, const char *what,
                const char *ttl)
{
    const char *const *beside = hold->beside;
    SEND(request, &lua_read_write, "7", hold->key, beside[HOLDS], beside[READERS], beside[WRITERS],
         beside[INVITED], beside[TOKEN], beside[FREE], what, hold->owner,
         request_text(request, "%c%llu", hold->mode == DLOCK_SHARED ? 'r' : 'w',
                      (unsigned long long)hold->acquisition),
         ttl, hold->depth == 1 ? "alone" : "nested",
         request_text(request, "%lld", (long long)rung_grant_ms(hold)));
}

static void send_acquire(struct request *request, const struct dlock_hold *hold)
{
    say(request, hold, "acquire", hold->ttl);
}

static dlock_status take_acquire(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy)
{
    if (answer->kind == DLOCK_REPLY_NIL)
        return fail(DLOCK_UPGRADE,
                    "'%.64s': %s holds the read lock and asks for the write lock, so it would "
                    "wait for itself; release first, or begin with the write lock",
                    hold->key, hold->owner);
    busy->no_publish = are_integers(answer, 1);
    if (answer->kind != DLOCK_REPLY_INTEGER && !busy->no_publish)
        return DLOCK_UNKNOWN;
    if (answer->integer > 0) {
        hold->token = (uint64_t)answer->integer;
        return DLOCK_OK;
    }
    int64_t again_ms = busy->no_publish ? answer->reply->element[0]->integer
                                        : -max_ns(answer->integer, -AGAIN_MS_MAX);
    busy->kind = WAIT_CHANNEL;
    busy->again_ms = again_ms <= AGAIN_MS_MAX ? again_ms : AGAIN_MS_MAX;
    strcpy(busy->source, hold->beside[FREE]);
    return DLOCK_BUSY;
}

static void send_release(struct request *request, const struct dlock_hold *hold)
{
    say(request, hold, "release", hold->ttl);
}

static dlock_status take_release(struct dlock_hold *hold, const struct answer *answer)
{
    (void)hold;
    if (answer->kind != DLOCK_REPLY_INTEGER)
        return DLOCK_UNKNOWN;
    return answer->integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static void send_renew(struct request *request, const struct dlock_hold *hold, const char *ttl)
{
    say(request, hold, "renew", ttl);
}

static dlock_status take_renew(struct dlock_hold *hold, const struct answer *answer)
{
    (void)hold;
    if (answer->kind != DLOCK_REPLY_INTEGER)
        return DLOCK_UNKNOWN;
    return answer->integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static void send_give_up(struct request *request, const struct dlock_hold *hold)
{
    say(request, hold, "give_up", hold->ttl);
}

/* The operator is not an owner: its name is empty. */
static struct answer force_release(struct rung_env *env, const char *key, const char *const *beside)
{
    return EVAL(env, &lua_read_write, "7", key, beside[HOLDS], beside[READERS], beside[WRITERS],
                beside[INVITED], beside[TOKEN], beside[FREE], "break", "", "", "", "", "0");
}

const struct rung_ops rung_read_write = {
    .name = "read_write",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_TOKEN | TRAIT_SHARED,
    .beside = {{"holds", "hash"},
               {"readers", "zset"},
               {"writers", "zset"},
               {"invited", "zset"},
               {"token", "string"},
               {"free", "channel"}},
    .send_acquire = send_acquire,
    .take_acquire = take_acquire,
    .send_release = send_release,
    .take_release = take_release,
    .send_renew = send_renew,
    .take_renew = take_renew,
    .send_give_up = send_give_up,
    .force_release = force_release,
};
