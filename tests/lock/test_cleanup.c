/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call leaves behind is taken back once the server is there again: what a lost request has
 * locked, and what a release could not let go of.
 */
#include "background.h"
#include "calls.h"
#include "cleanup_stage.h"
#include "must.h"
#include "own_proxy.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

/* ---- Acquires -------------------------------------------------------------------------------- */

/* The server stands still, and the call is over before it goes on: what it locks then is taken
 * back. */
static void what_a_call_left_is_taken_back(void **state)
{
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    assert_status(dlock_release(acquired(stage.lock), NULL), OK); /* connected */
    server_pause(server);
    assert_int_not_equal(tried(stage.lock, &hold), DLOCK_OK);
    server_resume(server);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* The client is closed as soon as the call is over. */
static void taken_back_by_who_closes(void **state)
{
    struct stage stage;
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .call_max_ms = 100};
    stage_set(&stage, *state, proxy_url(proxy), 60000);
    assert_status(dlock_release(acquired(stage.lock), NULL), OK); /* connected */
    proxy_plan(proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
    assert_status(dlock_acquire(stage.lock, &want, &hold), TIMED_OUT);
    assert_true(proxy_done(proxy));
    dlock_close(stage.lock);
    dlock_client_close(stage.client);
    stage.lock = NULL;
    stage.client = NULL;
    assert_status(dlock_release(acquired(stage.other), NULL), OK);
    stage_clear(&stage);
}

/* The answer comes when nothing of its time is left, but its key lives on, and the server stands
 * still. The call is over at once, and the lock is let go of in the background. */
static void given_too_late(void **state)
{
    static const int64_t timeouts_ms[] = {PATIENCE_MS, SHORT_MS};
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        struct started late = {0};
        stage_set(&stage, *state, proxy_url(proxy), timeouts_ms[i]);
        assert_status(dlock_release(acquired(stage.lock), NULL), OK); /* connected */
        proxy_plan(proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
        start(stage.lock, (struct dlock_want){.ttl_ms = 100}, &late);
        eventually(proxy_done(proxy));
        server_integer(server, "PEXPIRE " LOCK " %d", DAY_MS);
        server_integer(server, "PEXPIRE dlock:holds:" LOCK " %d", DAY_MS); /* of read_write */
        long_pause(100);
        server_pause(server);
        proxy_let_go(proxy);
        started_answered(&late);
        assert_int_not_equal(late.status, DLOCK_OK);
        server_resume(server);
        comes_to_another(&stage);
        stage_clear(&stage);
    }
}

/* ---- Releases -------------------------------------------------------------------------------- */

static _Thread_local bool no_memory; /* for a command of this thread's */

long long __real_redisFormatCommandArgv(char **command, int argc, const char **argv,
                                        const size_t *sizes);
long long __wrap_redisFormatCommandArgv(char **command, int argc, const char **argv,
                                        const size_t *sizes);

long long __wrap_redisFormatCommandArgv(char **command, int argc, const char **argv,
                                        const size_t *sizes)
{
    return no_memory ? -1 : __real_redisFormatCommandArgv(command, argc, argv, sizes);
}

static void no_memory_for_a_release(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), PATIENCE_MS);
    dlock_hold *hold = acquired(stage.lock);
    no_memory = true;
    dlock_status status = dlock_release(hold, NULL);
    no_memory = false;
    assert_int_equal(status, DLOCK_NO_MEMORY);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* There is no room for what the second one leaves: its sentence says why it left something. */
static void no_room_for_what_a_release_left(void **state)
{
    const struct dlock_rung *rung = *state;
    server_text(server, "FLUSHALL");
    dlock_client *client =
        client_of(server_url(server), (struct dlock_options){.waiters_max = 1,
                                                             .connect_timeout_ms = SHORT_MS,
                                                             .command_timeout_ms = SHORT_MS});
    dlock *locks[] = {lock_of(client, rung->name, LOCK), lock_of(client, rung->name, "another")};
    dlock_hold *holds[] = {acquired(locks[0]), acquired(locks[1])};
    go_away();
    for (size_t i = 0; i < 2; i++) {
        assert_status(dlock_release(holds[i], NULL), UNREACHABLE);
        assert_says(dlock_error(), server_url(server));
    }
    server_resume(server);
    dlock_close(locks[0]);
    dlock_close(locks[1]);
    dlock_client_close(client);
}

/* Released on a wire without an end, whoever else of the client asks in vain meanwhile. */
static void what_a_release_left_is_let_go(void **state)
{
    const struct dlock_rung *rung = *state;
    bool nests = rung->reentrant;
    for (size_t count = 1; count <= (nests ? 4 : 1); count += 3) {
        struct stage stage;
        struct started released[4] = {{0}};
        dlock_hold *holds[4], *none;
        stage_set(&stage, rung, proxy_url(proxy), SHORT_MS);
        for (size_t i = 0; i < count; i++)
            holds[i] = acquired_by(stage.lock, nests ? OWNER : 0);
        proxy_plan(proxy, PROXY_CUT_REQUEST, LOCK, NULL, 0);
        server_pause(server);
        for (size_t i = 0; i < count; i++)
            start_release(holds[i], NULL, &released[i]);
        for (size_t i = 0; i < count; i++)
            started_answered(&released[i]);
        assert_int_not_equal(tried(stage.lock, &none), DLOCK_OK);
        server_resume(server);
        comes_to_another(&stage);
        stage_clear(&stage);
    }
}

/* What was to ride with it was not sent. */
static void unreachable_with_riders(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    dlock_hold *hold = acquired(stage.lock);
    go_away();
    assert_status(dlock_release(hold, stage.last), UNREACHABLE);
    server_resume(server);
    comes_to_another(&stage);
    assert_int_equal(server_integer(server, "EXISTS sold"), 0);
    stage_clear(&stage);
}

/* What rode with it was refused as well. */
static void refused_with_riders(void **state)
{
    struct stage stage;
    struct dlock_reply reply = {.size = sizeof reply};
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    dlock_hold *hold = acquired(stage.lock);
    server_refuse_writes(server, true);
    assert_status(dlock_release(hold, stage.last), REFUSED);
    assert_status(dlock_batch_reply(stage.last, 0, &reply), OK);
    assert_int_equal(reply.kind, DLOCK_REPLY_ERROR);
    server_refuse_writes(server, false);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* An operator took its client's password or its keys away, and gives them back. */
static void refused_until_its_rights_are_back(void **state)
{
    static const char *const rules[][2] = {{"resetpass", ">pass"}, {"resetkeys", "~*"}};
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        char url[80];
        server_text(server, "ACL SETUSER app on >pass ~* &* +@all");
        snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
        stage_set(&stage, *state, url, PATIENCE_MS);
        dlock_hold *hold = acquired(stage.lock);
        server_text(server, "ACL SETUSER app %s", rules[i][0]);
        server_integer(server, "CLIENT KILL USER app");
        assert_status(dlock_release(hold, NULL), REFUSED);
        server_text(server, "ACL SETUSER app %s", rules[i][1]);
        comes_to_another(&stage);
        stage_clear(&stage);
        server_integer(server, "ACL DELUSER app");
    }
}

/* Nobody can end the connection of the first request, and the server refuses for a while. */
static void tried_again_where_no_doubt_ends(void **state)
{
    struct stage stage;
    server_text(server, "ACL SETUSER default -client|kill");
    stage_set(&stage, *state, proxy_url(proxy), SHORT_MS);
    dlock_hold *hold = acquired(stage.lock);
    server_refuse_writes(server, true);
    proxy_plan(proxy, PROXY_CUT_REQUEST, LOCK, NULL, 0);
    size_t requests = proxy_requests(proxy, LOCK);
    assert_status(dlock_release(hold, NULL), UNKNOWN);
    eventually(proxy_requests(proxy, LOCK) >= requests + 4); /* two of them in the background */
    server_refuse_writes(server, false);
    comes_to_another(&stage);
    stage_clear(&stage);
    server_text(server, "ACL SETUSER default +client|kill");
}

/* ---- Behind what was left -------------------------------------------------------------------- */

/* What a lost request has locked lives for a day. Many calls fail behind it; one is enough to see
 * to that. */
static void one_for_what_was_left(void **state)
{
    struct stage stage;
    dlock_hold *hold;
    (void)state;
    stage_set(&stage, dlock_rung_find("fair"), server_url(server), SHORT_MS);
    assert_status(dlock_release(acquired(stage.lock), NULL), OK); /* connected */
    server_pause(server);
    for (int i = 0; i < 20; i++)
        assert_int_not_equal(tried(stage.lock, &hold), DLOCK_OK);
    eventually(kept_in_the_background(stage.client) == 1);
    server_resume(server);
    comes_to_another(&stage);
    stage_clear(&stage);
}

/* A request comes after its connection was cut; the next waiter of its client has asked, had the
 * lock and released it by then. */
static void behind_the_next_waiter(void **state)
{
    struct stage stage;
    (void)state;
    stage_set(&stage, dlock_rung_find("fair"), proxy_url(proxy), 60000);
    struct waiter first = {.lock = stage.lock,
                           .want = {.wait_ms = PATIENCE_MS, .call_max_ms = SHORT_MS}};
    struct waiter next = {.lock = stage.lock, .want = {.wait_ms = PATIENCE_MS}};
    assert_status(dlock_release(acquired(stage.lock), NULL), OK); /* connected */
    proxy_plan(proxy, PROXY_HOLD_REQUEST, LOCK, NULL, 0);
    waiter_start(&first);
    eventually(proxy_done(proxy));
    waiter_start(&next);
    assert_status(waiter_end(&first), TIMED_OUT);
    assert_status(waiter_end(&next), OK);
    assert_status(dlock_release(next.hold, NULL), OK);
    eventually(kept_in_the_background(stage.client) == 0);
    proxy_let_go(proxy);
    for (int i = 0; i < 20; i++, short_pause())
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(what_a_call_left_is_taken_back, EACH_SOUND),
        SCENARIO(taken_back_by_who_closes, EACH_SOUND),
        SCENARIO(given_too_late, EACH_SOUND),
        SCENARIO(no_room_for_what_a_release_left, EACH_SOUND),
        SCENARIO(what_a_release_left_is_let_go, EACH_SOUND),
        SCENARIO(unreachable_with_riders, EACH_SOUND),
        SCENARIO(refused_with_riders, EACH_SOUND),
        SCENARIO(refused_until_its_rights_are_back, EACH_SOUND),
        SCENARIO(tried_again_where_no_doubt_ends, EACH_SOUND),
        SCENARIO(one_for_what_was_left, ONCE),
        SCENARIO(behind_the_next_waiter, ONCE),
        SCENARIO(no_memory_for_a_release, EACH_SOUND),
    };
    return run_scenarios("cleanup", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server_and_proxy, stop_server_and_proxy);
}
