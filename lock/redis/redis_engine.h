/* SPDX-License-Identifier: Apache-2.0
 *
 * The Redis engine's state for a client and for a lock, and its entry points.
 */
#ifndef DLOCK_REDIS_ENGINE_H
#define DLOCK_REDIS_ENGINE_H

#include "client.h"
#include "pool.h"
#include "redis_rung.h"
#include "subscriber.h"

struct redis_engine {
    struct redis_config config;
    struct pool pool;
    /* Protected by the loop's mutex. */
    struct subscriber channels;
    struct subscriber lists;
    struct subscriber signals;
};

static inline struct redis_engine *redis_of(const struct dlock_client *client)
{
    return client->engine_state;
}

/* lock->engine_state */
struct redis_lock {
    char *beside_text;
    const char *beside[BESIDE_MAX + 1]; /* the names of the keys beside the lock's own */
    struct source source;               /* protected by the loop's mutex */
};

static inline struct redis_lock *redis_lock_of(const struct dlock *lock)
{
    return lock->engine_state;
}

/* The type of the lock's key, as Redis names it. If the rung does not say: a zset with shared
 * holds, a hash on other re-entrant rungs, else a string. */
const char *key_type(const struct dlock *lock);

/* The engine's functions: see engine.h. */
bool redis_shares(const struct exchange *exchange, const struct exchange *other);
void redis_exchange(struct dlock_client *client, struct exchange *const *all, size_t count);
dlock_status redis_extend(struct dlock_hold *hold, int64_t ends_ns, int64_t *sent_ns,
                          int64_t *ttl_ms);
dlock_status redis_inspect(struct dlock *lock, int64_t ends_ns, int cancel_fd, struct look *look);
dlock_status redis_break(struct dlock *lock, int64_t ends_ns, struct look *look);
dlock_status redis_check_beside(struct dlock *lock, int64_t ends_ns, int cancel_fd);
extern const struct renewer_ops redis_renewer;

#endif
