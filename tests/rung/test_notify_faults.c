/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `notify`: messages and replies that are lost, holders that die, servers that come back.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "notify_stage.h"
#include "patient.h"
#include "proxy.h"
#include "redisson.h"
#include "started.h"
#include "waiter.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- Messages that are lost ------------------------------------------------------------------ */

/* The connection that listens is cut off in the same moment in which the lock is freed: the message
 * goes to nobody, and no poll is due for ten minutes. */
static void a_message_lost_with_its_connection(void **state)
{
    (void)state;
    struct side side = patient_side();
    struct waiter waiter;
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    let_wait(&waiter, &side);
    assert_int_equal(lock_unlock_unheard(server, OWNER_V, "req01"), 1);
    must_have_it(&waiter);
    side_close(&side);
}

/* Subscribed at the server, and the waiter cannot know: the connection is cut instead of the reply.
 * Freed at this moment, the lock is found by the try that follows. */
static void a_subscription_that_is_cut_off_at_once(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct side side = side_of(proxy_url(proxy), &rung_notify, 0);
    struct waiter waiter = {.lock = side.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    assert_int_equal(lock_acquire(server, OWNER_V, LEASE_MS), NIL);
    proxy_plan(proxy, PROXY_CUT_REPLY, "SUBSCRIBE", NULL, 0);
    waiter_start(&waiter);
    eventually(proxy_done(proxy));
    assert_int_equal(lock_unlock(server, OWNER_V, "req01"), 1);
    must_have_it(&waiter);
    assert_true(stats_of(side.client).attempts >= 2);
    side_close(&side);
    proxy_free(proxy);
}

/* The key is gone, and nobody has published anything: the fallback poll finds out. A try may have
 * been under way at that moment, and have had it: then once more. */
static void a_release_without_a_message(void **state)
{
    (void)state;
    struct side side = side_of(server_url(server), &rung_notify, 0);
    struct messages *messages = messages_start(server);
    for (int round = 0; stats_of(side.client).missed_wakeups == 0; round++) {
        struct waiter waiter = {.lock = side.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        uint64_t attempts = stats_of(side.client).attempts;
        assert_true(round < 10);
        assert_int_equal(lock_acquire(server, OWNER_V, 3600000), NIL);
        waiter_start(&waiter);
        eventually(stats_of(side.client).attempts >= attempts + 2 && subscribers(server) == 1);
        assert_int_equal(server_integer(server, "DEL " LOCK), 1);
        assert_status(waiter_end(&waiter), OK);
        assert_string_equal(messages_new(messages), "");
        assert_in_range(stats_of(side.client).attempts, attempts + 2, attempts + 20);
        released(waiter.hold);
        assert_string_equal(messages_new(messages), LOCK_CHANNEL " 0");
    }
    messages_free(messages);
    side_close(&side);
}

/* A subscription that is dropped is made again, with a try behind it; then it is heard as before.
 */
static void a_dropped_subscription_is_renewed(void **state)
{
    (void)state;
    struct side holder = patient_side();
    struct side side = patient_side();
    struct waiter waiter;
    dlock_hold *hold = acquired(holder.lock);
    let_wait(&waiter, &side);
    assert_int_equal(server_integer(server, "CLIENT KILL TYPE pubsub"), 1);
    eventually(answered() >= 3 && subscribers(server) == 1);
    released(hold);
    must_have_it(&waiter);
    side_close(&side);
    side_close(&holder);
}

static int hold_and_die(void *url)
{
    struct side side = side_of(url, &rung_notify, 2000);
    must(acquired(side.lock) != NULL);
    raise(SIGKILL);
    return 0;
}

/* No message tells of an expiry. The waiter tries when the lock expires, and hardly before. */
static void a_dead_holders_lock_is_had(void **state)
{
    (void)state;
    assert_int_equal(child_wait(child_start(hold_and_die, (void *)(uintptr_t)server_url(server))),
                     128 + SIGKILL);
    struct side side = side_of(server_url(server), &rung_notify, 0);
    dlock_hold *hold = acquired(side.lock);
    struct dlock_stats stats = stats_of(side.client);
    bool in_time = stats.contended == 1; /* false: this machine stood still until the expiry */
    assert_int_equal(stats.missed_wakeups, in_time);
    assert_in_range(stats.attempts, in_time ? 3 : 1, 20);
    released(hold);
    side_close(&side);
}

/* The holder's hold ends by itself, soon, and nothing tells of it: the next of its client looks
 * then, and not when the holder before would have been over. */
static void a_short_hold_that_ends_by_itself(void **state)
{
    (void)state;
    struct side holder = side_of(server_url(server), &rung_notify, 3600000);
    struct side side = patient_side(); /* else it looks every 5 s anyway */
    struct started first = {0}, next = {.release = true};
    dlock_hold *hold = acquired(holder.lock);
    start(side.lock, (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .hold_max_ms = 100},
          &first);
    eventually(stats_of(side.client).attempts >= 2); /* once more when it listened */
    start(side.lock, waiting(DLOCK_WAIT_FOREVER), &next);
    released(hold);
    started_answered(&first);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_status(dlock_release(first.hold, NULL), LOST);
    side_close(&side);
    side_close(&holder);
}

/* ---- What befalls the server ----------------------------------------------------------------- */

/* Its memory is gone: who waits has the lock, and the holder is told so. That is the flaw of every
 * lock on one Redis. */
static void a_server_that_comes_back_empty(void **state)
{
    (void)state;
    struct side holder = patient_side();
    struct side side = patient_side();
    struct waiter waiter;
    dlock_hold *hold = acquired(holder.lock);
    let_wait(&waiter, &side);
    server_restart(server, NULL);
    assert_status(waiter_end(&waiter), OK);
    assert_true(dlock_token(waiter.hold) > dlock_token(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    released(waiter.hold);
    side_close(&side);
    side_close(&holder);
}

static void restart_with(const char *const *args)
{
    server_restart_unready(server, args);
    eventually(server_ask(server, "PING")->type == REDIS_REPLY_STATUS); /* it has loaded */
}

/* It keeps what it acknowledged: the lock is held on, and the waiter hears of its release, on a
 * connection of after the restart. */
static void a_server_that_comes_back_with_its_locks(void **state)
{
    (void)state;
    static const char *const kept[] = {"--appendonly", "yes", "--appendfsync", "always", NULL};
    struct side holder = patient_side();
    struct side side = patient_side();
    struct waiter waiter;
    restart_with(kept);
    dlock_hold *hold = acquired(holder.lock);
    let_wait(&waiter, &side);
    restart_with(kept);
    eventually(answered() >= 3 && subscribers(server) == 1);
    assert_false(atomic_load(&waiter.over));
    released(hold);
    must_have_it(&waiter);
    side_close(&side);
    side_close(&holder);
    server_restart(server, NULL);
}

static void a_server_that_forgets_the_scripts(void **state)
{
    (void)state;
    struct side holder = patient_side();
    struct side side = patient_side();
    struct waiter waiter;
    dlock_hold *hold = acquired(holder.lock);
    let_wait(&waiter, &side);
    server_text(server, "SCRIPT FLUSH");
    uint64_t loaded = stats_of(holder.client).scripts_loaded;
    released(hold);
    must_have_it(&waiter);
    assert_int_equal(stats_of(side.client).missed_wakeups, 0); /* a message woke it */
    assert_int_equal(stats_of(holder.client).scripts_loaded, loaded + 1);
    side_close(&side);
    side_close(&holder);
}

/* ---- Replies that are lost ------------------------------------------------------------------- */

/* The acquire was carried out: sent once more it counts once, and draws a new token. */
static void an_acquire_whose_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct side side = side_of(proxy_url(proxy), patient(), 0);
    dlock_hold *holds[2];
    released(acquired(side.lock));
    for (int depth = 0; depth < 2; depth++) {
        char count[96];
        uint64_t attempts = stats_of(side.client).attempts;
        proxy_plan(proxy, PROXY_CUT_REPLY, TOKEN, NULL, 0);
        assert_status(tried_by(side.lock, OWNER, &holds[depth]), OK);
        assert_true(proxy_done(proxy));
        assert_int_equal(stats_of(side.client).attempts, attempts + 1);
        snprintf(count, sizeof count, "%s=%d", dlock_owner(holds[depth]), depth + 1);
        assert_string_equal(hash_at(server, LOCK), count);
        assert_int_equal(dlock_token(holds[depth]), newest_token());
    }
    assert_true(dlock_token(holds[1]) > dlock_token(holds[0]));
    released(holds[1]);
    released(holds[0]);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    side_close(&side);
    proxy_free(proxy);
}

/* It was not: sent once more, it has the lock once. */
static void an_acquire_that_is_lost_itself(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct side side = side_of(proxy_url(proxy), patient(), 0);
    released(acquired(side.lock));
    uint64_t attempts = stats_of(side.client).attempts;
    proxy_plan(proxy, PROXY_CUT_REQUEST, TOKEN, NULL, 0);
    dlock_hold *hold = acquired(side.lock);
    assert_true(proxy_done(proxy));
    assert_int_equal(stats_of(side.client).attempts, attempts + 1);
    assert_int_equal(dlock_token(hold), newest_token());
    released(hold);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    side_close(&side);
    proxy_free(proxy);
}

static void (*in_between)(void); /* two sends of one release; NULL: nothing happens */

static dlock_status release_again(struct rung_env *env, struct dlock_hold *hold)
{
    must(notify_release(env, hold) == DLOCK_UNKNOWN);
    if (in_between != NULL)
        in_between();
    must(redis_ready(env->redis, INT64_MAX, -1) == DLOCK_OK);
    dlock_status status = notify_release(env, hold);
    must(status == DLOCK_OK || (status == DLOCK_LOST && hold->depth == 1));
    return DLOCK_OK;
}

static void another_has_it(void)
{
    must(lock_acquire(server, OWNER_V, LEASE_MS) == NIL);
}

/* One release of `depth` holds, sent twice: what is left then, and how many messages came. */
static void release_sent_again(enum proxy_act act, void (*between)(void), int depth,
                               const char *left, const char *heard)
{
    struct proxy *proxy = proxy_start(server);
    struct side side = side_of(proxy_url(proxy), patient(), 0);
    dlock_hold *holds[2];
    char expected[128];
    released(acquired(side.lock)); /* the server knows the scripts */
    for (int i = 0; i < depth; i++)
        holds[i] = acquired_by(side.lock, OWNER);
    snprintf(expected, sizeof expected, left, dlock_owner(holds[0]));
    struct messages *messages = messages_start(server);
    patient_release = release_again;
    in_between = between;
    proxy_plan(proxy, act, LOCK_CHANNEL, NULL, 0);
    released(holds[depth - 1]);
    assert_true(proxy_done(proxy));
    patient_release = NULL;
    assert_string_equal(hash_at(server, LOCK), expected);
    assert_string_equal(messages_new(messages), heard);
    messages_free(messages);
    for (int i = 0; i < depth - 1; i++)
        released(holds[i]);
    server_text(server, "FLUSHALL");
    side_close(&side);
    proxy_free(proxy);
}

/* Sent again, a release counts once, tells of it once, and frees nothing that was taken since. */
static void a_release_is_sent_again(void **state)
{
    (void)state;
    const char *once = LOCK_CHANNEL " 0";
    release_sent_again(PROXY_CUT_REPLY, NULL, 1, "", once);
    release_sent_again(PROXY_CUT_REPLY, another_has_it, 1, OWNER_V "=1", once);
    release_sent_again(PROXY_CUT_REPLY, NULL, 2, "%s=1", "");
    release_sent_again(PROXY_CUT_REQUEST, NULL, 1, "", once);
    release_sent_again(PROXY_CUT_REQUEST, NULL, 2, "%s=1", "");
}

/* The library sends it again itself, and says what became of it. */
static void a_release_whose_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct side side = side_of(proxy_url(proxy), patient(), 0);
    struct messages *messages = messages_start(server);
    released(acquired(side.lock));
    assert_string_equal(messages_new(messages), LOCK_CHANNEL " 0");
    dlock_hold *hold = acquired(side.lock);
    proxy_plan(proxy, PROXY_CUT_REPLY, LOCK_CHANNEL, NULL, 0);
    released(hold);
    assert_true(proxy_done(proxy));
    assert_string_equal(messages_new(messages), LOCK_CHANNEL " 0");
    messages_free(messages);
    side_close(&side);
    proxy_free(proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_message_lost_with_its_connection), TEST(a_subscription_that_is_cut_off_at_once),
        TEST(a_release_without_a_message),        TEST(a_dropped_subscription_is_renewed),
        TEST(a_dead_holders_lock_is_had),         TEST(a_short_hold_that_ends_by_itself),
        TEST(a_server_that_comes_back_empty),     TEST(a_server_that_comes_back_with_its_locks),
        TEST(a_server_that_forgets_the_scripts),  TEST(an_acquire_whose_reply_is_lost),
        TEST(an_acquire_that_is_lost_itself),     TEST(a_release_is_sent_again),
        TEST(a_release_whose_reply_is_lost),
    };
    return cmocka_run_group_tests_name("notify_faults", tests, start_server, stop_server);
}
