/* SPDX-License-Identifier: Apache-2.0
 *
 * dlock -- distributed locks over Redis, one rung of a ladder at a time.
 *
 * A CLIENT is one process's membership: one UUID, its connections, and a thread that renews its
 * holds and reports lost ones, the timekeeper.
 * A LOCK is a name and a rung. The rung is the kind of lock. Any number of threads share a lock.
 * A HOLD is one acquisition. Any thread that has its pointer may ask it and release it.
 * An OWNER is the party that a hold belongs to: one acquisition, a thread, or a number of yours.
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
 * To wait without blocking a thread, pass a callback. The client calls it on a thread of its own.
 * With options.own_loop your own event loop calls it, as here:
 *
 *     void acquired(void *arg, dlock_status status, dlock_hold *hold)
 *     {
 *         if (status == DLOCK_OK) {
 *             ... the critical section; or begin it, and release the hold later ...
 *             dlock_release(hold, NULL);
 *         }
 *         *(bool *)arg = true;
 *     }
 *
 *     bool over = false;
 *     if (dlock_acquire_start(lock, &want, acquired, &over) != DLOCK_OK)
 *         errx(1, "%s", dlock_error());
 *     struct pollfd ready = { .fd = dlock_fd(client), .events = POLLIN };
 *     while (!over && poll(&ready, 1, -1) > 0)
 *         dlock_process(client);
 *
 * WHAT A LOCK CAN PROMISE.  At most one hold is valid at a time (exclusive holds; see
 * DLOCK_SHARED). This is so while all clocks run at nearly the same speed and Redis keeps what it
 * acknowledged. A process that is frozen between dlock_valid() and its write can still write late.
 * Only the resource itself can refuse that write, by comparing tokens (see dlock_token). The
 * library promises notice: a process that runs hears of a lost hold before the hold's time to live
 * ends on the server, even if the server does not answer. Of a break it hears at the hold's next
 * renewal or release.
 *
 * TIME.  All durations are milliseconds. A hold's validity is counted on CLOCK_BOOTTIME, which also
 * runs while the machine sleeps. The validity begins just before the request is sent. It is the
 * time to live, minus 1 % of it and 2 ms for clock drift. Waiting is counted on CLOCK_MONOTONIC.
 * The wall clock is never read.
 *
 * BOUNDS.  On rungs that are not flawed, no call lasts longer than its wait_ms plus the bound.
 * The bound is connect_timeout_ms + 2 * command_timeout_ms, by default 3 s. It covers the lookup
 * of the host name, or the question to the sentinels, the connection, the request, and finding
 * out what became of the request. After a cancel, a call ends within the bound.
 * dlock_acquire_many may take the bound once more, to release. Time spent in your hooks is not
 * counted. (A hook is a function of yours that the library calls: on_event, on_trace.) Time spent
 * in `done` is not counted either: a completion may wait for the `done` of others.
 *
 * THREADS.  Every function may be called from any thread unless it says otherwise. An object
 * must outlive the calls that use it: end all holds, then close the locks, then the client. A
 * started acquire or release uses its objects until its callback, `done`, has returned. A client
 * has threads of its own: its timekeeper; up to five more, once a call was started or a waiter
 * needs wake-ups; one for each sentinel:// server; and one for each host name that is being
 * looked up. A lookup's thread may outlive the client. These threads block all signals except
 * those of a fault (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS). So no other signal
 * handler of the application runs on them, not even during a hook or `done`. A signal handler
 * that interrupts a call does not end the call. Do not end a thread of the library
 * (pthread_cancel), and do not leave a call by longjmp. The library's threads have stacks of
 * RLIMIT_STACK, at least 256 KiB. A thread that calls the library needs 64 KiB of stack.
 *
 * DESCRIPTORS.  The library uses any descriptor that is free. Keep 0, 1 and 2 open: otherwise one
 * of them may become a connection, and Redis receives what the program prints.
 *
 * FORK.  A client belongs to the process that opened it. In a forked child every call answers
 * DLOCK_FORKED, and dlock_valid() is false; open a new client there. Closing or releasing an
 * inherited object in the child frees nothing and sends nothing. A cancel also belongs to the
 * process that made it. The child inherits the library's descriptors until it calls execve; those
 * of dlock_fd and dlock_lost_fd still report on the parent's client and hold. The library does not
 * recognize a child of _Fork(), or of the plain system call. Such a child may call execve or _exit,
 * and nothing of this library.
 *
 * STRUCTS.  Every struct that crosses this interface begins with its size, which the caller sets to
 * sizeof; 0 is INVALID. (In dlock_event and dlock_trace the library sets it.) A field that is zero
 * means its documented default, so `= { .size = sizeof x }` is valid. A program may run with a
 * newer or an older library than the header it was compiled with. Fields that the program does not
 * know have their defaults. Fields of dlock_options and dlock_want that the library does not know
 * must be zero, otherwise the call is INVALID. In a struct that the library fills in, it leaves
 * unknown fields unchanged. Only dlock_rung has no size: it belongs to the library, and grows only
 * with a new soname.
 *
 * NULL.  A call that is given NULL where it needs an object does nothing. It answers INVALID; a
 * function without a status returns false, 0, -1, "" or NULL. Where NULL means something else, the
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
 * A lock's own key is its name, verbatim. Some rungs need more keys. They keep these beside the
 * lock, under names of the forms below. All keys that begin with `dlock:` belong to the library;
 * applications must not use them.
 *
 *     dlock:<kind>:<name>       the lock's name has a hash tag: lock:{phone}
 *     dlock:<kind>={<name>}     the lock's name has no hash tag: jobs
 *
 * So all keys of a lock share one slot of a cluster, and locks of different names never share a
 * key. To keep this true, two kinds of name are INVALID. On every rung: a name that begins with
 * `dlock:`. On `notify`, `fair` and `read_write`: a name with a brace and without a hash tag, such
 * as `a{b` or `{}a`. (The hash tag is the text between the first `{` and the next `}`, if it is not
 * empty.)
 *
 *     notify       token (string)
 *     fair         queue (list), token (string), grant (string); and dlock:wake:<client id> (list),
 *                  one for each client, in a slot of its own
 *     read_write   holds (hash), readers, writers, invited (sorted sets), token (string);
 *                  messages on the channel of kind `free`
 *     redlock      token (string), only with want.token
 *
 * `notify` also sends Redisson's messages, on the channel redisson_lock__channel:{<name>}; the
 * braces are left out if the name has a hash tag. The flawed rungs blpop_wake and rw_counter use
 * the keys `<name>:signals` and `<name>:read_count`. With want.identity the server also has the key
 * `dlock:identity` (string), in a slot of its own and without a time to live. With want.token each
 * server of `redlock` has `dlock:identity:set` (string), without a time to live, too. Every other
 * key has a time to live of at most a day. Keys of the flawed rungs may have none. The library
 * never changes a key that holds a value of another type: the call answers WRONG_TYPE, and
 * dlock_error() names the key. On `redlock` a server with such a key has no vote. If keys of tokens
 * or identities leave no majority, the call answers REFUSED, and dlock_error() names one. A key of
 * the right type that the library did not write counts as another holder's lock: the call answers
 * BUSY or TIMED_OUT, and only dlock_break changes it.
 *
 * Some flawed rungs make exceptions, which are their flaws. A rejected acquire of `setnx_multi`
 * sets a time to live on the key, even if it is of another type. One of `reentrant_getset`
 * overwrites any string. A release of `setnx`, `setnx_expire`, `setnx_multi`, `set_nx_ex`,
 * `owner_check` or `rw_counter` deletes the key, whatever it holds by then. If the key is of
 * another type, these six and `reentrant_tls` answer BUSY or TIMED_OUT; `rw_counter` does so only
 * to an exclusive acquire.
 */

/* ---- What this library does not do ----------------------------------------------------------- *
 * - TLS. `rediss://` is refused. Run a local TLS proxy such as stunnel, and give its address.
 * - A new master without Sentinel. `redis://` and `unix:` name one server; its host name is looked
 *   up at each connect. Only `sentinel://` follows the master; see "Sentinel".
 * - Cluster. The library follows no redirect: MOVED and ASK are REFUSED. Give the node that serves
 *   the lock's slot. Wake-ups are sent by PUBLISH, never by SPUBLISH, so a client that listens on a
 *   shard channel receives none. Waiters of `fair` wait for a message on a list,
 *   dlock:wake:<client id>. They poll if another node owns that list.
 * - Several servers. Only `redlock` keeps its lock on several: on a majority of them. Every other
 *   rung keeps it on one.
 * - Failover. Redis acknowledges before it replicates. A promoted replica may not know the lock,
 *   nor may a server that restarts without its last writes. Then another client acquires it while
 *   the first hold is still valid. dlock_options.replicas_ack makes that rarer. Or it does not know
 *   a release: then the lock stays held for its time to live. And `fair` gives
 *   one token twice if the server restarts within grant_ms and loses a grant that was used.
 * - The server's clock. Redis ends a time to live by its own wall clock. If that clock jumps
 *   forward, the server frees the lock while its hold is still valid.
 * - The server's memory. Under a maxmemory-policy other than `noeviction`, Redis may evict a lock.
 * - Other systems than Linux.
 */

/* ---- Sentinel ------------------------------------------------------------------------------- *
 * For sentinel://h1,h2,h3/shop the client asks the sentinels which server is the master `shop`.
 *
 * Who decides: a majority of the sentinels in the URL. One that the URL has by two addresses
 * counts once. Each is asked for its configuration epoch and for the master's address. A pair that
 * a majority names is the master, unless its epoch is older than that of a master before. No other
 * word counts. A former master that was frozen takes writes for seconds after it wakes. So ROLE
 * only confirms: a server that is named and says that it is no master is not used; the call answers
 * REFUSED, and is tried again like READONLY.
 *
 * When: at each connect, when a sentinel reports a switch, and every second. When another pair is
 * named, all connections to the former master are closed at once. Waiters go on at the new one. A
 * request that the former master has not answered by then is UNKNOWN, and an answer that still
 * arrives does not count. So no such renewal extends a hold. Until a majority knows of the
 * switch, the client uses the former master.
 *
 * Without a majority no new connection is made: UNREACHABLE, and dlock_error() says what each
 * sentinel said. Existing connections stay in use, so sentinels may restart while the master lives.
 * If all sentinels were set up anew, their epochs begin at 0: then open a new client.
 *
 * What Sentinel cannot promise: see "Failover" above. `min-replicas-to-write` shortens the time in
 * which a former master takes writes; deploy/sentinel has such a configuration.
 */

/* ---- Version -------------------------------------------------------------------------------- */

#define DLOCK_VERSION "0.2.0" /* of the header that a program is compiled with */

/* The version of the library that the program runs with. Never NULL; static storage. */
DLOCK_API const char *dlock_version(void);

/* ---- Statuses ------------------------------------------------------------------------------- *
 * X(name, definite, text). Definite: what the status says is certainly true. Only UNKNOWN
 * is not definite: the reply was lost, so the request may have been carried out. Never
 * treat it as "failed".
 */
#define DLOCK_STATUS_MAP(X)                                                                        \
    X(OK, true, "done")                                                                            \
    X(BUSY, true, "another holder has the lock")                                                   \
    X(TIMED_OUT, true, "the lock was not acquired within wait_ms")                                 \
    X(CANCELLED, true, "the wait was cancelled")                                                   \
    X(LOST, true, "the hold was lost before its release: it expired, or the lock was taken away")  \
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

/* A sentence about this thread's latest call that failed. A call failed if its status is not
 * DLOCK_OK; functions without a status fail with NULL or -1. The sentence names the server, the key
 * or the argument. It has at most 511 bytes; in a longer one, "..." replaces the middle. Valid
 * until this thread's next dlock call. Never NULL; "" before the first failure. */
DLOCK_API const char *dlock_error(void);

/* ---- The ladder ----------------------------------------------------------------------------- */

struct dlock_rung {
    const char *name; /* "owner_lua" */
    bool flawed;      /* kept for teaching; refused unless dlock_options.allow_flawed */
    bool distributed; /* it asks a server, so it also excludes other processes */
    bool expires;     /* its holds have a time to live */
    bool renewed;     /* the library renews its holds */
    bool reentrant;   /* an owner that holds the lock may acquire it again */
    bool handoff;     /* a release hands the lock to the client's longest waiter */
    bool tokens;      /* holds have fencing tokens; `redlock`: with want.token. See dlock_token */
    bool shared;      /* it has holds of mode DLOCK_SHARED, see dlock_want */
    bool quorum;      /* a majority of several servers grants it: the client needs an odd number of
                         them, 3 to 15. Other rungs need one, if they are distributed */
    const char *adds; /* what it adds to the rung before it */
    const char *flaw; /* what still breaks it */
    const char *engine; /* the servers that keep its locks: "redis"; "none", if there are none; any
                           other is an engine of a package of its own, see dlock_options.engine */
};

/* All rungs, in the ladder's order, those of other engines included. *count is set to their number,
 * unless count is NULL. Static storage. */
DLOCK_API const struct dlock_rung *dlock_rungs(size_t *count);

/* The rung of that name, or NULL. NULL asks for the default, "watchdog". */
DLOCK_API const struct dlock_rung *dlock_rung_find(const char *name);

/* ---- Client --------------------------------------------------------------------------------- */

typedef struct dlock_client dlock_client;
typedef struct dlock dlock;
typedef struct dlock_hold dlock_hold;
typedef struct dlock_cancel dlock_cancel;
typedef struct dlock_batch dlock_batch;
struct dlock_engine;

enum dlock_event_kind {
    DLOCK_EVENT_RENEWED,        /* a renewal was confirmed; one event per key, not per hold */
    DLOCK_EVENT_RENEWAL_FAILED, /* a renewal was not confirmed; retried while the hold is valid */
    DLOCK_EVENT_LOST,           /* the hold is no longer valid; sent once per hold */
    /* About a server, not a hold. No event of these three is sent twice in a row. */
    DLOCK_EVENT_CONNECTION_LOST,     /* a connection broke in use, or none could be made */
    DLOCK_EVENT_CONNECTION_REFUSED,  /* the server refuses the login or subscriptions, or is
                                       read-only; without subscriptions waiters poll. Also, once:
                                       another of the client's URLs names it, too */
    DLOCK_EVENT_CONNECTION_RESTORED, /* the server answers commands again, and refuses nothing */
};

/* An event about a hold or about a server, from the client's timekeeper. In an event about a server
 * `name`, `rung`, `owner` and `user` are NULL, and `reason` begins with the server's URL. The
 * pointers live as long as the call. */
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
    const char *sent;   /* as redis-cli would take it; arguments over 80 bytes are cut; "?" if no
                           memory was left for it */
    const char *reply;  /* as redis-cli would print it; "(lost)" when none came; "?" as above */
    int64_t took_us;    /* from before the send to after the reply */
    void *user;         /* dlock_want.user of the acquisition that it was sent for. NULL: a command
                           of a renewal, of a wake-up or of the background; or one whose reply came
                           after its call; or no memory was left for it */
};

/* How many of a server's replicas must confirm a write. */
enum dlock_replicas_ack {
    DLOCK_REPLICAS_NONE,     /* none: asynchronous replication */
    DLOCK_REPLICAS_ONE,      /* at least one */
    DLOCK_REPLICAS_MAJORITY, /* so many that they and the master are more than half of all */
    DLOCK_REPLICAS_ALL,      /* all */
};

struct dlock_options {
    size_t size;

    /* Redis servers: redis://[[user]:password@]host[:port][/db] or
     * unix:[[user]:password@]path[?db=N] or unix:///path or
     * sentinel://[[user]:password@]host[:port],.../master[/db]. The last lists 1 to 16
     * sentinels, which name the server; their port is 26379 by default; the login is Redis's. A
     * master's name has 1 to 100 letters, digits, '.', '-' and '_'. User, password and path may
     * be %-encoded. These must be encoded: a '%' anywhere; a ':' in a user; a '/' in a login of
     * redis:// or sentinel://; a '?' or '@' in a login of unix; a '?' in a path; a ':' or '@' in
     * a path that does not begin with '/'. An IPv6 host stands in brackets. A port is 1 to
     * 65535, a database 0 to 99999; a path has at most 107 bytes. Up to 16 servers may be given.
     * A rung says which it needs, see dlock_rung.quorum: `redlock` an odd number, 3 to 15; every
     * other rung one. Several servers must be independent masters, and must allow INFO. A replica
     * or a node of a cluster counts as a server that does not answer, and an event says so. An
     * acquire or an inspection answers REFUSED if two are the same process; dlock_error() names
     * them. Allow the Redis user CLIENT ID, CLIENT KILL and INFO beside the rung's commands, and
     * with sentinel:// ROLE, without which no connection is made. After a lost reply the library
     * uses them: a new connection makes the server end the broken one, so that nothing sent on
     * it can be carried out later. If they are refused, the server may still carry out the old
     * request. (`blpop_wake` also sends CLIENT UNBLOCK.) `notify` and `read_write` wake waiters
     * by PUBLISH; waiters receive it by SUBSCRIBE. A new user of Redis 7 may use no channel. If
     * either command is refused to a waiter's user, the waiter polls. They poll only every 5 s in
     * two cases: the server is older than Redis 7, or only the releasing user may not PUBLISH.
     * Default: one, redis://127.0.0.1:6379/0, if servers is NULL and server_count is 0. One of the
     * two without the other is INVALID. */
    const char *const *servers;
    size_t server_count;

    /* For each server. One of several that sends nothing for command_timeout_ms while it owes a
     * reply is disconnected, and tried again after a pause. If connections to a majority fall
     * silent without an end, a hold with a time to live below twice that time may be lost; if
     * dlock_extend waits on one of them, below three times. */
    int64_t connect_timeout_ms; /* to connect and log in. Default 1000, 1 to 60000 */
    int64_t command_timeout_ms; /* from send to reply. Default 1000, 1 to 60000 */
    int64_t ttl_ms;             /* a hold's time to live, if dlock_want.ttl_ms is 0. Default the
                                   rung's: 30000, of `fair` 3000; 100 to 86400000 */
    int64_t retry_ms;           /* pause between the attempts of rungs that poll, plus or minus a
                                   random half. A release by this client ends the pause of one
                                   waiter. `redlock` pauses 50 to 200 ms. Default 20, 1 to 60000 */
    size_t connections_max;     /* per server, without those of the timekeeper and of subscribers.
                                   Default 64, 1 to 10000; a call that finds none free waits for
                                   one */
    bool allow_flawed;          /* accept rungs that are known to break. Default false */

    /* Called on the timekeeper's thread, one call at a time. It must not block, and must not call
     * dlock_acquire, dlock_acquire_many, dlock_extend, dlock_release, dlock_abandon or
     * dlock_client_close. It may ask holds, and start acquires and releases. Default NULL: no
     * events. */
    void (*on_event)(void *arg, const struct dlock_event *event);
    void *on_event_arg;

    /* Called at named points of a rung's code (of "owner_check": "between_get_and_del"), on the
     * thread that passes the point. It may block or end the process. Default NULL. For
     * demonstrations and tests. */
    void (*on_point)(void *arg, const char *rung, const char *point);
    void *on_point_arg;

    /* Called once for each command of the library and of your batches: when its reply has come, or
     * is lost. It tells no login, no CLIENT KILL or UNBLOCK of a broken connection that a call
     * waits for, and nothing that is sent to sentinels. The events of one connection come in the
     * order in which its commands were sent.
     * It is called on the thread that reads the reply: the caller's or one of the client. A reply
     * that is late is read by the next user of its connection. So several threads may call at once,
     * also after the call that sent the command, and after dlock_close. In dlock_client_close its
     * thread reports late replies that are still due as lost. After it there is no call.
     * The thread may hold the client's mutexes. So the hook must not block, and must not call any
     * function with this client, its locks or its holds; such a call may wait for itself. The trace
     * and its texts are the library's: copy what you keep. With this hook, started calls do not
     * share writes. Default NULL. For demonstrations and tests. */
    void (*on_trace)(void *arg, const struct dlock_trace *trace);
    void *on_trace_arg;

    size_t contenders;  /* how many of this client's waiters ask for a lock; the others wait in its
                           queue. One on `notify`, `fair` and `redlock`. Default 16, 1 to 10000 */
    size_t waiters_max; /* acquires that were started and have not ended. Default 100000,
                           1 to 1000000. Acquires that nest have a limit of the same size. So
                           have requests that the client cancels in the background after their
                           acquire ended; beyond it, what they left on the server expires */
    bool own_loop;      /* completions are delivered by dlock_process(); an acquired lock stays held
                           until then. Default false: a thread of the client delivers them */

    /* For rungs with hand-off (`fair`). A client that holds the lock hands it to its own waiters,
     * in their order, before the next client has its turn. These limit how often and for how long.
     * The client never hands off for longer than a 20th of the time to live. handoff_max 1
     * alternates strictly. */
    size_t handoff_max; /* Default 64, 1 to 1000 */
    int64_t handoff_ms; /* Default 10, 1 to 60000 */
    int64_t grant_ms;   /* how long this client may take to answer when its turn comes. It must be
                           longer than the client's round trip and its pauses. `fair`: the time to
                           claim a granted lock before the next client's turn. `read_write`:
                           waiting readers have this long to enter before the next writer, and a
                           waiter that does not ask again for this long counts as gone.
                           Default 200, 10 to 60000 */

    /* Whether replicas must confirm each acquire and each renewal (WAIT), and how many of the
     * server's `replicas`. The library sends WAIT in the same write, so it costs no round trip of
     * its own. It blocks that connection until enough have confirmed, at most for half of
     * command_timeout_ms, and for half of the validity that it confirms.
     * Too few: an acquire is released, and the attempt counts as REFUSED. A renewal does not extend
     * its hold; it is tried again while the hold is valid. The sentence says how many of how many
     * confirmed. If the answer to WAIT is late or lost, that counts as too few: what was sent
     * before it was carried out, and only the confirmation is missing. So a batch or a release that
     * shares the write is answered as without WAIT, and dlock_extend answers REFUSED. A hold that
     * nests in `fair`, or is handed over inside the client, sends nothing: it is valid for a time
     * that was confirmed before. Releases are not confirmed.
     * This narrows the loss of a lock in a failover, and does not exclude it: a replica that has
     * not confirmed may be promoted. A replica that keeps nothing confirms, too.
     * Allow the Redis user WAIT. With several servers: INVALID. Default DLOCK_REPLICAS_NONE: WAIT
     * is not sent. */
    enum dlock_replicas_ack replicas_ack;
    /* How many replicas the server has, those included that are down. With sentinel:// this is a
     * least number: what the sentinels know counts if it is more, also when it changes. If they
     * differ, the largest number counts that one of the deciding majority says. Default 0, which
     * replicas_ack accepts with sentinel:// only; at most 1000. */
    size_t replicas;

    /* For sentinel://, and otherwise unused: the login of the sentinels themselves, the same for
     * each. The login in the URL is for Redis. They are copied. A user without a password is
     * INVALID. Allow the user PING, SENTINEL MASTER, SENTINEL GET-MASTER-ADDR-BY-NAME, SENTINEL
     * MYID, and SUBSCRIBE to `+switch-master` and `+promoted-slave`. If only SUBSCRIBE is refused,
     * a switch is noticed up to a second later. Without MYID, which Redis has since 6.2, a sentinel
     * that the URL has by two addresses has two votes. Default NULL: no login; a password alone is
     * that of the user `default`. */
    const char *sentinel_user;
    const char *sentinel_password;

    /* The kind of server, if it is not Redis: an engine from a package of its own, which must be of
     * the library's version. libdlock-zookeeper: dlock_zookeeper() of dlock_zookeeper.h.
     * libdlock-etcd: dlock_etcd() of dlock_etcd.h. The engine's header says what its URLs are,
     * which rung it has, and what differs. Default NULL: Redis. */
    const struct dlock_engine *engine;
};

/* Opens a client: makes its UUID and starts its timekeeper. It contacts no server: the first
 * acquire shows whether one is there. options: NULL means all defaults. They are copied; after the
 * call only the hooks are used. OK; INVALID (a URL or a number; dlock_error() says which, and what
 * would be right); NO_MEMORY. Unless OK, *client is NULL. */
DLOCK_API dlock_status dlock_client_open(const struct dlock_options *options,
                                         dlock_client **client);

/* Stops the timekeeper and closes the connections; waits for a hook that is running. End all holds
 * and close all locks before. A release that goes on in the background and was not attempted there
 * yet is attempted once, within the bound; after a failed connect that attempt may reach no server.
 * A lock that is not released then is left to expire. An engine may wait for that, ttl_ms at most
 * (dlock_zookeeper.h). NULL is allowed. Not from a hook or from `done`. */
DLOCK_API void dlock_client_close(dlock_client *client);

/* The client's UUID, 36 characters; lives as long as the client. */
DLOCK_API const char *dlock_client_id(const dlock_client *client);

/* Counts since the client was opened. */
struct dlock_stats {
    size_t size;
    uint64_t acquired;         /* holds acquired */
    uint64_t attempts;         /* attempts to acquire, the successful ones included */
    uint64_t released;         /* releases that answered OK */
    uint64_t renewals;         /* renewals that were confirmed */
    uint64_t renewals_failed;  /* renewals that were not */
    uint64_t lost;             /* holds reported lost */
    uint64_t unknown;          /* calls that answered UNKNOWN */
    uint64_t commands;         /* commands sent */
    uint64_t connects;         /* connections made, reconnects included */
    uint64_t scripts_loaded;   /* scripts sent in full, as the server might not know them */
    uint64_t contended;        /* acquires that found the lock busy, and waited or gave up */
    uint64_t handoffs;         /* holds handed over by another of this client, without the server */
    uint64_t missed_wakeups;   /* acquisitions that the fallback poll found, not a wake-up: the
                                   holder died, or the message was lost */
    uint64_t grants_expired;   /* clients found that were granted the lock and did not answer in
                                   time */
    uint64_t connects_failed;  /* attempts to connect that failed */
    uint64_t connections_lost; /* DLOCK_EVENT_CONNECTION_LOST, with or without on_event */
    uint64_t connections_refused;  /* DLOCK_EVENT_CONNECTION_REFUSED */
    uint64_t connections_restored; /* DLOCK_EVENT_CONNECTION_RESTORED */
    uint64_t abandoned;            /* holds that dlock_abandon ended */
};
/* Fills in *stats. Each count is exact, but they are not all of the same instant. */
DLOCK_API void dlock_client_stats(const dlock_client *client, struct dlock_stats *stats);

/* ---- Lock ----------------------------------------------------------------------------------- */

#define DLOCK_NAME_MAX 512 /* bytes of a lock's name */

/* Opens a lock. It contacts no server.
 * rung: a name of the ladder, or NULL for the default. name: the key in Redis, verbatim, without a
 * prefix; 1 to DLOCK_NAME_MAX bytes; copied.
 * Opening the same rung and name again in one client gives the same lock, also on `local`.
 * OK; INVALID (there is no such rung: dlock_error() lists them; it is of another engine than the
 * client; the name is empty, too long, or excluded by "Keys in Redis"; the number of servers is not
 * one that the rung takes); FLAWED; NO_MEMORY; FORKED.
 * Unless OK, *lock is NULL. */
DLOCK_API dlock_status dlock_open(dlock_client *client, const char *rung, const char *name,
                                  dlock **lock);

/* Closes the lock. Its holds and acquires must have ended. NULL is allowed. On `watchdog_timer` the
 * last close ends the remaining timers, and waits for a request that is under way. */
DLOCK_API void dlock_close(dlock *lock);

/* The lock's name, and its rung. Both pointers live as long as the lock. */
DLOCK_API const char *dlock_name(const dlock *lock);
DLOCK_API const struct dlock_rung *dlock_rung_of(const dlock *lock);

/* The lock's current holder, according to the server. */
struct dlock_holder {
    size_t size;
    bool held;
    char owner[128]; /* as the holder wrote it, cut to fit; "" if nobody holds the lock, or if the
                         holder wrote no name; see dlock_owner */
    int64_t ttl_ms;  /* the time left on the server; -1: the key never expires */
};
/* Asks the server. OK; UNSUPPORTED (`none`, `local`: no server knows them); WRONG_TYPE (the key
 * holds a value that this rung does not write: dlock_error() says what); UNREACHABLE; UNKNOWN (no
 * answer); REFUSED; LIMIT; INVALID; FORKED. Several servers are asked at once. `held` is true if a
 * majority of all servers names the same owner.
 * A majority will still name it for at least ttl_ms, by the answers that came first.
 * `held` is false if the answers rule out a majority for any owner. Otherwise the answer is
 * UNREACHABLE, or UNKNOWN if a silent server was sent the request. */
DLOCK_API dlock_status dlock_inspect(dlock *lock, struct dlock_holder *holder);

/* Frees the lock for any holder, and wakes its waiters. For operators: when a holder is known to be
 * gone, or must be overruled. A live holder is not notified: the next client enters while the first
 * is still inside. The first hold is reported lost at its next renewal, or at its release. On
 * `fair` nesting and hand-off (handoff_ms) send nothing to the server. So the client of a broken
 * hold continues until a renewal or a release shows the loss. broken: the holder just before, as
 * from dlock_inspect. `held` is false if there was none, or if no majority of several servers named
 * one. (On `read_write` the break then removes what expired holds left behind: the members of the
 * key whose score, the end of a time to live, has passed.) NULL: not wanted. The answers are those
 * of dlock_inspect, except UNKNOWN: the lock may have been freed. Then inspect it before you break
 * it again, because the next holder may have it. WRONG_TYPE: the key is unchanged. With several
 * servers, OK means that no majority is left; UNKNOWN means that a server was not freed or did not
 * answer. The call waits for each of them as long as for a single one. */
DLOCK_API dlock_status dlock_break(dlock *lock, struct dlock_holder *broken);

/* ---- Acquire and release --------------------------------------------------------------------- */

#define DLOCK_WAIT_FOREVER (-1)
#define DLOCK_THIS_THREAD UINT64_MAX /* an owner_id: the thread that makes the call */

enum dlock_mode {
    DLOCK_EXCLUSIVE, /* no other owner holds the lock; on rungs with two modes, the write lock */
    DLOCK_SHARED,    /* other owners may hold it shared, too: the read lock of `read_write` and
                        `rw_counter` */
};

struct dlock_want {
    size_t size;

    /* 0 (default): one attempt. > 0: no attempt starts later than wait_ms after the call. An
     * attempt already sent is awaited, because it may have succeeded; see BOUNDS.
     * DLOCK_WAIT_FOREVER (any number below 0): until the lock is acquired or the call cancelled. */
    int64_t wait_ms;

    /* The owner. 0 (default): this acquisition alone; nothing nests in it. A number of the
     * caller's, or DLOCK_THIS_THREAD: on re-entrant rungs an owner that holds the lock acquires it
     * again at once. This is called nesting; the owner's last release frees the lock. An owner may
     * call from any threads. Calls of one owner run one after the other, in their order. But if no
     * thread runs its started calls for 250 ms, blocking calls pass them. The owner's name (see
     * dlock_owner) is "<client id>:<n>", "<client id>:x<owner id>.<n>" or "<client
     * id>:t<thread>.<n>", where n is the number of the outermost acquisition. Each name is used
     * once, so no command that arrives late can act on a later acquisition. (Flawed rungs leave out
     * ".<n>". On `reentrant_tls` the owner is the calling thread, whatever owner_id is.) */
    uint64_t owner_id;

    dlock_cancel *cancel; /* lets another thread end the wait. Default NULL */
    dlock_batch *reads;   /* sent with the acquire, see dlock_batch. Default NULL */
    void *user;           /* passed to on_event and on_trace. Default NULL */
    enum dlock_mode mode; /* Default DLOCK_EXCLUSIVE */

    /* This hold's time to live. Each renewal, and dlock_extend, gives it that time again. On a rung
     * that does not renew, the hold ends after it. The holds of one owner share one key in Redis.
     * The key keeps the longest of their times to live until the owner's last release; each hold is
     * valid for its own. On `fair` a hold that nests, or that another hold of this client handed
     * over, sends nothing. Until its first renewal it is valid until the client's own time ends.
     * Default 0: dlock_options.ttl_ms, or the rung's; 100 to 86400000. UNSUPPORTED on rungs that do
     * not expire. */
    int64_t ttl_ms;

    /* The hold's longest life, counted from the acquire, minus the allowance for drift. No renewal
     * or extension goes beyond it. Then the hold is lost like any other, and its LOST event says
     * why. The last renewal asks only for the remaining time, so Redis frees the lock then, too,
     * unless another hold of its owner asked for longer. Default 0: no limit; 100 to 31536000000.
     * UNSUPPORTED on rungs that do not expire. */
    int64_t hold_max_ms;

    /* The longest time for the whole call, from its start to its answer. A request that is under
     * way then is given up, and its connection is closed. Default 0: wait_ms plus the bound; 1 to
     * 31536000000. */
    int64_t call_max_ms;

    /* Also read the identity of the lock's server, see dlock_identity. It has no effect on rungs
     * without tokens, nor on `redlock`, where `token` does the same. If its key holds another type
     * than a string, the lock is released and the call answers WRONG_TYPE. Default false. */
    bool identity;

    /* On `redlock`: also draw a fencing token, see dlock_token, and read the identity of its
     * servers, see dlock_identity. This costs a second request to each server, and sometimes a
     * third. The hold is valid for as long as without it, counted from before the first request. If
     * no majority accepts a token, the lock is released, and the waiter tries again. A call that
     * makes one attempt answers REFUSED then. So does the first attempt of all on new servers: it
     * gives them their identity. Other rungs with tokens always draw one. Default false. */
    bool token;

    /* Ask for the lock only while fewer than so many waiters of this client do; until then wait in
     * its queue, and with it all that come later. With 1 the waiters of a process first wait for
     * each other, and one of them asks the server. More than dlock_options.contenders has no
     * effect. Default 0: dlock_options.contenders; at most 10000. */
    size_t contenders;

    /* Only for dlock_acquire_many and dlock_acquire_many_start: modes[i] is the mode of locks[i],
     * and `mode` has no effect. The array is copied. Default NULL: all have the mode `mode`.
     * INVALID elsewhere. */
    const enum dlock_mode *modes;
};

/* Acquires the lock. want: NULL means all defaults, one attempt.
 * OK         *hold is set; release it with dlock_release.
 * BUSY       only with wait_ms 0: another owner holds the lock. Or the reply came after the hold's
 *            validity had ended. On `fair` also: this client's last hold is left to expire (see
 *            dlock_abandon), or other waiters of this client are first. On `zookeeper` and `etcd`
 *            also: somebody is in the lock's queue. There one attempt enters only an empty queue.
 * TIMED_OUT  not acquired within wait_ms; also if a server received a request and did not answer.
 *            The caller holds nothing. If an unanswered request locked something, the client
 *            releases that in the background, or it expires.
 * CANCELLED  dlock_cancel_now() was called, perhaps before this call. A request under way is
 *            awaited first. The caller holds nothing, as with TIMED_OUT.
 * LOST       this owner held the lock and nested, and the server says that it holds it no longer:
 *            it expired, it was broken, or the server lost its data. All holds of this owner are
 *            lost at once, and nothing was acquired. Release them, then acquire again.
 * UNKNOWN    a reply was lost, and the library could not find out what became of the request. Only
 *            with wait_ms 0, and on rungs that are flawed or do not expire. The caller holds
 *            nothing. The lock may stay locked until its time to live ends, or for ever if it has
 *            none. This is rare while a server answers: after a lost reply the library makes the
 *            server end the old connection, and sends the request again. If the server does not
 *            end it (another process answers, or CLIENT KILL is refused), the acquire continues
 *            under another name, and what the old request locks expires.
 * UNREACHABLE no server could be reached; with wait_ms, no server answered all that time. Then the
 *            client connects to the server once per pause, until the server answers a command. The
 *            pauses grow from 10 ms to 0.4 s. After a failed connection attempt, an acquire during
 *            a pause answers UNREACHABLE at once. Before that it waits until the pause ends, or the
 *            server answers. On `redlock`: a majority of all its servers is not connected, or fewer
 *            than a majority answered in time. Then nothing is held on those that answered. The
 *            others are sent the release after the acquire; what they grant without it expires. On
 *            `zookeeper` with wait_ms 0 also: the server did not answer who is in the queue.
 * REFUSED    the server refused the request; dlock_error() quotes it. Or too few replicas confirmed
 *            it (replicas_ack). Then it is released in the background, so an attempt right after it
 *            may find it BUSY. It is tried again while there is time. LOADING, BUSY, CLUSTERDOWN,
 *            TRYAGAIN, MASTERDOWN, READONLY, OOM, NOREPLICAS and MISCONF are retried while there is
 *            time, with growing pauses. After READONLY and MASTERDOWN the client connects anew,
 *            with the pauses of UNREACHABLE. An attempt during such a pause is answered REFUSED,
 *            too. A server that takes no more clients, or is BUSY while the client connects, is
 *            retried, too (UNREACHABLE). On `redlock` any refusal is retried unless so many servers
 *            refuse for another reason that no majority is left.
 * WRONG_TYPE the key holds a value of another type. On `owner_lua`, whose SET does not look at the
 *            type, this is found when the wait ends. Some flawed rungs never find it, see "Keys in
 *            Redis".
 * UPGRADE    mode is DLOCK_EXCLUSIVE, and this owner holds the lock shared. It would wait for
 *            itself, and two such owners for each other. Release the shared hold first. If owner_id
 *            is 0, dlock_acquire also checks the calling thread's shared holds.
 * LIMIT      no connection was free (connections_max). With wait_ms 0 also: earlier calls of this
 *            client or owner left no time. On `fair`: this client has acquired the lock 1000 times
 *            since the server granted it. On `watchdog_timer`: 1000 timers run. On `reentrant_tls`:
 *            the calling thread holds another lock, or this one by another client.
 * UNSUPPORTED mode is DLOCK_SHARED, and the rung has no shared holds; or ttl_ms or hold_max_ms is
 *            set, and the rung does not expire.
 * INVALID    want->mode is neither mode; a time is out of its range; or see STRUCTS and NULL.
 * NO_MEMORY, FORKED. Unless OK, *hold is NULL and nothing is held, except as UNKNOWN says.
 *
 * On rungs that are not flawed, dlock_error() explains more. After BUSY and TIMED_OUT it names the
 * holder and its remaining time. After WRONG_TYPE it says what the key holds and what it should
 * hold. For this the library asks the server once more at the end of the call, within the bound. At
 * a busy lock it asks at most once per retry_ms, so a loop of attempts sends hardly more commands.
 * A call that fails between two questions, or while it waits for others of this client, quotes the
 * latest answer and its age. If the server does not say, this part is left out. */
DLOCK_API dlock_status dlock_acquire(dlock *lock, const struct dlock_want *want, dlock_hold **hold);

/* How a started acquire or release ended: its status, and the hold that was acquired, otherwise
 * NULL. During the call, until it calls the library, dlock_error() has the sentence. `arg` is
 * yours. The callee owns the hold, and ends it then or later, on any thread.
 * Without own_loop a thread of the client calls it; up to two threads call at once. With own_loop
 * only dlock_process calls it, on the thread that called that.
 * What it may call:
 * - dlock_acquire_start, dlock_acquire_many_start, dlock_release_start, dlock_abandon, and what
 *   only asks a hold. dlock_abandon asks no server, but waits for an on_event about its hold that
 *   is running.
 * - dlock_release, dlock_inspect and dlock_break. They may block, within the bound. Other threads
 *   of the client take over what this one had to do. But while two `done` block, no other is
 *   called. With own_loop your own loop stands still meanwhile.
 * - Without own_loop not dlock_acquire, dlock_acquire_many or dlock_extend: they may wait for what
 *   this very thread has started. Never dlock_client_close.
 * The lock may be closed only after `done` has returned, so none comes after dlock_close. With
 * own_loop, call dlock_process until all have come, then close. */
typedef void dlock_done(void *arg, dlock_status status, dlock_hold *hold);

/* Starts to acquire the lock, and returns at once. Waiters need no thread each: ten thousand
 * waiters are ten thousand structs in memory, and a few threads and connections of the client serve
 * them. want: as dlock_acquire; copied. `cancel` and `reads` must live until `done` was called.
 * OK         `done` will be called exactly once, with any answer of dlock_acquire: on a thread of
 *            the client, perhaps before this function returns; with dlock_options.own_loop, by
 *            dlock_process. It may release holds and start acquires. It must not block otherwise,
 *            because other completions wait for it. They also wait while it is in dlock_release;
 *            dlock_release_start keeps nobody waiting.
 * UNSUPPORTED as dlock_acquire; or the rung (`reentrant_tls`) counts in the memory of the thread
 *            that acquires.
 * LIMIT      waiters_max.
 * INVALID    as dlock_acquire; or `done` is NULL.
 * NO_MEMORY, FORKED. Unless OK, `done` is not called. */
DLOCK_API dlock_status dlock_acquire_start(dlock *lock, const struct dlock_want *want,
                                           dlock_done *done, void *arg);

/* For dlock_options.own_loop. dlock_fd: a descriptor that is readable while dlock_process has work.
 * Wait for it with poll() or the like; do not read or close it. It lives as long as the client. -1
 * without own_loop, and in a forked child. dlock_process: calls `done` of the calls that have
 * ended, on the calling thread. Returns how many. It never waits. */
DLOCK_API int dlock_fd(const dlock_client *client);
DLOCK_API size_t dlock_process(dlock_client *client);

/* Releases the hold and frees it, whatever the answer: do not use the pointer after the call. From
 * here on the hold is not renewed, and after the call no event mentions it.
 * last: commands sent just before the release, in the same write; or NULL.
 * OK         released. Of a nested hold: its owner has one hold less.
 * LOST       the hold was lost before. Nothing of any other holder was freed. On rungs that are not
 *            flawed, `last` is not sent once the library knows of the loss. The release is then
 *            sent only if the key may still exist: because of the owner's other holds, or, on
 *            `redlock`, on some servers. The call awaits its answers as those of any release.
 * UNKNOWN    the reply was lost; or, on `redlock`, some servers have freed the lock, and a majority
 *            may still have it. Without `last`: the release goes on in the background until the
 *            lock has expired. With `last`: its commands may or may not have been carried out. If
 *            they cannot arrive later, the lock was released all the same. Otherwise it is left to
 *            expire, so that they meet no other holder. One case remains: the server
 *            has the commands, hangs until after the expiry, and carries out another client's
 *            acquire first.
 *            UNKNOWN also if an earlier command of this owner may still be carried out. Then the
 *            lock is left to expire, and dlock_batch_reply() has the replies to `last`.
 * UNREACHABLE, LIMIT, REFUSED, NO_MEMORY, UNSUPPORTED  the release was not carried out. It
 *            continues in the background, unless the lock is left to expire. `last` was not
 *            carried out, or dlock_batch_reply() has its replies. LIMIT: no connection was free,
 *            or earlier calls of this client left no time. UNSUPPORTED: the servers are not Redis,
 *            and `last` is not NULL.
 * WRONG_TYPE the lock is left to expire.
 * FORKED, INVALID (hold is NULL).
 * `none` and `local` are released in any case; the answer is then about `last`.
 * On `redlock` the release goes to all servers, and OK means that no majority has the lock any
 * more. `last` is sent to the first server, and answered, before any server frees the lock.
 * UNREACHABLE with the sentence "is released" means that only `last` was not sent.
 * After a lost reply the release is sent once more on a new connection, and counts once; not on
 * flawed rungs. If the second release answers OK, the lock is free and the hold was valid. Only a
 * break, or a loss of the server's data, between the two sends stays unnoticed.
 * Ends within the bound. */
DLOCK_API dlock_status dlock_release(dlock_hold *hold, dlock_batch *last);

/* Starts to release the hold, and returns at once. If it answers OK, do not use the pointer after
 * the call. `last` must live until `done` was called.
 * OK         `done` will be called exactly once, as dlock_acquire_start says: with any answer of
 *            dlock_release, and NULL for the hold. Until then the hold may be renewed, and events
 *            may mention it.
 * UNSUPPORTED the rung (`reentrant_tls`) counts in the memory of the thread that acquired.
 * NO_MEMORY, FORKED, INVALID (hold or `done` is NULL). Unless OK, `done` is not called, and the
 * hold is unchanged. */
DLOCK_API dlock_status dlock_release_start(dlock_hold *hold, dlock_batch *last, dlock_done *done,
                                           void *arg);

/* Ends the hold and frees it, and leaves the lock to expire on the server. The hold is the
 * library's again: after OK and LOST do not use the pointer, nor dlock_lost_fd's descriptor, which
 * is closed. No other thread may use the hold meanwhile. It may be called on any thread, also from
 * `done`, before the lock is closed. It waits for an on_event about this hold that is running. So
 * it must not be called from on_event, nor from on_trace. For a holder that cannot
 * know whether one of its own commands may still be carried out: after a release, a late command
 * would meet the next holder. Sends nothing and waits for no answer. From here on the hold is not
 * renewed, and after the call no event mentions it. The lock expires after the owner's other
 * holds have ended, and at the latest after the longest time to live that one of them asked for.
 * Other holds of the same owner stay valid. The last of them does not release the lock
 * either: its release answers UNKNOWN, and the lock expires. Until then the lock stays as it is: an
 * abandoned write lock keeps readers out while its owner still reads. On `fair` the client's
 * own waiters pause, too: for the longest time to live since the server granted the lock, plus 1 %.
 * (A late renewal may keep the lock for longer. Then one of these waiters, but no other client, may
 * acquire it before it ends.) OK.
 * LOST: the hold had ended before; it is freed, too. If its owner has other valid holds, the
 * lock is left to expire all the same. Otherwise the key may remain for another hold's time, where
 * dlock_release would have freed it. UNSUPPORTED (the rung does not expire, or is flawed:
 * release the hold), FORKED, INVALID (hold is NULL): the hold is unchanged, and still yours. */
DLOCK_API dlock_status dlock_abandon(dlock_hold *hold);

/* Extends the hold: gives it its whole time to live again, counted from just before the request is
 * sent, and not beyond hold_max_ms. Other holds of its owner are extended as well, each by at most
 * its own time to live. No time is ever shortened. This call blocks. On rungs that renew, it is
 * useful only to have a full time to live before a long step. No other thread may end the hold
 * meanwhile.
 * OK; LOST (the hold had ended, or the server says that its owner does not hold the lock);
 * UNSUPPORTED (the rung does not expire, or is a flawed one that cannot extend); FORKED; INVALID
 * (hold is NULL). UNKNOWN (no reply: the key may live longer than the hold), UNREACHABLE,
 * LIMIT, REFUSED, NO_MEMORY and WRONG_TYPE leave the hold as it was. REFUSED also means that too
 * few replicas confirmed it (replicas_ack); then, too, the key may live longer than the hold. The
 * call first waits for the answer to another request of its owner, if one is under way. LIMIT:
 * other requests of the owner took all the time. UNREACHABLE: the earlier request got no answer.
 * Ends within the bound. */
DLOCK_API dlock_status dlock_extend(dlock_hold *hold);

/* Whether the hold is still valid: one load and one clock read, no network. False from the end of
 * its validity on, which is before the server frees the lock. Always true on rungs that do not
 * expire, while the hold exists. */
DLOCK_API bool dlock_valid(const dlock_hold *hold);

#define DLOCK_NEVER_EXPIRES INT64_MAX
/* The rest of the hold's validity; 0 when it has ended; DLOCK_NEVER_EXPIRES on rungs that do not
 * expire. */
DLOCK_API int64_t dlock_remaining_ms(const dlock_hold *hold);

/* A descriptor for poll() and the like, made at the first call. It is readable while dlock_valid()
 * is false. The kernel's timer makes it readable; no thread of the library has to run. So it is
 * also readable in time while the server hangs, after the machine slept, and after the process was
 * stopped. Never readable on rungs that do not expire. The descriptor belongs to the hold, and is
 * the same for every call. Wait for it; do not read, set or close it. The end of the hold closes
 * it. Take it out of your poll set before that, because its number may be used again. -1: no
 * descriptor is left, or the client belongs to the parent process; dlock_error() says which. */
DLOCK_API int dlock_lost_fd(dlock_hold *hold);

/* The owner's name: "<client id>:<n>", or as dlock_want.owner_id says. Lives as long as the hold.
 * The lock's key holds this name, and dlock_inspect reports it. There are exceptions. On
 * `owner_lua` and `redlock` '#' and dlock_acquisition() follow. On `fair` it is the client id
 * alone. Flawed rungs differ. To find out whether this client holds a lock, compare the first 36
 * bytes with dlock_client_id(). */
DLOCK_API const char *dlock_owner(const dlock_hold *hold);

/* The acquisition's number: unique within the client, and growing. */
DLOCK_API uint64_t dlock_acquisition(const dlock_hold *hold);

/* The fencing token: a number that grows with every acquisition of the lock, over all clients. Send
 * it with each write, so that the resource can refuse a write with an older one. 0: this rung has
 * none; or, on `redlock`, want.token was not set. */
DLOCK_API uint64_t dlock_token(const dlock_hold *hold);

/* The identity of the server that gave the token, for a hold that was acquired with
 * want.identity. Tokens can be compared only if their identities are the same text. It is a
 * value that the library keeps in the server's memory, under the key `dlock:identity`. If the
 * server lost its memory, or another one answers, it differs. It was read just before the lock
 * was granted, in the same write. So it may be older than the grant, never newer. (On `fair` a
 * former master may have granted the lock, and the promoted one, which has the grant, hands it
 * out. Then the token is the former master's and the identity the promoted one's, whose next
 * tokens are higher.) A copy of the
 * memory that has the key has the value, too: before you use a copy, delete the key. With
 * sentinel:// `@` follows, and the configuration epoch in which the sentinels had named this
 * connection's server. So it differs after a fail-over, although a promoted replica has the
 * value. On `redlock` all servers of the lock have one value, under the key `dlock:identity:set`,
 * and want.token asks for it. A majority of them told it with their grants. If no majority that
 * grants the lock has the same value, they get a new one. So it changes after one of them has lost
 * its memory. It may also change if one was away while the value was made, and another one is
 * later. "": not wanted, or the server did not tell it; or, on rungs with hand-off, the acquire
 * that got the grant did not want it. A server does not tell it before Redis 7, if it refuses SET
 * on that key, or if the value is empty or longer than any that the library sets.
 * At most 95 bytes; lives as long as the hold. */
DLOCK_API const char *dlock_identity(const dlock_hold *hold);

/* Whether the client had the lock before this hold: another of its holds handed it off, or this one
 * nests without asking the server. Only on rungs with hand-off (`fair`). Such a hold has the
 * identity of its grant, so it may have been read before this hold's acquire was called. False:
 * this acquire asked the server, after it was called. */
DLOCK_API bool dlock_handed_off(const dlock_hold *hold);

/* ---- Several locks --------------------------------------------------------------------------- */

#define DLOCK_MANY_MAX 64 /* locks of one call */

/* Acquires all of these locks, or none: one after another, in the byte order of their names. While
 * the call waits for one lock, it holds those before it. Callers that hold no other lock when they
 * call cannot deadlock, because all use the same order (J. W. Havender, Avoiding deadlock in
 * multitasking systems, 1968). The locks may be of different rungs and clients; at most one may be
 * of `reentrant_tls`. Each lock has its own queue of waiters, and a call that fails leaves all of
 * them. So many calls for one lock can keep out one that wants many.
 * locks: 1 to DLOCK_MANY_MAX, in any order. Two of one name are INVALID, also on different servers.
 * want: the same for each lock, except its mode: want.modes. A shared hold is acquired in the place
 * of its name like any other, so modes change nothing about deadlocks. But a caller that holds one
 * of these locks shared cannot acquire it alone: UPGRADE. Else see dlock_acquire. Differences:
 * wait_ms and call_max_ms are for all together, so wait_ms must cover a round trip for each. With
 * wait_ms 0 all attempts share one bound. `reads` is sent with the last acquire, to the server of
 * the lock whose name is last. On a rung that does not renew, the first hold's time to live must
 * cover the wait for the others.
 * holds: room for `count`. After OK, holds[i] is a hold of locks[i]. Release each one, in any
 * order. Otherwise all are NULL, unless count is too large.
 * missing: set to the index of the lock at which the call failed; `count` if it failed at none.
 * NULL: not wanted.
 * OK         all are held. All were valid at one instant during the call.
 * LOST       also: a hold was lost before all locks were acquired.
 * TIMED_OUT  also: the locks before this one took all of the time.
 * INVALID    also: count is out of range, a lock is NULL, two locks have one name, or one of
 *            want.modes is neither mode. Nothing was asked for.
 * UNSUPPORTED also: *missing has no shared holds, and its mode is DLOCK_SHARED. The locks before it
 *            may have been acquired; they are released.
 * Any other answer is that of dlock_acquire for the lock *missing.
 * Unless OK, the call releases what it acquired, the latest first, before it returns. A release
 * that fails continues as dlock_release says. The releases add at most the bound of each client.
 * That is also so after call_max_ms, and after a cancel. */
DLOCK_API dlock_status dlock_acquire_many(dlock *const *locks, size_t count,
                                          const struct dlock_want *want, dlock_hold **holds,
                                          size_t *missing);

/* How a started call for several locks ended. `missing` is as in dlock_acquire_many. For all else
 * see dlock_done. */
typedef void dlock_done_many(void *arg, dlock_status status, size_t missing);

/* Starts to acquire them, and returns at once. The arrays `locks` and want.modes are copied; the
 * locks stay open until `done` has returned. `holds` must live until then, and is set just before;
 * `cancel` and `reads` as in dlock_acquire_start.
 * OK         `done` will be called exactly once. A thread of one of the clients calls it, or
 *            dlock_process of one. The answers are those of dlock_acquire_many and
 *            dlock_acquire_start. A client with own_loop takes part only in its dlock_process.
 * Other answers are those of dlock_acquire_start, or INVALID as above. Then `done` is not called,
 * and *missing is set. */
DLOCK_API dlock_status dlock_acquire_many_start(dlock *const *locks, size_t count,
                                                const struct dlock_want *want, dlock_hold **holds,
                                                dlock_done_many *done, void *arg, size_t *missing);

/* What is left of the validity of all these holds together: the least that dlock_remaining_ms says.
 * 0 as soon as one of them has ended, or if holds is NULL. DLOCK_NEVER_EXPIRES if count is 0. */
DLOCK_API int64_t dlock_remaining_many_ms(dlock_hold *const *holds, size_t count);

/* ---- Cancel ---------------------------------------------------------------------------------- */

/* A switch that ends waits. One cancel may serve many calls, of any clients. Once set, it stays
 * set. dlock_cancel_new: NULL when memory or descriptors are used up; dlock_error() says which.
 * Each cancel takes one descriptor. dlock_cancel_now: sets it, and returns; the waits end soon
 * after. Safe from any thread and from a signal handler. In a forked child it ignores a cancel of
 * the parent, so an inherited signal handler ends no wait of the parent. An acquire with
 * such a cancel answers FORKED. dlock_cancel_free: call it when no call uses the cancel any more.
 * NULL is allowed. */
DLOCK_API dlock_cancel *dlock_cancel_new(void);
DLOCK_API void dlock_cancel_now(dlock_cancel *cancel);
DLOCK_API void dlock_cancel_free(dlock_cancel *cancel);

/* ---- Batch ----------------------------------------------------------------------------------- *
 * Commands that the library sends on the lock's own connection, in the same write: reads after the
 * acquire's first command, writes before the release's. They cost no round trip of their own. On
 * `none` and `local`, which send nothing themselves, a batch is a request of its own. The library
 * does not interpret them. With several servers they go to the first, which is awaited; the writes
 * go before the release, and not in the same write. A batch belongs to one call at a time.
 */
#define DLOCK_BATCH_MAX 64 /* commands in one batch */

enum dlock_reply_kind {
    DLOCK_REPLY_NONE, /* no reply: not sent, or lost */
    DLOCK_REPLY_NIL,
    DLOCK_REPLY_INTEGER,
    DLOCK_REPLY_TEXT,
    DLOCK_REPLY_ERROR, /* text holds what Redis said */
    DLOCK_REPLY_OTHER, /* an array; its elements are not given */
};
struct dlock_reply {
    size_t size;
    enum dlock_reply_kind kind;
    int64_t integer;
    const char *text; /* bytes, NUL-terminated; lives until the batch is cleared, sent or freed */
    size_t text_size;
};

/* dlock_batch_new: a batch without commands; NULL when out of memory, with a sentence in
 * dlock_error(). dlock_batch_free: frees it; NULL is allowed. dlock_batch_clear: removes its
 * commands. */
DLOCK_API dlock_batch *dlock_batch_new(void);
DLOCK_API void dlock_batch_free(dlock_batch *batch);
DLOCK_API void dlock_batch_clear(dlock_batch *batch);
/* Adds a command; its arguments are copied. sizes NULL: they are NUL-terminated. The connection is
 * shared. So three kinds of command are INVALID. Some change the connection's state: MULTI, WATCH,
 * SELECT, AUTH, HELLO, RESET, QUIT, CLIENT and the like. Some wait: BLPOP, WAIT, XREAD BLOCK and
 * the like. Some get more or fewer than one reply: SUBSCRIBE, UNSUBSCRIBE, MONITOR, REPLCONF,
 * SHUTDOWN, DEBUG and the like. Use a script in place of MULTI. The library does not recognize
 * commands that the server has renamed: do not send one of these under another name. A reply may
 * have up to 1 MiB. A larger one counts as lost, and its connection is closed; an acquire goes on
 * without it. OK, INVALID (also: argc is not 1 to 1048576; an argument is NULL, or has more than
 * 512 MiB), LIMIT (the batch is full), NO_MEMORY. */
DLOCK_API dlock_status dlock_batch_add(dlock_batch *batch, int argc, const char *const *argv,
                                       const size_t *sizes);
/* The reply to the command that was added as number `index`, counted from 0. After an acquire the
 * reply means something only if that answered OK. OK, INVALID (no such command; reply->size is
 * 0). */
DLOCK_API dlock_status dlock_batch_reply(const dlock_batch *batch, size_t index,
                                         struct dlock_reply *reply);

#ifdef __cplusplus
}
#endif

#endif
