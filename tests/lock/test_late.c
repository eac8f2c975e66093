/* SPDX-License-Identifier: Apache-2.0
 *
 * Commands that arrive after the client has closed their connection, and replies that arrive after
 * the validity has ended. Nothing that comes late may free, take or extend a later hold. That holds
 * where the server lets the client kill the old connection, and where it does not.
 */
#include "calls.h"
#include "must.h"
#include "pair_stage.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <stdio.h>

#define SPOILED_MAX 20 /* so often a run is repeated that a stalled machine has spoiled */

/* How a command comes late, and whose it is. */
struct delay {
    enum proxy_act act;
    bool may_kill; /* the server accepts CLIENT KILL */
    uint64_t owner_id;
};

static const struct delay delays[] = {
    {PROXY_DELAY_REQUEST, true, 0},
    {PROXY_DELAY_REQUEST, true, DLOCK_THIS_THREAD},
    {PROXY_DELAY_REQUEST, false, DLOCK_THIS_THREAD},
    {PROXY_HOLD_REQUEST, true, DLOCK_THIS_THREAD},
};
#define DELAYS (sizeof delays / sizeof delays[0])

/* Both clients warmed up. */
static void stage_set_delayed(struct stage *stage, const struct dlock_rung *rung, int64_t ttl_ms,
                              const struct delay *delay)
{
    struct dlock_options options = {.ttl_ms = ttl_ms};
    if (delay->act == PROXY_HOLD_REQUEST)
        options.command_timeout_ms = 200; /* the client waits for so long, then closes */
    server_text(server, "ACL SETUSER default %sclient|kill", delay->may_kill ? "+" : "-");
    stage_set(stage, rung->name, options);
    assert_status(dlock_release(acquired(stage->other), NULL), OK);
    assert_status(dlock_release(acquired(stage->lock), NULL), OK);
}

/* ---- The wire -------------------------------------------------------------------------------- */

/* What a client's death leaves on the wire arrives, unless the server has closed the connection. */
static void only_a_kill_keeps_a_late_request_out(void **state)
{
    (void)state;
    for (int killed = 0; killed < 2; killed++) {
        struct proxy *proxy = proxy_start(server);
        int port;
        must(sscanf(proxy_url(proxy), "redis://127.0.0.1:%d", &port) == 1);
        redisContext *client = redisConnect("127.0.0.1", port);
        must(client != NULL && client->err == 0);
        redisReply *id = redisCommand(client, "CLIENT ID");
        must(id != NULL && id->type == REDIS_REPLY_INTEGER);
        server_text(server, "FLUSHALL");
        proxy_plan(proxy, PROXY_DELAY_REQUEST, "late", NULL, 0);
        assert_null(redisCommand(client, "SET late 1"));
        assert_true(proxy_done(proxy));
        if (killed)
            assert_int_equal(server_integer(server, "CLIENT KILL ID %lld", id->integer), 1);
        proxy_let_go(proxy);
        assert_string_equal(server_text(server, "GET late"), killed ? "" : "1");
        freeReplyObject(id);
        redisFree(client);
        proxy_free(proxy);
    }
}

/* ---- A late release -------------------------------------------------------------------------- */

/* Its owner has acquired again since. */
static void a_release_comes_late(void **state)
{
    for (size_t i = 0; i < DELAYS; i++) {
        struct stage stage;
        stage_set_delayed(&stage, *state, 30000, &delays[i]);
        dlock_hold *hold = acquired_by(stage.lock, delays[i].owner_id);
        proxy_plan(stage.proxy, delays[i].act, "EVALSHA", NULL, 0);
        assert_status(dlock_release(hold, NULL), OK);
        assert_true(proxy_done(stage.proxy));
        hold = acquired_by(stage.lock, delays[i].owner_id);
        assert_status(dlock_release(hold, NULL), OK);
        hold = acquired_by(stage.lock, delays[i].owner_id);
        proxy_let_go(stage.proxy);
        kept_from_others(&stage, hold);
        assert_status(dlock_release(hold, NULL), OK);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* ---- A late acquire -------------------------------------------------------------------------- */

/* It belongs to a call that has acquired the lock meanwhile. */
static void an_acquire_comes_late_to_its_hold(void **state)
{
    for (size_t i = 0; i < DELAYS; i++) {
        struct stage stage;
        stage_set_delayed(&stage, *state, 30000, &delays[i]);
        proxy_plan(stage.proxy, delays[i].act, "", NULL, 0);
        dlock_hold *hold = acquired_by(stage.lock, delays[i].owner_id);
        assert_true(proxy_done(stage.proxy));
        proxy_let_go(stage.proxy);
        kept_from_others(&stage, hold);
        assert_status(dlock_release(hold, NULL), OK);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* One try while another client holds the lock: its request is kept, and arrives when the lock is
 * free. */
static void try_late(struct stage *stage, const struct delay *delay)
{
    dlock_hold *hold;
    dlock_hold *theirs = acquired(stage->other);
    proxy_plan(stage->proxy, delay->act, "", NULL, 0);
    dlock_status status = tried_by(stage->lock, delay->owner_id, &hold);
    assert_int_not_equal(status, DLOCK_OK);
    assert_true(proxy_done(stage->proxy));
    assert_status(dlock_release(theirs, NULL), OK);
    proxy_let_go(stage->proxy);
}

/* The call is over, and said so after it had ended the doubt: nobody holds the lock. */
static void an_acquire_comes_after_its_call(void **state)
{
    for (size_t i = 0; i < DELAYS; i++) {
        struct stage stage;
        if (!delays[i].may_kill)
            continue;
        stage_set_delayed(&stage, *state, 30000, &delays[i]);
        try_late(&stage, &delays[i]);
        assert_false(holder_of(stage.other).held);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* Nobody could end the doubt: the lock is held by nobody's hold, but no longer than a time to live,
 * though its owner comes again. False: that was over before its owner came. */
static bool looked_at_what_nobody_holds(const struct dlock_rung *rung)
{
    static const struct delay delay = {PROXY_DELAY_REQUEST, false, DLOCK_THIS_THREAD};
    struct stage stage;
    dlock_hold *hold;
    stage_set_delayed(&stage, rung, 1000, &delay);
    try_late(&stage, &delay);
    eventually(holder_of(stage.other).ttl_ms < 900);
    struct dlock_holder before = holder_of(stage.other);
    dlock_status status = tried_by(stage.lock, delay.owner_id, &hold);
    if (status == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    struct dlock_holder after = holder_of(stage.other);
    if (after.held)
        assert_true(after.ttl_ms <= before.ttl_ms);
    assert_status(dlock_release(acquired(stage.other), NULL), OK);
    stage_clear(&stage);
    return before.held;
}

static void what_nobody_holds_is_not_extended(void **state)
{
    int runs = 1;
    while (!looked_at_what_nobody_holds(*state))
        assert_true(runs++ < SPOILED_MAX);
}

/* A write that never came in time, and then a read by the same owner: another reader goes, and no
 * writer comes in beside the read. */
static void a_late_writer_leaves_the_read_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < DELAYS; i++) {
        struct stage stage;
        struct dlock_want read = {.size = sizeof read,
                                  .wait_ms = PATIENCE_MS,
                                  .owner_id = delays[i].owner_id,
                                  .mode = DLOCK_SHARED};
        dlock_hold *hold;
        stage_set_delayed(&stage, dlock_rung_find("read_write"), 30000, &delays[i]);
        dlock_hold *theirs = acquired_as(stage.other, DLOCK_SHARED);
        proxy_plan(stage.proxy, delays[i].act, "", NULL, 0);
        dlock_status status = tried_by(stage.lock, delays[i].owner_id, &hold);
        assert_int_not_equal(status, DLOCK_OK);
        assert_true(proxy_done(stage.proxy));
        assert_status(dlock_acquire(stage.lock, &read, &hold), OK);
        proxy_let_go(stage.proxy);
        assert_status(dlock_release(theirs, NULL), OK);
        kept_from_others(&stage, hold);
        assert_status(dlock_release(hold, NULL), OK);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

/* ---- What a question takes for its answer ---------------------------------------------------- */

/* The earlier hold is over in the client, and its key lives on a little. The next acquire of the
 * same owner never arrives: what is left of the old key is not its time. False: the key was gone
 * too early, or the new hold was over when it was looked at. */
static bool asked_an_old_hold(const struct dlock_rung *rung, uint64_t owner_id)
{
    struct stage stage;
    stage_set_delayed(&stage, rung, 400, &delays[0]);
    dlock_hold *hold;
    struct dlock_want once = {.size = sizeof once,
                              .wait_ms = PATIENCE_MS,
                              .owner_id = owner_id,
                              .hold_max_ms = 400}; /* no renewal keeps it */
    assert_status(dlock_acquire(stage.lock, &once, &hold), OK);
    bool lives_on = server_integer(server, "PEXPIRE " LOCK " 60000") == 1;
    eventually(!dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    proxy_plan(stage.proxy, PROXY_CUT_REQUEST, "", NULL, 0);
    server_integer(server, "PEXPIRE " LOCK " 100");
    hold = acquired_by(stage.lock, owner_id);
    assert_true(proxy_done(stage.proxy));
    struct dlock_holder holder = holder_of(stage.other);
    int64_t left_ms = holder.held ? holder.ttl_ms : 0;
    int64_t believed_ms = dlock_remaining_ms(hold);
    if (believed_ms > left_ms)
        failed("the hold is valid for %lld ms, its key lives for %lld ms", (long long)believed_ms,
               (long long)left_ms);
    bool looked = believed_ms > 0;
    dlock_release(hold, NULL);
    stage_clear(&stage);
    return lives_on && looked;
}

static void an_old_hold_is_no_answer(void **state)
{
    static const uint64_t owners[] = {0, DLOCK_THIS_THREAD};
    for (size_t i = 0; i < 2; i++) {
        int runs = 1;
        while (!asked_an_old_hold(*state, owners[i]))
            assert_true(runs++ < SPOILED_MAX);
    }
}

/* ---- A late grant ---------------------------------------------------------------------------- */

/* The first grant comes when its validity is over, and its key still lives. The client lets it go;
 * the next grant is a hold that can be released. False: the key, or the next hold, was over before.
 */
static bool granted_after_its_validity(const struct dlock_rung *rung)
{
    const int64_t ttl_ms = 600;
    struct stage stage;
    stage_set_delayed(&stage, rung, ttl_ms, &delays[0]);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = PATIENCE_MS}};
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "", NULL, 0);
    waiter_start(&waiter);
    eventually(proxy_done(stage.proxy));
    bool lived = server_integer(server, "PEXPIRE " LOCK " 60000") == 1;
    server_integer(server, "PEXPIRE dlock:holds:" LOCK " 60000"); /* of read_write */
    long long over_ms = server_us(server) / 1000 + ttl_ms;
    eventually(server_us(server) / 1000 > over_ms);
    proxy_let_go(stage.proxy);
    assert_status(waiter_end(&waiter), OK);
    dlock_status status = dlock_release(waiter.hold, NULL);
    bool released = status == DLOCK_OK;
    if (released) {
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        free_for_others(&stage);
    } else {
        assert_int_equal(status, DLOCK_LOST);
    }
    stage_clear(&stage);
    return lived && released;
}

static void a_grant_after_its_validity(void **state)
{
    int runs = 1;
    while (!granted_after_its_validity(*state))
        assert_true(runs++ < SPOILED_MAX);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(only_a_kill_keeps_a_late_request_out, ONCE),
        SCENARIO(a_release_comes_late, EACH_SOUND),
        SCENARIO(an_acquire_comes_late_to_its_hold, EACH_SOUND),
        SCENARIO(an_acquire_comes_after_its_call, EACH_SOUND),
        SCENARIO(what_nobody_holds_is_not_extended, EACH_SOUND),
        SCENARIO(a_late_writer_leaves_the_read_alone, ONCE),
        SCENARIO(an_old_hold_is_no_answer, EACH_SOUND),
        SCENARIO(a_grant_after_its_validity, EACH_SOUND),
    };
    return run_scenarios("late", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
