/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's session with ZooKeeper: its handle, and its own node. While a lock is open, the
 * session writes to that node; the answers prove since when its time to live counts (proof.h).
 */
#ifndef DLOCK_ZOOKEEPER_SESSION_H
#define DLOCK_ZOOKEEPER_SESSION_H

#include "proof.h"
#include "queued/session.h"
#include "zk_url.h"
#include "zookeeper_engine.h"

struct zk_request {
    struct request base;
    int create_rc;       /* ACQUIRE: the answer to the create before the list */
    uint64_t connection; /* how many the session had had when its latest was sent */
    bool breaks;         /* BREAK: the delete was sent */
    bool looks;          /* ACQUIRE: a try whose list says whether anybody is there */
    bool has_looked;     /* likewise: nobody was */
    int vanished;        /* ACQUIRE: so often the identity was gone when it was read */
};

struct zk_place {
    struct place base;
    const struct request *leave; /* its request to leave that is in flight; NULL: none */
};

struct zk_queue {
    struct queue base;
    int64_t rests_until_ns; /* CLOCK_BOOTTIME: its numbers are used up, and nobody enters it */
};

struct zk_session {
    struct session base;
    struct zk_url url;
    /* Protected by the session's mutex. */
    pthread_t threads[2];
    size_t thread_count;
    zhandle_t *handle;   /* NULL: none */
    bool opening;        /* handle is set by the first event that comes */
    bool logged_in;      /* the handle has the login */
    bool pauses;         /* its login was refused, or not sent: the next one begins later */
    bool expired;        /* it is to be closed */
    bool heard;          /* something was answered on this connection, or it began without a lock */
    int64_t lost_ns;     /* CLOCK_BOOTTIME: since when it is not connected, or not answered */
    clientid_t given_up; /* the session that was given up, as it must be ended */
    bool gives_up;       /* `expired` is set for that reason */
    bool ending;         /* the handle is there only to end it */
    int64_t clear_ns;    /* CLOCK_BOOTTIME: nothing in flight is late before */
    struct proof proof;
    struct beat {        /* the write to the session's own node */
        bool under_way;  /* ZooKeeper's client calls back */
        bool made;       /* the node exists, as far as is known */
        int64_t sent_ns; /* CLOCK_BOOTTIME; 0: not sent on this connection */
    } beat;
};

static inline struct zk_session *zk_of(struct session *session)
{
    return (struct zk_session *)session;
}

/* "With the mutex": the session's is held. */

/* False: out of memory or threads. With the mutex. */
bool zk_start(struct session *session);
/* Ends the threads and the session; from its return on no function is called back. */
void zk_stop(struct session *session);
/* With the mutex. ZooKeeper answered a request that was sent then; `write`: the leader has it. */
void zk_heard(struct zk_session *zk, int64_t sent_ns, bool write);
/* Whether rc says nothing about what was asked: the connection or the session was lost. */
bool zk_is_no_answer(int rc);
/* The access that nodes are created with: the user's alone, or anybody's. */
const struct ACL_vector *zk_access(const struct zk_session *zk);
/* For an answer that nobody needs. */
void zk_ignore(int rc, const char *path, const void *data);
/* With the mutex. Creates the persistent nodes above a node of that path, as far as they are
 * missing. */
void zk_make_above(struct zk_session *zk, const char *path);

/* With the mutex: beat.c. Writes to the session's own node if that is due; creates it if necessary.
 * Returns when it is due next, on CLOCK_BOOTTIME. */
int64_t beat_go(struct zk_session *zk, int64_t now_ns);

/* With the mutex: steps.c. */
void zk_go(struct request *request);

#endif
