/* SPDX-License-Identifier: Apache-2.0
 *
 * See cleanup.h. A cleanup sends requests as a waiter does, and keeps its lock open. With
 * TRAIT_HANDOFF it acts for the whole client. If a waiter joins after it, that waiter uses the
 * client's place in the server's queue, and gives it up by cleanup_leave. Then the first cleanup
 * only settles its own request.
 */
#include "cleanup.h"

#include "handoff.h"
#include "owner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first pause between attempts. Each pause is twice as long as the one before, up to
 * AGAIN_MOST_MS. */
#define AGAIN_MS 100
#define AGAIN_MOST_MS 3200
#define QUEUE_GRANTS 10 /* `fair`: the server keeps a queue for this many times grant_ms */

struct cleanup {
    struct wait wait; /* must be first: a pointer to it is cast to this struct */
    struct exchange exchange;
    struct dlock_hold *hold; /* NULL: it only keeps its lock open */
    /* CLOCK_MONOTONIC: by then, what was locked before the cleanup began has expired. */
    int64_t ends_ns;
    int64_t pause_ms;
    bool tried;
    LIST_ENTRY(cleanup) of_client;
};

static void cleanup_close_lock(struct dlock *lock);

static void cleanup_free(struct cleanup *cleanup)
{
    struct dlock *lock = cleanup->wait.lock;
    hold_free(cleanup->hold);
    free(cleanup);
    cleanup_close_lock(lock);
}

static void cleanup_end(struct cleanup *cleanup)
{
    struct dlock_client *client = cleanup->wait.lock->client;
    struct loop *loop = &client->loop;
    pthread_mutex_lock(&loop->mutex);
    LIST_REMOVE(cleanup, of_client);
    loop_leave(loop, &cleanup->wait);
    pthread_mutex_unlock(&loop->mutex);
    cleanup_free(cleanup);
    pthread_mutex_lock(&loop->mutex);
    client->cleanups_finished++;
    pthread_cond_broadcast(&client->cleanup_over);
    pthread_mutex_unlock(&loop->mutex);
}

static int64_t expired_ns(const struct cleanup *cleanup)
{
    return mono_deadline_ns(hold_longest_ms(cleanup->hold) + bound_ms(cleanup->wait.lock->client));
}

/* The loop's mutex is held. When the client is closed, each cleanup that has a request is attempted
 * once. */
static bool cleanup_is_over(struct cleanup *cleanup)
{
    int64_t closes_ns = cleanup->wait.lock->client->closes_ns;
    bool tried = cleanup->tried || cleanup->hold == NULL;
    int64_t now_ns = mono_ns();
    if (closes_ns != INT64_MAX)
        return tried || now_ns >= min_ns(cleanup->ends_ns, closes_ns);
    if (now_ns >= cleanup->ends_ns && cleanup->hold != NULL && owner_holds(cleanup->hold))
        cleanup->ends_ns = expired_ns(cleanup); /* another hold of its owner renews the key */
    return now_ns >= cleanup->ends_ns;
}

/* The loop's mutex is held. Whether the client has neither a contender nor a holder: then no other
 * call will leave the server's queue for it. */
static bool is_deserted(const struct dlock *lock)
{
    return lock->handoff != NULL && lock->queue.contenders == 0;
}

/* Whether it takes the whole client out of the server's queue. */
static bool is_for_whole_client(const struct cleanup *cleanup)
{
    return cleanup->hold != NULL && cleanup->wait.lock->handoff != NULL;
}

/* The loop's mutex is held. Whether a contender or the holder of the client does that instead. */
static bool is_taken_over(const struct cleanup *cleanup)
{
    return is_for_whole_client(cleanup) && !is_deserted(cleanup->wait.lock);
}

/* The loop's mutex is held. The cleanup ends, and no longer releases its attempt. If the attempt
 * was not released, the next cleanup_leave starts another cleanup for it. */
static void clear_leaving_try(const struct cleanup *cleanup)
{
    struct dlock *lock = cleanup->wait.lock;
    if (is_for_whole_client(cleanup) && lock->handoff->leaving_try == cleanup->hold->handoff->try)
        lock->handoff->leaving_try = 0;
}

/* The server has confirmed the cleanup's request: nothing of the hold's attempt is left there. */
static void note_left(struct dlock *lock, const struct dlock_hold *hold)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (is_deserted(lock))
        grant_of(lock)->queued = false;
    if (lock->handoff->left_try == hold->handoff->try)
        lock->handoff->left_try = 0;
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* wait.run */
static void cleanup_run(struct wait *wait)
{
    struct cleanup *cleanup = (struct cleanup *)wait;
    struct dlock_client *client = wait->lock->client;
    struct loop *loop = &client->loop;
    pthread_mutex_lock(&loop->mutex);
    struct exchange *exchange = &cleanup->exchange;
    bool taken_over = is_taken_over(cleanup);
    bool over = cleanup_is_over(cleanup) ||
                (taken_over && !(exchange->open && is_for_whole_client(cleanup)));
    if (!over) {
        if (is_for_whole_client(cleanup)) /* its hold has no grant, so a release frees no lock */
            exchange->step = taken_over ? STEP_RELEASE : STEP_GIVE_UP;
        exchange->ends_ns = min_ns(mono_deadline_ns(bound_ms(client)), client->closes_ns);
        exchange->limit_ns = wait->ends_ns = exchange->ends_ns;
        loop_ask(loop, wait);
    } else {
        clear_leaving_try(cleanup);
    }
    pthread_mutex_unlock(&loop->mutex);
    if (over)
        cleanup_end(cleanup);
}

/* Whether nothing is left on the server. REFUSED is tried again, because passwords and permissions
 * may change. */
static bool is_done(const struct exchange *exchange)
{
    return exchange->status == DLOCK_OK || exchange->status == DLOCK_LOST ||
           exchange->status == DLOCK_WRONG_TYPE;
}

/* The loop's mutex is held. The cleanup has only settled its own request, and now neither a waiter
 * nor a holder of the client is left that could leave the server's queue. */
static bool must_still_leave(const struct cleanup *cleanup)
{
    return is_for_whole_client(cleanup) && cleanup->exchange.step == STEP_RELEASE &&
           !is_taken_over(cleanup);
}

/* wait.answered */
static void cleanup_answered(struct wait *wait)
{
    struct cleanup *cleanup = (struct cleanup *)wait;
    struct dlock_client *client = wait->lock->client;
    if (cleanup->exchange.status == DLOCK_OK && is_for_whole_client(cleanup))
        note_left(wait->lock, cleanup->hold);
    cleanup->pause_ms =
        cleanup->pause_ms == 0 ? AGAIN_MS : min_ns(2 * cleanup->pause_ms, AGAIN_MOST_MS);
    int64_t pause_ms = client->engine->pause_ms(client); /* while no connection is made */
    if (pause_ms < cleanup->pause_ms)
        pause_ms = cleanup->pause_ms;
    pthread_mutex_lock(&client->loop.mutex);
    cleanup->tried = true;
    bool done = is_done(&cleanup->exchange) && !must_still_leave(cleanup);
    bool over = done || cleanup_is_over(cleanup);
    if (!over)
        loop_put_off(&client->loop, wait, pause_ms);
    else
        clear_leaving_try(cleanup);
    pthread_mutex_unlock(&client->loop.mutex);
    if (over)
        cleanup_end(cleanup);
}

/* Adds it to the client's cleanups, and runs it at until_ns; 0: now. False: there is no room.
 * dlock_error() stays: it is the sentence of the call that ended. */
static bool cleanup_add(struct cleanup *cleanup, int64_t until_ns)
{
    struct dlock_client *client = cleanup->wait.lock->client;
    struct loop *loop = &client->loop;
    char sentence[SENTENCE_MAX];
    snprintf(sentence, sizeof sentence, "%s", dlock_error());
    pthread_mutex_lock(&loop->mutex);
    bool kept = client->closes_ns == INT64_MAX && loop_join(loop, &cleanup->wait) == DLOCK_OK;
    if (kept) {
        LIST_INSERT_HEAD(&client->cleanups, cleanup, of_client);
        client->cleanups_started++;
        cleanup->wait.until_ns = until_ns;
        loop_time(loop, &cleanup->wait);
    }
    pthread_mutex_unlock(&loop->mutex);
    fail(DLOCK_OK, "%s", sentence);
    return kept;
}

/* Keeps a lock open until its last hold has expired, so that a later dlock_open finds its state.
 * Without memory or room for that, it stays open until the client is closed. */
static void keep_lock_open_until(struct dlock *lock, int64_t until_ns)
{
    struct cleanup *cleanup = calloc(1, sizeof *cleanup);
    if (cleanup == NULL)
        return;
    cleanup->wait = (struct wait){.lock = lock, .run = cleanup_run, .wake_fd = -1};
    cleanup->ends_ns = until_ns;
    if (!cleanup_add(cleanup, until_ns))
        free(cleanup);
}

static void cleanup_close_lock(struct dlock *lock)
{
    int64_t until_ns = lock_close(lock);
    if (until_ns != 0)
        keep_lock_open_until(lock, until_ns);
}

void dlock_close(dlock *lock)
{
    if (lock != NULL && check_fork(lock->client) == DLOCK_OK)
        cleanup_close_lock(lock);
}

/* Starts a cleanup: a give-up, if the rung has one, or a release. True: the cleanup has taken the
 * hold. unresolved: an exchange whose request may still be carried out, or NULL. */
static bool take_back(struct dlock_hold *hold, bool gives_up, const struct exchange *unresolved)
{
    struct dlock *lock = hold->lock;
    struct cleanup *cleanup = calloc(1, sizeof *cleanup);
    if (cleanup == NULL)
        return false;
    cleanup->wait = (struct wait){.lock = lock,
                                  .run = cleanup_run,
                                  .wake_fd = -1,
                                  .exchange = &cleanup->exchange,
                                  .answered = cleanup_answered,
                                  .counted = &lock->client->loop.cleanup_count};
    cleanup->hold = hold;
    gives_up = gives_up && (lock->abilities & ABLE_TO_GIVE_UP) != 0;
    cleanup->exchange.step = gives_up ? STEP_GIVE_UP : STEP_RELEASE;
    cleanup->exchange.hold = hold;
    hold->user = NULL; /* the call that it belongs to has ended */
    cleanup->exchange.unseen = true;
    if (unresolved != NULL && unresolved->open) {
        cleanup->exchange.open = true;
        cleanup->exchange.engine_state = unresolved->engine_state;
    }
    cleanup->ends_ns = expired_ns(cleanup);
    lock_keep_open(lock);
    if (cleanup_add(cleanup, 0))
        return true;
    free(cleanup);
    cleanup_close_lock(lock);
    return false;
}

/* Whether the acquire's request may have locked, and no later release includes it. The release of
 * its owner's last hold includes what a nested acquire locked. With TRAIT_SHARED that may be a
 * write lock, which would keep readers out while the owner only reads. */
static bool may_have_locked(const struct acquiring *a)
{
    const struct dlock *lock = a->lock;
    bool shared = (lock->ops->traits & TRAIT_SHARED) != 0;
    return a->exchange.unresolved && lock->rung.expires && !lock->rung.flawed &&
           (a->hold->depth == 1 || shared);
}

bool cleanup_keep(struct acquiring *a, bool waits)
{
    return (waits || may_have_locked(a)) && take_back(a->hold, true, &a->exchange);
}

bool cleanup_release(struct dlock_hold *hold, const struct exchange *unresolved)
{
    return take_back(hold, false, unresolved);
}

/* The release of `other` follows the requests of `hold` that may still be on their way. */
static void copy_setting(struct dlock_hold *other, const struct dlock_hold *hold)
{
    if (hold->quorum == NULL || other->quorum == NULL)
        return;
    atomic_store(&other->servers, atomic_load(&hold->servers));
    atomic_store(&other->quorum->again, atomic_load(&hold->quorum->again));
    memcpy(other->quorum->setters, hold->quorum->setters, sizeof other->quorum->setters);
}

/* As take_back, for a copy of the hold with the same owner and id. The hold stays its caller's. */
static void take_back_copy(const struct dlock_hold *hold, uint64_t depth, bool gives_up,
                           const struct exchange *unresolved)
{
    struct dlock_hold *other = hold_new(hold->lock);
    if (other == NULL)
        return;
    other->mode = hold->mode;
    other->acquisition = hold->acquisition;
    other->ttl_ms = hold->ttl_ms;
    other->shared_ms = hold_longest_ms(hold);
    other->asked = hold->asked;
    other->acquired_on = hold->acquired_on;
    copy_setting(other, hold);
    strcpy(other->owner, hold->owner);
    strcpy(other->id, hold->id);
    strcpy(other->ttl, hold->ttl);
    owner_set_depth(other, depth);
    if (!take_back(other, gives_up, unresolved))
        hold_free(other);
}

void cleanup_release_name(const struct dlock_hold *hold, uint64_t depth)
{
    take_back_copy(hold, depth, false, NULL);
}

void cleanup_take_back_name(const struct exchange *unresolved)
{
    take_back_copy(unresolved->hold, 1, true, unresolved);
}

void cleanup_note(struct dlock *lock)
{
    const struct grant *grant = grant_of(lock);
    if (lock->handoff->left_try < grant->try)
        lock->handoff->left_try = grant->try;
    lock->handoff->left_until_ns = max_ns(lock->handoff->left_until_ns, forgotten_ns(grant));
}

void cleanup_leave(struct dlock *lock, const struct exchange *unresolved, uint64_t try)
{
    struct dlock_client *client = lock->client;
    struct loop *loop = &client->loop;
    bool open = unresolved != NULL && unresolved->open;
    pthread_mutex_lock(&loop->mutex);
    if (unresolved != NULL && try != 0)
        lock->handoff->left_until_ns = max_ns(lock->handoff->left_until_ns,
                                              mono_deadline_ns(hold_longest_ms(unresolved->hold)));
    if (lock->handoff->left_try < try)
        lock->handoff->left_try = try;
    int64_t left_ms = (lock->handoff->left_until_ns - mono_ns()) / NS_PER_MS;
    if (left_ms <= 0)
        lock->handoff->left_try = 0;
    uint64_t left_try =
        lock->handoff->leaving_try < lock->handoff->left_try ? lock->handoff->left_try : 0;
    bool needed = open || (is_deserted(lock) && (grant_of(lock)->queued || left_try != 0));
    struct dlock_hold *hold = needed ? hold_new(lock) : NULL;
    if (hold != NULL && left_try != 0)
        lock->handoff->leaving_try = left_try;
    pthread_mutex_unlock(&loop->mutex);
    if (hold == NULL)
        return;
    hold->ttl_ms = open ? unresolved->hold->ttl_ms : QUEUE_GRANTS * client->options.grant_ms;
    hold->shared_ms = left_try != 0 ? left_ms : 0;
    hold->handoff->try = left_try;
    if (take_back(hold, true, unresolved))
        return;
    pthread_mutex_lock(&loop->mutex);
    if (lock->handoff->leaving_try == left_try)
        lock->handoff->leaving_try = 0;
    pthread_mutex_unlock(&loop->mutex);
    hold_free(hold);
}

void cleanups_end(struct dlock_client *client)
{
    struct cleanups idle = LIST_HEAD_INITIALIZER(idle);
    struct cleanup *cleanup, *next;
    pthread_mutex_lock(&client->loop.mutex);
    client->closes_ns = mono_deadline_ns(bound_ms(client));
    for (cleanup = LIST_FIRST(&client->cleanups); cleanup != NULL; cleanup = next) {
        next = LIST_NEXT(cleanup, of_client);
        if (!cleanup_is_over(cleanup) || (cleanup->wait.running && !cleanup->wait.asking))
            continue;
        LIST_REMOVE(cleanup, of_client);
        loop_leave(&client->loop, &cleanup->wait);
        LIST_INSERT_HEAD(&idle, cleanup, of_client);
        client->cleanups_finished++;
    }
    while (client->cleanups_finished < client->cleanups_started)
        pthread_cond_wait(&client->cleanup_over, &client->loop.mutex);
    pthread_mutex_unlock(&client->loop.mutex);
    while ((cleanup = LIST_FIRST(&idle)) != NULL) {
        LIST_REMOVE(cleanup, of_client);
        cleanup_free(cleanup);
    }
}
