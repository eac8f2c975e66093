/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a server is away. Each server has a thread that checks it when something hints at an
 * outage. The check decides, not the hint. When a server has been away for --fail-fast-ms, the
 * waits of all sales end. Later sales are refused at once, until it accepts writes again. A server
 * that answers but refuses a new connection ends no wait: existing connections may still work. Of
 * the servers of --lock-servers, so many must be away that no majority is left. An ensemble counts
 * as one server: whether it grants a lock is asked.
 */
#ifndef OUTAGE_H
#define OUTAGE_H

#include "lock_servers.h"
#include "stock.h"

#include <dlock.h>
#include <stdatomic.h>

/* Cancels sales' waits for their locks. Sales share one if they need the same servers, and began to
 * wait after these were last away. */
struct patience {
    dlock_cancel *cancel;
    /* enum server_role: the server that is away; ROLE_COUNT: none is, the instance ends */
    atomic_int role;
    atomic_long users;
};

struct outage;

struct outage_options {
    int64_t fail_fast_ms;
    int64_t redis_timeout_ms;
    /* Each Redis server is checked on its own connection, by a write of its key that changes
     * nothing. An ensemble is asked for a lock: see lock_servers_try. */
    struct lock_servers *locks; /* LOCK_ROLES of them, by role */
    struct store_server *stock_server;
    const char *lock_key, *stock_key;
};
/* NULL: out of memory or descriptors. */
struct outage *outage_new(const struct outage_options *options);
/* Starts the threads, which check each server at once. The locks' clients must be open. False: no
 * threads. */
bool outage_start(struct outage *outage);
/* Ends the threads. Hints may still come. */
void outage_stop(struct outage *outage);
/* Call outage_give_back for every patience first. */
void outage_free(struct outage *outage);

/* What other threads saw of a server. Any thread. It is checked soon after the first two, and after
 * the third if it is away. */
enum outage_hint {
    OUTAGE_LOOK, /* a command to it failed */
    /* a connection to it failed; it is checked every second until OUTAGE_RESTORED */
    OUTAGE_LOST,
    OUTAGE_RESTORED, /* a connection to it was made */
    /* it accepted a write just now: it is not away, whatever a current check finds */
    OUTAGE_THERE,
};
void outage_hint(struct outage *outage, enum server_role role, enum outage_hint hint);
/* The same, but about one of several servers: the one whose URL, without its login, the text begins
 * with. All of them if it is no URL of theirs. */
void outage_hint_about(struct outage *outage, enum server_role role, const char *text,
                       enum outage_hint hint);
/* True: the server, or a majority of several, has been away for --fail-fast-ms. Send it nothing. */
bool outage_lasts(struct outage *outage, enum server_role role);
/* Says of each server of that role that is away what was wrong at its latest check. True: each
 * takes writes, but too few of its replicas confirm them. */
bool outage_say_away(struct outage *outage, enum server_role role, char *text, size_t size);

/* Call it before a wait begins, and outage_give_back when the wait has ended. needs: ROLE_STOCK
 * means the stock's server alone; any other role those of that role, and the stock's. */
struct patience *outage_patience(struct outage *outage, enum server_role needs);
void outage_give_back(struct patience *patience);
/* Cancels all waits, also those that begin later. */
void outage_end_waits(struct outage *outage);
bool outage_waits_ended(struct outage *outage);

#endif
