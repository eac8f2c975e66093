/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rung fills in, and what it works with. A rung is ONE attempt: straight-line code over a
 * few commands that never sleeps. Other files do the rest: wait.c waits, and timekeeper.c renews in
 * time. Deadlines and records belong to acquire.c and hold.c.
 */
#ifndef DLOCK_RUNG_H
#define DLOCK_RUNG_H

#include "clock.h"
#include "dlock.h"
#include "heap.h"
#include "status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/queue.h>

#define OWNER_MAX 80
#define HOLD_ID_MAX 112
#define SERVERS_MAX 16
#define BUSY_SOURCE_MAX (DLOCK_NAME_MAX + HOLD_ID_MAX + 64) /* a name, a hold and a word */

/* See dlock_identity(). */
struct identity {
    char text[96]; /* "": not known */
};

/* TRAIT_HANDOFF: what such a rung needs to know of a hold in addition. */
struct handoff_hold {
    uint64_t grant;  /* the first token of the hold's grant */
    bool joined;     /* the client had the grant already, see dlock_handed_off */
    uint64_t master; /* which server gave the grant, over Sentinel: redis_generation; else 0 */
    /* The number of this attempt, higher than those of all earlier attempts of the client. */
    uint64_t try;
    uint64_t newest; /* at release: the highest token that its grant has used */
    bool more;       /* at release: other waiters of this client wait for the lock */
    /* Set by a release that kept the lock for them. `token` is then new, the first of a new grant,
     * and the time to live is full. */
    bool kept;

    /* For handoff.c only. Protected by the loop's mutex. */
    bool out; /* its grant no longer counts it */
    /* Set with `out`: it was the grant's last hold, and no command of the grant could still be
     * carried out. */
    bool was_end;
    uint64_t got_by; /* the attempt that acquired the grant */
};

/* TRAIT_QUORUM: the requests that set the key, and may still be on their way. One round of the hold
 * at a time reads and writes it, see redlock.c; late answers write `heard` at any time. */
struct quorum_hold {
    _Atomic size_t users; /* the hold, and each late answer */
    /* By server: what its late answers say, see heard.h. */
    _Atomic uint32_t heard[SERVERS_MAX];
    struct setter { /* by server: the connection that carries it, by its id at that process */
        uint64_t process;
        long long id; /* 0: not known, or there is none */
    } setters[SERVERS_MAX];
    _Atomic uint32_t again; /* a bit for each server: it is not the acquire's own request */
    int64_t settles_ns;     /* CLOCK_MONOTONIC: their connections may be ended from then on */
    /* The latest round's: which servers it asked, and which it did not ask, but had connected to;
     * which were asked, and had not answered when it ended. A bit each. */
    uint32_t met, near, silent;
};
void quorum_drop(struct quorum_hold *quorum);

/* One acquisition. A rung reads it and may set `token`; the core sets everything else. */
struct dlock_hold {
    /* Set before try_acquire; constant after that. */
    const char *key;           /* the lock's name */
    const char *const *beside; /* the keys beside it, in the order of rung_ops.beside */
    char owner[OWNER_MAX];     /* the owner's name in Redis: see owner.h */
    char id[HOLD_ID_MAX];      /* "<owner>#<acquisition>": names only this hold */
    char ttl[24];              /* ttl_ms as text, for commands */
    int64_t ttl_ms;            /* want.ttl_ms or the lock's, limited to hold_max_ms */
    uint64_t acquisition;
    /* TRAIT_SHARED: the mode that is wanted. DLOCK_EXCLUSIVE on other rungs. */
    enum dlock_mode mode;
    /* How many holds its owner has, this one included: more than 1 only on re-entrant rungs. Set
     * before an acquire and before a release. */
    uint64_t depth;
    char count[24]; /* depth as text, for commands */
    /* rung_ops.state_size bytes, zero at first. All holds of the lock in this process share them.
     */
    void *lock_state;
    uint64_t token; /* set by a rung with TRAIT_TOKEN when it acquires; see wants_token */
    /* TRAIT_QUORUM: what the rung knows of its servers, see redlock.c. */
    _Atomic uint32_t servers;
    _Atomic uint32_t asked; /* a bit for each server that may have the key */
    /* Set by a rung when it acquires or renews: the next renewal comes after this time, if that is
     * less than a third of the time to live. 0: after that third. */
    int64_t renews_ms;
    bool wants_token;    /* want.token, with TRAIT_QUORUM: other rungs always draw one */
    bool wants_identity; /* want.identity, on other rungs with TRAIT_TOKEN */
    /* The engine's answer to the latest attempt. With TRAIT_QUORUM the rung sets it when it sets
     * `token`. */
    struct identity identity;

    struct handoff_hold *handoff; /* with TRAIT_HANDOFF; else NULL */
    struct quorum_hold *quorum;   /* with TRAIT_QUORUM; else NULL */

    struct dlock *lock;
    /* 0: owner_id is 0, and no other hold nests in it. 'x' and 't': see owner.h. */
    char named_by;
    uint64_t number; /* the named owner's number */
    uint64_t thread; /* the thread that asked for it */

    /* Protected by the lock's mutex. */
    LIST_ENTRY(dlock_hold) of_calls;
    TAILQ_ENTRY(dlock_hold) of_turns;
    bool in_turns;
    struct wait *started;    /* the wait of its call, if that call has no thread; else NULL */
    bool leaving;            /* its release is under way, so nothing nests in it any more */
    bool lost_while_nesting; /* its owner lost the lock during this nested acquire */
    /* A release of its name got no answer while its own request was under way: see owner_end. */
    bool inherits_release;
    /* Commands of its owner may still be carried out, so it is left to expire. */
    _Atomic bool must_expire;
    /* The longest time to live that the key was given for another hold, so the key may outlive this
     * hold. 0: none. */
    _Atomic int64_t shared_ms;
    void *user;
    /* The engine's. Several servers: the connection of its acquire, which a release should use,
     * too, so that it follows the acquire on a server that is late. */
    const void *acquired_on;
    int fork_generation;
    int64_t hold_max_ms; /* 0: no limit */
    int64_t ends_ns;     /* CLOCK_BOOTTIME: no renewal reaches beyond this; INT64_MAX: no limit */
    _Atomic int64_t valid_until_ns; /* CLOCK_BOOTTIME; INT64_MAX: it never expires */
    LIST_ENTRY(dlock_hold) of_lock; /* protected by the lock's mutex */

    /* Protected by the timekeeper's mutex. */
    bool watched;
    bool told;            /* its loss was reported */
    bool in_round;        /* TRAIT_QUORUM: dlock_extend renews it */
    bool ending;          /* it was given all that hold_max_ms allows */
    struct heap_node end; /* in timekeeper.ends */
    /* In timekeeper.waiting or .due. While a renewal for its key is under way: in
     * renewals.under_way, or in no heap. */
    struct heap_node turn;
    struct renewal *renewal_sent; /* its own renewal that is under way, or NULL */
    int lost_fd;                  /* a timer that fires at valid_until_ns; -1: not asked for yet */
};

/* The longest time that its key may live after the key was extended. */
static inline int64_t hold_longest_ms(const struct dlock_hold *hold)
{
    int64_t shared_ms = hold->shared_ms;
    return shared_ms > hold->ttl_ms ? shared_ms : hold->ttl_ms;
}

/* How to wait when the lock is busy. All zero: poll at intervals of the client's retry_ms. */
struct busy {
    enum wait_kind {
        WAIT_POLL,  /* pause, then try again */
        WAIT_LOCAL, /* until this process releases the lock */
        /* Until a message comes on the channel `source`. "0" wakes one of this client's waiters
         * that wants the lock alone; "r" wakes all that want it shared; any other message wakes
         * all. */
        WAIT_CHANNEL,
        /* Until the lock's name comes on the list `source`. A client has one list for all its
         * locks. */
        WAIT_LIST,
        /* Until the lock's name comes on the list `source`, which belongs to the lock. */
        WAIT_SIGNALS,
    } kind;
    char source[BUSY_SOURCE_MAX];
    int64_t again_ms; /* try again after this time in any case; 0: retry_ms */
    /* WAIT_CHANNEL: the waiter's user may not PUBLISH, so perhaps the holder's may not either. */
    bool no_publish;
    bool says; /* dlock_error() has a sentence about the answer */
};

enum contend {
    CONTEND_EACH, /* every waiter tries, up to `contenders` of a client at a time */
    /* One waiter of the client tries; the others wait in its queue, in order. */
    CONTEND_ONE_PER_CLIENT,
};

enum {
    TRAIT_EXPIRES = 1,    /* holds have a time to live */
    TRAIT_REENTRANT = 2,  /* the same owner may acquire again, and `depth` counts */
    TRAIT_SERVERLESS = 4, /* sends nothing: `env->redis` is NULL */
    TRAIT_TOKEN = 8,      /* sets hold->token; with TRAIT_QUORUM only if hold->wants_token */
    TRAIT_QUORUM = 16,    /* needs several servers: an odd number, 3 or more */
    TRAIT_THREAD = 128,   /* the thread that acquires must also release */
    /* The server grants the lock to the client, which hands it to its waiters in order. Needs
     * CONTEND_ONE_PER_CLIENT and TRAIT_TOKEN. One slot of a lock runs at a time. */
    TRAIT_HANDOFF = 64,
    TRAIT_SHARED = 32, /* has holds of mode DLOCK_SHARED; may answer UPGRADE */
};

struct rung_env;
struct answer;
struct request;
struct renewing;
struct votes;

/* A key beside the lock's own: "dlock:<kind>:<name>" or "dlock:<kind>={<name>}". It is in the same
 * slot of a cluster, and no other lock uses it. */
struct beside {
    const char *kind;
    const char *type; /* the type in Redis' words; or "channel" */
};
#define BESIDE_MAX 6

struct dlock_engine;

struct rung_ops {
    const char *name;
    /* The engine that it needs. NULL: Redis, or none if it sends nothing. */
    const struct dlock_engine *engine;
    unsigned traits;
    enum contend contend;
    size_t state_size; /* memory per lock and process */
    int64_t ttl_ms;    /* its holds' time to live if the client's options give none; 0: 30000 */
    /* The type of the lock's own key, in Redis' words. NULL: "zset" if the rung is re-entrant with
     * shared holds, "hash" if it is only re-entrant, else "string". */
    const char *key_type;
    struct beside beside[BESIDE_MAX + 1]; /* ended by a kind of NULL */

    /* A step is one script: send_<step> writes the request, and take_<step> reads the answer. Both
     * are pure: they may be called again for the same hold, on any thread, and must not block. A
     * script may arrive twice, and late. So it names the acquisition, and sets a state rather than
     * adding to one. A rung fills in either these or the slots below. */
    void (*send_acquire)(struct request *request, const struct dlock_hold *hold);
    /* OK; BUSY: fill in `busy`, unless polling is right. All take_ functions return UNKNOWN for an
     * answer that the script cannot give: it may belong to another request. */
    dlock_status (*take_acquire)(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy);
    void (*send_release)(struct request *request, const struct dlock_hold *hold);
    /* OK; LOST: the hold's owner no longer had the lock. */
    dlock_status (*take_release)(struct dlock_hold *hold, const struct answer *answer);
    /* Sets the time to live to `ttl` from now, in ms, but shortens no key's life. `ttl` lives as
     * long as the request. If this and `renew` are NULL, the timekeeper does not renew the rung's
     * holds. Then dlock_extend, unless the rung is flawed, extends the key that has hold->owner as
     * a field or hold->id as its value. */
    void (*send_renew)(struct request *request, const struct dlock_hold *hold, const char *ttl);
    dlock_status (*take_renew)(struct dlock_hold *hold, const struct answer *answer);
    /* The waiter leaves without the lock, after at least one BUSY or UNKNOWN. NULL: it leaves
     * nothing on the server. */
    void (*send_give_up)(struct request *request, const struct dlock_hold *hold);

    /* A slot runs on the thread that called the library, or on a worker if the acquire has no
     * thread. `renew` runs on the timekeeper's thread. Several slots may run at once for different
     * holds. A slot must not keep `env`, sleep, or block, except in CALL, EVAL and redis.h within
     * env->deadline_ns. The meaning of a NULL slot is stated at each slot. */

    /* One bounded attempt. OK: acquired. BUSY: fill in `busy`, unless polling is right. Any other
     * status as CALL or EVAL returned it: UNREACHABLE and REFUSED only if nothing is held. */
    dlock_status (*try_acquire)(struct rung_env *env, struct dlock_hold *hold, struct busy *busy);
    /* Releases the lock. OK; LOST: the owner no longer had it; otherwise the status of CALL or
     * EVAL. After UNKNOWN it is called once more, unless the rung is flawed or commands were sent
     * before it. If the first release was carried out, the second one counts once with it. */
    dlock_status (*release)(struct rung_env *env, struct dlock_hold *hold);
    /* As send_renew. OK; LOST: the owner no longer had the lock. After any other status the
     * timekeeper tries again while the hold is valid. NULL: see send_renew. */
    dlock_status (*renew)(struct rung_env *env, struct dlock_hold *hold, const char *ttl);
    /* TRAIT_QUORUM: `renew` in two halves, so that one write renews many holds: see struct
     * renewing. Neither waits for a server. */
    void (*begin_renew)(struct rung_env *env, struct dlock_hold *hold, struct renewing *renewing);
    dlock_status (*end_renew)(struct rung_env *env, struct dlock_hold *hold,
                              const struct renewing *renewing, const struct votes *votes);
    /* Called on a new connection after try_acquire answered UNKNOWN. OK: the attempt acquired the
     * lock. BUSY: it did not. NULL: the caller gets UNKNOWN. */
    dlock_status (*resolve)(struct rung_env *env, struct dlock_hold *hold);

    /* This hold has acquired the lock. If this fails, with a sentence, the core releases the lock
     * and the attempt ends with that status. NULL: nothing to begin. */
    dlock_status (*acquired)(const struct dlock_hold *hold);

    /* Frees the lock of any holder, and wakes the waiters. Answers what lua/inspect.lua would have
     * answered just before. NULL: lua/break.lua deletes the key, and wakes no waiter. */
    struct answer (*force_release)(struct rung_env *env, const char *key,
                                   const char *const *beside);
    /* The lock is opened in this process: sets up lock_state. NULL: zeros are enough. */
    void (*opened)(void *lock_state);
    /* The last dlock_close closes the lock in this process: ends what lock_state still runs. NULL:
     * it runs nothing. */
    void (*closed)(void *lock_state);
};

/* What a rung may ask of its client, and report to it. */
const char *rung_client_id(const struct dlock_hold *hold);
int64_t rung_grant_ms(const struct dlock_hold *hold);
void rung_count_expired_grant(const struct dlock_hold *hold);
void rung_count_renewal(struct dlock *lock);

/* Opens a lock under ops that are not on the ladder, for tests. */
dlock_status dlock_open_ops(dlock_client *client, const struct rung_ops *ops, const char *name,
                            dlock **lock);

#endif
