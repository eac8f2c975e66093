/* SPDX-License-Identifier: Apache-2.0
 *
 * The rung `notify`: waiters that sleep until a message, and what becomes of them when it is lost;
 * its token; replies of its scripts that are lost.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "patient.h"
#include "proxy.h"
#include "record.h"
#include "redisson.h"
#include "started.h"
#include "validate.h"
#include "waiter.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 2
#define CROWD 10 /* half of each client */
#define HOUR_US 3600000000
#define OWNER 7
#define TOKEN "dlock:token={" LOCK "}"

/* A client that has the lock open. */
struct side {
    dlock_client *client;
    dlock *lock;
};

static struct side side_of(const char *url, const struct rung_ops *ops, int64_t ttl_ms)
{
    struct side side = {.client = client_of(url, (struct dlock_options){.ttl_ms = ttl_ms})};
    assert_status(dlock_open_ops(side.client, ops, LOCK, &side.lock), OK);
    return side;
}

static struct side patient_side(void)
{
    return side_of(server_url(server), patient(), 0);
}

static void side_close(struct side *side)
{
    dlock_close(side->lock);
    dlock_client_close(side->client);
}

static void released(dlock_hold *hold)
{
    assert_status(dlock_release(hold, NULL), OK);
}

static uint64_t answered(void)
{
    return atomic_load(&patient_answered);
}

/* A first waiter of its client, that has nothing left to do but to be woken. */
static void let_wait(struct waiter *waiter, const struct side *side)
{
    *waiter = (struct waiter){.lock = side->lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    atomic_store(&patient_answered, 0);
    waiter_start(waiter);
    eventually(answered() >= 2 && subscribers(server) == 1);
}

/* Connections to the server that are subscribed to anything. */
static size_t listening_connections(void)
{
    size_t count = 0;
    for (const char *at = server_text(server, "CLIENT LIST TYPE pubsub"); *at != '\0'; at++)
        count += *at == '\n';
    return count;
}

static void must_have_it(struct waiter *waiter)
{
    assert_status(waiter_end(waiter), OK);
    released(waiter->hold);
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
    for (int round = 0; stats_of(side.client).unheard == 0; round++) {
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
    assert_int_equal(stats.unheard, in_time);
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
    assert_int_equal(stats_of(side.client).unheard, 0); /* a message woke it */
    assert_int_equal(stats_of(holder.client).scripts_loaded, loaded + 1);
    side_close(&side);
    side_close(&holder);
}

/* ---- Tokens ---------------------------------------------------------------------------------- */

static uint64_t newest_token(void)
{
    return strtoull(server_text(server, "GET " TOKEN), NULL, 10);
}

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

/* ---- The stage ------------------------------------------------------------------------------- */

static int set_up(void **state)
{
    (void)state;
    server_text(server, "FLUSHALL");
    atomic_store(&patient_answered, 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    patient_release = NULL;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

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
        TEST(a_message_lost_with_its_connection),
        TEST(a_subscription_that_is_cut_off_at_once),
        TEST(a_release_without_a_message),
        TEST(a_dropped_subscription_is_renewed),
        TEST(a_dead_holders_lock_is_had),
        TEST(a_short_hold_that_ends_by_itself),
        TEST(a_server_that_comes_back_empty),
        TEST(a_server_that_comes_back_with_its_locks),
        TEST(a_server_that_forgets_the_scripts),
        TEST(tokens_grow),
        TEST(tokens_grow_while_the_clock_is_behind),
        TEST(no_keys_pile_up),
        TEST(an_acquire_whose_reply_is_lost),
        TEST(an_acquire_that_is_lost_itself),
        TEST(a_release_is_sent_again),
        TEST(a_release_whose_reply_is_lost),
    };
    return cmocka_run_group_tests_name("notify", tests, start_server, stop_server);
}
