/* SPDX-License-Identifier: Apache-2.0
 *
 * The script of the rung `fair`, step by step on a real server: every operation in every state of
 * the protocol (docs/design/fair.md), and what each costs.
 */
#include "calls.h"
#include "fair_script.h"

#include <stdlib.h>

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
    /* If the newest token was lost, a stock accepts none until the next grant. A late write of a
     * section that has ended may have any number of this grant, from the first on. */
    server_integer(server, "DEL " NEWEST);
    assert_int_equal(renew("a", token), 1);
    assert_false(is_there(NEWEST));
    assert_int_equal(field_token(), token);
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

/* ---- Anything else --------------------------------------------------------------------------- */

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
        test(no_such_operation),
        test(commands_of_each_step),
    };
    return cmocka_run_group_tests_name("fair_script", tests, start_server, stop_server);
}
