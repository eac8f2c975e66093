/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call leaves behind where several holds share a key: holds of one owner, or of waiters to
 * which their client passes the lock.
 */
#include "background.h"
#include "calls.h"
#include "client.h"
#include "cleanup_stage.h"
#include "must.h"
#include "own_proxy.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

/* The last that is valid is let go of, though another of its owner was not released yet. */
static void beside_one_that_is_over(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    dlock_hold *nested = acquired_for(stage.lock, (struct dlock_want){.hold_max_ms = 100});
    eventually(stats_of(stage.client).lost == 1); /* the timekeeper has counted it out */
    go_away();
    assert_status(dlock_release(outer, NULL), UNREACHABLE);
    assert_status(dlock_release(nested, NULL), LOST);
    server_resume(server);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* The key was given the time of a hold that is released by now: for so long it is tried. */
static void for_as_long_as_the_key_lives(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    dlock_hold *outer = acquired_for(stage.lock, (struct dlock_want){.ttl_ms = SHORT_MS});
    assert_status(dlock_release(acquired_by(stage.lock, OWNER), NULL), OK);
    go_away();
    assert_int_not_equal(dlock_release(outer, NULL), DLOCK_OK);
    long_pause(SHORT_MS + SHORT_BOUND_MS + SHORT_MS);
    server_resume(server);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* The same of a hold that was passed the lock inside the client. */
static void for_as_long_as_the_client_has_it(void **state)
{
    struct stage stage;
    struct started next = {0};
    (void)state;
    stage_set(&stage, dlock_rung_find("fair"), server_url(server), SHORT_MS);
    dlock_hold *first = acquired(stage.lock);
    start(stage.lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .ttl_ms = SHORT_MS}, &next);
    assert_status(dlock_release(first, NULL), OK);
    started_answered(&next);
    assert_int_equal(stats_of(stage.client).handoffs, 1);
    go_away();
    assert_int_not_equal(dlock_release(next.hold, NULL), DLOCK_OK);
    long_pause(SHORT_MS + SHORT_BOUND_MS + SHORT_MS);
    server_resume(server);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* Its time is over before the server answers who connects, but its key lives on. */
static void over_before_it_was_sent(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), 60000);
    struct dlock_want want = {.ttl_ms = SHORT_MS, .hold_max_ms = SHORT_MS};
    dlock_hold *outer = acquired_for(stage.lock, want);
    assert_status(dlock_release(acquired_by(stage.lock, OWNER), NULL), OK);
    go_away();
    struct releaser releaser = {.hold = outer, .last = stage.last};
    releaser_start(&releaser);
    long_pause(SHORT_MS);
    server_resume(server);
    assert_int_not_equal(releaser_end(&releaser), DLOCK_OK);
    comes_to_another(&stage);
    assert_int_equal(server_integer(server, "EXISTS sold"), 0);
    stage_clear(&stage);
}

/* Its time is over, but not its key's, and the server refuses its release for a while. */
static void refused_after_its_time(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    struct dlock_want want = {.ttl_ms = SHORT_MS, .hold_max_ms = SHORT_MS};
    dlock_hold *outer = acquired_for(stage.lock, want);
    assert_status(dlock_release(acquired_by(stage.lock, OWNER), NULL), OK);
    eventually(!dlock_valid(outer));
    server_refuse_writes(server, true);
    assert_status(dlock_release(outer, NULL), LOST);
    server_refuse_writes(server, false);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* The same of a hold that was passed the lock inside the client. */
static void refused_after_it_was_passed_on(void **state)
{
    struct stage stage;
    struct started next = {0};
    (void)state;
    stage_set(&stage, dlock_rung_find("fair"), server_url(server), SHORT_MS);
    dlock_hold *first = acquired(stage.lock);
    start(stage.lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .hold_max_ms = SHORT_MS}, &next);
    assert_status(dlock_release(first, NULL), OK);
    started_answered(&next);
    eventually(!dlock_valid(next.hold));
    server_refuse_writes(server, true);
    assert_status(dlock_release(next.hold, NULL), LOST);
    server_refuse_writes(server, false);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* A nested acquire that nobody was told of gave the key its time. */
static void after_a_nested_acquire_that_was_not_answered(void **state)
{
    struct stage stage;
    dlock_hold *none;
    struct dlock_want nested = {
        .size = sizeof nested, .owner_id = OWNER, .wait_ms = PATIENCE_MS, .call_max_ms = 100};
    stage_set(&stage, *state, proxy_url(proxy), 60000);
    struct dlock_want want = {.ttl_ms = SHORT_MS, .hold_max_ms = SHORT_MS};
    dlock_hold *outer = acquired_for(stage.lock, want);
    proxy_plan(proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
    dlock_status status = dlock_acquire(stage.lock, &nested, &none);
    if (status == DLOCK_OK) { /* `fair` asks nobody; nor shall its release be kept instead */
        assert_status(dlock_release(none, NULL), OK);
        proxy_plan(proxy, PROXY_HOLD_REPLY, "nothing", NULL, 0);
    }
    eventually(!dlock_valid(outer));
    dlock_release(outer, NULL);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* A release that was refused is carried out with the last of its name, though the owner reads under
 * another name by then. */
static void its_owner_reads_anew(void **state)
{
    struct stage stage;
    (void)state;
    stage_set(&stage, dlock_rung_find("read_write"), server_url(server), SHORT_MS);
    struct dlock_want first = {.mode = DLOCK_SHARED, .ttl_ms = 600, .hold_max_ms = 600};
    dlock_hold *outer = acquired_for(stage.lock, first);
    dlock_hold *nested = acquired_for(stage.lock, (struct dlock_want){.mode = DLOCK_SHARED});
    server_refuse_writes(server, true);
    assert_status(dlock_release(nested, NULL), REFUSED);
    server_refuse_writes(server, false);
    eventually(!dlock_valid(outer));
    dlock_hold *anew = acquired_for(stage.lock, (struct dlock_want){.mode = DLOCK_SHARED});
    assert_status(dlock_release(outer, NULL), LOST);
    assert_status(dlock_release(anew, NULL), OK);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* A waiter comes in between whose own time is short. */
static void for_as_long_as_what_was_left_lives(void **state)
{
    struct stage stage;
    dlock_hold *none;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 50, .ttl_ms = SHORT_MS};
    (void)state;
    stage_set(&stage, dlock_rung_find("fair"), server_url(server), SHORT_MS);
    dlock_hold *hold = acquired(stage.lock);
    go_away();
    assert_int_not_equal(dlock_release(hold, NULL), DLOCK_OK);
    assert_int_not_equal(dlock_acquire(stage.lock, &want, &none), DLOCK_OK);
    long_pause(SHORT_MS + SHORT_BOUND_MS + SHORT_MS);
    server_resume(server);
    comes_to_another(&stage);
    stage_clear(&stage);
}

static bool waits_in_line(dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool waits = wait_first(lock) != NULL;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return waits;
}

/* A nested acquire gave the key its time, and its answer was lost. It asks anew once the time of
 * the outer hold is over, and is told that another has the lock: its own owner. */
static void before_its_owner_asked_anew(void **state)
{
    struct stage stage;
    const struct dlock_rung *rung = *state;
    stage_set(&stage, rung, proxy_url(proxy), SHORT_MS);
    struct dlock_want want = {.ttl_ms = 2 * SHORT_MS, .hold_max_ms = 2 * SHORT_MS};
    dlock_hold *outer = acquired_for(stage.lock, want);
    struct waiter nested = {.lock = stage.lock,
                            .want = {.owner_id = OWNER, .wait_ms = PATIENCE_MS}};
    proxy_plan(proxy, PROXY_MUTE, LOCK, NULL, 0);
    waiter_start(&nested);
    eventually(proxy_done(proxy));
    server_pause(server);
    eventually(!dlock_valid(outer) && stats_of(stage.client).attempts > 2);
    server_resume(server);
    eventually(stats_of(stage.client).contended == 1);
    dlock_release(outer, NULL);
    assert_status(waiter_end(&nested), OK);
    assert_status(dlock_release(nested.hold, NULL), OK);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* What the releaser's last command needs is longer than its own time to live; the lock's is a day.
 * Who was to have the lock next leaves. */
static void passed_on_when_its_time_was_over(void **state)
{
    struct stage stage;
    (void)state;
    for (int limit = 0; limit < 2; limit++) {
        stage_set(&stage, dlock_rung_find("fair"), proxy_url(proxy), 60000);
        dlock_cancel *cancel = dlock_cancel_new();
        struct started second = {0};
        struct waiter third = {.lock = stage.lock,
                               .want = {.wait_ms = limit ? 2 * SHORT_MS : PATIENCE_MS,
                                        .cancel = limit ? NULL : cancel}};
        dlock_hold *first = acquired(stage.lock);
        start(stage.lock,
              (struct dlock_want){
                  .wait_ms = PATIENCE_MS, .ttl_ms = SHORT_MS, .hold_max_ms = SHORT_MS},
              &second);
        assert_status(dlock_release(first, NULL), OK);
        started_answered(&second);
        struct started released = {0};
        proxy_plan(proxy, PROXY_HOLD_REPLY, "sold", NULL, 0);
        waiter_start(&third);
        eventually(waits_in_line(stage.lock));
        assert_status(dlock_release_start(second.hold, stage.last, started_done, &released), OK);
        eventually(proxy_done(proxy));
        long_pause(3 * SHORT_MS);
        dlock_cancel_now(cancel);
        proxy_let_go(proxy);
        assert_int_not_equal(waiter_end(&third), DLOCK_OK);
        started_answered(&released);
        comes_to_another(&stage);
        dlock_cancel_free(cancel);
        stage_clear(&stage);
    }
}

/* A release gets no turn: others of its owner ask again and again while no server answers. The hold
 * is over by then, or not. */
static void without_a_turn(void **state)
{
    enum { OTHERS = 8 };
    for (int over = 0; over < 2; over++) {
        struct stage stage;
        struct waiter others[OTHERS];
        stage_set(&stage, *state, server_url(server), SHORT_MS);
        struct dlock_want want = {.ttl_ms = over ? SHORT_MS : 0,
                                  .hold_max_ms = over ? SHORT_MS : 0};
        dlock_hold *hold = acquired_for(stage.lock, want);
        dlock_hold *nested = acquired_for(stage.lock, (struct dlock_want){0});
        assert_status(dlock_release(nested, NULL), OK);
        if (over)
            eventually(!dlock_valid(hold));
        server_pause(server);
        for (int i = 0; i < OTHERS; i++) {
            others[i] = (struct waiter){.lock = stage.lock,
                                        .want = {.owner_id = OWNER, .wait_ms = 2 * SHORT_BOUND_MS}};
            waiter_start(&others[i]);
        }
        eventually(stats_of(stage.client).attempts > 2);
        assert_int_not_equal(dlock_release(hold, NULL), DLOCK_OK);
        for (int i = 0; i < OTHERS; i++)
            assert_int_not_equal(waiter_end(&others[i]), DLOCK_OK);
        server_resume(server);
        comes_to_another(&stage);
        stage_clear(&stage);
    }
}

static void another_reads(const struct stage *stage)
{
    struct waiter other = {.lock = stage->other,
                           .want = {.mode = DLOCK_SHARED, .wait_ms = PATIENCE_MS}};
    waiter_start(&other);
    assert_status(waiter_end(&other), OK);
    assert_status(dlock_release(other.hold, NULL), OK);
}

/* Its owner wrote, and reads on: who else reads need not wait for that. */
static void while_its_owner_reads_on(void **state)
{
    struct stage stage;
    (void)state;
    stage_set(&stage, dlock_rung_find("read_write"), server_url(server), SHORT_MS);
    dlock_hold *writes = acquired_for(stage.lock, (struct dlock_want){0});
    dlock_hold *reads = acquired_for(stage.lock, (struct dlock_want){.mode = DLOCK_SHARED});
    server_refuse_writes(server, true);
    assert_status(dlock_release(writes, NULL), REFUSED);
    server_refuse_writes(server, false);
    another_reads(&stage);
    assert_status(dlock_release(reads, NULL), OK);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* The same, when it was to write once more. That request is late, and nobody could end its
 * connection before the wait was over: carried out, it is a write of which nobody else knows. */
static void while_its_owner_reads_on_after_a_late_write(void **state)
{
    struct stage stage;
    (void)state;
    stage_set(&stage, dlock_rung_find("read_write"), proxy_url(proxy), SHORT_MS);
    dlock_hold *writes = acquired_for(stage.lock, (struct dlock_want){0});
    struct waiter late = {.lock = stage.lock, .want = {.wait_ms = 1, .owner_id = OWNER}};
    proxy_plan(proxy, PROXY_HOLD_REQUEST, LOCK, NULL, 0);
    waiter_start(&late);
    eventually(proxy_done(proxy));
    server_pause(server);
    eventually(stats_of(stage.client).connections_lost == 1);
    long_pause(SHORT_MS + SHORT_MS / 3); /* connecting fails, and then it gives up */
    server_resume(server);
    assert_int_not_equal(waiter_end(&late), DLOCK_OK);
    eventually(kept_in_the_background(stage.client) == 0);
    proxy_let_go(proxy);
    dlock_hold *reads = acquired_for(stage.lock, (struct dlock_want){.mode = DLOCK_SHARED});
    assert_status(dlock_release(writes, NULL), OK);
    another_reads(&stage);
    assert_true(dlock_valid(reads));
    assert_status(dlock_release(reads, NULL), OK);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* The oldest connection is the one that acquired; the other renews, and is all that is left. */
static void no_other_connects(void)
{
    char address[64];
    const char *all = server_text(server, "CLIENT LIST TYPE normal");
    assert_int_equal(sscanf(strstr(all, "addr=127.0.0.1:"), "addr=%63[0-9.:]", address), 1);
    assert_int_equal(server_integer(server, "CLIENT KILL ADDR %s", address), 1);
    server_text(server, "CONFIG SET maxclients 2");
}

/* Only the connection is left that renews. Who reads on is renewed for longer than the write would
 * have lived, and then the release of the write goes on. False: the machine has stalled for longer
 * than the reader's time to live. */
static bool renewals_keep_its_owner(void)
{
    struct stage stage;
    stage_set(&stage, dlock_rung_find("read_write"), server_url(server), SHORT_MS);
    struct dlock_want want = {.ttl_ms = SHORT_MS};
    stalled_ms();
    dlock_hold *writes = acquired_for(stage.lock, want);
    want.mode = DLOCK_SHARED;
    dlock_hold *reads = acquired_for(stage.lock, want);
    eventually(stats_of(stage.client).renewals > 2 || !dlock_valid(reads));
    no_other_connects();
    assert_int_not_equal(dlock_release(writes, NULL), DLOCK_OK);
    long_pause(SHORT_MS + SHORT_BOUND_MS + SHORT_MS);
    bool kept = dlock_valid(reads);
    server_text(server, "CONFIG SET maxclients 1000");
    if (kept) {
        another_reads(&stage);
        kept = dlock_valid(reads);
    }
    assert_true(kept || stalled_ms() > SHORT_MS / 2);
    dlock_status status = dlock_release(reads, NULL);
    if (kept)
        assert_status(status, OK);
    comes_to_another(&stage);
    stage_clear(&stage);
    return kept;
}

static void while_renewals_keep_its_owner(void **state)
{
    (void)state;
    eventually(renewals_keep_its_owner());
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(beside_one_that_is_over, EACH_REENTRANT),
        SCENARIO(for_as_long_as_the_key_lives, EACH_REENTRANT),
        SCENARIO(for_as_long_as_the_client_has_it, ONCE),
        SCENARIO(over_before_it_was_sent, EACH_REENTRANT),
        SCENARIO(refused_after_its_time, EACH_REENTRANT),
        SCENARIO(refused_after_it_was_passed_on, ONCE),
        SCENARIO(after_a_nested_acquire_that_was_not_answered, EACH_REENTRANT),
        SCENARIO(its_owner_reads_anew, ONCE),
        SCENARIO(for_as_long_as_what_was_left_lives, ONCE),
        SCENARIO(before_its_owner_asked_anew, EACH_NESTED_ASKS),
        SCENARIO(passed_on_when_its_time_was_over, ONCE),
        SCENARIO(without_a_turn, EACH_NESTED_ASKS),
        SCENARIO(while_its_owner_reads_on, ONCE),
        SCENARIO(while_its_owner_reads_on_after_a_late_write, ONCE),
        SCENARIO(while_renewals_keep_its_owner, ONCE),
    };
    return run_scenarios("cleanup_shared", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server_and_proxy, stop_server_and_proxy);
}
