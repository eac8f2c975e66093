/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rung fills in, and what it works through. A rung is ONE attempt: straight-line code over
 * a handful of commands that never sleeps. Waiting belongs to wait.c, renewing in time to
 * timekeeper.c, deadlines and bookkeeping to acquire.c and hold.c.
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
#define BUSY_SOURCE_MAX (DLOCK_NAME_MAX + HOLD_ID_MAX + 64) /* a name, a hold and a word */

/* TRAIT_HANDOFF: what a rung that hands off needs to know of the hold besides. */
struct handoff_hold {
    uint64_t grant; /* the first token of the grant that it is of */
    uint64_t try; /* the number of this try, higher than those of all earlier ones of the client */
    uint64_t newest; /* at release: the highest token that its grant has used */
    bool more;       /* at release: others of this client wait for it */
    bool kept;       /* release sets it when it kept the lock for them, with a new `token`, a new
                        grant's first, and a full time to live */

    /* handoff.c's own. Protected by the loop's mutex. */
    bool out;        /* its grant counts it no more: */
    bool was_end;    /* it was the grant's last, and nothing of the grant's may still come */
    uint64_t got_by; /* the try that got the grant */
};

/* One acquisition. A rung reads it and may set `token`; the rest is the core's. */
struct dlock_hold {
    /* Set before try_acquire; constant after it. */
    const char *key;           /* the lock's name */
    const char *const *beside; /* the keys beside it, in the order of rung_ops.beside */
    char owner[OWNER_MAX];     /* its name in Redis: see owner.h */
    char id[HOLD_ID_MAX];      /* "<owner>#<acquisition>": this hold and no other */
    char ttl[24];              /* ttl_ms as text, for commands */
    int64_t ttl_ms;            /* want.ttl_ms or the lock's, and not more than hold_max_ms */
    uint64_t acquisition;
    enum dlock_mode mode; /* TRAIT_SHARED: how it is wanted; DLOCK_EXCLUSIVE on other rungs */
    uint64_t depth;       /* how many holds its owner has, this one included: 1, more only on
                               re-entrant rungs; set before an acquire and before a release */
    char count[24];       /* the same as text, for commands */
    void *lock_state;     /* rung_ops.state_size bytes, zero at first, shared by all holds of
                               the lock in this process */
    uint64_t token;       /* a rung with TRAIT_TOKEN sets it when it acquires */

    struct handoff_hold *handoff; /* of a rung with TRAIT_HANDOFF; else NULL */

    struct dlock *lock;
    char named_by;   /* 0: owner_id 0, it is alone under its name; 'x', 't': see owner.h */
    uint64_t number; /* of its owner, if it is named */
    uint64_t thread; /* that asked for it */

    /* Protected by the lock's mutex. */
    LIST_ENTRY(dlock_hold) of_calls;
    TAILQ_ENTRY(dlock_hold) of_turns;
    bool in_turns;
    bool leaving;            /* its release is under way, and nothing nests in it any more */
    bool lost_while_nesting; /* its owner lost the lock while it was being acquired once more */
    /* A release of its name got no answer while its own request was under way. */
    bool inherits_release;
    /* Commands of its owner may still be carried out: it is left to expire. */
    _Atomic bool must_expire;
    _Atomic int64_t shared_ms; /* the longest time that its key was given for another hold: the key
                                  may outlive this one; 0: none was */
    void *user;
    int fork_generation;
    int64_t hold_max_ms; /* 0: no limit */
    int64_t ends_ns;     /* CLOCK_BOOTTIME: no renewal reaches beyond; INT64_MAX: no limit */
    _Atomic int64_t valid_until_ns; /* CLOCK_BOOTTIME; INT64_MAX: never over */
    LIST_ENTRY(dlock_hold) of_lock; /* protected by the lock's mutex */

    /* Protected by the timekeeper's mutex. */
    bool watched;
    bool told;                    /* that it is lost */
    bool ending;                  /* it was given all that hold_max_ms allows */
    struct heap_node end;         /* in timekeeper.ends */
    struct heap_node turn;        /* in timekeeper.waiting or .due; in renewals.under_way, or in
                                     none, while a renewal is under way that is for it, too */
    struct renewal *renewal_sent; /* its own renewal that is under way, or NULL */
    int lost_fd;                  /* a timer that ends with valid_until_ns; -1: not asked for yet */
};

/* How long its key may live after it was given time, at most. */
static inline int64_t hold_longest_ms(const struct dlock_hold *hold)
{
    int64_t shared_ms = hold->shared_ms;
    return shared_ms > hold->ttl_ms ? shared_ms : hold->ttl_ms;
}

/* How to wait when the lock is busy. All zero: poll after the client's retry_ms. */
struct busy {
    enum wait_kind {
        WAIT_POLL,    /* sleep, try again */
        WAIT_LOCAL,   /* until this process releases the lock */
        WAIT_CHANNEL, /* until a message comes on the channel `source`: "0" wakes one of this
                         client's waiters that wants the lock alone, "r" all that want it shared,
                         anything else all */
        WAIT_LIST,    /* until the lock's name comes on the list `source`, of which a client has one
                         for all its locks */
    } kind;
    char source[BUSY_SOURCE_MAX];
    int64_t again_ms; /* try again after so long in any case; 0: retry_ms */
    bool no_publish;  /* WAIT_CHANNEL: its user may send no messages, so perhaps nobody does */
};

enum contend {
    CONTEND_EACH,           /* every waiter tries for itself, `contenders` of a client at a time */
    CONTEND_ONE_PER_CLIENT, /* one tries, the others of this client queue behind it, in order */
};

enum {
    TRAIT_EXPIRES = 1,    /* holds have a time to live */
    TRAIT_REENTRANT = 2,  /* the same owner may acquire again: `depth` counts */
    TRAIT_SERVERLESS = 4, /* sends nothing: `env->redis` is NULL */
    TRAIT_TOKEN = 8,      /* sets hold->token */
    TRAIT_QUORUM = 16,    /* works with several servers */
    TRAIT_THREAD = 128,   /* who acquires and who releases must be the same thread */
    TRAIT_HANDOFF = 64,   /* the client has the lock, and passes it on among its waiters in order:
                             with CONTEND_ONE_PER_CLIENT and TRAIT_TOKEN. One slot of a lock at a
                             time */
    TRAIT_SHARED = 32,    /* has holds of mode DLOCK_SHARED; may answer UPGRADE */
};

struct rung_env;
struct answer;
struct request;

/* A key beside the lock's own, "dlock:<kind>:<name>" or "dlock:<kind>={<name>}": in the same slot
 * of a cluster, and no other lock's. */
struct beside {
    const char *kind;
    const char *type; /* as Redis calls it; "channel": it is one */
};
#define BESIDE_MAX 6

struct engine;

struct rung_ops {
    const char *name;
    const struct engine *engine; /* that it works with; NULL: Redis, or none where it asks nobody */
    unsigned traits;
    enum contend contend;
    size_t state_size; /* memory per lock and process */
    int64_t ttl_ms;    /* its holds' time to live where the client's options name none; 0: 30000 */
    struct beside beside[BESIDE_MAX + 1]; /* ended by a kind that is NULL */

    /* A step is one script: send_<step> says what is sent, take_<step> what its answer means. Both
     * are pure: they may be called again for the same hold, on any thread, and must not block. A
     * script may arrive twice, and late: it names the acquisition, and says what shall be, not what
     * is to be added. Either these, or the slots below. */
    void (*send_acquire)(struct request *request, const struct dlock_hold *hold);
    /* OK; BUSY: fill in `busy` if polling is not the way. This and the others: UNKNOWN where the
     * answer is none that the script gives; it is of another request then, perhaps. */
    dlock_status (*take_acquire)(struct dlock_hold *hold, const struct answer *answer,
                                 struct busy *busy);
    void (*send_release)(struct request *request, const struct dlock_hold *hold);
    /* OK; LOST: it was not ours any more. */
    dlock_status (*take_release)(struct dlock_hold *hold, const struct answer *answer);
    /* The time to live `ttl` from now, in ms; no key's life is made shorter. `ttl` lives as long as
     * the request. NULL, and `renew` as well: the timekeeper does not renew its holds. Unless it is
     * flawed, dlock_extend gives the time to the key that has hold->owner as a field, or hold->id
     * as its value. */
    void (*send_renew)(struct request *request, const struct dlock_hold *hold, const char *ttl);
    dlock_status (*take_renew)(struct dlock_hold *hold, const struct answer *answer);
    /* The waiter leaves without the lock after at least one BUSY or UNKNOWN. NULL: it left nothing
     * behind. */
    void (*send_give_up)(struct request *request, const struct dlock_hold *hold);

    /* A slot runs on the thread that called the library, on a worker where the acquire has none;
     * `renew` on the timekeeper's. Several may run at once for different holds. None may keep
     * `env`, sleep, or block other than in CALL, EVAL and redis.h within env->deadline_ns. A NULL
     * slot means what its comment says. */

    /* One bounded attempt. OK: had. BUSY: fill in `busy` if polling is not the way. Any other
     * status as it came from CALL or EVAL: UNREACHABLE and REFUSED only when nothing is held. */
    dlock_status (*try_acquire)(struct rung_env *env, struct dlock_hold *hold, struct busy *busy);
    /* Lets go. OK; LOST when it was not ours any more; as it came from CALL or EVAL otherwise.
     * After UNKNOWN it is called once more, unless the rung is flawed or commands rode ahead: a
     * release that was carried out then counts once. */
    dlock_status (*release)(struct rung_env *env, struct dlock_hold *hold);
    /* As send_renew. OK; LOST when it is not ours any more; else the timekeeper tries again while
     * the hold is valid. NULL: as of send_renew. */
    dlock_status (*renew)(struct rung_env *env, struct dlock_hold *hold, const char *ttl);
    /* After try_acquire answered UNKNOWN, on a new connection: OK it was had, BUSY it was not.
     * NULL: the caller gets UNKNOWN. */
    dlock_status (*resolve)(struct rung_env *env, struct dlock_hold *hold);

    /* This hold has acquired the lock. Not OK, with a sentence: the core releases the lock, and the
     * try ends so. NULL: nothing begins with a hold. */
    dlock_status (*acquired)(const struct dlock_hold *hold);

    /* Frees the lock whoever holds it, and wakes those who wait; answers what lua/inspect.lua would
     * have answered just before. NULL: its key is deleted (lua/break.lua), and nobody is woken. */
    struct answer (*force_release)(struct rung_env *env, const char *key,
                                   const char *const *beside);
    /* The lock is closed in this process, by its last dlock_close: ends what lock_state still runs.
     * NULL: nothing does. */
    void (*closed)(void *lock_state);
};

/* What a rung may ask of its client, and tell it. */
const char *rung_client_id(const struct dlock_hold *hold);
int64_t rung_grant_ms(const struct dlock_hold *hold);
void rung_count_expired_grant(const struct dlock_hold *hold);
void rung_count_renewal(struct dlock *lock);

/* Opens a lock under ops that are not on the ladder, for tests. */
dlock_status dlock_open_ops(dlock_client *client, const struct rung_ops *ops, const char *name,
                            dlock **lock);

#endif
