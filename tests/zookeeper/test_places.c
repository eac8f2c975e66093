/* SPDX-License-Identifier: Apache-2.0
 *
 * Places in ZooKeeper's queue that are seldom as they should be: an owner's second one, ones whose
 * numbers are used up, one that is never proven, and the place of a hold that was extended. The
 * client's own session makes the nodes.
 */
#include "child.h"
#include "record.h"
#include "started.h"
#include "zk_session.h"
#include "zookeeper_stage.h"

#include <unistd.h>

#define USED_UP "2147483647" /* the number that servers give again and again */

static struct zk_session *inside(dlock_client *client)
{
    return zk_of(session_of(client));
}

/* The place of the lock's owner, of whom there is one. The session's mutex is held from here to
 * let_go. */
static struct place *take_place(dlock_client *client, dlock *lock)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    const struct queue *queue = lock->engine_state;
    return LIST_FIRST(&queue->places);
}

static void let_go(dlock_client *client)
{
    session_unlock(&inside(client)->base);
}

static bool waits(dlock_client *client, dlock *lock)
{
    const struct place *place = take_place(client, lock);
    bool waits = place != NULL && place->before[0] != '\0';
    let_go(client);
    return waits;
}

/* Whether a request to leave its place was sent. */
static bool is_left(dlock_client *client, dlock *lock)
{
    const struct place *place = take_place(client, lock);
    bool is_left = place != NULL && place->leaving;
    let_go(client);
    return is_left;
}

static bool has_no_place(dlock_client *client, dlock *lock)
{
    bool has_none = take_place(client, lock) == NULL;
    let_go(client);
    return has_none;
}

/* The client's session makes a node of that name, or one with a number behind it. */
static void make_node(dlock_client *client, const char *node, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", QUEUE, node);
    assert_int_equal(zoo_create(inside(client)->handle, path, "", 0, &ZOO_OPEN_ACL_UNSAFE,
                                ZOO_EPHEMERAL | flags, NULL, 0),
                     ZOK);
}

static int nodes(dlock_client *client)
{
    struct String_vector found = {0};
    int rc = zoo_get_children(inside(client)->handle, QUEUE, 0, &found);
    int count = rc == ZNONODE ? -1 : found.count;
    assert_true(rc == ZOK || rc == ZNONODE);
    deallocate_String_vector(&found);
    return count;
}

/* As if a server that lagged behind had not had the first one yet. */
static void an_owner_has_two(void **state)
{
    (void)state;
    char node[NODE_MAX];
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *theirs = acquired(others);
    struct started once = {0};
    start(lock, waiting(PATIENCE_MS), &once);
    eventually(waits(client, lock));
    snprintf(node, sizeof node, "%s-", take_place(client, lock)->owner);
    let_go(client);
    make_node(client, node, ZOO_SEQUENCE);
    assert_status(dlock_release(theirs, NULL), OK);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_OK);
    assert_status(dlock_release(once.hold, NULL), OK);
    eventually(nodes(client) <= 0);
    leave(client, lock);
    leave(other, others);
}

static int64_t *rests_until_ns(dlock *lock)
{
    return &((struct zk_queue *)lock->engine_state)->rests_until_ns;
}

/* Two nodes have the greatest number: none of them is before the other. The queue begins anew. */
static void numbers_are_used_up(void **state)
{
    (void)state;
    char node[NODE_MAX];
    dlock_client *client = client_here((struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *theirs = acquired(others);
    struct started once = {0};
    start(lock, waiting(PATIENCE_MS), &once);
    eventually(waits(client, lock));
    struct place *place = take_place(client, lock);
    snprintf(node, sizeof node, "%s-" USED_UP, place->owner);
    let_go(client);
    make_node(client, node, 0);
    place = take_place(client, lock);
    strcpy(place->node, node);
    let_go(client);
    assert_status(dlock_release(theirs, NULL), OK);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_OK);
    place = take_place(client, lock);
    assert_says(place->node, "-0000000000");
    assert_int_not_equal(*rests_until_ns(lock), 0);
    let_go(client);
    assert_status(dlock_release(once.hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
}

/* Else it would never be empty. Who is in it already has a number, and is served. */
static void nobody_enters_a_queue_that_is_used_up(void **state)
{
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *theirs = acquired(others);
    struct started once = {0};
    start(lock, waiting(PATIENCE_MS), &once);
    eventually(waits(client, lock));
    take_place(client, lock);
    *rests_until_ns(lock) = INT64_MAX;
    const uint64_t before = stats_of(client).commands;
    let_go(client);
    for (int i = 0; i < 10; i++) {
        assert_status(tried(lock, &none), BUSY);
        assert_says(dlock_error(), "has no number left");
    }
    assert_true(stats_of(client).commands - before < 10); /* the session's own */
    assert_status(dlock_release(theirs, NULL), OK);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_OK);
    assert_status(dlock_release(once.hold, NULL), OK);
    take_place(client, lock);
    *rests_until_ns(lock) = 1;
    let_go(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    leave(client, lock);
    leave(other, others);
}

/* ---- A server that hangs --------------------------------------------------------------------- */

static uint64_t commands(dlock_client *client)
{
    return stats_of(client).commands;
}

/* More requests to leave follow, of cleanups and of the session itself. Each that is sent has the
 * server list the whole queue, once it goes on. */
static void a_place_is_left_once(void **state)
{
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    eventually(nodes(client) <= 0);
    zookeeper_pause(zookeeper);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 20, .call_max_ms = 20};
    assert_int_not_equal(dlock_acquire(lock, &want, &none), DLOCK_OK);
    eventually(is_left(client, lock));
    struct place *place = take_place(client, lock);
    const uint64_t before = commands(client);
    for (int i = 0; i < 20; i++)
        place_leave(lock->engine_state, place);
    assert_int_equal(commands(client), before);
    let_go(client);
    zookeeper_resume(zookeeper);
    eventually(has_no_place(client, lock));
    assert_int_equal(nodes(client), 0);
    leave(client, lock);
}

static bool has_looked(dlock_client *client)
{
    const struct session *session = &inside(client)->base;
    pthread_mutex_lock(&inside(client)->base.mutex);
    bool has = session->looked && TAILQ_EMPTY(&session->requests);
    let_go(client);
    return has;
}

static struct request *request_to_leave(dlock_client *client)
{
    struct request *request;
    TAILQ_FOREACH(request, &inside(client)->base.requests, of_session)
        if (request->what == LET_GO)
            break;
    return request;
}

/* Nobody asks for the first one any more. It ends when its list is answered, and deletes nothing.
 * So the other one goes on. */
static void another_request_to_leave_waits(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    eventually(has_looked(client));
    zookeeper_pause(zookeeper);
    struct place *place = take_place(client, lock);
    place->node[0] = '\0'; /* as if its create was not answered */
    place->doubtful = true;
    place_leave(lock->engine_state, place);
    request_to_leave(client)->unasked = false; /* as if its time was over */
    place_leave(lock->engine_state, place);
    let_go(client);
    zookeeper_resume(zookeeper);
    eventually(has_no_place(client, lock));
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
}

/* The session was proven between the grant and the call that watches the hold: the place has the
 * time of the grant, until the hold gets more by an extension. */
static void an_extension_counts_for_the_place(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    struct place *place = take_place(client, lock);
    int64_t granted_ns = inside(client)->base.granted_ms * NS_PER_MS;
    place->until_ns = boot_ns() + granted_ns / 10;
    let_go(client);
    assert_status(dlock_extend(hold), OK);
    place = take_place(client, lock);
    assert_true(place->until_ns >= boot_ns() + dlock_remaining_ms(hold) * NS_PER_MS);
    let_go(client);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* It is being deleted, because nobody seemed to need it: no time is given to its hold. */
static void an_extension_of_what_is_left(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    take_place(client, lock)->leaving = true; /* the delete is not sent yet */
    let_go(client);
    assert_status(dlock_extend(hold), LOST);
    assert_false(dlock_valid(hold));
    struct place *place = take_place(client, lock);
    place->leaving = false;
    place_leave(lock->engine_state, place);
    let_go(client);
    assert_status(dlock_release(hold, NULL), LOST);
    eventually(is_free(lock));
    leave(client, lock);
}

/* Nothing is sent for it. So it is answered at once, and the place stays for the outer hold. */
static void a_nested_release_without_a_connection(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *outer = wanted(lock, (struct dlock_want){.owner_id = 7});
    dlock_hold *nested = wanted(lock, (struct dlock_want){.owner_id = 7});
    int64_t until_ns = take_place(client, lock)->until_ns;
    inside(client)->base.connected = false;
    let_go(client);
    assert_status(dlock_release(nested, NULL), OK);
    const struct place *place = take_place(client, lock);
    assert_true(place->holds && !place->leaving && place->until_ns >= until_ns);
    inside(client)->base.connected = true;
    let_go(client);
    assert_true(dlock_valid(outer));
    assert_status(dlock_release(outer, NULL), OK);
    leave(client, lock);
}

static int ask_stats(void *client)
{
    struct dlock_stats stats = {.size = sizeof stats};
    alarm(PATIENCE_MS / 1000);
    dlock_client_stats(client, &stats);
    return stats.connects > 0 ? 0 : 1;
}

/* A thread of the parent may hold any mutex just then. */
static void a_child_asks_for_the_statistics(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    take_place(client, lock);
    pid_t child = child_start(ask_stats, client);
    let_go(client);
    assert_int_equal(child_wait(child), 0);
    leave(client, lock);
}

/* An old proof leaves the lock's own limit as it is. */
static void a_short_hold_after_an_old_proof(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client = client_here(
        (struct dlock_options){.ttl_ms = 60000, .on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    take_place(client, lock);
    inside(client)->base.counts_ns -= 20000LL * NS_PER_MS;
    let_go(client);
    struct dlock_want want = {.size = sizeof want, .hold_max_ms = 150};
    assert_status(dlock_acquire(lock, &want, &hold), OK);
    eventually(record_count(record, "its hold_max_ms has passed") == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
    record_free(record);
}

/* What its holder sent last may still come: the next one must not be inside yet. */
static void an_abandoned_hold_is_awaited(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    const int64_t ends_ns = mono_ns() + dlock_remaining_ms(hold) * NS_PER_MS;
    assert_status(dlock_abandon(hold), OK);
    leave(client, lock);
    assert_true(mono_ns() >= ends_ns);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_has_two),
        cmocka_unit_test(numbers_are_used_up),
        cmocka_unit_test(nobody_enters_a_queue_that_is_used_up),
        cmocka_unit_test(a_place_is_left_once),
        cmocka_unit_test(another_request_to_leave_waits),
        cmocka_unit_test(an_extension_counts_for_the_place),
        cmocka_unit_test(an_extension_of_what_is_left),
        cmocka_unit_test(a_nested_release_without_a_connection),
        cmocka_unit_test(a_child_asks_for_the_statistics),
        cmocka_unit_test(a_short_hold_after_an_old_proof),
        cmocka_unit_test(an_abandoned_hold_is_awaited),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("zookeeper_places", tests, set_up, tear_down);
}
