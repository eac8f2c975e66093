/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `read_write`: readers and writers take turns, so that neither kind starves the other;
 * and who is told when the lock is released.
 */
#include "calls.h"
#include "must.h"
#include "read_write_stage.h"
#include "started.h"
#include "waiter.h"

#include <stdatomic.h>

#define CROWD 20

/* The one that came in; those that did before have no lock any more. */
static int next_in(const struct waiter *waiters, int count)
{
    for (int i = 0;; i = (i + 1) % count) {
        if (waiters[i].lock != NULL && atomic_load(&waiters[i].over))
            return i;
        if (i == 0)
            short_pause();
    }
}

/* ---- Nobody starves the other kind ----------------------------------------------------------- */

/* However many come: once a writer waits, only who reads already is let in, for it would wait for
 * itself. */
static void endless_readers_and_a_writer(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter writer;
    dlock_hold *one = read_of(&party, 1), *two = read_of(&party, 2);
    waits(&writer, &other, DLOCK_EXCLUSIVE, 1);
    assert_kept_out(&other, DLOCK_SHARED, 2);
    assert_says(dlock_error(), dlock_owner(two)); /* who reads until when, as far as is known */
    for (uint64_t i = 0; i < CROWD; i++) {
        dlock_hold *again = read_of(&party, 1);
        let_go(one);
        one = again;
        assert_kept_out(&party, DLOCK_SHARED, 10 + i);
        assert_kept_out(&other, DLOCK_SHARED, 10 + i);
    }
    let_go(one);
    assert_kept_out(&party, DLOCK_SHARED, 1); /* it does not read any more */
    assert_false(atomic_load(&writer.over));
    let_go(two);
    let_go(comes_in(&writer));
    let_go(read_of(&party, 1));
    assert_clean();
    party_over(&party);
    party_over(&other);
}

/* Whoever waited to read through a write comes before the writers that wait, each time. */
static void endless_writers_and_readers(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter writers[CROWD], readers[2];
    dlock_hold *write = write_of(&party, 1000);
    for (uint64_t i = 0; i < CROWD; i++)
        waits(&writers[i], i % 2 == 0 ? &party : &other, DLOCK_EXCLUSIVE, 1 + i);
    for (int turn = 0; turn < CROWD; turn++) {
        waits(&readers[0], &party, DLOCK_SHARED, 2000);
        waits(&readers[1], &other, DLOCK_SHARED, 2000);
        let_go(write);
        dlock_hold *one = comes_in(&readers[0]), *two = comes_in(&readers[1]);
        /* as many writers as before: none came between, and none does now */
        assert_int_equal(count_of(WAITING_WRITERS), CROWD - turn);
        assert_kept_out(&party, DLOCK_SHARED, 3000); /* who was not there waits */
        let_go(one);
        let_go(two);
        int next = next_in(writers, CROWD);
        write = comes_in(&writers[next]);
        writers[next].lock = NULL;
        assert_int_equal(count_of(WAITING_WRITERS), CROWD - turn - 1);
    }
    let_go(write);
    assert_clean();
    party_over(&party);
    party_over(&other);
}

/* An owner that reads comes in again though its client's writers fill every place to wait in. */
static void many_writers_do_not_stand_in_a_readers_way(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    struct waiter writers[2 * CROWD], again = {.lock = party.lock};
    dlock_hold *read = read_of(&party, 1);
    for (uint64_t i = 0; i < 2 * CROWD; i++) {
        writers[i] = (struct waiter){.lock = party.lock,
                                     .want = {.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = 2 + i}};
        waiter_start(&writers[i]);
    }
    eventually(count_of(WAITING_WRITERS) > 0);
    again.want =
        (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .mode = DLOCK_SHARED, .owner_id = 1};
    waiter_start(&again);
    assert_status(waiter_end(&again), OK);
    let_go(again.hold);
    let_go(read);
    for (int left = 2 * CROWD; left > 0; left--) {
        struct waiter *writer = &writers[next_in(writers, 2 * CROWD)];
        assert_status(waiter_end(writer), OK);
        let_go(writer->hold);
        writer->lock = NULL;
    }
    assert_clean();
    party_over(&party);
}

/* More than a client lets try at a time: all are in at once all the same. */
static void a_crowd_of_readers_comes_in_together(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter readers[2 * CROWD];
    dlock_hold *write = write_of(&other, 1);
    for (uint64_t i = 0; i < 2 * CROWD; i++) {
        readers[i] = (struct waiter){
            .lock = party.lock,
            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .mode = DLOCK_SHARED, .owner_id = 1 + i}};
        waiter_start(&readers[i]);
    }
    eventually(count_of(WAITING_READERS) > 0);
    let_go(write);
    eventually(count_of(LOCK) == 2 * CROWD);
    for (int i = 0; i < 2 * CROWD; i++) {
        assert_status(waiter_end(&readers[i]), OK);
        let_go(readers[i].hold);
    }
    assert_clean();
    party_over(&party);
    party_over(&other);
}

/* Marks whose time is over count for nothing, and go when the next one waits or is invited. */
static void marks_of_the_dead_do_not_pile_up(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    struct waiter reader, writer;
    dlock_hold *write = write_of(&party, 1);
    server_integer(server, "ZADD " WAITING_READERS " 1 gone 2 lost");
    server_integer(server, "ZADD " WAITING_WRITERS " 1 gone 2 lost");
    waits(&reader, &party, DLOCK_SHARED, 2);
    waits(&writer, &party, DLOCK_EXCLUSIVE, 3);
    assert_int_equal(count_of(WAITING_READERS), 1);
    assert_int_equal(count_of(WAITING_WRITERS), 1);
    gives_up(&writer);
    server_integer(server, "ZADD " WAITING_READERS " 1 gone 2 lost");
    let_go(write);
    let_go(comes_in(&reader));
    let_go(write_of(&party, 1)); /* nobody is left who was invited */
    assert_clean();
    party_over(&party);
}

/* A reader died while it waited: its turn comes, and passes. It lasts for as long as the slowest of
 * the invited may take, whoever lets the lock go. */
static void an_invited_reader_that_does_not_come(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    dlock_hold *write = write_of(&party, 1);
    mark_of(WAITING_READERS, "near r1 10");
    mark_of(WAITING_READERS, "far r2 3600000");
    mark_of(WAITING_READERS, "nearer r3 9");
    let_go(write);
    assert_int_equal(count_of(INVITED), 3);
    assert_int_equal(count_of(WAITING_READERS), 0); /* they cost a turn, once */
    assert_in_range(server_integer(server, "PTTL " INVITED), LONG_MS + 1, 3600000);
    let_go(read_of(&party, 1)); /* no writer waits: anybody may read */
    assert_kept_out(&party, DLOCK_EXCLUSIVE, 1);
    server_integer(server, "PEXPIRE " INVITED " 1");
    dlock_hold *next;
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER};
    assert_status(dlock_acquire(party.lock, &want, &next), OK);
    let_go(next);
    assert_clean();
    party_over(&party);
}

/* Another has come, and gone. The writer that it tells asks how long the dead one is awaited. */
static void the_last_reader_of_a_turn_tells_a_writer(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter reader, writer;
    dlock_hold *write = write_of(&party, 1);
    mark_of(WAITING_READERS, "gone r9 60000");
    waits(&reader, &party, DLOCK_SHARED, 2);
    waits(&writer, &other, DLOCK_EXCLUSIVE, 1);
    struct monitor *monitor = monitor_start(server);
    let_go(write);
    dlock_hold *read = comes_in(&reader);
    assert_int_equal(count_of(INVITED), 1);
    server_integer(server, "PEXPIRE " INVITED " 1000");
    long long over_ms = server_integer(server, "PEXPIRETIME " INVITED);
    assert_int_equal(monitor_count(monitor, TOLD_WRITER), 0);
    let_go(read);
    assert_int_equal(monitor_count(monitor, TOLD_WRITER), 1);
    write = comes_in(&writer);
    assert_true((long long)(dlock_token(write) / 1000) >= over_ms);
    let_go(write);
    assert_clean();
    monitor_free(monitor);
    party_over(&party);
    party_over(&other);
}

/* An acquire that waits, on a thread or without, until it has asked once more because it listens.
 */
static void asks_twice(const struct party *party, struct waiter *waiter, struct started *started)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .owner_id = 1000};
    uint64_t before = stats_of(party->client).attempts;
    *waiter = (struct waiter){.lock = party->lock, .want = want};
    if (started == NULL)
        waiter_start(waiter);
    else
        start(party->lock, want, started);
    eventually(stats_of(party->client).attempts == before + 2);
}

/* Nobody is there to tell a writer when the turn of the dead is over: it asks by then, and not when
 * it was told to while another wrote. One that was told so before, at a lock where nothing happens,
 * still waits. */
static void a_turn_that_nobody_takes(void **state)
{
    (void)state;
    for (int has_thread = 0; has_thread < 2; has_thread++) {
        struct party quiet = party_of(LONG_MS), party = party_of(LONG_MS),
                     other = party_of(LONG_MS);
        struct started started = {.release = true};
        struct waiter first, writer;
        dlock_close(quiet.lock);
        assert_status(dlock_open_ops(quiet.client, &rung_read_write, "quiet", &quiet.lock), OK);
        dlock_hold *held = write_of(&quiet, 1), *write = write_of(&party, 1);
        asks_twice(&quiet, &first, NULL);
        asks_twice(&other, &writer, has_thread ? NULL : &started);
        mark_of(WAITING_READERS, "gone r9 100");
        uint64_t before = stats_of(quiet.client).attempts;
        assert_status(dlock_break(party.lock, NULL), OK);
        if (has_thread)
            let_go(comes_in(&writer));
        else
            started_answered(&started);
        assert_int_equal(stats_of(quiet.client).attempts, before);
        assert_status(dlock_release(write, NULL), LOST);
        assert_clean();
        let_go(held);
        let_go(comes_in(&first));
        party_over(&quiet);
        party_over(&party);
        party_over(&other);
    }
}

/* ---- Who is told ----------------------------------------------------------------------------- */

static void nobody_is_told_when_nobody_waits(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    struct monitor *monitor = monitor_start(server);
    let_go(read_of(&party, 1));
    let_go(write_of(&party, 1));
    assert_int_equal(monitor_count(monitor, TOLD), 0);
    monitor_free(monitor);
    party_over(&party);
}

static void the_last_reader_tells_a_writer(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter writers[2];
    dlock_hold *one = read_of(&party, 1), *two = read_of(&party, 2);
    waits(&writers[0], &other, DLOCK_EXCLUSIVE, 1);
    waits(&writers[1], &party, DLOCK_EXCLUSIVE, 3);
    struct monitor *monitor = monitor_start(server);
    let_go(one);
    assert_int_equal(monitor_count(monitor, TOLD), 0);
    let_go(two);
    assert_int_equal(monitor_count(monitor, TOLD_WRITER), 1);
    eventually(atomic_load(&writers[0].over) || atomic_load(&writers[1].over));
    int first = atomic_load(&writers[0].over) ? 0 : 1;
    let_go(comes_in(&writers[first]));
    assert_int_equal(monitor_count(monitor, TOLD_WRITER), 2); /* the other is not lost */
    let_go(comes_in(&writers[1 - first]));
    assert_int_equal(monitor_count(monitor, TOLD), 2);
    assert_clean();
    monitor_free(monitor);
    party_over(&party);
    party_over(&other);
}

/* Nobody is woken who may not come in. One more try is let pass: the last to wait may be about to
 * sleep when the message comes, and then asks once more. */
static void only_who_may_come_in_is_woken(void **state)
{
    (void)state;
    enum { READERS = 6, WRITERS = 4 };
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter writers[WRITERS], readers[READERS];
    dlock_hold *read = read_of(&other, 1);
    waits(&writers[0], &party, DLOCK_EXCLUSIVE, 1);
    eventually(stats_of(party.client).attempts == 2); /* once more when it listens */
    for (uint64_t i = 1; i < WRITERS; i++)
        waits(&writers[i], &party, DLOCK_EXCLUSIVE, 1 + i);
    for (uint64_t i = 0; i < READERS; i++)
        waits(&readers[i], &party, DLOCK_SHARED, 1 + WRITERS + i);
    uint64_t before = stats_of(party.client).attempts;
    let_go(read);
    int first = next_in(writers, WRITERS);
    dlock_hold *write = comes_in(&writers[first]);
    writers[first].lock = NULL;
    assert_in_range(stats_of(party.client).attempts - before, 1, 2);
    before = stats_of(party.client).attempts;
    let_go(write);
    for (int i = 0; i < READERS; i++)
        comes_in(&readers[i]);
    assert_in_range(stats_of(party.client).attempts - before, READERS, READERS + 1);
    for (int i = 0; i < READERS; i++)
        let_go(readers[i].hold);
    for (int left = WRITERS - 1; left > 0; left--) {
        int next = next_in(writers, WRITERS);
        let_go(comes_in(&writers[next]));
        writers[next].lock = NULL;
    }
    assert_clean();
    party_over(&party);
    party_over(&other);
}

static void the_last_writer_that_gives_up_lets_readers_in(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter writers[2], reader;
    dlock_hold *read = read_of(&party, 1);
    waits(&writers[0], &other, DLOCK_EXCLUSIVE, 1);
    waits(&writers[1], &other, DLOCK_EXCLUSIVE, 2);
    waits(&reader, &party, DLOCK_SHARED, 2);
    struct monitor *monitor = monitor_start(server);
    gives_up(&writers[0]);
    assert_int_equal(monitor_count(monitor, TOLD), 0);
    assert_kept_out(&party, DLOCK_SHARED, 3);
    gives_up(&writers[1]);
    assert_true(monitor_count(monitor, TOLD_READERS) >= 1);
    assert_int_equal(monitor_count(monitor, TOLD_WRITER), 0);
    let_go(comes_in(&reader));
    let_go(read);
    assert_clean();
    monitor_free(monitor);
    party_over(&party);
    party_over(&other);
}

/* A try that answers BUSY or TIMED_OUT leaves nothing that keeps others out. */
static void who_leaves_leaves_nothing(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    dlock_hold *none, *read = read_of(&party, 1);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 50, .owner_id = 2};
    assert_kept_out(&party, DLOCK_EXCLUSIVE, 2);
    let_go(read_of(&party, 3));
    assert_status(dlock_acquire(party.lock, &want, &none), TIMED_OUT);
    let_go(read_of(&party, 3));
    let_go(read);
    dlock_hold *write = write_of(&party, 1);
    want.mode = DLOCK_SHARED;
    assert_kept_out(&party, DLOCK_SHARED, 2);
    assert_status(dlock_acquire(party.lock, &want, &none), TIMED_OUT);
    let_go(write);
    assert_clean();
    party_over(&party);
}

/* Both wait under names of their own, and the second nests under the first's. */
static void who_nests_leaves_no_mark(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
        const enum dlock_mode modes[] = {i / 2 == 0 ? DLOCK_EXCLUSIVE : DLOCK_SHARED,
                                         i % 2 == 0 ? DLOCK_EXCLUSIVE : DLOCK_SHARED};
        struct waiter waiters[2];
        dlock_hold *write = write_of(&other, 1);
        for (int j = 0; j < 2; j++)
            waits(&waiters[j], &party, modes[j], 7);
        let_go(write);
        for (int j = 0; j < 2; j++) {
            bool upgrade = modes[j] == DLOCK_EXCLUSIVE && modes[1 - j] == DLOCK_SHARED;
            assert_int_equal(waiter_end(&waiters[j]), upgrade ? DLOCK_UPGRADE : DLOCK_OK);
            dlock_cancel_free(waiters[j].want.cancel);
        }
        for (int j = 0; j < 2; j++)
            if (waiters[j].hold != NULL)
                let_go(waiters[j].hold);
        assert_clean();
        party_over(&party);
        party_over(&other);
    }
}

/* One argument: only the test of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(endless_readers_and_a_writer),
        TEST(endless_writers_and_readers),
        TEST(many_writers_do_not_stand_in_a_readers_way),
        TEST(a_crowd_of_readers_comes_in_together),
        TEST(marks_of_the_dead_do_not_pile_up),
        TEST(an_invited_reader_that_does_not_come),
        TEST(the_last_reader_of_a_turn_tells_a_writer),
        TEST(a_turn_that_nobody_takes),
        TEST(nobody_is_told_when_nobody_waits),
        TEST(the_last_reader_tells_a_writer),
        TEST(only_who_may_come_in_is_woken),
        TEST(the_last_writer_that_gives_up_lets_readers_in),
        TEST(who_leaves_leaves_nothing),
        TEST(who_nests_leaves_no_mark),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("read_write_turns", tests, start_server, stop_server);
}
