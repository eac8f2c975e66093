/* SPDX-License-Identifier: Apache-2.0
 *
 * The script of the rung `fair`: grants, holds and queues that expire, and clients with a grant_ms
 * of their own.
 */
#include "calls.h"
#include "fair_script.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_dead_head_costs_one_grant),
        test(an_expired_grant_is_told_once),
        test(an_expired_grant_and_nobody_behind),
        test(an_expired_grant_that_a_leave_or_release_finds),
        test(an_expired_hold_is_no_expired_grant),
        test(an_expired_queue),
        test(the_queue_lives_for_whoever_asks_seldom),
        test(a_grant_lasts_as_its_client_wants),
    };
    return cmocka_run_group_tests_name("fair_script_expiry", tests, start_server, stop_server);
}
