/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that a limit, a cancel or a close cuts off while the server hangs: what they leave behind
 * is released. And commands that ride with a release are not sent after its hold has ended.
 */
#include "calls.h"
#include "exchange_stage.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdlib.h>

#define LOCK "lock:{cut_off}"
#define OTHER "lock:{other}"

/* ---- What a call leaves behind --------------------------------------------------------------- */

struct pair {
    dlock_client *client;
    dlock *lock;
};

static struct pair pair_of(const char *url, const char *rung, struct dlock_options options)
{
    struct pair pair = {.client = client_of(url, options)};
    pair.lock = lock_of(pair.client, rung, LOCK);
    return pair;
}

static void pair_free(struct pair *pair)
{
    dlock_close(pair->lock);
    dlock_client_close(pair->client);
}

/* What is left behind is released long before that is over. On `fair` the client itself holds, and
 * keeps it for its next waiter: there it expires. */
static int64_t long_ttl_ms(const struct dlock_rung *rung)
{
    return strcmp(rung->name, "fair") == 0 ? 1000 : 3600000;
}

/* Nothing of it is left on the server. */
static void nothing_stays(void)
{
    eventually(server_integer(server, "EXISTS " LOCK " dlock:queue:" LOCK " dlock:holds:" LOCK
                                      " dlock:writers:" LOCK " dlock:readers:" LOCK) == 0);
}

static dlock_batch *a_read(void)
{
    dlock_batch *reads = dlock_batch_new();
    must(dlock_batch_add(reads, 2, (const char *const[]){"GET", "read"}, NULL) == DLOCK_OK);
    return reads;
}

/* The server stands still longer than the call may last. The caller frees what rode at once; what
 * the request locks when the server goes on is released in the background. */
static void what_a_limit_cut_off_is_released(void **state)
{
    const struct dlock_rung *rung = *state;
    if (is_local(rung))
        return;
    for (int started = 0; started < 2; started++) {
        server_text(server, "FLUSHALL");
        struct started late = {0};
        dlock_hold *hold = NULL;
        struct dlock_options options = {
            .ttl_ms = long_ttl_ms(rung), .connect_timeout_ms = 60000, .command_timeout_ms = 60000};
        struct pair pair = pair_of(server_url(server), rung->name, options);
        assert_status(dlock_release(acquired(pair.lock), NULL), OK);
        struct dlock_want want = {.size = sizeof want,
                                  .wait_ms = DLOCK_WAIT_FOREVER,
                                  .call_max_ms = 200,
                                  .reads = a_read()};
        server_pause(server);
        if (started) {
            start(pair.lock, want, &late);
            started_answered(&late);
            assert_int_equal(late.status, DLOCK_TIMED_OUT);
        } else {
            assert_status(dlock_acquire(pair.lock, &want, &hold), TIMED_OUT);
        }
        dlock_batch_free(want.reads);
        assert_null(hold);
        assert_null(late.hold);
        server_resume(server);
        nothing_stays();
        assert_status(dlock_release(acquired(pair.lock), NULL), OK);
        pair_free(&pair);
    }
}

/* The same of a cancel, which awaits a request under way no longer than the bound. */
static void what_a_cancel_cut_off_is_released(void **state)
{
    const struct dlock_rung *rung = *state;
    if (is_local(rung))
        return;
    for (int started = 0; started < 2; started++) {
        server_text(server, "FLUSHALL");
        struct started late = {0};
        struct dlock_options options = {
            .ttl_ms = long_ttl_ms(rung), .connect_timeout_ms = 200, .command_timeout_ms = 200};
        struct pair pair = pair_of(server_url(server), rung->name, options);
        assert_status(dlock_release(acquired(pair.lock), NULL), OK);
        struct waiter waiter = {.lock = pair.lock,
                                .want = {.wait_ms = DLOCK_WAIT_FOREVER,
                                         .cancel = dlock_cancel_new(),
                                         .reads = a_read()}};
        server_pause(server);
        if (started)
            start(pair.lock, waiter.want, &late);
        else
            waiter_start(&waiter);
        eventually(stats_of(pair.client).attempts >= 2);
        dlock_cancel_now(waiter.want.cancel);
        if (started)
            started_answered(&late);
        else
            late.status = waiter_end(&waiter);
        assert_int_equal(late.status, DLOCK_CANCELLED);
        dlock_batch_free(waiter.want.reads);
        dlock_cancel_free(waiter.want.cancel);
        server_resume(server);
        nothing_stays();
        pair_free(&pair);
    }
}

/* Scripts hang. What many waiters leave behind is taken back in the background: all are told while
 * it still hangs. */
static void many_leave_while_scripts_hang(void **state)
{
    enum { COUNT = 30 };
    (void)state;
    struct stage stage;
    struct dlock_want want = waiting(DLOCK_WAIT_FOREVER);
    dlock_hold *holds[COUNT];
    dlock *theirs[COUNT];
    stage_set(&stage, "read_write", false, (struct dlock_options){0});
    dlock_client *other = client_of(server_url(server), (struct dlock_options){.ttl_ms = 3600000});
    for (int i = 0; i < COUNT; i++) {
        theirs[i] = lock_of(other, "read_write", dlock_name(stage.locks[i]));
        holds[i] = acquired(theirs[i]);
    }
    want.cancel = dlock_cancel_new();
    for (int i = 0; i < COUNT; i++)
        start(stage.locks[i], want, &stage.crowd[i]);
    eventually(stats_of(stage.client).attempts >= 1 + 2 * COUNT); /* again once it listened */
    server_text(server, "CLIENT PAUSE 3600000 WRITE");
    dlock_cancel_now(want.cancel);
    all_answered(&stage, COUNT);
    server_text(server, "CLIENT UNPAUSE");
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(stage.crowd[i].status, DLOCK_CANCELLED);
        eventually(server_integer(server, "EXISTS dlock:writers:lock:{%d}", i) == 0);
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(theirs[i]);
    }
    dlock_cancel_free(want.cancel);
    dlock_client_close(other);
    stage_clear(&stage);
}

static void looks_on(void *arg, const struct dlock_trace *trace)
{
    (void)arg;
    (void)trace;
}

/* Scripts hang, and many calls have left something behind. The client closes with the requests that
 * are under way, and begins none. */
static void a_close_begins_nothing(void **state)
{
    enum { COUNT = 40 };
    (void)state;
    struct stage stage;
    /* A hook looks on: each request goes by itself. */
    stage_set(&stage, "watchdog", true,
              (struct dlock_options){
                  .on_trace = looks_on, .command_timeout_ms = 100, .connect_timeout_ms = 100});
    server_text(server, "CLIENT PAUSE 3600000 WRITE");
    for (int i = 0; i < COUNT; i++)
        start(stage.locks[i], waiting(0), &stage.crowd[i]);
    all_answered(&stage, COUNT);
    size_t before = proxy_requests(stage.proxy, "EVALSHA");
    for (int i = 0; i < CROWD; i++)
        dlock_close(stage.locks[i]);
    dlock_client_close(stage.client);
    /* Two threads ask, and each sends what it began once more. */
    assert_in_range(proxy_requests(stage.proxy, "EVALSHA") - before, 0, 4);
    server_text(server, "CLIENT UNPAUSE");
    proxy_free(stage.proxy);
    free(stage.crowd);
}

/* ---- Inside a hold --------------------------------------------------------------------------- */

/* The release waits for the client's one connection until the hold's validity is over, and another
 * has the lock: what was to be sent before it is not sent. */
static void what_rides_comes_never_after_its_hold(void **state)
{
    const struct dlock_rung *rung = *state;
    if (is_local(rung))
        return;
    for (int started = 0; started < 2; started++) {
        server_text(server, "FLUSHALL");
        struct proxy *proxy = proxy_start(server);
        struct pair pair =
            pair_of(proxy_url(proxy), rung->name,
                    (struct dlock_options){
                        .ttl_ms = 1000, .connections_max = 1, .command_timeout_ms = 60000});
        struct pair other = pair_of(server_url(server), rung->name, (struct dlock_options){0});
        struct waiter keeper = {.lock = lock_of(pair.client, "owner_lua", OTHER),
                                .want = {.wait_ms = PATIENCE_MS}};
        struct releaser releaser = {.hold = acquired(pair.lock), .last = dlock_batch_new()};
        struct started late = {0};
        static const char *const set[] = {"SET", "resource", "ours"};
        assert_status(dlock_batch_add(releaser.last, 3, set, NULL), OK);
        proxy_plan(proxy, PROXY_HOLD_REPLY, OTHER, NULL, 0);
        waiter_start(&keeper);
        eventually(proxy_done(proxy));
        if (started)
            start_release(releaser.hold, releaser.last, &late);
        else
            releaser_start(&releaser);
        dlock_hold *hold = acquired(other.lock); /* once it has expired */
        server_text(server, "SET resource theirs");
        proxy_let_go(proxy);
        if (started)
            started_answered(&late);
        assert_int_equal(started ? late.status : releaser_end(&releaser), DLOCK_LOST);
        assert_string_equal(server_text(server, "GET resource"), "theirs");
        assert_status(waiter_end(&keeper), OK);
        assert_status(dlock_release(keeper.hold, NULL), OK);
        dlock_release(hold, NULL);
        dlock_batch_free(releaser.last);
        dlock_close(keeper.lock);
        pair_free(&other);
        pair_free(&pair);
        proxy_free(proxy);
    }
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(what_a_limit_cut_off_is_released, EACH_SOUND),
        SCENARIO(what_a_cancel_cut_off_is_released, EACH_SOUND),
        SCENARIO(many_leave_while_scripts_hang, ONCE),
        SCENARIO(a_close_begins_nothing, ONCE),
        SCENARIO(what_rides_comes_never_after_its_hold, EACH_SOUND),
    };
    return run_scenarios("cut_off", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
