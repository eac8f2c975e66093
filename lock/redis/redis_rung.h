/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rung on Redis works with: commands, scripts, and their answers.
 */
#ifndef DLOCK_REDIS_RUNG_H
#define DLOCK_REDIS_RUNG_H

#include "acks.h"
#include "batch.h"
#include "pool.h"
#include "redis.h"
#include "rung.h"
#include "scripts.h"

struct rung_env {
    struct redis *redis;     /* connected, except perhaps in a release; NULL: TRAIT_SERVERLESS */
    struct pool *pool;       /* the client's */
    int64_t deadline_ns;     /* CLOCK_MONOTONIC: when the whole slot must be done */
    int wake_fd;             /* when readable, requests are aborted; -1: none */
    int64_t (*now_ns)(void); /* CLOCK_BOOTTIME; a test may set another */
    const char *rung;        /* its name */
    const char *key_type;    /* of the lock's key, as Redis calls it */
    void (*on_point)(void *arg, const char *rung, const char *point);
    void *on_point_arg;
    _Atomic uint64_t *scripts_loaded;

    /* Riding commands: sent in one write with the slot's first CALL or EVAL, see dlock_batch. NULL:
     * none. The fields are cleared once the commands are sent. A rung that uses redis.h itself
     * sends them by env_ride_*(). A rung that puts them into its own script reads the
     * batch, stores the replies with batch_keep(), and clears the field. */
    struct dlock_batch *reads; /* sent right after that command */
    struct dlock_batch *last;  /* sent right before it */
    bool rode;                 /* `last` was there, and its replies may be missing */
    bool transient;            /* the server's refusal is temporary (LOADING, BUSY ...) */
    /* For which servers rung_poll waits, up to command_timeout_ms. */
    enum {
        AWAIT_DECISION, /* until it is decided */
        /* For those that owe nothing to an earlier request. It is a part of the same exchange, and
         * is sent even if no time is left to wait. */
        AWAIT_PROMPT,
        AWAIT_EACH, /* for each; one that does not answer is disconnected */
    } awaits;

    /* The slot acquires or renews what is valid for this long at most. Then each of its CALLs and
     * EVALs asks the replicas, if the client's options say so, and `acks` has the latest answer. A
     * rung that uses redis.h itself asks by env_acks_*(). 0: nothing is to be confirmed. */
    int64_t confirms_ms;
    struct acks acks;
};

/* The answer to one command. The text is valid until the slot's next CALL or EVAL. */
struct answer {
    dlock_status status; /* OK: an answer that is not an error; nil is not one */
    enum dlock_reply_kind kind;
    int64_t integer;         /* with INTEGER */
    const char *text;        /* with TEXT; "" otherwise */
    const redisReply *reply; /* hiredis's reply, for arrays */
};

#define REQUEST_ARGUMENTS_MAX 24
#define REQUEST_TEXT_MAX (3 * (DLOCK_NAME_MAX + HOLD_ID_MAX))

/* Sends one command to the first server: CALL(env, "SET", hold->key, "1", "NX"). */
#define CALL(env, ...) rung_call(env, (const char *const[]){__VA_ARGS__, NULL})
/* Runs a script by its SHA1, and in full if the server does not know it:
 * EVAL(env, &lua_x, "1", hold->key, hold->owner). The "1" is the number of keys. */
#define EVAL(env, script, ...) rung_eval(env, script, (const char *const[]){__VA_ARGS__, NULL})

/* The answers of several servers to one request. */
struct votes {
    size_t yes;
    size_t no;
    size_t failed;  /* errors: nothing was carried out */
    size_t late;    /* sent and not answered yet; the reply stays due */
    size_t lost;    /* sent and not answered, and the connection broke: it may be carried out */
    size_t servers; /* all of the client's */
    size_t needed;  /* a majority of `servers` */
    bool decided;   /* no other answer was needed; else the missing ones took too long */
    /* Which servers, a bit each. */
    uint32_t said_yes;
    uint32_t said_no;
    uint32_t unanswered; /* late and lost */
    uint32_t asked;      /* perhaps only in part */
    uint32_t refusing;   /* for good; those included that are not connected for that reason */
    /* What each one said, for a sentence; unless `yes` is a majority that decides. */
    char answers[SENTENCE_MAX];
};

struct question {
    bool (*is_yes)(void *arg, size_t server, const struct answer *answer);
    /* Whether no other answer is needed; asked after each one. NULL: a majority said yes, or no
     * majority can any more. */
    bool (*is_decided)(void *arg, const struct votes *votes);
    bool needs_most;           /* nothing is sent unless a majority is connected */
    uint32_t kept;             /* a bit for each server that must carry it out: see redis_keep */
    struct quorum_hold *hears; /* notes late answers, see heard.h; or NULL */
    uint32_t follows;          /* with `hears`: a bit for each server for which it is ASKS_LAST */
};

/* Sends a command, or a script in full, to all servers at once; script NULL: argv is a command.
 * Returns when it is decided (see env->awaits). A server that is late carries out its requests in
 * order (see redis_gather_until). env->reads go to the first server, in the same write, and are
 * awaited. */
struct votes rung_poll(struct rung_env *env, const struct script *script, const char *const *argv,
                       const struct question *question, void *arg);

/* One server's answer. `failed`: it is an error. */
enum vote { VOTE_NONE, VOTE_YES, VOTE_NO, VOTE_FAILED };
enum vote votes_add(struct votes *votes, const struct question *question, void *arg, size_t server,
                    const struct answer *answer);
/* Of a connected server without an answer. */
static inline const char *votes_silence(bool awaited)
{
    return awaited ? "no answer in time" : "not awaited";
}
/* Sets votes->answers. word: what that server said. */
void votes_say(struct votes *votes, const struct redis *redis,
               const char *(*word)(const void *arg, size_t server), const void *arg);

/* How many servers it has: a bit each. */
static inline size_t size_of(uint32_t servers)
{
    return (size_t)__builtin_popcount(servers);
}

/* dlock_hold.servers of a hold on several servers: the low half has a bit for each server that
 * counts. What it says later shows that it has had the key all the time, because no request that
 * could set the key is on its way to it. The high half has a bit for each server to which such a
 * request may be. */
static inline uint32_t counted_of(uint32_t servers)
{
    return servers & 0xffff;
}

/* A round that renews one hold on several servers. rung_ops.begin_renew sets what is to be asked;
 * end_renew judges the votes. In between the round's hold may end, and then only `question` is
 * used, with this structure as its `arg`. */
struct renewing {
    char ttl[24]; /* set before begin_renew */
    const struct script *script;
    const char *argv[5];
    struct question question;
    uint32_t counted; /* a bit for each server whose answer counts */
    uint32_t missing; /* servers that have no key */
    uint32_t joining; /* servers that had the key: late answers said so before the round */
    uint32_t lacked;  /* and those that had none */
    int64_t began_ns; /* CLOCK_BOOTTIME, before it was sent */
};

/* Sends the script on another connection of the client's pool, to some servers (a bit each), once
 * no other call uses that connection. So it follows what that one still has under way. No answer is
 * awaited; see pool_send_later. */
void rung_send_later(struct rung_env *env, const struct redis *other, uint32_t servers,
                     const struct script *script, const char *const *argv);

/* Sends env->last to the first server, and waits for the replies. OK; UNREACHABLE: nothing was
 * sent; UNKNOWN. */
dlock_status rung_send_last(struct rung_env *env);

/* A script and its arguments, which a rung's send function fills in. */
struct request {
    const struct script *script;
    const char *argv[REQUEST_ARGUMENTS_MAX + 1]; /* the number of keys, the keys, other arguments */
    char text[REQUEST_TEXT_MAX];                 /* of the arguments by request_text */
    size_t used;
};
/* Takes the arguments of EVAL: SEND(request, &lua_x, "1", hold->key, hold->owner). */
#define SEND(request, script, ...)                                                                 \
    request_script(request, script, (const char *const[]){__VA_ARGS__, NULL})
void request_script(struct request *request, const struct script *script, const char *const *argv);
/* Take functions that several rungs share. An answer that is not named here: UNKNOWN. */
/* nil: OK, acquired; an integer: BUSY. */
dlock_status take_acquired(struct dlock_hold *hold, const struct answer *answer, struct busy *busy);
/* nil: LOST; an integer: OK, the owner still holds the lock. */
dlock_status take_ours(struct dlock_hold *hold, const struct answer *answer);

/* Formats an argument, which is valid as long as the request. */
const char *request_text(struct request *request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Renews by the rung's own way (send_renew, renew, or neither), and waits for the answer. */
dlock_status rung_renew(struct rung_env *env, struct dlock_hold *hold, int64_t ttl_ms);

struct answer rung_call(struct rung_env *env, const char *const *argv);
struct answer rung_eval(struct rung_env *env, const struct script *script, const char *const *argv);

/* Appends the request, with the script's SHA1 or in full. */
void request_append(struct redis *redis, const struct request *request, bool in_full);
/* The number of words before the NULL. */
int rung_count(const char *const *argv);
/* The server does not know the script by its SHA1. */
bool script_is_missing(const struct answer *answer);
/* UNKNOWN, with a sentence. For a request that failed after its riding commands were carried out:
 * UNREACHABLE would say that nothing was sent. */
dlock_status something_was_sent(const char *why);

/* The reply as CALL would return it; NULL gives UNKNOWN. */
struct answer answer_of(struct rung_env *env, const redisReply *reply, const char *server);

/* Whether it is a list of at least `least` elements, all integers. */
bool are_integers(const struct answer *answer, size_t least);

#define NOT_UNDERSTOOD "'%s': the server's answer was not understood"
/* For an answer that the request cannot have: drops the connection and all replies of this
 * exchange. The outcome of its requests is uncertain. UNKNOWN, with a sentence. */
dlock_status not_understood(struct rung_env *env, const struct dlock_hold *hold);

/* For rungs that use redis.h themselves, on the first server: append the riding commands before or
 * after the rung's own, and store their replies. `first`: the index of the first of these
 * replies. */
size_t env_ride_append(struct redis *redis, const struct dlock_batch *batch);
void env_ride_take(struct redis *redis, struct dlock_batch *batch, size_t first);
/* The same for WAIT, which is the last command of the write. `index`: of its reply. */
void env_acks_append(struct rung_env *env, size_t index);
void env_acks_take(struct rung_env *env);

/* A named point of the code, where a test can stop a process. The same point has the same name in
 * each rung. */
static inline void point(struct rung_env *env, const char *name)
{
    if (env->on_point == NULL)
        return;
    int64_t came_ns = mono_ns();
    env->on_point(env->on_point_arg, env->rung, name);
    if (env->deadline_ns != INT64_MAX) /* the hook's time is not counted as the slot's */
        env->deadline_ns += mono_ns() - came_ns;
}

/* Sets up an env for one slot of a rung, without a connection. */
void env_init(struct dlock *lock, int64_t ends_ns, struct rung_env *env);
/* Sets up an env and connects it. The slot starts no later than limit_ns, and ends by ends_ns, both
 * on CLOCK_MONOTONIC. wanted: the connection to use if it is idle, or NULL. If it is not OK,
 * nothing was sent. Call env_end in each case. */
dlock_status env_begin(struct dlock *lock, int64_t limit_ns, int64_t ends_ns, int cancel_fd,
                       const struct redis *wanted, struct rung_env *env);
void env_end(struct dlock *lock, struct rung_env *env);

#endif
