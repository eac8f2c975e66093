/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's session with ZooKeeper: its handle, its nodes, and the requests that wait for answers.
 * All holds of a client live as long as its session. While a lock is open, the session writes to a
 * node of its own; the answers prove since when its time to live counts (proof.h).
 * The order of mutexes is: the session's, then the loop's or the timekeeper's.
 */
#ifndef DLOCK_ZOOKEEPER_SESSION_H
#define DLOCK_ZOOKEEPER_SESSION_H

#include "client.h"
#include "proof.h"
#include "zk_url.h"
#include "zookeeper_engine.h"

#define NODE_MAX (OWNER_MAX + 16) /* "<owner>-<ten digits>" */
#define LOCKS "/locks/"
#define CLIENTS "/clients"
#define IDENTITY "/identity"
/* "<root>/locks/<name>/<node>", where each byte of the name may become three. */
#define PATH_MAX_BYTES (ROOT_MAX + sizeof LOCKS + 3 * DLOCK_NAME_MAX + NODE_MAX + 1)

/* A node of this client in a lock's queue: it waits there, or it is the first and holds. */
struct place {
    char owner[OWNER_MAX];
    uint64_t acquisition;  /* of the hold that it was created for */
    char node[NODE_MAX];   /* its name; "": not known, or not created */
    char before[NODE_MAX]; /* the node that it watches; "": none */
    uint64_t czxid;        /* the number of the change that created it; 0: not known */
    bool doubtful;         /* the create was not answered: the node may exist */
    bool holds;
    bool lost;        /* it is gone, and the core does not know yet */
    bool leaving;     /* it is being deleted */
    int64_t until_ns; /* CLOCK_BOOTTIME: nobody needs it after this */
    int64_t ends_ns;  /* CLOCK_BOOTTIME: hold_max_ms ends its holds; INT64_MAX: no limit */
    LIST_ENTRY(place) of_queue;
};

/* A lock's nodes. It lives until its last node is gone, also when the lock is closed before. */
struct queue {
    struct session *session;
    struct dlock *lock; /* NULL: closed */
    LIST_HEAD(, place) places;
    size_t request_count;
    LIST_ENTRY(queue) of_session;
    char path[];
};

/* What a thread waits for that asks without an exchange. */
struct call {
    bool over;
    dlock_status status;
    char why[SENTENCE_MAX];
    struct look *look;
    int64_t counts_ns; /* EXTEND: since when the hold's time to live counts */
};

struct request {
    struct queue *queue;
    enum what { ACQUIRE, LET_GO, WATCH, EXTEND, LOOK, BREAK } what;
    char owner[OWNER_MAX];
    struct exchange *exchange; /* NULL: none, or it was answered */
    struct call *call;         /* likewise */
    bool unasked;              /* nobody waits for it: the session's own */
    bool answered;             /* its exchange is in session.answers */
    int in_flight;             /* so often ZooKeeper's client calls back */
    bool sent;                 /* something was */
    bool repeated;             /* its delete may have been carried out before */
    bool first;                /* ACQUIRE: its node is the first; it waits for a proof */
    int create_rc;             /* ACQUIRE: the answer to the create before the list */
    int64_t sent_ns;           /* CLOCK_BOOTTIME, before its latest */
    int64_t begins_ns;         /* CLOCK_MONOTONIC: it is not sent later */
    int64_t ends_ns;           /* CLOCK_MONOTONIC: it is answered by then */
    TAILQ_ENTRY(request) of_session;
    STAILQ_ENTRY(request) of_answers;
};

struct session {
    struct dlock_client *client;
    struct zk_url url;
    int asked_ms;           /* the session's time-out that is asked for */
    pthread_mutex_t mutex;  /* protects what is below */
    pthread_cond_t changed; /* a call is over, or a thread must look */
    pthread_t threads[2];
    size_t thread_count;
    bool stop;
    bool looked;       /* the thread that keeps the time has looked since the latest session_look */
    int64_t looks_ns;  /* CLOCK_MONOTONIC: when it looks again */
    zhandle_t *handle; /* NULL: none */
    bool opening;      /* handle is set by the first event that comes */
    bool connected, expired;
    int64_t lost_ns;     /* CLOCK_BOOTTIME: since when it is not connected */
    clientid_t given_up; /* the session that was given up, as it must be ended */
    bool gives_up;       /* `expired` is set for that reason */
    bool ending;         /* the handle is there only to end it */
    bool outage;         /* it was told */
    int64_t granted_ms;  /* by the server: the session's time-out. 0: none yet */
    struct proof proof;
    struct beat {        /* the write to the session's own node */
        bool under_way;  /* ZooKeeper's client calls back */
        bool made;       /* the node exists, as far as is known */
        int64_t sent_ns; /* CLOCK_BOOTTIME; 0: not sent on this connection */
    } beat;
    struct identity identity; /* of the ensemble's data; "": not read yet */
    size_t open_locks;
    uint64_t connects, commands;
    TAILQ_HEAD(, request) requests;
    STAILQ_HEAD(, request) answers; /* whose exchanges are to be answered */
    LIST_HEAD(, queue) queues;
};

/* "With the mutex": the session's is held. */

/* False: out of memory or threads. With the mutex. */
bool session_start(struct session *session);
/* Ends the threads and the session; from its return on no function is called back. */
void session_stop(struct session *session);
/* Unlocks the mutex, and answers what is to be answered. */
void session_unlock(struct session *session);
/* With the mutex. A thread looks at what is due; of request_begins, at the request's limits. */
void session_look(struct session *session);
void request_begins(struct request *request, int64_t begins_ns, int64_t ends_ns);
/* With the mutex. ZooKeeper answered a request that was sent then; `write`: the leader has it. */
void session_heard(struct session *session, int64_t sent_ns, bool write);
/* With the mutex. CLOCK_BOOTTIME: how long a hold of the session is valid; 0: it is not. */
int64_t session_valid_until(const struct session *session);
/* Whether rc says nothing about what was asked: the connection or the session was lost. */
bool session_is_no_answer(int rc);
/* The access that nodes are created with: the user's alone, or anybody's. */
const struct ACL_vector *session_access(const struct session *session);
/* For an answer that nobody needs. */
void session_ignore(int rc, const char *path, const void *data);
/* With the mutex. Creates the persistent nodes above a node of that path, as far as they are
 * missing. */
void session_make_above(struct session *session, const char *path);

/* With the mutex: beat.c. Writes to the session's own node if that is due; creates it if necessary.
 * Returns when it is due next, on CLOCK_BOOTTIME. */
int64_t beat_go(struct session *session, int64_t now_ns);

/* With the mutex. NULL: out of memory. */
struct request *request_new(struct queue *queue, enum what what, const char *owner);
/* With the mutex. Somebody waits for it, or the session does. */
static inline bool request_is_wanted(const struct request *request)
{
    return (request->exchange != NULL && !request->answered) || request->call != NULL ||
           request->unasked;
}
/* With the mutex. Its answer, with the sentence of dlock_error(); it may be gone by the return. */
void request_answer(struct request *request, dlock_status status);
/* With the mutex. Nobody asks for it, and nothing of it is under way: frees it. */
void request_settle(struct request *request);
/* With the mutex. Sends what is to be sent next, or waits for a connection: steps.c. */
void request_go(struct request *request);

/* With the mutex. Deletes its node. */
void place_leave(struct queue *queue, struct place *place);
/* With the mutex. */
struct place *place_of(const struct queue *queue, const char *owner);
void place_free(struct place *place);

static inline struct session *session_of(const struct dlock_client *client)
{
    return client->engine_state;
}

#endif
