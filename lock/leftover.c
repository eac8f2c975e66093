/* SPDX-License-Identifier: Apache-2.0
 *
 * See leftover.h. A leftover asks as a waiter does, and keeps its lock open.
 */
#include "leftover.h"

#include <stdlib.h>

#define AGAIN_MS 100 /* between its tries, where nobody answers */

struct leftover {
    struct wait wait; /* the first member: whoever has the wait has this */
    struct exchange exchange;
    struct dlock_hold *hold; /* NULL: it only keeps its lock open */
    int64_t ends_ns; /* CLOCK_MONOTONIC: what was locked before this began has expired */
    LIST_ENTRY(leftover) of_client;
};

static struct loop *loop_of(const struct leftover *leftover)
{
    return &leftover->wait.lock->client->loop;
}

static void leftover_free(struct leftover *leftover)
{
    struct dlock *lock = leftover->wait.lock;
    free(leftover->hold);
    free(leftover);
    dlock_close(lock);
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

/* The loop's mutex is held. With TRAIT_HANDOFF it is the client that the server lists: not for
 * nobody, if another waiter of it has come, or holds. */
static bool is_wanted(const struct leftover *leftover)
{
    const struct dlock *lock = leftover->wait.lock;
    return leftover->hold == NULL || (lock->ops->traits & TRAIT_HANDOFF) == 0 ||
           (TAILQ_EMPTY(&lock->line.waits) && lock->line.contenders == 0);
}

/* wait.run */
static void run(struct wait *wait)
{
    struct leftover *leftover = (struct leftover *)wait;
    struct loop *loop = loop_of(leftover);
    pthread_mutex_lock(&loop->mutex);
    bool over = wait->lock->client->closing || mono_ns() >= leftover->ends_ns ||
                !is_wanted(leftover);
    if (!over) {
        struct exchange *exchange = &leftover->exchange;
        exchange->limit_ns = exchange->ends_ns = mono_deadline_ns(bound_ms(wait->lock->client));
        loop_ask(loop, wait, exchange->ends_ns);
    }
    pthread_mutex_unlock(&loop->mutex);
    if (over)
        end(leftover);
}

/* wait.ask */
static bool ask(struct wait *wait)
{
    (void)wait;
    return true;
}

/* Its request is carried out, or never will be, or may come for ever: whatever it did is taken
 * back. */
static bool is_done(const struct exchange *exchange)
{
    return exchange->status == DLOCK_OK || exchange->status == DLOCK_LOST ||
           exchange->status == DLOCK_WRONG_TYPE || exchange->end == DOUBT_FOR_EVER;
}

/* wait.answered */
static void answered(struct wait *wait)
{
    struct leftover *leftover = (struct leftover *)wait;
    struct dlock_client *client = wait->lock->client;
    struct loop *loop = &client->loop;
    if (is_done(&leftover->exchange)) {
        end(leftover);
        return;
    }
    int64_t pause_ms = redis_pause_ms(&client->config);
    pthread_mutex_lock(&loop->mutex);
    wait->running = false;
    wait->until_ns = mono_deadline_ns(pause_ms > AGAIN_MS ? pause_ms : AGAIN_MS);
    loop_time(loop, wait);
    pthread_mutex_unlock(&loop->mutex);
}

/* Of a nested acquire nothing is left: the release of its owner's last hold takes it along. */
static bool may_have_locked(const struct acquiring *a)
{
    const struct dlock *lock = a->lock;
    return a->exchange.unresolved && lock->rung.expires && !lock->rung.flawed &&
           a->hold->depth == 1;
}

/* Puts it among the client's, and runs it at until_ns; 0: now. False: there is no room. */
static bool keep(struct leftover *leftover, int64_t until_ns)
{
    struct dlock_client *client = leftover->wait.lock->client;
    struct loop *loop = &client->loop;
    pthread_mutex_lock(&loop->mutex);
    bool kept = !client->closing && loop_join(loop, &leftover->wait) == DLOCK_OK;
    if (kept) {
        LIST_INSERT_HEAD(&client->leftovers, leftover, of_client);
        client->leftovers_kept++;
        leftover->wait.until_ns = until_ns;
        loop_time(loop, &leftover->wait);
    }
    pthread_mutex_unlock(&loop->mutex);
    return kept;
}

bool leftover_linger(struct dlock *lock, int64_t until_ns)
{
    struct leftover *leftover = calloc(1, sizeof *leftover);
    if (leftover == NULL)
        return false;
    leftover->wait = (struct wait){.lock = lock, .run = run, .wake_fd = -1};
    leftover->ends_ns = until_ns;
    if (keep(leftover, until_ns))
        return true;
    free(leftover);
    return false;
}

bool leftover_keep(struct acquiring *a, bool waits)
{
    struct dlock *lock = a->lock;
    struct leftover *leftover =
        waits || may_have_locked(a) ? calloc(1, sizeof *leftover) : NULL;
    if (leftover == NULL)
        return false;
    leftover->wait = (struct wait){.lock = lock, .run = run, .wake_fd = -1,
                                   .exchange = &leftover->exchange, .ask = ask,
                                   .answered = answered};
    leftover->hold = a->hold;
    leftover->exchange.hold = a->hold;
    leftover->exchange.step = lock->ops->send_give_up != NULL ? STEP_GIVE_UP : STEP_RELEASE;
    leftover->exchange.unseen = true;
    leftover->exchange.open = a->exchange.open;
    leftover->exchange.doubt = a->exchange.doubt;
    leftover->ends_ns = mono_deadline_ns(a->hold->ttl_ms + bound_ms(lock->client));
    lock_keep_open(lock);
    if (keep(leftover, 0))
        return true;
    free(leftover);
    dlock_close(lock);
    return false;
}

void leftovers_end(struct dlock_client *client)
{
    struct leftovers idle = LIST_HEAD_INITIALIZER(idle);
    struct leftover *leftover, *next;
    pthread_mutex_lock(&client->loop.mutex);
    client->closing = true;
    for (leftover = LIST_FIRST(&client->leftovers); leftover != NULL; leftover = next) {
        next = LIST_NEXT(leftover, of_client);
        if (leftover->wait.running && !leftover->wait.asking)
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
