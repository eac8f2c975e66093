/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `notify`: mutual exclusion, who is woken, and its token.
 */
#include "calls.h"
#include "must.h"
#include "notify_stage.h"
#include "patient.h"
#include "record.h"
#include "redisson.h"
#include "validate.h"
#include "waiter.h"

#include <stdio.h>
#include <string.h>

#define CLIENTS 2
#define CROWD 10 /* half of each client */
#define HOUR_US 3600000000

/* Connections to the server that are subscribed to anything. */
static size_t listening_connections(void)
{
    size_t count = 0;
    for (const char *at = server_text(server, "CLIENT LIST TYPE pubsub"); *at != '\0'; at++)
        count += *at == '\n';
    return count;
}

/* ---- Exclusion ------------------------------------------------------------------------------- */

static void oracle_of(const struct rung_ops *ops, int processes, int threads)
{
    const char *servers[] = {server_url(server), NULL};
    server_text(server, "FLUSHALL");
    assert_true(oracle_agrees(&(struct oracle){
        .ops = ops,
        .servers = servers,
        .expected = HOLDS,
        .processes = processes,
        .threads = threads,
        .rounds = 12,
        .riding = true,
    }));
    assert_int_equal(server_integer(server, "EXISTS %s", ORACLE_LOCK), 0);
}

static void oracle(void **state)
{
    (void)state;
    oracle_of(&rung_notify, 2, 4);
    oracle_of(&rung_notify, 4, 1);
}

/* Woken by messages alone, whether one of a client contends or each. */
static void oracle_without_polling(void **state)
{
    (void)state;
    oracle_of(patient(), 2, 4);
    oracle_of(patient_each(), 2, 4);
}

/* ---- Who is woken ---------------------------------------------------------------------------- */

/* The one of the crowd that has it by now. */
static struct waiter *winner(struct waiter *waiters)
{
    for (int i = 0;; i = (i + 1) % CROWD) {
        if (atomic_load(&waiters[i].over) && waiters[i].hold != NULL)
            return &waiters[i];
        short_pause();
    }
}

/* A crowd of two clients: at each release one waiter of each client tries, however many stand
 * behind it; and each waiter tries at most twice when its turn comes, before and after the lock is
 * listened to. A herd would try about twice as often as that. */
static void one_of_each_client_is_woken(void **state)
{
    (void)state;
    struct side holder = patient_side();
    struct side sides[CLIENTS];
    struct waiter waiters[CROWD];
    dlock_hold *hold = acquired(holder.lock);
    atomic_store(&patient_answered, 0);
    for (int i = 0; i < CLIENTS; i++)
        sides[i] = patient_side();
    for (int i = 0; i < CROWD; i++) {
        waiters[i] = (struct waiter){.lock = sides[i % CLIENTS].lock,
                                     .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        waiter_start(&waiters[i]);
    }
    eventually(answered() >= 2 * CLIENTS && subscribers(server) == CLIENTS);
    uint64_t tries_max = answered() + 2 * CROWD;
    int left[CLIENTS] = {CROWD / CLIENTS, CROWD / CLIENTS};
    for (int over = 0; over < CROWD; over++) {
        tries_max += left[0] > 0 && left[1] > 0 ? 2 : 1;
        released(hold);
        struct waiter *had = winner(waiters);
        hold = had->hold;
        had->hold = NULL;
        left[(had - waiters) % CLIENTS]--;
    }
    released(hold);
    for (int i = 0; i < CROWD; i++)
        assert_status(waiter_end(&waiters[i]), OK);
    assert_in_range(answered(), CROWD, tries_max);
    for (int i = 0; i < CLIENTS; i++)
        side_close(&sides[i]);
    side_close(&holder);
}

/* How often that owner has asked. */
static size_t tries_of(struct record *trace, int owner_id)
{
    char owner[16];
    snprintf(owner, sizeof owner, ":x%d.", owner_id);
    return record_count(trace, owner);
}

/* One contends, the others of its client stand behind it, silent, and are served in their order. */
static void the_others_of_a_client_are_silent(void **state)
{
    (void)state;
    struct record *trace = record_new();
    struct side holder = patient_side();
    struct side side = {
        .client = client_of(server_url(server), (struct dlock_options){.on_trace = record_trace,
                                                                       .on_trace_arg = trace})};
    assert_status(dlock_open_ops(side.client, patient(), LOCK, &side.lock), OK);
    dlock_cancel *cancel = dlock_cancel_new();
    struct waiter waiters[] = {
        {.lock = side.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = 1}},
        {.lock = side.lock, .want = {.wait_ms = 60000, .owner_id = 2, .cancel = cancel}},
        {.lock = side.lock, .want = {.wait_ms = 50, .owner_id = 3}},
        {.lock = side.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = 4}},
    };
    dlock_hold *hold = acquired(holder.lock);
    waiter_start(&waiters[0]);
    eventually(tries_of(trace, 1) >= 2 && subscribers(server) == 1);
    waiter_start(&waiters[1]);
    waiter_start(&waiters[2]);
    assert_status(waiter_end(&waiters[2]), TIMED_OUT);
    assert_says(waiters[2].error, LOCK);
    dlock_cancel_now(cancel);
    assert_status(waiter_end(&waiters[1]), CANCELLED);
    assert_says(waiters[1].error, LOCK);
    waiter_start(&waiters[3]);
    released(hold);
    assert_status(waiter_end(&waiters[0]), OK);
    assert_false(atomic_load(&waiters[3].over));
    released(waiters[0].hold);
    must_have_it(&waiters[3]);
    assert_int_equal(tries_of(trace, 2) + tries_of(trace, 3), 0);
    dlock_cancel_free(cancel);
    side_close(&side);
    side_close(&holder);
    record_free(trace);
}

/* Whoever holds the lock does not stand in line for it behind those who wait for its release. */
static void an_owner_passes_those_who_wait(void **state)
{
    (void)state;
    struct side side = patient_side();
    struct waiter waiter;
    dlock_hold *hold = acquired_by(side.lock, OWNER);
    let_wait(&waiter, &side);
    released(acquired_by(side.lock, OWNER));
    assert_false(atomic_load(&waiter.over));
    released(hold);
    must_have_it(&waiter);
    side_close(&side);
}

static void a_listener_can_be_cancelled_and_times_out(void **state)
{
    (void)state;
    struct side holder = patient_side();
    struct side side = patient_side();
    struct waiter waiter, hasty = {.lock = side.lock, .want = {.wait_ms = 50}};
    dlock_hold *hold = acquired(holder.lock);
    dlock_cancel *cancel = dlock_cancel_new();
    waiter = (struct waiter){.lock = side.lock,
                             .want = {.wait_ms = DLOCK_WAIT_FOREVER, .cancel = cancel}};
    waiter_start(&waiter);
    eventually(answered() >= 2 && subscribers(server) == 1);
    dlock_cancel_now(cancel);
    assert_status(waiter_end(&waiter), CANCELLED);
    assert_says(waiter.error, LOCK);
    waiter_start(&hasty);
    assert_status(waiter_end(&hasty), TIMED_OUT);
    assert_says(hasty.error, "50 ms");
    released(hold);
    dlock_cancel_free(cancel);
    dlock_close(side.lock); /* then nobody listens any more */
    eventually(subscribers(server) == 0);
    dlock_client_close(side.client);
    side_close(&holder);
}

/* Whatever the number of locks that a client waits for. */
static void a_client_listens_on_one_connection(void **state)
{
    (void)state;
    struct side holder = patient_side();
    struct side side = patient_side();
    struct waiter waiter, another;
    dlock *second, *seconds;
    dlock_hold *hold = acquired(holder.lock);
    assert_status(dlock_open_ops(holder.client, patient(), "M", &second), OK);
    assert_status(dlock_open_ops(side.client, patient(), "M", &seconds), OK);
    dlock_hold *other = acquired(second);
    let_wait(&waiter, &side);
    another = (struct waiter){.lock = seconds, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&another);
    eventually(server_ask(server, "PUBSUB NUMSUB redisson_lock__channel:{M}")->element[1]->integer);
    assert_int_equal(listening_connections(), 1);
    released(other);
    must_have_it(&another);
    released(hold);
    must_have_it(&waiter);
    dlock_close(second);
    dlock_close(seconds);
    side_close(&side);
    side_close(&holder);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

/* The next token is the newest one, and above what it was. */
static uint64_t next_token(struct side *side, uint64_t above)
{
    dlock_hold *hold = acquired_by(side->lock, OWNER);
    uint64_t token = dlock_token(hold);
    assert_true(token > above);
    assert_int_equal(token, newest_token());
    released(hold);
    return token;
}

/* Over clients and nested holds, and over a counter that was evicted or lost with all the rest. */
static void tokens_grow(void **state)
{
    (void)state;
    struct side sides[CLIENTS] = {patient_side(), patient_side()};
    uint64_t token = (uint64_t)server_us(server);
    for (int i = 0; i < 10; i++)
        token = next_token(&sides[i % CLIENTS], token);
    dlock_hold *hold = acquired_by(sides[0].lock, OWNER);
    uint64_t nested = next_token(&sides[0], dlock_token(hold));
    released(hold);
    server_integer(server, "DEL " TOKEN);
    token = next_token(&sides[1], nested);
    server_text(server, "FLUSHALL");
    token = next_token(&sides[0], token);
    assert_true(token <= (uint64_t)server_us(server));
    for (int i = 0; i < CLIENTS; i++)
        side_close(&sides[i]);
}

/* A clock that stepped back gives no smaller token: one more than the last. */
static void tokens_grow_while_the_clock_is_behind(void **state)
{
    (void)state;
    struct side side = patient_side();
    uint64_t ahead = (uint64_t)server_us(server) + HOUR_US;
    server_text(server, "SET " TOKEN " %llu", (unsigned long long)ahead);
    assert_int_equal(next_token(&side, ahead), ahead + 1);
    assert_int_equal(next_token(&side, ahead + 1), ahead + 2);
    side_close(&side);
}

/* The newest token alone, and it does not stay for ever. */
static void no_keys_pile_up(void **state)
{
    (void)state;
    struct side side = patient_side();
    for (int i = 0; i < 20; i++)
        released(acquired(side.lock));
    assert_int_equal(server_integer(server, "DBSIZE"), 1);
    assert_true(server_integer(server, "PTTL " TOKEN) > 0);
    side_close(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(oracle),
        TEST(oracle_without_polling),
        TEST(one_of_each_client_is_woken),
        TEST(the_others_of_a_client_are_silent),
        TEST(an_owner_passes_those_who_wait),
        TEST(a_listener_can_be_cancelled_and_times_out),
        TEST(a_client_listens_on_one_connection),
        TEST(tokens_grow),
        TEST(tokens_grow_while_the_clock_is_behind),
        TEST(no_keys_pile_up),
    };
    return cmocka_run_group_tests_name("notify", tests, start_server, stop_server);
}
