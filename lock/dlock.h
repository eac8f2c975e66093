/* SPDX-License-Identifier: Apache-2.0
 *
 * dlock -- distributed locks over Redis, one rung of a ladder at a time.
 *
 * A CLIENT is one process' membership: one UUID, its connections, its timekeeper thread.
 * A LOCK is a name under a rung (the strategy that guards it); any number of threads share one.
 * A HOLD is ONE acquisition. Whoever has the pointer may ask it and release it, from any thread.
 *
 *     struct dlock_options options = { .size = sizeof options };
 *     dlock_client *client = NULL;
 *     dlock *lock = NULL;
 *     dlock_hold *hold = NULL;
 *     if (dlock_client_open(&options, &client) != DLOCK_OK ||
 *         dlock_open(client, NULL, "lock:{phone}", &lock) != DLOCK_OK)
 *         errx(1, "%s", dlock_error());
 *     struct dlock_want want = { .size = sizeof want, .wait_ms = 5000 };
 *     if (dlock_acquire(lock, &want, &hold) == DLOCK_OK) {
 *         if (dlock_valid(hold)) { ... the critical section ... }
 *         dlock_release(hold, NULL);
 *     }
 *     dlock_close(lock);
 *     dlock_client_close(client);
 *
 * Where no thread shall wait, the answer comes to a function: on a thread of the client's, or with
 * options.own_loop in the caller's own loop, as here:
 *
 *     void had(void *arg, dlock_status status, dlock_hold *hold)
 *     {
 *         if (status == DLOCK_OK) {
 *             ... the critical section; or begin it, and release the hold later ...
 *             dlock_release(hold, NULL);
 *         }
 *         *(bool *)arg = true;
 *     }
 *
 *     bool over = false;
 *     if (dlock_acquire_start(lock, &want, had, &over) != DLOCK_OK)
 *         errx(1, "%s", dlock_error());
 *     struct pollfd ready = { .fd = dlock_fd(client), .events = POLLIN };
 *     while (!over && poll(&ready, 1, -1) > 0)
 *         dlock_process(client);
 *
 * WHAT A LOCK CAN PROMISE.  At most one holder that is right to believe it holds, as long as clocks
 * run at nearly the same speed and Redis keeps what it acknowledged. A process that is frozen
 * between dlock_valid() and its write can still write late: only a resource that checks a token
 * refuses that. What this library does promise is notice: a hold is called lost before its time to
 * live is over on the server, also when the server does not answer.
 *
 * TIME.  All durations are milliseconds. A hold's validity is counted on CLOCK_BOOTTIME (it also
 * counts while the machine sleeps) from before its request was sent, less 1 % + 2 ms for clocks
 * that drift. Waiting is counted on CLOCK_MONOTONIC. The wall clock is never read.
 *
 * BOUNDS.  On rungs that are not flawed no call lasts longer than its wait_ms and the bound:
 * connect_timeout_ms + 2 * command_timeout_ms, 3 s by default. That covers looking the host's name
 * up, connecting, the request, and finding out what became of it. After a cancel a call ends within
 * the bound. (What a hook takes is not counted.)
 *
 * THREADS.  Every function may be called from any thread unless it says otherwise. Objects must
 * outlive the calls that use them: end all holds, then close the locks, then the client. An
 * acquire or a release that was started is such a call until its `done` has returned.
 * A client has threads of its own: its timekeeper, and up to four more once a call was started
 * or a rung waits to be woken; and one for each server whose host name is being looked up, which
 * may outlive the client. They block all signals but those of a fault (SIGSEGV, SIGBUS, SIGFPE,
 * SIGILL, SIGTRAP, SIGSYS): no other handler of the application's runs on them, not during
 * a hook or `done` either. A handler that runs on a thread inside a call does not end the call. Do
 * not end such a thread (pthread_cancel), or leave the call (longjmp). Its stack is as large as the
 * process gives its threads (RLIMIT_STACK), but at least 256 KiB. A thread that calls the library
 * needs 64 KiB of stack.
 *
 * DESCRIPTORS.  The library's may have any free number. Keep 0, 1 and 2 open: else one of them may
 * become a connection, and what the program prints goes to Redis.
 *
 * FORK.  A client belongs to the process that opened it. In a forked child every call answers
 * DLOCK_FORKED and dlock_valid() is false; open a client there. Closing or releasing an inherited
 * object in the child frees nothing and sends nothing. A cancel belongs to the process that made
 * it, too. The child inherits the library's descriptors until it calls execve: those of dlock_fd
 * and dlock_lost_fd still tell of the parent's client and hold. A child of _Fork(), or of the
 * system call alone, is not recognized: it may call execve or _exit, and nothing of this library.
 *
 * STRUCTS.  Every struct that crosses this interface begins with its size, which the caller sets to
 * sizeof; 0 is INVALID. (The library sets it in dlock_event and dlock_trace.) A field that is zero
 * means its documented default, so `= { .size = sizeof x }` is valid. A program may use a library
 * that is newer or older than the header it was compiled with. Fields that the program does not
 * know have their defaults. Fields that the library does not know must be zero in dlock_options and
 * dlock_want, else the call is INVALID. In a struct that the library fills in it leaves them as
 * they are. dlock_rung alone has no size: it is the library's, and grows with a new soname only.
 *
 * NULL.  A call that is given NULL where it needs an object does nothing. It answers INVALID, or
 * false, 0, -1, "" or NULL where it answers no status. Where NULL means something else, the
 * function says so.
 */
#ifndef DLOCK_H
#define DLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DLOCK_API __attribute__((visibility("default")))
#else
#define DLOCK_API
#endif

/* ---- Keys in Redis -------------------------------------------------------------------------- *
 * A lock's own key is its name, verbatim. Rungs that need more keep it beside the lock, in keys of
 * these forms. Applications must not use them: all keys that begin with `dlock:` are the library's.
 *
 *     dlock:<kind>:<name>       the lock's name has a hash tag: lock:{phone}
 *     dlock:<kind>={<name>}     the lock's name has no brace: jobs
 *
 * So the keys of a lock share one slot of a cluster, and two locks never share a key. For that two
 * kinds of name are INVALID: on every rung one that begins with `dlock:`; on those named below one
 * that has a brace but no hash tag, as `a{b` or `{}a`. (A hash tag is what stands between the first
 * `{` and the next `}`, if that is not empty.)
 *
 *     notify       token (string)
 *     fair         queue (list), token (string), grant (string); and dlock:wake:<client id> (list),
 *                  one for each client, which has a slot of its own
 *     read_write   holds (hash), readers, writers, invited (zsets), token (string);
 *                  messages on the channel of kind `free`
 *
 * `notify` also sends Redisson's messages: redisson_lock__channel:{<name>}, without the braces if
 * the name has one. The flawed rungs blpop_wake and rw_counter keep `blpop_wake:signals` and
 * `<name>:read_count`. Every key has a time to live, of a day at most where the lock's own is
 * shorter; those of the flawed rungs may have none. A key that holds a value of another type is
 * never changed: the call answers WRONG_TYPE, and dlock_error() names the key. A key of the lock's
 * type that is not the library's is somebody else's lock: it answers BUSY or TIMED_OUT, and nothing
 * but dlock_break changes it.
 */

/* ---- What this library does not do ----------------------------------------------------------- *
 * - TLS. `rediss://` is refused. Run a local TLS proxy such as stunnel, and give its address.
 * - Sentinel. It does not ask a Sentinel for the master. Give an address that follows the master.
 * - Cluster. It follows no redirect: MOVED and ASK are REFUSED. Give the node that serves the
 *   lock's slot.
 *   Wake-ups are sent by PUBLISH, never by SPUBLISH: a peer that listens on a shard hears none.
 *   Waiters of `fair` poll if their wake list belongs to another node.
 * - Several servers. Every rung of this release keeps its lock on one server. There is no quorum.
 * - Failover. Redis acknowledges before it replicates, and the library does not wait for replicas.
 *   A promoted replica may not know the lock, nor a server that restarts without its last writes.
 *   Another client then acquires it while the first holder is still valid. And a token of `fair`
 *   may come twice, where a server restarts within grant_ms with a grant that was taken since.
 * - The server's clock. Redis ends a time to live by its own wall clock. If that clock jumps
 *   forward, the server frees the lock while its holder is still valid.
 * - The server's memory. Under a maxmemory-policy other than `noeviction` Redis may evict a lock.
 * - Other systems than Linux.
 */

/* ---- Version -------------------------------------------------------------------------------- */

#define DLOCK_VERSION "0.2.0" /* of the header that a program is compiled with */

/* The version of the library that it runs with. Never NULL; static storage. */
DLOCK_API const char *dlock_version(void);

/* ---- Statuses ------------------------------------------------------------------------------- *
 * X(name, definite, text). Definite: what the status says is known to be so. UNKNOWN is the one
 * that is not: the request may have been carried out, because its reply was lost. It is never the
 * same as "failed".
 */
#define DLOCK_STATUS_MAP(X)                                                                        \
    X(OK, true, "done")                                                                            \
    X(BUSY, true, "another holder has the lock")                                                   \
    X(TIMED_OUT, true, "the lock was not had within the limit")                                    \
    X(CANCELLED, true, "the wait was cancelled")                                                   \
    X(LOST, true, "the hold was lost before it was released: it expired or another took it")       \
    X(UNKNOWN, false, "the reply was lost: the request may have been carried out")                 \
    X(UNREACHABLE, true, "no server could be reached: nothing was sent")                           \
    X(REFUSED, true, "the server refused the request")                                             \
    X(WRONG_TYPE, true, "the lock's key holds something else")                                     \
    X(FLAWED, true, "this rung is flawed: set allow_flawed to use it")                             \
    X(INVALID, true, "an argument is not valid")                                                   \
    X(UNSUPPORTED, true, "this rung cannot do that")                                               \
    X(UPGRADE, true, "its owner holds the read lock, which cannot become the write lock")          \
    X(LIMIT, true, "a documented limit was reached")                                               \
    X(NO_MEMORY, true, "out of memory or threads")                                                 \
    X(FORKED, true, "the client belongs to the parent process")

typedef enum dlock_status {
#define X(name, definite, text) DLOCK_##name,
    DLOCK_STATUS_MAP(X)
#undef X
} dlock_status;

/* The status as a word ("TIMED_OUT"), as a sentence, and whether it is definite.
 * A number that is no status gives "?", "no such status", false. Never NULL; static storage. */
DLOCK_API const char *dlock_status_name(dlock_status status);
DLOCK_API const char *dlock_status_text(dlock_status status);
DLOCK_API bool dlock_status_definite(dlock_status status);

/* A sentence about this thread's latest call that failed: it answered another status than DLOCK_OK,
 * or NULL or -1 where it says so. The sentence names the server, the key or the argument. It has
 * 511 bytes at most; "..." stands for a middle that is left out. Valid until this thread's next
 * dlock call. Never NULL; "" before the first such call. */
DLOCK_API const char *dlock_error(void);

/* ---- The ladder ----------------------------------------------------------------------------- */

struct dlock_rung {
    const char *name; /* "owner_lua" */
    bool flawed;      /* kept for teaching; refused unless dlock_options.allow_flawed */
    bool distributed; /* it asks a server: it excludes other processes, too */
    bool expires;     /* its holds have a time to live */
    bool renewed;     /* the timekeeper renews its holds */
    bool reentrant;   /* the same owner may acquire again */
    bool handoff;     /* a release passes it to the next of the client's waiters, in their order */
    bool tokens;      /* its holds have one, see dlock_token */
    bool shared;      /* it has holds of mode DLOCK_SHARED, see dlock_want */
    const char *adds; /* what it adds to the rung before it */
    const char *flaw; /* what still breaks it */
};

/* All rungs in learning order; *count is set to their number, unless count is NULL. Static
 * storage. */
DLOCK_API const struct dlock_rung *dlock_rungs(size_t *count);

/* The rung of that name, or NULL. NULL asks for the default, "watchdog". */
DLOCK_API const struct dlock_rung *dlock_rung_find(const char *name);

/* ---- Client --------------------------------------------------------------------------------- */

typedef struct dlock_client dlock_client;
typedef struct dlock dlock;
typedef struct dlock_hold dlock_hold;
typedef struct dlock_cancel dlock_cancel;
typedef struct dlock_batch dlock_batch;

enum dlock_event_kind {
    DLOCK_EVENT_RENEWED,        /* a renewal was confirmed; said of one of those that share a key */
    DLOCK_EVENT_RENEWAL_FAILED, /* a renewal was not confirmed; it is tried again while valid */
    DLOCK_EVENT_LOST,           /* the hold is not valid any more; said once per hold */
    /* Of a server, not of a hold; said once until the next of the three. */
    DLOCK_EVENT_CONNECTION_LOST,    /* a connection broke in use, or none could be made */
    DLOCK_EVENT_CONNECTION_REFUSED, /* it refuses the login, or is read-only, or refuses to say when
                                       locks are released: then waiters poll */
    DLOCK_EVENT_CONNECTION_RESTORED, /* it answered a command, and nothing of this is left */
};

/* Told by the client's timekeeper, about a hold, or about a server: then `name`, `rung`, `owner`
 * and `user` are NULL, and `reason` begins with the server's URL. The pointers live as long as the
 * call. */
struct dlock_event {
    size_t size;
    enum dlock_event_kind kind;
    const char *name;     /* the lock's name */
    const char *rung;     /* its rung */
    const char *owner;    /* the hold's owner, as dlock_owner() */
    uint64_t acquisition; /* the hold's number, as dlock_acquisition() */
    int64_t remaining_ms; /* what is left of its validity; 0 with LOST */
    const char *reason;   /* one sentence */
    void *user;           /* dlock_want.user of the acquisition */
};

/* One command and its reply, for teaching and tests. The pointers live as long as the call. */
struct dlock_trace {
    size_t size;
    const char *server; /* the URL it was sent to, without its password */
    const char *sent;   /* as redis-cli would take it; arguments over 80 bytes are cut */
    const char *reply;  /* as redis-cli would print it; "(lost)" when none came */
    int64_t took_us;    /* from before the send to after the reply */
    void *user;         /* dlock_want.user of the acquisition that it was sent for; NULL: of none, a
                           renewal or a wake-up */
};

struct dlock_options {
    size_t size;

    /* Redis servers: redis://[[user]:password@]host[:port][/db] or
     * unix:[[user]:password@]path[?db=N] or unix:///path. User, password and path may be
     * %-encoded. These must be: a '%' anywhere, a ':' in a user, a '/' in a login of redis://, a
     * '?' or '@' in one of unix, a '?' in a path, and a ':' or '@' in a path that does not begin
     * with '/'. An IPv6 host stands in brackets. A port is 1 to 65535, a database 0 to 99999; a
     * path has 107 bytes at most.
     * One for every rung of this release; several, 16 at most, are for rungs that need several.
     * Beside the rungs' own commands the user may be allowed CLIENT ID, CLIENT KILL and INFO: after
     * a lost reply a new connection has the server end the broken one, so that what was sent on it
     * cannot be carried out later. Where they are refused, it may be.
     * `notify` and `read_write` tell waiters by PUBLISH, and hear by SUBSCRIBE. A new user of Redis
     * 7 has no channels: where either is refused to a waiter's user, the waiter polls. Before Redis
     * 7, and where only another user releases who may not PUBLISH, waiters look every 5 s.
     * Default: one, redis://127.0.0.1:6379/0, if servers is NULL and server_count is 0. Either
     * without the other is INVALID. */
    const char *const *servers;
    size_t server_count;

    int64_t connect_timeout_ms; /* to connect and log in. Default 1000, 1 to 60000 */
    int64_t command_timeout_ms; /* from send to reply. Default 1000, 1 to 60000 */
    int64_t ttl_ms;             /* a hold's time to live, where dlock_want.ttl_ms is 0. Default the
                                   rung's: 30000, of `fair` 3000; 100 to 86400000 */
    int64_t retry_ms;           /* pause of the rungs that poll, half as long more or less by
                                   chance; a release by this client ends it for one waiter.
                                   Default 20, 1 to 60000 */
    size_t connections_max;     /* per server, the timekeeper's and those that hear wake-ups not
                                   counted. Default 64, 1 to 10000; a call that finds none free
                                   waits for one */
    bool allow_flawed;          /* accept rungs that are known to break. Default false */

    /* Called on the timekeeper's thread, one call at a time: must not block and must not call
     * dlock_acquire, dlock_extend, dlock_release, dlock_abandon or dlock_client_close; may look at
     * holds, and start acquires and releases. Default NULL: nobody is told. */
    void (*on_event)(void *arg, const struct dlock_event *event);
    void *on_event_arg;

    /* Called at named points of the code (of rung "owner_check": "between_get_and_del"), on the
     * thread that passes them; may block or end the process. Default NULL. For demonstrations and
     * tests. */
    void (*on_point)(void *arg, const char *rung, const char *point);
    void *on_point_arg;

    /* Called after every command, on the thread that sent it; must not call into the client.
     * Default NULL. For demonstrations and tests. */
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;

    size_t contenders;  /* of the rungs that poll: how many waiters of this client try for a lock,
                           the others stand in line behind them. Default 16, 1 to 10000 */
    size_t waiters_max; /* acquires that were started and are not over. Default 100000,
                           1 to 1000000. Two more kinds have this limit, each for itself: acquires
                           that nest, and requests of acquires that are over, which the client
                           takes back in the background; beyond it locks and places expire */
    bool own_loop;      /* answers of started acquires wait for dlock_process(), and a lock that was
                           had is held meanwhile. Default false: they are given on a thread of the
                           client's */

    /* Rungs that hand the lock on in order (`fair`). A client that has the lock gives it to its own
     * waiters, in order, so many times and so long at most (and never longer than a 20th of the
     * time to live) before the next client's turn; 1 alternates strictly. */
    size_t handoff_max; /* Default 64, 1 to 1000 */
    int64_t handoff_ms; /* Default 10, 1 to 60000 */
    int64_t grant_ms;   /* how long this client may take to answer when its turn has come: longer
                           than its round trip and its pauses. `fair`: to claim a lock
                           that it was granted, before the next client has its turn. `read_write`:
                           its waiting readers, to come in before the next writer; and each of its
                           waiters, to ask once more before it counts as gone. Default 200, 10 to
                           60000 */
};

/* Opens a client: makes its UUID and starts its timekeeper. No server is contacted yet: whether
 * one is there shows at the first acquire.
 * options: NULL means all defaults; copied, nothing in it is used after the call (but the hooks).
 * OK; INVALID (a URL or a number; dlock_error() says which and what would be right); NO_MEMORY.
 * Unless OK, *client is NULL. */
DLOCK_API dlock_status dlock_client_open(const struct dlock_options *options,
                                         dlock_client **client);

/* Stops the timekeeper and closes the connections; waits for a hook that runs. All holds must be
 * ended and all locks closed before. What goes on in the background has been tried once by the
 * return, within the bound; if in vain, its lock is left to expire. NULL is allowed. Not from a
 * hook or from `done`. */
DLOCK_API void dlock_client_close(dlock_client *client);

/* The client's UUID, 36 characters; lives as long as the client. */
DLOCK_API const char *dlock_client_id(const dlock_client *client);

/* Counts since the client was opened. */
struct dlock_stats {
    size_t size;
    uint64_t acquired;         /* holds given out */
    uint64_t attempts;         /* tries of a rung, the successful ones included */
    uint64_t released;         /* releases that answered OK */
    uint64_t renewals;         /* renewals that were confirmed */
    uint64_t renewals_failed;  /* renewals that were not */
    uint64_t lost;             /* holds called lost */
    uint64_t unknown;          /* calls that answered UNKNOWN */
    uint64_t commands;         /* commands sent */
    uint64_t connects;         /* connections made, reconnects included */
    uint64_t scripts_loaded;   /* sent in full: the server did not know them, or might not */
    uint64_t contended;        /* acquires that found the lock busy and had to wait, or gave up */
    uint64_t handoffs;         /* holds that came from another of this client, without the
                                   server */
    uint64_t missed_wakeups;   /* holds had by looking after a while, not by being woken: who had
                                   the lock died, or the message was lost */
    uint64_t grants_expired;   /* clients found that were given the lock and did not answer in
                                   time */
    uint64_t connects_failed;  /* attempts to connect that failed */
    uint64_t connections_lost; /* DLOCK_EVENT_CONNECTION_LOST, told or not */
    uint64_t connections_refused;  /* DLOCK_EVENT_CONNECTION_REFUSED */
    uint64_t connections_restored; /* DLOCK_EVENT_CONNECTION_RESTORED */
    uint64_t abandoned;            /* holds that dlock_abandon ended */
};
/* Fills in *stats. Each count is exact, together they are not one instant's. */
DLOCK_API void dlock_client_stats(const dlock_client *client, struct dlock_stats *stats);

/* ---- Lock ----------------------------------------------------------------------------------- */

#define DLOCK_NAME_MAX 512 /* bytes of a lock's name */

/* Opens a lock: no server is contacted.
 * rung: a name of the ladder, NULL for the default. name: the key in Redis, verbatim (no prefix is
 * added), 1 to DLOCK_NAME_MAX bytes; copied.
 * Every dlock of one client with one rung and one name is the same lock, `local` included.
 * OK; INVALID (no such rung: dlock_error() lists them; name empty, too long, or one that "Keys in
 * Redis" rules out; several servers, and the rung works with one); FLAWED; NO_MEMORY; FORKED.
 * Unless OK, *lock is NULL. */
DLOCK_API dlock_status dlock_open(dlock_client *client, const char *rung, const char *name,
                                  dlock **lock);

/* Closes it; its holds must be ended and its acquires over before. NULL is allowed. Of
 * `watchdog_timer` the last close ends the timers that are left, and waits for a request under
 * way. */
DLOCK_API void dlock_close(dlock *lock);

/* Its name, and what is known of its rung; both live as long as the lock. */
DLOCK_API const char *dlock_name(const dlock *lock);
DLOCK_API const struct dlock_rung *dlock_rung_of(const dlock *lock);

/* Who holds a lock at this moment, as the server says. */
struct dlock_holder {
    size_t size;
    bool held;
    char owner[128]; /* as the holder wrote it, cut to fit; "" when nobody holds it, or when the
                         holder wrote nothing; see dlock_owner */
    int64_t ttl_ms;  /* what is left on the server; -1: the key never expires */
};
/* Asks the server. OK; UNSUPPORTED (`none`, `local`: no server knows them); WRONG_TYPE (the key
 * holds something that the lock's rung does not keep: dlock_error() says what); UNREACHABLE;
 * UNKNOWN (no answer); REFUSED; LIMIT; INVALID; FORKED.
 * Several servers are asked at once. Held: a majority of all of them names the same owner; ttl_ms:
 * for how long a majority does. Not held: nobody can have a majority, whatever those say that did
 * not answer; else UNREACHABLE, or UNKNOWN where one was asked. */
DLOCK_API dlock_status dlock_inspect(dlock *lock, struct dlock_holder *holder);

/* Frees the lock, whoever holds it, and wakes those who wait for it: for operators, when a holder
 * is known to be gone, or must be overruled. A holder that lives is not asked: the next one enters
 * while it is still in its section. Its hold is called lost at its next renewal, or found lost at
 * its release. On `fair` its client asks nobody when its owner acquires once more or its next
 * waiter takes over (handoff_ms): until a renewal or a release shows the loss, it goes on so.
 * broken: who held it, as dlock_inspect would have said just before; `held` false: nobody
 * did, or, with several servers, no majority of them named one. (Of
 * `read_write` what expired holds have left is removed then: the members of the key whose score,
 * the end of a time to live, is past.) NULL: not asked for.
 * As dlock_inspect, but UNKNOWN: it may have been freed. Then inspect it before breaking it again:
 * the next holder may have it. WRONG_TYPE: the key is left as it is. With several servers OK says
 * that no majority is left, and UNKNOWN that one was not freed, or did not answer. */
DLOCK_API dlock_status dlock_break(dlock *lock, struct dlock_holder *broken);

/* ---- Acquire and release --------------------------------------------------------------------- */

#define DLOCK_WAIT_FOREVER (-1)
#define DLOCK_THIS_THREAD UINT64_MAX /* an owner_id: the thread that makes the call */

enum dlock_mode {
    DLOCK_EXCLUSIVE, /* nobody else holds it: every rung; the write lock of one that has two */
    DLOCK_SHARED,    /* others may hold it so, too: the read lock of `read_write` and
                        `rw_counter` */
};

struct dlock_want {
    size_t size;

    /* 0 (default): one try. > 0: no try begins later than so many ms from the call; a request that
     * is under way then is not cut off, since it may have worked: it ends within
     * command_timeout_ms. DLOCK_WAIT_FOREVER (any number below 0): until had or cancelled. */
    int64_t wait_ms;

    /* On whose behalf. 0 (default): of this acquisition alone; nothing nests in it. A number of the
     * caller's, or DLOCK_THIS_THREAD: on rungs that are re-entrant, an owner that holds the lock
     * acquires it again at once, and the last of its releases frees it. Its calls may come from any
     * threads: each waits for the answers to those that came before it. Only where a started call
     * found no thread for 250 ms, others that have one go first, in any order.
     * The name (see dlock_owner) is "<client id>:<n>", "<client id>:x<owner id>.<n>" or
     * "<client id>:t<thread>.<n>", n being the number of the outermost acquisition: a name is used
     * once, so no command that arrives late can meet a later acquisition. (Flawed rungs leave out
     * ".<n>".) */
    uint64_t owner_id;

    dlock_cancel *cancel; /* another thread can end the wait with it. Default NULL */
    dlock_batch *reads;   /* sent with the acquire, see dlock_batch. Default NULL */
    void *user;           /* handed to on_event and on_trace. Default NULL */
    enum dlock_mode mode; /* Default DLOCK_EXCLUSIVE */

    /* This hold's time to live: each renewal, and dlock_extend, gives it so much again. On a rung
     * that does not renew, the hold ends after it. Holds of one owner share one key in Redis. The
     * key lives as long as the longest of them needs; each hold is believed for its own time to
     * live. What one of them has asked for stays until the last one is released. On `fair` a hold
     * that nests, or that was passed on inside the client, sends nothing: until its first renewal
     * it is believed for what is left of the client's time. Default 0: dlock_options.ttl_ms, or the
     * rung's; 100 to 86400000. UNSUPPORTED on rungs that do not expire. */
    int64_t ttl_ms;

    /* The hold ends so long after it was acquired, less the drift allowance, whatever renews or
     * extends it. It is then lost like any other, and its LOST event says why. The last renewal
     * asks only for the time that is left, so that Redis frees the lock then, too, unless another
     * hold of its owner has asked for longer. Default 0: no limit; 100 to 31536000000. UNSUPPORTED
     * on rungs that do not expire. */
    int64_t hold_max_ms;

    /* Caps the whole call, what follows wait_ms as well: no answer comes later than so many ms
     * after it began. A request that is under way then is given up, which costs its connection.
     * Default 0: wait_ms and the bound; 1 to 31536000000. */
    int64_t call_max_ms;
};

/* Acquires the lock. want: NULL means all defaults, one try.
 * OK         *hold is set; release it with dlock_release.
 * BUSY       wait_ms is 0 and another holds it, or its answer came when its time to live was over,
 *            or this client's last hold of it is left to expire, or others of this client wait for
 *            it already (both `fair`, see dlock_abandon).
 * TIMED_OUT  not acquired within wait_ms, also where the server received a request and answered
 *            nothing. The caller holds nothing: what a request that was not answered may have
 *            locked is released in the background, or expires.
 * CANCELLED  dlock_cancel_now() was called, be it before this call; a request under way is awaited
 *            first, as above. The caller holds nothing, as with TIMED_OUT.
 * LOST       this owner acquired the lock before and nests, but the server says that it has not the
 *            lock any more: it expired, was broken, or the server lost its data. All holds of this
 *            owner are lost at once, and nothing was acquired. Release them, and acquire anew.
 * UNKNOWN    a reply was lost, and it could not be found out what became of the request: with
 *            wait_ms 0, and on rungs that are flawed or do not expire. The caller holds nothing;
 *            the lock may stay locked until its time to live is over (for ever on rungs that do not
 *            expire). After a lost reply a new connection has the server end the old one, and the
 *            request is sent again: so this is rare while a server answers. Where the server does
 *            not end it (another process answers, or CLIENT KILL is refused) the acquire goes on
 *            under another name, and what the old request locks expires.
 * UNREACHABLE no server could be reached; with wait_ms no server answered all that time. Until a
 *            server answers a command, this client connects to it once in a pause, from 10 ms to
 *            0.4 s, longer each time. After a failure a try during the pause gets this answer at
 *            once; before one it waits for the pause, or until the server answers.
 * REFUSED    dlock_error() quotes the server. LOADING, BUSY, CLUSTERDOWN, TRYAGAIN, MASTERDOWN,
 *            READONLY, OOM, NOREPLICAS and MISCONF are tried again while there is time, less and
 *            less often; so is a server that has no room for one more client (UNREACHABLE).
 * WRONG_TYPE the key holds something else; on `owner_lua`, whose SET does not look, it is seen when
 *            the wait is over.
 * UPGRADE    DLOCK_EXCLUSIVE, and this owner holds the lock shared; or, without an owner_id of the
 *            caller's, the calling thread does (dlock_acquire alone looks at that). It would wait
 *            for itself, and two that both did so for each other. Release the shared hold first.
 * LIMIT      no connection was free (connections_max); with wait_ms 0, calls of this client or
 *            owner that came before this one left it no time; on `fair`, the holder has acquired
 *            the lock 1000 times since the server gave it; on `watchdog_timer`, 1000 timers run; on
 *            `reentrant_tls`, the calling thread holds another lock.
 * UNSUPPORTED DLOCK_SHARED on a rung that has no shared holds; ttl_ms or hold_max_ms on a rung that
 *            does not expire.
 * INVALID    want->mode is neither mode; a time is out of its range; or see STRUCTS and NULL.
 * NO_MEMORY, FORKED. Unless OK, *hold is NULL and nothing is held, UNKNOWN excepted.
 *
 * On rungs that are not flawed dlock_error() also says of BUSY and TIMED_OUT who holds the lock and
 * for how long still, of WRONG_TYPE what the key holds and what it would have to. For that the
 * server is asked once more, when all else is over: not beyond the moment when a try that began at
 * the limit would be over, and at a lock that is busy once per retry_ms, so that tries in a loop
 * cost what they cost. Who fails in between, or in line behind others of this client, is told what
 * was seen last, and how long ago. Where the server does not say, it is left out. */
DLOCK_API dlock_status dlock_acquire(dlock *lock, const struct dlock_want *want, dlock_hold **hold);

/* How a started acquire ended: the status, with its sentence in dlock_error() for as long as the
 * call lasts, and the hold when it is OK, NULL otherwise. The hold is the callee's: to be released,
 * then or later, on any thread. */
typedef void dlock_done(void *arg, dlock_status status, dlock_hold *hold);

/* Starts to acquire the lock and returns at once. Waiters need no thread: ten thousand of them are
 * as many structs in memory, served by a few threads and connections of the client's.
 * want: as dlock_acquire, and copied; `cancel` and `reads` must live until `done` was called.
 * OK         `done` is called exactly once, with any answer of dlock_acquire: on one of the
 *            client's threads, perhaps before this returns; with dlock_options.own_loop by
 *            dlock_process. It may release holds and start acquires, but must not block otherwise:
 *            others wait behind it.
 * UNSUPPORTED as dlock_acquire; or the rung (`reentrant_tls`) counts in the memory of the thread
 *            that acquires.
 * LIMIT      waiters_max.
 * INVALID    as dlock_acquire; or `done` is NULL.
 * NO_MEMORY, FORKED. Unless OK, `done` is not called. */
DLOCK_API dlock_status dlock_acquire_start(dlock *lock, const struct dlock_want *want,
                                           dlock_done *done, void *arg);

/* With dlock_options.own_loop. A descriptor that is readable when dlock_process has something to
 * do, for poll() and the like: wait for it, but do not read or close it; lives as long as the
 * client; -1 without own_loop and in a forked child. And: calls `done` of the acquires that are
 * over by now, on the calling thread; returns how many. Never waits. */
DLOCK_API int dlock_fd(const dlock_client *client);
DLOCK_API size_t dlock_process(dlock_client *client);

/* Releases the hold and frees it, whatever the answer: the pointer is dead after the call. It is
 * not renewed from here on, and no event is told of it after the call.
 * last: commands sent just before the release in the same write, or NULL.
 * OK         released, or of a nested hold: its owner has one less.
 * LOST       the hold was lost before. Nothing of anybody else's was freed. On rungs that are not
 *            flawed `last` is not sent once the loss is known. The release itself is sent only if
 *            the lock was given another hold's time, too, and may live on for that.
 * UNKNOWN    the reply was lost. Without `last`: the release goes on in the background, until the
 *            lock has expired. With `last`: nobody knows whether its commands were carried out; if
 *            the server confirmed that they cannot come later, the lock was released, else it is
 *            left to expire, so that they meet no other holder; unless the server hangs for longer
 *            than that, has them already, and goes on with another's acquire first.
 *            Or: an earlier command of this owner may still be carried out, so the lock is left to
 *            expire; dlock_batch_reply() has the replies to `last`.
 * UNREACHABLE, LIMIT, REFUSED, NO_MEMORY  nothing was sent, or it was refused: `last` was not
 *            carried out, or dlock_batch_reply() has its replies. The release goes on in the
 *            background likewise; not where the lock is left to expire. LIMIT: no connection was
 *            free, or calls of this client that came first left it no time.
 * WRONG_TYPE left to expire.
 * FORKED, INVALID (hold is NULL).
 * After a lost reply the release is sent once more on a new connection, and counts once; not on
 * rungs that are flawed. OK after a second release means: the lock was free, and the hold valid;
 * whoever breaks the lock or empties the server at that very moment is not noticed.
 * Ends within the bound. */
DLOCK_API dlock_status dlock_release(dlock_hold *hold, dlock_batch *last);

/* Starts to release the hold and returns at once; the pointer is dead after the call, if it answers
 * OK. `last` must live until `done` was called.
 * OK         `done` is called exactly once, with any answer of dlock_release and NULL for a hold,
 *            as dlock_acquire_start says. Until then the hold may be renewed, and told of in
 *            events.
 * UNSUPPORTED the rung (`reentrant_tls`) counts in the memory of the thread that acquired.
 * NO_MEMORY, FORKED, INVALID (hold or `done` is NULL). Unless OK, `done` is not called, and the
 * hold stays as it is. */
DLOCK_API dlock_status dlock_release_start(dlock_hold *hold, dlock_batch *last, dlock_done *done,
                                           void *arg);

/* Ends the hold and frees it, but does not release the lock: nobody has it before it has expired on
 * the server: at most the longest time to live later that a hold of its owner asked for, and not
 * before the other holds of its owner have ended. For a holder that can't know whether a command of
 * its own may still be carried out: a late one would meet the next holder. Sends nothing, waits for
 * no answer; the hold is not renewed from here on, and no event is told of it after the call.
 * Other holds of the same owner stay valid. The last of them does not release the lock either: its
 * release answers UNKNOWN, and the lock expires. Until then it is kept as it is: an abandoned write
 * keeps readers out while its owner reads on. On `fair` the hold was the client's: waiters of this
 * client do not ask before a time to live and a hundredth of it are over, the longest that its
 * holds asked for since the server gave it the lock. (A renewal that was under way and came late
 * may keep the lock for longer; then one of them, but no other client's, has it before its end.)
 * OK; LOST (the hold was over before; it is freed, too. Holds that its owner nested with it, and
 * that are valid, are left to expire all the same; else the lock may live on for another hold's
 * time, where dlock_release would let it go). UNSUPPORTED (the rung does not expire, or is flawed:
 * release the hold), FORKED, INVALID (hold is NULL): the hold stays as it is. */
DLOCK_API dlock_status dlock_abandon(dlock_hold *hold);

/* Extends the hold: its whole time to live again, counted from just before the request is sent, but
 * not beyond hold_max_ms. Other holds of its owner are extended as well, each for at most its own
 * time to live. Nothing is ever shortened. It blocks; rungs that renew need it only to have a full
 * time to live before a long step. Call it on a hold that no other thread ends meanwhile.
 * OK; LOST (the hold was over, or the server says that its owner does not hold the lock);
 * UNSUPPORTED (the rung does not expire, or is a flawed one that cannot extend); FORKED; INVALID
 * (hold is NULL). The hold stays as it is after: UNKNOWN (no reply: the key may live longer than
 * the hold); UNREACHABLE, LIMIT, REFUSED, NO_MEMORY, WRONG_TYPE.
 * It first waits for the answer to another request of its owner, if one is under way: LIMIT if
 * others always were first, UNREACHABLE if no answer comes. Ends within the bound. */
DLOCK_API dlock_status dlock_extend(dlock_hold *hold);

/* Whether the hold is still to be believed: a load and a clock read, no network. False from the
 * moment its validity is over, before the server frees it. Always true on rungs that do not
 * expire. */
DLOCK_API bool dlock_valid(const dlock_hold *hold);

#define DLOCK_NEVER_EXPIRES INT64_MAX
/* What is left of the hold's validity, 0 when it is over; DLOCK_NEVER_EXPIRES on rungs without. */
DLOCK_API int64_t dlock_remaining_ms(const dlock_hold *hold);

/* A descriptor for poll() and the like, made when first asked for: readable as soon as
 * dlock_valid() is false, and as long as it is. The kernel keeps that moment, no thread of the
 * library need run for it: it comes while the server hangs, and is there at once where the hold was
 * lost before, the machine slept or the process was stopped and goes on. Never readable on rungs
 * that do not expire.
 * It is the hold's, the same for every call: wait for it, but do not read, set or close it.
 * The end of the hold closes it: take it out of what you wait for before, since its number may be
 * used again then. -1: no descriptor is left, or the client is the parent process'; dlock_error()
 * says which. */
DLOCK_API int dlock_lost_fd(dlock_hold *hold);

/* The owner's name: "<client id>:<n>", or as dlock_want.owner_id says; lives as long as the hold.
 * The lock's key, and so dlock_holder.owner, has the same name, except: on `owner_lua` it ends with
 * '#' and dlock_acquisition(); on `fair` it is the client id alone; flawed rungs differ. To ask
 * whether this client holds a lock compare the first 36 bytes with dlock_client_id(). */
DLOCK_API const char *dlock_owner(const dlock_hold *hold);

/* The acquisition's number: unique within the client, grows. */
DLOCK_API uint64_t dlock_acquisition(const dlock_hold *hold);

/* A number that grows with every acquisition of the lock, over all clients; 0: this rung has
 * none. */
DLOCK_API uint64_t dlock_token(const dlock_hold *hold);

/* ---- Cancel ---------------------------------------------------------------------------------- */

/* A switch that ends waits. One may serve many calls, of any clients; once thrown it stays thrown.
 * dlock_cancel_new: NULL when out of memory or descriptors; each takes one. dlock_error() says
 * which.
 * dlock_cancel_now throws it and returns; the waits end soon after. Safe from any thread and from a
 * signal handler. In a forked child it does nothing to a cancel of the parent's, so that a handler
 * which the child inherited ends no wait of the parent. An acquire that is given such a cancel
 * answers FORKED.
 * dlock_cancel_free: when no call uses it any more. NULL is allowed. */
DLOCK_API dlock_cancel *dlock_cancel_new(void);
DLOCK_API void dlock_cancel_now(dlock_cancel *cancel);
DLOCK_API void dlock_cancel_free(dlock_cancel *cancel);

/* ---- Batch ----------------------------------------------------------------------------------- *
 * Commands that ride on the lock's own connection and in its own write: reads behind the acquire's
 * first command, writes ahead of the release's. They cost no round trip of their own. On `none` and
 * `local` they are sent alone. The library does not look into them; with several servers they go
 * to the first. A batch belongs to one call at a time.
 */
#define DLOCK_BATCH_MAX 64 /* commands in one batch */

enum dlock_reply_kind {
    DLOCK_REPLY_NONE, /* no reply: not sent, or lost */
    DLOCK_REPLY_NIL,
    DLOCK_REPLY_INTEGER,
    DLOCK_REPLY_TEXT,
    DLOCK_REPLY_ERROR, /* text holds what Redis said */
    DLOCK_REPLY_OTHER, /* an array: not taken apart */
};
struct dlock_reply {
    size_t size;
    enum dlock_reply_kind kind;
    int64_t integer;
    const char *text; /* bytes, NUL-terminated; lives until the batch is cleared, sent or freed */
    size_t text_size;
};

/* dlock_batch_new: a batch without commands; NULL with a sentence in dlock_error() when out of
 * memory. dlock_batch_free ends it; NULL is allowed. dlock_batch_clear takes its commands out. */
DLOCK_API dlock_batch *dlock_batch_new(void);
DLOCK_API void dlock_batch_free(dlock_batch *batch);
DLOCK_API void dlock_batch_clear(dlock_batch *batch);
/* Adds a command; arguments are copied. sizes NULL: they are NUL-terminated.
 * The connection is shared. A command is INVALID if it changes the connection's state (MULTI,
 * WATCH, SELECT, AUTH, HELLO, RESET, QUIT, CLIENT and the like), if it waits (BLPOP, WAIT, XREAD
 * BLOCK and the like), or if it gets more or fewer replies than one (SUBSCRIBE, UNSUBSCRIBE,
 * MONITOR, REPLCONF, SHUTDOWN, DEBUG and the like). A script does what MULTI does. Commands that
 * the server has renamed are not recognized: none of these may ride under another name.
 * A reply may have up to 1 MiB: of a larger one the connection is given up, and it counts as lost.
 * OK, INVALID (also: argc is not 1 to 1048576; an argument is NULL, or has more than 512 MiB),
 * LIMIT (the batch is full), NO_MEMORY. */
DLOCK_API dlock_status dlock_batch_add(dlock_batch *batch, int argc, const char *const *argv,
                                       const size_t *sizes);
/* The reply of the command that was added as number `index`, from 0. After an acquire it counts
 * only when that answered OK. OK, INVALID (no such command; reply->size is 0). */
DLOCK_API dlock_status dlock_batch_reply(const dlock_batch *batch, size_t index,
                                         struct dlock_reply *reply);

#ifdef __cplusplus
}
#endif

#endif
