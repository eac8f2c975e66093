/* SPDX-License-Identifier: Apache-2.0
 *
 * libdlock-etcd, and answers that come late, twice, in another order, or not at all; and servers
 * that go back to an earlier state. Between the client and etcd are one or two proxies: the near
 * one is the client's.
 */
#include "child.h"
#include "etcd_inside.h"
#include "etcd_stage.h"
#include "must.h"
#include "record.h"
#include "started.h"

#include <pthread.h>

#define LONG_MS 300000 /* a lease that is looked at too seldom to matter */
#define BEAT "/v3/lease/keepalive"
#define GRANT "/v3/lease/grant"
#define REVOKE "/v3/lease/revoke"
#define PUT "/v3/kv/put"
#define LOGIN "/v3/auth/authenticate"
#define BREAK_TEXT "request_delete_range"
#define LOOK_TEXT "/v3/kv/range HTTP/1.1"

static struct etcd_server *guarded_etcd;
static const struct dlock_options lasting = {.ttl_ms = LONG_MS};
/* Its calls end before a request at the server does. */
static const struct dlock_options brief = {
    .ttl_ms = LONG_MS, .connect_timeout_ms = 1000, .command_timeout_ms = 1000};

/* ---- A machine that sleeps ------------------------------------------------------------------- */

static _Atomic int64_t slept_s;

int __real_clock_gettime(clockid_t clock, struct timespec *time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *time);

int __wrap_clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = __real_clock_gettime(clock, time);
    if (clock == CLOCK_BOOTTIME)
        time->tv_sec += atomic_load(&slept_s);
    return result;
}

/* Close the clients, and wake up. */
static void sleep_for(dlock_client *client, int64_t lasting_leases_per_cent)
{
    struct session *session = session_of(client);
    atomic_fetch_add(&slept_s, lasting_leases_per_cent * LONG_MS / 100000);
    pthread_mutex_lock(&session->mutex);
    session_look(session);
    session_unlock(session);
}

static void wake_up(void)
{
    atomic_store(&slept_s, 0);
}

/* ---- A thread that looks at the lock --------------------------------------------------------- */

struct looker {
    dlock *lock;
    dlock_status status;
    _Atomic bool over;
    pthread_t thread;
};

static void *look_at_it(void *arg)
{
    struct looker *looker = arg;
    struct dlock_holder holder = {.size = sizeof holder};
    looker->status = dlock_inspect(looker->lock, &holder);
    atomic_store(&looker->over, true);
    return NULL;
}

/* Its answer is kept by the near proxy. */
static void begin_to_look(struct looker *looker, dlock *lock, struct proxy *near)
{
    *looker = (struct looker){.lock = lock};
    proxy_plan(near, PROXY_HOLD_REPLY, LOOK_TEXT, NULL, 0);
    looker->thread = thread_start(look_at_it, looker);
    eventually(proxy_done(near));
}

/* ---- An ended lease -------------------------------------------------------------------------- */

/* How many keys of the library live longer than any lease. */
static int lasting_keys(void)
{
    int count = 0;
    const char *said =
        etcd_server_ask(etcd, "/v3/kv/range", "{\"key\":\"%s\",\"range_end\":\"%s\"}",
                        base64("/dlock/locks"), base64("/dlock/lockt"));
    for (const char *at = said; (at = strstr(at, "\"key\"")) != NULL; at++)
        count++;
    for (const char *at = said; (at = strstr(at, "\"lease\"")) != NULL; at++)
        count--;
    return count;
}

/* A lease was revoked, and the next one is not granted yet. What was asked before is answered. */
static void an_answer_of_an_ended_lease(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(etcd));
    struct proxy *near = proxy_start_to(proxy_port(far));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client);
    struct started next = {0};
    struct looker looker;
    assert_status(dlock_release(acquired(lock), NULL), OK);
    begin_to_look(&looker, lock, near);
    proxy_plan(far, PROXY_HOLD_REQUEST, GRANT, NULL, 0);
    revoke_lease(etcd_lease(client));
    start(lock, waiting(PATIENCE_MS), &next);
    eventually(proxy_done(far));
    proxy_let_go(near);
    thread_wait(looker.thread);
    assert_int_equal(looker.status, DLOCK_OK);
    proxy_let_go(far);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_int_equal(lasting_keys(), 0);
    assert_int_equal(proxy_requests(near, "\"lease\":\"0\""), 0);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
}

static void with_identity(dlock *lock, struct started *started)
{
    start(lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .identity = true}, started);
}

/* The identity of data that were lost is not the one of those that are there. */
static void an_identity_of_an_ended_lease(void **state)
{
    (void)state;
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client), *other;
    struct started first = {0}, second = {0};
    char identity[64];
    snprintf(identity, sizeof identity, "%s", base64("/dlock/identity"));
    assert_status(dlock_open(client, NULL, "other", &other), OK);
    proxy_plan(near, PROXY_HOLD_REPLY, identity, NULL, 0);
    with_identity(lock, &first);
    eventually(proxy_done(near));
    revoke_lease(etcd_lease(client));
    etcd_server_ask(etcd, "/v3/kv/deleterange", "{\"key\":\"%s\"}", identity);
    with_identity(other, &second);
    started_answered(&second);
    assert_int_equal(second.status, DLOCK_OK);
    proxy_let_go(near);
    started_answered(&first);
    assert_int_equal(first.status, DLOCK_OK);
    assert_string_equal(dlock_identity(first.hold), dlock_identity(second.hold));
    assert_status(dlock_release(first.hold, NULL), OK);
    assert_status(dlock_release(second.hold, NULL), OK);
    dlock_close(other);
    leave(client, lock);
    proxy_free(near);
}

/* Its servers count from 1 again. */
static void a_lease_after_all_was_lost(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    etcd_server_pass(etcd, 50);
    dlock_hold *hold = acquired(lock);
    eventually(heard_of(client, lock) > 50);
    etcd_server_forget(etcd);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static bool is_revoked(uint64_t lease)
{
    const char *said = etcd_server_ask(etcd, "/v3/lease/timetolive", "{\"ID\":\"%llu\"}",
                                       (unsigned long long)lease);
    return strstr(said, "\"TTL\":\"-1\"") != NULL;
}

/* The server does not know the client's lease any more: so it says. Which lease that was. */
static uint64_t end_lease(dlock_client *client, dlock *lock, struct proxy *near)
{
    dlock_hold *hold = acquired(lock);
    uint64_t lease = etcd_lease(client);
    answer(near, BEAT, "200 OK\r\nConnection: close", "{\"result\":{\"header\":{}}}");
    assert_status(dlock_extend(hold), LOST);
    assert_status(dlock_release(hold, NULL), LOST);
    return lease;
}

/* The second ends before the first is revoked, and that fails. */
static void two_leases_end(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(etcd));
    struct proxy *near = proxy_start_to(proxy_port(far));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client), *other;
    assert_status(dlock_open(client, NULL, "other", &other), OK);
    proxy_plan(far, PROXY_HOLD_REQUEST, REVOKE, NULL, 0);
    uint64_t first = end_lease(client, lock, near);
    eventually(proxy_done(far));
    uint64_t second = end_lease(client, other, near);
    proxy_cut(far, REVOKE);
    eventually(is_revoked(first) && is_revoked(second));
    dlock_close(other);
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
}

/* ---- Creates --------------------------------------------------------------------------------- */

/* The key was deleted by hand, and that is told first. */
static void the_end_of_a_key_is_told_before_its_create(void **state)
{
    (void)state;
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client);
    struct started next = {0};
    dlock_hold *hold = acquired(lock);
    eventually(is_watched(client, lock));
    assert_status(dlock_release(hold, NULL), OK);
    proxy_plan(near, PROXY_HOLD_REPLY, CREATE, NULL, 0);
    start(lock, waiting(PATIENCE_MS), &next);
    eventually(proxy_done(near));
    uint64_t revision = empty_queue();
    eventually(heard_of(client, lock) >= revision || atomic_load(&next.answers) > 0);
    proxy_let_go(near);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
    proxy_free(near);
}

/* A server that asks for a login. */
static struct etcd_server *guarded(void)
{
    if (guarded_etcd == NULL) {
        guarded_etcd = etcd_server_start(NULL);
        allow(guarded_etcd);
    }
    return guarded_etcd;
}

/* The reply to the first was lost, and the second was refused. Then the call ends: it has to delete
 * the key. On a machine that is too slow for that, the call ends earlier. */
static void a_second_create_is_refused(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(guarded()));
    struct proxy *near = proxy_start_to(proxy_port(far));
    struct started once = {0};
    dlock_client *client = ann_behind(near, (struct dlock_options){.ttl_ms = LONG_MS,
                                                                   .connect_timeout_ms = 500,
                                                                   .command_timeout_ms = 1250});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    proxy_plan(near, PROXY_HOLD_REQUEST, PUT, NULL, 0);
    proxy_plan(far, PROXY_CUT_REPLY, CREATE, NULL, 0);
    start(lock, waiting(0), &once);
    eventually(proxy_done(near) || atomic_load(&once.answers) > 0);
    answer_bad_token(far, CREATE);
    proxy_plan(near, PROXY_HOLD_REQUEST, LOGIN, NULL, 0);
    proxy_let_go(near);
    eventually(proxy_done(near) || atomic_load(&once.answers) > 0);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_UNKNOWN);
    proxy_let_go(near);
    eventually(kept_in_the_background(client) == 0);
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
}

/* etcd has carried out the create that made its store full, and refuses it all the same. */
static void a_refused_create_is_carried_out(void **state)
{
    (void)state;
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, lasting);
    dlock *lock = lock_at(client);
    dlock_hold *none;
    assert_status(dlock_release(acquired(lock), NULL), OK);
    answer(near, CREATE, "429 Too Many Requests",
           "{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}");
    assert_status(tried(lock, &none), REFUSED);
    eventually(places_at() == 0);
    leave(client, lock);
    proxy_free(near);
}

/* ---- Breaks ---------------------------------------------------------------------------------- */

/* Some versions of etcd do that for a delete, too. */
static void a_refused_break_is_carried_out(void **state)
{
    (void)state;
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(near, lasting), *other = client_here(lasting);
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(others);
    answer(near, BREAK_TEXT, "429 Too Many Requests",
           "{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}");
    assert_status(dlock_break(lock, NULL), UNKNOWN);
    assert_int_equal(places_at(), 0);
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
    leave(other, others);
    proxy_free(near);
}

/* The break looks again after it has logged in: the holder is gone then, and it names none. */
static void a_break_looks_twice(void **state)
{
    (void)state;
    struct dlock_holder broken = {.size = sizeof broken};
    struct proxy *near = proxy_start_to(etcd_server_port(guarded()));
    dlock_client *client = ann_behind(near, lasting);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    answer_bad_token(near, BREAK_TEXT);
    assert_status(dlock_break(lock, &broken), OK);
    assert_false(broken.held);
    assert_string_equal(broken.owner, "");
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
    proxy_free(near);
}

/* ---- Logins ---------------------------------------------------------------------------------- */

/* The answer tells of the token before: the one that is there is good. */
static void a_token_is_refused_late(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(guarded()));
    struct proxy *near = proxy_start_to(proxy_port(far));
    struct looker looker;
    dlock_client *client = ann_behind(near, lasting);
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    answer_bad_token(far, LOOK_TEXT);
    begin_to_look(&looker, lock, near);
    answer_bad_token(far, CREATE);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    proxy_let_go(near);
    thread_wait(looker.thread);
    assert_int_equal(looker.status, DLOCK_OK);
    assert_int_equal(proxy_requests(near, LOGIN), 2);
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
}

/* A login costs the server much: there is one a second at most. */
static void each_token_is_refused(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(guarded()));
    struct started once = {0};
    int64_t began_ms = clock_ms();
    dlock_client *client = ann_behind(proxy, (struct dlock_options){.connect_timeout_ms = 1500});
    dlock *lock = lock_at(client);
    answer_bad_token(proxy, PUT);
    start(lock, waiting(0), &once);
    while (atomic_load(&once.answers) == 0) {
        if (proxy_done(proxy))
            answer_bad_token(proxy, PUT);
        short_pause();
    }
    assert_int_equal(once.status, DLOCK_UNREACHABLE);
    assert_says(once.error, "invalid auth token");
    assert_in_range(proxy_requests(proxy, LOGIN), 1, 2 + (clock_ms() - began_ms) / 1000);
    leave(client, lock);
    proxy_free(proxy);
}

/* It would be a part of each request's head. */
static void a_token_with_a_line_break(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(guarded()));
    dlock_client *client = ann_behind(proxy, lasting);
    dlock *lock = lock_at(client);
    answer(proxy, LOGIN, "200 OK", "{\"header\":{},\"token\":\"a\\r\\nX-Evil: 1\"}");
    assert_status(dlock_release(acquired(lock), NULL), OK);
    assert_int_equal(proxy_requests(proxy, "X-Evil"), 0);
    leave(client, lock);
    proxy_free(proxy);
}

/* ---- Grants ---------------------------------------------------------------------------------- */

static void a_grant_of_nothing(void **state)
{
    (void)state;
    static const char *const said[] = {"{\"header\":{},\"ID\":\"5\"}",
                                       "{\"header\":{},\"TTL\":\"5\"}"};
    for (size_t i = 0; i < sizeof said / sizeof said[0]; i++) {
        struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
        dlock_client *client = client_behind(proxy, lasting);
        dlock *lock = lock_at(client);
        answer(proxy, GRANT, "200 OK", said[i]);
        assert_status(dlock_release(acquired(lock), NULL), OK);
        assert_int_equal(proxy_requests(proxy, GRANT), 2);
        leave(client, lock);
        proxy_free(proxy);
    }
}

/* ---- Watches --------------------------------------------------------------------------------- */

/* As by a balancer that ends connections that are idle. The member is not to blame. The next watch
 * arrives after the holder has released, and perhaps after that was compacted. */
static void cut_watch(bool compacts)
{
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    struct record *record = record_new();
    dlock_client *other = client_here(lasting);
    dlock_client *client = client_behind(near, (struct dlock_options){.ttl_ms = LONG_MS,
                                                                      .on_event = record_event,
                                                                      .on_event_arg = record});
    dlock *others = lock_at(other), *lock = lock_at(client);
    dlock_hold *hold = acquired(others);
    struct started next = {0};
    start(lock, waiting(PATIENCE_MS), &next);
    eventually(is_watched(client, lock));
    proxy_plan(near, PROXY_HOLD_REQUEST, "/v3/watch", NULL, 0);
    proxy_cut(near, "/v3/watch");
    eventually(proxy_done(near));
    assert_status(dlock_release(hold, NULL), OK);
    if (compacts) {
        etcd_server_pass(etcd, 2);
        etcd_server_ask(etcd, "/v3/kv/compaction", "{\"revision\":\"%llu\"}",
                        (unsigned long long)revision_now());
    }
    proxy_let_go(near);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_int_equal(moves_of(client), 0);
    assert_int_equal(record_count(record, "SERVER_GONE"), 0);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
    proxy_free(near);
    record_free(record);
}

static void a_watch_is_cut(void **state)
{
    (void)state;
    cut_watch(false);
}

static void a_watch_is_cut_and_its_past_is_gone(void **state)
{
    (void)state;
    cut_watch(true);
}

/* ---- Servers that go back -------------------------------------------------------------------- */

#define NO_LONGER "the lock no longer belongs to this owner"

/* The copy has the lease, and the key was created later. */
static void its_servers_go_back(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    etcd_server_save(etcd);
    etcd_server_pass(etcd, 50);
    dlock_hold *hold = acquired(lock);
    etcd_server_restore(etcd);
    eventually(record_count(record, NO_LONGER) == 1);
    assert_false(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* Others have written as much as was lost, before the client is back: no number shows it. */
static void its_servers_go_back_and_on(void **state)
{
    (void)state;
    struct proxy *near = proxy_start_to(etcd_server_port(etcd));
    struct record *record = record_new();
    dlock_client *client = client_behind(near, (struct dlock_options){.ttl_ms = LONG_MS,
                                                                      .on_event = record_event,
                                                                      .on_event_arg = record});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    etcd_server_save(etcd);
    dlock_hold *hold = acquired(lock);
    eventually(is_watched(client, lock));
    proxy_plan(near, PROXY_HOLD_REQUEST, "/v3/", NULL, 0);
    etcd_server_restore(etcd);
    etcd_server_pass(etcd, 50);
    eventually(proxy_done(near));
    proxy_let_go(near);
    eventually(record_count(record, NO_LONGER) == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
    proxy_free(near);
    record_free(record);
}

/* Somebody waits, and nothing is under way. */
static bool waits_quietly(dlock_client *client, dlock *lock)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    const struct place *place;
    bool waits = false;
    LIST_FOREACH(place, &((struct queue *)lock->engine_state)->places, of_queue)
        waits |= place->before[0] != '\0';
    waits &= inside(client)->flying_count == 0;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return waits;
}

/* By another watch than the one before. CLOCK_BOOTTIME. */
static bool is_watched_since(dlock_client *client, dlock *lock, int64_t since_ns)
{
    const struct etcd_queue *queue = lock->engine_state;
    pthread_mutex_lock(&inside(client)->base.mutex);
    bool is = queue->watch != NULL && queue->watch->answered && queue->watch->sent_ns > since_ns;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return is;
}

/* The copy has the hold, and not the key of the client's waiter, who was the next one. Another
 * client has its place. */
static void its_waiter_is_forgotten(void **state)
{
    (void)state;
    _Atomic int over = 0, others_over = 0;
    struct started waits = {.over = &over}, others = {.over = &others_over};
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = LONG_MS});
    dlock_client *other = client_here((struct dlock_options){.ttl_ms = LONG_MS});
    dlock *lock = lock_at(client), *others_lock = lock_at(other);
    dlock_hold *hold = acquired(lock);
    eventually(is_watched(client, lock));
    etcd_server_save(etcd);
    start(lock, waiting(PATIENCE_MS), &waits);
    eventually(waits_quietly(client, lock));
    const int64_t since_ns = boot_ns();
    pthread_mutex_lock(&inside(client)->base.mutex); /* it asks for nothing meanwhile */
    etcd_server_restore(etcd);
    etcd_server_pass(etcd, 50);
    start(others_lock, waiting(PATIENCE_MS), &others);
    eventually(places_at() == 2);
    pthread_mutex_unlock(&inside(client)->base.mutex);
    eventually(is_watched_since(client, lock, since_ns));
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&others_over) == 1);
    started_answered(&others);
    assert_status(others.status, OK);
    assert_int_equal(atomic_load(&over), 0);
    assert_status(dlock_release(others.hold, NULL), OK);
    eventually(atomic_load(&over) == 1);
    started_answered(&waits);
    assert_status(dlock_release(waits.hold, NULL), OK);
    leave(client, lock);
    leave(other, others_lock);
}

/* ---- Waiters --------------------------------------------------------------------------------- */

static size_t turns_of(dlock *lock)
{
    const struct dlock_hold *hold;
    size_t count = 0;
    pthread_mutex_lock(&lock->mutex);
    TAILQ_FOREACH(hold, &lock->turns, of_turns)
        count++;
    pthread_mutex_unlock(&lock->mutex);
    return count;
}

static bool one_is_behind(dlock *lock)
{
    pthread_mutex_lock(&lock->client->loop.mutex);
    bool is = wait_first(lock) != NULL;
    pthread_mutex_unlock(&lock->client->loop.mutex);
    return is;
}

static _Atomic bool stops, has_stopped;

enum wait_next __real_wait_again(struct wait *wait, const struct busy *busy, bool nested);
enum wait_next __wrap_wait_again(struct wait *wait, const struct busy *busy, bool nested);

/* Stops a named owner's waiter that does not nest, between its answer and its sleep. */
enum wait_next __wrap_wait_again(struct wait *wait, const struct busy *busy, bool nested)
{
    if (atomic_load(&stops) && !nested && wait->hold->number != 0) {
        atomic_store(&has_stopped, true);
        eventually(!atomic_load(&stops));
    }
    return __real_wait_again(wait, busy, nested);
}

/* One client has the lock. Another one's contender waits for it, and behind that one, at home, a
 * waiter that tried while its owner had the lock. At the servers it is before the contender. */
struct scene {
    struct proxy *near;
    dlock_client *other, *client;
    dlock *others, *lock;
    dlock_hold *lost;
    dlock_cancel *cancel; /* of the contender */
    struct started theirs, contender, nested, behind;
};

/* loses: the waiter that is behind is not told of its key in time. */
static void scene_begin(struct scene *scene, struct dlock_options options, bool loses)
{
    const struct dlock_want nested = {.wait_ms = PATIENCE_MS, .owner_id = 7};
    *scene = (struct scene){.near = proxy_start_to(etcd_server_port(etcd)),
                            .other = client_here(lasting),
                            .cancel = dlock_cancel_new()};
    options.contenders = 1;
    scene->client = client_behind(scene->near, options);
    scene->others = lock_at(scene->other);
    scene->lock = lock_at(scene->client);
    scene->lost = acquired_by(scene->lock, 7);
    start(scene->others, waiting(PATIENCE_MS), &scene->theirs);
    eventually(places_at() == 2);
    start(scene->lock, (struct dlock_want){.wait_ms = PATIENCE_MS, .cancel = scene->cancel},
          &scene->contender);
    eventually(places_at() == 3);
    proxy_plan(scene->near, PROXY_HOLD_REQUEST, "/v3/kv/txn", NULL, 0);
    start(scene->lock, nested, &scene->nested); /* under way: the next one of its owner waits */
    eventually(proxy_done(scene->near));
    start(scene->lock, nested, &scene->behind);
    eventually(turns_of(scene->lock) == 1);
    delete_key_of(dlock_owner(scene->lost));
    started_answered(&scene->theirs);
    eventually(!dlock_valid(scene->lost));
    if (loses)
        proxy_plan(scene->near, PROXY_HOLD_REPLY, CREATE, NULL, 0);
    proxy_let_go(scene->near);
    started_answered(&scene->nested);
    eventually(places_at() == 3);
}

/* The waiter that was behind, and then the contender. */
static void scene_gets_it(struct scene *scene)
{
    assert_status(dlock_release(scene->theirs.hold, NULL), OK);
    started_answered(&scene->behind);
    assert_int_equal(scene->behind.status, DLOCK_OK);
    assert_int_equal(atomic_load(&scene->contender.answers), 0);
    assert_status(dlock_release(scene->behind.hold, NULL), OK);
    started_answered(&scene->contender);
    assert_status(dlock_release(scene->contender.hold, NULL), OK);
}

static void scene_end(struct scene *scene)
{
    assert_status(dlock_release(scene->lost, NULL), LOST);
    leave(scene->client, scene->lock);
    leave(scene->other, scene->others);
    proxy_free(scene->near);
    dlock_cancel_free(scene->cancel);
}

/* The contender's key is deleted by hand: it takes another place, the last one. */
static void scene_overtake(const struct scene *scene)
{
    char contends[NODE_MAX];
    pthread_mutex_lock(&scene->client->loop.mutex);
    strcpy(contends, TAILQ_FIRST(&scene->lock->queue.waits)->hold->owner);
    pthread_mutex_unlock(&scene->client->loop.mutex);
    delete_key_of(contends);
    eventually(places_at() == 3);
}

static void behind_at_home_and_first_at_the_servers(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, lasting, false);
    eventually(one_is_behind(scene.lock));
    scene_overtake(&scene);
    scene_gets_it(&scene);
    scene_end(&scene);
}

/* What it waits for has ended before it is behind, and after it was told of that. */
static void woken_on_the_way_to_behind(void **state)
{
    (void)state;
    struct scene scene;
    atomic_store(&stops, true);
    scene_begin(&scene, lasting, false);
    eventually(atomic_load(&has_stopped));
    scene_overtake(&scene);
    atomic_store(&stops, false);
    scene_gets_it(&scene);
    scene_end(&scene);
}

/* Whether it has a request of that kind; under way: something is sent for it. */
static bool asks_for(dlock_client *client, enum what what, bool under_way)
{
    struct etcd *in = inside(client);
    const struct request *request;
    bool found = false;
    pthread_mutex_lock(&in->base.mutex);
    TAILQ_FOREACH(request, &in->base.requests, of_session)
        found |= request->what == what && (request->in_flight > 0 || !under_way);
    pthread_mutex_unlock(&in->base.mutex);
    return found;
}

static bool lease_is_proven(dlock_client *client)
{
    struct session *session = session_of(client);
    pthread_mutex_lock(&session->mutex);
    bool is = session_valid_until(session) > boot_ns();
    pthread_mutex_unlock(&session->mutex);
    return is;
}

/* The waiter behind has left its place, which took long. The answer comes when its lease has ended,
 * and the waiter has the lock in the next one, under the same name. */
static void a_place_is_left_late(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, (struct dlock_options){.ttl_ms = 1000}, false);
    proxy_plan(scene.near, PROXY_HOLD_REPLY, DELETE, NULL, 0);
    eventually(proxy_done(scene.near));
    revoke_lease(etcd_lease(scene.client));
    dlock_cancel_now(scene.cancel);
    started_answered(&scene.contender);
    assert_status(dlock_release(scene.theirs.hold, NULL), OK);
    started_answered(&scene.behind);
    assert_int_equal(scene.behind.status, DLOCK_OK);
    proxy_let_go(scene.near);
    eventually(!asks_for(scene.client, LET_GO, false));
    assert_status(dlock_release(scene.behind.hold, NULL), OK);
    assert_int_equal(places_at(), 0);
    scene_end(&scene);
}

/* A waiter's turn has come, and the answer that says so took so long that its place is being left.
 * It gets another one. */
static void a_place_is_granted_while_it_is_left(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(etcd));
    struct proxy *near = proxy_start_to(proxy_port(far));
    struct started next = {0};
    dlock_client *other = client_here(lasting), *client = client_behind(near, lasting);
    dlock *others = lock_at(other), *lock = lock_at(client);
    dlock_hold *hold = acquired(others);
    start(lock, waiting(PATIENCE_MS), &next);
    eventually(is_watched(client, lock));
    proxy_plan(near, PROXY_HOLD_REPLY, "max_create_revision", NULL, 0);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(proxy_done(near));
    proxy_plan(far, PROXY_HOLD_REQUEST, DELETE, NULL, 0);
    sleep_for(client, 300);
    eventually(proxy_done(far) && lease_is_proven(client));
    proxy_let_go(near);
    eventually(!asks_for(client, ACQUIRE, true));
    proxy_let_go(far);
    eventually(!asks_for(client, LET_GO, false));
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_int_equal(places_at(), 1);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
    leave(other, others);
    wake_up();
    proxy_free(near);
    proxy_free(far);
}

/* A waiter's create was not answered in time, and then other waiters of its client are before it.
 * Its place is the first at the servers, and nothing tells it so: it leaves within a lease. */
static void a_place_that_is_not_known_is_left(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, brief, true);
    eventually(one_is_behind(scene.lock));
    proxy_let_go(scene.near);
    scene_overtake(&scene);
    assert_status(dlock_release(scene.theirs.hold, NULL), OK);
    eventually(places_at() == 2);
    sleep_for(scene.client, 70);
    started_answered(&scene.contender);
    assert_int_equal(scene.contender.status, DLOCK_OK);
    assert_status(dlock_release(scene.contender.hold, NULL), OK);
    started_answered(&scene.behind);
    assert_status(dlock_release(scene.behind.hold, NULL), OK);
    scene_end(&scene);
    wake_up();
}

/* Nor does a place stay that became the first when the lease was not proven, if its waiter is
 * behind others. */
static void a_place_that_is_not_proven_is_left(void **state)
{
    (void)state;
    struct scene scene;
    scene_begin(&scene, brief, false);
    eventually(one_is_behind(scene.lock));
    scene_overtake(&scene);
    eventually(!asks_for(scene.client, ACQUIRE, false));
    proxy_plan(scene.near, PROXY_HOLD_REQUEST, BEAT, NULL, 0);
    sleep_for(scene.client, 105);
    eventually(proxy_done(scene.near));
    proxy_plan(scene.near, PROXY_HOLD_REQUEST, BEAT, NULL, 0); /* the next one, if it is slow */
    delete_key_of(dlock_owner(scene.theirs.hold));
    eventually(asks_for(scene.client, ACQUIRE, false));
    eventually(!asks_for(scene.client, ACQUIRE, false));
    proxy_plan(scene.near, PROXY_CUT_REQUEST, "nobody says so", NULL, 0);
    proxy_let_go(scene.near);
    eventually(lease_is_proven(scene.client));
    sleep_for(scene.client, 70);
    started_answered(&scene.contender);
    assert_int_equal(scene.contender.status, DLOCK_OK);
    assert_status(dlock_release(scene.contender.hold, NULL), OK);
    started_answered(&scene.behind);
    assert_status(dlock_release(scene.behind.hold, NULL), OK);
    assert_status(dlock_release(scene.theirs.hold, NULL), LOST);
    scene_end(&scene);
    wake_up();
}

static int end_all(void **state)
{
    if (guarded_etcd != NULL)
        etcd_server_free(guarded_etcd);
    return tear_down(state);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_of_an_ended_lease),
        cmocka_unit_test(an_identity_of_an_ended_lease),
        cmocka_unit_test(a_lease_after_all_was_lost),
        cmocka_unit_test(two_leases_end),
        cmocka_unit_test(the_end_of_a_key_is_told_before_its_create),
        cmocka_unit_test(a_second_create_is_refused),
        cmocka_unit_test(a_refused_create_is_carried_out),
        cmocka_unit_test(a_refused_break_is_carried_out),
        cmocka_unit_test(a_break_looks_twice),
        cmocka_unit_test(a_token_is_refused_late),
        cmocka_unit_test(each_token_is_refused),
        cmocka_unit_test(a_token_with_a_line_break),
        cmocka_unit_test(a_grant_of_nothing),
        cmocka_unit_test(a_watch_is_cut),
        cmocka_unit_test(a_watch_is_cut_and_its_past_is_gone),
        cmocka_unit_test(its_servers_go_back),
        cmocka_unit_test(its_servers_go_back_and_on),
        cmocka_unit_test(its_waiter_is_forgotten),
        cmocka_unit_test(behind_at_home_and_first_at_the_servers),
        cmocka_unit_test(woken_on_the_way_to_behind),
        cmocka_unit_test(a_place_is_left_late),
        cmocka_unit_test(a_place_is_granted_while_it_is_left),
        cmocka_unit_test(a_place_that_is_not_known_is_left),
        cmocka_unit_test(a_place_that_is_not_proven_is_left),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd_late", tests, set_up, end_all);
}
