/* SPDX-License-Identifier: Apache-2.0
 *
 * See leftover.h. A leftover asks as a waiter does, and keeps its lock open. With TRAIT_HANDOFF it
 * speaks for its client: a waiter that comes after it asks and leaves itself, and then the leftover
 * only ends its doubt.
 */
#include "leftover.h"

#include "handoff.h"
#include "owner.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_MS 100       /* between its first tries; each time twice as long, */
#define AGAIN_MOST_MS 3200 /* up to this */
#define QUEUE_GRANTS 10    /* `fair`: the server keeps a queue for as many times grant_ms */

struct leftover {
    struct wait wait; /* the first member: whoever has the wait has this */
    struct exchange exchange;
    struct dlock_hold *hold; /* NULL: it only keeps its lock open */
    int64_t ends_ns;         /* CLOCK_MONOTONIC: what was locked before this began has expired */
    int64_t pause_ms;
    bool tried;
    LIST_ENTRY(leftover) of_client;
};

static void close_lock(struct dlock *lock);

static void leftover_free(struct leftover *leftover)
{
    struct dlock *lock = leftover->wait.lock;
    free(leftover->hold);
    free(leftover);
    close_lock(lock);
}

static void end(struct leftover *leftover)
{
    struct dlock_client *client = leftover->wait.lock->client;
    struct loop *loop = &client->loop;
    pthread_mutex_lock(&loop->mutex);
    LIST_REMOVE(leftover, of_client);
    loop_leave(loop, &leftover->wait);
    pthread_mutex_unlock(&loop->mutex);
    leftover_free(leftover);
    pthread_mutex_lock(&loop->mutex);
    client->leftovers_freed++;
    pthread_cond_broadcast(&client->leftover_over);
    pthread_mutex_unlock(&loop->mutex);
}

static int64_t expired_ns(const struct leftover *leftover)
{
    return mono_deadline_ns(hold_longest_ms(leftover->hold) +
                            bound_ms(leftover->wait.lock->client));
}

/* The loop's mutex is held. When the client is closed, each that is for a server is tried once. */
static bool is_over(struct leftover *leftover)
{
    int64_t closes_ns = leftover->wait.lock->client->closes_ns;
    bool tried = leftover->tried || leftover->hold == NULL;
    int64_t now_ns = mono_ns();
    if (closes_ns != INT64_MAX)
        return tried || now_ns >= min_ns(leftover->ends_ns, closes_ns);
    if (now_ns >= leftover->ends_ns && leftover->hold != NULL && owner_holds(leftover->hold))
        leftover->ends_ns = expired_ns(leftover); /* its owner's other hold is renewed */
    return now_ns >= leftover->ends_ns;
}

/* The loop's mutex is held. No waiter of this client is left to ask or to leave, nor a holder. */
static bool is_deserted(const struct dlock *lock)
{
    return lock->handoff != NULL && lock->line.contenders == 0;
}

/* For its client. */
static bool leaves(const struct leftover *leftover)
{
    return leftover->hold != NULL && leftover->wait.lock->handoff != NULL;
}

/* The loop's mutex is held. */
static bool is_taken_over(const struct leftover *leftover)
{
    return leaves(leftover) && !is_deserted(leftover->wait.lock);
}

/* The loop's mutex is held. It is over: the next that leaves lets go of its try, too. */
static void sees_to_no_try(const struct leftover *leftover)
{
    struct dlock *lock = leftover->wait.lock;
    if (leaves(leftover) && lock->handoff->leaving_try == leftover->hold->handoff->try)
        lock->handoff->leaving_try = 0;
}

static void has_left(struct dlock *lock, const struct dlock_hold *hold)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (is_deserted(lock))
        tenure_of(lock)->queued = false;
    if (lock->handoff->left_try == hold->handoff->try)
        lock->handoff->left_try = 0;
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* wait.run */
static void run(struct wait *wait)
{
    struct leftover *leftover = (struct leftover *)wait;
    struct dlock_client *client = wait->lock->client;
    struct loop *loop = &client->loop;
    pthread_mutex_lock(&loop->mutex);
    struct exchange *exchange = &leftover->exchange;
    bool taken_over = is_taken_over(leftover);
    bool over = is_over(leftover) || (taken_over && !(exchange->open && leaves(leftover)));
    if (!over) {
        if (leaves(leftover)) /* its hold is of no tenure: a release lets go of nothing */
            exchange->step = taken_over ? STEP_RELEASE : STEP_GIVE_UP;
        exchange->ends_ns = min_ns(mono_deadline_ns(bound_ms(client)), client->closes_ns);
        exchange->limit_ns = wait->ends_ns = exchange->ends_ns;
        loop_ask(loop, wait);
    } else {
        sees_to_no_try(leftover);
    }
    pthread_mutex_unlock(&loop->mutex);
    if (over)
        end(leftover);
}

/* Nothing of it is locked any more. Who was refused asks again: passwords and rights may change. */
static bool is_done(const struct exchange *exchange)
{
    return exchange->status == DLOCK_OK || exchange->status == DLOCK_LOST ||
           exchange->status == DLOCK_WRONG_TYPE;
}

/* The loop's mutex is held. It has only ended its doubt, and now nobody else is left to leave. */
static bool still_leaves(const struct leftover *leftover)
{
    return leaves(leftover) && leftover->exchange.step == STEP_RELEASE && !is_taken_over(leftover);
}

/* wait.answered */
static void answered(struct wait *wait)
{
    struct leftover *leftover = (struct leftover *)wait;
    struct dlock_client *client = wait->lock->client;
    if (leftover->exchange.status == DLOCK_OK && leaves(leftover))
        has_left(wait->lock, leftover->hold);
    leftover->pause_ms =
        leftover->pause_ms == 0 ? AGAIN_MS : min_ns(2 * leftover->pause_ms, AGAIN_MOST_MS);
    int64_t pause_ms = client->engine->pause_ms(client); /* while nobody connects */
    if (pause_ms < leftover->pause_ms)
        pause_ms = leftover->pause_ms;
    pthread_mutex_lock(&client->loop.mutex);
    leftover->tried = true;
    bool done = is_done(&leftover->exchange) && !still_leaves(leftover);
    bool over = done || is_over(leftover);
    if (!over)
        loop_put_off(&client->loop, wait, pause_ms);
    else
        sees_to_no_try(leftover);
    pthread_mutex_unlock(&client->loop.mutex);
    if (over)
        end(leftover);
}

/* Puts it among the client's, and runs it at until_ns; 0: now. False: there is no room. */
static bool keep(struct leftover *leftover, int64_t until_ns)
{
    struct dlock_client *client = leftover->wait.lock->client;
    struct loop *loop = &client->loop;
    pthread_mutex_lock(&loop->mutex);
    bool kept = client->closes_ns == INT64_MAX && loop_join(loop, &leftover->wait) == DLOCK_OK;
    if (kept) {
        LIST_INSERT_HEAD(&client->leftovers, leftover, of_client);
        client->leftovers_kept++;
        leftover->wait.until_ns = until_ns;
        loop_time(loop, &leftover->wait);
    }
    pthread_mutex_unlock(&loop->mutex);
    return kept;
}

/* One that could not linger stays open: who opens it before it has expired shall know. */
static void linger(struct dlock *lock, int64_t until_ns)
{
    struct leftover *leftover = calloc(1, sizeof *leftover);
    if (leftover == NULL)
        return;
    leftover->wait = (struct wait){.lock = lock, .run = run, .wake_fd = -1};
    leftover->ends_ns = until_ns;
    if (!keep(leftover, until_ns))
        free(leftover);
}

static void close_lock(struct dlock *lock)
{
    int64_t until_ns = lock_close(lock);
    if (until_ns != 0)
        linger(lock, until_ns);
}

void dlock_close(dlock *lock)
{
    if (lock != NULL && check_fork(lock->client) == DLOCK_OK)
        close_lock(lock);
}

/* By a give-up, where the rung has one, or by a release. True: the hold is the leftover's from here
 * on. doubted: an exchange whose request may still be carried out, or NULL. */
static bool take_back(struct dlock_hold *hold, bool gives_up, const struct exchange *doubted)
{
    struct dlock *lock = hold->lock;
    struct leftover *leftover = calloc(1, sizeof *leftover);
    if (leftover == NULL)
        return false;
    leftover->wait = (struct wait){.lock = lock,
                                   .run = run,
                                   .wake_fd = -1,
                                   .exchange = &leftover->exchange,
                                   .answered = answered,
                                   .counted = &lock->client->loop.leftover_count};
    leftover->hold = hold;
    gives_up = gives_up && (lock->abilities & ABLE_TO_GIVE_UP) != 0;
    leftover->exchange.step = gives_up ? STEP_GIVE_UP : STEP_RELEASE;
    leftover->exchange.hold = hold;
    hold->user = NULL; /* its caller has been answered */
    leftover->exchange.unseen = true;
    if (doubted != NULL && doubted->open) {
        leftover->exchange.open = true;
        leftover->exchange.engine_state = doubted->engine_state;
    }
    leftover->ends_ns = expired_ns(leftover);
    lock_keep_open(lock);
    if (keep(leftover, 0))
        return true;
    free(leftover);
    close_lock(lock);
    return false;
}

/* The release of its owner's last hold takes along what is left of a nested acquire. On a rung with
 * TRAIT_SHARED that may be a write, which keeps readers out while its owner only reads. */
static bool may_have_locked(const struct acquiring *a)
{
    const struct dlock *lock = a->lock;
    bool shared = (lock->ops->traits & TRAIT_SHARED) != 0;
    return a->exchange.unresolved && lock->rung.expires && !lock->rung.flawed &&
           (a->hold->depth == 1 || shared);
}

bool leftover_keep(struct acquiring *a, bool waits)
{
    return (waits || may_have_locked(a)) && take_back(a->hold, true, &a->exchange);
}

bool leftover_release(struct dlock_hold *hold, const struct exchange *doubted)
{
    return take_back(hold, false, doubted);
}

void leftover_release_name(const struct dlock_hold *hold, uint64_t depth)
{
    struct dlock_hold *other = hold_new(hold->lock);
    if (other == NULL)
        return;
    other->mode = hold->mode;
    other->acquisition = hold->acquisition;
    other->ttl_ms = hold->ttl_ms;
    other->shared_ms = hold_longest_ms(hold);
    strcpy(other->owner, hold->owner);
    strcpy(other->id, hold->id);
    strcpy(other->ttl, hold->ttl);
    owner_set_depth(other, depth);
    if (!take_back(other, false, NULL))
        free(other);
}

void leftover_note(struct dlock *lock)
{
    const struct tenure *tenure = tenure_of(lock);
    if (lock->handoff->left_try < tenure->try)
        lock->handoff->left_try = tenure->try;
    lock->handoff->left_until_ns = max_ns(lock->handoff->left_until_ns, forgotten_ns(tenure));
}

void leftover_leave(struct dlock *lock, const struct exchange *doubted, uint64_t try)
{
    struct dlock_client *client = lock->client;
    struct loop *loop = &client->loop;
    bool open = doubted != NULL && doubted->open;
    pthread_mutex_lock(&loop->mutex);
    if (doubted != NULL && try != 0)
        lock->handoff->left_until_ns =
            max_ns(lock->handoff->left_until_ns, mono_deadline_ns(hold_longest_ms(doubted->hold)));
    if (lock->handoff->left_try < try)
        lock->handoff->left_try = try;
    int64_t left_ms = (lock->handoff->left_until_ns - mono_ns()) / NS_PER_MS;
    if (left_ms <= 0)
        lock->handoff->left_try = 0;
    uint64_t left_try =
        lock->handoff->leaving_try < lock->handoff->left_try ? lock->handoff->left_try : 0;
    bool needed = open || (is_deserted(lock) && (tenure_of(lock)->queued || left_try != 0));
    struct dlock_hold *hold = needed ? hold_new(lock) : NULL;
    if (hold != NULL && left_try != 0)
        lock->handoff->leaving_try = left_try;
    pthread_mutex_unlock(&loop->mutex);
    if (hold == NULL)
        return;
    hold->ttl_ms = open ? doubted->hold->ttl_ms : QUEUE_GRANTS * client->options.grant_ms;
    hold->shared_ms = left_try != 0 ? left_ms : 0;
    hold->handoff->try = left_try;
    if (take_back(hold, true, doubted))
        return;
    pthread_mutex_lock(&loop->mutex);
    if (lock->handoff->leaving_try == left_try)
        lock->handoff->leaving_try = 0;
    pthread_mutex_unlock(&loop->mutex);
    free(hold);
}

void leftovers_end(struct dlock_client *client)
{
    struct leftovers idle = LIST_HEAD_INITIALIZER(idle);
    struct leftover *leftover, *next;
    pthread_mutex_lock(&client->loop.mutex);
    client->closes_ns = mono_deadline_ns(bound_ms(client));
    for (leftover = LIST_FIRST(&client->leftovers); leftover != NULL; leftover = next) {
        next = LIST_NEXT(leftover, of_client);
        if (!is_over(leftover) || (leftover->wait.running && !leftover->wait.asking))
            continue;
        LIST_REMOVE(leftover, of_client);
        loop_leave(&client->loop, &leftover->wait);
        LIST_INSERT_HEAD(&idle, leftover, of_client);
        client->leftovers_freed++;
    }
    while (client->leftovers_freed < client->leftovers_kept)
        pthread_cond_wait(&client->leftover_over, &client->loop.mutex);
    pthread_mutex_unlock(&client->loop.mutex);
    while ((leftover = LIST_FIRST(&idle)) != NULL) {
        LIST_REMOVE(leftover, of_client);
        leftover_free(leftover);
    }
}
