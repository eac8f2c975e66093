/* SPDX-License-Identifier: Apache-2.0
 *
 * The script of the rung `fair`: its tokens, keys that are lost or of another type, and ids with
 * odd bytes.
 */
#include "calls.h"
#include "fair_script.h"

#include <stdio.h>

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

/* A client that may not BLPOP polls. Its hints end, however often the lock is granted to it. */
static void hints_that_nobody_takes(void **state)
{
    (void)state;
    long long token = had("a");
    busy("b");
    assert_result(release("a", token), 1, 0, 0);
    assert_fresh("dlock:wake:b", GRANT_MS);
    age("dlock:wake:b");
    token = had("b");
    busy("a");
    assert_result(release_more("b", token), 1, 0, 0);
    token = had("a");
    assert_result(release("a", token), 1, 0, 0);
    assert_list("dlock:wake:b", LOCK " " LOCK);
    assert_between(pttl("dlock:wake:b"), 1, 60000);
    run_out("dlock:wake:b");
    token = had("b");
    busy("a");
    assert_result(release_more("b", token), 1, 0, 0);
    token = had("a");
    assert_result(release("a", token), 1, 0, 0);
    assert_granted("b");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(as_many_numbers_as_were_used),
        test(numbers_that_nobody_told_of),
        test(tokens_grow_when_their_key_is_lost),
        test(a_token_is_written_out),
        test(keys_of_another_type),
        test(a_wake_list_of_another_type),
        test(hints_that_nobody_takes),
        test(a_note_of_another_type),
        test(a_lock_of_another_rung),
        test(ids_with_odd_bytes),
    };
    return cmocka_run_group_tests_name("fair_script_keys", tests, start_server, stop_server);
}
