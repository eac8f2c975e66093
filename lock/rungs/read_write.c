/* SPDX-License-Identifier: Apache-2.0
 *
 * read_write -- readers together, writers alone, in turns.
 * ADDS   a time for each reader; readers give way to a waiting writer, writers to waiting readers
 * FLAW   no order among writers; a frozen process loses its lock unaware
 * SHOW   scripts/rung break read_write
 * NEXT   fenced
 * COST   2 round trips, and one every TTL/3
 */
#include "../rung.h"

#include <stdio.h>

extern const struct script lua_read_write;

#define AGAIN_MS_MAX 5000        /* as in the script */
#define OPERATORS_TTL_MS "10000" /* a tenth of it is the readers' turn when a lock is broken */

struct keys {
    char holds[DLOCK_NAME_MAX + 16];
    char readers[DLOCK_NAME_MAX + 16]; /* the waiting ones */
    char writers[DLOCK_NAME_MAX + 16];
    char invited[DLOCK_NAME_MAX + 16];
    char token[DLOCK_NAME_MAX + 16];
};

static struct keys keys_of(const char *name)
{
    struct keys keys;
    snprintf(keys.holds, sizeof keys.holds, "%s:holds", name);
    snprintf(keys.readers, sizeof keys.readers, "%s:readers", name);
    snprintf(keys.writers, sizeof keys.writers, "%s:writers", name);
    snprintf(keys.invited, sizeof keys.invited, "%s:invited", name);
    snprintf(keys.token, sizeof keys.token, "%s:token", name);
    return keys;
}

static struct answer run(struct rung_env *env, const struct dlock_hold *hold, const char *what)
{
    struct keys keys = keys_of(hold->key);
    char mark[24]; /* "r7", "w7" */
    snprintf(mark, sizeof mark, "%c%llu", hold->mode == DLOCK_SHARED ? 'r' : 'w',
             (unsigned long long)hold->acquisition);
    return EVAL(env, &lua_read_write, "6", hold->key, keys.holds, keys.readers, keys.writers,
                keys.invited, keys.token, what, hold->owner, mark, hold->ttl,
                hold->depth == 1 ? "first" : "again");
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    struct answer had = run(env, hold, "acquire");
    if (had.status != DLOCK_OK)
        return had.status;
    if (had.kind == DLOCK_REPLY_NIL)
        return fail(DLOCK_UPGRADE, "'%.64s': %s reads and asks to write, so it would wait for "
                                   "itself; it can release first, or begin with the write lock",
                    hold->key, hold->owner);
    if (had.integer <= 0) {
        busy->kind = WAIT_CHANNEL;
        busy->again_ms = had.integer >= -AGAIN_MS_MAX ? -had.integer : AGAIN_MS_MAX;
        snprintf(busy->source, sizeof busy->source, "%s:free", hold->key);
        return DLOCK_BUSY;
    }
    hold->token = (uint64_t)had.integer;
    point(env, "acquired");
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    point(env, "before_release");
    struct answer left = run(env, hold, "release");
    if (left.status != DLOCK_OK)
        return left.status;
    return left.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static dlock_status renew(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer renewed = run(env, hold, "renew");
    if (renewed.status != DLOCK_OK)
        return renewed.status;
    return renewed.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer token = run(env, hold, "ask");
    if (token.status != DLOCK_OK)
        return token.status;
    hold->token = (uint64_t)token.integer;
    return token.integer > 0 ? DLOCK_OK : DLOCK_BUSY;
}

static void give_up(struct rung_env *env, struct dlock_hold *hold)
{
    run(env, hold, "give_up");
}

/* By an operator, who is no owner. */
static struct answer force_release(struct rung_env *env, const char *key)
{
    struct keys keys = keys_of(key);
    return EVAL(env, &lua_read_write, "6", key, keys.holds, keys.readers, keys.writers,
                keys.invited, keys.token, "break", "", "", OPERATORS_TTL_MS);
}

const struct rung_ops rung_read_write = {
    .name = "read_write",
    .traits = TRAIT_EXPIRES | TRAIT_REENTRANT | TRAIT_TOKEN | TRAIT_SHARED,
    .try_acquire = try_acquire,
    .release = release,
    .renew = renew,
    .resolve = resolve,
    .give_up = give_up,
    .force_release = force_release,
};
