/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `read_write`: whose time to live counts after a process has died, and what an emptied
 * server leaves behind.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "read_write_stage.h"
#include "waiter.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
            assert_says(dlock_error(), "held by 'bob'; it never expires");
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

/* One argument: only the test of that name. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
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
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("read_write_expiry", tests, start_server, stop_server);
}
