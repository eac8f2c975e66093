/* SPDX-License-Identifier: Apache-2.0
 *
 * What all connections of a client share about a server: its addresses, whether it may be tried
 * now, and which outages were reported.
 */
#ifndef DLOCK_REACH_H
#define DLOCK_REACH_H

#include "engine.h"
#include "lookup.h"
#include "url.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define REASON_MAX 400 /* room for what each sentinel said */

/* The outages of all servers of a client. */
struct outages {
    /* Called once for each change, in order, on the thread that found it. It must not block. NULL:
     * no call. */
    void (*tell)(void *arg, enum outage outage, const char *reason);
    void *arg;
    _Atomic uint64_t lost;
    _Atomic uint64_t refused;
    _Atomic uint64_t back;
    _Atomic uint64_t connects_failed;
};

/* How a server is found, and what its login asks. */
enum server_kind {
    SERVER_AT_URL,      /* a Redis, at the URL's address */
    SERVER_OF_SENTINEL, /* the Redis that a majority of the URL's sentinels names as the master */
    SERVER_SENTINEL,    /* a sentinel itself, at the URL's address */
};

/* An open socket. So the connections to a former master can be ended at once. */
struct reach_socket {
    int fd;
    uint64_t generation; /* the server's, when this connection was begun, */
    uint64_t epoch;      /* and its epoch. OF_SENTINEL only */
    LIST_ENTRY(reach_socket) of_server;
};

struct watch; /* see sentinel.h */

struct server {
    struct url url;      /* set before reach_init */
    struct watch *watch; /* OF_SENTINEL: of redis.c; else NULL */
    enum server_kind kind;
    struct outages *outages;
    _Atomic size_t replicas; /* see server_replicas */
    bool fixed;              /* a numeric address or a socket: `known` never changes */
    _Atomic bool proven;     /* it has answered since its last failure; written under mutex */
    /* It rises when the sentinels name another master; written under mutex. */
    _Atomic uint64_t generation;
    int ask_fd; /* OF_SENTINEL: an eventfd, see reach_ask; else -1 */

    pthread_mutex_t sockets_mutex; /* of its own: a socket is closed under any other mutex */
    LIST_HEAD(, reach_socket) sockets;

    pthread_mutex_t mutex;      /* protects what is below */
    struct addresses known;     /* the latest result of a look-up */
    uint64_t epoch;             /* OF_SENTINEL: of `generation`, as the sentinels count */
    struct lookup *lookup;      /* the latest, until its result is taken; or NULL */
    bool in_round;              /* OF_SENTINEL: the round began after `lookup` */
    bool unwatched;             /* OF_SENTINEL: nobody asks the sentinels any more */
    char sentinels[REASON_MAX]; /* OF_SENTINEL: what they said while they named no master */
    struct address last;        /* the address that was tried last */
    bool last_failed;
    bool demoted;                 /* it said that it is not a master (READONLY ...) */
    int64_t trouble_ns;           /* CLOCK_MONOTONIC: when a connection in use broke last */
    unsigned failures;            /* attempts to connect since it was proven */
    int64_t pause_until_ns;       /* CLOCK_MONOTONIC: no attempt before, unless it is proven */
    uint32_t chance;              /* a random state: clients of one server pause differently */
    dlock_status down_status;     /* the latest failure since it was proven */
    char down_reason[REASON_MAX]; /* "": none yet */
    enum health { SERVER_FINE, SERVER_LOST, SERVER_REFUSES } health; /* of its connections */
    enum health told;                        /* as reported, the refusals below included */
    unsigned wakeups_refused;                /* the kinds of wake-ups that it refuses, a bit each */
    char wakeups_refused_reason[REASON_MAX]; /* of the latest refusal */
    bool named_twice;                        /* that was reported */
    int64_t identity_refused_ns; /* CLOCK_MONOTONIC: when CLIENT ID or INFO was refused; 0: never */
    int64_t kill_refused_ns;     /* the same for CLIENT KILL */
};

/* How many replicas the server should have, those included that are down: as the caller said; and
 * OF_SENTINEL at least as many as its sentinels know. */
size_t server_replicas(const struct server *server);

/* False: no descriptor is left. */
bool reach_init(struct server *server, enum server_kind kind, struct outages *outages);
void reach_free(struct server *server); /* not its URL */

/* Whether to connect now. To a proven server: always CONNECT. To another: one attempt a pause.
 * Each attempt starts a pause, longer each time, and the first caller after the pause makes the
 * next attempt, even while the earlier one is still under way. During the pause: FAIL, with the
 * last error, if an attempt has failed since the server was proven. Otherwise WAIT, until the pause
 * is over or the server is proven. */
enum reach_turn { REACH_CONNECT, REACH_WAIT, REACH_FAIL };
enum reach_turn reach_turn(struct server *server, dlock_status *status, char reason[REASON_MAX]);
/* The remaining time of the pause; 0: there is none. */
int64_t reach_pause_ms(struct server *server);

/* An attempt to connect or to log in failed. (A login that works does not prove the server.) */
void reach_failed(struct server *server, dlock_status status, const char *reason);
/* Another of the client's URLs names this server, too. It is reported once. */
void reach_named_twice(struct server *server, const char *reason);
/* A subscriber connection broke, or one on which a reply was due. made_ns: when it logged in.
 * sent_ns: when the lost request was sent (both CLOCK_MONOTONIC). The first break causes no pause.
 * If connections made after it break as well, they count as failures from the fourth on. Breaks of
 * requests sent before the last break count as that same break. */
void reach_lost(struct server *server, int64_t made_ns, int64_t sent_ns, const char *reason);
/* It answered that it is not a master. Another server may be found under its name. */
void reach_demoted(struct server *server, const char *reason);
/* It answered. took: without an error. Called after every exchange; cheap for a proven server. */
void reach_answered(struct server *server, bool took);
/* It refuses this kind of wake-ups (a bit) to a lock; or no lock is refused them any more, perhaps
 * because those locks were closed. */
void reach_wakeups_refused(struct server *server, unsigned kind, const char *reason);
void reach_wakeups_accepted(struct server *server, unsigned kind);

/* The running look-up of its name, or a new one; the caller has joined it. OF_SENTINEL: a question
 * to the sentinels. NULL: its address is fixed, or resources are short. */
struct lookup *reach_look(struct server *server);
/* Its addresses, in the order to try them: from the look-up, if that is over, else the last known
 * ones. OF_SENTINEL: none before the look-up is over. Sets the generation and the epoch that they
 * belong to. 0; else getaddrinfo's error, and no address. */
int reach_addresses(struct server *server, struct lookup *lookup, struct addresses *addresses,
                    struct reach_socket *socket);
/* A sentence about a look-up that failed with that error; 0: it took too long. */
void reach_explain(struct server *server, int error, char reason[REASON_MAX]);
/* The next attempt begins with this address, or, if it failed, with the one after it. */
void reach_tried(struct server *server, const struct address *address, bool failed);

/* A connection's socket was opened for an address of `socket->generation`, or is about to be
 * closed. */
void reach_open(struct server *server, struct reach_socket *socket);
void reach_close(struct server *server, struct reach_socket *socket);
/* Whether the connection leads to a former master. Cheap. */
static inline bool reach_is_former(const struct server *from, const struct reach_socket *socket)
{
    return socket->generation != atomic_load(&from->generation);
}

/* OF_SENTINEL. Makes the thread that watches the sentinels ask them soon: ask_fd becomes readable.
 * The others are for that thread. */
void reach_ask(struct server *server);
/* The sentinels are asked from now on. What they answer is for the connections that wait by now. */
void reach_begin_round(struct server *server);
/* Whether a connection waits for the answer. */
bool reach_is_awaited(struct server *server);
/* A majority names this master, of this configuration epoch. anew: it is another one than before,
 * or of another epoch. Then all connections to the former master are shut down, and answers that
 * still arrive on them do not count. addresses NULL: its host name is being looked up. */
void reach_named(struct server *server, const struct addresses *addresses, uint64_t epoch,
                 bool anew, const char *reason);
/* No majority names a master. over: what they say will not change before they are asked again. */
void reach_unnamed(struct server *server, const char *said, bool over);
/* The thread ends: nobody is to wait for an answer. */
void reach_unwatch(struct server *server);

/* A command that the server's ACL refused is not sent again for a minute: each refusal adds a line
 * to the server's ACL LOG. */
bool reach_may_ask(struct server *server, const int64_t *refused_ns);
void reach_note_refusal(struct server *server, int64_t *refused_ns);

#endif
