/* SPDX-License-Identifier: Apache-2.0
 *
 * read_write's rules, each by its cause: who is let in and who is kept out, who is told, whose time
 * counts, what a lost reply, a dead process and an emptied server leave behind.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "redis_rung.h"
#include "rw_oracle.h"
#include "started.h"
#include "waiter.h"

#include <signal.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LOCK "lock:{rw}"
#define LONG_MS 60000 /* a time to live that no test outlives; a reader's turn, neither */
#define SHORT_MS 3000 /* one that is meant to end */
#define BRIEF_MS 10   /* the shortest grant_ms */
#define CROWD 20

/* The keys beside the lock's. */
#define HOLDS "dlock:holds:" LOCK
#define WAITING_READERS "dlock:readers:" LOCK
#define WAITING_WRITERS "dlock:writers:" LOCK
#define INVITED "dlock:invited:" LOCK
#define TOKEN "dlock:token:" LOCK

extern const struct rung_ops rung_read_write;

/* ---- The stage ------------------------------------------------------------------------------- */

/* A client that acts for several owners: its threads, as far as the lock can tell. */
struct party {
    dlock_client *client;
    dlock *lock;
    struct record *trace;
    struct record *events;
};

static struct party party_at(const char *url, int64_t ttl_ms)
{
    struct party party = {.trace = record_new(), .events = record_new()};
    party.client = client_of(url, (struct dlock_options){
                                      .ttl_ms = ttl_ms,
                                      .grant_ms = LONG_MS,
                                      .on_trace = record_trace,
                                      .on_trace_arg = party.trace,
                                      .on_event = record_event,
                                      .on_event_arg = party.events,
                                  });
    assert_status(dlock_open_ops(party.client, &rung_read_write, LOCK, &party.lock), OK);
    assert_true(dlock_rung_of(party.lock)->shared);
    return party;
}

static struct party party_of(int64_t ttl_ms)
{
    return party_at(server_url(server), ttl_ms);
}

static void party_over(struct party *party)
{
    dlock_close(party->lock);
    dlock_client_close(party->client);
    record_free(party->trace);
    record_free(party->events);
}

/* One try for an owner. */
static dlock_status ask(const struct party *party, enum dlock_mode mode, uint64_t owner,
                        dlock_hold **hold)
{
    struct dlock_want want = {.size = sizeof want, .mode = mode, .owner_id = owner};
    return dlock_acquire(party->lock, &want, hold);
}

static dlock_hold *had(const struct party *party, enum dlock_mode mode, uint64_t owner)
{
    dlock_hold *hold;
    assert_status(ask(party, mode, owner, &hold), OK);
    return hold;
}

#define read_of(party, owner) had(party, DLOCK_SHARED, owner)
#define write_of(party, owner) had(party, DLOCK_EXCLUSIVE, owner)
#define assert_kept_out(party, mode, owner)                                                        \
    do {                                                                                           \
        dlock_hold *nobodys;                                                                       \
        assert_status(ask(party, mode, owner, &nobodys), BUSY);                                    \
        assert_null(nobodys);                                                                      \
    } while (0)
#define let_go(hold) assert_status(dlock_release(hold, NULL), OK)

static long long count_of(const char *key)
{
    return server_integer(server, "ZCARD %s", key);
}

/* One who waits: its mark is there, and counts. */
static void mark_of(const char *marks, const char *who)
{
    assert_int_equal(server_integer(server, "ZADD %s 9999999999999 %s", marks, who), 1);
}

/* Starts to wait for an owner, and until it is known in Redis that it does. */
static void waits(struct waiter *waiter, const struct party *party, enum dlock_mode mode,
                  uint64_t owner)
{
    const char *marks = mode == DLOCK_SHARED ? WAITING_READERS : WAITING_WRITERS;
    long long before = server_integer(server, "ZCOUNT %s 3 +inf", marks);
    *waiter = (struct waiter){.lock = party->lock,
                              .want = {.wait_ms = DLOCK_WAIT_FOREVER,
                                       .mode = mode,
                                       .owner_id = owner,
                                       .cancel = dlock_cancel_new()}};
    waiter_start(waiter);
    eventually(server_integer(server, "ZCOUNT %s 3 +inf", marks) > before);
}

static dlock_hold *comes_in(struct waiter *waiter)
{
    assert_status(waiter_end(waiter), OK);
    dlock_cancel_free(waiter->want.cancel);
    return waiter->hold;
}

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

static void gives_up(struct waiter *waiter)
{
    dlock_cancel_now(waiter->want.cancel);
    assert_status(waiter_end(waiter), CANCELLED);
    dlock_cancel_free(waiter->want.cancel);
}

/* Nothing is left but the newest token. Not DBSIZE: it counts what is over and not yet removed. */
static void assert_clean_of(const char *name)
{
    static const char *const kinds[] = {"holds", "readers", "writers", "invited"};
    assert_int_equal(server_integer(server, "EXISTS %s", name), 0);
    for (size_t i = 0; i < 4; i++)
        if (server_integer(server, "EXISTS dlock:%s:%s", kinds[i], name) != 0)
            failed("dlock:%s:%s is left", kinds[i], name);
    assert_int_equal(server_integer(server, "EXISTS dlock:token:%s", name), 1);
}

#define assert_clean() assert_clean_of(LOCK)

#define TOLD "\"PUBLISH\" \"dlock:free:" LOCK "\""
#define TOLD_READERS TOLD " \"r"  /* and, after a write, until when a writer need not ask */
#define TOLD_WRITER TOLD " \"0\"" /* one of each client */

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

/* ---- Whose time counts ----------------------------------------------------------------------- */

/* A process that has the lock, or waits for it, until it is killed. Started before this one opens a
 * client: a forked child gets none of its threads. */
struct victim {
    enum dlock_mode mode;
    int64_t ttl_ms;
    int64_t grant_ms;
};

static int stay_for_ever(void *arg)
{
    const struct victim *victim = arg;
    const char *url = server_url(server);
    struct dlock_options options = {.size = sizeof options,
                                    .servers = &url,
                                    .server_count = 1,
                                    .ttl_ms = victim->ttl_ms,
                                    .grant_ms = victim->grant_ms,
                                    .connect_timeout_ms = PATIENCE_MS,
                                    .command_timeout_ms = PATIENCE_MS};
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = DLOCK_WAIT_FOREVER, .mode = victim->mode};
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open_ops(client, &rung_read_write, LOCK, &lock) == DLOCK_OK);
    must(dlock_acquire(lock, &want, &hold) == DLOCK_OK);
    for (;;)
        pause();
}

static pid_t victim_start(enum dlock_mode mode, int64_t ttl_ms, int64_t grant_ms, const char *marks)
{
    struct victim victim = {mode, ttl_ms, grant_ms};
    pid_t pid = child_start(stay_for_ever, &victim);
    eventually(count_of(marks) == 1);
    return pid;
}

static void killed(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(child_wait(pid), 128 + SIGKILL);
}

/* When the time of the first that it will be over for is over, by the server's clock. */
static long long first_over_ms(const char *key)
{
    const redisReply *first = server_ask(server, "ZRANGE %s 0 0 WITHSCORES", key);
    assert_int_equal(first->elements, 2);
    return atoll(first->element[1]->str);
}

static void a_dead_reader_delays_a_writer_by_its_own_time(void **state)
{
    (void)state;
    pid_t pid = victim_start(DLOCK_SHARED, SHORT_MS, 0, LOCK);
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    struct waiter writer;
    dlock_hold *living = read_of(&party, 1);
    waits(&writer, &other, DLOCK_EXCLUSIVE, 1);
    killed(pid);
    long long over_ms = first_over_ms(LOCK);
    assert_true(over_ms <= server_us(server) / 1000 + SHORT_MS);
    let_go(living);
    /* The key lives as long as the living reader's hold would have: it is not the key's time. */
    assert_true(server_integer(server, "PTTL " LOCK) > SHORT_MS);
    dlock_hold *write = comes_in(&writer);
    assert_true((long long)(dlock_token(write) / 1000) >= over_ms);
    /* It asked when that time was over, and was told to by the try before. */
    char line[512];
    record_line(other.trace, "(integer) -", record_count(other.trace, "(integer) -") - 1, line,
                sizeof line);
    long long again_ms = atoll(strstr(line, "(integer) -") + strlen("(integer) -"));
    assert_true(again_ms > 0 && again_ms <= SHORT_MS + 2);
    let_go(write);
    assert_clean();
    party_over(&party);
    party_over(&other);
}

static void a_dead_writer_delays_a_reader_by_its_own_time(void **state)
{
    (void)state;
    pid_t pid = victim_start(DLOCK_EXCLUSIVE, SHORT_MS, 0, LOCK);
    struct party party = party_of(LONG_MS);
    struct waiter reader;
    waits(&reader, &party, DLOCK_SHARED, 1);
    killed(pid);
    long long over_ms = first_over_ms(LOCK);
    assert_true(over_ms <= server_us(server) / 1000 + SHORT_MS);
    dlock_hold *read = comes_in(&reader);
    assert_true((long long)(dlock_token(read) / 1000) >= over_ms);
    let_go(read);
    assert_clean();
    party_over(&party);
}

/* It waited, and readers were kept out for it: not for longer than its mark counts, which is its
 * grant_ms beyond when it would have asked. What it wants the lock for is longer. */
static void a_dead_waiting_writer_keeps_readers_out_for_its_marks_time(void **state)
{
    (void)state;
    pid_t reading = victim_start(DLOCK_SHARED, LONG_MS, 0, LOCK);
    pid_t pid = victim_start(DLOCK_EXCLUSIVE, LONG_MS, BRIEF_MS, WAITING_WRITERS);
    struct party party = party_of(LONG_MS);
    struct waiter reader;
    waits(&reader, &party, DLOCK_SHARED, 1);
    killed(pid);
    long long over_ms = first_over_ms(WAITING_WRITERS);
    assert_true(over_ms <= server_us(server) / 1000 + 5000 + BRIEF_MS);
    dlock_hold *read = comes_in(&reader);
    assert_true((long long)(dlock_token(read) / 1000) >= over_ms);
    assert_int_equal(count_of(LOCK), 2); /* the one that reads is still there */
    killed(reading);
    let_go(read);
    party_over(&party);
}

/* It waited, and is invited: for its own grant_ms, short or long, whatever times to live there are.
 */
static void a_dead_waiting_reader_costs_its_own_grant(void **state)
{
    static const struct {
        int64_t grant_ms;
        const char *told;
    } readers[] = {{BRIEF_MS, TOLD " \"r12\""}, {LONG_MS, TOLD " \"r60002\""}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        pid_t writing = victim_start(DLOCK_EXCLUSIVE, LONG_MS, 0, LOCK);
        pid_t pid = victim_start(DLOCK_SHARED, LONG_MS, readers[i].grant_ms, WAITING_READERS);
        struct party party = party_of(SHORT_MS);
        struct monitor *monitor = monitor_start(server);
        killed(pid);
        assert_status(dlock_break(party.lock, NULL), OK);
        assert_int_equal(monitor_count(monitor, readers[i].told), 1);
        killed(writing);
        monitor_free(monitor);
        party_over(&party);
        server_text(server, "FLUSHALL");
    }
}

static void each_reader_is_renewed_for_its_own_time(void **state)
{
    (void)state;
    struct party brief = party_of(SHORT_MS), patient = party_of(LONG_MS);
    dlock_hold *one = read_of(&brief, 1), *nested = read_of(&brief, 1), *two = read_of(&patient, 1);
    server_integer(server, "PEXPIRE " TOKEN " %d", LONG_MS);
    eventually(stats_of(brief.client).renewals >= 4); /* longer than its time to live */
    assert_true(server_integer(server, "PTTL " TOKEN) > LONG_MS);
    long long now_ms = server_us(server) / 1000;
    long long one_ms = atoll(server_text(server, "ZSCORE " LOCK " %s", dlock_owner(one)));
    long long two_ms = atoll(server_text(server, "ZSCORE " LOCK " %s", dlock_owner(two)));
    assert_true(one_ms > now_ms && one_ms <= now_ms + SHORT_MS);
    assert_true(two_ms > now_ms + SHORT_MS && two_ms <= now_ms + LONG_MS);
    assert_true(server_integer(server, "PTTL " LOCK) > SHORT_MS); /* the key lives for all */
    assert_true(dlock_valid(one) && dlock_valid(nested));
    assert_int_equal(stats_of(brief.client).lost, 0);
    let_go(one);
    let_go(nested);
    let_go(two);
    assert_clean();
    party_over(&brief);
    party_over(&patient);
}

/* A full server takes no new data, but a hold is renewed and released. */
static void a_full_server_keeps_its_holds(void **state)
{
    (void)state;
    struct party party = party_of(SHORT_MS);
    dlock_hold *outer = write_of(&party, 1), *inner = read_of(&party, 1);
    server_text(server, "CONFIG SET maxmemory 1");
    uint64_t renewals = stats_of(party.client).renewals;
    eventually(stats_of(party.client).renewals >= renewals + 4);
    assert_int_equal(stats_of(party.client).renewals_failed, 0);
    let_go(outer);
    let_go(inner);
    server_text(server, "CONFIG SET maxmemory 0");
    assert_clean();
    party_over(&party);
}

/* ---- An emptied server ----------------------------------------------------------------------- */

static void an_emptied_server_is_noticed(void **state)
{
    (void)state;
    for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        struct party party = party_of(SHORT_MS);
        dlock_hold *told = had(&party, mode, 1);
        server_text(server, "FLUSHALL");
        eventually(!dlock_valid(told));
        eventually(record_count(party.events, "LOST") == 1);
        assert_status(dlock_release(told, NULL), LOST);
        dlock_hold *not_yet_told = had(&party, mode, 1);
        server_text(server, "FLUSHALL");
        struct party other = party_of(LONG_MS);
        dlock_hold *next = write_of(&other, 1);
        assert_status(dlock_release(not_yet_told, NULL), LOST);
        assert_int_equal(count_of(LOCK), 1); /* and nothing of the next holder's was freed */
        let_go(next);
        party_over(&party);
        party_over(&other);
    }
}

/* An operator deletes the lock's key alone: whoever was in is out, whatever the hash says. */
static void the_hash_alone_holds_nothing(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS), other = party_of(LONG_MS);
    dlock_hold *none, *old = write_of(&party, 1);
    server_integer(server, "DEL " LOCK);
    dlock_hold *next = write_of(&other, 1);
    assert_kept_out(&party, DLOCK_SHARED, 2);
    assert_kept_out(&party, DLOCK_EXCLUSIVE, 2);
    assert_status(ask(&party, DLOCK_SHARED, 1, &none), LOST);
    assert_false(dlock_valid(old));
    assert_status(dlock_release(old, NULL), LOST);
    let_go(next);
    /* And without the hash nobody knows how the others hold: they are taken for a writer. */
    dlock_hold *read = read_of(&other, 1), *second = read_of(&other, 2);
    server_integer(server, "DEL " HOLDS);
    assert_kept_out(&party, DLOCK_SHARED, 1);
    assert_kept_out(&party, DLOCK_EXCLUSIVE, 1);
    assert_status(dlock_release(read, NULL), LOST);
    assert_status(dlock_release(second, NULL), LOST);
    party_over(&party);
    party_over(&other);
}

/* An application's sorted set: it holds nothing that the hash knows. It is somebody else's lock,
 * for as long as it is there, whatever its scores are. */
static void an_applications_zset_is_left_as_it_is(void **state)
{
    static const struct {
        const char *scores;
        int ttl_ms;
        bool held; /* as far as a look at the key can tell */
    } sets[] = {{"10 alice 20 bob", 0, true},
                {"10 alice 20 bob", LONG_MS, false},
                {"9999999999998 alice 9999999999999 bob", LONG_MS, true}};
    (void)state;
    struct party party = party_of(LONG_MS);
    for (size_t i = 0; i < 3; i++) {
        struct dlock_holder holder = {.size = sizeof holder}, broken = {.size = sizeof broken};
        char add[96];
        server_text(server, "FLUSHALL");
        snprintf(add, sizeof add, "ZADD " LOCK " %s", sets[i].scores);
        server_integer(server, add);
        if (sets[i].ttl_ms > 0)
            server_integer(server, "PEXPIRE " LOCK " %d", sets[i].ttl_ms);
        for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++)
            assert_kept_out(&party, mode, 1);
        if (sets[i].ttl_ms == 0)
            assert_says(dlock_error(), "held by 'bob', without an end");
        assert_status(dlock_inspect(party.lock, &holder), OK);
        assert_int_equal(holder.held, sets[i].held);
        assert_int_equal(count_of(LOCK), 2);
        assert_int_equal(server_integer(server, "PTTL " LOCK) > 0, sets[i].ttl_ms > 0);
        assert_status(dlock_break(party.lock, &broken), OK);
        assert_int_equal(broken.held, sets[i].held);
        assert_int_equal(count_of(LOCK), broken.held ? 0 : 2);
    }
    party_over(&party);
}

/* It need not have been deleted by anybody: its time is over, and who waits has the lock then. */
static void an_applications_zset_ends(void **state)
{
    (void)state;
    struct party party = party_of(LONG_MS);
    struct waiter reader;
    server_integer(server, "ZADD " LOCK " 10 alice 20 bob");
    server_integer(server, "PEXPIRE " LOCK " %d", SHORT_MS);
    waits(&reader, &party, DLOCK_SHARED, 1);
    let_go(comes_in(&reader));
    assert_clean();
    party_over(&party);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* A party whose wire can be cut; the script is known to the server: its requests are short. */
static struct party party_on(struct proxy *proxy)
{
    struct party party = party_at(proxy_url(proxy), LONG_MS);
    let_go(read_of(&party, 1));
    record_clear(party.trace);
    return party;
}

static const char *list_of(const dlock_hold *hold)
{
    return server_text(server, "HGET " HOLDS " %s", dlock_owner(hold));
}

static void an_acquire_whose_reply_is_lost(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_CUT_REQUEST};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct proxy *proxy = proxy_start(server);
        struct party party = party_on(proxy);
        enum dlock_mode mode = i / 2 == 0 ? DLOCK_EXCLUSIVE : DLOCK_SHARED;
        struct dlock_want want = {
            .size = sizeof want, .wait_ms = PATIENCE_MS, .mode = mode, .owner_id = 1};
        dlock_hold *hold, *outer = had(&party, mode, 1);
        uint64_t attempts = stats_of(party.client).attempts;
        proxy_plan(proxy, acts[i % 2], "acquire", NULL, 0);
        assert_status(dlock_acquire(party.lock, &want, &hold), OK);
        assert_true(proxy_done(proxy));
        assert_int_equal(record_count(party.trace, " acquire "), 3); /* the outer one's is one */
        assert_int_equal(stats_of(party.client).attempts, attempts + 1);
        char list[64];
        char kind = mode == DLOCK_SHARED ? 'r' : 'w';
        snprintf(list, sizeof list, " %c%llu %c%llu ", kind,
                 (unsigned long long)dlock_acquisition(outer), kind,
                 (unsigned long long)dlock_acquisition(hold));
        assert_string_equal(list_of(hold), list);
        assert_true(dlock_token(hold) > dlock_token(outer));
        assert_int_equal(dlock_token(hold), atoll(server_text(server, "GET " TOKEN)));
        let_go(hold);
        let_go(outer);
        assert_clean();
        party_over(&party);
        proxy_free(proxy);
    }
}

/* When the reply to `lost` was cut off, what comes next is cut off as well. */
struct again {
    struct proxy *proxy;
    const char *lost, *next;
    enum proxy_act act;
    int cuts_most;
    _Atomic int cuts;
};

static void cut_again(void *arg, const struct dlock_trace *trace)
{
    struct again *again = arg;
    if (strstr(trace->sent, again->lost) != NULL && strcmp(trace->reply, "(lost)") == 0 &&
        strstr(trace->sent, again->next) != NULL &&
        atomic_fetch_add(&again->cuts, 1) < again->cuts_most)
        proxy_plan(again->proxy, again->act, again->next, NULL, 0);
}

/* As party_on, with that. */
static struct party party_cut_again(struct again *again)
{
    struct party warm = party_on(again->proxy);
    party_over(&warm);
    struct party party = {
        .client = client_of(proxy_url(again->proxy),
                            (struct dlock_options){
                                .ttl_ms = LONG_MS,
                                .on_trace = cut_again,
                                .on_trace_arg = again,
                            }),
        .trace = record_new(),
        .events = record_new(),
    };
    assert_status(dlock_open_ops(party.client, &rung_read_write, LOCK, &party.lock), OK);
    return party;
}

/* Nobody knows whether it was had: whoever gives up lets go of it, should it be. */
static void an_acquire_that_stays_unknown_is_let_go(void **state)
{
    (void)state;
    for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        struct again again = {.proxy = proxy_start(server),
                              .lost = "acquire",
                              .next = "acquire",
                              .act = PROXY_CUT_REPLY,
                              .cuts_most = 1};
        struct party party = party_cut_again(&again);
        dlock_hold *none;
        proxy_plan(again.proxy, PROXY_CUT_REPLY, "acquire", NULL, 0);
        assert_status(ask(&party, mode, 1, &none), UNKNOWN);
        assert_int_equal(again.cuts, 2);
        assert_clean();
        party_over(&party);
        proxy_free(again.proxy);
    }
}

/* Its last request may come for ever: it goes on under another name, and does not wait by the
 * first. What it reads comes with each acquire, and with nothing else. */
static void who_takes_another_name_leaves_no_mark(void **state)
{
    (void)state;
    dlock_batch *reads = dlock_batch_new();
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "stock"}, NULL), OK);
    server_text(server, "ACL SETUSER default -client|kill");
    for (enum dlock_mode mode = DLOCK_EXCLUSIVE; mode <= DLOCK_SHARED; mode++) {
        struct proxy *proxy = proxy_start(server);
        struct party party = party_on(proxy), other = party_of(LONG_MS);
        struct waiter waiter = {
            .lock = party.lock,
            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .mode = mode, .reads = reads}};
        size_t before = proxy_requests(proxy, "acquire");
        dlock_hold *write = write_of(&other, 1);
        waiter_start(&waiter);
        eventually(count_of(mode == DLOCK_SHARED ? WAITING_READERS : WAITING_WRITERS) == 1);
        proxy_plan(proxy, PROXY_CUT_REQUEST, "acquire", NULL, 0);
        let_go(write);
        assert_status(waiter_end(&waiter), OK);
        assert_true(proxy_done(proxy));
        assert_int_equal(proxy_requests(proxy, "stock"), proxy_requests(proxy, "acquire") - before);
        let_go(waiter.hold);
        assert_clean();
        party_over(&party);
        party_over(&other);
        proxy_free(proxy);
    }
    server_text(server, "ACL SETUSER default +client|kill");
    dlock_batch_free(reads);
}

/* Sent once more or not: one hold is let go, and it is this one. */
static void a_release_whose_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct party party = party_on(proxy);
    dlock_hold *outer = write_of(&party, 1), *inner = write_of(&party, 1);
    char list[32];
    snprintf(list, sizeof list, " w%llu ", (unsigned long long)dlock_acquisition(outer));
    proxy_plan(proxy, PROXY_CUT_REPLY, "release", NULL, 0);
    let_go(inner);
    assert_true(proxy_done(proxy));
    assert_string_equal(list_of(outer), list);
    assert_true(dlock_valid(outer));
    let_go(outer);
    assert_clean();
    party_over(&party);
    proxy_free(proxy);
}

/* What a release left behind is over with its own time: it does not live on because its owner comes
 * again and again, under other names. */
static void a_release_that_never_arrived(void **state)
{
    (void)state;
    struct again again = {.proxy = proxy_start(server),
                          .lost = "release",
                          .act = PROXY_CUT_REQUEST,
                          .cuts_most = INT_MAX};
    struct party party = party_cut_again(&again), other = party_of(LONG_MS);
    dlock_hold *lost = read_of(&party, 1);
    char owner[64];
    snprintf(owner, sizeof owner, "%s", dlock_owner(lost));
    again.next = owner; /* each request of its, also those in the background */
    proxy_plan(again.proxy, PROXY_CUT_REQUEST, owner, NULL, 0);
    assert_status(dlock_release(lost, NULL), UNKNOWN);
    assert_int_equal(count_of(LOCK), 1);
    long long over_ms = first_over_ms(LOCK);
    dlock_hold *read = read_of(&party, 1);
    assert_int_equal(count_of(LOCK), 2);
    assert_int_equal(first_over_ms(LOCK), over_ms);
    let_go(read);
    assert_kept_out(&other, DLOCK_EXCLUSIVE, 1);
    assert_int_equal(first_over_ms(LOCK), over_ms);
    assert_status(dlock_break(other.lock, NULL), OK);
    assert_clean();
    party_over(&party);
    party_over(&other);
    proxy_free(again.proxy);
}

/* It was on its way longer than its sender waited for it. Each of its holds is the hold of a name
 * of its own, which no late request of another touches. */
static void a_request_that_arrives_late(void **state)
{
    (void)state;
    for (int may_kill = 0; may_kill < 2; may_kill++) {
        struct proxy *proxy = proxy_start(server);
        struct party party = party_on(proxy), other = party_of(LONG_MS);
        struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = 1};
        dlock_hold *hold;
        char list[32];
        server_text(server, "ACL SETUSER default %sclient|kill", may_kill ? "+" : "-");
        /* of a release that was sent again, and its owner has come again since */
        hold = write_of(&party, 1);
        proxy_plan(proxy, PROXY_DELAY_REQUEST, "release", NULL, 0);
        let_go(hold);
        hold = write_of(&party, 1);
        snprintf(list, sizeof list, " w%llu ", (unsigned long long)dlock_acquisition(hold));
        proxy_let_go(proxy);
        assert_string_equal(list_of(hold), list);
        let_go(hold);
        /* of a hold that was had by what was sent next: it is that hold's, once */
        proxy_plan(proxy, PROXY_DELAY_REQUEST, "acquire", NULL, 0);
        assert_status(dlock_acquire(party.lock, &want, &hold), OK);
        snprintf(list, sizeof list, " w%llu ", (unsigned long long)dlock_acquisition(hold));
        proxy_let_go(proxy);
        assert_string_equal(list_of(hold), list);
        assert_int_equal(count_of(LOCK), 1);
        let_go(hold);
        assert_int_equal(count_of(LOCK), 0);
        if (may_kill)
            assert_clean(); /* else the late one waits, until its mark is over */
        server_text(server, "FLUSHALL");
        server_text(server, "ACL SETUSER default +client|kill");
        party_over(&party);
        party_over(&other);
        proxy_free(proxy);
    }
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

#define TEST(name) cmocka_unit_test_setup(name, empty_server)

/* One argument: only the test of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(holds_under_the_oracle),
        TEST(readers_together_and_a_writer_alone),
        TEST(counted_per_owner_in_any_order),
        TEST(an_upgrade_is_refused_at_once),
        TEST(a_downgrade_lets_waiting_readers_in),
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
        TEST(a_dead_reader_delays_a_writer_by_its_own_time),
        TEST(a_dead_writer_delays_a_reader_by_its_own_time),
        TEST(a_dead_waiting_writer_keeps_readers_out_for_its_marks_time),
        TEST(a_dead_waiting_reader_costs_its_own_grant),
        TEST(each_reader_is_renewed_for_its_own_time),
        TEST(a_full_server_keeps_its_holds),
        TEST(an_emptied_server_is_noticed),
        TEST(the_hash_alone_holds_nothing),
        TEST(an_applications_zset_is_left_as_it_is),
        TEST(an_applications_zset_ends),
        TEST(an_acquire_whose_reply_is_lost),
        TEST(an_acquire_that_stays_unknown_is_let_go),
        TEST(who_takes_another_name_leaves_no_mark),
        TEST(a_release_whose_reply_is_lost),
        TEST(a_release_that_never_arrived),
        TEST(a_request_that_arrives_late),
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
