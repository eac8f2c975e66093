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

#define REASON_MAX 160

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

struct server {
    struct url url; /* set before reach_init */
    struct outages *outages;
    _Atomic size_t replicas; /* see server_replicas */
    bool fixed;              /* a numeric address or a socket: `known` never changes */
    _Atomic bool proven;     /* it has answered since its last failure; written under mutex */
    /* Why its latest login was refused, if it can't be one of several servers; else NULL. */
    const char *_Atomic misfit;

    pthread_mutex_t mutex;  /* protects what is below */
    struct addresses known; /* the latest result of a look-up */
    struct lookup *lookup;  /* the latest, until its result is taken; or NULL */
    struct address last;    /* the address that was tried last */
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
    int64_t identity_refused_ns; /* CLOCK_MONOTONIC: when CLIENT ID or INFO was refused; 0: never */
    int64_t kill_refused_ns;     /* the same for CLIENT KILL */
};

/* How many replicas the server should have, those included that are down. */
size_t server_replicas(const struct server *server);

void reach_init(struct server *server, struct outages *outages);
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

/* The running look-up of its name, or a new one; the caller has joined it. NULL: its address is
 * fixed, or resources are short. */
struct lookup *reach_look(struct server *server);
/* Its addresses, in the order to try them: from the look-up, if that is over, else the last known
 * ones. 0; else getaddrinfo's error, and no address. */
int reach_addresses(struct server *server, struct lookup *lookup, struct addresses *addresses);
/* The next attempt begins with this address, or, if it failed, with the one after it. */
void reach_tried(struct server *server, const struct address *address, bool failed);

/* A command that the server's ACL refused is not sent again for a minute: each refusal adds a line
 * to the server's ACL LOG. */
bool reach_may_ask(struct server *server, const int64_t *refused_ns);
void reach_note_refusal(struct server *server, int64_t *refused_ns);

#endif
