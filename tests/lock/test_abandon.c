/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds that are abandoned: the lock is nobody's until it has expired.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "own_proxy.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdatomic.h>

#define LOCK "lock:{abandoned}"
#define LONG_MS 600000 /* far beyond the test's end */
#define SHORT_MS 500   /* over soon */
#define OWNER 7

struct stage {
    dlock_client *client, *other_client;
    dlock *lock, *other;
};

static void stage_set(struct stage *stage, const struct dlock_rung *rung, int64_t ttl_ms)
{
    struct dlock_options options = {.ttl_ms = ttl_ms};
    server_text(server, "FLUSHALL");
    stage->client = client_of(proxy_url(proxy), options);
    stage->other_client = client_of(server_url(server), options);
    stage->lock = lock_of(stage->client, rung->name, LOCK);
    stage->other = lock_of(stage->other_client, rung->name, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_close(stage->other);
    dlock_client_close(stage->client);
    dlock_client_close(stage->other_client);
}

static void assert_kept_from(dlock *lock)
{
    dlock_hold *hold;
    assert_status(tried(lock, &hold), BUSY);
}

/* ---- Until it expires ------------------------------------------------------------------------ */

static void it_is_not_released(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    dlock_hold *hold = acquired(stage.lock);
    uint64_t commands = stats_of(stage.client).commands;
    assert_status(dlock_abandon(hold), OK);
    assert_int_equal(stats_of(stage.client).commands, commands);
    assert_int_equal(stats_of(stage.client).abandoned, 1);
    assert_kept_from(stage.other);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    stage_clear(&stage);
}

/* What owns the hold may abandon it at once, also on the thread that tells of it. */
static void tell_and_abandon(void *arg, dlock_status status, dlock_hold *hold)
{
    _Atomic int *told = arg;
    must(status == DLOCK_OK && dlock_abandon(hold) == DLOCK_OK);
    atomic_store(told, 1);
}

static void in_a_callback(bool own_loop)
{
    struct dlock_options options = {.ttl_ms = LONG_MS, .own_loop = own_loop};
    server_text(server, "FLUSHALL");
    dlock_client *client = client_of(server_url(server), options);
    dlock *lock = lock_of(client, "watchdog", LOCK);
    _Atomic int told = 0;
    assert_status(dlock_acquire_start(lock, NULL, tell_and_abandon, &told), OK);
    eventually((own_loop && dlock_process(client) > 0) || atomic_load(&told) == 1);
    assert_kept_from(lock);
    dlock_close(lock);
    dlock_client_close(client);
}

static void from_done(void **state)
{
    (void)state;
    in_a_callback(false);
    in_a_callback(true);
}

static void it_is_not_renewed(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, SHORT_MS);
    assert_true(dlock_abandon(acquired(stage.lock)) != DLOCK_UNSUPPORTED);
    dlock_release(acquired(stage.other), NULL);
    stage_clear(&stage);
}

static void its_client_does_not_pass_it_on(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    struct started waiter = {0};
    dlock_hold *hold = acquired(stage.lock);
    start(stage.lock, waiting(1000), &waiter);
    assert_status(dlock_abandon(hold), OK);
    started_answered(&waiter);
    assert_int_equal(waiter.status, DLOCK_TIMED_OUT);
    assert_int_equal(stats_of(stage.client).handoffs, 0);
    assert_kept_from(stage.other);
    stage_clear(&stage);
}

static void its_clients_waiter_gets_it_then(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, SHORT_MS);
    struct started waiter = {0};
    dlock_hold *hold = acquired(stage.lock);
    start(stage.lock, waiting(PATIENCE_MS), &waiter);
    assert_true(dlock_abandon(hold) != DLOCK_UNSUPPORTED);
    started_answered(&waiter);
    assert_int_equal(waiter.status, DLOCK_OK);
    dlock_release(waiter.hold, NULL);
    stage_clear(&stage);
}

/* ---- Its owner's other holds ----------------------------------------------------------------- */

static void the_last_of_its_owner_expires_too(void **state)
{
    for (int inner_first = 0; inner_first < 2; inner_first++) {
        struct stage stage;
        stage_set(&stage, *state, LONG_MS);
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        dlock_hold *inner = acquired_by(stage.lock, OWNER);
        assert_status(dlock_abandon(inner_first ? inner : outer), OK);
        dlock_hold *rest = inner_first ? outer : inner;
        assert_true(dlock_valid(rest));
        assert_status(dlock_release(acquired_by(stage.lock, OWNER), NULL), OK);
        assert_status(dlock_release(rest, NULL), UNKNOWN);
        assert_says(dlock_error(), "left to expire");
        assert_kept_from(stage.other);
        stage_clear(&stage);
    }
}

/* What it sent while it was valid may come, too. */
static void its_own_time_is_over(void **state)
{
    struct stage stage;
    dlock_hold *hold;
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER, .hold_max_ms = SHORT_MS};
    stage_set(&stage, *state, LONG_MS);
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    assert_status(dlock_acquire(stage.lock, &want, &hold), OK);
    eventually(!dlock_valid(hold));
    assert_status(dlock_abandon(hold), LOST);
    assert_true(dlock_valid(outer));
    assert_status(dlock_release(outer, NULL), UNKNOWN);
    assert_says(dlock_error(), "left to expire");
    assert_kept_from(stage.other);
    stage_clear(&stage);
}

/* What was to ride with the last release was not sent: that is said. */
static void the_last_of_its_owner_reaches_nobody(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    struct proxy *own = proxy_start(server);
    dlock_client *client = client_of(proxy_url(own), (struct dlock_options){.ttl_ms = LONG_MS});
    dlock *lock = lock_of(client, ((const struct dlock_rung *)*state)->name, LOCK);
    dlock_hold *outer = acquired_by(lock, OWNER);
    dlock_batch *last = dlock_batch_new();
    assert_status(dlock_batch_add(last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
    assert_status(dlock_abandon(acquired_by(lock, OWNER)), OK);
    proxy_free(own);
    assert_status(dlock_release(outer, last), UNREACHABLE);
    assert_int_equal(server_integer(server, "EXISTS sold"), 0);
    assert_kept_from(stage.other);
    dlock_batch_free(last);
    dlock_close(lock);
    dlock_client_close(client);
    stage_clear(&stage);
}

/* Its owner acquires once more, and hears of it when the hold that it nests in is gone. */
static void a_nested_acquire_is_under_way(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    struct waiter nested = {.lock = stage.lock,
                            .want = {.wait_ms = PATIENCE_MS, .owner_id = OWNER}};
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "EVALSHA", NULL, 0);
    waiter_start(&nested);
    eventually(proxy_done(proxy));
    assert_status(dlock_abandon(outer), OK);
    proxy_let_go(proxy);
    assert_status(waiter_end(&nested), OK);
    assert_status(dlock_release(nested.hold, NULL), UNKNOWN);
    assert_kept_from(stage.other);
    stage_clear(&stage);
}

static void another_reader_stays(void **state)
{
    struct stage stage;
    dlock_hold *writer;
    (void)state;
    stage_set(&stage, dlock_rung_find("read_write"), LONG_MS);
    dlock_hold *hold = acquired_as(stage.lock, DLOCK_SHARED);
    dlock_hold *reader = acquired_as(stage.other, DLOCK_SHARED);
    assert_status(dlock_abandon(hold), OK);
    assert_status(dlock_extend(reader), OK);
    assert_status(dlock_release(reader, NULL), OK);
    assert_status(tried(stage.other, &writer), BUSY);
    stage_clear(&stage);
}

/* Their owner's first name is over for its hold, and the key keeps it for the nested one's time. */
static void a_hold_of_another_name_is_let_go(void **state)
{
    struct stage stage;
    dlock_hold *first, *nested, *abandoned;
    struct dlock_want read = {.size = sizeof read, .owner_id = OWNER, .mode = DLOCK_SHARED};
    struct waiter writer = {.lock = NULL, .want = {.wait_ms = PATIENCE_MS}};
    (void)state;
    stage_set(&stage, dlock_rung_find("read_write"), SHORT_MS);
    writer.lock = stage.other;
    read.hold_max_ms = SHORT_MS;
    read.wait_ms = PATIENCE_MS;
    assert_status(dlock_acquire(stage.lock, &read, &first), OK);
    read.hold_max_ms = 0;
    read.ttl_ms = LONG_MS;
    assert_status(dlock_acquire(stage.lock, &read, &nested), OK);
    assert_string_equal(dlock_owner(nested), dlock_owner(first));
    assert_status(dlock_release(nested, NULL), OK);
    eventually(!dlock_valid(first));
    read.ttl_ms = SHORT_MS;
    assert_status(dlock_acquire(stage.lock, &read, &abandoned), OK);
    assert_string_not_equal(dlock_owner(abandoned), dlock_owner(first));
    assert_true(dlock_abandon(abandoned) != DLOCK_UNSUPPORTED);
    assert_status(dlock_release(first, NULL), LOST);
    waiter_start(&writer);
    assert_status(waiter_end(&writer), OK);
    dlock_release(writer.hold, NULL);
    stage_clear(&stage);
}

/* ---- What it answers ------------------------------------------------------------------------- */

static void lost_before(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    dlock_hold *hold = acquired(stage.lock);
    server_text(server, "FLUSHALL");
    assert_status(dlock_extend(hold), LOST);
    assert_status(dlock_abandon(hold), LOST);
    assert_status(dlock_release(acquired(stage.lock), NULL), OK);
    stage_clear(&stage);
}

/* Its owner has the lock anew by then: under another name. */
static void lost_before_its_owner_had_it_anew(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    dlock_hold *lost = acquired_by(stage.lock, OWNER);
    server_text(server, "FLUSHALL");
    assert_status(dlock_extend(lost), LOST);
    dlock_hold *anew = acquired_by(stage.lock, OWNER);
    assert_status(dlock_abandon(lost), LOST);
    assert_status(dlock_release(anew, NULL), OK);
    assert_status(dlock_release(acquired(stage.other), NULL), OK);
    stage_clear(&stage);
}

/* Once a loss is told, the hold counts for nothing any more; not as soon as it is not valid. */
static void count_losses(void *arg, const struct dlock_event *event)
{
    if (event->kind == DLOCK_EVENT_LOST)
        atomic_fetch_add((_Atomic int *)arg, 1);
}

/* On `fair` a client passes the lock on to its next waiter, with its token. That one's hold is not
 * left to expire when another owner of the client abandons a hold that was lost. */
static void lost_before_another_owner_had_it(void **state)
{
    _Atomic int losses = 0;
    (void)state;
    dlock_client *client =
        client_of(proxy_url(proxy), (struct dlock_options){.ttl_ms = LONG_MS,
                                                           .handoff_ms = 60000,
                                                           .on_event = count_losses,
                                                           .on_event_arg = &losses});
    dlock *lock = lock_of(client, "fair", LOCK);
    struct dlock_want nested = {.size = sizeof nested, .owner_id = OWNER, .hold_max_ms = SHORT_MS};
    struct waiter waiter = {.lock = lock,
                            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = OWNER + 1}};
    server_text(server, "FLUSHALL");
    dlock_hold *outer = acquired_by(lock, OWNER), *lost;
    assert_status(dlock_acquire(lock, &nested, &lost), OK);
    waiter_start(&waiter);
    eventually(atomic_load(&losses) ==
               1); /* by then it waits, as a rule; else it asks the server */
    assert_status(dlock_release(outer, NULL), OK);
    assert_int_equal(waiter_end(&waiter), DLOCK_OK);
    assert_status(dlock_abandon(lost), LOST);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

/* The same while its own owner passes the lock on. */
static void lost_while_another_owner_is_given_it(void **state)
{
    struct started release = {0}, next = {0};
    _Atomic int losses = 0;
    struct dlock_want nested = {.size = sizeof nested, .owner_id = OWNER, .hold_max_ms = SHORT_MS};
    dlock_batch *last = dlock_batch_new();
    (void)state;
    assert_status(dlock_batch_add(last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
    server_text(server, "FLUSHALL");
    dlock_client *client =
        client_of(proxy_url(proxy), (struct dlock_options){.ttl_ms = LONG_MS,
                                                           .handoff_ms = 60000,
                                                           .on_event = count_losses,
                                                           .on_event_arg = &losses});
    dlock *lock = lock_of(client, "fair", LOCK);
    dlock_hold *outer = acquired_by(lock, OWNER), *lost;
    assert_status(dlock_acquire(lock, &nested, &lost), OK);
    start(lock, (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = OWNER + 1}, &next);
    eventually(atomic_load(&losses) == 1);
    proxy_plan(proxy, PROXY_HOLD_REPLY, "sold", NULL, 0);
    start_release(outer, last, &release);
    eventually(proxy_done(proxy));
    assert_status(dlock_abandon(lost), LOST);
    proxy_let_go(proxy);
    started_answered(&release);
    started_answered(&next);
    assert_int_equal(release.status, DLOCK_OK);
    assert_int_equal(next.status, DLOCK_OK);
    assert_status(dlock_release(next.hold, NULL), OK);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    dlock_batch_free(last);
    dlock_close(lock);
    dlock_client_close(client);
}

/* On `fair` the client does not ask the server for the lock, but says who has it all the same. */
static void what_its_client_is_told(void **state)
{
    struct stage stage;
    dlock_hold *none;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 300};
    (void)state;
    stage_set(&stage, dlock_rung_find("fair"), LONG_MS);
    assert_status(dlock_abandon(acquired(stage.lock)), OK);
    assert_status(tried(stage.lock, &none), BUSY);
    assert_says(dlock_error(), "': this client's last hold is left to expire; held by '");
    assert_status(dlock_acquire(stage.lock, &want, &none), TIMED_OUT);
    assert_says(dlock_error(), " ms: this client's last hold is left to expire; ");
    assert_says(dlock_error(), "held by '");
    stage_clear(&stage);
}

static void not_where_it_would_not_expire(void **state)
{
    static const char *const rungs[] = {"none", "local", "setnx", "set_nx_ex", "watchdog_timer"};
    (void)state;
    assert_status(dlock_abandon(NULL), INVALID);
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        stage_set(&stage, dlock_rung_find(rungs[i]), 0);
        dlock_hold *hold = acquired(stage.lock);
        assert_status(dlock_abandon(hold), UNSUPPORTED);
        assert_says(dlock_error(), "release it");
        assert_true(dlock_valid(hold));
        assert_status(dlock_release(hold, NULL), OK);
        stage_clear(&stage);
    }
}

static int abandon_in_child(void *arg)
{
    return dlock_abandon(arg) == DLOCK_FORKED ? 0 : 1;
}

static void not_in_a_forked_child(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, LONG_MS);
    dlock_hold *hold = acquired(stage.lock);
    assert_int_equal(child_wait(child_start(abandon_in_child, hold)), 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(it_is_not_released, EACH_SOUND),
        SCENARIO(it_is_not_renewed, EACH_SOUND),
        SCENARIO(its_client_does_not_pass_it_on, EACH_SOUND),
        SCENARIO(from_done, ONCE),
        SCENARIO(its_clients_waiter_gets_it_then, EACH_SOUND),
        SCENARIO(the_last_of_its_owner_expires_too, EACH_REENTRANT),
        SCENARIO(its_own_time_is_over, EACH_REENTRANT),
        SCENARIO(the_last_of_its_owner_reaches_nobody, EACH_REENTRANT),
        SCENARIO(a_nested_acquire_is_under_way, EACH_NESTED_ASKS),
        SCENARIO(another_reader_stays, ONCE),
        SCENARIO(a_hold_of_another_name_is_let_go, ONCE),
        SCENARIO(what_its_client_is_told, ONCE),
        SCENARIO(lost_before, EACH_SOUND),
        SCENARIO(lost_before_its_owner_had_it_anew, EACH_SOUND),
        SCENARIO(lost_before_another_owner_had_it, ONCE),
        SCENARIO(lost_while_another_owner_is_given_it, ONCE),
        SCENARIO(not_where_it_would_not_expire, ONCE),
        SCENARIO(not_in_a_forked_child, EACH_SOUND),
    };
    return run_scenarios("abandon", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server_and_proxy, stop_server_and_proxy);
}
