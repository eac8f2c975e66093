/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rung on Redis works through: commands and scripts, and what they answer.
 */
#ifndef DLOCK_REDIS_RUNG_H
#define DLOCK_REDIS_RUNG_H

#include "batch.h"
#include "redis.h"
#include "rung.h"
#include "scripts.h"

/* What a rung works through. */
struct rung_env {
    struct redis *redis;     /* connected (in a release perhaps not); NULL with TRAIT_SERVERLESS */
    int64_t deadline_ns;     /* CLOCK_MONOTONIC: when the whole slot must be done */
    int wake_fd;             /* cuts requests off when readable; -1: none */
    int64_t (*now_ns)(void); /* CLOCK_BOOTTIME; a test may set another */
    const char *rung;        /* its name */
    const char *key_type;    /* of the lock's key, as Redis calls it; "": of any */
    void (*on_point)(void *arg, const char *rung, const char *point);
    void *on_point_arg;
    _Atomic uint64_t *scripts_loaded;

    /* Commands that ride along with the slot's first CALL or EVAL: see dlock_batch. NULL: none.
     * Cleared once sent. A rung that uses redis.h itself sends them by env_ride_*(); one that
     * carries them inside its own script takes them from the batch, keeps their replies with
     * batch_keep() and clears the field. */
    struct dlock_batch *reads; /* right behind it */
    struct dlock_batch *last;  /* right ahead of it */
    bool transient;            /* the server refused for a while only (LOADING, BUSY ...) */
};

/* The answer of one command. The text lives until the next CALL or EVAL of the slot. */
struct answer {
    dlock_status status; /* OK: it was answered without an error; nil is no error */
    enum dlock_reply_kind kind;
    int64_t integer;         /* with INTEGER */
    const char *text;        /* with TEXT; "" otherwise */
    const redisReply *reply; /* as it came, for arrays */
};

#define REQUEST_ARGUMENTS_MAX 24
#define REQUEST_TEXT_MAX (3 * (DLOCK_NAME_MAX + HOLD_ID_MAX))

/* Sends one command to the first server: CALL(env, "SET", hold->key, "1", "NX"). */
#define CALL(env, ...) rung_call(env, (const char *const[]){__VA_ARGS__, NULL})
/* Runs a script by its SHA1, and in full when the server does not know it:
 * EVAL(env, &lua_x, "1", hold->key, hold->owner), the "1" being the number of keys. */
#define EVAL(env, script, ...) rung_eval(env, script, (const char *const[]){__VA_ARGS__, NULL})

/* What several servers said to the same request. A server that is not connected has no vote. */
struct votes {
    size_t yes;
    size_t no;      /* answered otherwise, or refused */
    size_t unknown; /* sent and not answered: it may be carried out */
    size_t servers; /* that the client has */
    size_t needed;  /* a majority of all of them */
};

/* Asks all servers at once: a command, or a script by its SHA1, and in full those that do not know
 * it. What rides goes to the first server, in the same write. No server is waited for much longer
 * than most of them take. */
struct votes rung_vote(struct rung_env *env, const struct script *script, const char *const *argv,
                       bool (*is_yes)(const struct answer *answer));
/* VOTE(env, &lua_x, is_one, "1", hold->key, hold->id); the script NULL: a command. */
#define VOTE(env, script, is_yes, ...)                                                             \
    rung_vote(env, script, (const char *const[]){__VA_ARGS__, NULL}, is_yes)

/* The same; is_yes may keep what each server answers. */
struct votes rung_poll(struct rung_env *env, const struct script *script, const char *const *argv,
                       bool (*is_yes)(void *arg, const struct answer *answer), void *arg);

/* One script and its arguments, filled in by a step's send function. */
struct request {
    const struct script *script;
    const char *argv[REQUEST_ARGUMENTS_MAX + 1]; /* the number of keys, they, and the others */
    char text[REQUEST_TEXT_MAX];                 /* of those that are made up for it */
    size_t used;
};
/* SEND(request, &lua_x, "1", hold->key, hold->owner): what EVAL would send. */
#define SEND(request, script, ...)                                                                 \
    request_script(request, script, (const char *const[]){__VA_ARGS__, NULL})
void request_script(struct request *request, const struct script *script, const char *const *argv);
/* Take functions for answers that several rungs share. Any other answer: UNKNOWN. */
/* nil: it is acquired; an integer: another has it. */
dlock_status take_acquired(struct dlock_hold *hold, const struct answer *answer, struct busy *busy);
/* nil: it is not ours any more; an integer: it is. */
dlock_status take_ours(struct dlock_hold *hold, const struct answer *answer);

/* An argument that is made up; it lives as long as the request. */
const char *request_text(struct request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Renews by whichever way the rung says it, and waits for the answer. */
dlock_status rung_renew(struct rung_env *env, struct dlock_hold *hold, int64_t ttl_ms);

struct answer rung_call(struct rung_env *env, const char *const *argv);
struct answer rung_eval(struct rung_env *env, const struct script *script, const char *const *argv);

/* Appends the request as EVAL would send it first, or with the script in full. */
void request_append(struct redis *redis, const struct request *request, bool in_full);
/* How many there are before the NULL. */
int rung_count(const char *const *argv);
/* The server does not know the script by its SHA1. */
bool script_is_missing(const struct answer *answer);
/* UNKNOWN with a sentence: what rode was carried out, so UNREACHABLE, which says that nothing was
 * sent, is not true any more. */
dlock_status something_was_sent(const char *why);

/* What a reply says, as CALL would say it; NULL gives UNKNOWN. */
struct answer answer_of(struct rung_env *env, const redisReply *reply, const char *server);

/* It is a list of integers, and of so many at least. */
bool are_integers(const struct answer *answer, size_t least);

#define NOT_UNDERSTOOD "'%s': the server's answer was not understood"
/* The answer is none that can come: drops the connection with a doubt, and all replies of the
 * exchange with it. UNKNOWN, with a sentence. */
dlock_status not_understood(struct rung_env *env, const struct dlock_hold *hold);

/* For rungs that use redis.h themselves, on the first server: append the riding commands around
 * their own command, and take the replies. `first` is the index of the first riding reply. */
size_t env_ride_append(struct redis *redis, const struct dlock_batch *batch);
void env_ride_take(struct redis *redis, struct dlock_batch *batch, size_t first);

/* A named point of the code. Rungs that have the same point give it the same name. */
static inline void point(struct rung_env *env, const char *name)
{
    if (env->on_point == NULL)
        return;
    int64_t came_ns = mono_ns();
    env->on_point(env->on_point_arg, env->rung, name);
    if (env->deadline_ns != INT64_MAX) /* what the hook takes is not the slot's time */
        env->deadline_ns += mono_ns() - came_ns;
}

/* An env for one slot of a rung, not connected. */
void env_init(struct dlock *lock, int64_t ends_ns, struct rung_env *env);
/* And connected; all on CLOCK_MONOTONIC: the slot does not begin later than limit_ns, and is over
 * at ends_ns. Not OK: nothing was sent. env_end in each case. */
dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int64_t ends_ns, int cancel_fd,
                       struct rung_env *env);
void env_end(struct dlock *lock, struct rung_env *env);

#endif
