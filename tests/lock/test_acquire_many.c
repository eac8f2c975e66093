/* SPDX-License-Identifier: Apache-2.0
 *
 * Several locks at once: all or none, always in the same order.
 */
#include "calls.h"
#include "client.h"
#include "child.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "waiter.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOCKS = 3 };
#define BEHIND "lock:{b}" /* the lock in the middle */

struct many {
    struct record *record;
    dlock_client *client;
    dlock *locks[LOCKS]; /* in another order than their names' */
    dlock_hold *holds[LOCKS];
    size_t missing;
};

/* A call with a thread, or one without whose completion is awaited here. */
typedef dlock_status acquire_many(struct many *many, struct dlock_want want);

struct ended {
    dlock_client *client;
    _Atomic bool over;
    dlock_status status;
    size_t missing;
    char error[512];
};

static void many_ended(void *arg, dlock_status status, size_t missing)
{
    struct ended *ended = arg;
    must(!atomic_load(&ended->over));
    ended->status = status;
    ended->missing = missing;
    snprintf(ended->error, sizeof ended->error, "%s", dlock_error());
    atomic_store(&ended->over, true);
}

static dlock_status with_a_thread(struct many *many, struct dlock_want want)
{
    want.size = sizeof want;
    return dlock_acquire_many(many->locks, LOCKS, &want, many->holds, &many->missing);
}

static char sentence[512]; /* of the latest call without a thread */

static dlock_status await(struct many *many, struct dlock_want want, bool own_loop)
{
    struct ended ended = {0};
    want.size = sizeof want;
    dlock_status status = dlock_acquire_many_start(many->locks, LOCKS, &want, many->holds,
                                                   many_ended, &ended, &many->missing);
    if (status == DLOCK_OK) {
        if (own_loop)
            eventually((dlock_process(many->client), atomic_load(&ended.over)));
        else
            eventually(atomic_load(&ended.over));
        status = ended.status;
        many->missing = ended.missing;
    }
    snprintf(sentence, sizeof sentence, "%s", ended.error[0] != '\0' ? ended.error : dlock_error());
    return status;
}

static dlock_status without_a_thread(struct many *many, struct dlock_want want)
{
    return await(many, want, false);
}

static dlock_status in_own_loop(struct many *many, struct dlock_want want)
{
    return await(many, want, true);
}

static const char *said(acquire_many *call)
{
    return call == with_a_thread ? dlock_error() : sentence;
}

static void many_set_up(struct many *many, const char *rung, acquire_many *call, int64_t ttl_ms)
{
    *many = (struct many){.record = record_new()};
    many->client =
        client_of(server_url(server), (struct dlock_options){.on_trace = record_trace,
                                                             .on_trace_arg = many->record,
                                                             .ttl_ms = ttl_ms,
                                                             .own_loop = call == in_own_loop});
    many->locks[0] = lock_of(many->client, rung, "lock:{c}");
    many->locks[1] = lock_of(many->client, rung, "lock:{a}");
    many->locks[2] = lock_of(many->client, rung, BEHIND);
}

static void many_clear(struct many *many)
{
    for (size_t i = 0; i < LOCKS; i++)
        dlock_close(many->locks[i]);
    dlock_client_close(many->client);
    record_free(many->record);
}

static void release_all(struct many *many)
{
    for (size_t i = 0; i < LOCKS; i++) {
        assert_status(dlock_release(many->holds[i], NULL), OK);
        many->holds[i] = NULL;
    }
}

static void assert_none_held(struct many *many)
{
    for (size_t i = 0; i < LOCKS; i++) {
        assert_null(many->holds[i]);
        assert_int_equal(server_integer(server, "EXISTS %s", dlock_name(many->locks[i])), 0);
    }
}

/* ---- All or none ----------------------------------------------------------------------------- */

static acquire_many *const calls[] = {with_a_thread, without_a_thread, in_own_loop};
#define FOR_EACH_CALL(call)                                                                        \
    for (size_t call##_at = 0; call##_at < sizeof calls / sizeof calls[0]; call##_at++)            \
        for (acquire_many *call = calls[call##_at]; call != NULL; call = NULL)

static void all_are_acquired_in_the_order_of_their_names(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        many_set_up(&many, "owner_lua", call, 0);
        assert_status(call(&many, (struct dlock_want){.wait_ms = PATIENCE_MS}), OK);
        assert_int_equal(many.missing, LOCKS);
        for (size_t i = 0; i < LOCKS; i++)
            assert_true(dlock_valid(many.holds[i]));
        for (size_t i = 0; i < LOCKS; i++)
            assert_int_equal(strncmp(holder_of(many.locks[i]).owner, dlock_owner(many.holds[i]),
                                     strlen(dlock_owner(many.holds[i]))),
                             0);
        assert_true(record_position(many.record, "SET lock:{a}") <
                    record_position(many.record, "SET " BEHIND));
        assert_true(record_position(many.record, "SET " BEHIND) <
                    record_position(many.record, "SET lock:{c}"));
        assert_in_range(dlock_remaining_many_ms(many.holds, LOCKS), 1, TTL_MS_DEFAULT);
        assert_true(dlock_remaining_many_ms(many.holds, LOCKS) <=
                    dlock_remaining_ms(many.holds[1])); /* it was acquired first */
        release_all(&many);
        many_clear(&many);
    }
}

/* The one in the middle is held: the first is given back, the last is not asked for. */
static void one_that_is_held_leaves_none(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_client *other = new_client();
        dlock *held = lock_of(other, "owner_lua", BEHIND);
        dlock_hold *hold = acquired(held);
        many_set_up(&many, "owner_lua", call, 0);
        assert_status(call(&many, (struct dlock_want){0}), BUSY);
        assert_int_equal(many.missing, 2);
        assert_says(said(call), "'" BEHIND "'");
        assert_int_equal(record_count(many.record, "SET lock:{c}"), 0);
        assert_status(call(&many, (struct dlock_want){.wait_ms = 50}), TIMED_OUT);
        assert_int_equal(many.missing, 2);
        assert_says(said(call), "'" BEHIND "' was not acquired");
        assert_int_equal(stats_of(many.client).released, 2);
        assert_status(dlock_release(hold, NULL), OK);
        assert_none_held(&many);
        dlock_close(held);
        dlock_client_close(other);
        many_clear(&many);
    }
}

/* The last is held: the others are released, the latest first. */
static void what_was_acquired_is_released_in_reverse_order(void **state)
{
    (void)state;
    dlock_client *other = new_client();
    dlock *held = lock_of(other, "owner_lua", "lock:{c}");
    dlock_hold *hold = acquired(held);
    struct many many;
    many_set_up(&many, "owner_lua", with_a_thread, 0);
    assert_status(with_a_thread(&many, (struct dlock_want){0}), BUSY);
    assert_int_equal(many.missing, 0);
    assert_true(record_position(many.record, " 1 " BEHIND) <
                record_position(many.record, " 1 lock:{a}"));
    assert_status(dlock_release(hold, NULL), OK);
    assert_none_held(&many);
    dlock_close(held);
    dlock_client_close(other);
    many_clear(&many);
}

static void it_waits_for_each(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_client *other = new_client();
        dlock *held = lock_of(other, "watchdog", "lock:{c}");
        many_set_up(&many, "watchdog", call, 0);
        dlock_hold *hold = wanted(held, (struct dlock_want){.hold_max_ms = 300});
        assert_status(call(&many, (struct dlock_want){.wait_ms = PATIENCE_MS}), OK);
        release_all(&many);
        assert_status(dlock_release(hold, NULL), LOST);
        assert_none_held(&many);
        dlock_close(held);
        dlock_client_close(other);
        many_clear(&many);
    }
}

/* ---- One time for all ------------------------------------------------------------------------ */

static void pause_once(void *arg, const char *rung, const char *point)
{
    (void)rung;
    if (strcmp(point, "acquired") == 0 && atomic_fetch_add((_Atomic int *)arg, 1) == 0)
        long_pause(60);
}

/* The first lock takes all the time, so the second is not asked for. */
static void the_time_is_for_all_together(void **state)
{
    (void)state;
    _Atomic int points = 0;
    struct record *record = record_new();
    dlock_client *client =
        client_of(server_url(server), (struct dlock_options){.on_trace = record_trace,
                                                             .on_trace_arg = record,
                                                             .on_point = pause_once,
                                                             .on_point_arg = &points});
    dlock *locks[] = {lock_of(client, "setnx_expire", "lock:{a}"),
                      lock_of(client, "setnx_expire", BEHIND)};
    struct dlock_want wants[] = {{.size = sizeof wants[0], .wait_ms = 50},
                                 {.size = sizeof wants[0], .call_max_ms = 50}};
    for (size_t i = 0; i < 2; i++) {
        dlock_hold *holds[2];
        size_t missing;
        points = 0;
        assert_status(dlock_acquire_many(locks, 2, &wants[i], holds, &missing), TIMED_OUT);
        assert_int_equal(missing, 1);
        assert_says(dlock_error(), i == 0 ? "'" BEHIND "' was not asked for: after 'lock:{a}' was "
                                            "acquired (lock 1 of 2), the wait_ms of 50 ms was over"
                                          : "the call_max_ms of 50 ms was over");
        assert_int_equal(record_count(record, "SETNX " BEHIND), 0);
        assert_int_equal(server_integer(server, "EXISTS lock:{a}"), 0);
    }
    dlock_close(locks[0]);
    dlock_close(locks[1]);
    dlock_client_close(client);
    record_free(record);
}

/* A hold that is not renewed ends while the call waits for another lock. */
static void one_that_was_lost_meanwhile_leaves_none(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_client *other = new_client();
        dlock *held = lock_of(other, "owner_lua", BEHIND);
        many_set_up(&many, "owner_lua", call, 100);
        dlock_hold *hold = wanted(held, (struct dlock_want){.ttl_ms = 500});
        assert_status(call(&many, (struct dlock_want){.wait_ms = PATIENCE_MS}), LOST);
        assert_int_equal(many.missing, 1);
        assert_says(said(call), "'lock:{a}' was lost before the call had acquired all 3 locks");
        assert_status(dlock_release(hold, NULL), LOST);
        assert_none_held(&many);
        dlock_close(held);
        dlock_client_close(other);
        many_clear(&many);
    }
}

/* ---- How it is called ------------------------------------------------------------------------ */

static void the_reads_come_under_all_locks(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_batch *reads = dlock_batch_new();
        const char *exists[] = {"EXISTS", "lock:{a}", BEHIND, "lock:{c}"};
        assert_status(dlock_batch_add(reads, 4, exists, NULL), OK);
        many_set_up(&many, "watchdog", call, 0);
        assert_status(call(&many, (struct dlock_want){.wait_ms = PATIENCE_MS, .reads = reads}), OK);
        assert_int_equal(reply_of(reads, 0).integer, LOCKS);
        assert_int_equal(record_count(many.record, "EXISTS"), 1);
        release_all(&many);
        dlock_batch_free(reads);
        many_clear(&many);
    }
}

static void a_cancel_ends_it(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_cancel *cancel = dlock_cancel_new();
        dlock_cancel_now(cancel);
        many_set_up(&many, "watchdog", call, 0);
        assert_status(
            call(&many, (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .cancel = cancel}),
            CANCELLED);
        assert_int_equal(many.missing, 1);
        assert_none_held(&many);
        dlock_cancel_free(cancel);
        many_clear(&many);
    }
}

static void *cancel_later(void *arg)
{
    eventually(server_integer(server, "EXISTS lock:{a} " BEHIND) == 2);
    dlock_cancel_now(arg);
    return NULL;
}

/* It waits for the last, and has the others. */
static void a_cancel_ends_the_wait_for_a_later_lock(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_cancel *cancel = dlock_cancel_new();
        dlock_client *other = new_client();
        dlock *held = lock_of(other, "watchdog", "lock:{c}");
        dlock_hold *hold = acquired(held);
        many_set_up(&many, "watchdog", call, 0);
        pthread_t thread = thread_start(cancel_later, cancel);
        assert_status(
            call(&many, (struct dlock_want){.wait_ms = DLOCK_WAIT_FOREVER, .cancel = cancel}),
            CANCELLED);
        thread_wait(thread);
        assert_int_equal(many.missing, 0);
        assert_status(dlock_release(hold, NULL), OK);
        assert_none_held(&many);
        dlock_cancel_free(cancel);
        dlock_close(held);
        dlock_client_close(other);
        many_clear(&many);
    }
}

/* `done` of one call starts the next. */
struct chain {
    struct many many;
    _Atomic int over;
};

static void chain_next(void *arg, dlock_status status, size_t missing)
{
    struct chain *chain = arg;
    struct many *many = &chain->many;
    must(status == DLOCK_OK && missing == LOCKS);
    for (size_t i = 0; i < LOCKS; i++)
        must(dlock_release(many->holds[i], NULL) == DLOCK_OK);
    if (atomic_fetch_add(&chain->over, 1) == 3)
        return;
    must(dlock_acquire_many_start(many->locks, LOCKS, NULL, many->holds, chain_next, chain, NULL) ==
         DLOCK_OK);
}

static void one_is_started_from_done_of_another(void **state)
{
    (void)state;
    struct chain chain = {0};
    many_set_up(&chain.many, "fair", without_a_thread, 0);
    assert_status(dlock_acquire_many_start(chain.many.locks, LOCKS, NULL, chain.many.holds,
                                           chain_next, &chain, NULL),
                  OK);
    eventually(atomic_load(&chain.over) == 4);
    assert_int_equal(server_integer(server, "EXISTS lock:{a} " BEHIND " lock:{c}"), 0);
    many_clear(&chain.many);
}

static void an_owner_nests_in_all(void **state)
{
    (void)state;
    struct many many;
    many_set_up(&many, "watchdog", with_a_thread, 0);
    assert_status(with_a_thread(&many, (struct dlock_want){.owner_id = 7}), OK);
    dlock_hold *outer[LOCKS] = {many.holds[0], many.holds[1], many.holds[2]};
    assert_status(with_a_thread(&many, (struct dlock_want){.owner_id = 7}), OK);
    release_all(&many);
    assert_true(dlock_remaining_many_ms(outer, LOCKS) > 0);
    for (size_t i = 0; i < LOCKS; i++)
        assert_status(dlock_release(outer[i], NULL), OK);
    assert_none_held(&many);
    many_clear(&many);
}

/* The thread that makes the call owns all locks, also those that other threads ask for. */
static void the_calling_thread_owns_all(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        many_set_up(&many, "watchdog", call, 0);
        dlock_hold *outer = acquired_by(many.locks[0], DLOCK_THIS_THREAD);
        assert_status(call(&many, (struct dlock_want){.owner_id = DLOCK_THIS_THREAD}), OK);
        assert_string_equal(dlock_owner(many.holds[0]), dlock_owner(outer));
        release_all(&many);
        assert_true(dlock_valid(outer));
        assert_status(dlock_release(outer, NULL), OK);
        assert_none_held(&many);
        many_clear(&many);
    }
}

/* ---- Modes ----------------------------------------------------------------------------------- */

static bool can_acquire(dlock *lock, enum dlock_mode mode)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .mode = mode};
    dlock_status status = dlock_acquire(lock, &want, &hold);
    assert_true(status == DLOCK_OK || status == DLOCK_BUSY);
    if (status == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    return status == DLOCK_OK;
}

/* Others may hold what is wanted shared, and not what is wanted alone. */
static void each_lock_has_its_own_mode(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_client *other = new_client();
        enum dlock_mode modes[LOCKS] = {DLOCK_SHARED, DLOCK_SHARED, DLOCK_EXCLUSIVE};
        dlock *locks[LOCKS];
        many_set_up(&many, "read_write", call, 0);
        for (size_t i = 0; i < LOCKS; i++)
            locks[i] = lock_of(other, "read_write", dlock_name(many.locks[i]));
        dlock_hold *theirs = acquired_as(locks[1], DLOCK_SHARED);
        assert_status(call(&many, (struct dlock_want){.modes = modes}), OK);
        for (size_t i = 0; i < LOCKS; i++) {
            assert_int_equal(can_acquire(locks[i], DLOCK_SHARED), modes[i] == DLOCK_SHARED);
            if (i != 1)
                assert_false(can_acquire(locks[i], DLOCK_EXCLUSIVE));
        }
        release_all(&many);
        modes[1] = DLOCK_EXCLUSIVE;
        assert_status(call(&many, (struct dlock_want){.modes = modes}), BUSY);
        assert_int_equal(many.missing, 1);
        assert_status(dlock_release(theirs, NULL), OK);
        modes[2] = 2;
        assert_status(call(&many, (struct dlock_want){.modes = modes}), INVALID);
        assert_int_equal(many.missing, 2);
        assert_says(said(call), "want.modes[2] is 2; it must be DLOCK_EXCLUSIVE (0)");
        assert_none_held(&many);
        for (size_t i = 0; i < LOCKS; i++)
            dlock_close(locks[i]);
        dlock_client_close(other);
        many_clear(&many);
    }
}

/* One of the locks has no shared holds; and a call for one lock takes no list of modes. */
static void not_every_lock_has_every_mode(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        dlock_hold *none;
        const enum dlock_mode modes[LOCKS] = {DLOCK_EXCLUSIVE, DLOCK_SHARED, DLOCK_EXCLUSIVE};
        struct dlock_want want = {.size = sizeof want, .modes = modes};
        many_set_up(&many, "read_write", call, 0);
        dlock_close(many.locks[0]);
        many.locks[0] = lock_of(many.client, "watchdog", "lock:{c}");
        assert_status(call(&many, want), OK);
        release_all(&many);
        assert_status(call(&many, (struct dlock_want){.mode = DLOCK_SHARED}), UNSUPPORTED);
        assert_int_equal(many.missing, 0);
        if (call == with_a_thread) {
            assert_status(dlock_acquire(many.locks[1], &want, &none), INVALID);
            assert_says(dlock_error(), "want.modes is set");
        }
        assert_none_held(&many);
        many_clear(&many);
    }
}

static void what_is_not_valid_is_named(void **state)
{
    (void)state;
    struct many many;
    many_set_up(&many, "watchdog", with_a_thread, 0);
    dlock *locks[DLOCK_MANY_MAX + 1] = {many.locks[0], many.locks[1], NULL};
    dlock_hold *holds[DLOCK_MANY_MAX + 1];
    dlock_hold *old = acquired(many.locks[2]);
    struct dlock_want none = {0}, want = {.size = sizeof want};
    size_t missing;
    holds[0] = holds[1] = old; /* of an earlier call */
    assert_status(dlock_acquire_many(NULL, 2, NULL, holds, NULL), INVALID);
    assert_null(holds[0]);
    assert_null(holds[1]);
    assert_status(dlock_acquire_many(locks, 1, NULL, NULL, NULL), INVALID);
    holds[0] = old;
    assert_status(dlock_acquire_many_start(locks, 1, NULL, holds, NULL, NULL, NULL), INVALID);
    assert_null(holds[0]);
    assert_status(dlock_release(old, NULL), OK);
    assert_status(dlock_acquire_many(locks, 0, NULL, holds, &missing), INVALID);
    assert_says(dlock_error(), "count is 0; it must be 1 to 64");
    assert_int_equal(missing, 0);
    assert_status(dlock_acquire_many(locks, DLOCK_MANY_MAX + 1, NULL, holds, &missing), INVALID);
    assert_int_equal(missing, DLOCK_MANY_MAX + 1);
    assert_status(dlock_acquire_many(locks, 3, NULL, holds, &missing), INVALID);
    assert_says(dlock_error(), "locks[2] is NULL");
    assert_int_equal(missing, 2);
    assert_status(dlock_acquire_many(locks, 2, &none, holds, &missing), INVALID);
    assert_int_equal(missing, 2);
    locks[2] = locks[0];
    assert_status(dlock_acquire_many(locks, 3, &want, holds, &missing), INVALID);
    assert_says(dlock_error(), "locks[0] and locks[2] have the same name, 'lock:{c}'");
    assert_int_equal(missing, 2);
    assert_status(dlock_acquire_many_start(locks, 3, &want, holds, many_ended, NULL, &missing),
                  INVALID);
    assert_int_equal(missing, 2);
    locks[2] = lock_of(many.client, "owner_lua", "lock:{c}");
    assert_status(dlock_acquire_many(locks, 3, &want, holds, &missing), INVALID);
    dlock_close(locks[2]);
    assert_int_equal(dlock_remaining_many_ms(NULL, 1), 0);
    assert_int_equal(dlock_remaining_many_ms(many.holds, 1), 0);
    assert_int_equal(dlock_remaining_many_ms(many.holds, 0), DLOCK_NEVER_EXPIRES);
    many_clear(&many);
}

/* ---- What runs out --------------------------------------------------------------------------- */

static _Thread_local int callocs_left = INT_MAX, mallocs_left = INT_MAX; /* of this thread */

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return callocs_left-- > 0 ? __real_calloc(count, size) : NULL;
}

void *__wrap_malloc(size_t size)
{
    return mallocs_left-- > 0 ? __real_malloc(size) : NULL;
}

/* There is none for the second lock, or for what it is started with. */
static void no_memory_for_a_later_lock(void **state)
{
    static const int left[] = {1, 2, 3}; /* a hold for each; or also what a start needs */
    (void)state;
    FOR_EACH_CALL(call)
    {
        struct many many;
        many_set_up(&many, "watchdog", call, 0);
        assert_status(call(&many, (struct dlock_want){0}), OK); /* the threads are there */
        release_all(&many);
        for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
            if (call == without_a_thread || (call == with_a_thread && left[i] != 1))
                continue;
            callocs_left = left[i];
            dlock_status status = call(&many, (struct dlock_want){0});
            callocs_left = INT_MAX;
            assert_status(status, NO_MEMORY);
            assert_int_equal(many.missing, call == in_own_loop && left[i] == 1 ? 1 : 2);
            assert_none_held(&many);
        }
        many_clear(&many);
    }
}

/* The releases of what was acquired cannot be started: they go on in the background. */
static void no_memory_for_the_releases(void **state)
{
    (void)state;
    dlock_client *other = new_client();
    dlock *held = lock_of(other, "watchdog", "lock:{c}");
    struct many many;
    many_set_up(&many, "watchdog", in_own_loop, 0);
    assert_status(in_own_loop(&many, (struct dlock_want){0}), OK);
    release_all(&many);
    dlock_hold *hold = acquired(held);
    mallocs_left = 1; /* for the call itself */
    dlock_status status = in_own_loop(&many, (struct dlock_want){0});
    mallocs_left = INT_MAX;
    assert_status(status, BUSY);
    assert_int_equal(many.missing, 0);
    assert_null(many.holds[1]);
    eventually(server_integer(server, "EXISTS lock:{a} " BEHIND) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(held);
    dlock_client_close(other);
    many_clear(&many);
}

static void *acquire_more(void *arg)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    must(dlock_acquire(arg, &want, &hold) == DLOCK_OK);
    must(dlock_release(hold, NULL) == DLOCK_OK);
    return NULL;
}

/* The client may have one waiter that was started. Another call is that one by the time that the
 * second lock is to be asked for. */
static void no_place_for_a_later_lock(void **state)
{
    (void)state;
    struct ended ended = {0}, other = {0};
    dlock_client *client =
        client_of(server_url(server), (struct dlock_options){.waiters_max = 1, .own_loop = true});
    dlock *locks[] = {lock_of(client, "watchdog", BEHIND), lock_of(client, "watchdog", "lock:{a}"),
                      lock_of(client, "watchdog", "lock:{c}")};
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    dlock_hold *holds[2], *one[1], *hold = acquired(locks[2]);
    size_t missing;
    assert_status(dlock_acquire_many_start(locks, 2, &want, holds, many_ended, &ended, &missing),
                  OK);
    struct pollfd ready = {.fd = dlock_fd(client), .events = POLLIN};
    assert_int_equal(poll(&ready, 1, PATIENCE_MS), 1); /* it has the first */
    assert_status(dlock_acquire_many_start(&locks[2], 1, &want, one, many_ended, &other, &missing),
                  OK);
    eventually((dlock_process(client), atomic_load(&ended.over)));
    assert_status(ended.status, LIMIT);
    assert_int_equal(ended.missing, 0);
    assert_null(holds[1]);
    assert_int_equal(server_integer(server, "EXISTS lock:{a}"), 0);
    assert_status(dlock_release(hold, NULL), OK);
    eventually((dlock_process(client), atomic_load(&other.over)));
    assert_status(other.status, OK);
    assert_status(dlock_release(one[0], NULL), OK);
    for (size_t i = 0; i < 3; i++)
        dlock_close(locks[i]);
    dlock_client_close(client);
}

/* 64 locks of one client that may have one connection. Others wait for it, too. */
static void the_most_locks_with_one_connection(void **state)
{
    (void)state;
    FOR_EACH_CALL(call)
    {
        dlock_client *client =
            client_of(server_url(server), (struct dlock_options){.connections_max = 1});
        dlock *locks[DLOCK_MANY_MAX];
        dlock_hold *holds[DLOCK_MANY_MAX];
        struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
        struct ended ended = {0};
        for (int i = 0; i < DLOCK_MANY_MAX; i++) {
            char name[32];
            snprintf(name, sizeof name, "lock:{%d}", (i * 37) % DLOCK_MANY_MAX);
            locks[i] = lock_of(client, "watchdog", name);
        }
        pthread_t thread = thread_start(acquire_more, locks[5]);
        if (call == with_a_thread) {
            assert_status(dlock_acquire_many(locks, DLOCK_MANY_MAX, &want, holds, NULL), OK);
        } else {
            assert_status(dlock_acquire_many_start(locks, DLOCK_MANY_MAX, &want, holds, many_ended,
                                                   &ended, NULL),
                          OK);
            eventually(atomic_load(&ended.over));
            assert_status(ended.status, OK);
        }
        assert_true(dlock_remaining_many_ms(holds, DLOCK_MANY_MAX) > 0);
        for (int i = 0; i < DLOCK_MANY_MAX; i++)
            assert_status(dlock_release(holds[i], NULL), OK);
        thread_wait(thread);
        for (int i = 0; i < DLOCK_MANY_MAX; i++)
            dlock_close(locks[i]);
        dlock_client_close(client);
    }
}

/* The first lock cannot be asked for without a thread, so the call is not started; if it is the
 * second, the first is given back. */
static void a_rung_that_needs_a_thread(void **state)
{
    (void)state;
    struct ended ended = {0};
    dlock_client *client = new_client();
    dlock *first = lock_of(client, "reentrant_tls", "lock:{a}"),
          *second = lock_of(client, "watchdog", BEHIND);
    dlock *locks[] = {second, first};
    dlock_hold *holds[2];
    size_t missing;
    assert_status(dlock_acquire_many_start(locks, 2, NULL, holds, many_ended, &ended, &missing),
                  UNSUPPORTED);
    assert_int_equal(missing, 1);
    dlock_close(second);
    locks[0] = second = lock_of(client, "reentrant_tls", BEHIND);
    dlock_close(first);
    locks[1] = first = lock_of(client, "watchdog", "lock:{a}");
    assert_status(dlock_acquire_many_start(locks, 2, NULL, holds, many_ended, &ended, &missing),
                  OK);
    eventually(atomic_load(&ended.over));
    assert_status(ended.status, UNSUPPORTED);
    assert_int_equal(ended.missing, 0);
    assert_int_equal(server_integer(server, "EXISTS lock:{a}"), 0);
    dlock_close(first);
    dlock_close(second);
    dlock_client_close(client);
}

/* ---- Without an answer ----------------------------------------------------------------------- */

static void *acquire_in_vain(void *arg)
{
    struct dlock_want want = {.wait_ms = 2000};
    must(with_a_thread(arg, want) == DLOCK_TIMED_OUT);
    return NULL;
}

/* The server hangs while the call waits for the last lock. It ends all the same, and the releases
 * go on when the server is back. */
static void what_cannot_be_released_goes_on_in_the_background(void **state)
{
    enum { TIMEOUT_MS = 200 };
    (void)state;
    struct many many = {.record = record_new()};
    dlock_client *other = new_client();
    dlock *held = lock_of(other, "watchdog", "lock:{c}");
    dlock_hold *hold = wanted(held, (struct dlock_want){.ttl_ms = 3600000});
    many.client =
        client_of(server_url(server), (struct dlock_options){.connect_timeout_ms = TIMEOUT_MS,
                                                             .command_timeout_ms = TIMEOUT_MS,
                                                             .ttl_ms = 3600000});
    many.locks[0] = lock_of(many.client, "watchdog", "lock:{c}");
    many.locks[1] = lock_of(many.client, "watchdog", "lock:{a}");
    many.locks[2] = lock_of(many.client, "watchdog", BEHIND);
    pthread_t thread = thread_start(acquire_in_vain, &many);
    eventually(server_integer(server, "EXISTS lock:{a} " BEHIND) == 2);
    server_pause(server);
    thread_wait(thread);
    assert_int_equal(many.missing, 0);
    server_resume(server);
    eventually(server_integer(server, "EXISTS lock:{a} " BEHIND) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(held);
    dlock_client_close(other);
    many_clear(&many);
}

struct cancelled {
    dlock **locks;
    dlock_hold **holds;
    const struct dlock_want *want;
};

static void *acquire_until_cancelled(void *arg)
{
    const struct cancelled *call = arg;
    must(dlock_acquire_many(call->locks, 4, call->want, call->holds, NULL) == DLOCK_CANCELLED);
    return NULL;
}

/* The other server hangs when its lock is to be released. That does not keep this one's lock. */
static void a_server_that_hangs_keeps_no_lock_of_another(void **state)
{
    enum { TIMEOUT_MS = 200 };
    (void)state;
    struct server *far = server_start(NULL);
    dlock_client *client = new_client(), *other = new_client(),
                 *slow = client_of(server_url(far),
                                   (struct dlock_options){.connect_timeout_ms = TIMEOUT_MS,
                                                          .command_timeout_ms = TIMEOUT_MS});
    dlock *locks[] = {lock_of(client, "watchdog", "lock:{a}"), lock_of(slow, "watchdog", BEHIND),
                      lock_of(client, "watchdog", "lock:{c}")};
    dlock *held = lock_of(other, "watchdog", "lock:{c}");
    dlock_hold *hold = acquired(held);
    struct many many = {.locks = {locks[0], locks[1], locks[2]}};
    pthread_t thread = thread_start(acquire_in_vain, &many);
    eventually(server_integer(far, "EXISTS " BEHIND) == 1);
    server_pause(far);
    thread_wait(thread);
    assert_int_equal(many.missing, 2);
    assert_int_equal(server_integer(server, "EXISTS lock:{a}"), 0);
    assert_int_equal(stats_of(client).released, 1);
    assert_int_equal(stats_of(client).unknown, 0);
    server_resume(far);
    eventually(server_integer(far, "EXISTS " BEHIND) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    for (size_t i = 0; i < 3; i++)
        dlock_close(locks[i]);
    dlock_close(held);
    dlock_client_close(slow);
    dlock_client_close(other);
    dlock_client_close(client);
    server_free(far);
}

/* The other server hangs for longer than this client's releases may take. Only their own time
 * counts: the second of them is awaited, too. */
static void a_server_that_hangs_takes_no_time_of_another(void **state)
{
    static const struct dlock_options brief = {.connect_timeout_ms = 400,
                                               .command_timeout_ms = 400},
                                      patient = {.connect_timeout_ms = 400,
                                                 .command_timeout_ms = 1500};
    (void)state;
    struct server *far = server_start(NULL);
    dlock_client *client = client_of(server_url(server), brief), *other = new_client(),
                 *slow = client_of(server_url(far), patient);
    dlock *locks[] = {lock_of(client, "watchdog", "lock:{a}"), lock_of(slow, "watchdog", BEHIND),
                      lock_of(client, "watchdog", "lock:{c}"),
                      lock_of(client, "watchdog", "lock:{d}")};
    dlock *held = lock_of(other, "watchdog", "lock:{d}");
    dlock_hold *hold = acquired(held), *holds[4];
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    want.cancel = dlock_cancel_new();
    struct cancelled call = {locks, holds, &want};
    pthread_t thread = thread_start(acquire_until_cancelled, &call);
    eventually(server_integer(server, "EXISTS lock:{a} lock:{c}") == 2);
    server_pause(far);
    dlock_cancel_now(want.cancel);
    thread_wait(thread);
    assert_int_equal(stats_of(client).released, 2);
    assert_int_equal(server_integer(server, "EXISTS lock:{a} lock:{c}"), 0);
    server_resume(far);
    eventually(server_integer(far, "EXISTS " BEHIND) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    for (size_t i = 0; i < 4; i++)
        dlock_close(locks[i]);
    dlock_close(held);
    dlock_cancel_free(want.cancel);
    dlock_client_close(slow);
    dlock_client_close(other);
    dlock_client_close(client);
    server_free(far);
}

/* ---- Many callers ---------------------------------------------------------------------------- */

enum { CALLERS = 8, ROUNDS = 30, ALL = 5 };

struct shared {
    _Atomic int inside[ALL];
    _Atomic int overlaps;
};

struct caller {
    struct shared *shared;
    dlock_client *client;
    dlock *locks[ALL];
    unsigned seed;
    pthread_t thread;
};

/* Locks of its own choice, in an order of its own choice. */
static void *acquire_some(void *arg)
{
    struct caller *caller = arg;
    for (int round = 0; round < ROUNDS; round++) {
        dlock *locks[ALL];
        dlock_hold *holds[ALL];
        size_t chosen[ALL], count = 0;
        for (size_t i = 0; i < ALL; i++)
            if (rand_r(&caller->seed) % 2 == 0)
                chosen[count++] = i;
        for (size_t i = 0; i < count; i++) {
            size_t other = (size_t)rand_r(&caller->seed) % count, at = chosen[i];
            chosen[i] = chosen[other];
            chosen[other] = at;
        }
        for (size_t i = 0; i < count; i++)
            locks[i] = caller->locks[chosen[i]];
        if (count == 0)
            continue;
        struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
        must(dlock_acquire_many(locks, count, &want, holds, NULL) == DLOCK_OK);
        for (size_t i = 0; i < count; i++)
            if (atomic_fetch_add(&caller->shared->inside[chosen[i]], 1) != 0)
                atomic_fetch_add(&caller->shared->overlaps, 1);
        for (size_t i = 0; i < count; i++) {
            atomic_fetch_sub(&caller->shared->inside[chosen[i]], 1);
            must(dlock_release(holds[i], NULL) == DLOCK_OK);
        }
    }
    return NULL;
}

static void callers_in_any_order_do_not_wait_in_a_circle(void **state)
{
    static const char *const rungs[] = {"watchdog", "notify", "fair"};
    (void)state;
    for (size_t r = 0; r < sizeof rungs / sizeof rungs[0]; r++) {
        struct shared shared = {0};
        struct caller callers[CALLERS];
        for (unsigned i = 0; i < CALLERS; i++) {
            callers[i] = (struct caller){.shared = &shared, .client = new_client(), .seed = i + 1};
            for (int j = 0; j < ALL; j++) {
                char name[32];
                snprintf(name, sizeof name, "lock:{%d}", j);
                callers[i].locks[j] = lock_of(callers[i].client, rungs[r], name);
            }
            callers[i].thread = thread_start(acquire_some, &callers[i]);
        }
        for (int i = 0; i < CALLERS; i++) {
            thread_wait(callers[i].thread);
            for (int j = 0; j < ALL; j++)
                dlock_close(callers[i].locks[j]);
            dlock_client_close(callers[i].client);
        }
        assert_int_equal(shared.overlaps, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_are_acquired_in_the_order_of_their_names, empty_server),
        cmocka_unit_test_setup(one_that_is_held_leaves_none, empty_server),
        cmocka_unit_test_setup(what_was_acquired_is_released_in_reverse_order, empty_server),
        cmocka_unit_test_setup(it_waits_for_each, empty_server),
        cmocka_unit_test_setup(the_time_is_for_all_together, empty_server),
        cmocka_unit_test_setup(one_that_was_lost_meanwhile_leaves_none, empty_server),
        cmocka_unit_test_setup(the_reads_come_under_all_locks, empty_server),
        cmocka_unit_test_setup(a_cancel_ends_it, empty_server),
        cmocka_unit_test_setup(a_cancel_ends_the_wait_for_a_later_lock, empty_server),
        cmocka_unit_test_setup(one_is_started_from_done_of_another, empty_server),
        cmocka_unit_test_setup(an_owner_nests_in_all, empty_server),
        cmocka_unit_test_setup(the_calling_thread_owns_all, empty_server),
        cmocka_unit_test_setup(each_lock_has_its_own_mode, empty_server),
        cmocka_unit_test_setup(not_every_lock_has_every_mode, empty_server),
        cmocka_unit_test_setup(what_is_not_valid_is_named, empty_server),
        cmocka_unit_test_setup(no_memory_for_a_later_lock, empty_server),
        cmocka_unit_test_setup(no_memory_for_the_releases, empty_server),
        cmocka_unit_test_setup(no_place_for_a_later_lock, empty_server),
        cmocka_unit_test_setup(the_most_locks_with_one_connection, empty_server),
        cmocka_unit_test_setup(a_rung_that_needs_a_thread, empty_server),
        cmocka_unit_test_setup(what_cannot_be_released_goes_on_in_the_background, empty_server),
        cmocka_unit_test_setup(a_server_that_hangs_keeps_no_lock_of_another, empty_server),
        cmocka_unit_test_setup(a_server_that_hangs_takes_no_time_of_another, empty_server),
        cmocka_unit_test_setup(callers_in_any_order_do_not_wait_in_a_circle, empty_server),
    };
    return cmocka_run_group_tests_name("acquire_many", tests, start_server, stop_server);
}
