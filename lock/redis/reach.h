/* SPDX-License-Identifier: Apache-2.0
 *
 * How a server is reached, by all connections of a client together: where it was found, whether it
 * may be tried again already, and what is told of its outages.
 */
#ifndef DLOCK_REACH_H
#define DLOCK_REACH_H

#include "engine.h"
#include "lookup.h"
#include "url.h"

#include <pthread.h>
#include <stdatomic.h>

#define REASON_MAX 160

/* Of all servers of a client. */
struct outages {
    /* Called once for each change, in order, on the thread that met it; must not block. NULL:
     * nobody. */
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
    bool fixed;          /* no name: `known` is what it is */
    _Atomic bool proven; /* it answered a command since its latest trouble; written under mutex */

    pthread_mutex_t mutex;  /* protects what is below */
    struct addresses known; /* where it was found last */
    struct lookup *lookup;  /* the latest, as long as it may be waited for; or NULL */
    struct address last;    /* the latest that was tried */
    bool last_failed;
    bool demoted;             /* it took the latest command for none of its own (READONLY ...) */
    int64_t trouble_ns;       /* CLOCK_MONOTONIC: the latest break in use */
    unsigned failures;        /* attempts since it was proven, and not proven by one */
    int64_t pause_until_ns;   /* CLOCK_MONOTONIC: unless it is proven, nobody connects before */
    uint32_t chance;          /* spreads the pauses of the clients of one server */
    dlock_status down_status; /* the latest failure since it was proven */
    char down_reason[REASON_MAX];                                    /* "": none yet */
    enum health { SERVER_FINE, SERVER_LOST, SERVER_REFUSES } health; /* of its connections */
    enum health told;                                                /* with what is below */
    unsigned wakeups_refused; /* a bit for each kind of wake-ups that it refuses to tell */
    char wakeups_refused_reason[REASON_MAX]; /* the latest of them */
    int64_t identity_refused_ns; /* CLOCK_MONOTONIC: when CLIENT ID or INFO was; 0: never */
    int64_t kill_refused_ns;     /* and CLIENT KILL */
};

void reach_init(struct server *server, struct outages *outages);
void reach_free(struct server *server); /* not its URL */

/* Whether to connect now. To a server that is proven, always. To another one attempt at a time:
 * after each there is a pause, longer and longer, and the first caller after it makes the next. In
 * the pause: FAIL if an attempt failed since the server was proven, as it did; else WAIT, until the
 * pause is over or the server proven. */
enum reach_turn { REACH_CONNECT, REACH_WAIT, REACH_FAIL };
enum reach_turn reach_turn(struct server *server, dlock_status *status, char reason[REASON_MAX]);
/* How long a pause lasts still; 0: there is none. */
int64_t reach_pause_ms(struct server *server);

/* It was tried in vain. That connecting and the login worked is no sign that it is well. */
void reach_failed(struct server *server, dlock_status status, const char *reason);
/* A connection broke on which a reply was due, or that was listened on. made_ns, sent_ns: when it
 * was made, and when what is lost was sent (CLOCK_MONOTONIC). The first break costs no pause. If
 * connections made after it break as well, the fourth of them and the later ones count as failures.
 * A request that was sent before a break is lost by that same break. */
void reach_lost(struct server *server, int64_t made_ns, int64_t sent_ns, const char *reason);
/* It answers that it is no master now: another may be found under its name. */
void reach_demoted(struct server *server, const char *reason);
/* It answered a command, or even took it: said after every exchange, and costs nothing then. */
void reach_answered(struct server *server, bool took);
/* It refuses to tell this kind of wake-ups (a bit), or does not any more. */
void reach_wakeups_refused(struct server *server, unsigned kind, const char *reason);
void reach_wakeups_accepted(struct server *server, unsigned kind);

/* A look-up of its name to wait for, which the caller has joined; there is one at a time. NULL: it
 * has no name, or nothing is left to look it up with. */
struct lookup *reach_look(struct server *server);
/* Where it is, the address to try first in front: by the look-up, if that is over, or as it was
 * found last. 0; else getaddrinfo's error and no address. */
int reach_addresses(struct server *server, struct lookup *lookup, struct addresses *addresses);
/* The next attempt begins with it, or if it failed behind it. */
void reach_tried(struct server *server, const struct address *address, bool failed);

/* A right that was refused is not asked for again for a while: each time is a line in the server's
 * ACL LOG. */
bool reach_may_ask(struct server *server, const int64_t *refused_ns);
void reach_note_refusal(struct server *server, int64_t *refused_ns);

#endif
