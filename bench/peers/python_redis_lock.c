/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis commands of python-redis-lock 4.0's Lock, replayed from its source
 * (github.com/ionelmc/python-redis-lock, src/redis_lock/__init__.py: Lock.acquire, Lock.release).
 *
 * Replayed, with one lock object and one connection for each waiter:
 *
 *   acquire(timeout=T)  GET lock:<n> (does it hold it already?), then until it is acquired:
 *                       SET lock:<n> id EX NX. If that failed, BLPOP lock-signal:<n> for T seconds,
 *                       at most the expiry
 *   release()           EVALSHA: GET and compare, DEL signal, LPUSH signal, PEXPIRE signal 1000,
 *                       DEL lock:<n>. The waiter that BLPOP wakes sends SET again, and another one
 *                       may be faster
 *
 * Left out, although each of these would slow it down: Python (its interpreter lock, logging and
 * redis-py's poll of a connection before each use); connecting (all connections are open before
 * the start); the renewal thread (a sale takes far less time than the expiry).
 */
#include "../lock_redis.h"
#include "../lock_waiters.h"

#include <stdio.h>
#include <stdlib.h>

#define SIGNAL_KEY "lock-signal:" LOCK_SUBJECT
#define SIGNAL_EXPIRE_MS "1000" /* the library's default */
#define ID_SIZE 25              /* 18 random bytes in base 64 */

static const char unlock_text[] = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 end "
                                  "redis.call('del', KEYS[2]) "
                                  "redis.call('lpush', KEYS[2], 1) "
                                  "redis.call('pexpire', KEYS[2], ARGV[2]) "
                                  "redis.call('del', KEYS[1]) "
                                  "return 0";

struct library {
    struct part *part;
    char unlock_sha[41];
    char expire_s[24];
    char blpop_s[24];
};

struct lock {
    struct library *library;
    struct wire wire;
    char id[ID_SIZE];
};

static void *library_open(struct part *part)
{
    struct library *library = calloc(1, sizeof *library);
    struct wire wire;
    char error[256];
    if (library == NULL || !wire_open(&wire, part->plan, error, sizeof error))
        part_give_up(part, "python_redis_lock: %s", library != NULL ? error : "out of memory");
    library->part = part;
    int64_t expire_s = part->plan->ttl_ms < 1000 ? 1 : part->plan->ttl_ms / 1000;
    int64_t wait_s = part->plan->wait_ms < 1000 ? 1 : part->plan->wait_ms / 1000;
    snprintf(library->expire_s, sizeof library->expire_s, "%lld", (long long)expire_s);
    snprintf(library->blpop_s, sizeof library->blpop_s, "%lld",
             (long long)(wait_s < expire_s ? wait_s : expire_s));
    struct said loaded = ASK(&wire, "SCRIPT", "LOAD", unlock_text);
    if (loaded.kind != SAID_TEXT)
        part_give_up(part, "python_redis_lock: SCRIPT LOAD: %s", loaded.text);
    snprintf(library->unlock_sha, sizeof library->unlock_sha, "%.40s", loaded.text);
    wire_close(&wire);
    return library;
}

static void *waiter_open(void *client, int waiter)
{
    struct library *library = client;
    struct lock *lock = calloc(1, sizeof *lock);
    char error[256];
    if (lock == NULL)
        return NULL;
    lock->library = library;
    snprintf(lock->id, sizeof lock->id, "%012d%012d", library->part->number, waiter);
    if (wire_open(&lock->wire, library->part->plan, error, sizeof error))
        return lock;
    part_complain(library->part, "python_redis_lock: %s", error);
    free(lock);
    return NULL;
}

static bool acquire(struct lock *lock)
{
    const struct library *library = lock->library;
    int64_t give_up_ns = now_ns() + library->part->plan->wait_ms * 1000000;
    struct said said = ASK(&lock->wire, "GET", LOCK_NAME);
    while (said.kind != SAID_ERROR) {
        said = ASK(&lock->wire, "SET", LOCK_NAME, lock->id, "EX", library->expire_s, "NX");
        if (said.kind == SAID_TEXT)
            return true;
        if (said.kind == SAID_NIL && now_ns() >= give_up_ns) {
            part_complain(library->part, "python_redis_lock: not acquired within %lld ms",
                          (long long)library->part->plan->wait_ms);
            return false;
        }
        if (said.kind == SAID_NIL)
            said = ASK(&lock->wire, "BLPOP", SIGNAL_KEY, library->blpop_s);
    }
    part_complain(library->part, "python_redis_lock: acquire: %s", said.text);
    return false;
}

static bool release(struct lock *lock)
{
    struct said said = ASK(&lock->wire, "EVALSHA", lock->library->unlock_sha, "2", LOCK_NAME,
                           SIGNAL_KEY, lock->id, SIGNAL_EXPIRE_MS);
    if (said.kind == SAID_NUMBER && said.number == 0)
        return true;
    part_complain(lock->library->part, "python_redis_lock: release: %s",
                  said.kind == SAID_NUMBER ? "not the holder any more" : said.text);
    return false;
}

static void buy(void *waiter, struct sale *sale)
{
    struct lock *lock = waiter;
    if (!acquire(lock))
        return;
    sale->granted_ns = now_ns();
    bool sound = wire_section(&lock->wire, sale);
    if (!release(lock) || !sound)
        sale->outcome = OUTCOME_FAILED;
}

static bool pair(void *waiter)
{
    return acquire(waiter) && release(waiter);
}

static void waiter_close(void *waiter)
{
    struct lock *lock = waiter;
    wire_close(&lock->wire);
    free(lock);
}

void run_python_redis_lock(struct part *part)
{
    static const struct blocking replay = {.open = library_open,
                                           .waiter_open = waiter_open,
                                           .buy = buy,
                                           .pair = pair,
                                           .waiter_close = waiter_close,
                                           .close = free};
    waiters_run(part, &replay);
}
