/* SPDX-License-Identifier: Apache-2.0
 *
 * What several engines share. Their locks are queues on the servers, and a client's holds live as
 * long as its session with the servers. Here are the session's requests, its places in the queues,
 * and its time. How a request is sent, and what proves that the session lives, is the engine's own.
 * The order of mutexes is: the session's, then the loop's or the timekeeper's.
 */
#ifndef DLOCK_QUEUED_SESSION_H
#define DLOCK_QUEUED_SESSION_H

#include "client.h"
#include "url_parts.h"

#define NODE_MAX (OWNER_MAX + 16)
#define LOCKS "/locks/"
#define CLIENTS "/clients"
#define IDENTITY "/identity"
#define IDENTITY_TEXT_MAX 33
/* "<root>/locks/<name>/<node>", where each byte of the name may become three. */
#define PATH_MAX_BYTES (ROOT_MAX + sizeof LOCKS + 3 * DLOCK_NAME_MAX + NODE_MAX + 1)

/* A node or key of this client in a lock's queue: it waits there, or it is the first and holds. */
struct place {
    char owner[OWNER_MAX];
    uint64_t acquisition;  /* of the hold that it was created for */
    char node[NODE_MAX];   /* its name; "": not known, or not created */
    char before[NODE_MAX]; /* the node whose end it waits for; "": none */
    uint64_t number;       /* of the change that created it, its token; 0: not known */
    bool doubtful;         /* the create was not answered: the node may exist */
    bool holds;
    bool lost;                /* it is gone, and the core does not know yet */
    bool leaving;             /* it is being deleted */
    bool released;            /* it was to be deleted, though that may have failed */
    struct identity identity; /* of the servers, when it was granted; "": nobody asked */
    int64_t until_ns;         /* CLOCK_BOOTTIME: nobody needs it after this */
    int64_t ends_ns;          /* CLOCK_BOOTTIME: hold_max_ms ends its holds; INT64_MAX: no limit */
    int64_t unproven_ns;      /* CLOCK_BOOTTIME: when an acquire first ended for want of a proof */
    LIST_ENTRY(place) of_queue;
};

/* A lock's nodes. It lives until its last node is gone, also when the lock is closed before. */
struct queue {
    struct session *session;
    struct dlock *lock; /* NULL: closed */
    LIST_HEAD(, place) places;
    size_t place_count, request_count;
    LIST_ENTRY(queue) of_session;
    char *path; /* of the node that its nodes are below */
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
    int in_flight;             /* so many answers are due */
    bool sent;                 /* something was */
    bool repeated;       /* LET_GO: its delete may have been carried out before; WATCH: ask again */
    bool first;          /* ACQUIRE: its node is the first; it waits for a proof */
    bool only_read;      /* ACQUIRE: nothing that was sent can have made its node */
    int64_t sent_ns;     /* CLOCK_BOOTTIME, before its latest */
    int64_t launched_ns; /* CLOCK_BOOTTIME: since when that is on its way */
    int64_t begins_ns;   /* CLOCK_MONOTONIC: it is not sent later */
    int64_t ends_ns;     /* CLOCK_MONOTONIC: it is answered by then */
    TAILQ_ENTRY(request) of_session;
    STAILQ_ENTRY(request) of_answers;
};

/* What an engine does for its sessions. All with the mutex. */
struct session_ops {
    const char *kind; /* what holds live as long as: "session", "lease" */
    /* Each struct of the engine begins with the shared one. */
    size_t request_size, place_size, queue_size;
    /* False: out of memory or threads. */
    bool (*start)(struct session *session);
    /* Sends what is to be sent next, or waits for a connection. */
    void (*go)(struct request *request);
    /* The thread that keeps the time must look. */
    void (*wake)(struct session *session);
    /* Free what the engine keeps of it. NULL: nothing. */
    void (*free_queue)(struct queue *queue);
    void (*free_place)(struct session *session, struct place *place);
    /* The session's own request has ended. NULL: the engine does not care. */
    void (*has_ended)(struct request *request);
};

struct session {
    const struct session_ops *ops;
    struct dlock_client *client;
    char name[256];         /* as sentences name it: "zk://h1:2181,h2:2181" */
    char root[ROOT_MAX];    /* all nodes of the library are below it */
    int64_t asked_ms;       /* the time to live that is asked for */
    pthread_mutex_t mutex;  /* protects what is below */
    pthread_cond_t changed; /* a call is over */
    bool stop;
    bool looked;       /* the thread that keeps the time has looked since the latest session_look */
    int64_t looks_ns;  /* CLOCK_MONOTONIC: when it looks again */
    bool connected;    /* requests can be sent */
    bool outage;       /* it was told */
    char trouble[256]; /* why the servers' latest answer is missing; "": not known */
    bool refused;      /* they did answer, and refused the session: `trouble` says why */
    int64_t granted_ms;       /* by the servers: the time to live. 0: none yet */
    int64_t counts_ns;        /* CLOCK_BOOTTIME: since when it counts, as is proven; 0: not known */
    struct identity identity; /* of the servers' data; "": not read yet */
    size_t open_locks;
    _Atomic uint64_t connects, commands; /* read without the mutex, too: a forked child may */
    TAILQ_HEAD(, request) requests;
    STAILQ_HEAD(, request) answers; /* whose exchanges are to be answered */
    LIST_HEAD(, queue) queues;
};

/* "With the mutex": the session's is held. */

void session_init(struct session *session, const struct session_ops *ops,
                  struct dlock_client *client);
/* No thread uses it any more. */
void session_free(struct session *session);
/* Unlocks the mutex, and answers what is to be answered. */
void session_unlock(struct session *session);
/* With the mutex. A thread looks at what is due. */
void session_look(struct session *session);
/* With the mutex. CLOCK_BOOTTIME: how long a hold of the session is valid; 0: it is not. */
int64_t session_valid_until(const struct session *session);
/* With the mutex. Its time to live counts since then, if that is later than before. */
void session_counts(struct session *session, int64_t counts_ns);
/* With the mutex. It has ended, and its nodes with it. */
void session_expired(struct session *session);
/* With the mutex. Tells the application, unless it knows. */
void session_tell(struct session *session, bool outage, const char *why);
/* With the mutex. A change of that number has deleted the node: the hold that it was is lost, or
 * the waiter that waited for its end may be the first. */
void session_node_is_gone(struct queue *queue, const char *node, uint64_t number);

/* With the mutex, on the thread that keeps the time. Answers what took too long, leaves the places
 * that nobody needs, and frees queues. Returns when to look again, on CLOCK_MONOTONIC. */
int64_t session_look_at_all(struct session *session);

/* With the mutex. NULL: out of memory. */
struct request *request_new(struct queue *queue, enum what what, const char *owner);
/* With the mutex. Sends it; a thread looks at its limits. */
void request_begins(struct request *request, int64_t begins_ns, int64_t ends_ns);
/* With the mutex. Somebody waits for it, or the session does. */
static inline bool request_is_wanted(const struct request *request)
{
    return (request->exchange != NULL && !request->answered) || request->call != NULL ||
           request->unasked;
}
/* A release of a nested hold: its owner keeps the place, and nothing is sent. */
static inline bool request_nests(const struct request *request)
{
    return request->what == LET_GO && request->exchange != NULL &&
           request->exchange->hold->depth > 1;
}
/* With the mutex. Its answer, with the sentence of dlock_error(); it may be gone by the return. */
void request_answer(struct request *request, dlock_status status);
/* With the mutex. What was sent last has had the time of a command. (The call's own may be over
 * sooner: that says nothing of the servers.) */
bool request_is_late(const struct request *request);
/* With the mutex. Nobody asks for it, and nothing of it is under way: frees it. */
void request_settle(struct request *request);

/* With the mutex. */
struct place *place_of(const struct queue *queue, const char *owner);
void place_free(struct queue *queue, struct place *place);
/* With the mutex. Whether a place holds that nobody has released: it is left to expire. */
bool session_is_held(const struct session *session);
/* With the mutex. Deletes its node. */
void place_leave(struct queue *queue, struct place *place);

/* ---- Parts of an engine's steps: claim.c. With the mutex. ------------------------------------ */

/* An acquire begins, before anything is sent. NULL: it was answered, or must wait until the owner's
 * earlier place is gone. A nested one has its owner's place: send what shows that it exists. */
struct place *claim_begins(struct request *request);
/* A try: an acquire that is the only attempt of its call, and does not nest. It enters a queue only
 * if nobody is in it. Otherwise others that come at the same time would be refused because of it.
 */
bool claim_is_try(const struct request *request);
/* Another holder has the lock, or is about to have it. The attempt keeps its place; a try leaves it
 * at once. */
void claim_is_busy(struct request *request);
/* The owner has the lock, as far as is known. */
bool claim_still_holds(const struct request *request, const struct place *place);
/* The request wants the servers' identity, and it must be read first. */
bool claim_lacks_identity(const struct request *request, const struct place *place);
/* Answers OK. True: the place did not hold before. */
bool claim_is_granted(struct request *request, struct place *place);
/* A release begins. False: it was answered. */
bool claim_lets_go(struct request *request, struct place *place);
/* The place is gone, and the release is answered. deleted: by it. */
void claim_is_gone(struct request *request, struct place *place, bool deleted);
/* The place is gone. */
void claim_forget(struct request *request, struct place *place);
/* An extension was carried out, and is answered. The hold gets the session's time, and its place
 * stays as long. */
void claim_is_extended(struct request *request, struct place *place);
/* An extension or a release found that the node is gone. */
void claim_is_lost(struct request *request, struct place *place);
/* A value for the servers' identity, if they have none. It is random: servers that have lost it
 * must not get it again, not even from the same client. False: the system gives no random bytes. */
bool claim_draws_identity(char text[IDENTITY_TEXT_MAX]);

/* ---- An engine's table: table.c -------------------------------------------------------------- */

static inline struct session *session_of(const struct dlock_client *client)
{
    return client->engine_state;
}

/* The functions of struct dlock_engine that are the same. */
void queued_stats(const struct dlock_client *client, struct dlock_stats *stats);
int64_t queued_pause_ms(struct dlock_client *client);
bool queued_open_lock(struct dlock *lock);
void queued_close_lock(struct dlock *lock);
unsigned queued_abilities(const struct rung_ops *ops);
bool queued_begin_batch(struct dlock_batch *batch);
bool queued_shares(const struct exchange *exchange, const struct exchange *other);
void queued_exchange(struct dlock_client *client, struct exchange *const *all, size_t count);
bool queued_listen(struct dlock *lock, const struct busy *busy, int64_t limit_ns, int cancel_fd);
void queued_forget(struct dlock *lock);
void queued_tend(struct dlock_client *client);
dlock_status queued_extend(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                           int64_t *ttl_ms);
dlock_status queued_inspect(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look);
dlock_status queued_break(struct dlock *lock, int64_t ends_ns, struct look *look);
dlock_status queued_check_beside(struct dlock *lock, int64_t ends_ns, int cancel_fd);

#define QUEUED_TABLE                                                                               \
    .answers_later = true, .stats = queued_stats, .pause_ms = queued_pause_ms,                     \
    .open_lock = queued_open_lock, .close_lock = queued_close_lock, .abilities = queued_abilities, \
    .begin_batch = queued_begin_batch, .shares = queued_shares, .exchange = queued_exchange,       \
    .listen = queued_listen, .forget = queued_forget, .tend = queued_tend,                         \
    .extend = queued_extend, .inspect = queued_inspect, .break_lock = queued_break,                \
    .check_beside = queued_check_beside

#endif
