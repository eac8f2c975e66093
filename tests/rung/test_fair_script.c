/* SPDX-License-Identifier: Apache-2.0
 *
 * The script of the rung `fair`, step by step on a real server: every operation in every state of
 * the protocol (docs/design/fair.md), then any of them in any order. REDIS_SERVER chooses the
 * server. Nothing here waits for a time: what runs out is made to run out.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "redis_rung.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOCK "lock:{fair}"
#define QUEUE "dlock:queue:" LOCK
#define NEWEST "dlock:token:" LOCK
#define GRANT "dlock:grant:" LOCK
#define TTL_MS 600000
#define GRANT_MS 200000
#define DAY_MS 86400000
#define NUMBERS 1000 /* of one token: the client may pass the lock on so often without asking */

extern const struct script lua_fair;

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

static const redisReply *asked(const struct call *call)
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

static struct result answered(const struct call *call, size_t numbers)
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

static struct id named(const char *name)
{
    return (struct id){name, strlen(name)};
}

static struct result acquire_by(struct id me)
{
    return answered(&(struct call){.what = "acquire", .me = me}, 3);
}

static struct result acquire(const char *me)
{
    return acquire_by(named(me));
}

static struct result release(const char *me, long long token)
{
    return answered(&(struct call){.what = "release", .me = named(me), .token = token}, 3);
}

static struct result release_more(const char *me, long long token)
{
    return answered(
        &(struct call){.what = "release", .me = named(me), .token = token, .more = true}, 3);
}

/* Says how far the token's numbers were used. */
static struct result release_used(const char *me, long long token, long long used)
{
    return answered(
        &(struct call){.what = "release", .me = named(me), .token = token, .used = used}, 3);
}

static struct result leave_after(const char *me, long long try)
{
    return answered(&(struct call){.what = "leave", .me = named(me), .try = try}, 3);
}

static struct result leave(const char *me)
{
    return leave_after(me, 0);
}

static long long renew(const char *me, long long token)
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
static long long had(const char *me)
{
    struct result got = acquire(me);
    assert_int_equal(got.said, 1);
    assert_int_equal(got.expired, 0);
    return got.number;
}

static void busy(const char *me)
{
    struct result got = acquire(me);
    assert_int_equal(got.said, 0);
    assert_between(got.number, 1, TTL_MS);
    assert_int_equal(got.expired, 0);
}

static long long pttl(const char *key)
{
    return server_integer(server, "PTTL %s", key);
}

static bool is_there(const char *key)
{
    return server_integer(server, "EXISTS %s", key) == 1;
}

/* A full time to live, a moment ago. */
static void assert_fresh(const char *key, long long ttl_ms)
{
    assert_between(pttl(key), ttl_ms / 2, ttl_ms);
}

/* Most of the time is over: what gives it a full one again shows. */
static void age(const char *key)
{
    assert_int_equal(server_integer(server, "PEXPIRE %s 60000", key), 1);
}

static void run_out(const char *key)
{
    assert_int_equal(server_integer(server, "PEXPIRE %s 1", key), 1);
    eventually(!is_there(key));
}

static long long field_token(void)
{
    return atoll(server_text(server, "HGET " LOCK " token"));
}

/* The lock is somebody's, with the newest token and a full time to live. */
static void assert_lock(const char *owner, const char *state)
{
    assert_string_equal(server_text(server, "HGET " LOCK " owner"), owner);
    assert_string_equal(server_text(server, "HGET " LOCK " state"), state);
    assert_int_equal(server_integer(server, "HLEN " LOCK), 5);
    assert_int_equal(field_token(), atoll(server_text(server, "GET " NEWEST)));
    assert_fresh(LOCK, strcmp(state, "held") == 0 ? TTL_MS : GRANT_MS);
    assert_fresh(NEWEST, DAY_MS);
}

static void assert_list(const char *key, const char *expected)
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
static void assert_queue(const char *expected)
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
static void assert_granted(const char *owner)
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

static void assert_not_woken(const char *client)
{
    assert_int_equal(server_integer(server, "EXISTS dlock:wake:%s", client), 0);
}

/* Free, nobody queued; the newest token stays for a day. */
static void assert_at_rest(void)
{
    assert_false(is_there(LOCK));
    assert_false(is_there(QUEUE));
    assert_true(is_there(NEWEST));
}

static void set_newest(long long token)
{
    server_text(server, "SET " NEWEST " %lld", token);
}

/* ---- Acquire --------------------------------------------------------------------------------- */

static void free_and_nobody_waits(void **state)
{
    (void)state;
    long long before_us = server_us(server);
    long long token = had("a");
    assert_between(token, before_us, server_us(server));
    assert_lock("a", "held");
    assert_int_equal(field_token(), token);
    assert_queue("");
    assert_not_woken("a");
    assert_false(is_there(GRANT));
}

static void busy_is_queued_once(void **state)
{
    (void)state;
    had("a");
    age(LOCK);
    assert_between(acquire("b").number, 1, 60000);
    busy("c");
    assert_queue("b c");
    age(QUEUE);
    busy("b");
    assert_queue("b c");
    assert_between(pttl(LOCK), 1, 60000);
    assert_not_woken("b");
}

/* What is mine already is had again; what was sent with the old token does not count any more. */
static void held_by_me_is_had_with_a_new_token(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    age(LOCK);
    long long again = had("a");
    assert_true(again >= token + NUMBERS);
    assert_lock("a", "held");
    assert_int_equal(renew("a", token), 0);
    assert_result(release("a", token), 0, 0, 0);
    assert_lock("a", "held");
    assert_queue("b");
}

static void a_grant_is_claimed_with_its_token(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    busy("c");
    assert_result(release("a", token), 1, 0, 0);
    assert_granted("b");
    long long granted = field_token();
    assert_int_equal(had("b"), granted);
    assert_lock("b", "held");
    assert_false(is_there(GRANT));
    assert_queue("c");
}

static void granted_to_another_is_busy(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    release("a", token);
    assert_between(acquire("c").number, 1, GRANT_MS);
    assert_granted("b");
    assert_queue("c");
}

/* Free, after a hold expired: the head has it at once, anyone else sees the head get it. */
static void free_and_headed_by_me(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    busy("c");
    run_out(LOCK);
    assert_true(had("b") >= token + NUMBERS);
    assert_lock("b", "held");
    assert_queue("c");
    assert_not_woken("b");
}

static void free_and_headed_by_another(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    run_out(LOCK);
    assert_between(acquire("c").number, GRANT_MS / 2, GRANT_MS);
    assert_granted("b");
    assert_true(field_token() >= token + NUMBERS);
    assert_queue("c");
    run_out(LOCK);
    struct result late = acquire("b"); /* from the tail again */
    assert_int_equal(late.said, 0);
    assert_int_equal(late.expired, 1);
    assert_granted("c");
    assert_queue("b");
}

/* ---- Release --------------------------------------------------------------------------------- */

static void released_and_nobody_waits(void **state)
{
    (void)state;
    long long token = had("a");
    assert_result(release("a", token), 1, 0, 0);
    assert_at_rest();
    assert_result(release("a", token), 0, 0, 0);
    assert_at_rest();
    assert_true(had("b") > token);
}

static void released_with_more_while_others_wait(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    busy("c");
    age(QUEUE);
    assert_result(release_more("a", token), 1, 0, 0);
    assert_granted("b");
    assert_true(field_token() > token);
    assert_queue("c a");
    assert_not_woken("a");
    assert_not_woken("c");
    /* The last of the queue is granted: the queue is made anew, with a time to live. */
    assert_result(release_more("b", had("b")), 1, 0, 0);
    assert_result(release("c", had("c")), 1, 0, 0);
    assert_result(release_more("a", had("a")), 1, 0, 0);
    assert_granted("b");
    assert_queue("a");
}

static void released_with_more_and_nobody_else(void **state)
{
    (void)state;
    long long token = had("a");
    age(LOCK);
    struct result kept = release_more("a", token);
    assert_int_equal(kept.said, 2);
    assert_true(kept.number > token);
    assert_int_equal(field_token(), kept.number);
    assert_lock("a", "held");
    assert_queue("");
    assert_result(release_more("a", token), 2, kept.number, 0); /* it comes once more */
    assert_result(release_more("a", token - 1), 0, 0, 0);
    assert_result(release("a", kept.number), 1, 0, 0);
    assert_at_rest();
}

static void released_by_who_has_it_not(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    age(LOCK);
    assert_result(release("a", token - 1), 0, 0, 0);
    assert_result(release_more("a", token + 1), 0, 0, 0);
    assert_result(release("b", token), 0, 0, 0);
    assert_result(release_more("c", 0), 0, 0, 0);
    assert_int_equal(had("a") > token, 1);
    assert_queue("b");
}

/* It expired meanwhile: whoever waits is granted it now and not at the next poll. */
static void released_when_it_is_free(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    run_out(LOCK);
    assert_result(release_more("a", token), 0, 0, 0);
    assert_granted("b");
    assert_queue("");
    run_out(LOCK);
    assert_result(release("a", token), 0, 0, 0); /* nobody waits: nothing to grant or to find */
    assert_false(is_there(LOCK));
    assert_int_equal(acquire("c").expired, 1);
}

/* ---- Leave ----------------------------------------------------------------------------------- */

static void leaves_the_queue(void **state)
{
    (void)state;
    had("a");
    busy("b");
    busy("c");
    assert_result(leave("b"), 0, 0, 0);
    assert_queue("c");
    assert_result(leave("b"), 0, 0, 0);
    assert_result(leave("c"), 0, 0, 0);
    assert_queue("");
    assert_lock("a", "held");
}

static void leaves_a_grant_to_the_next(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    busy("c");
    release("a", token);
    assert_result(leave("b"), 1, 0, 0);
    assert_granted("c");
    assert_queue("");
    assert_result(leave("c"), 1, 0, 0);
    assert_at_rest();
    had("d"); /* and no grant is said to have run out */
}

/* A command of a connection that broke may come late: what is held since is not its business. */
static void a_late_leave_frees_no_hold(void **state)
{
    (void)state;
    long long before = tries;
    long long token = had("a");
    busy("b");
    assert_result(leave("a"), 0, 0, 0);
    assert_result(leave_after("a", before), 0, 0, 0);
    assert_int_equal(field_token(), token);
    assert_lock("a", "held");
    assert_queue("b");
}

/* The try got no answer, and its client has left: nobody was told that the lock is held. */
static void a_leave_frees_what_its_try_got(void **state)
{
    (void)state;
    long long token = had("a");
    long long before = tries;
    busy("b");
    assert_result(leave_after("c", tries), 0, 0, 0);
    assert_lock("a", "held");
    assert_result(leave_after("a", before), 1, 0, 0);
    assert_lock("b", "granted");
    assert_true(had("b") >= token + NUMBERS);
    assert_result(leave_after("a", tries), 0, 0, 0);
    assert_lock("b", "held");
}

static void who_leaves_a_free_lock_sees_it_granted(void **state)
{
    (void)state;
    had("a");
    busy("b");
    busy("c");
    run_out(LOCK);
    assert_result(leave("b"), 0, 0, 0);
    assert_granted("c");
    assert_queue("");
}

static void the_last_to_leave_leaves_nothing(void **state)
{
    (void)state;
    had("a");
    busy("b");
    run_out(LOCK);
    assert_result(leave("b"), 0, 0, 0);
    assert_at_rest();
}

/* ---- Renew ----------------------------------------------------------------------------------- */

static void renewed_by_who_has_it(void **state)
{
    (void)state;
    long long token = had("a");
    age(LOCK);
    age(NEWEST);
    assert_int_equal(renew("a", token), 1);
    assert_lock("a", "held");
    assert_int_equal(field_token(), token);
    /* And the newest token is there again, if it was lost. */
    server_integer(server, "DEL " NEWEST);
    assert_int_equal(renew("a", token), 1);
    assert_lock("a", "held");
    /* A stock may have raised it to what it has seen of the thousand. */
    set_newest(token + 5);
    assert_int_equal(renew("a", token), 1);
    assert_int_equal(atoll(server_text(server, "GET " NEWEST)), token + 5);
    assert_fresh(NEWEST, DAY_MS);
    /* A longer life is left as it is: a nested hold may rely on it. */
    server_integer(server, "PEXPIRE " LOCK " %d", 3 * TTL_MS);
    assert_int_equal(renew("a", token), 1);
    assert_between(pttl(LOCK), 2 * TTL_MS, 3 * TTL_MS);
}

static void renewed_by_nobody_else(void **state)
{
    (void)state;
    long long token = had("a");
    age(LOCK);
    assert_int_equal(renew("a", token - 1), 0);
    assert_int_equal(renew("b", token), 0);
    assert_between(pttl(LOCK), 1, 60000);
    run_out(LOCK);
    assert_int_equal(renew("a", token), 0);
    assert_false(is_there(LOCK));
}

/* ---- What runs out --------------------------------------------------------------------------- */

/* Granted to one that is gone, with `behind` waiting behind it. */
static void granted_to_the_dead(const char *behind)
{
    long long token = had("a");
    busy("dead");
    if (behind != NULL)
        busy(behind);
    release("a", token);
    assert_granted("dead");
    run_out(LOCK);
}

static void a_dead_head_costs_one_grant(void **state)
{
    (void)state;
    granted_to_the_dead("b");
    struct result got = acquire("b");
    assert_int_equal(got.said, 1);
    assert_int_equal(got.expired, 1);
    assert_lock("b", "held");
    assert_queue("");
    assert_result(release("b", got.number), 1, 0, 0);
    had("c");
}

static void an_expired_grant_is_told_once(void **state)
{
    (void)state;
    granted_to_the_dead("b");
    struct result got = acquire("c");
    assert_int_equal(got.said, 0);
    assert_int_equal(got.expired, 1);
    assert_granted("b");
    busy("c");
    release("b", had("b"));
    release("c", had("c"));
    assert_at_rest();
}

static void an_expired_grant_and_nobody_behind(void **state)
{
    (void)state;
    granted_to_the_dead(NULL);
    struct result got = acquire("dead"); /* it was only slow */
    assert_int_equal(got.said, 1);
    assert_int_equal(got.expired, 1);
    assert_result(release("dead", got.number), 1, 0, 0);
    had("b");
}

static void an_expired_grant_that_a_leave_or_release_finds(void **state)
{
    (void)state;
    granted_to_the_dead("b");
    assert_result(leave("c"), 0, 0, 1);
    assert_granted("b");
    assert_result(release("b", had("b")), 1, 0, 0);
    granted_to_the_dead("b");
    assert_result(release("c", 1), 0, 0, 1);
    assert_granted("b");
    assert_result(release("b", had("b")), 1, 0, 0);
}

static void an_expired_hold_is_no_expired_grant(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    release("a", token);
    had("b");
    run_out(LOCK);
    had("c");
}

/* Nobody refreshed it: all who stood there are gone. */
static void an_expired_queue(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    run_out(QUEUE);
    busy("c");
    busy("b");
    assert_queue("c b");
    release("a", token);
    assert_granted("c");
}

/* ---- Clients with a grant_ms of their own ---------------------------------------------------- */

#define HASTY_MS (GRANT_MS / 10)

static struct result hasty(const char *what, const char *me, long long token)
{
    return answered(
        &(struct call){.what = what, .me = named(me), .token = token, .grant_ms = HASTY_MS}, 3);
}

/* A client that asks often does not make the queue shorter-lived for one that asks seldom. */
static void the_queue_lives_for_whoever_asks_seldom(void **state)
{
    (void)state;
    had("a");
    assert_int_equal(hasty("acquire", "b", 0).said, 0);
    assert_between(pttl(QUEUE), 1, 10 * HASTY_MS);
    busy("c");
    assert_fresh(QUEUE, 10 * GRANT_MS);
    assert_int_equal(hasty("acquire", "b", 0).said, 0);
    assert_queue("b c");
}

/* Whoever grants it: the one that is granted the lock asks again in half of its own grant_ms. */
static void a_grant_lasts_as_its_client_wants(void **state)
{
    (void)state;
    long long token = hasty("acquire", "a", 0).number;
    busy("b");
    assert_int_equal(hasty("acquire", "c", 0).said, 0);
    assert_result(hasty("release", "a", token), 1, 0, 0);
    assert_granted("b");
    assert_between(pttl(GRANT), 5 * GRANT_MS, 10 * GRANT_MS);
    assert_result(release("b", had("b")), 1, 0, 0);
    assert_string_equal(server_text(server, "HGET " LOCK " owner"), "c");
    assert_between(pttl(LOCK), 1, HASTY_MS);
    assert_between(pttl("dlock:wake:c"), 1, HASTY_MS);
    assert_between(pttl(GRANT), HASTY_MS + 1, 10 * HASTY_MS);
    assert_result(hasty("leave", "c", 0), 1, 0, 0);
    assert_at_rest();
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

#define AHEAD_US 1000000000000LL /* of the clock: as if that had stepped back */

/* Above the last number that may have been used, and not further: so they don't outrun the clock.
 */
static void as_many_numbers_as_were_used(void **state)
{
    (void)state;
    set_newest(server_us(server) + AHEAD_US);
    long long token = had("a");
    assert_result(release_used("a", token, token), 1, 0, 0);
    assert_int_equal(had("a"), token + 1);
    assert_result(release_used("a", token + 1, token + 8), 1, 0, 0);
    assert_int_equal(had("a"), token + 9);
    busy("b");
    assert_result(release_used("a", token + 9, token + 10), 1, 0, 0);
    assert_int_equal(had("b"), token + 11);
    struct result kept = answered(&(struct call){.what = "release",
                                                 .me = named("b"),
                                                 .token = token + 11,
                                                 .more = true,
                                                 .used = token + 15},
                                  3);
    assert_result(kept, 2, token + 16, 0);
    struct call again = {.what = "acquire", .me = named("b"), .used = token + 20};
    assert_result(answered(&again, 3), 1, token + 21, 0);
    again.used = token; /* it knows of an older one only */
    assert_result(answered(&again, 3), 1, token + 22, 0);
    /* Not said: all of them. */
    assert_result(release("b", token + 22), 1, 0, 0);
    assert_int_equal(had("b"), token + 22 + NUMBERS);
}

static void numbers_that_nobody_told_of(void **state)
{
    (void)state;
    set_newest(server_us(server) + AHEAD_US);
    long long token = had("a");
    run_out(LOCK); /* an expired hold: all may have been used */
    assert_int_equal(had("b"), token + NUMBERS);
    assert_int_equal(had("b"), token + 2 * NUMBERS); /* an answer that was lost, likewise */
    busy("c");
    release_used("b", token + 2 * NUMBERS, token + 2 * NUMBERS);
    run_out(LOCK); /* an expired grant: none */
    long long newest = acquire("d").number;
    assert_int_equal(newest, token + 2 * NUMBERS + 2);
    busy("e");
    release_used("d", newest, newest);
    assert_result(leave("e"), 1, 0, 0); /* a grant that is given back, likewise */
    assert_int_equal(had("f"), newest + 2);
}

static void tokens_grow_when_their_key_is_lost(void **state)
{
    (void)state;
    long long token = had("a");
    for (int i = 0; i < 2000; i++) {
        assert_result(release_used("a", token, token), 1, 0, 0);
        struct result again = acquire("a");
        assert_true(again.said == 1 && again.number > token);
        token = again.number;
    }
    assert_true(token <= server_us(server));
    /* While it is held, and handed on. */
    busy("b");
    server_integer(server, "DEL " NEWEST);
    assert_result(release_used("a", token, token), 1, 0, 0);
    long long second = had("b");
    assert_true(second > token);
    /* While it is free. */
    assert_result(release_used("b", second, second), 1, 0, 0);
    server_integer(server, "DEL " NEWEST " " GRANT);
    long long third = had("c");
    assert_true(third > second);
    server_text(server, "FLUSHALL");
    assert_true(had("d") > third);
}

/* As text: a number in Lua prints as 1.7636900001235e+15. */
static void a_token_is_written_out(void **state)
{
    (void)state;
    long long token = had("a");
    char text[24];
    snprintf(text, sizeof text, "%lld", token);
    assert_string_equal(server_text(server, "GET " NEWEST), text);
    assert_string_equal(server_text(server, "HGET " LOCK " token"), text);
    assert_result(release_used("a", token, token), 1, 0, 0);
    assert_string_equal(server_text(server, "GET " GRANT), text);
}

/* ---- What else may be there ------------------------------------------------------------------ */

static void assert_error(struct call call, const char *says)
{
    const redisReply *reply = asked(&call);
    assert_int_equal(reply->type, REDIS_REPLY_ERROR);
    assert_says(reply->str, says);
}

static void keys_of_another_type(void **state)
{
    (void)state;
    struct call acquire_a = {.what = "acquire", .me = named("a")};
    server_text(server, "SET " LOCK " x");
    assert_error(acquire_a, "WRONGTYPE");
    server_text(server, "FLUSHALL");
    server_text(server, "SET " QUEUE " x");
    assert_error(acquire_a, "WRONGTYPE");
    assert_false(is_there(LOCK));
    server_text(server, "FLUSHALL");
    server_integer(server, "RPUSH " NEWEST " x");
    assert_error(acquire_a, "WRONGTYPE");
    assert_false(is_there(LOCK));
}

/* The hint can't be given: the lock is, and the next one polls. */
static void a_wake_list_of_another_type(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    server_text(server, "SET dlock:wake:b x");
    assert_result(release("a", token), 1, 0, 0);
    assert_int_equal(pttl("dlock:wake:b"), -1);
    assert_lock("b", "granted");
    had("b");
}

/* The grant can't be claimed, since its note can't be taken. */
static void a_note_of_another_type(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    assert_result(release("a", token), 1, 0, 0);
    server_integer(server, "DEL " GRANT);
    server_integer(server, "RPUSH " GRANT " x");
    assert_error((struct call){.what = "acquire", .me = named("b")}, "WRONGTYPE");
    assert_lock("b", "granted");
    assert_int_equal(server_integer(server, "LLEN " GRANT), 1);
    assert_int_equal(pttl(GRANT), -1);
}

/* Held under a rung that keeps another hash there: busy until that one is gone. */
static void a_lock_of_another_rung(void **state)
{
    (void)state;
    server_integer(server, "HSET " LOCK " someone:1 1");
    server_integer(server, "PEXPIRE " LOCK " 60000");
    assert_between(acquire("a").number, 1, 60000);
    assert_result(release("a", 1), 0, 0, 0);
    assert_result(leave("b"), 0, 0, 0);
    assert_int_equal(renew("a", 1), 0);
    assert_int_equal(server_integer(server, "HLEN " LOCK), 1);
    assert_queue("a");
    run_out(LOCK);
    had("a");
}

static void ids_with_odd_bytes(void **state)
{
    (void)state;
    const struct id ids[] = {
        {"two words", 9}, {"line\r\nline", 10}, {"nul\0nul", 7},
        {"{tag}", 5},     {"\xff\xfe", 2},      {"0", 1},
        {"%s %b", 5},     {"granted", 7},       {"f81d4fae-7dec-11d0-a765-00a0c91e6bf6", 36},
    };
    long long token = had("a");
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        assert_int_equal(acquire_by(ids[i]).said, 0);
    assert_result(release("a", token), 1, 0, 0);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        struct result got = acquire_by(ids[i]);
        assert_int_equal(got.said, 1);
        assert_int_equal(server_integer(server, "LLEN dlock:wake:%b", ids[i].bytes, ids[i].size),
                         1);
        struct call end = {.what = "release", .me = ids[i], .token = got.number};
        assert_result(answered(&end, 3), 1, 0, 0);
    }
    assert_at_rest();
}

static void no_such_operation(void **state)
{
    (void)state;
    struct call call = {.what = "aquire", .me = named("a")};
    assert_error(call, "'aquire': it must be acquire, release, leave, renew or break");
}

/* ---- What it costs --------------------------------------------------------------------------- */

/* Commands since the count was reset, inner ones included, the test's own aside. */
static long long commands(void)
{
    const redisReply *reply = server_ask(server, "INFO commandstats");
    long long calls = 0;
    const char *own[] = {"cmdstat_info:", "cmdstat_config|resetstat:"};
    for (const char *at = strstr(reply->str, "cmdstat_"); at != NULL;
         at = strstr(at + 1, "cmdstat_")) {
        bool mine = false;
        for (size_t i = 0; i < 2; i++)
            mine = mine || strncmp(at, own[i], strlen(own[i])) == 0;
        calls += mine ? 0 : atoll(strstr(at, "calls=") + strlen("calls="));
    }
    return calls;
}

#define assert_costs(step, inner)                                                                  \
    do {                                                                                           \
        server_text(server, "CONFIG RESETSTAT");                                                   \
        step;                                                                                      \
        assert_int_equal(commands(), 1 + (inner));                                                 \
    } while (0)

/* docs/design/fair.md tells of these. */
static void commands_of_each_step(void **state)
{
    (void)state;
    long long token = 0;
    assert_costs(token = had("a"), 9);
    assert_costs(release_used("a", token, token), 4);
    token = had("a");
    assert_costs(busy("b"), 5);
    age(QUEUE);
    assert_costs(busy("b"), 5);
    assert_costs(release_more("a", token), 13);
    assert_costs(token = had("b"), 4);
    assert_costs(release("b", token), 9);
    token = had("a");
    assert_costs(token = release_more("a", token).number, 6);
    age(LOCK);
    assert_costs(renew("a", token), 4);
}

/* ---- Anything in any order ------------------------------------------------------------------- */

#define CLIENTS 4
#define STEPS 6000

static const char *const names[CLIENTS] = {"a", "b", "c", "d"};

struct walk {
    unsigned seed;
    long long tokens[CLIENTS]; /* the last that the client was told; perhaps an old one */
    long long newest;
    long long grants_expired;
    long long told; /* of them */
};

static int dice(struct walk *walk, int sides)
{
    return rand_r(&walk->seed) % sides;
}

/* Granted, and not claimed yet: the owner's number; -1: nobody's. */
static int owner_in(const char *state)
{
    if (strcmp(server_text(server, "HGET " LOCK " state"), state) != 0)
        return -1;
    const char *owner = server_text(server, "HGET " LOCK " owner");
    return owner[0] - 'a';
}

static void assert_sound(struct walk *walk, bool after_an_operation)
{
    char owner[8], seen[CLIENTS] = {0};
    snprintf(owner, sizeof owner, "%s", server_text(server, "HGET " LOCK " owner"));
    const redisReply *queue = server_ask(server, "LRANGE " QUEUE " 0 -1");
    for (size_t i = 0; i < queue->elements; i++) {
        assert_int_not_equal(queue->element[i]->str[0], owner[0]);
        assert_int_equal(seen[queue->element[i]->str[0] - 'a']++, 0);
    }
    if (after_an_operation && owner[0] == '\0')
        assert_int_equal(queue->elements, 0);
    assert_true(queue->elements == 0 || pttl(QUEUE) > 0);
    if (owner[0] == '\0')
        return;
    assert_between(pttl(LOCK), 1, TTL_MS);
    assert_int_equal(field_token(), atoll(server_text(server, "GET " NEWEST)));
    assert_true(field_token() >= walk->newest);
    walk->newest = field_token();
}

static void walk_acquire(struct walk *walk, int me)
{
    bool claims = owner_in("granted") == me;
    long long before = walk->newest;
    struct result got = acquire(names[me]);
    walk->told += got.expired;
    if (got.said == 0)
        return;
    assert_int_equal(owner_in("held"), me);
    assert_true(claims ? got.number == before : got.number > before);
    walk->tokens[me] = got.number;
}

static void walk_release(struct walk *walk, int me)
{
    bool has_it = owner_in("held") == me && field_token() == walk->tokens[me];
    bool more = dice(walk, 2) == 0;
    long long token = walk->tokens[me];
    struct call call = {.what = "release", .me = named(names[me]), .token = token, .more = more};
    if (dice(walk, 2) == 0)
        call.used = token + dice(walk, NUMBERS);
    long long queued = server_integer(server, "LLEN " QUEUE);
    bool again = owner_in("held") == me && /* as it was kept for more */
                 atoll(server_text(server, "HGET " LOCK " before")) == token && token != 0;
    struct result got = answered(&call, 3);
    walk->told += got.expired;
    if (again) {
        assert_result(got, 2, field_token(), 0);
        return;
    }
    assert_int_equal(got.said, !has_it ? 0 : more && queued == 0 ? 2 : 1);
    if (got.said == 0)
        return;
    long long least = call.used != 0 ? call.used : token + NUMBERS - 1;
    assert_true(!is_there(LOCK) || field_token() > least);
    walk->newest = is_there(LOCK) ? walk->newest : least;
    if (got.said == 2)
        walk->tokens[me] = got.number;
}

static void walk_leave(struct walk *walk, int me)
{
    bool granted = owner_in("granted") == me;
    char place[24];
    snprintf(place, sizeof place, "%s %d", names[me], GRANT_MS);
    long long try = dice(walk, 2) == 0 ? 0 : tries - dice(walk, 8);
    bool unheard_of =
        owner_in("held") == me && atoll(server_text(server, "HGET " LOCK " try")) <= try;
    long long token = field_token();
    struct result got = leave_after(names[me], try);
    walk->told += got.expired;
    assert_int_equal(got.said, granted || unheard_of);
    assert_true(owner_in("granted") != me);
    if (unheard_of && !is_there(LOCK))
        walk->newest = token + NUMBERS - 1;
    assert_int_equal(server_ask(server, "LPOS " QUEUE " %b", place, strlen(place))->type,
                     REDIS_REPLY_NIL);
}

static void walk_renew(struct walk *walk, int me)
{
    bool has_it = owner_in("held") == me && field_token() == walk->tokens[me];
    assert_int_equal(renew(names[me], walk->tokens[me]), has_it);
}

static void walk_expire(struct walk *walk)
{
    walk->grants_expired += owner_in("granted") >= 0;
    server_integer(server, "DEL " LOCK);
}

static void any_of_them_in_any_order(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    struct walk walk = {.seed = given != NULL ? (unsigned)atol(given) : (unsigned)time(NULL)};
    print_message("SEED=%u\n", walk.seed);
    for (int step = 0; step < STEPS; step++) {
        int me = dice(&walk, CLIENTS), what = dice(&walk, 100);
        if (what < 45)
            walk_acquire(&walk, me);
        else if (what < 75)
            walk_release(&walk, me);
        else if (what < 82)
            walk_leave(&walk, me);
        else if (what < 90)
            walk_renew(&walk, me);
        else if (what < 98)
            walk_expire(&walk);
        else
            server_integer(server, "DEL " QUEUE);
        assert_sound(&walk, what < 82);
    }
    if (!is_there(LOCK))
        walk.told += acquire("a").expired;
    assert_int_equal(walk.told, walk.grants_expired);
    assert_true(walk.grants_expired > 0);
}

/* ---------------------------------------------------------------------------------------------- */

static int empty(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    assert_string_equal(server_text(server, "SCRIPT LOAD %s", lua_fair.text), lua_fair.sha1);
    return 0;
}

#define test(function) cmocka_unit_test_setup(function, empty)

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(free_and_nobody_waits),
        test(busy_is_queued_once),
        test(held_by_me_is_had_with_a_new_token),
        test(a_grant_is_claimed_with_its_token),
        test(granted_to_another_is_busy),
        test(free_and_headed_by_me),
        test(free_and_headed_by_another),
        test(released_and_nobody_waits),
        test(released_with_more_while_others_wait),
        test(released_with_more_and_nobody_else),
        test(released_by_who_has_it_not),
        test(released_when_it_is_free),
        test(leaves_the_queue),
        test(leaves_a_grant_to_the_next),
        test(a_late_leave_frees_no_hold),
        test(a_leave_frees_what_its_try_got),
        test(who_leaves_a_free_lock_sees_it_granted),
        test(the_last_to_leave_leaves_nothing),
        test(renewed_by_who_has_it),
        test(renewed_by_nobody_else),
        test(a_dead_head_costs_one_grant),
        test(an_expired_grant_is_told_once),
        test(an_expired_grant_and_nobody_behind),
        test(an_expired_grant_that_a_leave_or_release_finds),
        test(an_expired_hold_is_no_expired_grant),
        test(an_expired_queue),
        test(the_queue_lives_for_whoever_asks_seldom),
        test(a_grant_lasts_as_its_client_wants),
        test(as_many_numbers_as_were_used),
        test(numbers_that_nobody_told_of),
        test(tokens_grow_when_their_key_is_lost),
        test(a_token_is_written_out),
        test(keys_of_another_type),
        test(a_wake_list_of_another_type),
        test(a_note_of_another_type),
        test(a_lock_of_another_rung),
        test(ids_with_odd_bytes),
        test(no_such_operation),
        test(commands_of_each_step),
        test(any_of_them_in_any_order),
    };
    return cmocka_run_group_tests_name("fair_script", tests, start_server, stop_server);
}
