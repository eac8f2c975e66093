/* SPDX-License-Identifier: Apache-2.0
 *
 * Cancels: before a call and during it, from threads and signal handlers, while a server hangs.
 */
#include "calls.h"
#include "client.h"
#include "must.h"
#include "own_server.h"
#include "waiter.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#define LOCK "lock:{cancel}"
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
    const struct dlock_rung *rungs = single_rungs(&count);
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

/* ---- Longer ago than the bound --------------------------------------------------------------- */

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
    waiter.want.cancel->requested_ns = 1;
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
    bool is = !TAILQ_EMPTY(&lock->queue.waits);
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
            waiter.want.cancel->requested_ns = 1;
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_int_equal(stats_of(client).handoffs, 1);
        assert_status(dlock_batch_reply(waiter.want.reads, 0, &reply), OK);
        assert_int_equal(reply.kind, late ? DLOCK_REPLY_NONE : DLOCK_REPLY_NIL);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        dlock_batch_free(waiter.want.reads);
        dlock_cancel_free(waiter.want.cancel);
        dlock_close(lock);
        dlock_client_close(client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cancelled_from_another_thread),
        cmocka_unit_test(cancelled_before_the_call),
        cmocka_unit_test(cancelled_before_a_nested_call),
        cmocka_unit_test(cancelled_from_a_signal_handler),
        cmocka_unit_test(cancelled_while_redis_hangs),
        cmocka_unit_test(cancelled_while_connecting),
        cmocka_unit_test(cancelled_longer_ago_than_the_bound),
        cmocka_unit_test(passed_on_after_a_cancel),
    };
    return cmocka_run_group_tests_name("cancel", tests, start_server, stop_server);
}
