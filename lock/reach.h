/* SPDX-License-Identifier: Apache-2.0
 *
 * How a server is reached, by all connections of a client together: where it was found, whether it
 * may be tried again already, and what is told of its outages.
 */
#ifndef DLOCK_REACH_H
#define DLOCK_REACH_H

#include "lookup.h"
#include "url.h"

#include <pthread.h>
#include <stdatomic.h>

#define REASON_MAX 160

enum outage { OUTAGE_LOST, OUTAGE_REFUSED, OUTAGE_BACK };

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
    bool fixed; /* no name: `known` is what it is */
    _Atomic bool demoted; /* it took the latest command for none of its own (READONLY ...) */

    pthread_mutex_t mutex; /* protects what is below */
    struct addresses known; /* where it was found last */
    struct lookup *lookup;  /* the latest, as long as it may be waited for; or NULL */
    struct address last;    /* the latest that was tried */
    bool last_failed;
    unsigned failures; /* in a row */
    int64_t pause_until_ns; /* CLOCK_MONOTONIC: after a failure, nobody connects before */
    uint32_t chance; /* spreads the pauses of the clients of one server */
    dlock_status down_status; /* the latest failure */
    char down_reason[REASON_MAX];
    enum { SERVER_FINE, SERVER_LOST, SERVER_REFUSES } health; /* as was told last */
    int64_t identity_refused_ns; /* CLOCK_MONOTONIC: when CLIENT ID or INFO was; 0: never */
    int64_t kill_refused_ns;     /* and CLIENT KILL */
};

void reach_init(struct server *server, struct outages *outages);
void reach_free(struct server *server); /* not its URL */

/* Whether to connect now. After a failure there are pauses, longer and longer, and one attempt
 * after each; true makes the caller's the one. False: why the latest failed. */
bool reach_may_connect(struct server *server, dlock_status *status, char reason[REASON_MAX]);
/* How long a pause lasts still; 0: there is none. */
int64_t reach_pause_ms(struct server *server);

/* What came of it. */
void reach_connected(struct server *server);
void reach_failed(struct server *server, dlock_status status, const char *reason);
/* A connection broke on which a reply was due, or that was listened on. */
void reach_lost(struct server *server, const char *reason);
/* It answers that it is no master now: another may be found under its name. Or it took a command,
 * which is said after every exchange, and costs nothing else. */
void reach_demoted(struct server *server, const char *reason);
void reach_took(struct server *server);

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

/* Says something that is not about connecting. */
void reach_tell(struct server *server, enum outage outage, const char *reason);

#endif
