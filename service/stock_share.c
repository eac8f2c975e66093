/* SPDX-License-Identifier: Apache-2.0
 *
 * See stock_share.h.
 */
#include "stock_share.h"

#include "../lock/clock.h"

#define WAIT_MS 100   /* much longer than a command takes at a healthy server */
#define PAUSE_MS 1000 /* after an attempt to grow that failed */

void share_init(struct share *share)
{
    *share = (struct share){.working = 0};
    pthread_mutex_init(&share->mutex, NULL);
    cond_init(&share->given);
    TAILQ_INIT(&share->resting);
    TAILQ_INIT(&share->waiting);
}

void share_destroy(struct share *share)
{
    pthread_cond_destroy(&share->given);
    pthread_mutex_destroy(&share->mutex);
}

/* The mutex is held. */
static void set_works(struct share *share, struct sharer *sharer, bool works)
{
    share->working += works;
    share->working -= sharer->works;
    sharer->works = works;
}

static void swap_connections(struct sharer *one, struct sharer *other)
{
    struct redis *redis = one->redis;
    one->redis = other->redis;
    other->redis = redis;
}

void share_wake(struct share *share, struct sharer *sharer)
{
    pthread_mutex_lock(&share->mutex);
    if (sharer->rests)
        TAILQ_REMOVE(&share->resting, sharer, place);
    sharer->rests = false;
    set_works(share, sharer, redis_drop_stale(sharer->redis));
    pthread_mutex_unlock(&share->mutex);
}

/* A worker that finds more to do at once must not take its connection from one that waits. */
void share_rest(struct share *share, struct sharer *sharer)
{
    pthread_mutex_lock(&share->mutex);
    struct sharer *next = TAILQ_FIRST(&share->waiting);
    bool connected = redis_up(sharer->redis);
    set_works(share, sharer, false);
    if (connected && next != NULL) {
        TAILQ_REMOVE(&share->waiting, next, place);
        swap_connections(sharer, next);
        set_works(share, next, true);
        next->given = true;
        pthread_cond_broadcast(&share->given);
    } else if (connected) {
        TAILQ_INSERT_HEAD(&share->resting, sharer, place);
        sharer->rests = true;
    }
    pthread_mutex_unlock(&share->mutex);
}

/* The mutex is held. */
static bool take_resting(struct share *share, struct sharer *sharer)
{
    struct sharer *other;
    while ((other = TAILQ_FIRST(&share->resting)) != NULL) {
        TAILQ_REMOVE(&share->resting, other, place);
        other->rests = false;
        if (!redis_drop_stale(other->redis))
            continue;
        swap_connections(sharer, other);
        set_works(share, sharer, true);
        return true;
    }
    return false;
}

/* The mutex is held. */
static bool await_one(struct share *share, struct sharer *sharer, const struct timespec *until)
{
    sharer->given = false;
    TAILQ_INSERT_TAIL(&share->waiting, sharer, place);
    while (!sharer->given && pthread_cond_timedwait(&share->given, &share->mutex, until) == 0)
        ;
    if (!sharer->given)
        TAILQ_REMOVE(&share->waiting, sharer, place);
    return sharer->given;
}

enum share_next share_find(struct share *share, struct sharer *sharer, bool grows)
{
    const struct timespec until = timespec_of(mono_ns() + WAIT_MS * NS_PER_MS);
    enum share_next next = SHARE_CONNECT;
    pthread_mutex_lock(&share->mutex);
    set_works(share, sharer, false);
    bool taken = take_resting(share, sharer);
    if (!taken && share->working > 0 && grows && !share->growing && mono_ns() >= share->grow_ns) {
        share->growing = sharer->grows = true;
        next = SHARE_GROW;
    } else if (!taken && share->working > 0) {
        taken = await_one(share, sharer, &until);
    }
    if (taken)
        next = SHARE_TAKEN;
    pthread_mutex_unlock(&share->mutex);
    return next;
}

void share_connected(struct share *share, struct sharer *sharer, bool connected)
{
    pthread_mutex_lock(&share->mutex);
    set_works(share, sharer, connected);
    if (sharer->grows) {
        share->growing = sharer->grows = false;
        share->grow_ns = connected ? 0 : mono_ns() + PAUSE_MS * NS_PER_MS;
    }
    pthread_mutex_unlock(&share->mutex);
}
