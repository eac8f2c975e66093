/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `fair` through the library: order, hand-off inside the client, grants between clients,
 * nested acquires, and who is woken.
 */
#include "calls.h"
#include "fair_stage.h"
#include "must.h"
#include "proxy.h"
#include "started.h"
#include "validate.h"
#include "waiter.h"

#include <stdlib.h>

#define CLIENTS 3

static void oracle(void **state)
{
    (void)state;
    const char *servers[] = {server_url(server), NULL};
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &rung_fair,
        .servers = servers,
        .expected = HOLDS,
        .processes = 3,
        .threads = 4,
        .rounds = 30,
        .riding = true,
    }));
    assert_int_equal(server_integer(server, "LLEN dlock:queue:%s", ORACLE_LOCK), 0);
    assert_int_equal(server_integer(server, "EXISTS %s", ORACLE_LOCK), 0);
}

/* Clients in the order in which they asked; only the next is woken, and asks once to claim it. */
static void handed_on_in_order_and_only_the_next_is_woken(void **state)
{
    (void)state;
    struct member holder, members[CLIENTS];
    join(&holder);
    dlock_hold *hold = acquired(holder.lock);
    for (int i = 0; i < CLIENTS; i++) {
        join(&members[i]);
        line_up(&members[i], i + 1);
    }
    uint64_t token = dlock_token(hold);
    for (int i = 0; i < CLIENTS; i++) {
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&members[i].waiter), OK);
        hold = members[i].waiter.hold;
        assert_true(dlock_token(hold) > token);
        token = dlock_token(hold);
        assert_int_equal(attempts(&members[i]), 3);
        for (int behind = i + 1; behind < CLIENTS; behind++)
            assert_int_equal(attempts(&members[behind]), 2);
    }
    assert_status(dlock_release(hold, NULL), OK);
    nothing_is_left();
    for (int i = 0; i < CLIENTS; i++)
        part(&members[i]);
    part(&holder);
}

/* Inside a client: in order, without the server, each with a token above the one before. */
static void passed_on_inside_the_client(void **state)
{
    (void)state;
    struct member member;
    struct queue *queue = calloc(1, sizeof *queue);
    join_with(&member, server_url(server), (struct dlock_options){.handoff_ms = 60000});
    dlock_hold *hold = acquired(member.lock);
    uint64_t token = dlock_token(hold);
    enqueue(queue, member.lock, 20);
    uint64_t commands = stats_of(member.client).commands;
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&queue->had) == 20);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(queue->order[i], i);
        assert_true(queue->tokens[i] > token);
        token = queue->tokens[i];
    }
    assert_int_equal(stats_of(member.client).handoffs, 20);
    assert_int_equal(stats_of(member.client).commands - commands, 1); /* the last one's release */
    nothing_is_left();
    part(&member);
    free(queue);
}

/* However many wait, each release takes as long. */
static void a_long_line_is_no_slower(void **state)
{
    enum { LONG = 100000 };
    (void)state;
    struct member member;
    _Atomic int over = 0;
    join(&member);
    dlock_hold *hold = acquired(member.lock);
    struct started *line = crowd_new(LONG, true, &over);
    for (int i = 0; i < LONG; i++)
        start(member.lock, waiting(PATIENCE_MS), &line[i]);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == LONG);
    crowd_answered(line, LONG, DLOCK_OK);
    nothing_is_left();
    free(line);
    part(&member);
}

/* With a budget of one, two clients take turns. */
static void strict_alternation(void **state)
{
    (void)state;
    struct member holder, a, b;
    struct queue *of_a = calloc(1, sizeof *of_a), *of_b = calloc(1, sizeof *of_b);
    struct dlock_options one = {.handoff_max = 1};
    join(&holder);
    join_with(&a, server_url(server), one);
    join_with(&b, server_url(server), one);
    dlock_hold *hold = acquired(holder.lock);
    enqueue(of_a, a.lock, 20);
    enqueue(of_b, b.lock, 20);
    eventually(server_integer(server, "LLEN " QUEUE) == 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&of_a->had) == 20 && atomic_load(&of_b->had) == 20);
    bool a_first = of_a->tokens[0] < of_b->tokens[0];
    const struct queue *first = a_first ? of_a : of_b, *second = a_first ? of_b : of_a;
    for (int i = 0; i < 20; i++) {
        assert_true(first->tokens[i] < second->tokens[i]);
        assert_true(i == 19 || second->tokens[i] < first->tokens[i + 1]);
    }
    assert_int_equal(stats_of(a.client).handoffs + stats_of(b.client).handoffs, 0);
    nothing_is_left();
    part(&holder);
    part(&a);
    part(&b);
    free(of_a);
    free(of_b);
}

/* The budget is used up and nobody else waits: the client goes on with a new grant. */
static void goes_on_alone(void **state)
{
    (void)state;
    struct member member;
    struct queue *queue = calloc(1, sizeof *queue);
    join_with(&member, server_url(server),
              (struct dlock_options){.handoff_max = 5, .handoff_ms = 60000});
    dlock_hold *hold = acquired(member.lock);
    enqueue(queue, member.lock, 20);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&queue->had) == 20);
    assert_int_equal(stats_of(member.client).attempts, 1);
    assert_int_equal(stats_of(member.client).handoffs, 16);
    for (int i = 1; i < 20; i++)
        assert_true(queue->tokens[i] > queue->tokens[i - 1]);
    nothing_is_left();
    part(&member);
    free(queue);
}

/* One that has no thread, alone: it asks once more when its client listens, and is woken. */
static void a_lone_started_waiter(void **state)
{
    (void)state;
    struct member holder, other;
    struct queue *queue = calloc(1, sizeof *queue);
    join(&holder);
    join(&other);
    dlock_hold *hold = acquired(holder.lock);
    enqueue(queue, other.lock, 1);
    eventually(attempts(&other) == 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&queue->had) == 1);
    assert_int_equal(stats_of(other.client).missed_wakeups, 0);
    nothing_is_left();
    part(&other);
    part(&holder);
    free(queue);
}

/* The client has it, whichever of its owners acquired. */
static void inspected(void **state)
{
    (void)state;
    struct member member;
    struct dlock_holder holder = {.size = sizeof holder};
    join(&member);
    dlock_hold *hold = acquired(member.lock);
    assert_status(dlock_inspect(member.lock, &holder), OK);
    assert_true(holder.held);
    assert_string_equal(holder.owner, dlock_client_id(member.client));
    assert_true(holder.ttl_ms > 0 && holder.ttl_ms <= 60000);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(dlock_inspect(member.lock, &holder), OK);
    assert_false(holder.held);
    part(&member);
}

/* Who is kept out by its own client's holder is told so, and until when. */
static void kept_out_by_its_own_client(void **state)
{
    (void)state;
    struct member member;
    dlock_hold *none;
    join(&member);
    dlock_hold *hold = acquired(member.lock);
    assert_status(tried(member.lock, &none), BUSY);
    assert_says(dlock_error(), "': another hold of this client has the lock; held by '");
    assert_says(dlock_error(), "' (of this thread) for ");
    struct dlock_want want = {.size = sizeof want, .wait_ms = 20};
    assert_status(dlock_acquire(member.lock, &want, &none), TIMED_OUT);
    assert_says(dlock_error(),
                "' was not acquired within 20 ms: another hold of this client has the lock");
    assert_status(dlock_release(hold, NULL), OK);
    part(&member);
}

/* The same owner asks again: let in without the server, and the lock stays until the last release.
 */
static void nested(void **state)
{
    (void)state;
    struct member member, other;
    join(&member);
    join(&other);
    dlock_hold *outer = acquired_by(member.lock, OWNER);
    uint64_t commands = stats_of(member.client).commands;
    dlock_hold *inner = acquired_by(member.lock, OWNER);
    assert_true(dlock_token(inner) > dlock_token(outer));
    assert_true(dlock_valid(inner));
    dlock_hold *none;
    assert_status(tried(other.lock, &none), BUSY);
    assert_status(dlock_release(outer, NULL), OK);
    assert_int_equal(stats_of(member.client).commands, commands);
    assert_status(tried(other.lock, &none), BUSY);
    assert_status(dlock_release(inner, NULL), OK);
    nothing_is_left();
    part(&member);
    part(&other);
}

/* A grant of the server stands for a thousand tokens, and each acquisition uses one up. */
static void nested_as_often_as_there_are_tokens(void **state)
{
    (void)state;
    struct member member;
    join(&member);
    dlock_hold *outer = acquired_by(member.lock, OWNER), *none;
    for (int i = 1; i < 1000; i++) {
        dlock_hold *inner = acquired_by(member.lock, OWNER);
        assert_int_equal(dlock_token(inner), dlock_token(outer) + (uint64_t)i);
        assert_status(dlock_release(inner, NULL), OK);
    }
    assert_status(tried_by(member.lock, OWNER, &none), LIMIT);
    assert_says(dlock_error(), "1000 times");
    assert_true(dlock_valid(outer));
    uint64_t token = dlock_token(outer);
    assert_status(dlock_release(outer, NULL), OK);
    nothing_is_left();
    outer = acquired_by(member.lock, OWNER);
    assert_true(dlock_token(outer) >= token + 1000);
    assert_status(dlock_release(outer, NULL), OK);
    part(&member);
}

/* Nobody is let by: a try fails while others wait, be it in this client or another. */
static void nobody_gets_by(void **state)
{
    (void)state;
    struct member holder, waiting, late;
    /* A waiter asks again after half of this: not while its commands are counted. */
    struct dlock_options patient = {.grant_ms = 20000};
    join_with(&holder, server_url(server), patient);
    join_with(&waiting, server_url(server), patient);
    join_with(&late, server_url(server), patient);
    dlock_hold *hold = acquired(holder.lock), *none;
    line_up(&waiting, 1);
    /* SUBSCRIBE and two attempts. An attempt is counted before its command. */
    eventually(stats_of(waiting.client).commands == 3);
    assert_status(tried(waiting.lock, &none), BUSY);
    assert_int_equal(stats_of(waiting.client).commands, 3);
    assert_status(tried(late.lock, &none), BUSY);
    assert_int_equal(server_integer(server, "LLEN " QUEUE), 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiting.waiter), OK);
    assert_status(dlock_release(waiting.waiter.hold, NULL), OK);
    nothing_is_left();
    part(&holder);
    part(&waiting);
    part(&late);
}

/* The hold is lost, and its holder does not notice: whoever waits in this client does not wait for
 * it. */
static void nobody_waits_for_who_lost_it(void **state)
{
    (void)state;
    struct member member;
    join_with(&member, server_url(server), (struct dlock_options){.ttl_ms = 3000});
    dlock_hold *hold = acquired(member.lock);
    waiter_start(&member.waiter);
    uint64_t token = dlock_token(hold);
    server_integer(server, "DEL " LOCK);
    must(dlock_valid(hold));
    eventually(stats_of(member.client).lost == 1);
    assert_status(waiter_end(&member.waiter), OK);
    assert_true(dlock_token(member.waiter.hold) > token);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_true(dlock_valid(member.waiter.hold));
    assert_status(dlock_release(member.waiter.hold, NULL), OK);
    nothing_is_left();
    part(&member);
}

/* Whoever is chosen waits for what the holder still sends. Who may not wait that long is not. */
static void who_must_be_answered_soon_is_not_chosen(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member member;
    join_with(&member, proxy_url(proxy),
              (struct dlock_options){
                  .handoff_ms = 60000, .ttl_ms = 60000000, .command_timeout_ms = 60000});
    struct releaser releaser = {.hold = acquired(member.lock), .last = dlock_batch_new()};
    struct started waits = {0};
    assert_status(dlock_batch_add(releaser.last, 2, (const char *const[]){"INCR", "sold"}, NULL),
                  OK);
    start(member.lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .call_max_ms = 2000}, &waits);
    proxy_plan(proxy, PROXY_HOLD_REQUEST, "sold", NULL, 0);
    releaser_start(&releaser);
    eventually(proxy_done(proxy));
    started_answered(&waits);
    assert_int_not_equal(waits.status, DLOCK_OK);
    assert_false(atomic_load(&releaser.over));
    proxy_let_go(proxy);
    assert_int_equal(releaser_end(&releaser), DLOCK_OK);
    dlock_batch_free(releaser.last);
    nothing_is_left();
    part(&member);
    proxy_free(proxy);
}

/* An operator frees it: the next in the queue has it, and whoever had it learns that. */
static void broken_open(void **state)
{
    (void)state;
    struct member holder, next;
    join_with(&holder, server_url(server), (struct dlock_options){.ttl_ms = 3000});
    join(&next);
    dlock_hold *hold = acquired(holder.lock);
    line_up(&next, 1);
    struct dlock_holder was = {.size = sizeof was};
    assert_status(dlock_break(next.lock, &was), OK);
    assert_true(was.held);
    assert_memory_equal(was.owner, dlock_owner(hold), 36);
    assert_status(waiter_end(&next.waiter), OK);
    assert_true(dlock_token(next.waiter.hold) > dlock_token(hold));
    eventually(stats_of(holder.client).lost == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_status(dlock_release(next.waiter.hold, NULL), OK);
    assert_status(dlock_break(next.lock, &was), OK);
    assert_false(was.held);
    nothing_is_left();
    part(&next);
    part(&holder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle),
        cmocka_unit_test(handed_on_in_order_and_only_the_next_is_woken),
        cmocka_unit_test(passed_on_inside_the_client),
        cmocka_unit_test(a_long_line_is_no_slower),
        cmocka_unit_test(strict_alternation),
        cmocka_unit_test(goes_on_alone),
        cmocka_unit_test(a_lone_started_waiter),
        cmocka_unit_test(inspected),
        cmocka_unit_test(kept_out_by_its_own_client),
        cmocka_unit_test(nested),
        cmocka_unit_test(nested_as_often_as_there_are_tokens),
        cmocka_unit_test(nobody_gets_by),
        cmocka_unit_test(nobody_waits_for_who_lost_it),
        cmocka_unit_test(who_must_be_answered_soon_is_not_chosen),
        cmocka_unit_test(broken_open),
    };
    return cmocka_run_group_tests_name("fair", tests, start_server, stop_server);
}
