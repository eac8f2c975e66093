/* SPDX-License-Identifier: Apache-2.0
 *
 * rw_counter: it keeps readers and writers apart as long as nobody dies, and a reader that dies
 * keeps every writer out for ever. And three locks that the oracle for readers must find out.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "redis_rung.h"
#include "rw_oracle.h"
#include "waiter.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define LOCK "lock:{counter}"
#define COUNT LOCK ":read_count"
#define A_WHILE_MS 300 /* for what is not to happen */

extern const struct rung_ops rung_rw_counter;

/* ---- Locks that are none --------------------------------------------------------------------- */

static dlock_status let_in(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)env;
    (void)hold;
    (void)busy;
    return DLOCK_OK;
}

static dlock_status let_out(struct rung_env *env, struct dlock_hold *hold)
{
    (void)env;
    (void)hold;
    return DLOCK_OK;
}

static dlock_status take(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    return set.kind == DLOCK_REPLY_NIL ? DLOCK_BUSY : DLOCK_OK;
}

static dlock_status give(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer del = CALL(env, "DEL", hold->key);
    return del.status;
}

static dlock_status writers_take(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    return hold->mode == DLOCK_SHARED ? DLOCK_OK : take(env, hold, busy);
}

static dlock_status writers_give(struct rung_env *env, struct dlock_hold *hold)
{
    return hold->mode == DLOCK_SHARED ? DLOCK_OK : give(env, hold);
}

static const struct rung_ops open_to_all = {
    .name = "open_to_all", .traits = TRAIT_SHARED, .try_acquire = let_in, .release = let_out};
static const struct rung_ops open_to_readers = {.name = "open_to_readers",
                                                .traits = TRAIT_SHARED,
                                                .try_acquire = writers_take,
                                                .release = writers_give};
static const struct rung_ops one_at_a_time = {
    .name = "one_at_a_time", .traits = TRAIT_SHARED, .try_acquire = take, .release = give};

static struct rw_oracle small(const struct rung_ops *ops)
{
    return (struct rw_oracle){
        .ops = ops,
        .url = server_url(server),
        .processes = 2,
        .threads = 4,
        .rounds = 6,
        .wait_ms = PATIENCE_MS,
        .writer_stays_ms = A_WHILE_MS,
        .reader_stays_ms = PATIENCE_MS,
    };
}

static void the_oracle_sees_who_lets_anybody_in(void **state)
{
    const struct rung_ops *const controls[] = {&open_to_all, &open_to_readers};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct rw_oracle oracle = small(controls[i]);
        oracle.writer_stays_ms = PATIENCE_MS;
        struct rw_verdict verdict = rw_oracle_run(&oracle);
        assert_true(verdict.overlaps > 0);
        assert_false(rw_oracle_holds(&oracle, &verdict));
    }
}

static void the_oracle_sees_who_keeps_readers_apart(void **state)
{
    (void)state;
    struct rw_oracle oracle = small(&one_at_a_time);
    oracle.reader_stays_ms = A_WHILE_MS / 10;
    struct rw_verdict verdict = rw_oracle_run(&oracle);
    assert_int_equal(verdict.met, 0);
    assert_int_equal(verdict.overlaps, 0);
    assert_false(rw_oracle_holds(&oracle, &verdict));
}

/* ---- rw_counter ------------------------------------------------------------------------------ */

static void keeps_them_apart_while_nobody_dies(void **state)
{
    (void)state;
    struct rw_oracle oracle = small(&rung_rw_counter);
    struct rw_verdict verdict = rw_oracle_run(&oracle);
    assert_true(rw_oracle_holds(&oracle, &verdict));
    assert_int_equal(server_integer(server, "EXISTS " RW_LOCK), 0);
    assert_string_equal(server_text(server, "GET " RW_LOCK ":read_count"), "0");
}

struct party {
    dlock_client *client;
    dlock *lock;
};

static struct party party_of(const char *name)
{
    struct party party = {.client = client_of(server_url(server), (struct dlock_options){0})};
    assert_status(dlock_open_ops(party.client, &rung_rw_counter, name, &party.lock), OK);
    return party;
}

static void party_over(struct party *party)
{
    dlock_close(party->lock);
    dlock_client_close(party->client);
}

static dlock_status ask(const struct party *party, enum dlock_mode mode, dlock_hold **hold)
{
    struct dlock_want want = {.size = sizeof want, .mode = mode};
    return dlock_acquire(party->lock, &want, hold);
}

/* Reads, and never comes back. */
static int read_for_ever(void *arg)
{
    const char *url = server_url(server);
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &url,
                                    .server_count = 1,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = PATIENCE_MS};
    struct party party;
    dlock_hold *hold;
    must(dlock_client_open(&options, &party.client) == DLOCK_OK);
    must(dlock_open_ops(party.client, &rung_rw_counter, arg, &party.lock) == DLOCK_OK);
    must(ask(&party, DLOCK_SHARED, &hold) == DLOCK_OK);
    for (;;)
        pause();
}

static void kill_a_reader(char *name)
{
    pid_t pid = child_start(read_for_ever, name);
    eventually(server_integer(server, "STRLEN %s:read_count", name) > 0);
    eventually(strcmp(server_text(server, "GET %s:read_count", name), "1") == 0);
    kill(pid, SIGKILL);
    assert_int_equal(child_wait(pid), 128 + SIGKILL);
}

/* The flaw: the count stays, nothing ever takes it away, and no writer comes in again. */
static void a_dead_reader_keeps_writers_out_for_ever(void **state)
{
    static char name[] = LOCK;
    (void)state;
    dlock_hold *hold;
    kill_a_reader(name);
    struct party party = party_of(LOCK);
    for (int i = 0; i < 20; i++)
        assert_status(ask(&party, DLOCK_EXCLUSIVE, &hold), BUSY);
    assert_status(ask(&party, DLOCK_SHARED, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_string_equal(server_text(server, "GET " COUNT), "1");
    assert_int_equal(server_integer(server, "PTTL " COUNT), -1);
    party_over(&party);
}

/* What an operator must do about it. */
static void broken_by_an_operator(void **state)
{
    static char name[] = LOCK;
    (void)state;
    dlock_hold *hold;
    struct dlock_holder broken = {.size = sizeof broken};
    kill_a_reader(name);
    struct party party = party_of(LOCK);
    assert_status(dlock_break(party.lock, &broken), OK);
    assert_false(broken.held); /* it knows its writer alone */
    assert_int_equal(server_integer(server, "EXISTS " COUNT), 0);
    assert_status(ask(&party, DLOCK_EXCLUSIVE, &hold), OK);
    assert_status(dlock_break(party.lock, &broken), OK);
    assert_true(broken.held);
    assert_string_equal(broken.owner, "WRITE");
    assert_status(dlock_release(hold, NULL), LOST);
    party_over(&party);
}

static void the_oracle_sees_the_dead_reader(void **state)
{
    static char name[] = RW_LOCK;
    (void)state;
    kill_a_reader(name);
    struct rw_oracle oracle = small(&rung_rw_counter);
    oracle.wait_ms = A_WHILE_MS;
    oracle.rounds = 2;
    struct rw_verdict verdict = rw_oracle_run(&oracle);
    assert_int_equal(verdict.writes, 0);
    assert_true(verdict.kept_out > 0);
    assert_int_equal(verdict.overlaps, 0);
    assert_false(rw_oracle_holds(&oracle, &verdict));
}

/* Each reader comes before the one before it goes: a writer waits as long as they do so. */
static void endless_readers_starve_a_writer(void **state)
{
    (void)state;
    struct party party = party_of(LOCK);
    struct waiter writer = {.lock = party.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    dlock_hold *hold;
    assert_status(ask(&party, DLOCK_SHARED, &hold), OK);
    waiter_start(&writer);
    eventually(stats_of(party.client).contended == 1);
    for (int i = 0; i < 50; i++) {
        dlock_hold *next;
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = PATIENCE_MS, .mode = DLOCK_SHARED};
        assert_status(dlock_acquire(party.lock, &want, &next), OK);
        assert_status(dlock_release(hold, NULL), OK);
        hold = next;
    }
    assert_false(atomic_load(&writer.over));
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&writer), OK);
    assert_status(dlock_release(writer.hold, NULL), OK);
    party_over(&party);
}

static void who_comes_in_vain_leaves_nothing(void **state)
{
    (void)state;
    struct party party = party_of(LOCK);
    dlock_hold *reader, *writer, *none;
    assert_status(ask(&party, DLOCK_SHARED, &reader), OK);
    assert_status(ask(&party, DLOCK_EXCLUSIVE, &none), BUSY);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    assert_status(dlock_release(reader, NULL), OK);
    assert_status(ask(&party, DLOCK_EXCLUSIVE, &writer), OK);
    assert_status(ask(&party, DLOCK_SHARED, &none), BUSY);
    assert_status(ask(&party, DLOCK_EXCLUSIVE, &none), BUSY);
    assert_string_equal(server_text(server, "GET " COUNT), "0");
    assert_string_equal(server_text(server, "GET " LOCK), "WRITE");
    assert_status(dlock_release(writer, NULL), OK);
    server_integer(server, "RPUSH " LOCK " x");
    assert_status(ask(&party, DLOCK_SHARED, &none), WRONG_TYPE);
    assert_string_equal(server_text(server, "GET " COUNT), "0");
    party_over(&party);
}

/* Between the two a writer may still be inside: what rides goes with the look, and once. */
static void rides_not_yet(void *arg, const char *rung, const char *at)
{
    (void)rung;
    if (strcmp(at, "between_say_and_look") == 0)
        must(monitor_count(arg, "\"GET\" \"stock\"") == 0);
}

static void what_rides_goes_with_the_look(void **state)
{
    (void)state;
    for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        struct monitor *monitor = monitor_start(server);
        struct party party = {.client = client_of(server_url(server), (struct dlock_options){
                                                                          .on_point = rides_not_yet,
                                                                          .on_point_arg = monitor,
                                                                      })};
        struct dlock_want want = {.size = sizeof want, .mode = mode, .reads = dlock_batch_new()};
        struct dlock_reply reply = {.size = sizeof reply};
        const char *const get[] = {"GET", "stock"};
        dlock_hold *hold;
        server_text(server, "SET stock 7");
        assert_status(dlock_open_ops(party.client, &rung_rw_counter, LOCK, &party.lock), OK);
        assert_status(dlock_batch_add(want.reads, 2, get, NULL), OK);
        assert_status(dlock_acquire(party.lock, &want, &hold), OK);
        assert_status(dlock_batch_reply(want.reads, 0, &reply), OK);
        assert_string_equal(reply.text, "7");
        assert_int_equal(monitor_count(monitor, "\"GET\" \"stock\""), 1);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_batch_free(want.reads);
        party_over(&party);
        monitor_free(monitor);
    }
}

#define TEST(name) cmocka_unit_test_setup(name, empty_server)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_oracle_sees_who_lets_anybody_in),
        TEST(the_oracle_sees_who_keeps_readers_apart),
        TEST(keeps_them_apart_while_nobody_dies),
        TEST(a_dead_reader_keeps_writers_out_for_ever),
        TEST(broken_by_an_operator),
        TEST(the_oracle_sees_the_dead_reader),
        TEST(endless_readers_starve_a_writer),
        TEST(who_comes_in_vain_leaves_nothing),
        TEST(what_rides_goes_with_the_look),
    };
    return cmocka_run_group_tests_name("rw_counter", tests, start_server, stop_server);
}
