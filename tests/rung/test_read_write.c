/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `read_write`: readers share and a writer is alone, upgrades are refused and downgrades
 * are not; its tokens, types and names, and who holds it.
 */
#include "calls.h"
#include "must.h"
#include "read_write_stage.h"
#include "rw_oracle.h"
#include "waiter.h"

#include <stdatomic.h>
#include <stdio.h>

/* ---- Together and alone ---------------------------------------------------------------------- */

static void holds_under_the_oracle(void **state)
{
    (void)state;
    struct rw_oracle oracle = {
        .ops = &rung_read_write,
        .url = server_url(server),
        .processes = 3,
        .threads = 4,
        .rounds = 30,
        .wait_ms = PATIENCE_MS,
        .writer_stays_ms = 300,
        .reader_stays_ms = PATIENCE_MS,
    };
    struct rw_verdict verdict = rw_oracle_run(&oracle);
    assert_true(rw_oracle_holds(&oracle, &verdict));
    assert_clean_of(RW_LOCK);
}

static void readers_together_and_a_writer_alone(void **state)
{
    (void)state;
    struct party here = party_of(LONG_MS), there = party_of(LONG_MS);
    dlock_hold *one = read_of(&here, 1), *two = read_of(&here, 2), *three = read_of(&there, 1);
    assert_kept_out(&there, DLOCK_EXCLUSIVE, 2);
    let_go(one);
    let_go(three);
    assert_kept_out(&there, DLOCK_EXCLUSIVE, 2);
    let_go(two);
    dlock_hold *writer = write_of(&there, 2);
    assert_kept_out(&here, DLOCK_SHARED, 1);
    assert_kept_out(&here, DLOCK_EXCLUSIVE, 1);
    assert_kept_out(&there, DLOCK_SHARED, 3);
    let_go(writer);
    assert_clean();
    party_over(&here);
    party_over(&there);
}

static void counted_per_owner_in_any_order(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    dlock_hold *outer = write_of(&party, 1), *middle = read_of(&party, 1),
               *inner = write_of(&party, 1), *last = read_of(&party, 1);
    let_go(outer);
    assert_kept_out(&other, DLOCK_SHARED, 1);
    let_go(middle);
    let_go(inner);
    dlock_hold *reader = read_of(&other, 1); /* the owner only reads by now */
    assert_kept_out(&other, DLOCK_EXCLUSIVE, 2);
    let_go(reader);
    assert_kept_out(&other, DLOCK_EXCLUSIVE, 2);
    let_go(last);
    let_go(write_of(&other, 2));
    assert_clean();
    party_over(&party);
    party_over(&other);
}

/* ---- Upgrade and downgrade ------------------------------------------------------------------- */

static void an_upgrade_is_refused_at_once(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    dlock_hold *one = read_of(&party, 1), *two = read_of(&party, 2), *none = NULL;
    for (uint64_t owner = 1; owner <= 2; owner++) {
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .owner_id = owner};
        assert_status(dlock_acquire(party.lock, &want, &none), UPGRADE);
        assert_null(none);
        assert_says(dlock_error(), LOCK);
        assert_says(dlock_error(), "release first");
        assert_true(dlock_status_definite(DLOCK_UPGRADE));
    }
    assert_int_equal(server_integer(server, "EXISTS " WAITING_WRITERS), 0); /* it does not wait */
    assert_true(dlock_valid(one));
    let_go(two);
    assert_status(ask(&party, DLOCK_EXCLUSIVE, 1, &none), UPGRADE); /* alone, too */
    let_go(one);
    let_go(write_of(&party, 1));
    assert_clean();
    party_over(&party);
}

static void a_downgrade_lets_waiting_readers_in(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter reader, writer;
    dlock_hold *write = write_of(&party, 1), *read = read_of(&party, 1), *none;
    waits(&reader, &other, DLOCK_SHARED, 1);
    waits(&writer, &other, DLOCK_EXCLUSIVE, 2);
    struct monitor *monitor = monitor_start(server);
    let_go(write);
    assert_int_equal(monitor_count(monitor, TOLD_READERS), 1);
    assert_int_equal(monitor_count(monitor, TOLD), 1);
    dlock_hold *second = comes_in(&reader);
    assert_status(ask(&party, DLOCK_EXCLUSIVE, 1, &none), UPGRADE); /* it gave that up */
    assert_false(atomic_load(&writer.over));
    let_go(read);
    assert_int_equal(monitor_count(monitor, TOLD), 1); /* one still reads */
    let_go(second);
    assert_int_equal(monitor_count(monitor, TOLD_WRITER), 1);
    let_go(comes_in(&writer));
    assert_clean();
    monitor_free(monitor);
    party_over(&party);
    party_over(&other);
}

/* ---- Tokens, types, names, who holds it ------------------------------------------------------ */

static void tokens_grow(void **state)
{
    (void)state;
    struct party here = party_of(LONG_MS), there = party_of(LONG_MS);
    uint64_t newest = 0;
    char text[24];
    for (int i = 0; i < 40; i++) {
        struct party *party = i % 2 == 0 ? &here : &there;
        if (i == 10) /* evicted */
            server_integer(server, "DEL " TOKEN);
        if (i == 20) /* drawn when the server's clock was far ahead */
            server_text(server, "SET " TOKEN " 4000000000000000");
        dlock_hold *outer = had(party, i % 3 == 0 ? DLOCK_SHARED : DLOCK_EXCLUSIVE, 1);
        dlock_hold *inner = read_of(party, 1);
        assert_true(dlock_token(outer) > newest);
        assert_true(dlock_token(inner) > dlock_token(outer));
        newest = dlock_token(inner);
        snprintf(text, sizeof text, "%llu", (unsigned long long)newest);
        assert_string_equal(server_text(server, "GET " TOKEN), text);
        long long left_ms = server_integer(server, "PTTL " TOKEN);
        assert_true(left_ms > LONG_MS && left_ms <= 24 * 3600 * 1000);
        let_go(inner);
        let_go(outer);
    }
    assert_int_equal(newest, 4000000000000040);
    party_over(&here);
    party_over(&there);
}

static void a_key_of_another_type_is_said_and_nothing_is_held(void **state)
{
    static const struct {
        const char *key;
        const char *type; /* that it should have */
        bool read, write; /* whether it is in the way */
    } keys[] = {{LOCK, "zset", true, true},
                {HOLDS, "hash", true, true},
                {WAITING_READERS, "zset", true, false},
                {WAITING_WRITERS, "zset", true, true},
                {INVITED, "zset", true, false},
                {TOKEN, "string", true, true}};
    (void)state;
    struct party party = party_of(LONG_MS);
    for (size_t i = 0; i < 6; i++)
        for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
            dlock_hold *hold;
            server_text(server, "FLUSHALL");
            server_integer(server, "RPUSH %s x", keys[i].key);
            dlock_status status = ask(&party, mode, 1, &hold);
            if (mode == DLOCK_SHARED ? keys[i].read : keys[i].write) {
                assert_int_equal(status, DLOCK_WRONG_TYPE);
                char says[160];
                snprintf(says, sizeof says,
                         "'%s' holds a list; %sa lock of rung 'read_write' %s %s", keys[i].key,
                         i == 0 ? "" : "of ", i == 0 ? "is a" : "it is a", keys[i].type);
                assert_says(dlock_error(), says);
                assert_int_equal(server_integer(server, "LLEN %s", keys[i].key), 1);
                assert_true(i == 0 || count_of(LOCK) == 0);
            } else {
                assert_int_equal(status, DLOCK_OK);
                dlock_release(hold, NULL);
            }
        }
    party_over(&party);
}

static void a_name_of_512_bytes(void **state)
{
    (void)state;
    char name[DLOCK_NAME_MAX + 1];
    struct party party = party_of(LONG_MS);
    memset(name, 'n', sizeof name);
    name[DLOCK_NAME_MAX] = '\0';
    dlock_close(party.lock);
    assert_status(dlock_open_ops(party.client, &rung_read_write, name, &party.lock), OK);
    dlock_hold *write = write_of(&party, 1);
    struct waiter reader = {.lock = party.lock,
                            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .mode = DLOCK_SHARED}};
    waiter_start(&reader);
    eventually(server_integer(server, "ZCARD dlock:readers={%s}", name) == 1);
    let_go(write);
    assert_status(waiter_end(&reader), OK);
    let_go(reader.hold);
    party_over(&party);
}

static void who_holds_it(void **state)
{
    (void)state;
    struct party brief = party_of(SHORT_MS), patient = party_of(LONG_MS);
    struct dlock_holder holder = {.size = sizeof holder};
    assert_status(dlock_inspect(brief.lock, &holder), OK);
    assert_false(holder.held);
    dlock_hold *write = write_of(&brief, 1);
    assert_status(dlock_inspect(patient.lock, &holder), OK);
    assert_true(holder.held && holder.ttl_ms > 0 && holder.ttl_ms <= SHORT_MS);
    assert_string_equal(holder.owner, dlock_owner(write));
    dlock_hold *nested = read_of(&brief, 1);
    let_go(write);
    dlock_hold *read = read_of(&patient, 1);
    /* of several, the one who has it for longest as things are */
    assert_status(dlock_inspect(brief.lock, &holder), OK);
    assert_true(holder.held && holder.ttl_ms > SHORT_MS && holder.ttl_ms <= LONG_MS);
    assert_string_equal(holder.owner, dlock_owner(read));
    let_go(nested);
    /* whose time is over holds nothing, though the key is there */
    server_integer(server, "ZADD " LOCK " 1 %s", dlock_owner(read));
    assert_status(dlock_inspect(brief.lock, &holder), OK);
    assert_false(holder.held);
    assert_string_equal(holder.owner, "");
    assert_status(dlock_release(read, NULL), LOST);
    party_over(&brief);
    party_over(&patient);
}

/* All who hold it are out, those who wait are told: readers first, as after a write. */
static void broken_by_an_operator(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(SHORT_MS);
    struct dlock_holder broken = {.size = sizeof broken};
    struct waiter writer, reader;
    assert_status(dlock_break(party.lock, &broken), OK);
    assert_false(broken.held);
    dlock_hold *one = read_of(&party, 1), *two = read_of(&other, 1);
    waits(&writer, &party, DLOCK_EXCLUSIVE, 2);
    waits(&reader, &party, DLOCK_SHARED, 3);
    struct monitor *monitor = monitor_start(server);
    assert_status(dlock_break(other.lock, &broken), OK);
    assert_true(broken.held && broken.ttl_ms > SHORT_MS && broken.ttl_ms <= LONG_MS);
    assert_string_equal(broken.owner, dlock_owner(one));
    assert_int_equal(monitor_count(monitor, TOLD_READERS), 1);
    dlock_hold *next = comes_in(&reader);
    assert_status(dlock_release(one, NULL), LOST);
    assert_status(dlock_release(two, NULL), LOST);
    assert_int_equal(count_of(LOCK), 1);
    let_go(next);
    let_go(comes_in(&writer));
    assert_clean();
    monitor_free(monitor);
    party_over(&party);
    party_over(&other);
}

/* One argument: only the test of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(holds_under_the_oracle),
        TEST(readers_together_and_a_writer_alone),
        TEST(counted_per_owner_in_any_order),
        TEST(an_upgrade_is_refused_at_once),
        TEST(a_downgrade_lets_waiting_readers_in),
        TEST(tokens_grow),
        TEST(a_key_of_another_type_is_said_and_nothing_is_held),
        TEST(a_name_of_512_bytes),
        TEST(who_holds_it),
        TEST(broken_by_an_operator),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("read_write", tests, start_server, stop_server);
}
