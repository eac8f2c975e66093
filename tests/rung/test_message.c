/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: waiters that are woken by a message. The release publishes, the waiters subscribe; they
 * try again by themselves only after ten minutes, so whoever is woken was woken by the message.
 */
#include "calls.h"
#include "must.h"
#include "rung.h"
#include "server.h"
#include "validate.h"
#include "waiter.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_MS 600000
#define LOCK "lock:{message}"
#define WAITERS 4

extern const struct script lua_message_release;

/* ---- The rung -------------------------------------------------------------------------------- */

/* Tries that were answered. The library's own count is of tries that began: one that is still under
 * way may yet be answered by what the test does next. */
static _Atomic uint64_t answered;

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    atomic_fetch_add(&answered, 1);
    if (set.status != DLOCK_OK)
        return set.status;
    if (set.kind != DLOCK_REPLY_NIL)
        return DLOCK_OK;
    busy->kind = WAIT_CHANNEL;
    busy->again_ms = AGAIN_MS;
    snprintf(busy->source, sizeof busy->source, "%s:free", hold->key);
    return DLOCK_BUSY;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    char channel[BUSY_SOURCE_MAX];
    snprintf(channel, sizeof channel, "%s:free", hold->key);
    struct answer del = EVAL(env, &lua_message_release, "1", hold->key, hold->id, channel);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static const struct rung_ops message = {
    .name = "message",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
};

static const struct rung_ops message_one = {
    .name = "message_one",
    .traits = TRAIT_EXPIRES,
    .contend = CONTEND_ONE_PER_CLIENT,
    .try_acquire = try_acquire,
    .release = release,
};

/* ---- The tests ------------------------------------------------------------------------------- */

static struct server *server;

/* A holder of one client, and a client whose waiters wait for it. */
struct stage {
    dlock_client *holder;
    dlock_client *waiting;
    dlock *held;
    dlock *lock;
    dlock_hold *hold;
    struct waiter waiters[WAITERS];
};

static dlock *opened(dlock_client *client, const struct rung_ops *ops)
{
    dlock *lock;
    assert_status(dlock_open_ops(client, ops, LOCK, &lock), OK);
    return lock;
}

static void stage_set(struct stage *stage, const struct rung_ops *ops)
{
    *stage = (struct stage){0};
    server_text(server, "FLUSHALL");
    stage->holder = client_of(server_url(server), (struct dlock_options){0});
    stage->waiting = client_of(server_url(server), (struct dlock_options){0});
    stage->held = opened(stage->holder, ops);
    stage->lock = opened(stage->waiting, ops);
    stage->hold = acquired(stage->held);
    atomic_store(&answered, 0); /* from here on: the waiters' */
    for (int i = 0; i < WAITERS; i++)
        stage->waiters[i] =
            (struct waiter){.lock = stage->lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->held);
    dlock_close(stage->lock);
    dlock_client_close(stage->holder);
    dlock_client_close(stage->waiting);
}

static long long subscribers(void)
{
    const redisReply *reply = server_ask(server, "PUBSUB NUMSUB %s:free", LOCK);
    return reply->element[1]->integer;
}

/* The one waiter that has it by now. */
static struct waiter *winner(struct stage *stage)
{
    for (;;) {
        for (int i = 0; i < WAITERS; i++)
            if (atomic_load(&stage->waiters[i].over) && stage->waiters[i].hold != NULL)
                return &stage->waiters[i];
        short_pause();
    }
}

static void oracle(void **state)
{
    (void)state;
    const char *servers[] = {server_url(server), NULL};
    const struct rung_ops *const all[] = {&message, &message_one};
    for (size_t i = 0; i < 2; i++) {
        server_text(server, "FLUSHALL");
        assert_true(oracle_agrees(&(struct oracle){
            .ops = all[i],
            .servers = servers,
            .expected = HOLDS,
            .processes = 2,
            .threads = 4,
            .rounds = 15,
            .riding = true,
        }));
    }
}

/* Each waiter tries, subscribes, tries once more; then each message is one try of each waiter. */
static void woken_by_the_message_alone(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, &message);
    for (int i = 0; i < WAITERS; i++)
        waiter_start(&stage.waiters[i]);
    uint64_t expected = 2 * WAITERS;
    eventually(atomic_load(&answered) == expected && subscribers() == WAITERS);
    assert_status(dlock_release(stage.hold, NULL), OK);
    for (unsigned left = WAITERS; left > 0; left--) {
        struct waiter *had = winner(&stage);
        expected += left;
        eventually(atomic_load(&answered) >= expected);
        assert_int_equal(atomic_load(&answered), expected);
        assert_status(waiter_end(had), OK);
        assert_status(dlock_release(had->hold, NULL), OK);
        had->hold = NULL;
    }
    assert_int_equal(atomic_load(&answered), expected);
    stage_clear(&stage);
}

static void survives_a_dropped_subscription(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, &message);
    waiter_start(&stage.waiters[0]);
    eventually(atomic_load(&answered) == 2 && subscribers() == 1);
    assert_int_equal(server_integer(server, "CLIENT KILL TYPE pubsub"), 1);
    eventually(atomic_load(&answered) == 4 && subscribers() == 1);
    assert_status(dlock_release(stage.hold, NULL), OK);
    assert_status(waiter_end(&stage.waiters[0]), OK);
    assert_int_equal(atomic_load(&answered), 5);
    assert_status(dlock_release(stage.waiters[0].hold, NULL), OK);
    stage_clear(&stage);
}

static void a_listener_can_be_cancelled_and_times_out(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, &message);
    dlock_cancel *cancel = dlock_cancel_new();
    stage.waiters[0].want.cancel = cancel;
    waiter_start(&stage.waiters[0]);
    eventually(subscribers() == 1 && atomic_load(&answered) == 2);
    dlock_cancel_now(cancel);
    assert_status(waiter_end(&stage.waiters[0]), CANCELLED);
    assert_says(stage.waiters[0].error, LOCK);
    stage.waiters[1].want.wait_ms = 50;
    waiter_start(&stage.waiters[1]);
    assert_status(waiter_end(&stage.waiters[1]), TIMED_OUT);
    assert_says(stage.waiters[1].error, "50 ms");
    eventually(subscribers() == 0);
    assert_status(dlock_release(stage.hold, NULL), OK);
    dlock_cancel_free(cancel);
    stage_clear(&stage);
}

/* One contends, the others of its client stand behind it, silent, and are served in their order. */
static void one_contends_for_its_client(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, &message_one);
    waiter_start(&stage.waiters[0]);
    eventually(atomic_load(&answered) == 2 && subscribers() == 1);
    dlock_cancel *cancel = dlock_cancel_new();
    stage.waiters[1].want.cancel = cancel;
    waiter_start(&stage.waiters[1]);
    stage.waiters[2].want.wait_ms = 50;
    waiter_start(&stage.waiters[2]);
    assert_status(waiter_end(&stage.waiters[2]), TIMED_OUT);
    assert_says(stage.waiters[2].error, LOCK);
    dlock_cancel_now(cancel);
    assert_status(waiter_end(&stage.waiters[1]), CANCELLED);
    assert_says(stage.waiters[1].error, LOCK);
    /* An older sentence of this thread must not be taken for the try's. */
    assert_status(dlock_open(stage.waiting, "no such rung", LOCK, &(dlock *){0}), INVALID);
    dlock_hold *none;
    assert_status(tried(stage.lock, &none), BUSY);
    assert_says(dlock_error(), LOCK);
    assert_int_equal(atomic_load(&answered), 2);

    waiter_start(&stage.waiters[3]);
    assert_status(dlock_release(stage.hold, NULL), OK);
    assert_status(waiter_end(&stage.waiters[0]), OK);
    eventually(atomic_load(&answered) == 3 + 2 && subscribers() == 1);
    assert_status(dlock_release(stage.waiters[0].hold, NULL), OK);
    assert_status(waiter_end(&stage.waiters[3]), OK);
    assert_int_equal(atomic_load(&answered), 3 + 3);
    assert_status(dlock_release(stage.waiters[3].hold, NULL), OK);
    dlock_cancel_free(cancel);
    stage_clear(&stage);
}

static int start(void **state)
{
    (void)state;
    server = server_start(NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_free(server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle),
        cmocka_unit_test(woken_by_the_message_alone),
        cmocka_unit_test(survives_a_dropped_subscription),
        cmocka_unit_test(a_listener_can_be_cancelled_and_times_out),
        cmocka_unit_test(one_contends_for_its_client),
    };
    return cmocka_run_group_tests_name("message", tests, start, stop);
}
