/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's lease at etcd, and its requests over the JSON gateway, by libcurl. One thread of the
 * client sends them, takes the answers, watches, and keeps the time. A flight is one HTTP request.
 */
#ifndef DLOCK_ETCD_H
#define DLOCK_ETCD_H

#include "body.h"
#include "etcd_url.h"
#include "lease_proof.h"
#include "queued/session.h"
#include "reply.h"

#include <curl/curl.h>

#define RESPONSE_MAX (1024 * 1024) /* bytes of a reply, or of one line of a watch */
#define TOKEN_MAX 4096
#define HANDLES_KEPT 8
#define ENDED_MAX 8 /* leases to be revoked; if there are more, the others live their time */
#define LOGIN "/v3/auth/authenticate"
#define AGAIN_NS (50 * NS_PER_MS) /* until what failed is tried again */
#define REFUSED_AGAIN_NS NS_PER_S /* until what was refused is */

struct etcd;

struct flight {
    struct etcd *etcd;
    const char *what; /* the gateway's path */
    char *body;
    /* With the mutex. Its end; the reply is freed after it. */
    void (*landed)(struct flight *flight, const struct reply *reply);
    /* With the mutex. A watch: one line has come. NULL: it has one reply. */
    void (*line)(struct flight *flight, const char *text, size_t size);
    struct request *request;  /* that it is for; or NULL */
    struct etcd_queue *queue; /* of a watch; NULL: nobody needs it any more */
    char name[NODE_MAX];      /* of the key that it creates or deletes */
    bool was_sent;            /* its request had been sent before */
    bool was_begun;           /* libcurl has begun to send it */
    bool unfenced;            /* a delete: a create of that key may be carried out after it */
    bool is_here;             /* a request at the member that is asked now */
    bool is_look;             /* likewise, and it reads the key of a hold */
    bool over;                /* its end is to come, without a reply */
    bool answered;            /* a watch: it has begun */
    bool no_socket;           /* this process has no descriptor left for it */
    uint64_t lease, guard;    /* the client's, when it began */
    uint64_t moves, logins;   /* likewise: etcd.moves, etcd.logins */
    uint64_t least;           /* likewise: etcd.revision */
    size_t member;            /* that is asked, from 0 */
    int ranges;               /* that its answer must have */
    uint64_t number;          /* of the key, as far as it was known when it was read */
    bool no_token;            /* it was sent without a login, though one is needed */
    bool is_local;            /* it failed for want of this process's memory or descriptors */
    int64_t sent_ns;          /* CLOCK_BOOTTIME, before it was sent */
    CURL *easy;               /* NULL: not begun */
    struct curl_slist *headers;
    char *got;
    size_t got_size, got_room;
    TAILQ_ENTRY(flight) of_etcd;
};

struct etcd_place {
    struct place base;
    char name[NODE_MAX]; /* of its key, also while that does not exist; "": none yet */
    size_t slot;         /* which makes the name its own */
    size_t deletes;      /* of that key, which were not answered */
    uint64_t seen;       /* the revision at which it was known to exist; 0: not known */
    uint64_t guard;      /* of its latest create */
    bool is_first;       /* nothing is before it */
    bool is_unsure;      /* a watch has broken since it was read */
    bool alone;          /* its latest create wants an empty queue */
    bool again;          /* its latest create followed one that was not answered */
    int64_t held_ns;     /* CLOCK_MONOTONIC: since when it holds */
};

struct etcd_queue {
    struct queue base;
    bool is_empty;        /* nothing was before the latest key of this client */
    struct flight *watch; /* NULL: none */
    uint64_t heard;       /* all deletes up to this revision are known; 0: no watch was begun */
    bool broke;           /* a watch has ended, and no other one has begun since */
    int64_t wanted_ns;    /* CLOCK_MONOTONIC: when a place last needed the watch */
    int64_t again_ns;     /* CLOCK_MONOTONIC: a watch begins no earlier */
    int64_t looked_ns;    /* CLOCK_MONOTONIC: when the keys of all holds were last read */
};

struct etcd {
    struct session base;
    struct etcd_url url;
    CURLM *multi;
    CURL *idle[HANDLES_KEPT]; /* handles that no flight uses */
    size_t idle_count;
    pthread_t thread;
    bool runs;
    /* Protected by the session's mutex. */
    TAILQ_HEAD(, flight) waiting; /* flights that are not begun */
    TAILQ_HEAD(, flight) flying;
    size_t flying_count;       /* those of requests */
    size_t here_count;         /* of these, the ones at the member that is asked */
    size_t look_count;         /* of these, the ones that read the keys of holds */
    size_t watching_count;     /* those of watches */
    size_t endpoint;           /* the member that is asked */
    uint64_t moves;            /* counts changes of it */
    size_t failures;           /* endpoints that failed, one after another */
    bool patient;              /* all failed, and none has answered since */
    char token[TOKEN_MAX];     /* of the login; "": none */
    uint64_t logins;           /* counts its changes */
    int64_t login_ns;          /* CLOCK_MONOTONIC: the next login comes no earlier */
    uint64_t revision;         /* of the store, as is known under this lease */
    uint64_t lease;            /* 0: none */
    uint64_t cluster;          /* that granted the lease */
    unsigned strangers;        /* a bit for each member of another one, since its own answered */
    uint64_t ended[ENDED_MAX]; /* leases that may still be there, to be revoked; 0: none */
    bool revoking;             /* the first of them is being revoked */
    struct lease_proof proof;
    unsigned char *slots; /* those that are taken: one byte each */
    size_t slot_count;
    uint64_t guard;   /* the number of the client's own key; 0: it must be written */
    bool guarding;    /* it is being written */
    bool own_refused; /* the latest answer to that refused it */
    bool asking;      /* a request for the lease itself is under way */
    bool beat_now;    /* an extension waits for the next keep-alive */
    int64_t beat_ns;  /* CLOCK_BOOTTIME: the latest keep-alive; 0: none */
    int64_t again_ns; /* CLOCK_MONOTONIC: the lease is asked for no earlier */
    int64_t busy_ns;  /* CLOCK_MONOTONIC: other requests are sent no earlier */
};

static inline struct etcd *etcd_of(struct session *session)
{
    return (struct etcd *)session;
}

static inline struct etcd *etcd_of_request(const struct request *request)
{
    return etcd_of(request->queue->session);
}

/* "With the mutex": the session's is held. */

/* ---- gateway.c ------------------------------------------------------------------------------- */

/* With the mutex. Begins a flight; the body is the flight's. NULL: out of memory. */
struct flight *flight_begin(struct etcd *etcd, const char *what, struct body *body,
                            void (*landed)(struct flight *flight, const struct reply *reply));
/* With the mutex. It is sent before all that were not sent yet. */
void flight_first(struct flight *flight);
/* With the mutex. A URL may name a member that was set up anew: the cluster that it makes has other
 * data. Its answer counts as none. */
void flight_check_cluster(struct flight *flight, struct reply *reply);
/* With the mutex. The next member is asked, unless that was done since. The one before did answer.
 */
void etcd_pass(struct etcd *etcd, uint64_t moves);
/* With the mutex. The member failed: the next one is asked. */
void etcd_move(struct etcd *etcd, uint64_t moves, const char *why);
/* With the mutex. It answered a linearizable request. */
void etcd_is_back(struct etcd *etcd);
/* False: out of memory or threads. With the mutex. */
bool etcd_start(struct session *session);
/* Ends the thread and the lease. */
void etcd_stop(struct session *session);
/* With the mutex. */
void etcd_wake(struct session *session);

/* ---- lease.c --------------------------------------------------------------------------------- */

/* With the mutex, on the client's thread. Asks for a login, a lease, a keep-alive, a proof, as is
 * due. Returns when it is due next, on CLOCK_MONOTONIC. */
int64_t lease_go(struct etcd *etcd);
/* With the mutex. It must log in before other requests. */
static inline bool lease_lacks_login(const struct etcd *etcd)
{
    return etcd->url.user != NULL && etcd->token[0] == '\0';
}
/* With the mutex. Whether requests can be sent: there is a connection, and a login if need be. */
static inline bool lease_lets_in(const struct etcd *etcd)
{
    return etcd->base.connected && !lease_lacks_login(etcd);
}
/* With the mutex. Whether requests can be sent that depend on the client's own key; has it written
 * if not. */
bool lease_guards(struct etcd *etcd);
/* With the mutex. A linearizable request that was sent then was answered. */
void lease_confirmed(struct etcd *etcd, const struct flight *flight, const struct reply *reply);
/* With the mutex. The servers do not take the flight's token. */
void lease_token_is_bad(struct etcd *etcd, const struct flight *flight, const char *why);
/* With the mutex. It counts no longer, and what the servers may have of it is in the way: it is
 * revoked once the core knows of the end of its holds. */
void lease_end(struct etcd *etcd, const char *why);
/* With the mutex. Revokes it. NULL: out of memory. */
struct flight *lease_revoke(struct etcd *etcd, uint64_t lease);
/* The client's own key. */
struct key lease_own_key(const struct etcd *etcd, char path[PATH_MAX_BYTES]);

/* ---- names.c --------------------------------------------------------------------------------- */

/* With the mutex. Gives the place's key a name. False: out of memory. */
bool name_take(struct etcd *etcd, struct etcd_place *place);
/* With the mutex. Another place may have it, unless a delete of it was not answered. */
void name_give_back(struct session *session, struct place *base);

/* ---- watch.c --------------------------------------------------------------------------------- */

/* With the mutex, on the client's thread. Begins and ends watches. Returns when to look again, on
 * CLOCK_MONOTONIC. */
int64_t watches_go(struct etcd *etcd);
/* With the mutex. A change of that number has deleted the node. If it was the first, and this
 * client's like the next, then the next one need not ask again. */
void etcd_first_is_gone(struct queue *queue, const char *node, uint64_t number);
/* With the mutex. What the watch has told counts no longer: the queue is about to be freed, or the
 * client has another lease, perhaps of servers that have lost their data. */
void watch_forget(struct queue *queue);

/* ---- steps.c --------------------------------------------------------------------------------- */

/* With the mutex. Sends what is to be sent next. */
void etcd_go(struct request *request);

#endif
