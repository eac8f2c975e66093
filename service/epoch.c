/* SPDX-License-Identifier: Apache-2.0
 *
 * See epoch.h. Only two things raise the epoch: an operator's switch, and a lock's server that is
 * not the one that the epoch stands for. A sale raises it only from the number that it had before
 * it asked for the lock. If another sale handed it the lock, it raises nothing.
 */
#include "epoch.h"

#include "lock_servers.h"
#include "log.h"
#include "section.h"

#include <inttypes.h>
#include <string.h>

void epochs_init(struct epochs *epochs, const char *const servers[LOCK_ROLES])
{
    *epochs = (struct epochs){0};
    memcpy(epochs->servers, servers, sizeof epochs->servers);
    pthread_mutex_init(&epochs->mutex, NULL);
}

void epochs_destroy(struct epochs *epochs)
{
    pthread_mutex_destroy(&epochs->mutex);
}

struct epochs_seen epochs_seen(struct epochs *epochs)
{
    pthread_mutex_lock(&epochs->mutex);
    struct epochs_seen seen = {epochs->latest, epochs->refused, epochs->raised};
    pthread_mutex_unlock(&epochs->mutex);
    return seen;
}

/* The next sale reads it again. */
static void epochs_forget(struct epochs *epochs)
{
    pthread_mutex_lock(&epochs->mutex);
    epochs->old = true;
    pthread_mutex_unlock(&epochs->mutex);
}

static uint64_t epochs_highest(struct epochs *epochs)
{
    pthread_mutex_lock(&epochs->mutex);
    uint64_t highest = epochs->highest;
    pthread_mutex_unlock(&epochs->mutex);
    return highest;
}

/* ---- What an epoch stands for ---------------------------------------------------------------- */

static struct stock_epoch epoch_of(const struct epochs *epochs, const struct dlock_rung *rung,
                                   const char *identity)
{
    struct stock_epoch epoch = {0};
    snprintf(epoch.rung, sizeof epoch.rung, "%s", rung->name);
    snprintf(epoch.engine, sizeof epoch.engine, "%s", rung->engine);
    snprintf(epoch.servers, sizeof epoch.servers, "%s",
             rung->distributed ? epochs->servers[lock_servers_role(rung)] : "");
    snprintf(epoch.identity, sizeof epoch.identity, "%s", identity);
    return epoch;
}

/* Whether both stand for the same lock; it may have another server's memory. */
static bool is_same_lock(const struct stock_epoch *one, const struct stock_epoch *two)
{
    return strcmp(one->rung, two->rung) == 0 && strcmp(one->engine, two->engine) == 0 &&
           strcmp(one->servers, two->servers) == 0;
}

#define NAME_SIZE (STOCK_SERVERS_MAX + 96)
/* "fair (redis, 127.0.0.1:6379/0)" */
static const char *epoch_name(const struct stock_epoch *epoch, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%s (%s, %s)", epoch->rung, epoch->engine, epoch->servers);
    return name;
}

/* ---- What this instance has seen ------------------------------------------------------------- */

/* Keeps what was found. ours: what it would be if it stood for this instance's lock. Logs what has
 * changed. Returns whether it is this instance's. */
static bool epochs_note(struct epochs *epochs, const struct stock_epoch *found,
                        const struct stock_epoch *ours)
{
    char there[NAME_SIZE], here[NAME_SIZE];
    const bool mine = is_same_lock(found, ours);
    pthread_mutex_lock(&epochs->mutex);
    const bool new = found->number != epochs->latest.number;
    const bool newly_refused = !mine && !epochs->refused;
    epochs->latest = *found;
    if (found->number > epochs->highest)
        epochs->highest = found->number;
    epochs->old = false;
    epochs->refused = !mine;
    pthread_mutex_unlock(&epochs->mutex);
    if (newly_refused)
        log_event(LOG_WARNING, "not-switched",
                  "the stock's epoch %" PRIu64 " stands for %s; this instance has %s, and sells "
                  "nothing until it is switched (PUT /lock)",
                  found->number, epoch_name(found, there), epoch_name(ours, here));
    else if (mine && new)
        log_event(LOG_INFO, "epoch", "the stock is in epoch %" PRIu64 ": %s, identity %s",
                  found->number, epoch_name(found, there),
                  found->identity[0] != '\0' ? found->identity : "not known yet");
    return mine;
}

/* Logs and counts that this instance raised the epoch. */
static void epochs_note_raise(struct epochs *epochs, uint64_t from, uint64_t to, const char *why)
{
    pthread_mutex_lock(&epochs->mutex);
    epochs->raised++;
    pthread_mutex_unlock(&epochs->mutex);
    log_event(from != 0 ? LOG_WARNING : LOG_INFO, "epoch-raised",
              "from %" PRIu64 " to %" PRIu64 ": %s", from, to, why);
}

/* ---- Sales ----------------------------------------------------------------------------------- */

static bool has_epoch(const struct sale_env *env, const struct sale *sale)
{
    return env->mode->now.write == WRITE_FENCED && sale->purpose != SALE_READ;
}

static bool end_not_switched(struct sale *sale, const struct stock_epoch *found)
{
    char detail[sizeof sale->detail];
    if (found->number == 0)
        snprintf(detail, sizeof detail,
                 "the stock has lost its epoch, and this instance was not switched to the lock "
                 "that it stood for");
    else
        snprintf(detail, sizeof detail,
                 "the stock's epoch %" PRIu64 " stands for the lock %s with other settings than "
                 "this instance's; an operator must switch it (PUT /lock)",
                 found->number, found->rung);
    section_end(sale, SALE_NOT_SWITCHED, detail);
    return false;
}

static bool epoch_take(struct sale *sale, const struct stock_epoch *epoch)
{
    sale->epoch = epoch->number;
    snprintf(sale->identity, sizeof sale->identity, "%s", epoch->identity);
    return true;
}

bool epoch_begin(struct sale_worker *worker, struct sale *sale)
{
    struct epochs *epochs = worker->env->epochs;
    struct stock_epoch found;
    if (!has_epoch(worker->env, sale))
        return true;
    const struct stock_epoch ours = epoch_of(epochs, worker->env->mode->now.rung, "");
    pthread_mutex_lock(&epochs->mutex);
    const bool was_refused = epochs->refused;
    bool known = epochs->latest.number != 0 && !epochs->old && is_same_lock(&epochs->latest, &ours);
    if (known)
        epoch_take(sale, &epochs->latest);
    pthread_mutex_unlock(&epochs->mutex);
    if (known)
        return true;
    enum stock_status status = stock_read_epoch(worker->stock, &found);
    if (status != STOCK_OK) {
        section_end_by_stock(worker, sale, status);
        return false;
    }
    if (found.number == 0) /* this sale makes it, once it has the lock */
        return was_refused ? end_not_switched(sale, &found) : epoch_take(sale, &found);
    return epochs_note(epochs, &found, &ours) ? epoch_take(sale, &found)
                                              : end_not_switched(sale, &found);
}

void epoch_refused(struct sale_worker *worker)
{
    struct epochs *epochs = worker->env->epochs;
    const struct stock_epoch ours = epoch_of(epochs, worker->env->mode->now.rung, "");
    struct stock_epoch found;
    if (stock_read_epoch(worker->stock, &found) == STOCK_OK && found.number != 0)
        epochs_note(epochs, &found, &ours);
    else
        epochs_forget(epochs);
}

bool epoch_is_same(const struct sale *sale, const dlock_hold *hold)
{
    return sale->epoch == 0 || strcmp(dlock_identity(hold), sale->identity) == 0;
}

bool epoch_granted(struct sale_worker *worker, struct sale *sale)
{
    struct epochs *epochs = worker->env->epochs;
    const char *identity = dlock_identity(sale->hold);
    /* Its grant was asked for before the sale took its epoch, and may be of an older memory. */
    const bool handed_off = dlock_handed_off(sale->hold);
    struct stock_epoch now;
    bool raised = false;
    if (!has_epoch(worker->env, sale))
        return true;
    if (identity[0] == '\0') {
        section_end(sale, SALE_LOCK_UNAVAILABLE,
                    "the lock's server does not tell its identity: it is older than Redis 7, or "
                    "refuses SET on dlock:identity, or the value there is empty or too long; then "
                    "delete this key");
        return false;
    }
    if (sale->epoch != 0 && epoch_is_same(sale, sale->hold))
        return true;
    const struct stock_epoch ours = epoch_of(epochs, worker->env->mode->now.rung, identity);
    enum stock_status status =
        handed_off ? stock_read_epoch(worker->stock, &now)
                   : stock_raise_epoch(worker->stock, sale->epoch, epochs_highest(epochs), &ours,
                                       &now, &raised);
    if (status != STOCK_OK) {
        epochs_forget(epochs); /* it may have been raised */
        section_end_by_stock(worker, sale, status);
        return false;
    }
    if (raised)
        epochs_note_raise(epochs, sale->epoch, now.number,
                          sale->epoch == 0            ? "the stock had none"
                          : sale->identity[0] == '\0' ? "the lock's server is known now"
                                                      : "the lock's server has lost its memory, or "
                                                        "another one answers");
    const bool lost = now.number == 0;
    if (lost)
        epochs_forget(epochs);
    else if (!epochs_note(epochs, &now, &ours))
        return end_not_switched(sale, &now);
    else if (strcmp(now.identity, identity) == 0)
        return epoch_take(sale, &now);
    section_end(sale, SALE_STALE_EPOCH,
                lost ? handed_off ? "the stock has no epoch, and a sale that was handed the lock "
                                    "makes none"
                                  : "the stock lost its epoch while the sale waited for the lock"
                     : "the lock's server lost its memory, or another one answers, since the lock "
                       "was granted");
    return false;
}

/* ---- Switches -------------------------------------------------------------------------------- */

enum epoch_switch epoch_switch(struct epochs *epochs, struct stock *stock,
                               const struct setting *from, const struct setting *to,
                               char error[EPOCH_ERROR_MAX])
{
    struct stock_epoch found, now;
    bool raised = false;
    const bool was_fenced = from->write == WRITE_FENCED, is_fenced = to->write == WRITE_FENCED;
    const struct stock_epoch ours = epoch_of(epochs, to->rung, "");
    if (!was_fenced && !is_fenced)
        return EPOCH_SWITCHED;
    enum stock_status status = stock_read_epoch(stock, &found);
    /* Writes that compare nothing follow, or came before: those of the old epoch must end in any
     * case, because a frozen sale may be older than them. No sale has read or written in an epoch
     * before its identity is known, so the switch of the next instance leaves it as it is. */
    const bool must =
        found.number != 0 && was_fenced != is_fenced && (was_fenced || found.identity[0] != '\0');
    const bool stands = found.number != 0 && is_same_lock(&found, &ours) && !must;
    if (status == STOCK_OK && !stands && (is_fenced || must))
        status =
            stock_raise_epoch(stock, found.number, epochs_highest(epochs), &ours, &now, &raised);
    else
        now = found;
    if (status != STOCK_OK) {
        epochs_forget(epochs);
        snprintf(error, EPOCH_ERROR_MAX, "the stock's epoch could not be raised: %.400s",
                 stock_error(stock));
        return status == STOCK_INVALID ? EPOCH_INVALID : EPOCH_UNKNOWN;
    }
    if (raised)
        epochs_note_raise(epochs, found.number, now.number, "an operator switched the lock");
    if (now.number == 0 ? !is_fenced : epochs_note(epochs, &now, &ours))
        return EPOCH_SWITCHED;
    snprintf(error, EPOCH_ERROR_MAX,
             "the stock's epoch was changed in the meantime, perhaps because another instance was "
             "switched; look at GET /lock of all, then send this again");
    return EPOCH_OVERTAKEN;
}
