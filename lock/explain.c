/* SPDX-License-Identifier: Apache-2.0
 *
 * What a failed call adds to its sentence: which owner holds the lock, or what type its key has.
 * The server is asked when the call is over. If many calls fail at once, one of them asks. The
 * others report what it found, and how long ago.
 */
#include "client.h"
#include "explain.h"
#include "owner.h"

#include <stdio.h>
#include <string.h>

/* What an inspection found. */
struct sight {
    /* OK. WRONG_TYPE: the key is of a type that this rung does not keep. Otherwise the failure. */
    dlock_status status;
    char why[SENTENCE_MAX];
    struct look look;
};

static void look_at(struct dlock *lock, int64_t limit_ns, int cancel_fd, struct sight *sight)
{
    *sight = (struct sight){.look.holder.size = sizeof sight->look.holder};
    sight->status = lock->client->engine->inspect(lock, limit_ns, cancel_fd, &sight->look);
    if (sight->status == DLOCK_WRONG_TYPE)
        snprintf(sight->why, sizeof sight->why, "%s", dlock_error());
}

/* ---- The holder ------------------------------------------------------------------------------ */

/* Whether to ask the server now; otherwise the latest inspection is recent enough. */
static bool explain_begin_look(struct dlock *lock, int64_t limit_ns)
{
    struct last_seen *last_seen = &lock->last_seen;
    int64_t now_ns = mono_ns();
    pthread_mutex_lock(&lock->mutex);
    bool soon = last_seen->asked_ns != 0 &&
                now_ns - last_seen->asked_ns < lock->client->options.retry_ms * NS_PER_MS;
    bool asks = !last_seen->asking && now_ns < limit_ns && (!soon || last_seen->wrong);
    if (asks) {
        last_seen->asking = true;
        last_seen->asked_ns = now_ns;
    }
    pthread_mutex_unlock(&lock->mutex);
    return asks;
}

static void explain_end_look(struct dlock *lock, const struct sight *sight)
{
    struct last_seen *last_seen = &lock->last_seen;
    pthread_mutex_lock(&lock->mutex);
    last_seen->asking = false;
    last_seen->wrong = sight->status == DLOCK_WRONG_TYPE;
    last_seen->seen_ns = mono_ns();
    last_seen->holder = sight->look.holder;
    last_seen->holder.held &= !last_seen->wrong;
    pthread_mutex_unlock(&lock->mutex);
}

/* Adds the holder to `said`. If it was not seen just now, adds it only while it may still hold the
 * lock. */
static dlock_status say_holder(const struct dlock_hold *hold, dlock_status status, const char *said,
                               bool just_now)
{
    struct dlock *lock = hold->lock;
    const bool in_session = lock->client->engine->rung != NULL; /* another engine's */
    char when[48] = "", how_long[48];
    snprintf(how_long, sizeof how_long, "%s", in_session ? "" : "; it never expires");
    pthread_mutex_lock(&lock->mutex);
    struct last_seen seen = lock->last_seen;
    pthread_mutex_unlock(&lock->mutex);
    const struct dlock_holder *holder = &seen.holder;
    long long age_ms = just_now ? 0 : (mono_ns() - seen.seen_ns) / NS_PER_MS;
    if (!holder->held || (holder->ttl_ms >= 0 && holder->ttl_ms < age_ms))
        return fail(status, owner_thread_holds(hold) ? "%s; this thread holds it" : "%s", said);
    if (!just_now)
        snprintf(when, sizeof when, "%lld ms ago ", age_ms);
    if (holder->ttl_ms >= 0)
        snprintf(how_long, sizeof how_long, " for %lld ms more", (long long)holder->ttl_ms);
    bool ours = strncmp(holder->owner, lock->client->id, strlen(lock->client->id)) == 0;
    return fail(status, "%s; %sheld by '%s'%s%s", said, when, holder->owner,
                ours && owner_thread_holds(hold) ? " (of this thread)"
                : ours                           ? " (of this client)"
                                                 : "",
                how_long);
}

static dlock_status explain_busy(const struct dlock_hold *hold, dlock_status status,
                                 const char *said, int64_t limit_ns, int cancel_fd)
{
    struct dlock *lock = hold->lock;
    if (!explain_begin_look(lock, limit_ns))
        return say_holder(hold, status, said, false);
    struct sight sight;
    look_at(lock, limit_ns, cancel_fd, &sight);
    explain_end_look(lock, &sight);
    if (sight.status == DLOCK_WRONG_TYPE)
        return fail(DLOCK_WRONG_TYPE, "%s", sight.why);
    if (sight.status == DLOCK_OK && !sight.look.holder.held)
        return fail(status, "%s; %s", said,
                    lock->rung.quorum ? "no majority of the servers names a holder now"
                                      : "it is free now");
    return say_holder(hold, status, said, true);
}

/* A flawed rung's own requests are the lesson: no others are added. */
static bool is_explained(const struct dlock *lock)
{
    return !lock->rung.flawed && (lock->ops->traits & TRAIT_SERVERLESS) == 0;
}

dlock_status explain_type(struct dlock *lock, int64_t limit_ns, int cancel_fd)
{
    char said[SENTENCE_MAX];
    if (!is_explained(lock))
        return DLOCK_WRONG_TYPE;
    fail(DLOCK_WRONG_TYPE, "'%s': %s", lock->name, dlock_error());
    snprintf(said, sizeof said, "%s", dlock_error());
    struct sight sight;
    look_at(lock, limit_ns, cancel_fd, &sight);
    if (sight.status == DLOCK_WRONG_TYPE)
        return fail(DLOCK_WRONG_TYPE, "%s", sight.why);
    /* The lock's own key has the right type, so it is a key beside it. */
    if (lock->client->engine->check_beside(lock, limit_ns, cancel_fd) == DLOCK_WRONG_TYPE)
        return DLOCK_WRONG_TYPE;
    return fail(DLOCK_WRONG_TYPE, "%s", said);
}

dlock_status explain(const struct dlock_hold *hold, dlock_status status, int64_t limit_ns,
                     int cancel_fd)
{
    char said[SENTENCE_MAX];
    if (status == DLOCK_WRONG_TYPE)
        return explain_type(hold->lock, limit_ns, cancel_fd);
    if ((status != DLOCK_BUSY && status != DLOCK_TIMED_OUT) || !is_explained(hold->lock))
        return status;
    snprintf(said, sizeof said, "%s", dlock_error());
    return explain_busy(hold, status, said, limit_ns, cancel_fd);
}

dlock_status no_turn(const struct dlock *lock, int64_t since_ns)
{
    if (was_answered(lock->client, since_ns))
        return fail(DLOCK_LIMIT, "'%s': earlier calls of this client left no time", lock->name);
    return fail(DLOCK_UNREACHABLE, "'%s': no server answered this client's earlier calls",
                lock->name);
}
