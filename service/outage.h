/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a Redis is away. A thread for each role asks it when something hints at an outage; what
 * it is told alone decides. A server that has been away for --fail-fast-ms ends the waits of all
 * sales, and later sales are refused at once, until it takes writes again. One that answers, and
 * refuses a new connection, ends no waits: others may have connections that work.
 */
#ifndef OUTAGE_H
#define OUTAGE_H

#include "stock.h"

#include <dlock.h>
#include <stdatomic.h>

/* Cancels a sale's wait for its lock. All sales that need the same servers, and began to wait since
 * these were last away, share one. */
struct patience {
    dlock_cancel *cancel;
    atomic_int role; /* enum redis_role: the server that is away; REDIS_ROLES: the instance ends */
    atomic_long users;
};

struct outage;

struct outage_options {
    int64_t fail_fast_ms;
    int64_t redis_timeout_ms;
    /* By role; the same one where it has both. Each is asked on a connection of its own, by a write
     * of that key that writes nothing. */
    struct stock_server *servers[REDIS_ROLES];
    const char *keys[REDIS_ROLES];
};
/* NULL: out of memory or descriptors. */
struct outage *outage_new(const struct outage_options *options);
/* From here on the servers are asked, each at once. Their connections may give hints. False: no
 * threads. */
bool outage_start(struct outage *outage);
/* Call outage_give_back for every patience first. */
void outage_free(struct outage *outage);

/* What others saw of a server, from any thread. The server is asked soon after each of the first
 * three. */
enum outage_hint {
    OUTAGE_LOOK,     /* it did not do what it should */
    OUTAGE_LOST,     /* a connection to it failed; it is asked every second until OUTAGE_RESTORED */
    OUTAGE_RESTORED, /* a connection to it was made */
    OUTAGE_THERE,    /* it took a write just now: it is not away, whatever a look finds meanwhile */
};
void outage_hint(struct outage *outage, enum redis_role role, enum outage_hint hint);
/* The server has been away for --fail-fast-ms: send it nothing. */
bool outage_lasts(struct outage *outage, enum redis_role role);

/* Call before a wait begins. Call outage_give_back when the wait has ended. needs: REDIS_LOCK: both
 * servers; REDIS_STOCK: the stock's alone. */
struct patience *outage_patience(struct outage *outage, enum redis_role needs);
void outage_give_back(struct patience *patience);
/* Ends all waits, and those that begin later. */
void outage_end_waits(struct outage *outage);

#endif
