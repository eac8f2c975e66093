/* SPDX-License-Identifier: Apache-2.0
 *
 * The acquire: steps over a struct, driven by the caller's thread, or by the client's loop and its
 * workers where the caller does not wait. No Redis command in here: those are the rungs'.
 */
#include "acquire.h"

#include "batch.h"
#include "leftover.h"
#include "owner.h"
#include "structs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define REFUSED_PAUSE_MS 300 /* between the tries of one waiter, in the end */

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static bool has(const struct dlock *lock, unsigned trait)
{
    return (lock->ops->traits & trait) != 0;
}

/* ---- Holds ----------------------------------------------------------------------------------- */

static uint64_t next_acquisition(struct dlock_client *client)
{
    return atomic_fetch_add(&client->acquisitions, 1) + 1;
}

static struct dlock_hold *hold_new(struct dlock *lock, const struct dlock_want *want)
{
    struct dlock_client *client = lock->client;
    struct dlock_hold *hold = calloc(1, sizeof *hold);
    if (hold == NULL)
        return NULL;
    hold->lock = lock;
    hold->key = lock->name;
    hold->beside = lock->beside;
    hold->lock_state = lock->state;
    hold->user = want->user;
    hold->mode = want->mode;
    hold->fork_generation = client->fork_generation;
    hold->ttl_ms = want->ttl_ms != 0 ? want->ttl_ms : lock->ttl_ms;
    hold->hold_max_ms = want->hold_max_ms;
    if (hold->hold_max_ms != 0 && hold->hold_max_ms < hold->ttl_ms)
        hold->ttl_ms = hold->hold_max_ms;
    hold->ends_ns = INT64_MAX;
    hold->acquisition = next_acquisition(client);
    hold->valid_until_ns = INT64_MAX;
    hold->lost_fd = -1;
    snprintf(hold->ttl, sizeof hold->ttl, "%lld", (long long)hold->ttl_ms);
    owner_name(hold, want->owner_id);
    return hold;
}

static void set_end(struct dlock_hold *hold, int64_t begin_ns)
{
    if (hold->hold_max_ms != 0)
        hold->ends_ns = begin_ns + hold->hold_max_ms * NS_PER_MS;
}

/* It is held, and lives by the ttl_ms that were sent at sent_ns; from here on it is watched. */
static void watch(struct acquiring *a, int64_t sent_ns, int64_t ttl_ms)
{
    if (a->lock->rung.expires)
        timekeeper_watch(&a->lock->client->timekeeper, a->hold, sent_ns, ttl_ms);
    add_one(&a->lock->client->acquired);
}

/* Its own end counts from begin_ns. False: its owner lost the lock before that was seen. */
static bool keep(struct acquiring *a, int64_t begin_ns, int64_t sent_ns, int64_t ttl_ms)
{
    set_end(a->hold, begin_ns);
    pthread_mutex_lock(&a->lock->mutex);
    bool doomed = a->hold->doomed;
    if (!doomed)
        LIST_INSERT_HEAD(&a->lock->holds, a->hold, of_lock);
    a->lock->trouble[0] = '\0';
    a->lock->answered_ns = mono_ns();
    pthread_mutex_unlock(&a->lock->mutex);
    if (!doomed)
        watch(a, sent_ns, ttl_ms);
    return !doomed;
}

/* ---- One try --------------------------------------------------------------------------------- */

static bool is_cancelled(const struct acquiring *a)
{
    return a->want.cancel != NULL && cancel_thrown(a->want.cancel);
}

static bool may_ask_again(const struct rung_ops *ops)
{
    return ops->send_acquire != NULL || ops->resolve != NULL;
}

/* From here on it is another acquisition, with another name. What is on its way under the old one
 * is left to expire. */
static void begin_anew(struct acquiring *a)
{
    a->hold->acquisition = next_acquisition(a->lock->client);
    a->unresolved = false;
    owner_begin_anew(a->hold);
}

/* Ends the doubt of an earlier reply that was lost, before anything else is sent. UNKNOWN: nobody
 * answers. */
static dlock_status clear_doubt(struct acquiring *a, struct rung_env *env)
{
    if (!a->open)
        return DLOCK_OK;
    switch (redis_end_doubt(env->redis, &a->doubt, env->deadline_ns, env->wake_fd)) {
    case DOUBT_ENDED:
        a->open = false;
        return DLOCK_OK;
    case DOUBT_FOR_EVER:
        a->open = false;
        if (!a->lock->rung.flawed && !has(a->lock, TRAIT_HANDOFF) && a->hold->depth == 1) {
            rung_release(env, a->hold); /* if it was carried out already */
            begin_anew(a);
        }
        return DLOCK_OK;
    default:
        return DLOCK_UNKNOWN;
    }
}

/* The lost reply's request under this name had no effect, or what it did is known. */
static bool settles(dlock_status status)
{
    return status == DLOCK_OK || status == DLOCK_BUSY || status == DLOCK_LOST ||
           status == DLOCK_UPGRADE || status == DLOCK_WRONG_TYPE;
}

/* Asks for the lock. What became of a request whose reply was lost shows when it is asked for once
 * more: by its own script, which says what shall be, or by the rung's resolve, ahead of all. */
static dlock_status ask(struct acquiring *a, struct rung_env *env, struct busy *busy)
{
    const struct rung_ops *ops = a->lock->ops;
    dlock_status status = DLOCK_BUSY;
    if (a->unresolved && ops->resolve != NULL) {
        env->reads = a->want.reads;
        status = ops->resolve(env, a->hold);
    }
    if (status == DLOCK_BUSY) {
        env->reads = a->want.reads;
        a->sent_ns = env->now_ns();
        status = rung_acquire(env, a->hold, busy);
    }
    if (status == DLOCK_UNKNOWN) {
        a->unresolved = may_ask_again(ops);
        a->open = env->redis != NULL && redis_doubt(env->redis, &a->doubt);
    } else if (settles(status)) {
        a->unresolved = false;
    }
    return status;
}

/* Its reply was lost just now. */
static dlock_status ask_again(struct acquiring *a, struct rung_env *env, struct busy *busy)
{
    uint64_t acquisition = a->hold->acquisition;
    if (is_cancelled(a) || redis_ready(env->redis, env->deadline_ns, -1) != DLOCK_OK ||
        clear_doubt(a, env) != DLOCK_OK || a->hold->acquisition != acquisition)
        return DLOCK_UNKNOWN;
    return ask(a, env, busy);
}

static dlock_status run_try(struct acquiring *a, struct busy *busy)
{
    struct dlock *lock = a->lock;
    struct rung_env env;
    add_one(&lock->client->attempts);
    *busy = (struct busy){0};
    a->transient = a->late = false;
    dlock_status status = env_begin(lock, a->limit_ns, a->ends_ns, a->cancel_fd, &env);
    if (status == DLOCK_OK)
        status = clear_doubt(a, &env);
    if (status == DLOCK_OK) {
        status = ask(a, &env, busy);
        if (status == DLOCK_UNKNOWN && a->unresolved)
            status = ask_again(a, &env, busy);
    }
    if (a->unresolved && !settles(status))
        status = DLOCK_UNKNOWN;
    if (status == DLOCK_BUSY && !a->contended)
        add_one(&lock->client->contended);
    a->contended |= status == DLOCK_BUSY;
    a->transient = env.transient;
    if (status == DLOCK_OK && env.redis == NULL)
        send_alone(lock, NULL, a->want.reads, a->ends_ns, &(bool){false});
    env_end(lock, &env);
    return status;
}

/* The client may stand in the server's queue, or not any more. */
static void set_queued(struct acquiring *a, bool queued)
{
    if (!has(a->lock, TRAIT_HANDOFF))
        return;
    pthread_mutex_lock(&a->lock->client->loop.mutex);
    a->lock->tenure.queued = queued;
    pthread_mutex_unlock(&a->lock->client->loop.mutex);
}

static void begin_tenure(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    if (!has(lock, TRAIT_HANDOFF))
        return;
    pthread_mutex_lock(&lock->client->loop.mutex);
    lock->tenure = (struct tenure){.started_ns = mono_ns(),
                                   .sent_ns = a->sent_ns,
                                   .ttl_ms = a->hold->ttl_ms,
                                   .longest_ms = a->hold->ttl_ms,
                                   .token = a->hold->token,
                                   .holds = 1};
    a->hold->tenure = a->hold->token;
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* A nested acquire begins nothing anew: that its owner is not let in means that it has not the lock
 * any more. */
static dlock_status lost_meanwhile(const struct acquiring *a)
{
    return fail(DLOCK_LOST, "'%s' was lost before it was acquired once more by its owner",
                a->lock->name);
}

/* The rung gave the lock. BUSY when that came so late that nothing of its validity is left. */
static dlock_status granted(struct acquiring *a)
{
    struct dlock_hold *hold = a->hold;
    if (a->lock->rung.expires) {
        hold->valid_until_ns = validity_end_ns(a->sent_ns, hold->ttl_ms);
        if (!dlock_valid(hold)) {
            a->late = true;
            hold->more = false;
            run_release(hold, NULL, a->ends_ns, &(bool){false});
            begin_anew(a);
            return fail(DLOCK_BUSY, "the answer took longer than the time to live");
        }
    }
    begin_tenure(a);
    if (!keep(a, a->sent_ns, a->sent_ns, hold->ttl_ms))
        return lost_meanwhile(a);
    if (a->wait.unheard)
        add_one(&a->lock->client->unheard);
    return DLOCK_OK;
}

/* How long to leave a server alone that is not well: while nobody connects; and where it refuses,
 * longer each time. */
static int64_t pause_ms(struct acquiring *a, dlock_status status)
{
    int64_t pause_ms = redis_pause_ms(&a->lock->client->config);
    if (status != DLOCK_REFUSED || !a->transient)
        return pause_ms;
    int64_t retry_ms = a->lock->client->options.retry_ms;
    int64_t own_ms = retry_ms << a->refusals;
    if (own_ms < REFUSED_PAUSE_MS)
        a->refusals++;
    else
        own_ms = retry_ms > REFUSED_PAUSE_MS ? retry_ms : REFUSED_PAUSE_MS;
    return own_ms > pause_ms ? own_ms : pause_ms;
}

static dlock_status step(struct acquiring *a, struct busy *busy)
{
    struct dlock_hold *hold = a->hold;
    dlock_status status;
    if (owner_begin(hold, a->wait.deadline_ns == 0 ? a->ends_ns : a->limit_ns)) {
        owner_join(hold);
        status = run_try(a, busy);
    } else {
        *busy = (struct busy){0};
        status = fail(DLOCK_UNREACHABLE, "another request of its owner was not answered in time");
    }
    if (status == DLOCK_BUSY && hold->depth > 1 && !a->lock->rung.flawed) {
        owner_lost(hold);
        status = lost_meanwhile(a);
    }
    if (status == DLOCK_OK)
        status = granted(a);
    else if (status != DLOCK_BUSY)
        busy->again_ms = pause_ms(a, status);
    owner_end(hold);
    if (status == DLOCK_BUSY || status == DLOCK_UNKNOWN) {
        a->tried = true;
        set_queued(a, true);
    }
    return status;
}

static bool worth_another_try(const struct acquiring *a, dlock_status status)
{
    switch (status) {
    case DLOCK_BUSY:
    case DLOCK_UNREACHABLE:
    case DLOCK_LIMIT:
        return true;
    case DLOCK_UNKNOWN:
        return may_ask_again(a->lock->ops);
    case DLOCK_REFUSED:
        return a->transient;
    default:
        return false;
    }
}

/* ---- Without a try --------------------------------------------------------------------------- */

static bool has_outer(struct acquiring *a)
{
    pthread_mutex_lock(&a->lock->mutex);
    bool found = owner_outermost(a->hold) != NULL;
    pthread_mutex_unlock(&a->lock->mutex);
    return found;
}

/* The loop's mutex is held. One more hold of the tenure, with its token. */
static void join_tenure(struct acquiring *a)
{
    struct tenure *tenure = &a->lock->tenure;
    a->hold->tenure = tenure->token;
    a->hold->token = tenure->token + tenure->numbers;
    a->hold->shares = true;
    if (tenure->longest_ms < a->hold->ttl_ms)
        tenure->longest_ms = a->hold->ttl_ms;
}

/* Nobody asks the server whether it is let in again: the client has the lock, and this owner in
 * it. It counts from the step in which that is seen. BUSY: not any more. */
static dlock_status nest(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    struct dlock_hold *hold = a->hold;
    struct tenure *tenure = &lock->tenure;
    int64_t now_ns = lock->client->now_ns();
    int64_t sent_ns = now_ns;
    pthread_mutex_lock(&lock->client->loop.mutex);
    pthread_mutex_lock(&lock->mutex);
    const struct dlock_hold *outer = owner_outermost(hold);
    bool lasts = outer != NULL && tenure->token == outer->tenure && tenure->holds > 0;
    bool fits = tenure->numbers < TENURE_NUMBERS - 1;
    if (lasts && fits) {
        tenure->holds++;
        tenure->numbers++;
        join_tenure(a);
        sent_ns = min_ns(now_ns, atomic_load(&outer->valid_until_ns) -
                                     validity_end_ns(0, hold->ttl_ms));
        hold->valid_until_ns = validity_end_ns(sent_ns, hold->ttl_ms);
        set_end(hold, now_ns);
        LIST_INSERT_HEAD(&lock->holds, hold, of_lock);
    }
    pthread_mutex_unlock(&lock->mutex);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    if (!lasts)
        return DLOCK_BUSY;
    if (!fits)
        return fail(DLOCK_LIMIT, "'%s' was acquired %d times since the server gave it", lock->name,
                    TENURE_NUMBERS);
    send_alone(lock, NULL, a->want.reads, a->ends_ns, &(bool){false});
    watch(a, sent_ns, hold->ttl_ms);
    return DLOCK_OK;
}

/* The lock was passed on to it inside the client. */
static dlock_status take_over(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    int64_t now_ns = lock->client->now_ns();
    pthread_mutex_lock(&lock->client->loop.mutex);
    int64_t sent_ns = lock->tenure.sent_ns;
    int64_t ttl_ms = min_ns(lock->tenure.ttl_ms, a->hold->ttl_ms);
    join_tenure(a);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    a->hold->valid_until_ns = validity_end_ns(sent_ns, ttl_ms);
    if (!a->reads_sent)
        send_alone(lock, NULL, a->want.reads, a->ends_ns, &(bool){false});
    keep(a, now_ns, sent_ns, ttl_ms);
    return DLOCK_OK;
}

/* ---- Going on -------------------------------------------------------------------------------- */

/* The try failed: for its own sentence, and for those who stand in line and will not try. */
static void note_failure(struct acquiring *a)
{
    bool answered = a->status == DLOCK_BUSY;
    a->cause = a->status;
    snprintf(a->why, sizeof a->why, "%s",
             answered && !a->late ? dlock_status_text(a->status) : dlock_error());
    pthread_mutex_lock(&a->lock->mutex);
    snprintf(a->lock->trouble, sizeof a->lock->trouble, "%s", answered ? "" : a->why);
    a->lock->trouble_status = a->status;
    if (answered)
        a->lock->answered_ns = mono_ns();
    pthread_mutex_unlock(&a->lock->mutex);
}

/* The limit has passed. Where no try of this client got an answer meanwhile, that is no contention:
 * why says the status. `cause` and `why` are of the latest try, its own or of those before it. */
static dlock_status time_out(const struct acquiring *a)
{
    struct dlock *lock = a->lock;
    char trouble[sizeof lock->trouble];
    bool tried = a->why[0] != '\0';
    long long wait_ms = a->want.wait_ms;
    pthread_mutex_lock(&lock->mutex);
    bool answered = lock->answered_ns >= a->limit_ns - wait_ms * NS_PER_MS;
    dlock_status cause = tried ? a->cause : lock->trouble_status;
    snprintf(trouble, sizeof trouble, "%s", lock->trouble);
    pthread_mutex_unlock(&lock->mutex);
    bool silent = !answered && (cause == DLOCK_UNREACHABLE || cause == DLOCK_REFUSED);
    dlock_status status = a->unresolved                      ? DLOCK_UNKNOWN
                          : silent && (tried || trouble[0]) ? cause
                                                             : DLOCK_TIMED_OUT;
    if (tried)
        return fail(status, "'%s' was not had in %lld ms: %s", lock->name, wait_ms, a->why);
    return fail(status, "'%s' was not had in time: others of this client were first%s%s",
                lock->name, trouble[0] != '\0' ? ", in vain: " : "", trouble);
}

/* The first answer that is no wait. `cause` and `why` are of the latest try, if there was one. */
static dlock_status conclude(const struct acquiring *a, enum wait_next next)
{
    const char *name = a->lock->name;
    switch (next) {
    case NEXT_BUSY:
        if (a->why[0] == '\0')
            return fail(DLOCK_BUSY, "'%s': others of this client wait for it already", name);
        return fail(a->cause, "'%s': %s", name, a->why);
    case NEXT_TIMED_OUT:
        return time_out(a);
    default:
        if (a->unresolved)
            return fail(DLOCK_UNKNOWN, "'%s': cancelled before this was known: %s", name, a->why);
        return fail(DLOCK_CANCELLED, "the wait for '%s' was cancelled", name);
    }
}

/* Goes on until it is over, and true, or must sleep: then it may be gone by the return. */
static bool advance(struct acquiring *a, enum wait_next next)
{
    struct busy busy;
    redis_send_for(a->want.user);
    for (;;) {
        if (next == NEXT_SLEEP) {
            redis_send_for(NULL);
            return false;
        }
        if (next == NEXT_HAD)
            a->status = a->nested ? nest(a) : take_over(a);
        else if (next == NEXT_TRY)
            a->status = step(a, &busy);
        else
            a->status = conclude(a, next);
        if (next == NEXT_HAD && a->status == DLOCK_BUSY) { /* its owner lets go at this moment */
            a->nested = false;
            next = wait_begin(&a->wait, true);
            continue;
        }
        if (next != NEXT_TRY || a->status == DLOCK_OK || !worth_another_try(a, a->status))
            return true;
        note_failure(a);
        next = wait_again(&a->wait, &busy);
        if (next == NEXT_TRY)
            next = wait_look(&a->wait);
    }
}

/* Whether the rung has something to take back. With TRAIT_HANDOFF that is the client's, as long as
 * one of its waiters is left. */
static bool left_something(struct acquiring *a)
{
    struct dlock *lock = a->lock;
    if (!has(lock, TRAIT_HANDOFF))
        return a->tried;
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool contends = a->wait.state == WAIT_TRYING || a->wait.state == WAIT_SLEEPING;
    bool left = contends && lock->tenure.queued && !wait_others(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return left;
}

static void give_up(struct acquiring *a)
{
    struct rung_env env;
    if (a->lock->ops->send_give_up == NULL || !left_something(a))
        return;
    if (env_begin(a->lock, a->ends_ns, a->ends_ns, -1, &env) == DLOCK_OK)
        rung_give_up(&env, a->hold);
    env_end(a->lock, &env);
    set_queued(a, false);
}

/* Whether the server may be asked why it was not had: who stood in line to the end is answered by a
 * thread that must not block, and a server that was not reached by the last try is not asked
 * again. */
static bool may_ask(const struct acquiring *a)
{
    pthread_mutex_lock(&a->lock->client->loop.mutex);
    bool in_line = a->wait.state == WAIT_LEFT;
    pthread_mutex_unlock(&a->lock->client->loop.mutex);
    return !in_line && (a->status == DLOCK_WRONG_TYPE || (a->cause == DLOCK_BUSY && !a->late));
}

/* It is over: a->status with its sentence, and a hold if OK. */
static void finish(struct acquiring *a)
{
    char why[SENTENCE_MAX];
    bool had = a->status == DLOCK_OK;
    if (!had) {
        snprintf(why, sizeof why, "%s", dlock_error());
        if (a->status == DLOCK_UNKNOWN)
            add_one(&a->lock->client->unknown);
        give_up(a);
    }
    bool asks = !had && may_ask(a);
    wait_end(&a->wait, had);
    if (!had) {
        fail(a->status, "%s", why);
        a->status =
            explain(a->hold, a->status, asks ? a->ends_ns : 0, a->cancel_fd);
        snprintf(why, sizeof why, "%s", dlock_error());
        if (!leftover_keep(a))
            free(a->hold);
        fail(a->status, "%s", why);
        a->hold = NULL;
    }
    redis_send_for(NULL);
}

/* ---- Beginning ------------------------------------------------------------------------------- */

/* deadline_ns 0: it is to try once, now. */
static int64_t end_ns(const struct dlock_client *client, int64_t deadline_ns)
{
    if (deadline_ns == 0)
        return mono_deadline_ns(bound_ms(client));
    if (deadline_ns == INT64_MAX)
        return INT64_MAX;
    return deadline_ns + bound_ms(client) * NS_PER_MS;
}

/* Of one of want's times. */
static dlock_status check_time(const struct dlock *lock, const char *name, int64_t ms,
                               int64_t most_ms)
{
    if (ms == 0)
        return DLOCK_OK;
    if (ms < TTL_MS_LEAST || ms > most_ms)
        return fail(DLOCK_INVALID, "want.%s is %lld; it must be %d to %lld, or 0", name,
                    (long long)ms, TTL_MS_LEAST, (long long)most_ms);
    if (!lock->rung.expires)
        return fail(DLOCK_UNSUPPORTED, "want.%s is %lld, but holds of '%s' have no time to live; "
                                       "leave it 0, or use a rung that expires", name,
                    (long long)ms, lock->ops->name);
    return DLOCK_OK;
}

static dlock_status prepare(struct acquiring *a, dlock *lock, const struct dlock_want *want,
                            bool started)
{
    *a = (struct acquiring){.lock = lock};
    dlock_status status = check_fork(lock->client);
    if (status != DLOCK_OK)
        return status;
    status = struct_take(&a->want, sizeof a->want, want, "want");
    if (status != DLOCK_OK)
        return status;
    if (a->want.mode != DLOCK_EXCLUSIVE && a->want.mode != DLOCK_SHARED)
        return fail(DLOCK_INVALID,
                    "want.mode is %d; it must be DLOCK_EXCLUSIVE (0) or DLOCK_SHARED (1)",
                    (int)a->want.mode);
    if (a->want.mode == DLOCK_SHARED && !has(lock, TRAIT_SHARED))
        return fail(DLOCK_UNSUPPORTED,
                    "'%s' has no shared holds; use DLOCK_EXCLUSIVE, or the rung 'read_write'",
                    lock->ops->name);
    if ((status = check_time(lock, "ttl_ms", a->want.ttl_ms, TTL_MS_MOST)) != DLOCK_OK ||
        (status = check_time(lock, "hold_max_ms", a->want.hold_max_ms, HOLD_MS_MOST)) != DLOCK_OK)
        return status;
    if (a->want.reads != NULL)
        batch_forget(a->want.reads);
    a->cancel_fd = a->want.cancel != NULL ? a->want.cancel->fd : -1;
    int64_t deadline_ns = a->want.wait_ms == 0 ? 0 : mono_deadline_ns(a->want.wait_ms);
    a->limit_ns = deadline_ns != 0 ? deadline_ns : INT64_MAX;
    a->ends_ns = end_ns(lock->client, deadline_ns);
    a->wait = (struct wait){.lock = lock,
                            .mode = a->want.mode,
                            .cancel = a->want.cancel,
                            .deadline_ns = deadline_ns,
                            .wake_fd = -1};
    a->hold = hold_new(lock, &a->want);
    if (a->hold == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    if (!started && !lock->rung.flawed && owner_waits_for_itself(a->hold))
        return fail(DLOCK_UPGRADE, "'%s': this thread reads and asks to write, so it would wait for "
                                   "itself; it can release first, or begin with the write lock",
                    lock->name);
    return DLOCK_OK;
}

static enum wait_next begin(struct acquiring *a)
{
    bool inner = has_outer(a);
    a->nested = inner && has(a->lock, TRAIT_HANDOFF);
    enum wait_next next = wait_begin(&a->wait, !inner);
    return next == NEXT_TRY && a->nested ? NEXT_HAD : next; /* asleep, it may be gone by now */
}

dlock_status dlock_acquire(dlock *lock, const struct dlock_want *want, dlock_hold **hold)
{
    struct acquiring a;
    if (!GIVEN(hold))
        return DLOCK_INVALID;
    *hold = NULL;
    if (!GIVEN(lock))
        return DLOCK_INVALID;
    dlock_status status = prepare(&a, lock, want, false);
    if (status != DLOCK_OK) {
        free(a.hold);
        return status;
    }
    for (enum wait_next next = begin(&a); !advance(&a, next); next = wait_look(&a.wait))
        wait_sleep(&a.wait);
    finish(&a);
    *hold = a.hold;
    return a.status;
}

/* ---- Without a thread ------------------------------------------------------------------------ */

bool outbox_init(struct outbox *outbox)
{
    STAILQ_INIT(&outbox->over);
    pthread_mutex_init(&outbox->mutex, NULL);
    outbox->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return outbox->fd >= 0;
}

void outbox_free(struct outbox *outbox)
{
    if (outbox->fd >= 0)
        close(outbox->fd);
    pthread_mutex_destroy(&outbox->mutex);
}

static void put_out(struct outbox *outbox, struct acquiring *a)
{
    uint64_t one = 1;
    pthread_mutex_lock(&outbox->mutex);
    STAILQ_INSERT_TAIL(&outbox->over, a, of_outbox);
    pthread_mutex_unlock(&outbox->mutex);
    (void)!write(outbox->fd, &one, sizeof one);
}

static void answer(struct acquiring *a)
{
    dlock_done *done = a->done;
    void *arg = a->done_arg;
    dlock_status status = a->status;
    dlock_hold *hold = a->hold;
    free(a);
    done(arg, status, hold);
}

/* wait.run: goes on, and says so if it is over. */
static void run(struct wait *wait)
{
    struct acquiring *a = (struct acquiring *)wait;
    enum wait_next next = a->begun;
    a->begun = NEXT_SLEEP;
    if (next == NEXT_SLEEP)
        next = wait_look(wait);
    if (!advance(a, next))
        return;
    finish(a);
    if (!a->lock->client->options.own_loop) {
        answer(a);
        return;
    }
    if (a->status != DLOCK_OK)
        snprintf(a->why, sizeof a->why, "%s", dlock_error());
    put_out(&a->lock->client->outbox, a);
}

dlock_status dlock_acquire_start(dlock *lock, const struct dlock_want *want, dlock_done *done,
                                 void *arg)
{
    if (!GIVEN(lock) || !GIVEN(done))
        return DLOCK_INVALID;
    struct loop *loop = &lock->client->loop;
    struct acquiring *a = calloc(1, sizeof *a);
    if (a == NULL)
        return fail(DLOCK_NO_MEMORY, "out of memory");
    dlock_status status = prepare(a, lock, want, true);
    if (status == DLOCK_OK && has(lock, TRAIT_THREAD))
        status = fail(DLOCK_UNSUPPORTED,
                      "'%s' counts in the memory of the thread that acquires: it must wait itself",
                      lock->ops->name);
    if (status == DLOCK_OK) {
        a->wait.run = run;
        a->wait.running = true; /* until it sleeps: it is begun here */
        a->done = done;
        a->done_arg = arg;
        pthread_mutex_lock(&loop->mutex);
        status = loop_join(loop, &a->wait);
        pthread_mutex_unlock(&loop->mutex);
    }
    if (status != DLOCK_OK) {
        free(a->hold);
        free(a);
        return status;
    }
    a->begun = NEXT_SLEEP;
    enum wait_next next = begin(a);
    if (next == NEXT_SLEEP)
        return DLOCK_OK; /* it may be over by now */
    a->begun = next;
    if (a->want.try_here) {
        run(&a->wait);
        return DLOCK_OK;
    }
    pthread_mutex_lock(&loop->mutex);
    a->wait.running = false;
    loop_run(loop, &a->wait);
    pthread_mutex_unlock(&loop->mutex);
    return DLOCK_OK;
}

int dlock_fd(const dlock_client *client)
{
    return client != NULL && client->options.own_loop ? client->outbox.fd : -1;
}

size_t dlock_process(dlock_client *client)
{
    if (!GIVEN(client))
        return 0;
    struct outbox *outbox = &client->outbox;
    STAILQ_HEAD(, acquiring) over = STAILQ_HEAD_INITIALIZER(over);
    struct acquiring *a;
    uint64_t count;
    size_t answered = 0;
    if (check_fork(client) != DLOCK_OK)
        return 0;
    (void)!read(outbox->fd, &count, sizeof count);
    pthread_mutex_lock(&outbox->mutex);
    STAILQ_CONCAT(&over, &outbox->over);
    pthread_mutex_unlock(&outbox->mutex);
    while ((a = STAILQ_FIRST(&over)) != NULL) {
        STAILQ_REMOVE_HEAD(&over, of_outbox);
        if (a->status != DLOCK_OK)
            fail(a->status, "%s", a->why);
        answer(a);
        answered++;
    }
    return answered;
}
