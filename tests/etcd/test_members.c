/* SPDX-License-Identifier: Apache-2.0
 *
 * libdlock-etcd, and the members of the cluster that it asks: which one first, what becomes of
 * those that are silent, and what it says of them. One etcd stands for all members.
 */
#include "child.h"
#include "etcd_inside.h"
#include "etcd_stage.h"
#include "hole.h"
#include "must.h"
#include "record.h"
#include "server.h"
#include "started.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>

#define CONNECT_MS 3000 /* less than a member is waited for otherwise */
#define REVOKE "/v3/lease/revoke"
#define BEAT "/v3/lease/keepalive"
#define PROOF "/v3/kv/range"

/* Of two members, with these ports. The first one is asked first. */
static dlock_client *client_of_two(int first, int second, struct dlock_options options)
{
    char url[96];
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d,127.0.0.1:%d", first, second);
    dlock_client *client = client_at(url, options);
    inside(client)->endpoint = 0;
    return client;
}

static void not_all_begin_with_the_first(void **state)
{
    (void)state;
    int first = 0;
    for (int i = 0; i < 64; i++) {
        dlock_client *client =
            client_at("etcd://127.0.0.1:1,127.0.0.1:2", (struct dlock_options){0});
        first += inside(client)->endpoint == 0;
        dlock_client_close(client);
    }
    assert_in_range(first, 1, 63);
}

/* ---- Silent members -------------------------------------------------------------------------- */

/* The other one is asked within connect_timeout_ms. */
static void connects_past(int port)
{
    dlock_hold *hold;
    dlock_client *client = client_of_two(port, etcd_server_port(etcd),
                                         (struct dlock_options){.connect_timeout_ms = CONNECT_MS});
    dlock *lock = lock_at(client);
    assert_status(tried(lock, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* The first breaks the connection, and the second takes none: it is given up after
 * connect_timeout_ms, sooner than a request would be. */
static void the_next_drops_packets(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    struct hole hole;
    char url[96];
    dlock_hold *hold;
    hole_make(&hole);
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", proxy_port(proxy),
             hole.port, etcd_server_port(etcd));
    dlock_client *client = client_at(
        url, (struct dlock_options){.connect_timeout_ms = 300, .command_timeout_ms = 2000});
    inside(client)->endpoint = 0;
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    proxy_plan(proxy, PROXY_CUT_REQUEST, CREATE, NULL, 0);
    assert_status(tried(lock, &hold), OK);
    assert_true(proxy_done(proxy));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    hole_free(&hole);
    proxy_free(proxy);
}

/* All are stopped. To ask one after the other takes long; the first request without an answer tells
 * of it, and the first answer takes it back. */
static void a_hang_is_told(void **state)
{
    (void)state;
    struct record *record = record_new();
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_hold *none;
    dlock_client *client = client_of_two(etcd_server_port(etcd), proxy_port(proxy),
                                         (struct dlock_options){.connect_timeout_ms = 500,
                                                                .command_timeout_ms = 200,
                                                                .on_event = record_event,
                                                                .on_event_arg = record});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    etcd_server_pause(etcd);
    record_clear(record);
    assert_status(tried_by(lock, 8, &none), UNKNOWN);
    eventually(record_count(record, "a request was not answered in time") > 0);
    etcd_server_resume(etcd);
    eventually(record_count(record, "SERVER_BACK") > 0);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    leave(client, lock);
    proxy_free(proxy);
    record_free(record);
}

/* It was stopped: its kernel accepts connections. */
static int frozen_at(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, 128) == 0);
    must(getsockname(fd, (struct sockaddr *)&address, &size) == 0);
    *port = ntohs(address.sin_port);
    return fd;
}

static void the_first_is_frozen(void **state)
{
    int port, fd = frozen_at(&port);
    (void)state;
    connects_past(port);
    close(fd);
}

/* The lease would live on: the other member is asked to revoke it. */
static void a_member_does_not_revoke(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client =
        client_of_two(proxy_port(proxy), etcd_server_port(etcd), (struct dlock_options){0});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    uint64_t lease = etcd_lease(client);
    proxy_plan(proxy, PROXY_CUT_REQUEST, REVOKE, NULL, 0);
    leave(client, lock);
    assert_true(proxy_done(proxy));
    const char *said = etcd_server_ask(etcd, "/v3/lease/timetolive", "{\"ID\":\"%llu\"}",
                                       (unsigned long long)lease);
    assert_says(said, "\"TTL\":\"-1\"");
    proxy_free(proxy);
}

/* ---- Keep-alives that prove nothing ---------------------------------------------------------- */

/* The next regular one comes so late that no call waits for it. */
static const struct dlock_options hourly = {.ttl_ms = 3600000};

/* Its keep-alive is lost: the other member is asked at once. */
static void extended_at_the_other_member(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_of_two(proxy_port(proxy), etcd_server_port(etcd), hourly);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    proxy_plan(proxy, PROXY_CUT_REQUEST, BEAT, NULL, 0);
    assert_status(dlock_extend(hold), OK);
    assert_true(proxy_done(proxy) && moves_of(client) == 1);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    proxy_free(proxy);
}

/* There was an election between the keep-alive and what was to prove it. */
static void extended_after_an_election(void **state)
{
    (void)state;
    char said[160];
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, hourly);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    snprintf(said, sizeof said,
             "{\"header\":{\"member_id\":\"1\",\"raft_term\":\"99\",\"revision\":\"%llu\"}}",
             (unsigned long long)revision_now());
    answer(proxy, PROOF, "200 OK", said);
    assert_status(dlock_extend(hold), OK);
    assert_true(proxy_done(proxy));
    assert_int_equal(proxy_requests(proxy, BEAT), 2);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    proxy_free(proxy);
}

/* Other people than the application's read it. */
static void no_address_is_said(void **state)
{
    (void)state;
    struct dlock_hold *none;
    dlock_client *client = client_of_two(NOBODYS_PORT, NOBODYS_PORT,
                                         (struct dlock_options){.connect_timeout_ms = 200});
    dlock *lock = lock_at(client);
    assert_status(tried(lock, &none), UNREACHABLE);
    const char *why = strstr(dlock_error(), "could not be connected to: server ");
    assert_non_null(why);
    assert_null(strstr(why, "127.0.0.1"));
    assert_says(why, " of 2: ");
    leave(client, lock);
}

/* ---- What runs out --------------------------------------------------------------------------- */

static int descriptors_used(void)
{
    int highest = 0;
    DIR *folder = opendir("/proc/self/fd");
    must(folder != NULL);
    for (const struct dirent *one; (one = readdir(folder)) != NULL;)
        highest = atoi(one->d_name) > highest ? atoi(one->d_name) : highest;
    closedir(folder);
    return highest + 1;
}

/* That is said, and not that the server cannot be connected to. */
static void no_descriptor_is_left(void **state)
{
    (void)state;
    struct rlimit limit, low;
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){.connect_timeout_ms = 300});
    dlock *lock = lock_at(client);
    must(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    pthread_mutex_lock(&inside(client)->base.mutex); /* what the thread needs it has */
    must(etcd_start(&inside(client)->base));
    pthread_mutex_unlock(&inside(client)->base.mutex);
    low = (struct rlimit){.rlim_max = limit.rlim_max};
    must(setrlimit(RLIMIT_NOFILE, &low) == 0);
    assert_status(tried(lock, &none), UNREACHABLE);
    must(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    assert_says(dlock_error(), ": no descriptor is left");
    assert_status(dlock_release(acquired(lock), NULL), OK);
    leave(client, lock);
}

/* A program that this process starts could speak with the server in its name. */
static void no_descriptor_is_inherited(void **state)
{
    (void)state;
    int sockets = 0;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    for (int i = 0, used = descriptors_used(); i < used; i++) {
        struct sockaddr_in peer;
        socklen_t size = sizeof peer;
        if (getpeername(i, (struct sockaddr *)&peer, &size) != 0 || peer.sin_family != AF_INET ||
            ntohs(peer.sin_port) != etcd_server_port(etcd))
            continue;
        assert_true(fcntl(i, F_GETFD) & FD_CLOEXEC);
        sockets++;
    }
    assert_true(sockets > 0);
    leave(client, lock);
}

/* ---- Many requests --------------------------------------------------------------------------- */

static void *extend(void *arg)
{
    must(dlock_extend(arg) == DLOCK_OK);
    return NULL;
}

static void ask_member(dlock_client *client, size_t member)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    inside(client)->endpoint = member;
    pthread_mutex_unlock(&inside(client)->base.mutex);
}

static void open_many(dlock_client *client, dlock *locks[], int count)
{
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_status(dlock_open(client, NULL, name, &locks[i]), OK);
    }
}

/* While as many requests are under way as may be, and more wait, the lease is kept alive. */
static void a_keep_alive_overtakes(void **state)
{
    enum { CROWD = 100, UNDER_WAY = 32 };
    (void)state;
    _Atomic int over = 0;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *locks[CROWD];
    struct started *crowd = crowd_new(CROWD, true, &over);
    open_many(client, locks, CROWD);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    size_t creates = proxy_requests(proxy, CREATE), beats = proxy_requests(proxy, BEAT);
    etcd_server_pause(etcd);
    for (int i = 0; i < CROWD; i++)
        start(locks[i], waiting(PATIENCE_MS), &crowd[i]);
    eventually(proxy_requests(proxy, CREATE) - creates == UNDER_WAY);
    pthread_t thread = thread_start(extend, hold);
    eventually(proxy_requests(proxy, BEAT) > beats);
    assert_int_equal(proxy_requests(proxy, CREATE) - creates, UNDER_WAY);
    etcd_server_resume(etcd);
    thread_wait(thread);
    eventually(atomic_load(&over) == CROWD);
    crowd_answered(crowd, CROWD, DLOCK_OK);
    free(crowd);
    assert_status(dlock_release(hold, NULL), OK);
    for (int i = 0; i < CROWD; i++)
        dlock_close(locks[i]);
    leave(client, lock);
    proxy_free(proxy);
}

/* As many requests as may be are under way at a member that hangs. The keep-alive fails there, and
 * what an extension asks goes to the other member at once: it ends sooner than they do. */
static void stuck_at_the_member_that_was_left(void **state)
{
    enum { STUCK = 32 };
    int port, fd = frozen_at(&port);
    (void)state;
    _Atomic int over = 0;
    struct proxy *proxy = proxy_start_to(port);
    dlock_client *client = client_of_two(
        proxy_port(proxy), etcd_server_port(etcd),
        (struct dlock_options){.connect_timeout_ms = CONNECT_MS, .command_timeout_ms = CONNECT_MS});
    dlock *locks[STUCK], *lock = lock_at(client);
    struct started *crowd = crowd_new(STUCK, true, &over);
    ask_member(client, 1);
    dlock_hold *hold = acquired(lock);
    ask_member(client, 0);
    open_many(client, locks, STUCK);
    for (int i = 0; i < STUCK; i++)
        start(locks[i], waiting(PATIENCE_MS), &crowd[i]);
    eventually(proxy_requests(proxy, CREATE) == STUCK);
    pthread_t thread = thread_start(extend, hold);
    eventually(proxy_requests(proxy, BEAT) == 1);
    proxy_cut(proxy, BEAT);
    thread_wait(thread);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == STUCK);
    crowd_answered(crowd, STUCK, DLOCK_OK);
    free(crowd);
    for (int i = 0; i < STUCK; i++)
        dlock_close(locks[i]);
    leave(client, lock);
    proxy_free(proxy);
    close(fd);
}

/* It is the one that is asked next, too, and none of its requests counts twice. */
static void the_only_member_fails(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    for (int i = 0; i < 3; i++) {
        proxy_plan(proxy, PROXY_CUT_REPLY, CREATE, NULL, 0);
        assert_status(dlock_release(acquired(lock), NULL), OK);
        assert_true(proxy_done(proxy));
    }
    pthread_mutex_lock(&inside(client)->base.mutex);
    size_t here = inside(client)->here_count, flying = inside(client)->flying_count;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    assert_int_equal(here, flying);
    leave(client, lock);
    proxy_free(proxy);
}

/* Each watch has a connection. Requests go on over one that is kept. */
static void many_watches(void **state)
{
    enum { WATCHES = 70, PAIRS = 10 };
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 300000});
    dlock *locks[WATCHES], *lock = lock_at(client);
    dlock_hold *holds[WATCHES];
    for (int i = 0; i < WATCHES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_status(dlock_open(client, NULL, name, &locks[i]), OK);
        holds[i] = acquired(locks[i]);
    }
    for (int i = 0; i < WATCHES; i++)
        eventually(is_watched(client, locks[i]));
    uint64_t connects = stats_of(client).connects;
    for (int i = 0; i < PAIRS; i++)
        assert_status(dlock_release(acquired(lock), NULL), OK);
    assert_in_range(stats_of(client).connects - connects, 0, PAIRS);
    for (int i = 0; i < WATCHES; i++) {
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    leave(client, lock);
}

/* ---- While curl works ------------------------------------------------------------------------ */

/* Once this client has had a request, and has none any more, curl is stopped. */
static struct etcd *_Atomic observed;
static _Atomic bool had_one, has_stopped;
static _Atomic int latest_ms = -1;

static bool has_requests(struct etcd *in)
{
    pthread_mutex_lock(&in->base.mutex);
    bool has = !TAILQ_EMPTY(&in->base.requests);
    pthread_mutex_unlock(&in->base.mutex);
    return has;
}

CURLMcode __real_curl_multi_perform(CURLM *multi, int *running);
CURLMcode __wrap_curl_multi_perform(CURLM *multi, int *running);
CURLMcode __real_curl_multi_poll(CURLM *multi, struct curl_waitfd *more, unsigned count,
                                 int timeout_ms, int *ready);
CURLMcode __wrap_curl_multi_poll(CURLM *multi, struct curl_waitfd *more, unsigned count,
                                 int timeout_ms, int *ready);

CURLMcode __wrap_curl_multi_perform(CURLM *multi, int *running)
{
    struct etcd *in = atomic_load(&observed);
    if (in != NULL && has_requests(in)) {
        atomic_store(&had_one, true);
    } else if (in != NULL && atomic_load(&had_one)) {
        atomic_store(&has_stopped, true);
        eventually(atomic_load(&observed) == NULL);
    }
    return __real_curl_multi_perform(multi, running);
}

CURLMcode __wrap_curl_multi_poll(CURLM *multi, struct curl_waitfd *more, unsigned count,
                                 int timeout_ms, int *ready)
{
    atomic_store(&latest_ms, timeout_ms);
    return __real_curl_multi_poll(multi, more, count, timeout_ms, ready);
}

static void stop_curl(dlock_client *client)
{
    atomic_store(&had_one, false);
    atomic_store(&has_stopped, false);
    atomic_store(&observed, inside(client));
}

/* What begins meanwhile is not overslept, although nothing can be sent for it yet. */
static void asked_while_curl_works(void **state)
{
    enum { LIMIT_MS = 300 };
    int port, fd = frozen_at(&port);
    struct started first = {0}, second = {0};
    char url[64];
    (void)state;
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d", port);
    dlock_client *client = client_at(url, (struct dlock_options){.connect_timeout_ms = LIMIT_MS});
    dlock *lock = lock_at(client);
    stop_curl(client);
    start(lock, waiting(0), &first);
    eventually(atomic_load(&has_stopped)); /* just after its end, as far as it had looked ahead */
    start(lock, waiting(0), &second);
    eventually(has_requests(inside(client)));
    atomic_store(&latest_ms, -1);
    atomic_store(&observed, NULL);
    eventually(atomic_load(&latest_ms) >= 0);
    assert_in_range(atomic_load(&latest_ms), 0, LIMIT_MS + 1);
    started_answered(&first);
    started_answered(&second);
    leave(client, lock);
    close(fd);
}

/* What begins meanwhile is not sent any more when its call has ended. */
static void not_sent_in_time(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    struct started once = {0};
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 300000,
                                                                       .connect_timeout_ms = 500,
                                                                       .command_timeout_ms = 500});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    stop_curl(client);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&has_stopped));
    size_t creates = proxy_requests(proxy, CREATE), deletes = proxy_requests(proxy, DELETE);
    int64_t until_ms = clock_ms() + bound_ms(client);
    start(lock, waiting(0), &once);
    eventually(clock_ms() > until_ms + 1 && has_requests(inside(client)));
    atomic_store(&observed, NULL);
    started_answered(&once);
    assert_int_equal(once.status, DLOCK_UNREACHABLE);
    eventually(kept_in_the_background(client) == 0);
    assert_int_equal(proxy_requests(proxy, CREATE), creates);
    assert_int_equal(proxy_requests(proxy, DELETE), deletes); /* there is nothing to delete */
    leave(client, lock);
    proxy_free(proxy);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(not_all_begin_with_the_first),
        cmocka_unit_test(the_next_drops_packets),
        cmocka_unit_test(a_hang_is_told),
        cmocka_unit_test(the_first_is_frozen),
        cmocka_unit_test(a_member_does_not_revoke),
        cmocka_unit_test(extended_at_the_other_member),
        cmocka_unit_test(extended_after_an_election),
        cmocka_unit_test(no_address_is_said),
        cmocka_unit_test(no_descriptor_is_left),
        cmocka_unit_test(no_descriptor_is_inherited),
        cmocka_unit_test(a_keep_alive_overtakes),
        cmocka_unit_test(stuck_at_the_member_that_was_left),
        cmocka_unit_test(the_only_member_fails),
        cmocka_unit_test(many_watches),
        cmocka_unit_test(asked_while_curl_works),
        cmocka_unit_test(not_sent_in_time),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd_members", tests, set_up, tear_down);
}
