/* SPDX-License-Identifier: Apache-2.0
 *
 * rw_counter -- a key for the one writer, a count of the readers.
 * ADDS   readers together, writers alone
 * FLAW   a reader that dies leaves its count: writers wait for ever
 * SHOW   scripts/rung break rw_counter
 * CURE   read_write
 * NEXT   read_write
 * COST   3 round trips
 */
#include "redis_rung.h"

#include <stdio.h>
#include <stdlib.h>

struct keys {
    char count[DLOCK_NAME_MAX + 16];
};

static struct keys keys_of(const char *name)
{
    struct keys keys;
    snprintf(keys.count, sizeof keys.count, "%s:read_count", name);
    return keys;
}

/* A client first announces itself, then looks for others. So if a reader and a writer come at once,
 * at least one of them sees the other. */
static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct keys keys = keys_of(hold->key);
    bool writes = hold->mode == DLOCK_EXCLUSIVE;
    struct dlock_batch *reads = env->reads;
    env->reads = NULL; /* the riding commands must be sent after the look */
    struct answer said =
        writes ? CALL(env, "SET", hold->key, "WRITE", "NX") : CALL(env, "INCR", keys.count);
    if (said.status != DLOCK_OK)
        return said.status;
    if (said.kind == DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    point(env, "between_say_and_look");
    env->reads = reads;
    struct answer seen = CALL(env, "GET", writes ? keys.count : hold->key);
    bool is_free = seen.status == DLOCK_OK &&
                   (writes ? strtoll(seen.text, NULL, 10) <= 0 : seen.kind == DLOCK_REPLY_NIL);
    if (is_free) {
        point(env, "acquired");
        return DLOCK_OK;
    }
    struct answer unsaid = writes ? CALL(env, "DEL", hold->key) : CALL(env, "DECR", keys.count);
    if (unsaid.status != DLOCK_OK)
        return DLOCK_UNKNOWN; /* the announcement may remain */
    return seen.status == DLOCK_OK ? DLOCK_BUSY : seen.status;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    struct keys keys = keys_of(hold->key);
    bool writes = hold->mode == DLOCK_EXCLUSIVE;
    point(env, "before_release");
    struct answer left = writes ? CALL(env, "DEL", hold->key) : CALL(env, "DECR", keys.count);
    if (left.status != DLOCK_OK)
        return left.status;
    return left.integer >= (writes ? 1 : 0) ? DLOCK_OK : DLOCK_LOST;
}

/* The count goes first: a client that comes in between still finds the writer's key. */
static struct answer force_release(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    struct keys keys = keys_of(key);
    struct answer uncounted = EVAL(env, &lua_break, "1", keys.count, "string");
    return uncounted.status == DLOCK_OK ? EVAL(env, &lua_break, "1", key, env->key_type)
                                        : uncounted;
}

const struct rung_ops rung_rw_counter = {
    .name = "rw_counter",
    .traits = TRAIT_SHARED,
    .try_acquire = try_acquire,
    .release = release,
    .force_release = force_release,
};
