/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis commands of Redisson 4's RLock, replayed from its source (github.com/redisson/redisson:
 * RedissonLock.lock and unlockInnerAsync, RedissonBaseLock.unlockInnerAsync, RedissonLockEntry,
 * pubsub/LockPubSub and PublishSubscribe, command/RedisExecutor, config/SingleServerConfig). The
 * scripts run the same commands in the same order; their text was written for this bench.
 *
 * Replayed, with a thread for each waiter:
 *
 *   lock()    EVALSHA acquire. If another client holds the lock, the waiter subscribes. Only the
 *             first waiter of the process sends SUBSCRIBE; all wait until it is confirmed. Then
 *             until the lock is acquired: EVALSHA acquire, and a wait on the process's semaphore.
 *             That wait lasts at most as long as the holder's lease, which the reply states. Then
 *             the waiter unsubscribes; only the last one sends UNSUBSCRIBE.
 *   message   each "0" on the one subscriber connection gives the semaphore one permit. So one
 *             waiter of each subscribed process tries, however many wait.
 *   unlock()  EVALSHA: GET latch, HEXISTS, HINCRBY -1, DEL, PUBLISH, SET latch PX. After its reply,
 *             DEL latch is sent, and its reply is not awaited.
 *   64 connections for each process (connectionPoolSize's default); each serves one command at a
 *   time.
 *
 * Left out, although each of these would slow it down: Java and Netty (a command there passes
 * through an event loop's thread); connecting (all 64 connections are open before the start; the
 * default is 24 at first). Also left out are the pool's queue inside a hold (the section, unlock
 * and DEL latch share one connection); the wait for the confirmed UNSUBSCRIBE before the next
 * SUBSCRIBE; a random name for every latch; the watchdog's timer (a sale takes far less than a
 * third of a lease); and the limit of 7.5 s for a subscription.
 */
#include "../lock_redis.h"
#include "../lock_waiters.h"

#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHANNEL "redisson_lock__channel:" LOCK_NAME
#define LATCH "redisson_unlock_latch:" LOCK_NAME ":"
#define LATCH_MS "18000" /* (timeout 3000 + retry interval 1500) * 4 attempts */
#define OWNER_SIZE 64

static const char acquire_text[] =
    "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then "
    "redis.call('hincrby', KEYS[1], ARGV[2], 1) "
    "redis.call('pexpire', KEYS[1], ARGV[1]) "
    "return nil end "
    "return redis.call('pttl', KEYS[1])";

static const char unlock_text[] =
    "local done = redis.call('get', KEYS[3]) "
    "if done then return tonumber(done) end "
    "if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end "
    "if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then "
    "redis.call('pexpire', KEYS[1], ARGV[2]) "
    "redis.call('set', KEYS[3], 0, 'px', ARGV[5]) "
    "return 0 end "
    "redis.call('del', KEYS[1]) "
    "redis.call(ARGV[4], KEYS[2], ARGV[1]) "
    "redis.call('set', KEYS[3], 1, 'px', ARGV[5]) "
    "return 1";

/* The process's RedissonClient, and its RedissonLockEntry for this lock. */
struct library {
    struct part *part;
    char acquire_sha[41];
    char unlock_sha[41];
    char lease_ms[24];
    struct pool pool;
    struct wire ear; /* subscriber connection: read by the listener alone, written under mutex */
    pthread_t listener;
    sem_t permits; /* one permit for each message */

    pthread_mutex_t mutex; /* protects the fields below */
    pthread_cond_t confirmed;
    int users; /* waiters, including one that has just acquired the lock */
    uint64_t subscribes_sent;
    uint64_t subscribes_confirmed;
    bool deaf; /* the subscriber connection is gone */
};

struct waiter {
    struct library *library;
    char owner[OWNER_SIZE];
    int number;
    uint64_t unlocks;
};

/* ---- The subscription ---- */

static void heard(struct library *library, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 3)
        return;
    if (strcmp(reply->element[0]->str, "message") == 0 &&
        strcmp(reply->element[2]->str, "0") == 0) {
        sem_post(&library->permits);
    } else if (strcmp(reply->element[0]->str, "subscribe") == 0) {
        pthread_mutex_lock(&library->mutex);
        library->subscribes_confirmed++;
        pthread_cond_broadcast(&library->confirmed);
        pthread_mutex_unlock(&library->mutex);
    }
}

static void *listen_to_redis(void *arg)
{
    struct library *library = arg;
    void *reply = NULL;
    while (redisGetReply(library->ear.redis, &reply) == REDIS_OK) {
        heard(library, reply);
        freeReplyObject(reply);
    }
    pthread_mutex_lock(&library->mutex);
    library->deaf = true;
    pthread_cond_broadcast(&library->confirmed);
    pthread_mutex_unlock(&library->mutex);
    return NULL;
}

/* Sends under the mutex, so that the commands keep the order in which waiters came and went. It
 * does not use the context, because the listener does. */
static void say_to_ear(struct library *library, const char *command)
{
    char text[256];
    int size = snprintf(text, sizeof text, "*2\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n", strlen(command),
                        command, strlen(CHANNEL), CHANNEL);
    if (send(library->ear.redis->fd, text, (size_t)size, MSG_NOSIGNAL) != size)
        part_complain(library->part, "redisson: %s could not be sent", command);
}

static bool subscribe(struct library *library)
{
    struct timespec limit;
    int late = 0;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += library->part->plan->wait_ms / 1000 + 1;
    pthread_mutex_lock(&library->mutex);
    if (library->users++ == 0) {
        while (sem_trywait(&library->permits) == 0)
            ; /* a new entry starts without permits */
        library->subscribes_sent++;
        say_to_ear(library, "SUBSCRIBE");
    }
    uint64_t mine = library->subscribes_sent;
    while (library->subscribes_confirmed < mine && !library->deaf && late == 0)
        late = pthread_cond_timedwait(&library->confirmed, &library->mutex, &limit);
    bool subscribed = library->subscribes_confirmed >= mine && !library->deaf;
    pthread_mutex_unlock(&library->mutex);
    if (!subscribed)
        part_complain(library->part, "redisson: the subscription was %s",
                      late != 0 ? "not confirmed in time" : "lost");
    return subscribed;
}

static void unsubscribe(struct library *library)
{
    pthread_mutex_lock(&library->mutex);
    if (--library->users == 0)
        say_to_ear(library, "UNSUBSCRIBE");
    pthread_mutex_unlock(&library->mutex);
}

/* ---- The library ---- */

static void load(struct library *library, const char *text, char *sha)
{
    struct wire *wire = pool_take(&library->pool);
    struct said said = ASK(wire, "SCRIPT", "LOAD", text);
    pool_give(&library->pool, wire);
    if (said.kind != SAID_TEXT)
        part_give_up(library->part, "redisson: SCRIPT LOAD: %s", said.text);
    snprintf(sha, 41, "%.40s", said.text);
}

static void *library_open(struct part *part)
{
    struct library *library = calloc(1, sizeof *library);
    struct timeval no_limit = {0};
    pthread_condattr_t monotonic;
    char error[256] = "out of memory";
    if (library == NULL || !pool_open(&library->pool, part->plan, error, sizeof error) ||
        !wire_open(&library->ear, part->plan, error, sizeof error))
        part_give_up(part, "redisson: %s", error);
    redisSetTimeout(library->ear.redis, no_limit);
    library->part = part;
    snprintf(library->lease_ms, sizeof library->lease_ms, "%lld", (long long)part->plan->ttl_ms);
    load(library, acquire_text, library->acquire_sha);
    load(library, unlock_text, library->unlock_sha);
    sem_init(&library->permits, 0, 0);
    pthread_mutex_init(&library->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&library->confirmed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (pthread_create(&library->listener, NULL, listen_to_redis, library) != 0)
        part_give_up(part, "redisson: no thread for the subscriber connection");
    return library;
}

static void library_settle(void *client)
{
    struct library *library = client;
    pool_settle(&library->pool);
}

static void library_close(void *client)
{
    struct library *library = client;
    shutdown(library->ear.redis->fd, SHUT_RDWR);
    pthread_join(library->listener, NULL);
    wire_close(&library->ear);
    pool_close(&library->pool);
    pthread_cond_destroy(&library->confirmed);
    pthread_mutex_destroy(&library->mutex);
    sem_destroy(&library->permits);
    free(library);
}

static void *waiter_open(void *client, int number)
{
    struct library *library = client;
    struct waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL)
        return NULL;
    waiter->library = library;
    waiter->number = number;
    snprintf(waiter->owner, sizeof waiter->owner, "%08x-0000-4000-8000-%012x:%d",
             (unsigned)getpid(), (unsigned)library->part->number, number + 1);
    return waiter;
}

/* ---- Lock and unlock ---- */

enum { TRY_HAD = -1, TRY_FAILED = -2 };

/* The rest of the holder's lease in ms, or one of the above. */
static int64_t try_acquire(struct waiter *waiter)
{
    struct library *library = waiter->library;
    struct wire *wire = pool_take(&library->pool);
    struct said said = ASK(wire, "EVALSHA", library->acquire_sha, "1", LOCK_NAME, library->lease_ms,
                           waiter->owner);
    pool_give(&library->pool, wire);
    if (said.kind == SAID_NIL)
        return TRY_HAD;
    if (said.kind == SAID_NUMBER && said.number >= 0)
        return said.number;
    part_complain(library->part, "redisson: acquire: %s", said.text);
    return TRY_FAILED;
}

static void await_permit(struct library *library, int64_t wait_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += wait_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    sem_clockwait(&library->permits, CLOCK_MONOTONIC, &until);
}

static bool acquire(struct waiter *waiter)
{
    struct library *library = waiter->library;
    int64_t give_up_ns = now_ns() + library->part->plan->wait_ms * 1000000;
    int64_t ttl_ms = try_acquire(waiter);
    if (ttl_ms < 0)
        return ttl_ms == TRY_HAD;
    bool going = subscribe(library);
    while (going && (ttl_ms = try_acquire(waiter)) >= 0) {
        int64_t left_ms = (give_up_ns - now_ns()) / 1000000;
        going = left_ms > 0;
        if (going)
            await_permit(library, ttl_ms < left_ms ? ttl_ms : left_ms);
        else
            part_complain(library->part, "redisson: not acquired within %lld ms",
                          (long long)library->part->plan->wait_ms);
    }
    unsubscribe(library);
    return going && ttl_ms == TRY_HAD;
}

static bool release(struct waiter *waiter, struct wire *wire)
{
    struct library *library = waiter->library;
    char latch[160];
    snprintf(latch, sizeof latch, LATCH "%08x%08x%016llx", (unsigned)library->part->number,
             (unsigned)waiter->number, (unsigned long long)++waiter->unlocks);
    struct said said = ASK(wire, "EVALSHA", library->unlock_sha, "3", LOCK_NAME, CHANNEL, latch,
                           "0", library->lease_ms, waiter->owner, "PUBLISH", LATCH_MS);
    TELL(wire, "DEL", latch);
    if (said.kind == SAID_NUMBER && said.number == 1)
        return true;
    part_complain(library->part, "redisson: unlock: %s",
                  said.kind == SAID_NIL ? "not the holder any more" : said.text);
    return false;
}

static void buy(void *arg, struct sale *sale)
{
    struct waiter *waiter = arg;
    struct pool *pool = &waiter->library->pool;
    if (!acquire(waiter))
        return;
    sale->granted_ns = now_ns();
    struct wire *wire = pool_take(pool);
    bool sound = wire_section(wire, sale);
    if (!release(waiter, wire) || !sound)
        sale->outcome = OUTCOME_FAILED;
    pool_give(pool, wire);
}

static bool pair(void *arg)
{
    struct waiter *waiter = arg;
    if (!acquire(waiter))
        return false;
    struct wire *wire = pool_take(&waiter->library->pool);
    bool released = release(waiter, wire);
    pool_give(&waiter->library->pool, wire);
    return released;
}

void run_redisson(struct part *part)
{
    static const struct blocking replay = {.open = library_open,
                                           .waiter_open = waiter_open,
                                           .buy = buy,
                                           .pair = pair,
                                           .waiter_close = free,
                                           .settle = library_settle,
                                           .close = library_close};
    waiters_run(part, &replay);
}
