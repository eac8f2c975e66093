/* SPDX-License-Identifier: Apache-2.0
 *
 * What a hold answers, and how it ends: released, or passed on inside the client.
 */
#include "acquire.h"

#include "batch.h"
#include "owner.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- Release --------------------------------------------------------------------------------- */

/* hold->depth is set. */
static dlock_status let_go_of_one(struct dlock_hold *hold, struct dlock_batch *last,
                                  int64_t ends_ns, bool *open)
{
    dlock_status status = run_release(hold, last, ends_ns, open);
    if (status == DLOCK_LOST) {
        owner_lost(hold);
        fail(status, "'%s' was not this hold's any more at its release", hold->key);
    }
    return status;
}

static void unlist(struct dlock_hold *hold)
{
    pthread_mutex_lock(&hold->lock->mutex);
    LIST_REMOVE(hold, of_lock);
    pthread_mutex_unlock(&hold->lock->mutex);
}

/* What an earlier release of its owner's sent may still be carried out. Were the lock free by then,
 * it would meet the next holder. */
static dlock_status leave_to_expire(struct dlock_hold *hold, struct dlock_batch *last,
                                    int64_t ends_ns)
{
    send_alone(hold->lock, last, NULL, ends_ns, &(bool){false});
    return fail(DLOCK_UNKNOWN, "'%s' is left to expire: what an earlier release of this owner sent "
                               "was not answered, and may still be carried out", hold->key);
}

/* Its validity is over. Its key lives on where it was given another hold's time: it is released all
 * the same. No later hold has this name or this token, so the request meets nobody else's. */
static dlock_status release_late(struct dlock_hold *hold, bool may_send, int64_t ends_ns)
{
    if (may_send && hold->shares && !hold->tainted)
        run_release(hold, NULL, ends_ns, &(bool){false});
    return fail(DLOCK_LOST, "'%s' was lost before its release", hold->key);
}

/* A flawed rung sends what it sends: that is its lesson. */
static dlock_status release_counted(struct dlock_hold *hold, struct dlock_batch *last,
                                    int64_t ends_ns)
{
    bool flawed = hold->lock->rung.flawed;
    dlock_status status;
    bool open = false;
    /* In vain: it says how many holds shall be left, so it may. But who nests at this moment still
     * lives by the name of one that is over. */
    bool alone = owner_begin(hold, ends_ns);
    if (!flawed && !dlock_valid(hold))
        status = release_late(hold, alone, ends_ns);
    else if (!flawed && hold->tainted && hold->depth == 1)
        status = leave_to_expire(hold, last, ends_ns);
    else
        status = let_go_of_one(hold, last, ends_ns, &open);
    if (open && last != NULL)
        owner_taint(hold);
    unlist(hold);
    owner_end(hold);
    return status;
}

/* ---- Passing on ------------------------------------------------------------------------------ */

/* The mutex is held. CLOCK_MONOTONIC: when the server has forgotten the tenure at the latest,
 * whatever its last renewal asked for. */
static int64_t forgotten_ns(const struct tenure *tenure)
{
    int64_t drift_ms = tenure->longest_ms / 100;
    return mono_ns() + (tenure->longest_ms + drift_ms) * NS_PER_MS;
}

/* The mutex is held. The next of this client, if the turn of another client has not come yet. */
static struct wait *choose_next(struct dlock *lock)
{
    const struct dlock_options *options = &lock->client->options;
    const struct tenure *tenure = &lock->tenure;
    int64_t most_ms = tenure->ttl_ms / 20 < options->handoff_ms ? tenure->ttl_ms / 20
                                                                : options->handoff_ms;
    if (tenure->passed + 1 >= options->handoff_max || tenure->numbers + 1 >= TENURE_NUMBERS ||
        mono_ns() - tenure->started_ns >= most_ms * NS_PER_MS)
        return NULL;
    return wait_choose(lock);
}

/* Sends what the holder has left to send, with what the next wants to read behind it. */
static dlock_status pass_on(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns,
                            struct wait *next)
{
    struct dlock *lock = hold->lock;
    struct acquiring *a = (struct acquiring *)next;
    dlock_status status = DLOCK_OK;
    bool open = false;
    if (last != NULL)
        status = send_alone(lock, last, a->want.reads, ends_ns, &open);
    a->reads_sent = last != NULL && status == DLOCK_OK;
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool ours = !open && lock->tenure.token == hold->tenure && dlock_valid(hold);
    if (ours) {
        lock->tenure.passed++;
        lock->tenure.numbers++;
        lock->tenure.holds = 1;
        add_one(&lock->client->passed_on);
    } else if (open) {
        lock->line.closed_until_ns = forgotten_ns(&lock->tenure);
    }
    wait_give(next, ours);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return status;
}

/* To the next client, or to nobody; or kept for those of this client that have come meanwhile. */
static dlock_status let_go(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns)
{
    struct dlock *lock = hold->lock;
    struct loop *loop = &lock->client->loop;
    dlock_status answer = DLOCK_OK;
    bool open;
    for (;;) {
        pthread_mutex_lock(&loop->mutex);
        hold->more = wait_others(lock);
        hold->newest = lock->tenure.token + lock->tenure.numbers;
        uint64_t seen = lock->line.wakes;
        pthread_mutex_unlock(&loop->mutex);
        hold->kept = false;
        int64_t sent_ns = lock->client->now_ns();
        dlock_status status = let_go_of_one(hold, last, ends_ns, &open);
        bool kept = hold->kept; /* an earlier request that still comes finds its token old */
        answer = answer == DLOCK_OK ? status : answer;
        pthread_mutex_lock(&loop->mutex);
        struct wait *next = kept ? wait_choose(lock) : NULL;
        if (kept)
            lock->tenure = (struct tenure){.started_ns = mono_ns(),
                                           .sent_ns = sent_ns,
                                           .ttl_ms = hold->ttl_ms,
                                           .longest_ms = hold->ttl_ms,
                                           .token = hold->token,
                                           .holds = next != NULL};
        if (next != NULL) {
            wait_give(next, true);
        } else if (!kept && lock->tenure.token == hold->tenure) {
            if (open && last != NULL)
                lock->line.closed_until_ns = forgotten_ns(&lock->tenure);
            lock->tenure = (struct tenure){.queued = hold->more};
            wait_open(lock, status == DLOCK_OK && hold->more, seen);
        }
        pthread_mutex_unlock(&loop->mutex);
        if (next != NULL || !kept)
            return answer;
        last = NULL; /* all have left meanwhile: once more, and now for good */
    }
}

/* The loop's mutex is held. The hold counts in its tenure no more. False: it did not before. */
static bool count_out(struct dlock_hold *hold)
{
    struct tenure *tenure = &hold->lock->tenure;
    if (tenure->token != hold->tenure || hold->out)
        return false;
    hold->out = true;
    hold->was_end = --tenure->holds == 0 && !tenure->open;
    return true;
}

/* The loop's mutex is held. Who waits in this client contends anew. */
static void end_tenure(struct dlock *lock)
{
    lock->tenure = (struct tenure){0};
    wait_open(lock, false, 0);
}

void hold_lost(struct dlock_hold *hold)
{
    struct dlock *lock = hold->lock;
    if ((lock->ops->traits & TRAIT_HANDOFF) == 0)
        return;
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (count_out(hold) && lock->tenure.holds == 0)
        end_tenure(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

static dlock_status keep_away(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns)
{
    struct dlock *lock = hold->lock;
    dlock_status status = leave_to_expire(hold, last, ends_ns);
    pthread_mutex_lock(&lock->client->loop.mutex);
    lock->line.closed_until_ns = forgotten_ns(&lock->tenure);
    end_tenure(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return status;
}

static dlock_status send_nested(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns)
{
    struct dlock *lock = hold->lock;
    bool open;
    dlock_status status = send_alone(lock, last, NULL, ends_ns, &open);
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (open && lock->tenure.token == hold->tenure)
        lock->tenure.open = true;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return status;
}

static dlock_status hand_on(struct dlock_hold *hold, struct dlock_batch *last, int64_t ends_ns)
{
    struct dlock *lock = hold->lock;
    struct loop *loop = &lock->client->loop;
    struct wait *next = NULL;
    pthread_mutex_lock(&loop->mutex);
    pthread_mutex_lock(&lock->mutex);
    hold->leaving = true;
    pthread_mutex_unlock(&lock->mutex);
    bool counted = count_out(hold);
    bool valid = counted && dlock_valid(hold);
    bool nested = counted && lock->tenure.holds > 0;
    bool open = lock->tenure.open;
    if (counted && !valid && !nested)
        end_tenure(lock);
    else if (valid && !nested && !open)
        next = choose_next(lock);
    bool was_end = hold->was_end;
    pthread_mutex_unlock(&loop->mutex);
    if (!valid)
        return release_late(hold, was_end, ends_ns);
    if (nested)
        return send_nested(hold, last, ends_ns);
    if (open)
        return keep_away(hold, last, ends_ns);
    return next != NULL ? pass_on(hold, last, ends_ns, next) : let_go(hold, last, ends_ns);
}

dlock_status dlock_release(dlock_hold *hold, dlock_batch *last)
{
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    struct dlock *lock = hold->lock;
    struct dlock_client *client = lock->client;
    dlock_status status = check_fork(client);
    if (status != DLOCK_OK)
        return status;
    if (last != NULL)
        batch_forget(last);
    if (lock->rung.expires)
        timekeeper_forget(&client->timekeeper, hold);
    int64_t ends_ns = mono_deadline_ns(bound_ms(client));
    redis_send_for(hold->user);
    if ((lock->ops->traits & TRAIT_HANDOFF) != 0) {
        status = hand_on(hold, last, ends_ns);
        unlist(hold);
    } else {
        status = release_counted(hold, last, ends_ns);
    }
    if (status == DLOCK_WRONG_TYPE)
        status = explain(hold, status, ends_ns, -1);
    redis_send_for(NULL);
    wait_released(lock);
    if (status == DLOCK_OK)
        add_one(&client->released);
    else if (status == DLOCK_UNKNOWN)
        add_one(&client->unknown);
    if (hold->lost_fd >= 0)
        close(hold->lost_fd);
    free(hold);
    return status;
}

/* ---- Extending ------------------------------------------------------------------------------- */

/* An answer that comes after the end of the hold's validity is too late. */
static dlock_status renew_now(struct dlock_hold *hold, int64_t ends_ns)
{
    struct rung_env env;
    dlock_status status = env_begin(hold->lock, ends_ns, ends_ns, -1, &env);
    int64_t sent_ns = env.now_ns();
    int64_t ttl_ms = renewal_ms(hold, sent_ns);
    if (status == DLOCK_OK)
        status = ttl_ms > 0 ? rung_renew(&env, hold, ttl_ms) : DLOCK_LOST;
    env_end(hold->lock, &env);
    if (status == DLOCK_LOST)
        owner_lost(hold);
    if (status != DLOCK_OK)
        return status;
    timekeeper_extend(&hold->lock->client->timekeeper, hold, sent_ns, ttl_ms);
    return dlock_valid(hold) ? DLOCK_OK : DLOCK_LOST;
}

dlock_status dlock_extend(dlock_hold *hold)
{
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    struct dlock *lock = hold->lock;
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    if (!lock->rung.expires)
        return fail(DLOCK_UNSUPPORTED, "holds of '%s' have no time to live to extend",
                    lock->ops->name);
    if (lock->rung.flawed && !lock->rung.renewed)
        return fail(DLOCK_UNSUPPORTED, "'%s' sends nothing that extends a hold", lock->ops->name);
    int64_t ends_ns = mono_deadline_ns(bound_ms(lock->client));
    if (!owner_begin_renewal(hold, ends_ns))
        return fail(DLOCK_UNREACHABLE,
                    "'%s': another request of its owner was not answered in time", hold->key);
    redis_send_for(hold->user);
    status = dlock_valid(hold) ? renew_now(hold, ends_ns) : DLOCK_LOST;
    owner_end(hold);
    redis_send_for(NULL);
    if (status == DLOCK_LOST)
        fail(status, "'%s' was lost before it was extended", hold->key);
    return status;
}

/* ---- Questions ------------------------------------------------------------------------------- */

bool dlock_valid(const dlock_hold *hold)
{
    if (hold == NULL)
        return false;
    int64_t until_ns = atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
    return hold->fork_generation == fork_generation() && hold->lock->client->now_ns() < until_ns;
}

int64_t dlock_remaining_ms(const dlock_hold *hold)
{
    if (hold == NULL)
        return 0;
    int64_t until_ns = atomic_load_explicit(&hold->valid_until_ns, memory_order_acquire);
    if (hold->fork_generation != fork_generation())
        return 0;
    if (until_ns == INT64_MAX)
        return DLOCK_NEVER_EXPIRES;
    int64_t left_ns = until_ns - hold->lock->client->now_ns();
    return left_ns > 0 ? left_ns / NS_PER_MS : 0;
}

int dlock_lost_fd(dlock_hold *hold)
{
    if (!GIVEN(hold))
        return -1;
    struct dlock_client *client = hold->lock->client;
    if (check_fork(client) != DLOCK_OK)
        return -1;
    int fd = timekeeper_lost_fd(&client->timekeeper, hold);
    if (fd < 0)
        fail(DLOCK_NO_MEMORY, "no descriptor is left to tell of the loss of '%s'", hold->key);
    return fd;
}

const char *dlock_owner(const dlock_hold *hold)
{
    return hold != NULL ? hold->owner : "";
}

uint64_t dlock_acquisition(const dlock_hold *hold)
{
    return hold != NULL ? hold->acquisition : 0;
}

uint64_t dlock_token(const dlock_hold *hold)
{
    return hold != NULL ? hold->token : 0;
}

