/* SPDX-License-Identifier: Apache-2.0
 *
 * A call loses its processor wherever it lets go of a mutex, at one such place a round. There
 * another call begins and ends, and finds what the first has done so far.
 */
#include "background.h"
#include "calls.h"
#include "client.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "sound.h"
#include "started.h"
#include "waiter.h"

#define LOCK "lock:{preemption}"
#define OWNER 7
#define DAY_MS 86400000
#define SHORT_MS 20
#define ACQUIRE_GAPS 16 /* of its first tries */

/* ---- Preemption ------------------------------------------------------------------------------ */

/* The thread that is preempted sets and reads it. */
static _Thread_local struct {
    const pthread_mutex_t *mutex; /* NULL: it is not preempted */
    int unlocks;                  /* until it is */
    void (*run)(void *arg);       /* meanwhile */
    void *arg;
} preempted;

static _Thread_local int locked; /* mutexes of the library, by this thread */

int __real_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex)
{
    locked++;
    return __real_pthread_mutex_lock(mutex);
}

/* Who holds another mutex keeps the other call from its end. */
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    int result = __real_pthread_mutex_unlock(mutex);
    locked--;
    if (mutex == preempted.mutex && locked == 0 && --preempted.unlocks == 0) {
        preempted.mutex = NULL;
        preempted.run(preempted.arg);
    }
    return result;
}

static void preempt(const pthread_mutex_t *mutex, int unlocks, void (*run)(void *arg), void *arg)
{
    preempted.mutex = mutex;
    preempted.unlocks = unlocks;
    preempted.run = run;
    preempted.arg = arg;
}

/* The call is over. Whether it was preempted. */
static bool was_preempted(void)
{
    bool was = preempted.mutex == NULL;
    preempted.mutex = NULL;
    return was;
}

/* ---- The stage ------------------------------------------------------------------------------- */

/* A client that gives up soon, and another. */
struct stage {
    struct proxy *proxy;
    dlock_client *client;
    dlock *lock;
    dlock_hold *outer, *nested;
    dlock_client *other_client;
    dlock *other;
    struct releaser releaser; /* in the gap */
    bool sent;                /* and what its request was to send */
};

static void stage_set(struct stage *stage, const struct dlock_rung *rung)
{
    server_text(server, "FLUSHALL");
    *stage = (struct stage){.proxy = proxy_start(server)};
    stage->client =
        client_of(proxy_url(stage->proxy), (struct dlock_options){.ttl_ms = DAY_MS,
                                                                  .connect_timeout_ms = SHORT_MS,
                                                                  .command_timeout_ms = SHORT_MS});
    stage->lock = lock_of(stage->client, rung->name, LOCK);
    stage->other_client = client_of(server_url(server), (struct dlock_options){.ttl_ms = DAY_MS});
    stage->other = lock_of(stage->other_client, rung->name, LOCK);
    stage->outer = acquired_by(stage->lock, OWNER);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->other);
    dlock_client_close(stage->other_client);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    proxy_free(stage->proxy);
}

static void kept_from_others(const struct stage *stage)
{
    dlock_hold *none;
    assert_status(tried(stage->other, &none), BUSY);
}

/* In the end. */
static void comes_to_another(const struct stage *stage)
{
    struct waiter other = {.lock = stage->other, .want = {.wait_ms = PATIENCE_MS}};
    waiter_start(&other);
    assert_status(waiter_end(&other), OK);
    assert_status(dlock_release(other.hold, NULL), OK);
}

/* ---- Scenarios ------------------------------------------------------------------------------- */

/* No server answers it. */
static void release_outer(void *arg)
{
    struct stage *stage = arg;
    stage->releaser.hold = stage->outer;
    releaser_start(&stage->releaser);
    must(releaser_end(&stage->releaser) != DLOCK_OK);
    server_resume(server);
}

/* It asks in vain, and again and again. What it got in the end is its own, and nobody lets go of
 * it. On read_write the hold that it nests in may be let go of for itself: it is LOST then. */
static void a_release_in_each_gap_of_an_acquire(void **state)
{
    const struct dlock_rung *rung = *state;
    for (int gap = 1; gap <= ACQUIRE_GAPS; gap++) {
        struct stage stage;
        dlock_hold *hold;
        struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .owner_id = OWNER};
        stage_set(&stage, rung);
        server_pause(server);
        preempt(&stage.lock->mutex, gap, release_outer, &stage);
        dlock_status status = dlock_acquire(stage.lock, &want, &hold);
        assert_true(was_preempted());
        if (rung->shared && status == DLOCK_LOST)
            status = dlock_acquire(stage.lock, &want, &hold);
        assert_int_equal(status, DLOCK_OK);
        eventually(kept_in_the_background(stage.client) == 0);
        assert_true(dlock_valid(hold));
        kept_from_others(&stage);
        assert_status(dlock_release(hold, NULL), OK);
        comes_to_another(&stage);
        stage_clear(&stage);
    }
}

/* What it sends inside the hold stays on its way, and nobody can end that; unless its owner's other
 * request keeps it from being sent. */
static void release_nested(void *arg)
{
    struct stage *stage = arg;
    proxy_plan(stage->proxy, PROXY_HOLD_REQUEST, "sold", NULL, 0);
    stage->releaser.hold = stage->nested;
    releaser_start(&stage->releaser);
    eventually(proxy_done(stage->proxy) || atomic_load(&stage->releaser.over));
    server_pause(server);
    stage->sent = proxy_done(stage->proxy);
    must(releaser_end(&stage->releaser) == (stage->sent ? DLOCK_UNKNOWN : DLOCK_UNREACHABLE));
    server_resume(server);
}

/* That is refused. What the nested hold sent may be carried out at any time: then neither is let go
 * of in the background. */
static void a_late_command_in_each_gap_of_a_release(void **state)
{
    bool preempts = true;
    for (int gap = 1; preempts; gap++) {
        struct stage stage;
        stage_set(&stage, *state);
        stage.nested = acquired_by(stage.lock, OWNER);
        dlock_batch *last = stage.releaser.last = dlock_batch_new();
        assert_status(dlock_batch_add(last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
        server_refuse_writes(server, true);
        preempt(&stage.lock->mutex, gap, release_nested, &stage);
        assert_int_not_equal(dlock_release(stage.outer, NULL), DLOCK_OK);
        preempts = was_preempted();
        server_refuse_writes(server, false);
        if (!preempts)
            assert_status(dlock_release(stage.nested, NULL), OK);
        eventually(kept_in_the_background(stage.client) == 0);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), stage.sent);
        dlock_batch_free(last);
        stage_clear(&stage);
    }
}

static dlock_hold *nested_for(const struct stage *stage, int64_t hold_max_ms)
{
    struct dlock_want want = {.size = sizeof want, .owner_id = OWNER, .hold_max_ms = hold_max_ms};
    dlock_hold *hold = NULL;
    eventually(dlock_acquire(stage->lock, &want, &hold) == DLOCK_OK);
    return hold;
}

/* The time of both is over, but their key lives on. One is released meanwhile, in vain. */
static void a_release_in_each_gap_of_an_abandon(void **state)
{
    bool preempts = true;
    for (int gap = 1; preempts; gap++) {
        struct stage stage;
        stage_set(&stage, *state);
        dlock_hold *first = stage.outer;
        stage.outer = nested_for(&stage, 500);
        stage.nested = nested_for(&stage, 500);
        dlock_release(first, NULL);
        eventually(!dlock_valid(stage.nested) && !dlock_valid(stage.outer));
        server_pause(server);
        preempt(&stage.lock->mutex, gap, release_outer, &stage);
        assert_status(dlock_abandon(stage.nested), LOST);
        preempts = was_preempted();
        if (!preempts)
            release_outer(&stage);
        eventually(kept_in_the_background(stage.client) == 0);
        comes_to_another(&stage);
        stage_clear(&stage);
    }
}

static void abandon_another(void *arg)
{
    struct stage *stage = arg;
    dlock *lock = lock_of(stage->client, "fair", LOCK);
    assert_status(dlock_abandon(acquired(lock)), OK);
    dlock_close(lock);
}

/* The lock is closed by the one while the other has a hold of it that is left to expire: this
 * client does not ask for it before it has. */
static void an_abandon_in_each_gap_of_a_close(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        bool preempts = true;
        for (int gap = 1; preempts; gap++) {
            struct stage stage;
            stage_set(&stage, dlock_rung_find("fair"));
            assert_status(dlock_release(stage.outer, NULL), OK);
            preempt(i == 0 ? &stage.client->mutex : &stage.client->loop.mutex, gap, abandon_another,
                    &stage);
            dlock_close(stage.lock);
            preempts = was_preempted();
            if (!preempts)
                abandon_another(&stage);
            stage.lock = lock_of(stage.client, "fair", LOCK);
            dlock_hold *hold;
            assert_status(tried(stage.lock, &hold), BUSY);
            stage_clear(&stage);
        }
    }
}

int main(void)
{
    static const struct scenario scenarios[] = {
        SCENARIO(a_release_in_each_gap_of_an_acquire, EACH_NESTED_ASKS),
        SCENARIO(a_late_command_in_each_gap_of_a_release, EACH_NESTED_ASKS),
        SCENARIO(a_release_in_each_gap_of_an_abandon, EACH_NESTED_ASKS),
        SCENARIO(an_abandon_in_each_gap_of_a_close, ONCE),
    };
    return run_scenarios("preemption", scenarios, sizeof scenarios / sizeof scenarios[0],
                         start_server, stop_server);
}
