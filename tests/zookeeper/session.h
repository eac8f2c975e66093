/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's session with ZooKeeper: its handle, its nodes, and the requests that wait for answers.
 * The order of mutexes is: the session's, then the loop's or the timekeeper's.
 */
#ifndef TESTS_ZOOKEEPER_SESSION_H
#define TESTS_ZOOKEEPER_SESSION_H

#include "client.h"
#include "zookeeper_engine.h"

#define ROOT "/dlock"
#define NODE_MAX (OWNER_MAX + 16) /* "<owner>-<ten digits>" */
#define PATH_MAX_BYTES (sizeof ROOT + 3 * DLOCK_NAME_MAX + NODE_MAX + 4)

/* A node of this client in a lock's queue: it waits there, or it is the first and holds. */
struct place {
    char owner[OWNER_MAX];
    char node[NODE_MAX]; /* its name; "": not known, or not created */
    bool doubtful;       /* the create was not answered: the node may exist */
    bool renewing;       /* a write is under way */
    bool dropped;        /* it is being deleted, since nobody needs it any more */
    int64_t ttl_ms;
    int64_t until_ns; /* CLOCK_BOOTTIME: nobody needs it after this */
    int64_t renew_ns; /* CLOCK_BOOTTIME: when it is written next; INT64_MAX: it does not hold */
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
    int64_t sent_ns;
    struct look *look;
};

struct request {
    struct queue *queue;
    enum what { ACQUIRE, LET_GO, RENEW, LOOK, BREAK } what;
    char owner[OWNER_MAX];
    char found[NODE_MAX];      /* BREAK: the node that it deletes */
    struct exchange *exchange; /* NULL: none, or it was answered */
    struct call *call;         /* likewise */
    bool unasked;              /* nobody waits for it: the session's own */
    bool answered;             /* its exchange is in session.answers */
    bool in_flight;            /* ZooKeeper's client calls back */
    bool sent;                 /* something was */
    bool repeated;             /* its delete may have been carried out before */
    int64_t sent_ns;           /* CLOCK_BOOTTIME, before its latest write */
    int64_t begins_ns;         /* CLOCK_MONOTONIC: it is not sent later */
    int64_t ends_ns;           /* CLOCK_MONOTONIC: it is answered by then */
    TAILQ_ENTRY(request) of_session;
    STAILQ_ENTRY(request) of_answers;
};

struct session {
    struct dlock_client *client;
    char *hosts;            /* as zookeeper_init wants them */
    int timeout_ms;         /* asked for */
    pthread_mutex_t mutex;  /* protects what is below */
    pthread_cond_t changed; /* a call is over, or the thread shall look */
    pthread_t threads[2];
    size_t thread_count;
    bool stop;
    zhandle_t *handle; /* NULL: none */
    bool opening;      /* handle is set by the first event that comes */
    bool connected, expired;
    bool outage;        /* it was told */
    int64_t granted_ms; /* by the server: the session lives so long without a word */
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

/* When a thread that waits for session.changed looks anyway. */
struct timespec *session_soon(struct timespec *until);

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

/* With the mutex. */
struct place *place_of(const struct queue *queue, const char *owner);
void place_free(struct place *place);
/* With the mutex. It holds by a write that was sent then. */
void place_holds(struct place *place, int64_t sent_ns);

static inline struct session *session_of(const struct dlock_client *client)
{
    return client->engine_state;
}

#endif
