/* SPDX-License-Identifier: Apache-2.0
 *
 * Nested acquires that are lost or refused, and the loss that a nested acquire shows. And acquires
 * and releases that wait in vain for another request of their owner.
 */
#include "calls.h"
#include "client.h"
#include "cleanup.h"
#include "must.h"
#include "owner.h"
#include "pair_stage.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define LIMIT_MS 300 /* long enough for a busy server to answer */

/* ---- Requests that hang ---------------------------------------------------------------------- */

#define SPOILED_MAX 5 /* runs in which this machine stood still at the wrong moment */

/* A nested acquire is lost twice, and its call ends, while another of its owner is carried out and
 * not answered yet, and the outer hold is over. What the first left behind takes nothing from the
 * second. False: the second was not nested. */
static bool left_its_owner_alone(const struct dlock_rung *rung)
{
    struct stage stage;
    dlock_hold *outer, *theirs;
    stage_set_warm(&stage, rung, 30000);
    dlock_client *client = client_of(
        proxy_url(stage.proxy), (struct dlock_options){.command_timeout_ms = 800, .retry_ms = 300});
    dlock *lock = lock_of(client, rung->name, LOCK);
    struct dlock_want want = {.size = sizeof want, .owner_id = OWNER, .hold_max_ms = 2000};
    struct dlock_want soon = {.size = sizeof soon, .wait_ms = 100};
    struct dlock_want lose = {.owner_id = OWNER, .ttl_ms = 20001, .wait_ms = PATIENCE_MS};
    struct dlock_want keep = {.owner_id = OWNER, .ttl_ms = 20002, .wait_ms = PATIENCE_MS};
    lose.call_max_ms = 2200;
    struct waiter lost = {.lock = lock, .want = lose}, second = {.lock = lock, .want = keep};
    assert_status(dlock_acquire(lock, &want, &outer), OK);
    proxy_plan(stage.proxy, PROXY_MUTE, "20001", NULL, 0);
    waiter_start(&lost);
    eventually(proxy_done(stage.proxy) || atomic_load(&lost.over));
    proxy_plan(stage.proxy, PROXY_MUTE, "20001", NULL, 0);
    waiter_start(&second);
    eventually(proxy_done(stage.proxy) || atomic_load(&lost.over));
    proxy_plan(stage.proxy, PROXY_HOLD_REPLY, "20002", NULL, 0);
    dlock_status status = waiter_end(&lost);
    bool held = proxy_done(stage.proxy) && !atomic_load(&second.over) && !dlock_valid(outer);
    if (held) /* what was left behind has time for it */
        assert_status(dlock_acquire(stage.other, &soon, &theirs), TIMED_OUT);
    proxy_let_go(stage.proxy);
    dlock_status kept = waiter_end(&second);
    bool nested = held && status != DLOCK_OK && kept == DLOCK_OK &&
                  strcmp(dlock_owner(second.hold), dlock_owner(outer)) == 0;
    if (nested)
        kept_from_others(&stage, second.hold);
    dlock_release(lost.hold, NULL);
    dlock_release(second.hold, NULL);
    dlock_release(outer, NULL);
    dlock_close(lock);
    dlock_client_close(client);
    stage_clear(&stage);
    return nested;
}

static void a_lost_nested_acquire_leaves_its_owner_alone(void **state)
{
    int runs = 1;
    if (queues(*state))
        return; /* a nested acquire sends nothing */
    while (!left_its_owner_alone(*state))
        assert_true(runs++ < SPOILED_MAX);
}

struct refused {
    int nested; /* its address marks the acquire */
    _Atomic int count;
};

static void count_refused(void *arg, const struct dlock_trace *trace)
{
    struct refused *refused = arg;
    if (trace->user == &refused->nested &&
        (strstr(trace->reply, "OOM") != NULL || strstr(trace->reply, "READONLY") != NULL))
        atomic_fetch_add(&refused->count, 1);
}

/* A nested acquire that the server refuses for a while is not put behind those who wait for its
 * owner: nobody would ever go on. */
static void a_refused_nested_acquire_passes_who_waits(void **state)
{
    static const char *const ill[] = {"CONFIG SET maxmemory 1", "REPLICAOF 127.0.0.1 1"};
    static const char *const well[] = {"CONFIG SET maxmemory 0", "REPLICAOF NO ONE"};
    if (queues(*state))
        return; /* a nested acquire sends nothing */
    for (int i = 0; i < 2; i++) {
        struct stage stage;
        struct started behind = {.release = true};
        struct refused refused = {0};
        stage_set_warm(&stage, *state, 30000);
        dlock_client *client =
            client_of(server_url(server), (struct dlock_options){.contenders = 1,
                                                                 .on_trace = count_refused,
                                                                 .on_trace_arg = &refused});
        dlock *lock = lock_of(client, ((const struct dlock_rung *)*state)->name, LOCK);
        dlock_hold *outer = acquired_by(lock, OWNER);
        start(lock, waiting(DLOCK_WAIT_FOREVER), &behind);
        eventually(stats_of(client).contended == 1);
        server_text(server, ill[i]);
        struct waiter nested = {
            .lock = lock,
            .want = {.wait_ms = DLOCK_WAIT_FOREVER, .owner_id = OWNER, .user = &refused.nested}};
        waiter_start(&nested);
        eventually(atomic_load(&refused.count) > 0 || /* of read_write it may need no memory */
                   atomic_load(&nested.over));
        server_text(server, well[i]);
        assert_status(waiter_end(&nested), OK);
        assert_int_equal(atomic_load(&behind.answers), 0);
        assert_true(dlock_valid(outer));
        assert_status(dlock_release(nested.hold, NULL), OK);
        assert_status(dlock_release(outer, NULL), OK);
        started_answered(&behind);
        assert_int_equal(behind.status, DLOCK_OK);
        dlock_close(lock);
        dlock_client_close(client);
        stage_clear(&stage);
    }
}

/* ---- A loss that a nested acquire shows ------------------------------------------------------ */

enum loss { BROKEN, EMPTIED };

/* Another client enters, and leaves again or stays. */
static dlock_hold *lose(struct stage *stage, enum loss loss, bool leaves)
{
    if (loss == BROKEN)
        assert_status(dlock_break(stage->other, NULL), OK);
    else
        server_text(server, "FLUSHALL");
    dlock_hold *theirs = acquired(stage->other);
    if (!leaves)
        return theirs;
    assert_status(dlock_release(theirs, NULL), OK);
    return NULL;
}

static void is_lost(struct stage *stage, dlock_hold *hold)
{
    struct pollfd lost = {.fd = dlock_lost_fd(hold), .events = POLLIN};
    assert_false(dlock_valid(hold));
    assert_int_equal(poll(&lost, 1, PATIENCE_MS), 1);
    eventually(record_told(stage->events, "LOST", hold) == 1);
    assert_status(dlock_release(hold, NULL), LOST);
}

/* All holds of the owner are lost at once, long before a renewal. On `fair` a nested acquire sends
 * nothing: there the next renewal shows the loss. */
static void a_nested_acquire_shows_the_loss(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct stage stage;
        dlock_hold *nested;
        stage_set_warm(&stage, *state, queues(*state) ? 600 : 30000);
        dlock_hold *outer = acquired_by(stage.lock, DLOCK_THIS_THREAD);
        dlock_hold *middle = acquired_by(stage.lock, DLOCK_THIS_THREAD);
        dlock_hold *theirs = lose(&stage, i / 2 == 0 ? BROKEN : EMPTIED, i % 2 == 0);
        if (queues(*state))
            eventually(!dlock_valid(outer) && !dlock_valid(middle));
        else
            assert_status(tried_by(stage.lock, DLOCK_THIS_THREAD, &nested), LOST);
        is_lost(&stage, middle);
        is_lost(&stage, outer);
        if (theirs != NULL)
            dlock_release(theirs, NULL);
        nested = acquired_by(stage.lock, DLOCK_THIS_THREAD);
        assert_status(dlock_release(nested, NULL), OK);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

struct doomed {
    struct stage *stage;
    dlock_hold *outer;
    _Atomic int lost;
};

/* When its reply was lost first, its owner loses the lock, before it is sent once more; and that
 * has no answer either. */
static void lose_between(void *arg, const struct dlock_trace *trace)
{
    struct doomed *doomed = arg;
    if (doomed->outer == NULL || strcmp(trace->reply, "(lost)") != 0 ||
        atomic_fetch_add(&doomed->lost, 1) > 0)
        return;
    must(dlock_break(doomed->stage->other, NULL) == DLOCK_OK);
    eventually(!dlock_valid(doomed->outer));
    proxy_plan(doomed->stage->proxy, PROXY_CUT_REPLY, LOCK, NULL, 0);
}

/* The next try is an acquisition of its own, which the loss does not concern. On `fair` a nested
 * acquire sends nothing. */
static void a_loss_dooms_one_name_alone(void **state)
{
    const struct dlock_rung *rung = *state;
    if (queues(rung) || !rung->renewed)
        return;
    struct stage stage;
    struct doomed doomed = {.stage = &stage};
    stage_set_warm(&stage, rung, 60000);
    dlock_client *client = client_of(proxy_url(stage.proxy), (struct dlock_options){
                                                                 .ttl_ms = 1500,
                                                                 .on_trace = lose_between,
                                                                 .on_trace_arg = &doomed,
                                                             });
    dlock *lock = lock_of(client, rung->name, LOCK);
    struct dlock_want want = {
        .size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER, .ttl_ms = 60000};
    dlock_hold *nested, *outer = doomed.outer = acquired_by(lock, OWNER);
    proxy_plan(stage.proxy, PROXY_CUT_REPLY, LOCK, NULL, 0);
    assert_status(dlock_acquire(lock, &want, &nested), OK);
    assert_int_equal(atomic_load(&doomed.lost), 2);
    assert_true(dlock_valid(nested));
    assert_status(dlock_release(outer, NULL), LOST);
    assert_status(dlock_release(nested, NULL), OK);
    free_for_others(&stage);
    dlock_close(lock);
    dlock_client_close(client);
    stage_clear(&stage);
}

/* It waits in vain for another request of its owner, here for an acquire that has not been
 * answered. That may have the lock by now. A counted name is not released in the background before
 * that is over; read_write's hold goes for itself. The key lives for longer than the heir would. */
static bool awaits_its_turn(dlock *lock)
{
    pthread_mutex_lock(&lock->mutex);
    bool awaits = !TAILQ_EMPTY(&lock->turns);
    pthread_mutex_unlock(&lock->mutex);
    return awaits;
}

/* Its owner's other request is under way all the time. That the server answers others of the
 * client tells whether it is away. */
static void no_turn_among_its_owners(void **state)
{
    const struct dlock_rung *rung = *state;
    for (int answers = 0; answers < 2; answers++) {
        struct stage stage;
        stage_set_warm(&stage, rung, 600000);
        dlock *beside = lock_of(stage.client, rung->name, "lock:{beside}");
        dlock_hold *outer = acquired_by(stage.lock, OWNER);
        for (int waits = 0; waits < 2; waits++) {
            struct waiter waiter = {.lock = stage.lock,
                                    .want = {.owner_id = OWNER,
                                             .wait_ms = waits ? LIMIT_MS : 0,
                                             .call_max_ms = LIMIT_MS}};
            struct dlock_hold asking = {.lock = stage.lock, .named_by = 'x', .number = OWNER};
            snprintf(asking.owner, sizeof asking.owner, "%s", dlock_owner(outer));
            assert_true(owner_begin_release(&asking, 0));
            waiter_start(&waiter);
            eventually(awaits_its_turn(stage.lock));
            if (answers)
                assert_status(dlock_release(acquired(beside), NULL), OK);
            dlock_status status = waiter_end(&waiter);
            assert_int_equal(status, !answers ? DLOCK_UNREACHABLE
                                     : waits  ? DLOCK_TIMED_OUT
                                              : DLOCK_LIMIT);
            assert_says(waiter.error, answers ? "other requests of its owner came first"
                                              : "was not answered in time");
            owner_end(&asking);
        }
        assert_status(dlock_release(outer, NULL), OK);
        dlock_close(beside);
        free_for_others(&stage);
        stage_clear(&stage);
    }
}

static void a_release_in_vain_is_inherited(void **state)
{
    const struct dlock_rung *rung = *state;
    struct stage stage;
    stage_set_warm(&stage, rung, 60000);
    dlock_client *client = client_of(server_url(server), (struct dlock_options){
                                                             .ttl_ms = 600000,
                                                             .connect_timeout_ms = 100,
                                                             .command_timeout_ms = 100,
                                                         });
    dlock *lock = lock_of(client, rung->name, LOCK);
    dlock_hold *outer = acquired_by(lock, OWNER);
    struct dlock_hold acquiring = {
        .lock = lock, .key = lock->name, .beside = lock->beside, .named_by = 'x', .number = OWNER};
    snprintf(acquiring.owner, sizeof acquiring.owner, "%s", dlock_owner(outer));
    assert_true(owner_begin_release(&acquiring, 0));
    assert_int_not_equal(dlock_release(outer, NULL), DLOCK_OK);
    assert_int_equal(client->cleanups_started, rung->shared);
    if (!rung->shared)
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    assert_true(owner_end(&acquiring));
    server_integer(server, "CLIENT KILL TYPE normal"); /* and who connects is not answered */
    server_pause(server);
    cleanup_release_name(&acquiring, 1);
    long_pause(2 * bound_ms(client));
    server_resume(server);
    eventually(server_integer(server, "EXISTS " LOCK) == 0);
    dlock_close(lock);
    dlock_client_close(client);
    stage_clear(&stage);
}

/* ---- In turns -------------------------------------------------------------------------------- */

#define NESTED 200

/* Acquires NESTED times for one owner, and releases them all, by calls that have no thread. How
 * long that took. */
static int64_t nest_all(dlock *lock)
{
    _Atomic int over = 0;
    struct dlock_want want = {.owner_id = OWNER, .wait_ms = PATIENCE_MS};
    struct started *crowd = crowd_new(NESTED, false, &over);
    int64_t begun_ms = clock_ms();
    for (int i = 0; i < NESTED; i++)
        start(lock, want, &crowd[i]);
    eventually(atomic_load(&over) == NESTED);
    for (int i = 0; i < NESTED; i++) {
        struct started *one = &crowd[i];
        dlock_hold *hold = one->hold;
        assert_int_equal(one->status, DLOCK_OK);
        *one = (struct started){.over = &over};
        start_release(hold, NULL, one);
    }
    eventually(atomic_load(&over) == 2 * NESTED);
    int64_t took_ms = clock_ms() - begun_ms;
    for (int i = 0; i < NESTED; i++)
        assert_int_equal(crowd[i].status, DLOCK_OK);
    free(crowd);
    return took_ms;
}

/* Each is woken by the end of the one before it: none waits until it looks by itself. */
static void each_wakes_the_next(void **state)
{
    const struct dlock_rung *rung = *state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, rung->name, LOCK);
    int64_t least_ms = PATIENCE_MS;
    for (int i = 0; i < 20 && least_ms >= 2 * NESTED * PUT_OFF_MS; i++) { /* a busy machine */
        int64_t took_ms = nest_all(lock);
        least_ms = took_ms < least_ms ? took_ms : least_ms;
    }
    assert_true(least_ms < 2 * NESTED * PUT_OFF_MS);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    dlock_close(lock);
    dlock_client_close(client);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(a_lost_nested_acquire_leaves_its_owner_alone, EACH_REENTRANT),
        SCENARIO(a_refused_nested_acquire_passes_who_waits, EACH_REENTRANT),
        SCENARIO(a_nested_acquire_shows_the_loss, EACH_REENTRANT),
        SCENARIO(a_loss_dooms_one_name_alone, EACH_REENTRANT),
        SCENARIO(no_turn_among_its_owners, EACH_NESTED_ASKS),
        SCENARIO(a_release_in_vain_is_inherited, EACH_NESTED_ASKS),
        SCENARIO(each_wakes_the_next, EACH_NESTED_ASKS),
    };
    return run_scenarios("nested", scenarios, sizeof scenarios / sizeof scenarios[0], start_server,
                         stop_server);
}
