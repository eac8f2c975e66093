/* SPDX-License-Identifier: Apache-2.0
 *
 * The servers that locks are kept on. A rung keeps its locks on one server, that of --lock-redis;
 * or a majority grants them, of those of --lock-servers (dlock_rung.quorum); or its engine keeps
 * them on an ensemble, which --lock-servers names, too. An instance may have all of these, and be
 * switched from one to the other. Each has a client of the library of its own.
 */
#ifndef LOCK_SERVERS_H
#define LOCK_SERVERS_H

#include "config.h"
#include "engines.h"
#include "stock.h"

#include <stdatomic.h>

struct sale_env;

struct lock_servers {
    const struct sale_env *env;
    enum server_role role;
    const struct engine *engine; /* NULL: Redis */
    dlock_client *client;
    dlock *open; /* see lock_servers_use */
    /* The stock is on another server. Several servers always count as that, even if the stock's is
     * one of them: no script of the stock can read a majority's tokens. So does an ensemble. */
    bool apart;
    size_t count; /* an ensemble counts as one; 0: none are given */
    /* Only to check whether they are away. With a single one that is not `apart`: the stock's. Of
     * an engine NULL: see lock_servers_try. */
    struct store_server *servers[LOCK_SERVERS_MAX];
    /* Their addresses, as store_server_name or engine_name gives them. */
    char *names[LOCK_SERVERS_MAX];
    char all[STOCK_SERVERS_MAX + 1]; /* the names, sorted, with commas between them */
    /* The most that a hold had left when it was acquired; 0: none yet, or it does not expire. */
    atomic_llong valid_ms;
};

/* Which servers keep the locks of that rung. */
enum server_role lock_servers_role(const struct dlock_rung *rung);

/* Sets what does not need the library: the servers of that role and their names. stock_server: the
 * stock's. False: error[] says why. Call lock_servers_free in either case. */
bool lock_servers_init(struct lock_servers *locks, const struct config *config,
                       enum server_role role, struct store_server *stock_server, char *error,
                       size_t error_size);
/* Opens the client; it connects when a lock is first acquired. options: all but the servers. False:
 * dlock_error() says why. */
bool lock_servers_open(struct lock_servers *locks, const struct config *config,
                       const struct dlock_options *options);
void lock_servers_close(struct lock_servers *locks);
void lock_servers_free(struct lock_servers *locks);

/* The present rung's locks are kept there, or no longer. An ensemble's session or lease is proven
 * again and again as long as a lock is open: then no sale and no check waits for that. */
void lock_servers_use(struct lock_servers *locks, bool used);

/* Whether two of the servers are the same one under two names, as far as is known: then no lock is
 * granted. The text says which. */
bool lock_servers_find_twins(const struct lock_servers *locks, char *text, size_t size);

/* Notes how long the hold, which was just acquired, is valid. */
void lock_servers_note(struct lock_servers *locks, const dlock_hold *hold);

/* Whether an engine's ensemble grants locks: acquires one that nobody else wants, and releases it.
 * who: the caller, of which there is one at a time; a lock of its own and of this client. Unless
 * OK, error[] says why; BUSY: the ensemble has not confirmed the lock in time. `cancel` ends it. */
dlock_status lock_servers_try(struct lock_servers *locks, const char *who, int64_t timeout_ms,
                              dlock_cancel *cancel, char error[STOCK_ERROR_MAX]);

/* How many of so many servers a lock needs: a majority; of one that one. */
size_t lock_servers_needed(size_t count);

#endif
