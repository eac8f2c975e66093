/* SPDX-License-Identifier: Apache-2.0
 *
 * Acquires with one attempt (wait_ms 0) at etcd: they enter a queue only if nobody is in it, and
 * are not in each other's way.
 */
#include "cleanups.h"
#include "etcd_stage.h"
#include "must.h"
#include "started.h"

/* ---- One attempt ----------------------------------------------------------------------------- */

/* It writes nothing: each change of the store has a revision. */
static void one_that_finds_somebody_does_not_enter(void **state)
{
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    assert_status(dlock_release(acquired(lock), NULL), OK); /* it has written its own key */
    dlock_hold *theirs = acquired(others);
    const uint64_t before = revision_now();
    for (int i = 0; i < 3; i++)
        assert_status(tried(lock, &none), BUSY);
    assert_int_equal(revision_now(), before);
    assert_status(dlock_release(theirs, NULL), OK);
    assert_status(tried(lock, &theirs), OK);
    assert_status(dlock_release(theirs, NULL), OK);
    leave(client, lock);
    leave(other, others);
}

/* By hand: creates under its former value do nothing. */
static void write_own_key(const dlock_client *client)
{
    char key[128];
    snprintf(key, sizeof key, "/dlock/clients/%s", dlock_client_id(client));
    etcd_server_ask(etcd, "/v3/kv/put", "{\"key\":\"%s\",\"value\":\"%s\"}", base64(key),
                    base64("x"));
}

/* Its create does nothing, and nobody is in the queue: it creates once more. */
static void its_own_key_is_another(void **state)
{
    (void)state;
    dlock_hold *hold, *none;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    write_own_key(client);
    assert_status(tried(lock, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    hold = acquired(others);
    write_own_key(client);
    assert_status(tried(lock, &none), BUSY);
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
}

/* The answer to its create is lost. Whom it then finds in the queue may be itself. */
static void a_create_is_not_answered(void **state)
{
    (void)state;
    dlock_hold *hold, *none;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    proxy_plan(proxy, PROXY_CUT_REPLY, CREATE, NULL, 0);
    assert_status(tried(lock, &hold), OK);
    assert_true(proxy_done(proxy));
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(hold, NULL), OK);
    hold = acquired(others);
    proxy_plan(proxy, PROXY_CUT_REPLY, CREATE, NULL, 0);
    assert_status(tried(lock, &none), BUSY);
    assert_true(proxy_done(proxy));
    eventually(kept_in_the_background(client) == 0);
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
    leave(other, others);
    proxy_free(proxy);
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
        eventually(places_at() == 0); /* those that lost have left */
    }
    for (int i = 0; i < CLIENTS_AT_ONCE; i++)
        leave(clients[i], locks[i]);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_that_finds_somebody_does_not_enter),
        cmocka_unit_test(its_own_key_is_another),
        cmocka_unit_test(a_create_is_not_answered),
        cmocka_unit_test(one_of_many_wins),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd_once", tests, set_up, tear_down);
}
