/* SPDX-License-Identifier: Apache-2.0
 *
 * libdlock-etcd, and requests that are sent again: after an answer that did not come, or that
 * refused them; and what a client knows no longer after that.
 */
#include "child.h"
#include "etcd_inside.h"
#include "etcd_stage.h"
#include "must.h"
#include "started.h"
#include "waiter.h"

#include <pthread.h>

#define LONG_MS 300000 /* a lease that is looked at too seldom to matter */
#define KEEP_ALIVE "/v3/lease/keepalive"
#define LOGIN "/v3/auth/authenticate"

static const struct dlock_options lasting = {.ttl_ms = LONG_MS};

static bool is_idle(dlock_client *client)
{
    struct etcd *in = inside(client);
    pthread_mutex_lock(&in->base.mutex);
    bool idle = in->flying_count == 0 && TAILQ_EMPTY(&in->waiting);
    pthread_mutex_unlock(&in->base.mutex);
    return idle;
}

/* ---- Creates --------------------------------------------------------------------------------- */

/* Two proxies, and an acquire that creates its key twice. The answer to the first create is kept by
 * the near one. The far one keeps the second create. */
struct twice {
    struct proxy *near, *far;
    dlock_client *client;
    dlock *lock;
    struct started once;
};

static void twice_begin(struct twice *twice)
{
    *twice = (struct twice){.far = proxy_start_to(etcd_server_port(etcd))};
    twice->near = proxy_start_to(proxy_port(twice->far));
    twice->client = client_behind(twice->near, (struct dlock_options){.ttl_ms = LONG_MS,
                                                                      .connect_timeout_ms = 500,
                                                                      .command_timeout_ms = 250});
    twice->lock = lock_at(twice->client);
    assert_status(dlock_release(acquired(twice->lock), NULL), OK);
    proxy_plan(twice->near, PROXY_HOLD_REPLY, CREATE, NULL, 0);
    start(twice->lock, waiting(PATIENCE_MS), &twice->once);
    eventually(proxy_done(twice->near));
    proxy_plan(twice->far, PROXY_HOLD_REQUEST, CREATE, NULL, 0);
    eventually(proxy_done(twice->far));
}

/* The answer comes, and the lock is acquired. */
static void twice_acquire(struct twice *twice)
{
    proxy_let_go(twice->near);
    started_answered(&twice->once);
    assert_int_equal(twice->once.status, DLOCK_OK);
}

/* The second create arrives. */
static void twice_end(struct twice *twice)
{
    proxy_let_go_and_hear(twice->far);
    eventually(is_idle(twice->client));
    assert_int_equal(places_at(), 0);
    leave(twice->client, twice->lock);
    proxy_free(twice->near);
    proxy_free(twice->far);
}

static void a_create_arrives_after_the_release(void **state)
{
    (void)state;
    struct twice twice;
    twice_begin(&twice);
    twice_acquire(&twice);
    assert_status(dlock_release(twice.once.hold, NULL), OK);
    twice_end(&twice);
}

/* The lock was broken: the release finds nothing to do. */
static void a_create_arrives_after_the_break(void **state)
{
    (void)state;
    struct twice twice;
    twice_begin(&twice);
    twice_acquire(&twice);
    empty_queue();
    eventually(!dlock_valid(twice.once.hold));
    assert_status(dlock_release(twice.once.hold, NULL), LOST);
    twice_end(&twice);
}

/* The first key was deleted by hand before its answer came. A third create has made the key that is
 * released. */
static void a_create_arrives_after_a_later_one(void **state)
{
    (void)state;
    struct twice twice;
    twice_begin(&twice);
    empty_queue();
    twice_acquire(&twice);
    assert_status(dlock_release(twice.once.hold, NULL), OK);
    twice_end(&twice);
}

/* What is known of the waiter's place: 0: nothing; else the number of its key. */
static uint64_t number_of(dlock_client *client, dlock *lock, bool *waits)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    const struct queue *queue = lock->engine_state;
    const struct place *place = LIST_FIRST(&queue->places);
    uint64_t number = place != NULL ? place->number : 0;
    *waits = number != 0 && place->before[0] != '\0';
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return number;
}

/* The second create found the key, so the key is read, without the one before it: its number is not
 * known. The number comes with the answer to the first create, and then the key is there. */
static void a_number_comes_while_its_key_is_read(void **state)
{
    (void)state;
    bool waits;
    struct proxy *far = proxy_start_to(etcd_server_port(etcd));
    struct proxy *near = proxy_start_to(proxy_port(far));
    struct started once = {0};
    dlock_client *other = client_here(lasting);
    dlock *others = lock_at(other);
    dlock_hold *theirs = acquired(others);
    dlock_client *client = client_behind(near, (struct dlock_options){.ttl_ms = LONG_MS,
                                                                      .connect_timeout_ms = 500,
                                                                      .command_timeout_ms = 250});
    dlock *lock = lock_at(client);
    proxy_plan(near, PROXY_HOLD_REPLY, CREATE, NULL, 0);
    proxy_plan(far, PROXY_HOLD_REPLY, "{\"success\":[{\"request_range\"", NULL, 0);
    start(lock, waiting(PATIENCE_MS), &once);
    eventually(proxy_done(near) && proxy_done(far));
    proxy_let_go(near);
    eventually(number_of(client, lock, &waits) != 0);
    proxy_let_go(far);
    eventually((number_of(client, lock, &waits), waits) || atomic_load(&once.answers) > 0);
    assert_int_equal(atomic_load(&once.answers), 0);
    assert_status(dlock_release(theirs, NULL), OK);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_OK);
    assert_status(dlock_release(once.hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
    proxy_free(near);
    proxy_free(far);
}

/* ---- Deletes --------------------------------------------------------------------------------- */

/* It was carried out, and its answer was lost. Then it is refused. */
static void a_second_delete_is_refused(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(etcd));
    struct proxy *near = proxy_start_to(proxy_port(far));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client);
    struct releaser once = {.hold = acquired(lock)};
    proxy_plan(far, PROXY_HOLD_REQUEST, KEEP_ALIVE, NULL, 0);
    proxy_plan(near, PROXY_CUT_REPLY, DELETE, NULL, 0);
    releaser_start(&once);
    eventually(proxy_done(near));
    answer(near, DELETE, "403 Forbidden", "{\"code\":7,\"message\":\"permission denied\"}");
    eventually(proxy_done(far));
    proxy_let_go(far);
    assert_int_equal(releaser_end(&once), DLOCK_UNKNOWN);
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
}

/* ---- Logins ---------------------------------------------------------------------------------- */

static void *extend(void *arg)
{
    struct started *started = arg;
    started->status = dlock_extend(started->hold);
    return NULL;
}

/* The token is refused while a keep-alive is under way. What proves that is sent without one. */
static void a_proof_without_a_login(void **state)
{
    (void)state;
    struct etcd_server *server = etcd_server_start(NULL);
    allow(server);
    struct proxy *far = proxy_start_to(etcd_server_port(server));
    struct proxy *near = proxy_start_to(proxy_port(far));
    dlock_client *client =
        ann_behind(near, (struct dlock_options){.ttl_ms = LONG_MS,
                                                .connect_timeout_ms = PATIENCE_MS,
                                                .command_timeout_ms = PATIENCE_MS});
    dlock *lock = lock_at(client), *other;
    struct started holder = {.hold = acquired(lock)}, next = {0};
    assert_status(dlock_open(client, NULL, "other", &other), OK);
    proxy_plan(near, PROXY_HOLD_REPLY, KEEP_ALIVE, NULL, 0);
    pthread_t thread = thread_start(extend, &holder);
    eventually(proxy_done(near));
    answer_bad_token(far, CREATE);
    start(other, waiting(PATIENCE_MS), &next);
    eventually(proxy_done(far));
    proxy_let_go(near);
    thread_wait(thread);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_int_equal(holder.status, DLOCK_OK);
    assert_status(dlock_release(next.hold, NULL), OK);
    assert_status(dlock_release(holder.hold, NULL), OK);
    dlock_close(other);
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
    etcd_server_free(server);
}

/* A keep-alive comes so seldom that nobody waits for it. */
static const struct dlock_options hourly = {.ttl_ms = 3600000};

/* Of a server with logins: its holder's watch is cut, and what comes next is planned. */
struct cut_watch {
    struct etcd_server *server;
    struct proxy *near;
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
};

static void watched_begin(struct cut_watch *watched)
{
    watched->server = etcd_server_start(NULL);
    allow(watched->server);
    watched->near = proxy_start_to(etcd_server_port(watched->server));
    watched->client = ann_behind(watched->near, hourly);
    watched->lock = lock_at(watched->client);
    watched->hold = acquired(watched->lock);
    eventually(is_watched(watched->client, watched->lock));
}

/* The client has logged in again, and its next watch has begun. */
static void watched_end(struct cut_watch *watched)
{
    eventually(proxy_requests(watched->near, LOGIN) == 2 &&
               is_watched(watched->client, watched->lock));
    assert_status(dlock_release(watched->hold, NULL), OK);
    leave(watched->client, watched->lock);
    proxy_free(watched->near);
    etcd_server_free(watched->server);
}

/* A new password, the same as before, ends the tokens of its user. */
static void end_tokens_of_ann(struct etcd_server *server)
{
    etcd_server_log_in(server, "root", "r");
    etcd_server_ask(server, "/v3/auth/user/changepw", "{\"name\":\"ann\",\"password\":\"p@ss\"}");
}

/* Nothing but the next watch is sent with the old one. */
static void a_watch_with_an_old_token(void **state)
{
    (void)state;
    struct cut_watch watched;
    watched_begin(&watched);
    end_tokens_of_ann(watched.server);
    proxy_cut(watched.near, "/v3/watch");
    eventually(proxy_requests(watched.near, LOGIN) == 2);
    assert_int_equal(proxy_requests(watched.near, KEEP_ALIVE), 0);
    watched_end(&watched);
}

/* Early versions of etcd say no more than that, in a stream that goes on. A proof of the lease
 * tests the token. */
static void a_watch_is_not_permitted(void **state)
{
    (void)state;
    static const char line[] =
        "{\"result\":{\"header\":{},\"created\":true,\"canceled\":true,\"cancel_reason\":"
        "\"rpc error: code = PermissionDenied desc = etcdserver: permission denied\"}}\n";
    static const char head[] = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    char said[512];
    int size = snprintf(said, sizeof said, "%s%zx\r\n%s\r\n", head, strlen(line), line);
    struct cut_watch watched;
    watched_begin(&watched);
    end_tokens_of_ann(watched.server);
    proxy_plan(watched.near, PROXY_REPLACE_REPLY, "/v3/watch", said, (size_t)size);
    proxy_cut(watched.near, "/v3/watch");
    eventually(proxy_requests(watched.near, KEEP_ALIVE) > 0);
    watched_end(&watched);
}

/* ---- Members --------------------------------------------------------------------------------- */

/* A member is not to blame for that: it is asked again, after a pause. */
static void too_many_requests(void **state)
{
    (void)state;
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    uint64_t moves = moves_of(client);
    answer(near, CREATE, "429 Too Many Requests",
           "{\"code\":8,\"message\":\"etcdserver: too many requests\"}");
    assert_status(dlock_release(acquired(lock), NULL), OK);
    answer(near, CREATE, "429 Too Many Requests", "slow down");
    assert_status(dlock_release(acquired(lock), NULL), OK);
    assert_true(proxy_done(near) && moves_of(client) == moves);
    leave(client, lock);
    proxy_free(near);
}

/* ---- What is known no longer ----------------------------------------------------------------- */

static void identity_now(dlock *lock, char text[64])
{
    dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true});
    snprintf(text, 64, "%s", dlock_identity(hold));
    assert_status(dlock_release(hold, NULL), OK);
}

/* The operator has deleted the identity after that, as the design says. The lease is in the copy,
 * and others have written as much as was lost. */
static void its_servers_were_restored(void **state)
{
    (void)state;
    dlock_client *client = client_here(lasting);
    dlock *lock = lock_at(client);
    char before[64], after[64];
    identity_now(lock, before);
    uint64_t lease = etcd_lease(client);
    etcd_server_save(etcd);
    etcd_server_restore(etcd);
    etcd_server_ask(etcd, "/v3/kv/deleterange", "{\"key\":\"%s\"}", base64("/dlock/identity"));
    etcd_server_pass(etcd, 50);
    identity_now(lock, after);
    assert_int_equal(etcd_lease(client), lease);
    assert_string_not_equal(before, after);
    leave(client, lock);
}

/* A later request opens a connection, and the identity is forgotten. A nested hold has the one of
 * the first, which its token is of. */
static void a_nested_hold_has_the_identity(void **state)
{
    (void)state;
    dlock_client *client = client_here(lasting);
    dlock *lock = lock_at(client);
    struct dlock_want want = {.owner_id = 7, .identity = true};
    dlock_hold *first = wanted(lock, want);
    pthread_mutex_lock(&inside(client)->base.mutex);
    inside(client)->base.identity.text[0] = '\0';
    pthread_mutex_unlock(&inside(client)->base.mutex);
    dlock_hold *nested = wanted(lock, want);
    assert_string_not_equal(dlock_identity(first), "");
    assert_string_equal(dlock_identity(first), dlock_identity(nested));
    assert_status(dlock_release(nested, NULL), OK);
    assert_status(dlock_release(first, NULL), OK);
    leave(client, lock);
}

/* The first hold did not ask for it. */
static void a_nested_hold_asks_for_the_identity(void **state)
{
    (void)state;
    dlock_client *client = client_here(lasting);
    dlock *lock = lock_at(client);
    dlock_hold *first = wanted(lock, (struct dlock_want){.owner_id = 7});
    dlock_hold *nested = wanted(lock, (struct dlock_want){.owner_id = 7, .identity = true});
    assert_string_not_equal(dlock_identity(nested), "");
    assert_status(dlock_release(nested, NULL), OK);
    assert_status(dlock_release(first, NULL), OK);
    leave(client, lock);
}

/* The release failed, and nobody tries it again. Nobody needs the lease any more. */
static void a_release_that_failed_ends_with_its_client(void **state)
{
    (void)state;
    dlock_client *client = client_here(lasting);
    dlock *lock = lock_at(client);
    dlock_abandon(acquired(lock)); /* its place holds, and nobody asks for it */
    pthread_mutex_lock(&inside(client)->base.mutex);
    LIST_FIRST(&((struct queue *)lock->engine_state)->places)->released = true;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    leave(client, lock);
    assert_int_equal(places_at(), 0);
}

/* What its holder sent last may still come: the next one must not be inside yet. */
static void an_abandoned_hold_outlives_its_client(void **state)
{
    (void)state;
    dlock_client *client = client_here(lasting);
    dlock *lock = lock_at(client);
    dlock_abandon(acquired(lock));
    leave(client, lock);
    assert_int_equal(places_at(), 1);
    empty_queue();
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_arrives_after_the_release),
        cmocka_unit_test(a_create_arrives_after_the_break),
        cmocka_unit_test(a_create_arrives_after_a_later_one),
        cmocka_unit_test(a_number_comes_while_its_key_is_read),
        cmocka_unit_test(a_second_delete_is_refused),
        cmocka_unit_test(a_proof_without_a_login),
        cmocka_unit_test(a_watch_with_an_old_token),
        cmocka_unit_test(a_watch_is_not_permitted),
        cmocka_unit_test(too_many_requests),
        cmocka_unit_test(its_servers_were_restored),
        cmocka_unit_test(a_nested_hold_has_the_identity),
        cmocka_unit_test(a_nested_hold_asks_for_the_identity),
        cmocka_unit_test(a_release_that_failed_ends_with_its_client),
        cmocka_unit_test(an_abandoned_hold_outlives_its_client),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd_again", tests, set_up, tear_down);
}
