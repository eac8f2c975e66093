/* SPDX-License-Identifier: Apache-2.0
 *
 * See leftover.h. A leftover is run by the loop's workers, as a waiter is, and keeps its lock open.
 */
#include "leftover.h"

#include <stdlib.h>

#define AGAIN_MS 100 /* between its tries, where nobody answers */

struct leftover {
    struct wait wait; /* the first member: whoever has the wait has this */
    struct dlock_hold *hold;
    bool open; /* its request may still be carried out: */
    struct doubt doubt;
    int64_t ends_ns; /* CLOCK_MONOTONIC: what was locked before this began has expired */
    LIST_ENTRY(leftover) of_client;
};

static struct loop *loop_of(const struct leftover *leftover)
{
    return &leftover->hold->lock->client->loop;
}

static void leftover_free(struct leftover *leftover)
{
    struct dlock *lock = leftover->hold->lock;
    free(leftover->hold);
    free(leftover);
    dlock_close(lock);
}

static bool hands_off(const struct dlock *lock)
{
    return (lock->ops->traits & TRAIT_HANDOFF) != 0;
}

/* The loop's mutex is held. No waiter of this client is left to ask or to leave, nor a holder. */
static bool is_deserted(const struct dlock *lock)
{
    return hands_off(lock) && lock->line.contenders == 0;
}

/* A waiter that has come since asks for itself, and leaves itself. */
static bool is_taken_over(const struct leftover *leftover)
{
    struct dlock *lock = leftover->hold->lock;
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool taken_over = hands_off(lock) && !is_deserted(lock);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return taken_over;
}

static void has_left(struct dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    if (is_deserted(lock))
        lock->tenure.queued = false;
    pthread_mutex_unlock(&lock->client->loop.mutex);
}

/* Its request is carried out, or never will be: whatever it did is taken back. */
static bool release(struct leftover *leftover, struct rung_env *env)
{
    struct dlock_hold *hold = leftover->hold;
    dlock_status status = hold->lock->ops->send_give_up != NULL ? rung_give_up(env, hold)
                                                                : rung_release(env, hold);
    if (status == DLOCK_UNKNOWN)
        leftover->open = redis_doubt(env->redis, &leftover->doubt);
    if (status == DLOCK_OK)
        has_left(hold->lock);
    return status == DLOCK_OK || status == DLOCK_LOST || status == DLOCK_WRONG_TYPE;
}

static bool is_over(struct leftover *leftover)
{
    struct dlock *lock = leftover->hold->lock;
    int64_t limit_ns = mono_deadline_ns(bound_ms(lock->client));
    struct rung_env env;
    bool over = false;
    if (is_taken_over(leftover))
        return true;
    if (env_begin(lock, limit_ns, limit_ns, -1, &env) == DLOCK_OK) {
        env.on_point = NULL; /* no call passes here */
        enum doubt_end end =
            leftover->open ? redis_end_doubt(env.redis, &leftover->doubt, limit_ns, -1)
                           : DOUBT_ENDED;
        if (end != DOUBT_STAYS)
            leftover->open = false;
        over = end != DOUBT_STAYS && (release(leftover, &env) || end == DOUBT_FOR_EVER);
    }
    env_end(lock, &env);
    return over || mono_ns() >= leftover->ends_ns;
}

/* wait.run */
static void run(struct wait *wait)
{
    struct leftover *leftover = (struct leftover *)wait;
    struct dlock_client *client = wait->lock->client;
    struct loop *loop = loop_of(leftover);
    bool over = is_over(leftover);
    pthread_mutex_lock(&loop->mutex);
    over |= client->closing;
    if (over) {
        LIST_REMOVE(leftover, of_client);
        loop_leave(loop, wait);
    } else {
        int64_t pause_ms = redis_pause_ms(&client->config);
        wait->running = false;
        wait->until_ns = mono_deadline_ns(pause_ms > AGAIN_MS ? pause_ms : AGAIN_MS);
        loop_time(loop, wait);
    }
    pthread_mutex_unlock(&loop->mutex);
    if (!over)
        return;
    leftover_free(leftover);
    pthread_mutex_lock(&loop->mutex);
    client->leftovers_freed++;
    pthread_cond_broadcast(&client->leftover_over);
    pthread_mutex_unlock(&loop->mutex);
}

/* True: the hold is the leftover's from here on. doubt: of its request that may still be carried
 * out, or NULL. */
static bool begin(struct dlock_hold *hold, const struct doubt *doubt)
{
    struct dlock *lock = hold->lock;
    struct loop *loop = &lock->client->loop;
    struct leftover *leftover = calloc(1, sizeof *leftover);
    if (leftover == NULL)
        return false;
    leftover->wait = (struct wait){.lock = lock, .run = run, .wake_fd = -1};
    leftover->hold = hold;
    leftover->open = doubt != NULL;
    if (doubt != NULL)
        leftover->doubt = *doubt;
    leftover->ends_ns = mono_deadline_ns(hold->ttl_ms + bound_ms(lock->client));
    lock_keep_open(lock);
    pthread_mutex_lock(&loop->mutex);
    bool kept = loop_join(loop, &leftover->wait) == DLOCK_OK;
    if (kept) {
        LIST_INSERT_HEAD(&lock->client->leftovers, leftover, of_client);
        lock->client->leftovers_kept++;
        loop_run(loop, &leftover->wait);
    }
    pthread_mutex_unlock(&loop->mutex);
    if (kept)
        return true;
    free(leftover);
    dlock_close(lock);
    return false;
}

/* Of a nested acquire nothing is left: the release of its owner's last hold takes it along. On
 * `fair` the client holds, and its next waiter finds what was left. */
static bool leaves_something(const struct acquiring *a)
{
    const struct dlock *lock = a->lock;
    return a->unresolved && lock->rung.expires && !lock->rung.flawed && a->hold->depth == 1 &&
           !hands_off(lock);
}

bool leftover_keep(struct acquiring *a)
{
    const struct doubt *doubt = a->open ? &a->doubt : NULL;
    leftover_leave(a->lock, doubt);
    return leaves_something(a) && begin(a->hold, doubt);
}

void leftover_leave(struct dlock *lock, const struct doubt *doubt)
{
    struct loop *loop = &lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    bool needed = is_deserted(lock) && (lock->tenure.queued || doubt != NULL);
    pthread_mutex_unlock(&loop->mutex);
    struct dlock_hold *hold = needed ? calloc(1, sizeof *hold) : NULL;
    if (hold == NULL)
        return;
    hold->lock = lock;
    hold->key = lock->name;
    hold->beside = lock->beside;
    hold->ttl_ms = lock->ttl_ms;
    if (!begin(hold, doubt))
        free(hold);
}

void leftovers_end(struct dlock_client *client)
{
    struct leftovers idle = LIST_HEAD_INITIALIZER(idle);
    struct leftover *leftover, *next;
    pthread_mutex_lock(&client->loop.mutex);
    client->closing = true;
    for (leftover = LIST_FIRST(&client->leftovers); leftover != NULL; leftover = next) {
        next = LIST_NEXT(leftover, of_client);
        if (leftover->wait.running)
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
