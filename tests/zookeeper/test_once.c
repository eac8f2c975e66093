/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires with one attempt (wait_ms 0) at ZooKeeper: they enter a queue only if nobody is in it,
 * and are not in each other's way.
 */
#include "cleanups.h"
#include "started.h"
#include "zk_session.h"
#include "zookeeper_stage.h"

/* ---- What is sent ---------------------------------------------------------------------------- */

#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

static _Atomic int creates, syncs;
static dlock *_Atomic comes_first; /* is acquired just before the next create; NULL: none is */
static dlock_hold *first_hold;

WRAPPED(int, zoo_acreate2, zhandle_t *handle, const char *path, const char *value, int size,
        const struct ACL_vector *access, int mode, string_stat_completion_t then, const void *data)
{
    dlock *lock = atomic_exchange(&comes_first, NULL);
    if (lock != NULL)
        first_hold = acquired(lock);
    atomic_fetch_add(&creates, 1);
    return __real_zoo_acreate2(handle, path, value, size, access, mode, then, data);
}

WRAPPED(int, zoo_async, zhandle_t *handle, const char *path, string_completion_t then,
        const void *data)
{
    atomic_fetch_add(&syncs, 1);
    return __real_zoo_async(handle, path, then, data);
}

static _Atomic bool stayed; /* a refused attempt had a place in the queue, and was not leaving it */

WRAPPED(enum wait_next, wait_again, struct wait *wait, const struct busy *busy, bool nested)
{
    struct session *session = session_of(wait->lock->client);
    pthread_mutex_lock(&session->mutex);
    const struct place *place = place_of(wait->lock->engine_state, wait->hold->owner);
    if (place != NULL && !place->leaving)
        atomic_store(&stayed, true);
    pthread_mutex_unlock(&session->mutex);
    return __real_wait_again(wait, busy, nested);
}

static int nodes_here(void)
{
    struct String_vector found = {0};
    zhandle_t *handle = zookeeper_here(NULL);
    int rc = zoo_get_children(handle, QUEUE, 0, &found);
    assert_true(rc == ZOK || rc == ZNONODE);
    int count = found.count;
    deallocate_String_vector(&found);
    assert_int_equal(zookeeper_close(handle), ZOK);
    return count;
}

/* ---- One attempt ----------------------------------------------------------------------------- */

/* It only reads, from a server that has caught up. */
static void one_that_finds_somebody_does_not_enter(void **state)
{
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){.retry_ms = 60000});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *theirs = acquired(others);
    assert_status(tried(lock, &none), BUSY); /* it also asks who the holder is */
    atomic_store(&creates, 0);
    atomic_store(&syncs, 0);
    for (int i = 0; i < 3; i++)
        assert_status(tried(lock, &none), BUSY);
    assert_int_equal(atomic_load(&creates), 0);
    assert_int_equal(atomic_load(&syncs), 3);
    assert_status(dlock_release(theirs, NULL), OK);
    assert_status(tried(lock, &theirs), OK);
    assert_status(dlock_release(theirs, NULL), OK);
    leave(client, lock);
    leave(other, others);
}

/* Another client comes between its look and its create. It leaves before its caller is told. */
static void one_that_is_overtaken_leaves_at_once(void **state)
{
    (void)state;
    struct started once = {0};
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    atomic_store(&stayed, false);
    atomic_store(&comes_first, others);
    start(lock, (struct dlock_want){0}, &once);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_BUSY);
    assert_false(atomic_load(&stayed));
    eventually(nodes_here() == 1);
    assert_status(dlock_release(first_hold, NULL), OK);
    assert_status(tried(others, &first_hold), OK); /* nothing is before it */
    assert_status(dlock_release(first_hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
}

/* The connection is lost with the answer to its look: it looks once more. */
static void a_look_is_not_answered(void **state)
{
    (void)state;
    dlock_hold *hold;
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    proxy_plan(proxy, PROXY_CUT_REPLY, QUEUE, NULL, 0);
    assert_status(tried(lock, &hold), OK);
    assert_true(proxy_done(proxy));
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(proxy);
}

/* The same owner's second hold needs no look, and no place. */
static void one_that_nests_does_not_look(void **state)
{
    (void)state;
    dlock_hold *outer, *inner;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    assert_status(tried_by(lock, 7, &outer), OK);
    atomic_store(&syncs, 0);
    assert_status(tried_by(lock, 7, &inner), OK);
    assert_int_equal(atomic_load(&syncs), 0);
    assert_true(dlock_token(inner) == dlock_token(outer));
    assert_status(dlock_release(inner, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    leave(client, lock);
}

/* ---- Many at once ---------------------------------------------------------------------------- */

#define CLIENTS_AT_ONCE 2
#define ATTEMPTS 8 /* of each */

/* Nobody has the lock: one of them gets it. */
static void one_of_many_wins(void **state)
{
    (void)state;
    dlock_client *clients[CLIENTS_AT_ONCE];
    dlock *locks[CLIENTS_AT_ONCE];
    for (int i = 0; i < CLIENTS_AT_ONCE; i++) {
        clients[i] = client_here((struct dlock_options){0});
        locks[i] = lock_at(clients[i]);
    }
    for (int round = 0; round < 5; round++) {
        _Atomic int over = 0;
        int winners = 0;
        struct started *crowd = crowd_new(CLIENTS_AT_ONCE * ATTEMPTS, false, &over);
        for (int i = 0; i < CLIENTS_AT_ONCE * ATTEMPTS; i++)
            start(locks[i % CLIENTS_AT_ONCE], (struct dlock_want){0}, &crowd[i]);
        eventually(atomic_load(&over) == CLIENTS_AT_ONCE * ATTEMPTS);
        for (int i = 0; i < CLIENTS_AT_ONCE * ATTEMPTS; i++) {
            winners += crowd[i].status == DLOCK_OK;
            assert_true(crowd[i].status == DLOCK_OK || crowd[i].status == DLOCK_BUSY);
            if (crowd[i].status == DLOCK_OK)
                assert_status(dlock_release(crowd[i].hold, NULL), OK);
        }
        free(crowd);
        assert_int_equal(winners, 1);
        eventually(nodes_here() == 0); /* those that lost have left */
    }
    for (int i = 0; i < CLIENTS_AT_ONCE; i++)
        leave(clients[i], locks[i]);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_finds_somebody_does_not_enter),
        cmocka_unit_test(one_that_is_overtaken_leaves_at_once),
        cmocka_unit_test(a_look_is_not_answered),
        cmocka_unit_test(one_that_nests_does_not_look),
        cmocka_unit_test(one_of_many_wins),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("zookeeper_once", tests, set_up, tear_down);
}
