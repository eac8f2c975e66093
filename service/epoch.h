/* SPDX-License-Identifier: Apache-2.0
 *
 * The epoch of the stock, for --write fenced: which lock the tokens of the stock's writers come
 * from. Each sale has the epoch that its instance knew before it asked for the lock. The stock
 * refuses writes of another epoch. See docs/design/fence.md.
 */
#ifndef EPOCH_H
#define EPOCH_H

#include "mode.h"
#include "stock.h"

struct sale;
struct sale_worker;

/* What this instance knows of the epoch. */
struct epochs {
    /* of this instance's locks, as all instances call them; by lock_servers_role */
    const char *servers[LOCK_ROLES];
    pthread_mutex_t mutex;     /* protects what is below */
    struct stock_epoch latest; /* as last seen; number 0: not seen yet */
    uint64_t highest;          /* the highest number ever seen */
    bool old;                  /* the stock refused it: read it again */
    bool refused;              /* it stands for another lock than this instance's */
    unsigned long raised;      /* how often this instance raised it */
};
/* servers: "" if there are none. */
void epochs_init(struct epochs *epochs, const char *const servers[LOCK_ROLES]);
void epochs_destroy(struct epochs *epochs);

/* For GET /lock and /metrics. */
struct epochs_seen {
    struct stock_epoch latest;
    bool refused;
    unsigned long raised;
};
struct epochs_seen epochs_seen(struct epochs *epochs);

/* Before the sale asks for the lock: gives it the epoch. Asks the stock only if this instance does
 * not know the epoch. True also if the write mode has no epoch. False: the sale has ended. */
bool epoch_begin(struct sale_worker *worker, struct sale *sale);
/* The lock was granted: raises the epoch if the lock's server is not the one that the epoch stands
 * for. Call it before the sale reads. False: the sale has ended. */
bool epoch_granted(struct sale_worker *worker, struct sale *sale);
/* Whether a further acquire of the sale had its token from the same server. */
bool epoch_is_same(const struct sale *sale, const dlock_hold *hold);
/* The stock refused the epoch of a sale: finds out which one it has now, and says so. */
void epoch_refused(struct sale_worker *worker);

/* An operator switches the lock; no sale is in flight. Raises the epoch, unless it stands for `to`
 * already and both compare it, or neither does, or `to` does and no sale has taken it yet.
 * EPOCH_OVERTAKEN: another instance was switched in the meantime. EPOCH_UNKNOWN: the stock's server
 * did not do it, or did not answer. EPOCH_INVALID: the epoch's key holds something else. Unless
 * EPOCH_SWITCHED, error[] says why. */
enum epoch_switch { EPOCH_SWITCHED, EPOCH_OVERTAKEN, EPOCH_UNKNOWN, EPOCH_INVALID };
#define EPOCH_ERROR_MAX 512
enum epoch_switch epoch_switch(struct epochs *epochs, struct stock *stock,
                               const struct setting *from, const struct setting *to,
                               char error[EPOCH_ERROR_MAX]);

#endif
