/* SPDX-License-Identifier: Apache-2.0
 *
 * A hold's own times: its time to live, and the end that nothing extends it beyond.
 */
#include "calls.h"
#include "must.h"
#include "recorded_stage.h"
#include "sound.h"
#include "waiter.h"

#define LONG_MS 60000 /* far beyond the test's end */

static void assert_up_to(int64_t value, int64_t most)
{
    if (value <= 0 || value > most)
        failed("%lld is not between 1 and %lld", (long long)value, (long long)most);
}

/* ---- A time to live of its own --------------------------------------------------------------- */

/* In place of the client's and the rung's, shorter or longer. */
static void each_hold_has_its_own(void **state)
{
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    (void)state;
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        if (!rungs[i].expires)
            continue;
        stage_set(&stage, rungs[i].name, (struct dlock_options){.ttl_ms = 5000});
        dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.ttl_ms = LONG_MS});
        assert_true(dlock_remaining_ms(hold) > 5000);
        assert_up_to(dlock_remaining_ms(hold), LONG_MS);
        assert_true(left_on_server() >= dlock_remaining_ms(hold));
        dlock_release(hold, NULL);
        hold = wanted(stage.lock, (struct dlock_want){.ttl_ms = 2000});
        assert_true(dlock_remaining_ms(hold) < 2000);
        assert_up_to(left_on_server(), 2000);
        dlock_release(hold, NULL);
        hold = acquired(stage.lock);
        assert_true(dlock_remaining_ms(hold) < 5000);
        dlock_release(hold, NULL);
        stage_clear(&stage);
    }
}

static void times_out_of_range_are_refused(void **state)
{
    static const int64_t wrong[] = {-1, 1, 99, INT64_MIN, INT64_MAX};
    static const char *const timeless[] = {"none", "local", "setnx"};
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, "watchdog", (struct dlock_options){0});
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct dlock_want ttl = {.size = sizeof ttl, .ttl_ms = wrong[i]};
        struct dlock_want most = {.size = sizeof most, .hold_max_ms = wrong[i]};
        assert_status(dlock_acquire(stage.lock, &ttl, &hold), INVALID);
        assert_says(dlock_error(), "it must be 100 to 86400000, or 0");
        assert_status(dlock_acquire(stage.lock, &most, &hold), INVALID);
        assert_says(dlock_error(), "want.hold_max_ms is ");
        assert_null(hold);
    }
    for (size_t i = 0; i < sizeof timeless / sizeof timeless[0]; i++) {
        dlock *lock = lock_of(stage.client, timeless[i], LOCK);
        struct dlock_want ttl = {.size = sizeof ttl, .ttl_ms = 1000};
        struct dlock_want most = {.size = sizeof most, .hold_max_ms = 1000};
        assert_status(dlock_acquire(lock, &ttl, &hold), UNSUPPORTED);
        assert_says(dlock_error(), "want.ttl_ms is 1000, but holds of '");
        assert_status(dlock_acquire(lock, &most, &hold), UNSUPPORTED);
        assert_says(dlock_error(), "want.hold_max_ms is 1000, but holds of '");
        dlock_close(lock);
    }
    assert_int_equal(stats_of(stage.client).attempts, 0);
    stage_clear(&stage);
}

static size_t renewals_of(struct stage *stage, const dlock_hold *inner, const dlock_hold *outer)
{
    return record_told(stage->events, "RENEWED", inner) +
           record_told(stage->events, "RENEWED", outer);
}

/* Time and again. Only a machine that stalls lets it end. */
static bool is_renewed(struct stage *stage, const dlock_hold *inner, const dlock_hold *outer)
{
    size_t before = renewals_of(stage, inner, outer);
    eventually(renewals_of(stage, inner, outer) >= before + 4 ||
               record_told(stage->events, "LOST", inner) > 0);
    return dlock_valid(inner);
}

/* The key lives as long as the longest needs; each hold is believed for its own time alone. */
static void nested_holds_have_their_own(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name, (struct dlock_options){0});
    dlock_hold *outer =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = LONG_MS});
    stalled_ms();
    dlock_hold *inner = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = 900});
    assert_up_to(dlock_remaining_ms(inner), 900);
    assert_true(dlock_remaining_ms(outer) > 30000);
    assert_true(left_on_server() > 30000);
    if (rung->renewed) {
        while (!is_renewed(&stage, inner, outer)) {
            assert_true(stalled_ms() > 900 / 2);
            dlock_release(inner, NULL);
            inner = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = 900});
        }
    } else {
        eventually(record_told(stage.events, "LOST", inner) == 1);
        assert_false(dlock_valid(inner));
    }
    assert_up_to(dlock_remaining_ms(outer), LONG_MS);
    assert_true(dlock_remaining_ms(outer) > 30000);
    assert_true(left_on_server() > 30000);
    dlock_release(inner, NULL);
    assert_true(dlock_valid(outer));
    assert_status(dlock_release(outer, NULL), OK);

    outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = 5000});
    inner = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .ttl_ms = LONG_MS});
    assert_up_to(dlock_remaining_ms(outer), 5000);
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    stage_clear(&stage);
}

/* A hold that gets the lock inside the client lives by the time that the client asked for. */
static void what_is_passed_on_lives_by_what_was_asked_for(void **state)
{
    static const int64_t times[][2] = {{5000, LONG_MS}, {LONG_MS, 5000}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, "fair", (struct dlock_options){.handoff_ms = LONG_MS});
        dlock_hold *first = wanted(stage.lock, (struct dlock_want){.ttl_ms = times[i][0]});
        struct waiter waiter = {.lock = stage.lock,
                                .want = {.wait_ms = PATIENCE_MS, .ttl_ms = times[i][1]}};
        waiter_start(&waiter);
        for (int j = 0; j < 20; j++)
            short_pause(); /* so it waits, as a rule; else it asks the server */
        assert_status(dlock_release(first, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_up_to(dlock_remaining_ms(waiter.hold), left_on_server());
        if (stats_of(stage.client).handoffs > 0)
            assert_up_to(dlock_remaining_ms(waiter.hold), 5000);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
    }
}

/* ---- The end --------------------------------------------------------------------------------- */

/* Renewed until then, the last time for what is left alone; then lost, and free by itself. */
static void nothing_reaches_beyond_the_end(void **state)
{
    enum { MAX_MS = 3000 };
    const struct dlock_rung *rung = *state;
    struct stage stage;
    char line[256];
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = 1800});
    dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.hold_max_ms = MAX_MS});
    int64_t ends_ms = clock_ms() + MAX_MS; /* at the latest */
    while (record_told(stage.events, "LOST", hold) == 0) {
        dlock_status status = dlock_extend(hold);
        assert_true(status == DLOCK_OK || status == DLOCK_LOST);
        int64_t most_ms = ends_ms - clock_ms();
        int64_t left_ms = dlock_remaining_ms(hold);
        assert_true(left_ms <= most_ms || left_ms == 0);
        short_pause();
    }
    record_line(stage.events, "LOST", 0, line, sizeof line);
    assert_says(line, "its hold_max_ms has passed");
    assert_status(dlock_extend(hold), LOST);
    eventually(server_integer(server, "EXISTS " LOCK) == 0);
    assert_status(dlock_release(hold, NULL), LOST);
    dlock_hold *next;
    assert_status(tried(stage.lock, &next), OK);
    dlock_release(next, NULL);
    stage_clear(&stage);
}

/* An end before its time to live is its time to live. */
static void an_end_before_the_time_to_live(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    char line[256];
    if (!rung->expires)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *hold = wanted(stage.lock, (struct dlock_want){.hold_max_ms = 900});
    assert_up_to(dlock_remaining_ms(hold), 900);
    assert_up_to(left_on_server(), 900);
    eventually(record_told(stage.events, "LOST", hold) == 1);
    record_line(stage.events, "LOST", 0, line, sizeof line);
    assert_says(line, "its hold_max_ms has passed");
    assert_int_equal(stats_of(stage.client).renewals, 0);
    eventually(server_integer(server, "EXISTS " LOCK) == 0);
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
}

/* It ends that hold alone: another one of the owner lives on, and is renewed. */
static void the_end_is_the_holds_alone(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    if (!rung->renewed)
        return;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = 2400});
    dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *inner =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = 1000});
    eventually(record_told(stage.events, "LOST", inner) == 1);
    size_t renewed = record_told(stage.events, "RENEWED", outer);
    eventually(record_told(stage.events, "RENEWED", outer) >= renewed + 3);
    assert_true(dlock_valid(outer));
    assert_int_equal(record_told(stage.events, "LOST", outer), 0);
    assert_status(dlock_release(inner, NULL), LOST);
    assert_true(dlock_valid(outer));
    dlock_release(outer, NULL);
    stage_clear(&stage);
}

/* ---- The lock's end -------------------------------------------------------------------------- */

enum { ENDS_MS = 600 };

/* It is over, and its release says so: nothing that the caller adds is sent, and the lock is free.
 */
static void over_and_free(dlock_hold *hold)
{
    dlock_batch *last = dlock_batch_new();
    assert_status(dlock_batch_add(last, 3, (const char *const[]){"SET", "written", "1"}, NULL), OK);
    eventually(!dlock_valid(hold));
    assert_status(dlock_release(hold, last), LOST);
    assert_int_equal(server_integer(server, "EXISTS written"), 0);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    dlock_batch_free(last);
}

/* The key has the outer hold's time to live. It does not outlive the inner one by that. */
static void the_longer_hold_is_released_first(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *inner =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = ENDS_MS});
    assert_status(dlock_release(outer, NULL), OK);
    over_and_free(inner);
    stage_clear(&stage);
}

/* Nor where the outer one is over, too, and both are released late. */
static void both_are_over(void **state)
{
    const struct dlock_rung *rung = *state;
    for (int inner_first = 0; inner_first < 2; inner_first++) {
        struct stage stage;
        stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
        dlock_hold *longest = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
        struct dlock_want want = {.owner_id = OWNER, .hold_max_ms = ENDS_MS};
        dlock_hold *middle = wanted(stage.lock, want);
        dlock_hold *inner = wanted(stage.lock, want);
        assert_status(dlock_release(longest, NULL), OK);
        eventually(!dlock_valid(middle) && !dlock_valid(inner));
        assert_status(dlock_release(inner_first ? inner : middle, NULL), LOST);
        assert_status(dlock_release(inner_first ? middle : inner, NULL), LOST);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        stage_clear(&stage);
    }
}

/* One that is over leaves the owner's others alone. */
static void the_shorter_hold_is_released_first(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set(&stage, rung->name, (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_hold *outer = wanted(stage.lock, (struct dlock_want){.owner_id = OWNER});
    dlock_hold *inner =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = ENDS_MS});
    eventually(!dlock_valid(inner));
    assert_status(dlock_release(inner, NULL), LOST);
    assert_true(dlock_valid(outer));
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    assert_status(dlock_extend(outer), OK);
    assert_status(dlock_release(outer, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    stage_clear(&stage);
}

/* What the client was given for long is passed on to one that is over soon. */
static void what_is_passed_on_ends_soon(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "fair", (struct dlock_options){.ttl_ms = LONG_MS, .handoff_ms = LONG_MS});
    dlock_hold *first = acquired(stage.lock);
    struct waiter waiter = {.lock = stage.lock,
                            .want = {.wait_ms = PATIENCE_MS, .hold_max_ms = ENDS_MS}};
    waiter_start(&waiter);
    for (int j = 0; j < 20; j++)
        short_pause(); /* so it waits, as a rule; else it asks the server */
    assert_status(dlock_release(first, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    over_and_free(waiter.hold);
    stage_clear(&stage);
}

/* Its owner reads on: others may read, too, as soon as the write is released. */
static void a_write_that_is_over(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "read_write", (struct dlock_options){.ttl_ms = LONG_MS});
    dlock_client *other = client_of(server_url(server), (struct dlock_options){0});
    dlock *theirs = lock_of(other, "read_write", LOCK);
    dlock_hold *write =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .hold_max_ms = ENDS_MS});
    dlock_hold *read =
        wanted(stage.lock, (struct dlock_want){.owner_id = OWNER, .mode = DLOCK_SHARED});
    eventually(!dlock_valid(write));
    assert_status(dlock_release(write, NULL), LOST);
    assert_true(dlock_valid(read));
    dlock_hold *their_read = acquired_as(theirs, DLOCK_SHARED);
    assert_status(dlock_release(read, NULL), OK);
    assert_status(dlock_release(their_read, NULL), OK);
    dlock_close(theirs);
    dlock_client_close(other);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(each_hold_has_its_own, ONCE),
        SCENARIO(times_out_of_range_are_refused, ONCE),
        SCENARIO(nested_holds_have_their_own, EACH_REENTRANT),
        SCENARIO(what_is_passed_on_lives_by_what_was_asked_for, ONCE),
        SCENARIO(nothing_reaches_beyond_the_end, EACH_SOUND),
        SCENARIO(an_end_before_the_time_to_live, EACH_SOUND),
        SCENARIO(the_end_is_the_holds_alone, EACH_REENTRANT),
        SCENARIO(the_longer_hold_is_released_first, EACH_REENTRANT),
        SCENARIO(both_are_over, EACH_REENTRANT),
        SCENARIO(the_shorter_hold_is_released_first, EACH_REENTRANT),
        SCENARIO(what_is_passed_on_ends_soon, ONCE),
        SCENARIO(a_write_that_is_over, ONCE),
    };
    return run_scenarios("hold_times", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
