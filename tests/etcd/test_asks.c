/* SPDX-License-Identifier: Apache-2.0
 *
 * What libdlock-etcd asks of its servers: how much, and by which names.
 */
#include "etcd_inside.h"
#include "etcd_stage.h"
#include "must.h"
#include "started.h"

/* etcd looks at each name that a queue has ever had: there are few. */
static void names_are_used_again(void **state)
{
    (void)state;
    char first[KEY_SIZE], key[KEY_SIZE];
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    for (int i = 0; i < 3; i++) {
        dlock_hold *hold = acquired(lock);
        key_of(dlock_owner(hold), i == 0 ? first : key);
        assert_status(dlock_release(hold, NULL), OK);
    }
    assert_string_not_equal(first, "");
    assert_string_equal(key, first);
    leave(client, lock);
}

/* How many waiters of this client know whom they wait for. */
static int placed_behind_others(dlock_client *client, dlock *lock)
{
    struct session *session = session_of(client);
    const struct place *place;
    int count = 0;
    pthread_mutex_lock(&session->mutex);
    LIST_FOREACH(place, &((struct queue *)lock->engine_state)->places, of_queue)
        count += place->before[0] != '\0';
    pthread_mutex_unlock(&session->mutex);
    return count;
}

static uint64_t commands_of(dlock_client *client)
{
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_stats(client, &stats);
    return stats.commands;
}

/* Each waiter is woken when its turn has come, and needs no request to know that. */
static void the_next_need_not_ask(void **state)
{
    (void)state;
    enum { WAITERS = 10 };
    _Atomic int over = 0;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 300000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    struct started *crowd = crowd_new(WAITERS, true, &over);
    for (size_t i = 0; i < WAITERS; i++)
        start(lock, waiting(PATIENCE_MS), &crowd[i]);
    eventually(placed_behind_others(client, lock) == WAITERS);
    uint64_t before = commands_of(client);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == WAITERS);
    crowd_answered(crowd, WAITERS, DLOCK_OK);
    assert_in_range(commands_of(client) - before, WAITERS + 1, WAITERS + 3);
    free(crowd);
    leave(client, lock);
}

/* A waiter whose key was deleted by hand takes a new place, behind another client's waiter. The end
 * of the one that it had waited for says nothing about that place. */
static void another_place_is_not_the_next(void **state)
{
    (void)state;
    char owner[OWNER_MAX];
    struct started waiter = {0}, theirs = {0};
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, (struct dlock_options){.ttl_ms = 300000});
    dlock_client *other = client_here((struct dlock_options){.ttl_ms = 300000});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(lock);
    start(lock, waiting(PATIENCE_MS), &waiter);
    eventually(placed_behind_others(client, lock) == 1 && is_watched(client, lock));
    start(others, waiting(PATIENCE_MS), &theirs);
    eventually(places_at() == 3);
    pthread_mutex_lock(&client->loop.mutex);
    snprintf(owner, sizeof owner, "%s", TAILQ_FIRST(&lock->queue.waits)->hold->owner);
    pthread_mutex_unlock(&client->loop.mutex);
    proxy_plan(near, PROXY_HOLD_REPLY, CREATE, NULL, 0);
    delete_key_of(owner);
    eventually(proxy_done(near));
    assert_status(dlock_release(hold, NULL), OK);
    started_answered(&theirs);
    proxy_let_go(near);
    eventually(placed_behind_others(client, lock) == 1 || atomic_load(&waiter.answers) > 0);
    assert_int_equal(atomic_load(&waiter.answers), 0);
    assert_status(dlock_release(theirs.hold, NULL), OK);
    started_answered(&waiter);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
    proxy_free(near);
}

/* How many requests it takes that a waiter is placed and served, if its answer is under way when it
 * is another one's turn. */
static uint64_t requests_of_one_turn(void)
{
    struct started next = {0}, last = {0};
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, (struct dlock_options){.ttl_ms = 300000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    start(lock, waiting(PATIENCE_MS), &next);
    eventually(placed_behind_others(client, lock) == 1 && is_watched(client, lock));
    uint64_t before = commands_of(client);
    proxy_plan(near, PROXY_HOLD_REPLY, CREATE, NULL, 0);
    start(lock, waiting(PATIENCE_MS), &last);
    eventually(proxy_done(near));
    assert_status(dlock_release(hold, NULL), OK);
    started_answered(&next);
    proxy_let_go(near);
    eventually(placed_behind_others(client, lock) == 1);
    assert_status(dlock_release(next.hold, NULL), OK);
    started_answered(&last);
    uint64_t requests = commands_of(client) - before;
    assert_status(dlock_release(last.hold, NULL), OK);
    leave(client, lock);
    proxy_free(near);
    return requests;
}

/* It takes its answer as it is: a create, and two deletes. If the watch has told of the first
 * delete before, the answer is the older one, and it asks once more. */
static void the_others_need_not_ask_again(void **state)
{
    (void)state;
    uint64_t requests = 4;
    for (int rounds = 0; rounds < 10 && requests == 4; rounds++)
        requests = requests_of_one_turn();
    assert_int_equal(requests, 3);
}

/* Two clients in turn: the queue is not empty for the second one, whatever it was before. */
static void others_come_in_between(void **state)
{
    (void)state;
    struct started theirs = {0};
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    assert_status(dlock_release(acquired(others), NULL), OK);
    for (int i = 0; i < 3; i++) {
        dlock_hold *hold = acquired(lock);
        start(others, waiting(PATIENCE_MS), &theirs);
        eventually(places_at() == 2);
        assert_int_equal(atomic_load(&theirs.answers), 0);
        assert_status(dlock_release(hold, NULL), OK);
        started_answered(&theirs);
        assert_int_equal(theirs.status, DLOCK_OK);
        assert_status(dlock_release(theirs.hold, NULL), OK);
        theirs = (struct started){0};
    }
    leave(client, lock);
    leave(other, others);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_used_again),
        cmocka_unit_test(the_next_need_not_ask),
        cmocka_unit_test(another_place_is_not_the_next),
        cmocka_unit_test(the_others_need_not_ask_again),
        cmocka_unit_test(others_come_in_between),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd_asks", tests, set_up, tear_down);
}
