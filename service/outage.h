/* SPDX-License-Identifier: Apache-2.0
 *
 * A Redis that is away. After --fail-fast-ms the sales that wait are answered, and new ones at once, until a thread of its
 * own has found the server again.
 */
#ifndef OUTAGE_H
#define OUTAGE_H

#include "stock.h"

#include <dlock.h>
#include <stdatomic.h>

/* What a sale waits with: its cancel is thrown when it shall wait no longer. */
struct patience {
    dlock_cancel *cancel;
    atomic_int role; /* enum redis_role: who is away; REDIS_ROLES: nobody, the instance ends */
    atomic_long users;
};

struct outage;

struct outage_options {
    int64_t fail_fast_ms;
    /* By role. Whoever looks for a server has a connection of its own, and tries a write of that key. */
    struct stock_server *servers[REDIS_ROLES];
    const char *keys[REDIS_ROLES];
};
/* NULL: out of memory, descriptors or threads. */
struct outage *outage_new(const struct outage_options *options);
/* Nobody may have a patience any more. */
void outage_free(struct outage *outage);

/* Any thread: the server was asked for, and is not there, or is. */
void outage_note(struct outage *outage, enum redis_role role, bool away);
/* It has been away for so long that nobody shall ask it. */
bool outage_lasts(struct outage *outage, enum redis_role role);

/* That of whoever begins to wait now; given back when its wait was answered. */
struct patience *outage_patience(struct outage *outage);
void outage_give_back(struct patience *patience);
/* Ends all waits, those that begin later, too. */
void outage_end_waits(struct outage *outage);

#endif
