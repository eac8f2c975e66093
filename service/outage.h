/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a Redis server is away. Each server has a thread that checks it when something hints at
 * an outage. The check decides, not the hint. When a server has been away for --fail-fast-ms, the
 * waits of all sales end. Later sales are refused at once, until it accepts writes again. A server
 * that answers but refuses a new connection ends no wait: existing connections may still work.
 */
#ifndef OUTAGE_H
#define OUTAGE_H

#include "stock.h"

#include <dlock.h>
#include <stdatomic.h>

/* Cancels sales' waits for their locks. Sales share one if they need the same servers, and began to
 * wait after these were last away. */
struct patience {
    dlock_cancel *cancel;
    /* enum redis_role: the server that is away; REDIS_ROLES: none is, the instance ends */
    atomic_int role;
    atomic_long users;
};

struct outage;

struct outage_options {
    int64_t fail_fast_ms;
    int64_t redis_timeout_ms;
    /* By role; the same server twice if it has both. Each is checked on its own connection, by a
     * write of its key that changes nothing. */
    struct stock_server *servers[REDIS_ROLES];
    const char *keys[REDIS_ROLES];
};
/* NULL: out of memory or descriptors. */
struct outage *outage_new(const struct outage_options *options);
/* Starts the threads, which check each server at once. From now on connections may give hints.
 * False: no threads. */
bool outage_start(struct outage *outage);
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
void outage_hint(struct outage *outage, enum redis_role role, enum outage_hint hint);
/* True: the server has been away for --fail-fast-ms. Send it nothing. */
bool outage_lasts(struct outage *outage, enum redis_role role);

/* Call it before a wait begins, and outage_give_back when the wait has ended. needs: REDIS_LOCK
 * means both servers, REDIS_STOCK the stock's alone. */
struct patience *outage_patience(struct outage *outage, enum redis_role needs);
void outage_give_back(struct patience *patience);
/* Cancels all waits, also those that begin later. */
void outage_end_waits(struct outage *outage);

#endif
