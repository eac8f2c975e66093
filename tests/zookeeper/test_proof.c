/* SPDX-License-Identifier: Apache-2.0
 *
 * Since when a session's time counts, and what the engine's URLs may be: without a server.
 */
#include "calls.h"
#include "proof.h"
#include "zk_url.h"

#include <stdlib.h>
#include <string.h>

#define TICK 1000

static struct proof begun(int64_t at)
{
    struct proof proof = {.tick_ns = TICK};
    proof_begin(&proof, at);
    return proof;
}

/* The leader has heard of a new session when it was made; a write shows that it was made. */
static void a_new_session_counts_from_its_begin(void **state)
{
    (void)state;
    struct proof proof = begun(100);
    proof_connected(&proof);
    proof_answered(&proof, 150, 160);
    assert_int_equal(proof.counts_ns, 0);
    assert_true(proof_written(&proof, 170, 180));
    assert_int_equal(proof.counts_ns, 100);
}

/* A follower that is cut off answers reads; and a write proves itself to nobody. */
static void reads_and_the_write_itself_prove_nothing(void **state)
{
    (void)state;
    struct proof proof = begun(100);
    proof_connected(&proof);
    assert_true(proof_written(&proof, 110, 120));
    for (int64_t at = 200; at < 5 * TICK; at += TICK / 2)
        proof_answered(&proof, at, at + 10);
    assert_int_equal(proof.counts_ns, 100);
    proof = begun(100);
    proof_connected(&proof);
    assert_true(proof_written(&proof, 110, 120));
    assert_false(proof_written(&proof, 500, 510));
    assert_int_equal(proof.counts_ns, 100);
}

/* From its send, and not from its answer; a tick must lie between its answer and the write. */
static void a_write_proves_what_was_answered_a_tick_before(void **state)
{
    (void)state;
    struct proof proof = begun(5);
    proof_connected(&proof);
    proof_written(&proof, 10, 20);
    proof_answered(&proof, 200, 300);
    proof_written(&proof, 300 + TICK - 1, 300 + TICK);
    assert_int_equal(proof.counts_ns, 10);
    assert_true(proof_written(&proof, 300 + TICK, 301 + TICK));
    assert_int_equal(proof.counts_ns, 200);
}

static void writes_prove_each_other(void **state)
{
    (void)state;
    struct proof proof = begun(0);
    proof_connected(&proof);
    for (int64_t at = 0; at <= 10 * 2 * TICK; at += 2 * TICK)
        proof_written(&proof, at, at + 10);
    assert_int_equal(proof.counts_ns, 9 * 2 * TICK);
}

/* To connect again, the follower asks the leader; but what it asked before is not known later. */
static void a_new_connection_counts_from_the_latest_answer(void **state)
{
    (void)state;
    struct proof proof = begun(0);
    proof_connected(&proof);
    proof_written(&proof, 10, 20);
    proof_answered(&proof, 5000, 5010);
    proof_answered(&proof, 5020, 5030);
    proof_connected(&proof);
    assert_int_equal(proof.counts_ns, 0);
    assert_true(proof_written(&proof, 6000, 6010));
    assert_int_equal(proof.counts_ns, 5020);
    assert_false(proof_written(&proof, 6010 + TICK / 2, 6020 + TICK / 2));
}

/* However many answers come, the oldest that matters is at most an eighth of a tick older. */
static void many_answers_lose_little(void **state)
{
    (void)state;
    struct proof proof = begun(0);
    proof_connected(&proof);
    proof_written(&proof, 0, 1);
    for (int64_t at = 2; at < 10 * TICK; at++)
        proof_answered(&proof, at, at + 1);
    assert_true(proof_written(&proof, 10 * TICK, 10 * TICK + 1));
    assert_in_range(proof.counts_ns, 9 * TICK - TICK / 8 - 2, 9 * TICK - 1);
}

/* Who does not know that the session lives writes again as soon as that proves something. */
static void when_it_is_written_next(void **state)
{
    (void)state;
    struct proof proof = begun(0);
    assert_int_equal(proof_due(&proof, 100, 5 * TICK, false), 100 + 5 * TICK);
    proof_connected(&proof);
    proof_written(&proof, 100, 150);
    assert_int_equal(proof_due(&proof, 100, 5 * TICK, true), 100 + 5 * TICK);
    assert_int_equal(proof_due(&proof, 100, 5 * TICK, false), 150 + TICK);
    assert_int_equal(proof_due(&proof, 100, TICK / 2, false), 100 + TICK / 2);
    /* It was refused, so the older answer is not proven yet: it is not sent at once. */
    proof_answered(&proof, 2 * TICK, 2 * TICK + 10);
    assert_int_equal(proof_due(&proof, 2 * TICK, 5 * TICK, false), 3 * TICK);
    assert_true(proof_written(&proof, 3 * TICK, 3 * TICK + 1));
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static void what_a_url_says(void **state)
{
    (void)state;
    struct zk_url url;
    assert_status(zk_url_read(&url, "zk://h1,h2:2182,[::1],[::2]:9/a/b/?tick_ms=500"), OK);
    assert_string_equal(url.hosts, "h1:2181,h2:2182,[::1]:2181,[::2]:9");
    assert_string_equal(url.addresses, "h1:2181,h2:2182,::1:2181,::2:9");
    assert_string_equal(url.root, "/a/b");
    assert_int_equal(url.tick_ms, 500);
    assert_null(url.login);
    zk_url_free(&url);
    assert_status(zk_url_read(&url, "zk://ann:p%40ss:word@h1"), OK);
    assert_string_equal(url.hosts, "h1:2181");
    assert_string_equal(url.login, "ann:p@ss:word");
    assert_string_equal(url.root, "/dlock");
    assert_int_equal(url.tick_ms, 2000);
    zk_url_free(&url);
}

static void what_is_no_url(void **state)
{
    static const struct {
        const char *url, *says;
    } wrong[] = {{"redis://h1", "does not begin with zk://"},
                 {"zk:h1", "does not begin with zk://"},
                 {"zk://", "a host that is not"},
                 {"zk:///path", "a host that is not"},
                 {"zk://h1,,h2", "a host that is not"},
                 {"zk://h1:0", "a host that is not"},
                 {"zk://h1:65536", "a host that is not"},
                 {"zk://h1:port", "a host that is not"},
                 {"zk://[::1", "a host that is not"},
                 {"zk://secret@h1", "a login without ':'"},
                 {"zk://a:secret%4@h1", "a '%' in its login"},
                 {"zk://a:secret%00@h1", "a '%' in its login"},
                 {"zk://h1/a//b", "an empty name"},
                 {"zk://h1/../b", "an empty name, '.' or '..'"},
                 {"zk://h1/zookeeper/quota", "below /zookeeper"},
                 {"zk://h1/a b", "a blank"},
                 {"zk://h1?tick=5", "'?tick_ms=N'"},
                 {"zk://h1?tick_ms=0", "1 to 60000"},
                 {"zk://h1?tick_ms=", "'?tick_ms=N'"}};
    struct zk_url url;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_status(zk_url_read(&url, wrong[i].url), INVALID);
        assert_says(dlock_error(), wrong[i].says);
        assert_null(strstr(dlock_error(), "secret"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_new_session_counts_from_its_begin),
        cmocka_unit_test(reads_and_the_write_itself_prove_nothing),
        cmocka_unit_test(a_write_proves_what_was_answered_a_tick_before),
        cmocka_unit_test(writes_prove_each_other),
        cmocka_unit_test(a_new_connection_counts_from_the_latest_answer),
        cmocka_unit_test(many_answers_lose_little),
        cmocka_unit_test(when_it_is_written_next),
        cmocka_unit_test(what_a_url_says),
        cmocka_unit_test(what_is_no_url),
    };
    return cmocka_run_group_tests_name("zookeeper_proof", tests, NULL, NULL);
}
