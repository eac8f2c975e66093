/* SPDX-License-Identifier: Apache-2.0
 *
 * What a call leaves behind is taken back once the server is there again: what a lost request has
 * locked, and what a release could not let go of. Holds last for a day, so nothing else frees them.
 */
#include "background.h"
#include "calls.h"
#include "client.h"
#include "must.h"
#include "own_proxy.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#define LOCK "lock:{leftover}"
#define OWNER 7
#define DAY_MS 86400000
#define SHORT_MS 300 /* of a client that gives up soon, and of a hold that is over soon */
#define SHORT_BOUND_MS (3 * SHORT_MS)

/* ---- The stage ------------------------------------------------------------------------------- */

/* A client, and another that has no trouble. */
struct stage {
    dlock_client *client;
    dlock *lock;
    dlock_client *other_client;
    dlock *other;
    dlock_batch *last;
};

static void stage_set(struct stage *stage, const struct dlock_rung *rung, const char *url,
                      int64_t timeout_ms)
{
    server_text(server, "FLUSHALL");
    stage->client = client_of(url, (struct dlock_options){.ttl_ms = DAY_MS,
                                                          .connect_timeout_ms = timeout_ms,
                                                          .command_timeout_ms = timeout_ms});
    stage->lock = lock_of(stage->client, rung->name, LOCK);
    stage->other_client = client_of(server_url(server), (struct dlock_options){.ttl_ms = DAY_MS});
    stage->other = lock_of(stage->other_client, rung->name, LOCK);
    stage->last = dlock_batch_new();
    assert_status(dlock_batch_add(stage->last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
}

static void stage_clear(struct stage *stage)
{
    dlock_batch_free(stage->last);
    dlock_close(stage->other);
    dlock_client_close(stage->other_client);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
}

/* Nobody is connected, and who connects is not answered. */
static void go_away(void)
{
    server_integer(server, "CLIENT KILL TYPE normal");
    server_pause(server);
}

/* In the end. */
static void comes_to_another(const struct stage *stage)
{
    struct waiter other = {.lock = stage->other, .want = {.wait_ms = PATIENCE_MS}};
    waiter_start(&other);
    assert_status(waiter_end(&other), OK);
    assert_status(dlock_release(other.hold, NULL), OK);
}

static dlock_hold *acquired_for(dlock *lock, struct dlock_want want)
{
    want.owner_id = OWNER;
    return wanted(lock, want);
}

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
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .limit_ms = 100};
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

/* ---- Holds that share a key ------------------------------------------------------------------ */

/* The last that is valid is let go of, though another of its owner was not released yet. */
static void beside_one_that_is_over(void **state)
{
    struct stage stage;
    stage_set(&stage, *state, server_url(server), SHORT_MS);
    dlock_hold *outer = acquired_by(stage.lock, OWNER);
    dlock_hold *nested = acquired_for(stage.lock, (struct dlock_want){.hold_max_ms = 100});
    eventually(!dlock_valid(nested));
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
    assert_int_equal(stats_of(stage.client).passed_on, 1);
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
        .size = sizeof nested, .owner_id = OWNER, .wait_ms = PATIENCE_MS, .limit_ms = 100};
    stage_set(&stage, *state, proxy_url(proxy), 60000);
    struct dlock_want want = {.ttl_ms = SHORT_MS, .hold_max_ms = SHORT_MS};
    dlock_hold *outer = acquired_for(stage.lock, want);
    proxy_plan(proxy, PROXY_HOLD_REPLY, LOCK, NULL, 0);
    dlock_status status = dlock_acquire(stage.lock, &nested, &none);
    if (status == DLOCK_OK) /* `fair` asks nobody */
        assert_status(dlock_release(none, NULL), OK);
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
                           .want = {.wait_ms = PATIENCE_MS, .limit_ms = SHORT_MS}};
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
 * have lived, and then the release of the write goes on. */
static void while_renewals_keep_its_owner(void **state)
{
    struct stage stage;
    (void)state;
    stage_set(&stage, dlock_rung_find("read_write"), server_url(server), SHORT_MS);
    struct dlock_want want = {.ttl_ms = SHORT_MS};
    dlock_hold *writes = acquired_for(stage.lock, want);
    want.mode = DLOCK_SHARED;
    dlock_hold *reads = acquired_for(stage.lock, want);
    eventually(stats_of(stage.client).renewals > 2);
    no_other_connects();
    assert_int_not_equal(dlock_release(writes, NULL), DLOCK_OK);
    long_pause(SHORT_MS + SHORT_BOUND_MS + SHORT_MS);
    assert_true(dlock_valid(reads));
    server_text(server, "CONFIG SET maxclients 1000");
    another_reads(&stage);
    assert_true(dlock_valid(reads));
    assert_status(dlock_release(reads, NULL), OK);
    comes_to_another(&stage);
    stage_clear(&stage);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(what_a_call_left_is_taken_back, EACH_SOUND),
        SCENARIO(taken_back_by_who_closes, EACH_SOUND),
        SCENARIO(given_too_late, EACH_SOUND),
        SCENARIO(what_a_release_left_is_let_go, EACH_SOUND),
        SCENARIO(unreachable_with_riders, EACH_SOUND),
        SCENARIO(refused_with_riders, EACH_SOUND),
        SCENARIO(refused_until_its_rights_are_back, EACH_SOUND),
        SCENARIO(tried_again_where_no_doubt_ends, EACH_SOUND),
        SCENARIO(beside_one_that_is_over, EACH_REENTRANT),
        SCENARIO(for_as_long_as_the_key_lives, EACH_REENTRANT),
        SCENARIO(for_as_long_as_the_client_has_it, ONCE),
        SCENARIO(over_before_it_was_sent, EACH_REENTRANT),
        SCENARIO(refused_after_its_time, EACH_REENTRANT),
        SCENARIO(refused_after_it_was_passed_on, ONCE),
        SCENARIO(after_a_nested_acquire_that_was_not_answered, EACH_REENTRANT),
        SCENARIO(its_owner_reads_anew, ONCE),
        SCENARIO(for_as_long_as_what_was_left_lives, ONCE),
        SCENARIO(one_for_what_was_left, ONCE),
        SCENARIO(behind_the_next_waiter, ONCE),
        SCENARIO(before_its_owner_asked_anew, EACH_NESTED_ASKS),
        SCENARIO(passed_on_when_its_time_was_over, ONCE),
        SCENARIO(without_a_turn, EACH_NESTED_ASKS),
        SCENARIO(no_memory_for_a_release, EACH_SOUND),
        SCENARIO(while_its_owner_reads_on, ONCE),
        SCENARIO(while_its_owner_reads_on_after_a_late_write, ONCE),
        SCENARIO(while_renewals_keep_its_owner, ONCE),
    };
    return run_scenarios("leftover", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server_and_proxy, stop_server_and_proxy);
}
