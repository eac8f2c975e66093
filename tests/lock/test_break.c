/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks that are broken by an operator: freed, whoever holds them.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "waiter.h"

#include <string.h>

#define LOCK "lock:{break}"

/* One who holds the lock, and an overseer. */
struct stage {
    dlock_client *holder;
    dlock_client *overseer;
    dlock *held;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung, struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    stage->holder = client_of(server_url(server), options);
    stage->overseer = client_of(server_url(server), (struct dlock_options){0});
    stage->held = lock_of(stage->holder, rung, LOCK);
    stage->lock = lock_of(stage->overseer, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->held);
    dlock_close(stage->lock);
    dlock_client_close(stage->holder);
    dlock_client_close(stage->overseer);
}

/* It says who was thrown out, and the next one may enter. */
static void every_rung(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct dlock_holder before = {.size = sizeof before}, broken = {.size = sizeof broken};
        stage_set(&stage, rungs[i].name, (struct dlock_options){0});
        if (strcmp(rungs[i].name, "none") == 0 || strcmp(rungs[i].name, "local") == 0) {
            assert_status(dlock_break(stage.lock, &broken), UNSUPPORTED);
            assert_says(dlock_error(), rungs[i].name);
            stage_clear(&stage);
            continue;
        }
        dlock_hold *hold = acquired(stage.held);
        assert_status(dlock_inspect(stage.lock, &before), OK);
        assert_status(dlock_break(stage.lock, &broken), OK);
        assert_true(broken.held);
        assert_string_equal(broken.owner, before.owner);
        assert_true(broken.ttl_ms <= before.ttl_ms && (broken.ttl_ms > 0) == rungs[i].expires);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        /* Of that one a thread holds one lock at a time: it lets go of the broken one first. */
        bool first = strcmp(rungs[i].name, "reentrant_tls") == 0;
        if (first)
            assert_status(dlock_release(hold, NULL), LOST);
        dlock_hold *next = acquired(stage.lock);
        assert_status(dlock_release(next, NULL), OK);
        if (!first)
            assert_status(dlock_release(hold, NULL), LOST);
        stage_clear(&stage);
    }
}

static void nobody_held_it(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_holder broken = {.size = sizeof broken, .held = true, .owner = "?"};
    stage_set(&stage, NULL, (struct dlock_options){0});
    assert_status(dlock_break(stage.lock, &broken), OK);
    assert_false(broken.held);
    assert_string_equal(broken.owner, "");
    assert_status(dlock_break(stage.lock, NULL), OK);
    stage_clear(&stage);
}

/* The holder is told at its next renewal, long before its time to live has ended. */
static void the_holder_is_told(void **state)
{
    (void)state;
    struct stage stage;
    struct record *events = record_new();
    stage_set(
        &stage, "watchdog",
        (struct dlock_options){.ttl_ms = 3000, .on_event = record_event, .on_event_arg = events});
    dlock_hold *hold = acquired(stage.held);
    assert_status(dlock_break(stage.lock, NULL), OK);
    eventually(record_count(events, "LOST") == 1);
    assert_int_equal(record_count(events, "no longer belongs to this owner"), 1);
    assert_false(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
    record_free(events);
}

/* Freed by one who holds it itself, on the same client; and the next one of that client has it. */
static void ones_own(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, NULL, (struct dlock_options){0});
    dlock_hold *hold = acquired(stage.lock);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    assert_status(dlock_break(stage.lock, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    stage_clear(&stage);
}

static void what_cannot_be_broken(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_holder broken = {.size = sizeof broken};
    stage_set(&stage, NULL, (struct dlock_options){0});
    server_integer(server, "RPUSH " LOCK " element");
    assert_status(dlock_break(stage.lock, &broken), WRONG_TYPE);
    assert_says(dlock_error(), "'" LOCK "' holds a list");
    assert_int_equal(server_integer(server, "LLEN " LOCK), 1);
    broken.size = 0;
    assert_status(dlock_break(stage.lock, &broken), INVALID);
    assert_says(dlock_error(), "sizeof(struct dlock_holder)");
    server_kill(server);
    assert_status(dlock_break(stage.lock, NULL), UNREACHABLE);
    server_restart(server, NULL);
    stage_clear(&stage);
}

static void the_answer_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    server_text(server, "FLUSHALL");
    dlock_client *client = client_of(proxy_url(proxy), (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    struct dlock_holder broken = {.size = sizeof broken};
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_break(lock, &broken), OK); /* the server knows the script */
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    proxy_plan(proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
    assert_status(dlock_break(lock, &broken), UNKNOWN);
    assert_true(proxy_done(proxy));
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    assert_status(dlock_release(hold, NULL), LOST);
    dlock_close(lock);
    dlock_client_close(client);
    proxy_free(proxy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rung),         cmocka_unit_test(nobody_held_it),
        cmocka_unit_test(ones_own),           cmocka_unit_test(the_holder_is_told),
        cmocka_unit_test(the_answer_is_lost), cmocka_unit_test(what_cannot_be_broken),
    };
    return cmocka_run_group_tests_name("break", tests, start_server, stop_server);
}
