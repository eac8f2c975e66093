/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquire and release as the header promises them: tries, limits, cancels, owners, re-entrancy.
 */
#include "calls.h"
#include "child.h"
#include "client.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "waiter.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK "lock:{acquire}"

static const char *const keyed[] = {"setnx",          "setnx_expire", "setnx_multi",   "set_nx_ex",
                                    "owner_check",    "owner_lua",    "reentrant_tls", "reentrant",
                                    "watchdog_timer", "watchdog",     "blpop_wake",    "notify",
                                    "fair",           "rw_counter",   "read_write"};
#define KEYED (sizeof keyed / sizeof keyed[0])

static dlock_client *new_client(void)
{
    return client_of(server_url(server), (struct dlock_options){0});
}

#define BOUND_MS 900 /* of a client that gives up soon */

/* trace->user counts the leaves that were sent on its behalf. */
static void count_leaves(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    if (trace->user != NULL && strstr(trace->sent, " leave ") != NULL)
        atomic_fetch_add((_Atomic int *)trace->user, 1);
}

static dlock_client *hasty_client(void)
{
    return client_of(server_url(server), (struct dlock_options){.connect_timeout_ms = BOUND_MS / 3,
                                                                .command_timeout_ms = BOUND_MS / 3,
                                                                .handoff_ms = PATIENCE_MS,
                                                                .ttl_ms = PATIENCE_MS,
                                                                .on_trace = count_leaves});
}

static dlock_status limited(dlock *lock, int64_t wait_ms, dlock_hold **hold)
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    return dlock_acquire(lock, &want, hold);
}

/* ---- Tries and limits ------------------------------------------------------------------------ */

static void one_try_and_a_limit(void **state)
{
    (void)state;
    dlock_client *one = new_client();
    dlock_client *two = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        if (strcmp(keyed[i], "reentrant_tls") == 0)
            continue; /* its count is the thread's, whatever the client: see below */
        dlock *mine = lock_of(one, keyed[i], LOCK);
        dlock *theirs = lock_of(two, keyed[i], LOCK);
        dlock_hold *hold;
        dlock_hold *none = (dlock_hold *)&none;
        assert_status(tried(mine, &hold), OK);
        uint64_t before = stats_of(two).attempts;
        assert_status(tried(theirs, &none), BUSY);
        assert_null(none);
        assert_says(dlock_error(), LOCK);
        assert_int_equal(stats_of(two).attempts, before + 1);
        assert_status(limited(theirs, 100, &none), TIMED_OUT);
        assert_null(none);
        assert_says(dlock_error(), "100 ms");
        assert_true(stats_of(two).attempts >= before + 2);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(tried(theirs, &hold), OK);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(mine);
        dlock_close(theirs);
    }
    dlock_client_close(one);
    dlock_client_close(two);
}

static void a_waiter_gets_it_when_it_is_free(void **state)
{
    (void)state;
    dlock_client *one = new_client();
    dlock_client *two = new_client();
    dlock *mine = lock_of(one, NULL, LOCK);
    struct waiter waiter = {.lock = lock_of(two, NULL, LOCK),
                            .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    dlock_hold *hold = acquired(mine);
    waiter_start(&waiter);
    eventually(stats_of(two).attempts >= 3);
    assert_false(atomic_load(&waiter.over));
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_close(mine);
    dlock_close(waiter.lock);
    dlock_client_close(one);
    dlock_client_close(two);
}

/* Whether the waiter has it. If not, the lock is had and released once more: it may not have been
 * asleep yet. */
static bool has_it_by_now(const struct waiter *waiter)
{
    dlock_hold *hold;
    if (atomic_load(&waiter->over))
        return true;
    if (tried(waiter->lock, &hold) == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    return false;
}

/* Its pause is 30 s at least, longer than it waits: what wakes it is a release of its own process.
 */
static void a_waiter_that_polls_looks_after_a_local_release(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.retry_ms = 60000});
    /* Without reentrant_tls, whose hold only the waiter's own thread could release. */
    const char *const polling[] = {"setnx",       "setnx_expire", "setnx_multi", "set_nx_ex",
                                   "owner_check", "owner_lua",    "reentrant",   "watchdog_timer",
                                   "watchdog",    "rw_counter"};
    for (size_t i = 0; i < sizeof polling / sizeof polling[0]; i++) {
        struct waiter waiter = {.lock = lock_of(client, polling[i], LOCK),
                                .want = {.wait_ms = 20000}};
        dlock_hold *hold = acquired(waiter.lock);
        const uint64_t before = stats_of(client).attempts;
        waiter_start(&waiter);
        eventually(stats_of(client).attempts > before);
        assert_status(dlock_release(hold, NULL), OK);
        eventually(has_it_by_now(&waiter));
        assert_status(waiter_end(&waiter), OK);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        dlock_close(waiter.lock);
    }
    dlock_client_close(client);
}

/* The only connection is in use: the wait for it ends with the call's own limit. */
static void the_limit_counts_while_a_connection_is_awaited(void **state)
{
    (void)state;
    struct gate *gate = gate_new("setnx.acquired");
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .connections_max = 1,
                                                             .connect_timeout_ms = 60000,
                                                             .command_timeout_ms = 60000,
                                                             .on_point = gate_point,
                                                             .on_point_arg = gate,
                                                         });
    struct waiter parked = {.lock = lock_of(client, "setnx", LOCK)};
    struct waiter limited_one = {.lock = lock_of(client, "setnx", "lock:{other}"),
                                 .want = {.wait_ms = 50}};
    waiter_start(&parked);
    eventually(gate_arrived(gate) == 1);
    waiter_start(&limited_one);
    assert_status(waiter_end(&limited_one), TIMED_OUT);
    assert_says(limited_one.error, "connections_max");
    gate_open(gate);
    assert_status(waiter_end(&parked), OK);
    assert_status(dlock_release(parked.hold, NULL), OK);
    dlock_close(parked.lock);
    dlock_close(limited_one.lock);
    dlock_client_close(client);
    gate_free(gate);
}

/* A server that accepts and says nothing: logging in ends with the call's own limit. */
static void the_limit_counts_while_connecting(void **state)
{
    (void)state;
    char url[80];
    snprintf(url, sizeof url, "%s/1", server_url(server));
    dlock_client *client = client_of(url, (struct dlock_options){.connect_timeout_ms = 60000});
    struct waiter waiter = {.lock = lock_of(client, "setnx", LOCK), .want = {.wait_ms = 50}};
    server_pause(server);
    waiter_start(&waiter);
    dlock_status status = waiter_end(&waiter);
    server_resume(server);
    assert_status(status, UNREACHABLE);
    assert_says(waiter.error, "connecting took too long");
    dlock_close(waiter.lock);
    dlock_client_close(client);
}

static void all_connections_in_use(void **state)
{
    (void)state;
    struct gate *gate = gate_new("setnx.acquired");
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .connections_max = 2,
                                                             .connect_timeout_ms = 20,
                                                             .command_timeout_ms = 2000,
                                                             .on_point = gate_point,
                                                             .on_point_arg = gate,
                                                         });
    struct waiter parked[2];
    for (int i = 0; i < 2; i++) {
        char name[32];
        snprintf(name, sizeof name, "lock:%d", i);
        parked[i] =
            (struct waiter){.lock = lock_of(client, "setnx", name), .want = {.wait_ms = 60000}};
        waiter_start(&parked[i]);
        eventually(gate_arrived(gate) == (size_t)i + 1);
    }
    uint64_t connects = stats_of(client).connects; /* a slow one was given up and made anew */
    struct waiter third = {.lock = lock_of(client, "setnx", LOCK)};
    waiter_start(&third);
    assert_status(waiter_end(&third), LIMIT);
    assert_says(third.error, "all 2 connections (connections_max) are in use");
    gate_open(gate);
    for (int i = 0; i < 2; i++) {
        assert_status(waiter_end(&parked[i]), OK);
        assert_status(dlock_release(parked[i].hold, NULL), OK);
        dlock_close(parked[i].lock);
    }
    assert_int_equal(stats_of(client).connects, connects);
    dlock_close(third.lock);
    dlock_client_close(client);
    gate_free(gate);
}

/* ---- Cancel ---------------------------------------------------------------------------------- */

static void cancelled_from_another_thread(void **state)
{
    static const char *const rungs[] = {"local", "setnx", "watchdog"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        dlock_client *client = new_client();
        dlock *lock = lock_of(client, rungs[i], LOCK);
        dlock_cancel *cancel = dlock_cancel_new();
        struct waiter waiters[3];
        dlock_hold *hold = acquired(lock);
        uint64_t before = stats_of(client).attempts;
        for (int j = 0; j < 3; j++) {
            waiters[j] = (struct waiter){.lock = lock,
                                         .want = {.wait_ms = DLOCK_WAIT_FOREVER, .cancel = cancel}};
            waiter_start(&waiters[j]);
        }
        eventually(stats_of(client).attempts >= before + 6);
        dlock_cancel_now(cancel);
        for (int j = 0; j < 3; j++) {
            assert_status(waiter_end(&waiters[j]), CANCELLED);
            assert_null(waiters[j].hold);
            assert_says(waiters[j].error, "the wait for '" LOCK "' was cancelled");
        }
        assert_status(dlock_release(hold, NULL), OK);
        dlock_cancel_free(cancel);
        dlock_close(lock);
        dlock_client_close(client);
    }
}

/* Thrown before the call, it ends it although the lock is free; and it stays thrown. */
static void cancelled_before_the_call(void **state)
{
    static const char *const rungs[] = {"none", "local", "setnx", "watchdog", "notify"};
    (void)state;
    dlock_client *client = new_client();
    dlock_cancel *cancel = dlock_cancel_new();
    dlock_cancel_now(cancel);
    dlock_cancel_now(cancel);
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], LOCK);
        for (int64_t wait_ms = DLOCK_WAIT_FOREVER; wait_ms <= 1; wait_ms++) {
            struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms, .cancel = cancel};
            dlock_hold *hold;
            assert_status(dlock_acquire(lock, &want, &hold), CANCELLED);
            assert_null(hold);
        }
        dlock_close(lock);
    }
    assert_int_equal(stats_of(client).attempts, 0);
    assert_int_equal(stats_of(client).commands, 0);
    dlock_cancel_free(cancel);
    dlock_client_close(client);
}

/* Who holds the lock already is let in without waiting, but not with a cancel that was thrown. */
static void cancelled_before_a_nested_call(void **state)
{
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    (void)state;
    dlock_client *client = new_client();
    dlock_cancel *cancel = dlock_cancel_new();
    for (size_t i = 0; i < count; i++) {
        if (!rungs[i].reentrant)
            continue;
        dlock *lock = lock_of(client, rungs[i].name, LOCK);
        struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .owner_id = 1};
        dlock_hold *outer, *inner, *none;
        assert_status(dlock_acquire(lock, &want, &outer), OK);
        assert_status(dlock_acquire(lock, &want, &inner), OK);
        want.cancel = cancel;
        dlock_cancel_now(cancel);
        assert_status(dlock_acquire(lock, &want, &none), CANCELLED);
        assert_null(none);
        assert_status(dlock_release(inner, NULL), OK);
        assert_true(dlock_valid(outer));
        assert_status(dlock_release(outer, NULL), OK);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        dlock_close(lock);
    }
    dlock_cancel_free(cancel);
    dlock_client_close(client);
}

/* From a signal handler; and signals that mean nothing disturb no wait and no request. */
static dlock_cancel *cancel_of_the_handler;

static void on_cancel_signal(int number)
{
    (void)number;
    dlock_cancel_now(cancel_of_the_handler);
}

static void on_signal(int number)
{
    (void)number;
}

static void cancelled_from_a_signal_handler(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    struct waiter waiter = {.lock = lock_of(client, "watchdog", LOCK)};
    cancel_of_the_handler = dlock_cancel_new();
    waiter.want =
        (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .cancel = cancel_of_the_handler};
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = on_cancel_signal}, NULL);
    dlock_hold *hold = acquired(waiter.lock);
    waiter_start(&waiter);
    uint64_t attempts = stats_of(client).attempts;
    for (int i = 0; i < 200 || stats_of(client).attempts < attempts + 3; i++) {
        pthread_kill(waiter.thread, SIGUSR1);
        short_pause();
    }
    assert_false(atomic_load(&waiter.over));
    raise(SIGUSR2);
    assert_status(waiter_end(&waiter), CANCELLED);
    assert_status(dlock_release(hold, NULL), OK);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    sigaction(SIGUSR2, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    dlock_cancel_free(cancel_of_the_handler);
    dlock_close(waiter.lock);
    dlock_client_close(client);
}

/* A request is under way in a server that hangs. Whether it will be carried out nobody knows. What
 * it may lock is released in the background, or expires; of a rung that does not do so the
 * cancelled call says UNKNOWN. It ends while the server still hangs. */
static void cancelled_while_redis_hangs(void **state)
{
    static const char *const rungs[] = {"setnx", "owner_lua", "watchdog"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        dlock_client *client =
            client_of(server_url(server), (struct dlock_options){.command_timeout_ms = 500});
        struct waiter waiter = {.lock = lock_of(client, rungs[i], LOCK)};
        waiter.want =
            (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .cancel = dlock_cancel_new()};
        dlock_hold *hold = acquired(waiter.lock);
        assert_status(dlock_release(hold, NULL), OK);
        uint64_t commands = stats_of(client).commands;
        server_pause(server);
        waiter_start(&waiter);
        eventually(stats_of(client).commands > commands);
        dlock_cancel_now(waiter.want.cancel);
        bool flawed = dlock_rung_of(waiter.lock)->flawed;
        assert_int_equal(waiter_end(&waiter), flawed ? DLOCK_UNKNOWN : DLOCK_CANCELLED);
        server_resume(server);
        assert_int_equal(stats_of(client).unknown, flawed);
        dlock_cancel_free(waiter.want.cancel);
        dlock_close(waiter.lock);
        dlock_client_close(client);
        server_text(server, "FLUSHALL");
    }
}

/* Nothing was sent yet: the server accepts and does not let us in. */
static void cancelled_while_connecting(void **state)
{
    (void)state;
    char url[80];
    snprintf(url, sizeof url, "%s/1", server_url(server));
    dlock_client *client = client_of(url, (struct dlock_options){.connect_timeout_ms = 60000});
    struct waiter waiter = {.lock = lock_of(client, "setnx", LOCK)};
    waiter.want = (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .cancel = dlock_cancel_new()};
    server_pause(server);
    waiter_start(&waiter);
    eventually(stats_of(client).connects == 1);
    dlock_cancel_now(waiter.want.cancel);
    assert_status(waiter_end(&waiter), CANCELLED);
    server_resume(server);
    assert_int_equal(stats_of(client).commands, 0);
    dlock_cancel_free(waiter.want.cancel);
    dlock_close(waiter.lock);
    dlock_client_close(client);
}

/* ---- Holds and locks ------------------------------------------------------------------------- */

static void *release_it(void *hold)
{
    must(dlock_release(hold, NULL) == DLOCK_OK);
    return NULL;
}

/* It leaves the server's queue in the background: its own time for that is over. */
static void cancelled_longer_ago_than_the_bound(void **state)
{
    (void)state;
    _Atomic int leaves = 0;
    dlock_client *one = hasty_client();
    dlock_client *two = new_client();
    dlock *mine = lock_of(one, "fair", LOCK);
    dlock *theirs = lock_of(two, "fair", LOCK);
    dlock_hold *hold = acquired(theirs);
    struct waiter waiter = {.lock = mine,
                            .want = {.wait_ms = DLOCK_WAIT_FOREVER,
                                     .cancel = dlock_cancel_new(),
                                     .user = (void *)&leaves}};
    waiter_start(&waiter);
    eventually(stats_of(one).contended == 1);
    long_pause(BOUND_MS);
    waiter.want.cancel->thrown_ns = 1;
    dlock_cancel_now(waiter.want.cancel);
    assert_status(waiter_end(&waiter), CANCELLED);
    assert_int_equal(leaves, 0);
    eventually(server_integer(server, "EXISTS dlock:queue:" LOCK) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_cancel_free(waiter.want.cancel);
    dlock_close(mine);
    dlock_client_close(one);
    dlock_close(theirs);
    dlock_client_close(two);
}

static bool somebody_is_in_line(dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool is = !TAILQ_EMPTY(&lock->line.waits);
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return is;
}

/* Whom the lock is passed on to asks for nothing more where its cancel is older than the bound. */
static void passed_on_after_a_cancel(void **state)
{
    (void)state;
    static const char *const get[] = {"GET", "read"};
    for (int late = 0; late < 2; late++) {
        struct dlock_reply reply = {.size = sizeof reply};
        dlock_client *client = hasty_client();
        dlock *lock = lock_of(client, "fair", LOCK);
        dlock_hold *hold = acquired(lock);
        struct waiter waiter = {.lock = lock,
                                .want = {.wait_ms = DLOCK_WAIT_FOREVER,
                                         .cancel = dlock_cancel_new(),
                                         .reads = dlock_batch_new()}};
        assert_status(dlock_batch_add(waiter.want.reads, 2, get, NULL), OK);
        waiter_start(&waiter);
        eventually(somebody_is_in_line(lock));
        long_pause(BOUND_MS);
        if (late)
            waiter.want.cancel->thrown_ns = 1;
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_int_equal(stats_of(client).passed_on, 1);
        assert_status(dlock_batch_reply(waiter.want.reads, 0, &reply), OK);
        assert_int_equal(reply.kind, late ? DLOCK_REPLY_NONE : DLOCK_REPLY_NIL);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        dlock_batch_free(waiter.want.reads);
        dlock_cancel_free(waiter.want.cancel);
        dlock_close(lock);
        dlock_client_close(client);
    }
}

static void released_from_another_thread(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        if (strcmp(keyed[i], "reentrant_tls") == 0)
            continue; /* its count is the thread's: see below */
        dlock *lock = lock_of(client, keyed[i], LOCK);
        thread_wait(thread_start(release_it, acquired(lock)));
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        dlock_close(lock);
    }
    dlock *lock = lock_of(client, "local", LOCK);
    thread_wait(thread_start(release_it, acquired(lock)));
    dlock_hold *hold;
    assert_status(tried(lock, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

static void one_name_is_one_lock(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *one = lock_of(client, "local", LOCK);
    dlock *same = lock_of(client, "local", LOCK);
    dlock *other = lock_of(client, "local", LOCK "2");
    dlock *rung = lock_of(client, "setnx", LOCK);
    dlock_hold *holds[3];
    dlock_hold *none;
    assert_ptr_equal(one, same);
    assert_status(tried(one, &holds[0]), OK);
    assert_status(tried(same, &none), BUSY);
    assert_status(tried(other, &holds[1]), OK);
    assert_status(tried(rung, &holds[2]), OK);
    dlock_close(same);
    for (int i = 0; i < 3; i++)
        assert_status(dlock_release(holds[i], NULL), OK);
    assert_status(tried(one, &holds[0]), OK);
    assert_status(dlock_release(holds[0], NULL), OK);
    dlock_close(one);
    dlock_close(other);
    dlock_close(rung);
    dlock_client_close(client);
}

static void a_rung_with_tokens_gives_every_hold_one(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        uint64_t last = 0;
        for (int times = 0; times < 2; times++) {
            dlock *lock = lock_of(client, keyed[i], LOCK);
            dlock_hold *hold = acquired(lock);
            assert_int_equal(dlock_rung_of(lock)->tokens, dlock_token(hold) > last);
            last = dlock_token(hold);
            assert_status(dlock_release(hold, NULL), OK);
            dlock_close(lock);
        }
    }
    assert_true(dlock_rung_find("fair")->tokens);
    assert_false(dlock_rung_find("none")->tokens);
    dlock_client_close(client);
}

static void a_rung_is_shared_that_has_a_read_lock(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    struct dlock_want want = {.size = sizeof want, .mode = DLOCK_SHARED};
    for (size_t i = 0; i < KEYED; i++) {
        dlock *lock = lock_of(client, keyed[i], LOCK);
        bool shared = dlock_rung_of(lock)->shared;
        dlock_hold *hold = NULL;
        assert_int_equal(dlock_acquire(lock, &want, &hold), shared ? DLOCK_OK : DLOCK_UNSUPPORTED);
        assert_true(hold == NULL || dlock_release(hold, NULL) == DLOCK_OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* "<client id>", and what the format says behind it. */
static void assert_owner(const dlock_hold *hold, const dlock_client *client, const char *behind)
{
    char expected[80];
    snprintf(expected, sizeof expected, "%s%s", dlock_client_id(client), behind);
    assert_string_equal(dlock_owner(hold), expected);
}

/* A name is used once, whoever asks; on a flawed rung who is named keeps it. */
static void holds_have_numbers_and_owners(void **state)
{
    static const char *const rungs[] = {"setnx", "owner_lua", "watchdog"};
    (void)state;
    dlock_client *client = new_client();
    uint64_t last = 0;
    for (size_t i = 0; i < 9; i++) {
        dlock *lock = lock_of(client, rungs[i / 3], LOCK);
        uint64_t owner_id = i % 3 == 0 ? 0 : i % 3 == 1 ? 7 : DLOCK_THIS_THREAD;
        for (int times = 0; times < 2; times++) {
            dlock_hold *hold = acquired_by(lock, owner_id);
            char number[24] = "", behind[48];
            unsigned long long thread = 0;
            assert_true(dlock_acquisition(hold) > last);
            assert_int_equal(dlock_token(hold), 0);
            last = dlock_acquisition(hold);
            if (i / 3 > 0)
                snprintf(number, sizeof number, ".%llu", (unsigned long long)last);
            if (owner_id == 0)
                snprintf(behind, sizeof behind, ":%llu", (unsigned long long)last);
            else if (owner_id == 7)
                snprintf(behind, sizeof behind, ":x7%s", number);
            else if (sscanf(dlock_owner(hold) + 36, ":t%llu", &thread) == 1)
                snprintf(behind, sizeof behind, ":t%llu%s", thread, number);
            assert_owner(hold, client, behind);
            assert_status(dlock_release(hold, NULL), OK);
        }
        dlock_close(lock);
    }
    dlock *lock = lock_of(client, "setnx", LOCK);
    dlock_hold *hold = acquired_by(lock, UINT64_MAX - 1);
    assert_owner(hold, client, ":x18446744073709551614");
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_want want = {.size = 0};
    assert_status(dlock_acquire(lock, &want, &hold), INVALID);
    assert_says(dlock_error(), "want.size");
    dlock_close(lock);
    dlock_client_close(client);
}

/* How many keys it keeps beside the lock's: while it is held, and behind its release. */
static int keys_beside(const char *rung, bool held)
{
    if (strcmp(rung, "notify") == 0)
        return 1; /* its token */
    if (strcmp(rung, "fair") == 0)
        return held ? 1 : 2; /* its token; and what the release notes down */
    if (strcmp(rung, "read_write") == 0)
        return held ? 2 : 1; /* its token; and how it is held */
    return strcmp(rung, "blpop_wake") == 0 && !held ? 1 : 0;
}

static bool has_keys_beside(const char *rung)
{
    return strcmp(rung, "notify") == 0 || strcmp(rung, "fair") == 0 ||
           strcmp(rung, "read_write") == 0;
}

/* The name is the key, byte for byte. */
static void odd_names(void **state)
{
    static const char *const names[] = {
        " ", "a b", "\r\n", "\"'\\", "{}", "%s%n", "\xff\xfe\x01\x7f", "l\xc3\xb6", "*?[a]",
    };
    (void)state;
    dlock_client *client = new_client();
    server_text(server, "FLUSHALL");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t j = 0; j < KEYED; j++) {
            if (has_keys_beside(keyed[j]) && strpbrk(names[i], "{}") != NULL)
                continue; /* it refuses a brace without a hash tag */
            dlock *lock = lock_of(client, keyed[j], names[i]);
            dlock_hold *hold = acquired(lock);
            assert_int_equal(server_integer(server, "EXISTS %b", names[i], strlen(names[i])), 1);
            assert_int_equal(server_integer(server, "DBSIZE"), 1 + keys_beside(keyed[j], true));
            assert_status(dlock_release(hold, NULL), OK);
            assert_int_equal(server_integer(server, "EXISTS %b", names[i], strlen(names[i])), 0);
            assert_int_equal(server_integer(server, "DBSIZE"), keys_beside(keyed[j], false));
            server_text(server, "FLUSHALL");
            dlock_close(lock);
        }
    char name[DLOCK_NAME_MAX + 1];
    memset(name, '\x80', sizeof name);
    name[DLOCK_NAME_MAX] = '\0';
    for (size_t j = 0; j < KEYED; j++) {
        dlock *lock = lock_of(client, keyed[j], name);
        dlock_hold *hold = acquired(lock);
        assert_int_equal(server_integer(server, "EXISTS %s", name), 1);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* ---- Re-entrancy ----------------------------------------------------------------------------- */

static void the_same_owner_again(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog_timer", "watchdog", "blpop_wake",
                                        "notify"};
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++)
        for (size_t j = 0; j < 3; j++) {
            dlock *lock = lock_of(client, rungs[i], LOCK);
            dlock_hold *holds[3];
            char owner[80];
            for (int depth = 0; depth < 3; depth++) {
                assert_status(tried_by(lock, 7, &holds[depth]), OK);
                snprintf(owner, sizeof owner, "%s", dlock_owner(holds[depth]));
                assert_int_equal(atoi(server_text(server, "HGET " LOCK " %s", owner)), depth + 1);
            }
            for (int depth = 3; depth > 0; depth--) {
                assert_int_equal(atoi(server_text(server, "HGET " LOCK " %s", owner)), depth);
                assert_status(dlock_release(holds[orders[j][3 - depth]], NULL), OK);
            }
            assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
            dlock_close(lock);
        }
    dlock_client_close(client);
}

static void *try_as_this_thread(void *lock)
{
    dlock_hold *hold;
    return (void *)(intptr_t)tried_by(lock, DLOCK_THIS_THREAD, &hold);
}

static void another_owner_is_kept_out(void **state)
{
    static const char *const rungs[] = {"reentrant", "watchdog_timer", "watchdog", "blpop_wake",
                                        "notify"};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], LOCK);
        struct dlock_want seven = {.size = sizeof seven, .owner_id = 7};
        struct dlock_want eight = {.size = sizeof eight, .owner_id = 8};
        dlock_hold *holds[2];
        dlock_hold *none;
        void *status;
        assert_status(dlock_acquire(lock, &seven, &holds[0]), OK);
        assert_status(dlock_acquire(lock, &eight, &none), BUSY);
        assert_status(tried(lock, &none), BUSY);
        assert_status(dlock_acquire(lock, &seven, &holds[1]), OK);
        assert_string_equal(dlock_owner(holds[0]), dlock_owner(holds[1]));
        assert_status(dlock_release(holds[0], NULL), OK);
        assert_status(dlock_acquire(lock, &eight, &none), BUSY);
        assert_status(dlock_release(holds[1], NULL), OK);

        holds[0] = acquired_by(lock, DLOCK_THIS_THREAD);
        pthread_join(thread_start(try_as_this_thread, lock), &status);
        assert_int_equal((intptr_t)status, DLOCK_BUSY);
        assert_status(dlock_release(holds[0], NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* The limits of the rungs before: the same thread waits for itself. */
static void not_before_the_rung_that_can(void **state)
{
    static const char *const rungs[] = {"local", "setnx", "set_nx_ex", "owner_check", "owner_lua"};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], LOCK);
        dlock_hold *hold = acquired(lock);
        dlock_hold *none;
        assert_status(tried(lock, &none), BUSY);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void *release_fails(void *hold)
{
    must(dlock_release(hold, NULL) == DLOCK_LOST);
    return NULL;
}

/* Its flaw, faithfully: the count in the thread's memory outlives the key. */
static void reentrant_tls_believes_after_the_expiry(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){.ttl_ms = 100});
    dlock_client *other = new_client();
    dlock *lock = lock_of(client, "reentrant_tls", LOCK);
    dlock *theirs = lock_of(other, "reentrant_tls", LOCK);
    struct waiter waiter = {.lock = theirs, .want = {.wait_ms = 60000}};
    dlock_hold *outer = acquired(lock);
    uint64_t commands = stats_of(client).commands;
    waiter_start(&waiter); /* on a thread of its own, so with a count of its own */
    assert_status(waiter_end(&waiter), OK);
    dlock_hold *inner;
    assert_status(tried(lock, &inner), OK); /* two holders now */
    assert_int_equal(stats_of(client).commands, commands);
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), LOST);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    thread_wait(thread_start(release_fails, waiter.hold));
    server_integer(server, "DEL " LOCK);
    dlock_close(lock);
    dlock_close(theirs);
    dlock_client_close(client);
    dlock_client_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_try_and_a_limit),
        cmocka_unit_test(a_waiter_gets_it_when_it_is_free),
        cmocka_unit_test(a_waiter_that_polls_looks_after_a_local_release),
        cmocka_unit_test(the_limit_counts_while_a_connection_is_awaited),
        cmocka_unit_test(the_limit_counts_while_connecting),
        cmocka_unit_test(all_connections_in_use),
        cmocka_unit_test(cancelled_from_another_thread),
        cmocka_unit_test(cancelled_before_the_call),
        cmocka_unit_test(cancelled_before_a_nested_call),
        cmocka_unit_test(cancelled_from_a_signal_handler),
        cmocka_unit_test(cancelled_while_redis_hangs),
        cmocka_unit_test(cancelled_while_connecting),
        cmocka_unit_test(cancelled_longer_ago_than_the_bound),
        cmocka_unit_test(passed_on_after_a_cancel),
        cmocka_unit_test(released_from_another_thread),
        cmocka_unit_test(one_name_is_one_lock),
        cmocka_unit_test(a_rung_with_tokens_gives_every_hold_one),
        cmocka_unit_test(a_rung_is_shared_that_has_a_read_lock),
        cmocka_unit_test(holds_have_numbers_and_owners),
        cmocka_unit_test(odd_names),
        cmocka_unit_test(the_same_owner_again),
        cmocka_unit_test(another_owner_is_kept_out),
        cmocka_unit_test(not_before_the_rung_that_can),
        cmocka_unit_test(reentrant_tls_believes_after_the_expiry),
    };
    return cmocka_run_group_tests_name("acquire", tests, start_server, stop_server);
}
