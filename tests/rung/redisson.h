/* SPDX-License-Identifier: Apache-2.0
 *
 * The other side of a lock that is shared with Redisson: its steps, by scripts of the tests' own
 * that keep to its keys, fields, channels and messages; and what is then to be seen on the server.
 */
#ifndef TESTS_REDISSON_H
#define TESTS_REDISSON_H

#include "server.h"

#include <stdbool.h>
#include <stdint.h>

/* The names of the published vectors: two owners and a third. */
#define LOCK "L"
#define OWNER_U "11111111-1111-1111-1111-111111111111:1"
#define OWNER_V "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa:1"
#define OWNER_W "bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb:1"
#define OWNER_X "cccccccc-cccc-cccc-cccc-cccccccccccc:1"
#define LEASE_MS 30000
#define LOCK_CHANNEL "redisson_lock__channel:{" LOCK "}"
#define LATCH "redisson_unlock_latch:{" LOCK "}:"

/* What a step answers: a number, NIL, or a pair of which both are known. */
#define NIL INT64_MIN
struct pair {
    int64_t first;
    int64_t second;
};

/* The steps on LOCK, as the owner. `request` is 32 hex digits, or fewer in a test. */
int64_t lock_acquire(struct server *server, const char *owner, int64_t lease_ms);
const char *lock_acquire_error(struct server *server, const char *owner); /* its first word */
int64_t lock_unlock(struct server *server, const char *owner, const char *request);
int64_t lock_renew(struct server *server, const char *owner, int64_t lease_ms);
int64_t lock_force(struct server *server);
struct pair fenced_acquire(struct server *server, const char *owner);
int64_t read_acquire(struct server *server, const char *owner);
int64_t read_unlock(struct server *server, const char *owner, const char *request);
int64_t write_acquire(struct server *server, const char *owner);
int64_t write_unlock(struct server *server, const char *owner, const char *request);
int64_t fair_acquire(struct server *server, const char *owner, int64_t now_ms);
int64_t fair_unlock(struct server *server, const char *owner, int64_t now_ms, const char *request);

/* A lock_unlock whose message nobody hears: all subscribers are cut off in the same
 * moment, a struct messages too. */
int64_t lock_unlock_unheard(struct server *server, const char *owner, const char *request);

/* What is there, as text that lives until the next question of its kind: every key, sorted, by
 * spaces; a hash' fields or a list's elements in their order, as "field=value" or "element". */
const char *all_keys(struct server *server);
const char *hash_at(struct server *server, const char *key);
const char *list_at(struct server *server, const char *key);

/* How many subscribed to the lock's channel by its name. */
int64_t subscribers(struct server *server);

/* What is left of `all_ms` that began no earlier than `began_ms` (clock_ms): at most that, and less
 * no more than the time that went by. */
bool is_left(int64_t left_ms, int64_t all_ms, int64_t began_ms);

/* All messages on all channels from here on. Its subscription is to a pattern, which counts as
 * nobody in PUBSUB NUMSUB. */
struct messages;
struct messages *messages_start(struct server *server);
void messages_free(struct messages *messages);
/* Those since it was asked last, as "channel message" by commas; lives until the next question. */
const char *messages_new(struct messages *messages);

#endif
