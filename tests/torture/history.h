/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of one history, drawn from its seed: the clients, their actions, and the faults. Each
 * fault is bound to an event, not to a time, so that the seed repeats it.
 */
#ifndef TORTURE_HISTORY_H
#define TORTURE_HISTORY_H

#include "dlock.h"
#include "planted.h"
#include "world.h"

#define REDLOCK "redlock"
#define FAULTS_MAX 8

struct plan;
#define ANY (-1)

/* What a thread can do next: X(name, weight among the actions of this history). */
#define OP_MAP(X)                                                                                  \
    X(HOLD, 12)  /* acquire, stay inside, perhaps nest, release or keep */                         \
    X(START, 6)  /* the same with dlock_acquire_start */                                           \
    X(PASS, 6)   /* release what another thread kept */                                            \
    X(CANCEL, 3) /* cancel another thread's call */                                                \
    X(BREAK, 1)                                                                                    \
    X(INSPECT, 1)                                                                                  \
    X(REOPEN, 1) /* open the lock again, use it, close it */                                       \
    X(CLIENT, 1) /* a separate client for one acquisition */                                       \
    X(FORK, 1)   /* the child may use nothing of the parent's, and may open a client */            \
    X(IDLE, 2)                                                                                     \
    X(MANY, 0) /* several locks at once, see draw_many */                                          \
    X(MANY_START, 0)
enum op {
#define X(name, weight) OP_##name,
    OP_MAP(X)
#undef X
        OP_COUNT
};

/* X(name, what it does). Those before STOP_CLIENT affect the connection of the request. */
#define FAULT_MAP(X)                                                                               \
    X(DELAY, "request kept")                                                                       \
    X(LATE_RESET, "client's connection reset, request kept")                                       \
    X(LATE_CLOSED, "request kept until after the client gives up")                                 \
    X(RESET_BEFORE, "reset before the server got it")                                              \
    X(RESET_AFTER, "reset after the server got it")                                                \
    X(MUTE, "replies kept")                                                                        \
    X(BLACK_HOLE, "requests and replies kept")                                                     \
    X(SLOW, "a longer round trip")                                                                 \
    X(REFUSE, "new connections refused")                                                           \
    X(STOP_CLIENT, "SIGSTOP of a client")                                                          \
    X(KILL_CLIENT, "SIGKILL of a client")                                                          \
    X(STOP_AT_POINT, "SIGSTOP of a client at a named point")                                       \
    X(KILL_AT_POINT, "SIGKILL of a client at a named point")                                       \
    X(STOP_SERVER, "SIGSTOP of the server")                                                        \
    X(RESTART, "restart with all data")                                                            \
    X(RESTART_OLD, "restart with older data")                                                      \
    X(RESTART_EMPTY, "restart without data")                                                       \
    X(CLIENT_KILL, "CLIENT KILL of all connections")                                               \
    X(CLIENT_PAUSE, "CLIENT PAUSE")                                                                \
    X(SCRIPT_FLUSH, "SCRIPT FLUSH")                                                                \
    X(OOM, "out of memory")                                                                        \
    X(READONLY, "a replica")                                                                       \
    X(DENY_COMMAND, "commands refused by ACL")                                                     \
    X(DENY_CHANNEL, "channels refused by ACL")                                                     \
    X(KILL_SERVER, "SIGKILL of a server, which comes back with its data")                          \
    X(HOLE_SERVER, "all bytes from and to a server kept")                                          \
    X(SLOW_SERVER, "a longer round trip to a server")                                              \
    X(FAIL_OVER, "SENTINEL FAILOVER")                                                              \
    X(STALE, "what the server sends to its replicas kept")                                         \
    X(APART, "all bytes between the server and replicas and sentinels kept")
enum fault_kind {
#define X(name, text) FAULT_##name,
    FAULT_MAP(X)
#undef X
        FAULT_COUNT
};
const char *fault_name(enum fault_kind kind);
const char *fault_text(enum fault_kind kind);

/* Kinds of requests that the proxy distinguishes. */
enum request { REQUEST_ACQUIRE, REQUEST_RELEASE, REQUEST_RENEW, REQUEST_LISTEN, REQUEST_OTHER };

/* The count-th request or reply of a kind and a process, or of any. */
struct event {
    int process;   /* ANY; SAME: the process that the fault affected */
    int server;    /* ANY */
    int request;   /* ANY */
    bool answered; /* counts replies instead of requests */
    int count;
};
#define SAME (-2)

struct fault {
    enum fault_kind kind;
    struct event at;    /* this request, or the at.count-th named point of the process */
    int every;          /* and every every-th one after it */
    int times;          /* how many times in all */
    struct event until; /* counted from the fault; for LATE_CLOSED from the close */
    int idle_ms;        /* it also ends if there was no request for this time */
    int ms;             /* for SLOW and SLOW_SERVER: the round trip */
};

/* What a section does besides sampling its hold, with a connection for each thread. */
struct visitor {
    void *(*open)(const struct plan *plan);
    void (*close)(void *place);
    void (*before)(void *place); /* before the lock is asked for */
    void (*enter)(void *place, const dlock_hold *hold, struct visit *visit);
    void (*leave)(void *place, struct visit *visit); /* before the release, valid or not */
};

struct plan {
    uint64_t seed;
    const struct dlock_rung *rung;
    const struct dlock_engine *engine; /* NULL: Redis */
    const struct visitor *visitor;     /* or NULL */
    int stock_port;                    /* of the visitor's server */
    int servers;                       /* independent masters; or nodes, then sentinels */
    bool sentinel;                     /* a master, its replicas, and sentinels */
    enum planted planted;              /* a mistake that all processes make */
    bool calm;                         /* no faults, as a control */
    bool long_ttl;                     /* nothing expires: no fault lets a hold expire */
    bool
        ordered; /* calm, all waits are long, and a call that has locks waits only for later ones */
    bool asks_tokens;                     /* of REDLOCK: each acquire has want.token */
    int processes, threads, locks, calls; /* calls: per thread */
    int acquisitions;                     /* after so many of all threads they end; 0: no limit */
    int refused;                          /* and after so many writes that the stock refused */
    char names[LOCKS_MAX][40];
    int64_t ttl_ms[PROCESSES_MAX]; /* per process */
    bool own_loop[PROCESSES_MAX];
    int64_t command_ms, connect_ms, retry_ms, grant_ms;
    int64_t close_ms; /* that a client's end may take besides the bound, as its header says */
    size_t contenders, handoff_max, connections_max;
    int weights[OP_COUNT];
    uint64_t owners; /* number of owner names per process */
    int named, shared, kept, riding, nesting, patient, brief; /* per cent of acquisitions */
    int releases_started;                                     /* per cent of releases */
    int limited;                                              /* per cent with a call_max_ms */
    int noise, noise_us;                                      /* see noise.h */
    int section_ms;                                           /* the most */
    int overdue;        /* per cent of sections that outlast the TTL */
    int overdue_ms;     /* if not 0: they last so long instead */
    int64_t wait_ms[3]; /* a wait is at most one of these */
    struct fault faults[FAULTS_MAX];
    size_t fault_count;
};

/* Which histories are played. A zeroed one: all sound rungs on one server. */
struct choice {
    const char *rung; /* NULL: the seed draws it */
    int servers;      /* of REDLOCK; 0: the seed draws 3 or 5. Others have one */
    bool sentinel;    /* that one is the master of a group */
    bool many;        /* only histories with calls for several locks */
    enum planted planted;
};

/* Draws the plan. */
void plan_draw(struct plan *plan, uint64_t seed, const struct choice *choice);
#define ORDERED_WAIT_MS                                                                            \
    8000 /* of each call, if the plan is ordered: longer than all it waits for */
/* The servers of a group are NODES that may be the master, and after them the sentinels. */
#define NODES 3
#define SENTINELS 3

/* How many of the servers keep data. */
int plan_nodes(const struct plan *plan);
/* "server 2", "sentinel 0", or "" if there is one. Returns the name. */
const char *plan_server_name(const struct plan *plan, int server, char *name, size_t size);
int64_t plan_ttl_ms_max(const struct plan *plan);

#endif
