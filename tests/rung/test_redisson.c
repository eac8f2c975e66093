/* SPDX-License-Identifier: Apache-2.0
 *
 * Redisson's wire format, as published in its conformance vectors: the library's `notify` walks
 * those of the lock, byte for byte, and shares a lock with a side that keeps to Redisson's steps.
 * The vectors of its other locks are walked by those steps alone: pages that tell of their flaws
 * rest on these tests. REDIS_SERVER chooses the server: redis-server, valkey-server.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "patient.h"
#include "record.h"
#include "redisson.h"
#include "waiter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN_MS 86400000
#define TOKEN "dlock:token={" LOCK "}"
#define OWNER 7

static struct messages *messages;
static dlock_client *client; /* U of the vectors, and V */
static dlock_client *other;
static dlock *lock;
static dlock *others;

static dlock *opened(dlock_client *of, const char *name)
{
    dlock *made;
    assert_status(dlock_open_ops(of, patient(), name, &made), OK);
    return made;
}

static int64_t pttl(const char *key)
{
    return server_integer(server, "PTTL %s", key);
}

/* ---- The lock's vectors, walked by the library ----------------------------------------------- */

static char answers[64]; /* of the releases on the wire */

static void keep_answer(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    size_t size = strlen(answers);
    if (strncmp(trace->sent, "EVALSHA", 7) == 0 && strstr(trace->sent, LOCK_CHANNEL) != NULL)
        snprintf(answers + size, sizeof answers - size, "%s,", trace->reply);
}

/* Another owner unlocks in vain; then the owner does, twice. */
static dlock_status release_after_another_and_twice(struct rung_env *env, struct dlock_hold *hold)
{
    struct dlock_hold forged = *hold;
    strcpy(forged.owner, OWNER_V);
    must(notify_release(env, &forged) == DLOCK_LOST);
    must(notify_release(env, hold) == DLOCK_OK);
    must(notify_release(env, hold) == (hold->depth > 1 ? DLOCK_OK : DLOCK_LOST));
    return DLOCK_OK;
}

/* The lock's key, its fields and its messages are the vectors'. That a release which is sent twice
 * counts once is Redisson's latch there, a key of its own; here it is the count that the release
 * says. */
static void vectors_of_the_lock_by_the_library(void **state)
{
    (void)state;
    char expected[512];
    dlock_hold *none;
    dlock_hold *first = acquired_by(lock, OWNER);
    int64_t began_ms = clock_ms();
    dlock_hold *second = acquired_by(lock, OWNER);
    snprintf(expected, sizeof expected, "%s=2", dlock_owner(first));
    assert_string_equal(hash_at(server, LOCK), expected);
    assert_true(is_left(pttl(LOCK), LEASE_MS, began_ms));
    assert_status(tried(others, &none), BUSY);
    assert_string_equal(hash_at(server, LOCK), expected);
    assert_string_equal(all_keys(server), LOCK " " TOKEN);
    assert_true(is_left(pttl(TOKEN), TOKEN_MS, began_ms));

    patient_release = release_after_another_and_twice;
    assert_status(dlock_release(second, NULL), OK);
    assert_string_equal(answers, "(nil),(integer) 1,(integer) 1,");
    snprintf(expected, sizeof expected, "%s=1", dlock_owner(first));
    assert_string_equal(hash_at(server, LOCK), expected);
    assert_string_equal(all_keys(server), LOCK " " TOKEN);
    assert_true(is_left(pttl(LOCK), LEASE_MS, began_ms));
    assert_string_equal(messages_new(messages), "");

    answers[0] = '\0';
    assert_status(dlock_release(first, NULL), OK);
    assert_string_equal(answers, "(nil),(integer) 0,(nil),");
    assert_string_equal(all_keys(server), TOKEN);
    assert_string_equal(messages_new(messages), LOCK_CHANNEL " 0");
}

/* A name with a tag is used as it is; one with a brace and no tag is refused: its keys would lie in
 * different slots. */
static void names_with_braces(void **state)
{
    static const char *const refused[] = {"a{b", "a}b", "{", "}", "}{", "{}", "a{}b", "{}{a}"};
    (void)state;
    dlock *named = opened(client, "lock:{phone}");
    dlock_hold *hold = acquired(named);
    assert_string_equal(all_keys(server), "dlock:token:lock:{phone} lock:{phone}");
    assert_status(dlock_release(hold, NULL), OK);
    assert_string_equal(messages_new(messages), "redisson_lock__channel:lock:{phone} 0");
    dlock_close(named);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_status(dlock_open_ops(client, patient(), refused[i], &named), INVALID);
        assert_null(named);
        assert_says(dlock_error(), refused[i]);
        assert_says(dlock_error(), "lock:{phone}");
    }
}

/* Of the lock's own key, and of the token's: nothing is changed by then. */
static void a_key_of_another_type(void **state)
{
    (void)state;
    dlock_hold *none;
    server_text(server, "SET " LOCK " text");
    assert_status(tried(lock, &none), WRONG_TYPE);
    assert_string_equal(all_keys(server), LOCK);
    server_integer(server, "DEL " LOCK);
    server_integer(server, "RPUSH " TOKEN " element");
    assert_status(tried(lock, &none), WRONG_TYPE);
    assert_string_equal(all_keys(server), TOKEN);
}

/* ---- One lock, two sides --------------------------------------------------------------------- */

/* A waiter of the library's that has nothing left to do but to be woken. */
static void let_wait(struct waiter *waiter)
{
    *waiter = (struct waiter){.lock = lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    atomic_store(&patient_answered, 0);
    waiter_start(waiter);
    eventually(atomic_load(&patient_answered) >= 2 && subscribers(server) == 1);
}

static void must_have_it(struct waiter *waiter, const char *heard)
{
    char expected[128];
    assert_status(waiter_end(waiter), OK);
    assert_string_equal(messages_new(messages), heard);
    snprintf(expected, sizeof expected, "%s=1", dlock_owner(waiter->hold));
    assert_string_equal(hash_at(server, LOCK), expected);
    assert_status(dlock_release(waiter->hold, NULL), OK);
}

static void woken_by_the_other_sides_unlock(void **state)
{
    (void)state;
    struct waiter waiter;
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    let_wait(&waiter);
    assert_int_equal(lock_unlock(server, OWNER_V, "req01"), 0);
    assert_string_equal(messages_new(messages), "");
    assert_int_equal(lock_unlock(server, OWNER_V, "req02"), 1);
    must_have_it(&waiter, LOCK_CHANNEL " 0");
}

static void woken_by_the_other_sides_forced_unlock(void **state)
{
    (void)state;
    struct waiter waiter;
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    let_wait(&waiter);
    assert_int_equal(lock_force(server), 1);
    must_have_it(&waiter, LOCK_CHANNEL " 0");
    assert_int_equal(lock_force(server), 0);
    assert_string_equal(messages_new(messages), LOCK_CHANNEL " 0"); /* the release's */
}

/* The library's forced unlock is the other side's, key for key: a message if it was held. */
static void a_break_is_a_forced_unlock(void **state)
{
    (void)state;
    struct waiter waiter;
    struct dlock_holder broken = {.size = sizeof broken};
    assert_status(dlock_break(lock, &broken), OK);
    assert_false(broken.held);
    assert_string_equal(messages_new(messages), "");
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    let_wait(&waiter);
    assert_status(dlock_break(others, &broken), OK);
    assert_true(broken.held);
    assert_string_equal(broken.owner, OWNER_V);
    must_have_it(&waiter, LOCK_CHANNEL " 0");
    assert_int_equal(lock_unlock(server, OWNER_V, "req01"), NIL);
}

/* No message comes of an expiry: the waiter knows from the other side's lease when to try. */
static void not_later_than_the_other_sides_expiry(void **state)
{
    (void)state;
    struct waiter waiter = {.want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    dlock_hold *none;
    dlock *plain;
    do {
        lock_acquire(server, OWNER_V, 4000); /* once more on a machine that stood still so long */
        atomic_store(&patient_again_ms, 0);
    } while (tried(lock, &none) == DLOCK_OK && dlock_release(none, NULL) == DLOCK_OK);
    assert_in_range(atomic_load(&patient_again_ms), 2, 4002);
    lock_renew(server, OWNER_V, 200);
    assert_status(dlock_open_ops(client, &rung_notify, LOCK, &plain), OK);
    waiter.lock = plain;
    waiter_start(&waiter);
    must_have_it(&waiter, "");
    dlock_close(plain);
}

/* A lease without end, or a long one: the lock is looked at now and then all the same. */
static void a_long_lease_is_not_slept_through(void **state)
{
    (void)state;
    dlock_hold *none;
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    assert_status(tried(lock, &none), BUSY);
    assert_int_equal(atomic_load(&patient_again_ms), FALLBACK_MS);
    server_integer(server, "PERSIST " LOCK);
    atomic_store(&patient_again_ms, 0);
    assert_status(tried(lock, &none), BUSY);
    assert_int_equal(atomic_load(&patient_again_ms), FALLBACK_MS);
}

/* The other side subscribes, is refused, hears the message, and has the lock. */
static void the_other_side_is_woken(void **state)
{
    (void)state;
    redisContext *ear = redisConnectUnix(server_socket(server));
    must(ear != NULL && ear->err == 0);
    redisSetTimeout(ear, (struct timeval){.tv_sec = PATIENCE_MS / 1000});
    freeReplyObject(redisCommand(ear, "SUBSCRIBE " LOCK_CHANNEL));
    int64_t began_ms = clock_ms();
    dlock_hold *hold = acquired(lock);
    assert_true(is_left(lock_acquire(server, OWNER_V, LEASE_MS), LEASE_MS, began_ms));
    assert_status(dlock_release(hold, NULL), OK);
    redisReply *heard = NULL;
    must(redisGetReply(ear, (void **)&heard) == REDIS_OK);
    assert_int_equal(heard->elements, 3);
    assert_string_equal(heard->element[0]->str, "message");
    assert_string_equal(heard->element[1]->str, LOCK_CHANNEL);
    assert_int_equal(heard->element[2]->len, 1);
    assert_string_equal(heard->element[2]->str, "0");
    freeReplyObject(heard);
    redisFree(ear);
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    assert_string_equal(hash_at(server, LOCK), OWNER_V "=1");
}

/* Each side sees what the other's renewal left of the lease. */
static void renewals_are_seen_by_the_other_side(void **state)
{
    (void)state;
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *quick = client_of(server_url(server), (struct dlock_options){.ttl_ms = 9000});
    dlock *quicks = opened(quick, LOCK);
    dlock_hold *hold = acquired(quicks);
    int64_t left_ms;
    server_integer(server, "PEXPIRE " LOCK " 8000");
    eventually((left_ms = lock_acquire(server, OWNER_V, LEASE_MS)) > 8000);
    assert_true(left_ms <= 9000);
    eventually(stats_of(quick).renewals > 0); /* its answer may still be on its way */
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(quicks);
    dlock_client_close(quick);

    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    int64_t began_ms = clock_ms();
    assert_int_equal(lock_renew(server, OWNER_V, 2 * LEASE_MS), 1);
    assert_int_equal(lock_renew(server, OWNER_W, LEASE_MS), 0);
    assert_status(dlock_inspect(lock, &holder), OK);
    assert_string_equal(holder.owner, OWNER_V);
    assert_true(is_left(holder.ttl_ms, 2 * LEASE_MS, began_ms));
}

/* A holder of the other side takes no token, so the next one of this side need only be above the
 * one before. */
static void the_other_side_draws_no_token(void **state)
{
    (void)state;
    dlock_hold *hold = acquired(lock);
    uint64_t before = dlock_token(hold);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    assert_int_equal(strtoull(server_text(server, "GET " TOKEN), NULL, 10), before);
    assert_int_equal(lock_unlock(server, OWNER_V, "req01"), 1);
    hold = acquired(lock);
    assert_true(dlock_token(hold) > before);
    assert_status(dlock_release(hold, NULL), OK);
}

/* ---- The vectors, walked by Redisson's steps ------------------------------------------------- */

static void vectors_of_the_lock(void **state)
{
    (void)state;
    assert_int_equal(lock_acquire(server, OWNER_U, LEASE_MS), NIL);
    int64_t began_ms = clock_ms();
    assert_int_equal(lock_acquire(server, OWNER_U, LEASE_MS), NIL);
    assert_true(is_left(lock_acquire(server, OWNER_V, LEASE_MS), LEASE_MS, began_ms));
    assert_string_equal(hash_at(server, LOCK), OWNER_U "=2");
    assert_int_equal(lock_unlock(server, OWNER_V, "req00"), NIL);
    assert_int_equal(lock_unlock(server, OWNER_U, "req01"), 0);
    assert_int_equal(lock_unlock(server, OWNER_U, "req01"), 0);
    assert_int_equal(lock_unlock(server, OWNER_U, "req02"), 1);
    assert_int_equal(lock_unlock(server, OWNER_U, "req02"), 1);
    assert_string_equal(messages_new(messages), LOCK_CHANNEL " 0");
    assert_string_equal(all_keys(server), LATCH "req01 " LATCH "req02");
}

static void vectors_of_the_read_write_lock(void **state)
{
    (void)state;
    int64_t began_ms = clock_ms();
    assert_int_equal(write_acquire(server, OWNER_U), NIL);
    assert_true(is_left(read_acquire(server, OWNER_V), LEASE_MS, began_ms));
    assert_int_equal(read_acquire(server, OWNER_U), NIL);
    assert_string_equal(hash_at(server, LOCK), "mode=write " OWNER_U ":write=1 " OWNER_U "=1");
    assert_int_equal(write_unlock(server, OWNER_U, "req01"), 1);
    assert_string_equal(hash_at(server, LOCK), "mode=read " OWNER_U "=1");
    assert_string_equal(messages_new(messages), "");
    assert_int_equal(read_acquire(server, OWNER_V), NIL);
    assert_int_equal(read_unlock(server, OWNER_V, "req02"), 0);
    assert_string_equal(messages_new(messages), "");
    assert_int_equal(read_unlock(server, OWNER_U, "req03"), 1);
    assert_string_equal(messages_new(messages), "redisson_rwlock:{" LOCK "} 0");
    assert_string_equal(all_keys(server), LATCH "req01 " LATCH "req02 " LATCH "req03");
}

/* The reader could enter from the moment of the downgrade on, and nobody tells it. */
static void flaw_a_downgrade_wakes_nobody(void **state)
{
    (void)state;
    assert_int_equal(write_acquire(server, OWNER_U), NIL);
    assert_int_equal(read_acquire(server, OWNER_U), NIL);
    assert_true(read_acquire(server, OWNER_V) > 0); /* it sleeps so long now */
    assert_int_equal(write_unlock(server, OWNER_U, "req01"), 1);
    assert_string_equal(messages_new(messages), "");
    assert_int_equal(read_acquire(server, OWNER_V), NIL);
}

static void flaw_each_write_acquire_adds_its_lease(void **state)
{
    (void)state;
    int64_t began_ms = clock_ms();
    for (int times = 1; times <= 3; times++) {
        assert_int_equal(write_acquire(server, OWNER_U), NIL);
        assert_true(is_left(pttl(LOCK), times * LEASE_MS, began_ms));
    }
}

static double deadline_of(const char *owner)
{
    return strtod(server_text(server, "ZSCORE redisson_lock_timeout:{" LOCK "} %s", owner), NULL);
}

/* U holds, V and W wait. The clocks of the clients are the test's. */
static void line_up_fairly(int64_t now_ms)
{
    int64_t began_ms = clock_ms();
    assert_int_equal(fair_acquire(server, OWNER_U, now_ms), NIL);
    assert_true(is_left(fair_acquire(server, OWNER_V, now_ms), LEASE_MS, began_ms));
    assert_true(is_left(fair_acquire(server, OWNER_W, now_ms + 1), LEASE_MS + 299999, began_ms));
    assert_string_equal(list_at(server, "redisson_lock_queue:{" LOCK "}"), OWNER_V " " OWNER_W);
    assert_true(deadline_of(OWNER_W) - deadline_of(OWNER_V) == 300000);
}

#define NOW_MS 1763690000000 /* any clock would do */

static void vectors_of_the_fair_lock(void **state)
{
    (void)state;
    line_up_fairly(NOW_MS);
    assert_int_equal(fair_unlock(server, OWNER_U, NOW_MS + 10, "req01"), 1);
    assert_string_equal(messages_new(messages), LOCK_CHANNEL ":" OWNER_V " 0");
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    assert_int_equal(fair_acquire(server, OWNER_V, NOW_MS + 20), NIL);
    assert_string_equal(list_at(server, "redisson_lock_queue:{" LOCK "}"), OWNER_W);
}

/* The first in the queue has died, and the lock is free: nobody has it for five minutes, who waits
 * is told to try again at once each time, and who comes is told to wait for ten. */
static void flaw_a_dead_head_stalls_the_fair_lock(void **state)
{
    (void)state;
    int64_t began_ms = clock_ms();
    line_up_fairly(NOW_MS);
    assert_int_equal(fair_unlock(server, OWNER_U, NOW_MS + 100, "req01"), 1);
    assert_string_equal(messages_new(messages), LOCK_CHANNEL ":" OWNER_V " 0");
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    for (int tries = 0; tries < 1000; tries++)
        assert_int_equal(fair_acquire(server, OWNER_W, NOW_MS + 100 + tries), 0);
    assert_true(
        is_left(fair_acquire(server, OWNER_X, NOW_MS + 1100), LEASE_MS + 600000 - 1100, began_ms));
    assert_int_equal(fair_acquire(server, OWNER_W, NOW_MS + 299000), 0);
    assert_int_equal(fair_acquire(server, OWNER_W, NOW_MS + 331000), NIL);
    assert_string_equal(hash_at(server, LOCK), OWNER_W "=1");
}

/* Its holder never learns that it lost the lock; the plain lock's does. */
static void flaw_an_expired_fair_lock_is_unlocked_with_success(void **state)
{
    (void)state;
    assert_int_equal(fair_acquire(server, OWNER_U, NOW_MS), NIL);
    server_integer(server, "DEL " LOCK); /* as the expiry would */
    assert_int_equal(fair_unlock(server, OWNER_U, NOW_MS, "req01"), 1);
    assert_int_equal(lock_unlock(server, OWNER_U, "req02"), NIL);
}

static void vectors_of_the_fenced_lock(void **state)
{
    (void)state;
    struct pair had = fenced_acquire(server, OWNER_U);
    assert_true(had.first == -1 && had.second == 1);
    int64_t began_ms = clock_ms();
    had = fenced_acquire(server, OWNER_U); /* the same holder, a larger token */
    assert_true(had.first == -1 && had.second == 2);
    struct pair refused = fenced_acquire(server, OWNER_V);
    assert_true(is_left(refused.first, LEASE_MS, began_ms));
    assert_int_equal(refused.second, -1);
}

/* Every name that was ever locked leaves a counter for ever; and who takes the same lock as a plain
 * one draws no token. */
static void flaw_the_counter_of_tokens_never_ends(void **state)
{
    (void)state;
    assert_int_equal(fenced_acquire(server, OWNER_U).second, 1);
    assert_int_equal(lock_unlock(server, OWNER_U, "req01"), 1);
    assert_int_equal(pttl("redisson_lock_token:{" LOCK "}"), -1);
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    assert_string_equal(server_text(server, "GET redisson_lock_token:{" LOCK "}"), "1");
}

static void flaw_a_key_of_another_type_is_a_raw_error(void **state)
{
    (void)state;
    server_text(server, "SET " LOCK " text");
    assert_string_equal(lock_acquire_error(server, OWNER_U), "WRONGTYPE");
}

/* ---- The stage ------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    struct dlock_options traced = {.on_trace = keep_answer};
    client = client_of(server_url(server), traced);
    other = client_of(server_url(server), (struct dlock_options){0});
    lock = opened(client, LOCK);
    others = opened(other, LOCK);
    dlock_hold *hold = acquired(lock); /* the server knows the scripts from here on */
    assert_status(dlock_release(hold, NULL), OK);
    server_text(server, "FLUSHALL");
    messages = messages_start(server);
    answers[0] = '\0';
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    patient_release = NULL;
    messages_free(messages);
    dlock_close(lock);
    dlock_close(others);
    dlock_client_close(client);
    dlock_client_close(other);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(vectors_of_the_lock_by_the_library),
        TEST(names_with_braces),
        TEST(a_key_of_another_type),
        TEST(woken_by_the_other_sides_unlock),
        TEST(woken_by_the_other_sides_forced_unlock),
        TEST(a_break_is_a_forced_unlock),
        TEST(not_later_than_the_other_sides_expiry),
        TEST(a_long_lease_is_not_slept_through),
        TEST(the_other_side_is_woken),
        TEST(renewals_are_seen_by_the_other_side),
        TEST(the_other_side_draws_no_token),
        TEST(vectors_of_the_lock),
        TEST(vectors_of_the_read_write_lock),
        TEST(flaw_a_downgrade_wakes_nobody),
        TEST(flaw_each_write_acquire_adds_its_lease),
        TEST(vectors_of_the_fair_lock),
        TEST(flaw_a_dead_head_stalls_the_fair_lock),
        TEST(flaw_an_expired_fair_lock_is_unlocked_with_success),
        TEST(vectors_of_the_fenced_lock),
        TEST(flaw_the_counter_of_tokens_never_ends),
        TEST(flaw_a_key_of_another_type_is_a_raw_error),
    };
    return cmocka_run_group_tests_name("redisson", tests, start_server, stop_server);
}
