/* SPDX-License-Identifier: Apache-2.0
 *
 * Inspects a lock, and breaks a lock for any owner: on one server, or on all servers of a majority
 * lock. If the lock is only a key, lua/inspect.lua and lua/break.lua serve every rung.
 */
#include "redis_engine.h"

#include <stdio.h>
#include <string.h>

static dlock_status read_holder(const struct answer *answer, struct dlock_holder *holder,
                                const char *name)
{
    const redisReply *reply = answer->reply;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 ||
        reply->element[0]->str == NULL || reply->element[2]->type != REDIS_REPLY_INTEGER)
        return fail(DLOCK_REFUSED, "the server's answer about '%s' was not understood", name);
    const char *type = reply->element[0]->str;
    bool over = strcmp(type, "zset") == 0 && reply->element[2]->integer == 0;
    holder->held = strcmp(type, "none") != 0 && !over;
    holder->ttl_ms = holder->held ? reply->element[2]->integer : 0;
    if (reply->element[1]->str != NULL)
        snprintf(holder->owner, sizeof holder->owner, "%s", reply->element[1]->str);
    return DLOCK_OK;
}

static dlock_status check_type(const struct dlock *lock, const char *type)
{
    const char *right = key_type(lock);
    if (strcmp(type, "none") == 0 || strcmp(type, right) == 0)
        return DLOCK_OK;
    return fail(DLOCK_WRONG_TYPE, "'%s' holds a %s; a lock of rung '%s' is a %s", lock->name, type,
                lock->ops->name, right);
}

/* Reads one server's answer. */
static dlock_status operator_take(const struct dlock *lock, const struct answer *answer,
                                  struct dlock_holder *holder)
{
    if (answer->status != DLOCK_OK)
        return answer->status;
    dlock_status status = read_holder(answer, holder, lock->name);
    return status == DLOCK_OK ? check_type(lock, answer->reply->element[0]->str) : status;
}

/* Runs a script that returns what lua/inspect.lua returns. */
static dlock_status operator_ask(struct rung_env *env, struct dlock *lock,
                                 struct answer (*send)(struct rung_env *env, const char *key,
                                                       const char *const *beside),
                                 struct look *look)
{
    struct answer answer = send(env, lock->name, lock->beside);
    look->refused = answer.status == DLOCK_WRONG_TYPE;
    return operator_take(lock, &answer, &look->holder);
}

/* ---- Several servers ------------------------------------------------------------------------- */

/* What each server says. */
struct sightings {
    const struct dlock *lock;
    size_t servers;
    size_t needed; /* a majority of `servers` */
    struct dlock_holder holders[SERVERS_MAX];
    size_t count;
    dlock_status wrong; /* of the last server without a usable answer; OK: there is none */
    char why[SENTENCE_MAX];
};

static bool operator_note(void *arg, size_t server, const struct answer *answer)
{
    struct sightings *seen = arg;
    (void)server;
    dlock_status status = operator_take(seen->lock, answer, &seen->holders[seen->count]);
    if (status == DLOCK_OK)
        seen->count++;
    else
        snprintf(seen->why, sizeof seen->why, "; %s", dlock_error());
    if (status != DLOCK_OK)
        seen->wrong = status;
    return status == DLOCK_OK;
}

static bool is_held_by(const struct dlock_holder *holder, const char *owner)
{
    return holder->held && strcmp(holder->owner, owner) == 0;
}

static size_t count_of(const struct sightings *seen, const char *owner)
{
    size_t count = 0;
    for (size_t i = 0; i < seen->count; i++)
        count += is_held_by(&seen->holders[i], owner);
    return count;
}

/* As unsigned, -1 (the key never expires) is the longest. */
static uint64_t operator_is_longer(const struct dlock_holder *holder)
{
    return (uint64_t)holder->ttl_ms;
}

/* The longest time for which `needed` of the owner's keys still live, in ms. */
static int64_t operator_left_ms(const struct sightings *seen, const char *owner, size_t needed)
{
    int64_t most_ms = 0;
    for (size_t i = 0; i < seen->count; i++) {
        const struct dlock_holder *one = &seen->holders[i];
        size_t as_long = 0;
        for (size_t j = 0; j < seen->count; j++)
            as_long += is_held_by(&seen->holders[j], owner) &&
                       operator_is_longer(&seen->holders[j]) >= operator_is_longer(one);
        if (is_held_by(one, owner) && as_long >= needed &&
            operator_is_longer(one) > (uint64_t)most_ms)
            most_ms = one->ttl_ms;
    }
    return most_ms;
}

/* How many servers name the owner that most of them name. */
static size_t operator_most(const struct sightings *seen, const char **owner)
{
    size_t most = 0;
    *owner = "";
    for (size_t i = 0; i < seen->count; i++) {
        const char *one = seen->holders[i].owner;
        size_t count = seen->holders[i].held ? count_of(seen, one) : 0;
        *owner = count > most ? one : *owner;
        most = count > most ? count : most;
    }
    return most;
}

/* Whether the silent servers can change nothing. */
static bool operator_is_decided(void *arg, const struct votes *votes)
{
    const struct sightings *seen = arg;
    (void)votes;
    const char *owner;
    size_t most = operator_most(seen, &owner);
    return most >= seen->needed || most + seen->servers - seen->count < seen->needed;
}

/* The holder is the owner that a majority of all servers names. There is none if no owner can have
 * a majority, whatever the silent servers would say. */
static dlock_status operator_agree(const struct sightings *seen, const struct votes *votes,
                                   struct dlock_holder *holder)
{
    const char *owner;
    size_t most = operator_most(seen, &owner), silent = votes->servers - seen->count;
    *holder = (struct dlock_holder){.size = holder->size, .held = most >= votes->needed};
    if (holder->held) {
        snprintf(holder->owner, sizeof holder->owner, "%s", owner);
        holder->ttl_ms = operator_left_ms(seen, owner, votes->needed);
    } else if (most + silent >= votes->needed) {
        dlock_status none = votes->late + votes->lost > 0 ? DLOCK_UNKNOWN : DLOCK_UNREACHABLE;
        return fail(seen->wrong != DLOCK_OK ? seen->wrong : none,
                    "the holder of '%s' is not known: %zu of %zu servers answered%s",
                    seen->lock->name, seen->count, votes->servers, seen->why);
    }
    return DLOCK_OK;
}

static struct sightings no_sightings(const struct rung_env *env, const struct dlock *lock)
{
    size_t servers = redis_nodes(env->redis);
    return (struct sightings){.lock = lock, .servers = servers, .needed = servers / 2 + 1};
}

static dlock_status inspect_all(struct rung_env *env, struct dlock *lock, struct look *look)
{
    static const struct question question = {.is_yes = operator_note,
                                             .is_decided = operator_is_decided};
    struct sightings seen = no_sightings(env, lock);
    const char *const argv[] = {"1", lock->name, NULL};
    dlock_status status = redis_check_independent(env->redis);
    if (status != DLOCK_OK)
        return status;
    struct votes votes = rung_poll(env, &lua_inspect, argv, &question, &seen);
    return operator_agree(&seen, &votes, &look->holder);
}

/* The lock is broken once the remaining servers are fewer than a majority. An unanswered request
 * may still be carried out later, on the next holder's key. So a late server is awaited: until
 * connect_ns to connect, and then until it answers or the time ends. */
static dlock_status break_all(struct rung_env *env, struct dlock *lock, int64_t connect_ns,
                              struct look *look)
{
    static const struct question question = {.is_yes = operator_note};
    struct sightings seen = no_sightings(env, lock);
    const char *const argv[] = {"1", lock->name, env->key_type, NULL};
    redis_ready_each(env->redis, min_ns(connect_ns, env->deadline_ns), -1);
    dlock_status status = redis_check_independent(env->redis);
    if (status != DLOCK_OK)
        return status;
    env->awaits = AWAIT_EACH;
    struct votes votes = rung_poll(env, &lua_break, argv, &question, &seen);
    dlock_status told = operator_agree(&seen, &votes, &look->holder);
    if (votes.lost > 0)
        return fail(DLOCK_UNKNOWN, "'%s': %zu of %zu servers did not answer, and may still free it",
                    lock->name, votes.lost, votes.servers);
    if (votes.servers - seen.count >= votes.needed && seen.count > 0)
        return fail(DLOCK_UNKNOWN,
                    "'%s' is freed on %zu of %zu servers; a majority may still hold it", lock->name,
                    seen.count, votes.servers);
    return votes.servers - seen.count >= votes.needed ? told : DLOCK_OK;
}

/* ---- Inspect, break -------------------------------------------------------------------------- */

static struct answer send_inspect(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    return EVAL(env, &lua_inspect, "1", key);
}

static bool has_several(const struct dlock *lock)
{
    return redis_of(lock->client)->config.server_count > 1;
}

dlock_status redis_inspect(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look)
{
    struct rung_env env;
    dlock_status status = env_begin(lock, ends_ns, ends_ns, cancel_fd, NULL, &env);
    env.wake_fd = cancel_fd; /* it changes nothing, so it may be aborted */
    if (status == DLOCK_OK)
        status = has_several(lock) ? inspect_all(&env, lock, look)
                                   : operator_ask(&env, lock, send_inspect, look);
    env_end(lock, &env);
    return status;
}

static struct answer delete_key(struct rung_env *env, const char *key, const char *const *beside)
{
    (void)beside;
    return EVAL(env, &lua_break, "1", key, env->key_type);
}

/* After lost replies: connects again, and makes each server end the broken connection. So what was
 * sent cannot be carried out later. Where that fails, the outcome stays uncertain. */
static void kill_broken_of_all(struct redis *redis, int64_t ends_ns)
{
    struct connection_id broken;
    char sentence[SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", dlock_error());
    for (size_t node = 0; redis_broken_connection(redis, node, &broken); node = broken.node + 1)
        if (redis_ready(redis, ends_ns, -1) == DLOCK_OK)
            redis_kill_broken(redis, &broken, ends_ns, -1);
    fail(DLOCK_OK, "%s", sentence); /* dlock_error() still describes the break */
}

dlock_status redis_break(struct dlock *lock, int64_t ends_ns, struct look *look)
{
    struct rung_env env;
    const struct rung_ops *ops = lock->ops;
    int64_t connect_ns = mono_deadline_ns(lock->client->options.connect_timeout_ms);
    dlock_status status = env_begin(lock, ends_ns, ends_ns, -1, NULL, &env);
    if (status == DLOCK_OK)
        status =
            has_several(lock)
                ? break_all(&env, lock, connect_ns, look)
                : operator_ask(&env, lock,
                               ops->force_release != NULL ? ops->force_release : delete_key, look);
    if (status == DLOCK_UNKNOWN)
        kill_broken_of_all(env.redis, env.deadline_ns);
    env_end(lock, &env);
    return status;
}

dlock_status redis_check_beside(struct dlock *lock, int64_t ends_ns, int cancel_fd)
{
    struct rung_env env;
    dlock_status status = env_begin(lock, ends_ns, ends_ns, cancel_fd, NULL, &env);
    bool found = false;
    env.wake_fd = cancel_fd;
    for (size_t i = 0; status == DLOCK_OK && !found && lock->ops->beside[i].kind != NULL; i++) {
        const char *right = lock->ops->beside[i].type;
        struct answer type = CALL(&env, "TYPE", lock->beside[i]);
        status = type.status;
        found =
            status == DLOCK_OK && strcmp(type.text, "none") != 0 && strcmp(type.text, right) != 0;
        if (found)
            status = fail(DLOCK_WRONG_TYPE, "'%s' holds a %s; of a lock of rung '%s' it is a %s",
                          lock->beside[i], type.text, lock->ops->name, right);
    }
    env_end(lock, &env);
    return status;
}
