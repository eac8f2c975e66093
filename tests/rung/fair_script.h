/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of the script of the rung `fair` on a real server, and what is expected of its
 * keys. REDIS_SERVER chooses the server. Nothing here waits for a time: what runs out is made to
 * run out.
 */
#ifndef TESTS_FAIR_SCRIPT_H
#define TESTS_FAIR_SCRIPT_H

#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "redis_rung.h"

#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{fair}"
#define QUEUE "dlock:queue:" LOCK
#define NEWEST "dlock:token:" LOCK
#define GRANT "dlock:grant:" LOCK
#define TTL_MS 600000
#define GRANT_MS 200000
#define DAY_MS 86400000
#define NUMBERS 1000 /* of one token: the client may pass the lock on so often without asking */

/* ---- The operations -------------------------------------------------------------------------- */

struct id {
    const char *bytes;
    size_t size;
};

struct result {
    long long said; /* the three numbers of an answer */
    long long number;
    long long expired;
};

struct call {
    const char *what;
    struct id me;
    long long token;
    bool more;
    long long used;     /* 0: left out */
    long long grant_ms; /* of the client; 0: GRANT_MS */
    long long try;      /* of a leave */
};

#define EVALSHA "EVALSHA %s 4 " LOCK " " QUEUE " " NEWEST " " GRANT " %s %b %d %lld %lld %d %lld"

static long long tries; /* each has a higher number than the one before */

static inline const redisReply *asked(const struct call *call)
{
    long long grant_ms = call->grant_ms != 0 ? call->grant_ms : GRANT_MS;
    long long try = strcmp(call->what, "leave") == 0 ? call->
    try:
        ++tries;
    if (call->used == 0)
        return server_ask(server, EVALSHA, lua_fair.sha1, call->what, call->me.bytes, call->me.size,
                          TTL_MS, grant_ms, call->token, call->more, try);
    return server_ask(server, EVALSHA " %lld", lua_fair.sha1, call->what, call->me.bytes,
                      call->me.size, TTL_MS, grant_ms, call->token, call->more, try, call->used);
}

static inline struct result answered(const struct call *call, size_t numbers)
{
    const redisReply *reply = asked(call);
    if (reply->type == REDIS_REPLY_ERROR)
        failed("%s: %s", call->what, reply->str);
    assert_int_equal(reply->type, REDIS_REPLY_ARRAY);
    assert_int_equal(reply->elements, numbers);
    long long got[3] = {0};
    for (size_t i = 0; i < numbers; i++) {
        assert_int_equal(reply->element[i]->type, REDIS_REPLY_INTEGER);
        got[i] = reply->element[i]->integer;
    }
    return (struct result){got[0], got[1], got[2]};
}

static inline struct id named(const char *name)
{
    return (struct id){name, strlen(name)};
}

static inline struct result acquire_by(struct id me)
{
    return answered(&(struct call){.what = "acquire", .me = me}, 3);
}

static inline struct result acquire(const char *me)
{
    return acquire_by(named(me));
}

static inline struct result release(const char *me, long long token)
{
    return answered(&(struct call){.what = "release", .me = named(me), .token = token}, 3);
}

static inline struct result release_more(const char *me, long long token)
{
    return answered(
        &(struct call){.what = "release", .me = named(me), .token = token, .more = true}, 3);
}

/* Says how far the token's numbers were used. */
static inline struct result release_used(const char *me, long long token, long long used)
{
    return answered(
        &(struct call){.what = "release", .me = named(me), .token = token, .used = used}, 3);
}

static inline struct result leave_after(const char *me, long long try)
{
    return answered(&(struct call){.what = "leave", .me = named(me), .try = try}, 3);
}

static inline struct result leave(const char *me)
{
    return leave_after(me, 0);
}

static inline long long renew(const char *me, long long token)
{
    return answered(&(struct call){.what = "renew", .me = named(me), .token = token}, 1).said;
}

/* ---- What is expected ------------------------------------------------------------------------ */

#define assert_result(call, said_, number_, expired_)                                              \
    do {                                                                                           \
        struct result got_result = (call);                                                         \
        assert_int_equal(got_result.said, said_);                                                  \
        assert_int_equal(got_result.number, number_);                                              \
        assert_int_equal(got_result.expired, expired_);                                            \
    } while (0)

#define assert_between(value, least, most)                                                         \
    do {                                                                                           \
        long long got_value = (value);                                                             \
        if (got_value < (least) || got_value > (most))                                             \
            failed("%s is %lld", #value, got_value);                                               \
    } while (0)

/* Had, and no grant had run out: the token. */
static inline long long had(const char *me)
{
    struct result got = acquire(me);
    assert_int_equal(got.said, 1);
    assert_int_equal(got.expired, 0);
    return got.number;
}

static inline void busy(const char *me)
{
    struct result got = acquire(me);
    assert_int_equal(got.said, 0);
    assert_between(got.number, 1, TTL_MS);
    assert_int_equal(got.expired, 0);
}

static inline long long pttl(const char *key)
{
    return server_integer(server, "PTTL %s", key);
}

static inline bool is_there(const char *key)
{
    return server_integer(server, "EXISTS %s", key) == 1;
}

/* A full time to live, a moment ago. */
static inline void assert_fresh(const char *key, long long ttl_ms)
{
    assert_between(pttl(key), ttl_ms / 2, ttl_ms);
}

/* Most of the time is over: what gives it a full one again shows. */
static inline void age(const char *key)
{
    assert_int_equal(server_integer(server, "PEXPIRE %s 60000", key), 1);
}

static inline void run_out(const char *key)
{
    assert_int_equal(server_integer(server, "PEXPIRE %s 1", key), 1);
    eventually(!is_there(key));
}

static inline long long field_token(void)
{
    return atoll(server_text(server, "HGET " LOCK " token"));
}

/* The lock is somebody's, with the newest token and a full time to live. */
static inline void assert_lock(const char *owner, const char *state)
{
    assert_string_equal(server_text(server, "HGET " LOCK " owner"), owner);
    assert_string_equal(server_text(server, "HGET " LOCK " state"), state);
    assert_int_equal(server_integer(server, "HLEN " LOCK), 5);
    assert_int_equal(field_token(), atoll(server_text(server, "GET " NEWEST)));
    assert_fresh(LOCK, strcmp(state, "held") == 0 ? TTL_MS : GRANT_MS);
    assert_fresh(NEWEST, DAY_MS);
}

static inline void assert_list(const char *key, const char *expected)
{
    char line[512] = "";
    const redisReply *reply = server_ask(server, "LRANGE %s 0 -1", key);
    for (size_t i = 0; i < reply->elements; i++) {
        strcat(line, i > 0 ? " " : "");
        strcat(line, reply->element[i]->str);
    }
    assert_string_equal(line, expected);
}

/* The clients that wait, in order: each place is "<client> <its grant_ms>". */
static inline void assert_queue(const char *expected)
{
    char line[512] = "";
    const redisReply *reply = server_ask(server, "LRANGE " QUEUE " 0 -1");
    for (size_t i = 0; i < reply->elements; i++) {
        const char *place = reply->element[i]->str;
        snprintf(line + strlen(line), sizeof line - strlen(line), "%s%.*s", i > 0 ? " " : "",
                 (int)(strrchr(place, ' ') - place), place);
    }
    assert_string_equal(line, expected);
    if (expected[0] != '\0')
        assert_fresh(QUEUE, 10 * GRANT_MS);
}

/* Granted and told, once; that one has heard it then. */
static inline void assert_granted(const char *owner)
{
    char wake[80];
    snprintf(wake, sizeof wake, "dlock:wake:%s", owner);
    assert_lock(owner, "granted");
    assert_list(wake, LOCK);
    assert_fresh(wake, GRANT_MS);
    server_integer(server, "DEL %s", wake);
    assert_true(is_there(GRANT));
    assert_between(pttl(GRANT), GRANT_MS + 1, 10 * GRANT_MS);
}

static inline void assert_not_woken(const char *client)
{
    assert_int_equal(server_integer(server, "EXISTS dlock:wake:%s", client), 0);
}

/* Free, nobody queued; the newest token stays for a day. */
static inline void assert_at_rest(void)
{
    assert_false(is_there(LOCK));
    assert_false(is_there(QUEUE));
    assert_true(is_there(NEWEST));
}

static inline void set_newest(long long token)
{
    server_text(server, "SET " NEWEST " %lld", token);
}

static inline void assert_error(struct call call, const char *says)
{
    const redisReply *reply = asked(&call);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_says(reply->str, says);
}

static inline int empty(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    assert_string_equal(server_text(server, "SCRIPT LOAD %s", lua_fair.text), lua_fair.sha1);
    return 0;
}

#define test(function) cmocka_unit_test_setup(function, empty)

#endif
