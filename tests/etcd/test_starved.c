/* SPDX-License-Identifier: Apache-2.0
 *
 * libdlock-etcd when something is used up, refused again and again, or silent: descriptors,
 * watches, a member, the servers' store. The lease must live on, and the end of a hold must be
 * noticed.
 */
#include "child.h"
#include "etcd_inside.h"
#include "etcd_stage.h"
#include "must.h"
#include "started.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#define LONG_MS 300000 /* a lease that is looked at too seldom to matter */
#define SHORT_MS 2000
#define BEATS 6 /* in a time to live */
#define BEAT "/v3/lease/keepalive"
#define REVOKE "/v3/lease/revoke"
#define PUT "/v3/kv/put"
#define READ "{\"success\":[{\"request_range\""
#define WATCH_PATH "/v3/watch"
#define FDS_MAX 1024
#define NOT_PERMITTED "{\"code\":7,\"message\":\"permission denied\"}"
#define NO_SPACE "{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}"

static const struct dlock_options lasting = {.ttl_ms = LONG_MS}, brief = {.ttl_ms = SHORT_MS};

/* Another answer to each request that contains the text; it does not reach the servers. */
static void answer_each(struct proxy *proxy, const char *text, const char *status, const char *body)
{
    char bytes[512];
    int size = snprintf(bytes, sizeof bytes, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
                        strlen(body), body);
    proxy_plan_each(proxy, PROXY_ANSWER, text, bytes, (size_t)size);
}

static void nothing_more(struct proxy *proxy)
{
    proxy_plan(proxy, PROXY_CUT_REQUEST, "nobody says so", NULL, 0);
}

static dlock_client *client_of_two(int first, int second, struct dlock_options options)
{
    char url[96];
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d,127.0.0.1:%d", first, second);
    dlock_client *client = client_at(url, options);
    inside(client)->endpoint = 0;
    return client;
}

static void open_many(dlock_client *client, dlock *locks[], int count)
{
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_status(dlock_open(client, NULL, name, &locks[i]), OK);
    }
}

static int64_t counts_ns_of(dlock_client *client)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    int64_t counts_ns = inside(client)->base.counts_ns;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return counts_ns;
}

static bool all_are_valid(dlock_hold *const holds[], int count)
{
    while (count > 0 && dlock_valid(holds[count - 1]))
        count--;
    return count == 0;
}

/* So many times to live pass, as far as proofs of the lease tell. */
static void outlive(dlock_client *client, dlock_hold *const holds[], int count, int64_t leases)
{
    const int64_t until_ns = counts_ns_of(client) + leases * SHORT_MS * NS_PER_MS;
    eventually(counts_ns_of(client) >= until_ns || !all_are_valid(holds, count));
    assert_true(all_are_valid(holds, count));
}

/* ---- Descriptors ----------------------------------------------------------------------------- */

static int highest_descriptor(void)
{
    int highest = 0;
    DIR *folder = opendir("/proc/self/fd");
    must(folder != NULL);
    for (const struct dirent *one; (one = readdir(folder)) != NULL;)
        highest = atoi(one->d_name) > highest ? atoi(one->d_name) : highest;
    closedir(folder);
    return highest;
}

/* Those that are open go on. */
struct used_up {
    struct rlimit limit;
    int fds[FDS_MAX], count;
};

static void use_up(struct used_up *used)
{
    *used = (struct used_up){0};
    must(getrlimit(RLIMIT_NOFILE, &used->limit) == 0);
    struct rlimit low = {(rlim_t)highest_descriptor() + 1, used->limit.rlim_max};
    must(setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (int fd; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0; used->fds[used->count++] = fd)
        must(used->count < FDS_MAX);
}

static void give_back(struct used_up *used)
{
    while (used->count > 0)
        close(used->fds[--used->count]);
    must(setrlimit(RLIMIT_NOFILE, &used->limit) == 0);
}

/* libcurl makes a multi handle all the same, which nothing can wake. */
static void no_descriptor_at_first(void **state)
{
    (void)state;
    struct used_up used;
    dlock_hold *none;
    dlock_client *client = client_here((struct dlock_options){.connect_timeout_ms = 300});
    dlock *lock = lock_at(client);
    use_up(&used);
    dlock_status status = tried(lock, &none);
    give_back(&used);
    assert_int_not_equal(status, DLOCK_OK);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(curl_multi_wakeup(inside(client)->multi), CURLM_OK);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* The lease has a connection, and watches find none: they must not take that one. */
static void no_descriptor_for_watches(void **state)
{
    enum { MANY = 4 };
    (void)state;
    struct used_up used;
    dlock *locks[MANY];
    dlock_hold *holds[MANY];
    dlock_client *client = client_here(brief);
    open_many(client, locks, MANY);
    assert_status(dlock_release(acquired(locks[0]), NULL), OK);
    use_up(&used);
    for (int i = 0; i < MANY; i++)
        holds[i] = acquired(locks[i]);
    outlive(client, holds, MANY, 2);
    give_back(&used);
    for (int i = 0; i < MANY; i++) {
        eventually(is_watched(client, locks[i]));
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    dlock_client_close(client);
}

/* ---- Watches --------------------------------------------------------------------------------- */

static int64_t busy_ns_of(dlock_client *client)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    int64_t busy_ns = inside(client)->busy_ns;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return busy_ns;
}

/* Each is answered: too many requests. Each one waits alone, for a second. */
static void too_many_watches(void **state)
{
    enum { MANY = 8 };
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock *locks[MANY];
    dlock_hold *holds[MANY];
    dlock_client *client = client_behind(proxy, brief);
    dlock *lock = lock_at(client);
    open_many(client, locks, MANY);
    answer_each(proxy, WATCH_PATH, "429 Too Many Requests", "slow down");
    int64_t begun_ms = clock_ms();
    for (int i = 0; i < MANY; i++)
        holds[i] = acquired(locks[i]);
    outlive(client, holds, MANY, 2);
    size_t watches = proxy_requests(proxy, WATCH_PATH);
    assert_in_range(watches, MANY, MANY * (size_t)(2 + (clock_ms() - begun_ms) / 1000));
    assert_int_equal(busy_ns_of(client), 0);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    nothing_more(proxy);
    for (int i = 0; i < MANY; i++) {
        eventually(is_watched(client, locks[i]));
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    leave(client, lock);
    proxy_free(proxy);
}

/* The hold's lease is renewed, and no watch tells of its end. */
static void broken_without_a_watch(struct proxy *proxy)
{
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *client = client_behind(proxy, brief);
    dlock_client *other = client_here(lasting);
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(lock);
    uint64_t lease = etcd_lease(client);
    eventually(proxy_done(proxy));
    assert_status(dlock_break(others, &holder), OK);
    assert_true(holder.held);
    size_t beats = proxy_requests(proxy, BEAT);
    eventually(!dlock_valid(hold));
    assert_in_range(proxy_requests(proxy, BEAT) - beats, 0, BEATS + 1);
    assert_int_equal(etcd_lease(client), lease);
    assert_status(dlock_release(hold, NULL), LOST);
    leave(client, lock);
    leave(other, others);
    proxy_free(proxy);
}

static void a_watch_is_silent(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    proxy_plan_each(proxy, PROXY_MUTE, WATCH_PATH, NULL, 0);
    broken_without_a_watch(proxy);
}

static void there_are_no_watches(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    answer_each(proxy, WATCH_PATH, "404 Not Found", "no such page");
    broken_without_a_watch(proxy);
}

/* A watch begins anew, and the key that is read then is refused once: it is read again. */
static void a_look_is_refused(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_behind(proxy, lasting);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    eventually(is_watched(client, lock));
    size_t reads = proxy_requests(proxy, READ);
    answer(proxy, READ, "403 Forbidden", NOT_PERMITTED);
    proxy_cut(proxy, WATCH_PATH);
    eventually(proxy_requests(proxy, READ) >= reads + 2);
    assert_true(proxy_done(proxy) && dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    proxy_free(proxy);
}

static int looks_of(dlock_client *client)
{
    struct etcd *in = inside(client);
    const struct request *request;
    int count = 0;
    pthread_mutex_lock(&in->base.mutex);
    TAILQ_FOREACH(request, &in->base.requests, of_session)
        count += request->what == WATCH;
    pthread_mutex_unlock(&in->base.mutex);
    return count;
}

/* All watches begin anew, and each hold is read. The reads hang, and hold no acquire back. */
static void many_holds_are_read(void **state)
{
    enum { MANY = 40, AT_ONCE = 8 };
    (void)state;
    struct proxy *proxy = proxy_start_to(etcd_server_port(etcd));
    dlock *locks[MANY];
    dlock_hold *holds[MANY], *hold;
    dlock_client *client =
        client_behind(proxy, (struct dlock_options){.ttl_ms = LONG_MS, .connect_timeout_ms = 3000});
    dlock *lock = lock_at(client);
    open_many(client, locks, MANY);
    for (int i = 0; i < MANY; i++)
        holds[i] = acquired(locks[i]);
    for (int i = 0; i < MANY; i++)
        eventually(is_watched(client, locks[i]));
    size_t reads = proxy_requests(proxy, READ);
    proxy_plan_each(proxy, PROXY_HOLD_REQUEST, READ, NULL, 0);
    proxy_cut(proxy, WATCH_PATH);
    eventually(looks_of(client) == MANY);
    assert_status(tried(lock, &hold), OK);
    assert_in_range(proxy_requests(proxy, READ) - reads, 1, AT_ONCE);
    nothing_more(proxy);
    proxy_let_go(proxy);
    eventually(looks_of(client) == 0);
    assert_status(dlock_release(hold, NULL), OK);
    for (int i = 0; i < MANY; i++) {
        assert_status(dlock_release(holds[i], NULL), OK);
        dlock_close(locks[i]);
    }
    leave(client, lock);
    proxy_free(proxy);
}

/* ---- Members --------------------------------------------------------------------------------- */

/* The first one falls silent: the keep-alive reaches the other one in time. */
static void a_member_is_silent(void **state)
{
    (void)state;
    struct proxy *first = proxy_start_to(etcd_server_port(etcd));
    struct proxy *second = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_of_two(proxy_port(first), proxy_port(second), brief);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    proxy_plan_each(first, PROXY_MUTE, "POST", NULL, 0);
    outlive(client, &hold, 1, 2);
    assert_true(proxy_done(first) && moves_of(client) > 0);
    assert_true(proxy_requests(second, BEAT) > 0);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    proxy_free(first);
    proxy_free(second);
}

/* The first one is silent when the client is closed. The time of that is over before a second one
 * would be asked. */
static void closed_in_its_time(void **state)
{
    (void)state;
    struct proxy *first = proxy_start_to(etcd_server_port(etcd));
    struct proxy *second = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_of_two(proxy_port(first), proxy_port(second), lasting);
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    pthread_mutex_lock(&inside(client)->base.mutex);
    inside(client)->endpoint = 0;
    client->options.connect_timeout_ms = client->options.command_timeout_ms = 100;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    proxy_plan_each(first, PROXY_MUTE, "POST", NULL, 0);
    leave(client, lock);
    assert_int_equal(proxy_requests(second, REVOKE), 0);
    proxy_free(first);
    proxy_free(second);
}

/* A release has hung at the first one, and took all the time of the close. The other one is asked
 * to revoke the lease, or the key would stay. */
static void closed_after_a_release_that_hung(void **state)
{
    (void)state;
    struct proxy *first = proxy_start_to(etcd_server_port(etcd));
    struct proxy *second = proxy_start_to(etcd_server_port(etcd));
    dlock_client *client = client_of_two(proxy_port(first), proxy_port(second), lasting);
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    pthread_mutex_lock(&inside(client)->base.mutex);
    client->options.connect_timeout_ms = client->options.command_timeout_ms = 300;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    proxy_plan_each(first, PROXY_HOLD_REQUEST, "POST", NULL, 0);
    assert_status(dlock_release(hold, NULL), UNKNOWN);
    leave(client, lock);
    eventually(proxy_requests(second, REVOKE) == 1);
    eventually(places_at() == 0);
    proxy_free(first);
    proxy_free(second);
}

/* A member was set up anew, and makes a cluster of its own. Nothing that it says counts. */
struct stranger {
    struct etcd_server *server;
    struct proxy *near, *far; /* the one before the servers, and the one before the stranger */
    dlock_client *client;
    dlock *lock, *other;
    dlock_hold *hold;
    uint64_t lease;
};

static void stranger_begin(struct stranger *stranger)
{
    stranger->server = etcd_server_start(NULL);
    stranger->near = proxy_start_to(etcd_server_port(etcd));
    stranger->far = proxy_start_to(etcd_server_port(stranger->server));
    stranger->client =
        client_of_two(proxy_port(stranger->near), proxy_port(stranger->far), lasting);
    stranger->lock = lock_at(stranger->client);
    assert_status(dlock_open(stranger->client, NULL, "other", &stranger->other), OK);
    stranger->hold = acquired(stranger->lock);
    stranger->lease = etcd_lease(stranger->client);
}

/* There is nothing of the client's, and the hold is as it was. */
static void stranger_end(struct stranger *stranger)
{
    const char *said = etcd_server_ask(stranger->server, "/v3/kv/range",
                                       "{\"key\":\"%s\",\"range_end\":\"%s\",\"count_only\":true}",
                                       base64("/"), base64("0"));
    assert_null(strstr(said, "\"count\""));
    said = etcd_server_ask(stranger->server, "/v3/lease/leases", "{}");
    assert_null(strstr(said, "\"ID\""));
    assert_int_equal(etcd_lease(stranger->client), stranger->lease);
    assert_status(dlock_release(stranger->hold, NULL), OK);
    dlock_close(stranger->other);
    leave(stranger->client, stranger->lock);
    proxy_free(stranger->near);
    proxy_free(stranger->far);
    etcd_server_free(stranger->server);
}

/* The others are away for a while. */
static void a_member_of_another_cluster(void **state)
{
    (void)state;
    struct stranger stranger;
    struct started waits = {0};
    stranger_begin(&stranger);
    etcd_server_pause(etcd);
    start(stranger.other, waiting(PATIENCE_MS), &waits);
    eventually(proxy_requests(stranger.far, BEAT) > 0);
    etcd_server_resume(etcd);
    started_answered(&waits);
    assert_int_equal(waits.status, DLOCK_OK);
    assert_status(dlock_release(waits.hold, NULL), OK);
    stranger_end(&stranger);
}

/* The own key is to be written there, and it refuses that: it has no such lease. */
static void it_does_not_know_the_lease(void **state)
{
    (void)state;
    struct stranger stranger;
    stranger_begin(&stranger);
    proxy_plan(stranger.near, PROXY_CUT_REPLY, CREATE, NULL, 0);
    dlock_hold *hold = acquired(stranger.other);
    assert_true(proxy_done(stranger.near));
    assert_true(proxy_requests(stranger.far, PUT) > 0);
    assert_status(dlock_release(hold, NULL), OK);
    stranger_end(&stranger);
}

/* All members of the URL are of another cluster from then on, as after a restore. */
static void another_cluster_takes_its_place(void **state)
{
    (void)state;
    struct etcd_server *server = etcd_server_start(NULL);
    dlock_client *client =
        client_at(etcd_server_url(server), (struct dlock_options){.ttl_ms = 2000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    etcd_server_replace(server);
    eventually(!dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    etcd_server_free(server);
}

static size_t member_of(dlock_client *client)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    size_t member = inside(client)->endpoint;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return member;
}

/* A waiter's watch begins anew there. It would tell of another cluster's changes, and no request
 * follows that would show it. */
static void a_watch_of_another_cluster(void **state)
{
    (void)state;
    struct stranger stranger;
    struct started waits = {0};
    dlock *theirs;
    dlock_client *client = client_here(lasting);
    assert_status(dlock_open(client, NULL, "other", &theirs), OK);
    dlock_hold *hold = acquired(theirs);
    stranger_begin(&stranger);
    assert_status(dlock_release(stranger.hold, NULL), OK);
    start(stranger.other, waiting(PATIENCE_MS), &waits);
    eventually(is_watched(stranger.client, stranger.other));
    pthread_mutex_lock(&inside(stranger.client)->base.mutex);
    inside(stranger.client)->endpoint = 1;
    pthread_mutex_unlock(&inside(stranger.client)->base.mutex);
    proxy_cut(stranger.near, WATCH_PATH);
    eventually(proxy_requests(stranger.far, WATCH_PATH) > 0);
    eventually(member_of(stranger.client) == 0 && is_watched(stranger.client, stranger.other));
    assert_status(dlock_release(hold, NULL), OK);
    started_answered(&waits);
    assert_status(dlock_release(waits.hold, NULL), OK);
    stranger.hold = acquired(stranger.lock);
    stranger_end(&stranger);
    leave(client, theirs);
}

/* ---- A full store ---------------------------------------------------------------------------- */

/* The near proxy refuses the own key, as soon as it was written once. */
struct full {
    struct proxy *near, *far;
    dlock_client *client;
    dlock *lock;
};

static void full_begin(struct full *full)
{
    full->far = proxy_start_to(etcd_server_port(etcd));
    full->near = proxy_start_to(proxy_port(full->far));
    full->client = client_behind(full->near, lasting);
    full->lock = lock_at(full->client);
    assert_status(dlock_release(acquired(full->lock), NULL), OK);
    answer_each(full->near, PUT, "429 Too Many Requests", NO_SPACE);
}

static void full_end(struct full *full)
{
    nothing_more(full->near);
    assert_status(dlock_release(acquired(full->lock), NULL), OK);
    leave(full->client, full->lock);
    proxy_free(full->near);
    proxy_free(full->far);
}

/* The answer to the create was lost. Its key must not be in front of others. */
static void full_after_a_create(void **state)
{
    (void)state;
    struct full full;
    struct started waits = {0};
    dlock_hold *none;
    dlock_client *other = client_here(lasting);
    dlock *others = lock_at(other);
    full_begin(&full);
    proxy_plan(full.far, PROXY_CUT_REPLY, CREATE, NULL, 0);
    assert_int_not_equal(tried(full.lock, &none), DLOCK_OK);
    assert_true(proxy_done(full.far) && proxy_done(full.near));
    start(others, waiting(PATIENCE_MS), &waits);
    started_answered(&waits);
    assert_int_equal(waits.status, DLOCK_OK);
    assert_status(dlock_release(waits.hold, NULL), OK);
    full_end(&full);
    assert_int_equal(places_at(), 0);
    leave(other, others);
}

static bool is_idle(dlock_client *client)
{
    struct etcd *in = inside(client);
    pthread_mutex_lock(&in->base.mutex);
    bool idle = in->flying_count == 0 && TAILQ_EMPTY(&in->waiting);
    pthread_mutex_unlock(&in->base.mutex);
    return idle;
}

/* The create comes after the delete, which found nothing: the key is deleted again. */
static void full_before_a_create(void **state)
{
    (void)state;
    struct full full;
    dlock_hold *none;
    full_begin(&full);
    size_t deletes = proxy_requests(full.near, DELETE);
    proxy_plan(full.far, PROXY_DELAY_REQUEST, CREATE, NULL, 0);
    assert_int_not_equal(tried(full.lock, &none), DLOCK_OK);
    assert_true(proxy_done(full.far) && proxy_done(full.near));
    eventually(proxy_requests(full.near, DELETE) > deletes && is_idle(full.client));
    uint64_t revision = revision_now();
    proxy_let_go_and_hear(full.far);
    eventually(revision_now() >= revision + 2); /* of the create, and of a delete */
    assert_int_equal(places_at(), 0);
    full_end(&full);
}

static bool is_proof_awaited(dlock_client *client)
{
    struct etcd *in = inside(client);
    const struct request *request;
    bool found = false;
    pthread_mutex_lock(&in->base.mutex);
    TAILQ_FOREACH(request, &in->base.requests, of_session)
        found |= request->what == EXTEND && request->first;
    pthread_mutex_unlock(&in->base.mutex);
    return found;
}

static void *extend(void *arg)
{
    struct started *started = arg;
    started->status = dlock_extend(started->hold);
    return NULL;
}

/* An extension does not need the own key: it goes on while that is refused. */
static void full_while_a_hold_is_extended(void **state)
{
    (void)state;
    struct full full;
    dlock_hold *none;
    dlock *other;
    full_begin(&full);
    assert_status(dlock_open(full.client, NULL, "other", &other), OK);
    struct started extends = {.hold = acquired(full.lock)};
    proxy_plan(full.far, PROXY_HOLD_REQUEST, BEAT, NULL, 0);
    pthread_t thread = thread_start(extend, &extends);
    eventually(proxy_done(full.far) && is_proof_awaited(full.client));
    pthread_mutex_lock(&inside(full.client)->base.mutex);
    inside(full.client)->guard = 0; /* as if an answer to a create was lost */
    pthread_mutex_unlock(&inside(full.client)->base.mutex);
    assert_status(tried(other, &none), REFUSED);
    assert_true(proxy_done(full.near));
    proxy_let_go(full.far);
    thread_wait(thread);
    assert_int_equal(extends.status, DLOCK_OK);
    assert_status(dlock_release(extends.hold, NULL), OK);
    dlock_close(other);
    full_end(&full);
}

static int acquires_of(dlock_client *client)
{
    struct etcd *in = inside(client);
    const struct request *request;
    int count = 0;
    pthread_mutex_lock(&in->base.mutex);
    TAILQ_FOREACH(request, &in->base.requests, of_session)
        count += request->what == ACQUIRE;
    pthread_mutex_unlock(&in->base.mutex);
    return count;
}

/* A nested acquire waits for a connection when the own key is refused. It does not need that. */
static void full_while_a_nested_one_waits(void **state)
{
    (void)state;
    struct full full;
    struct started nested = {0}, waits = {0};
    dlock *other;
    full_begin(&full);
    struct proxy *nearest = proxy_start_to(proxy_port(full.near));
    dlock_client *client = client_behind(nearest, lasting);
    dlock *lock = lock_at(client);
    nothing_more(full.near);
    dlock_hold *outer = acquired_by(lock, 7);
    assert_status(dlock_open(client, NULL, "other", &other), OK);
    answer_each(full.far, PUT, "429 Too Many Requests", NO_SPACE);
    proxy_plan(full.near, PROXY_HOLD_REQUEST, PUT, NULL, 0);
    proxy_plan(nearest, PROXY_HOLD_REQUEST, BEAT, NULL, 0);
    pthread_mutex_lock(&inside(client)->base.mutex);
    inside(client)->guard = 0; /* as if an answer to a create was lost */
    pthread_mutex_unlock(&inside(client)->base.mutex);
    start(other, (struct dlock_want){0}, &waits);
    eventually(proxy_done(full.near));
    pthread_mutex_lock(&inside(client)->base.mutex);
    inside(client)->base.connected = false; /* as if its member had failed */
    session_look(&inside(client)->base);
    session_unlock(&inside(client)->base);
    eventually(proxy_done(nearest));
    start(lock, (struct dlock_want){.owner_id = 7}, &nested);
    eventually(acquires_of(client) == 2);
    proxy_let_go(full.near);
    started_answered(&waits);
    assert_int_equal(waits.status, DLOCK_REFUSED);
    proxy_let_go(nearest);
    started_answered(&nested);
    assert_int_equal(nested.status, DLOCK_OK);
    nothing_more(full.far);
    assert_status(dlock_release(nested.hold, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    dlock_close(other);
    leave(client, lock);
    proxy_free(nearest);
    full_end(&full);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static size_t failures_of(dlock_client *client)
{
    pthread_mutex_lock(&inside(client)->base.mutex);
    size_t failures = inside(client)->failures;
    pthread_mutex_unlock(&inside(client)->base.mutex);
    return failures;
}

/* The client asks another member by then: it is not left. A member that is asked is left. */
static void a_member_refuses_late(void **state)
{
    (void)state;
    struct proxy *far = proxy_start_to(etcd_server_port(etcd));
    struct proxy *near = proxy_start_to(proxy_port(far));
    struct proxy *second = proxy_start_to(etcd_server_port(etcd));
    dlock *other;
    dlock_client *client = client_of_two(proxy_port(near), proxy_port(second), lasting);
    dlock *lock = lock_at(client);
    assert_status(dlock_open(client, NULL, "other", &other), OK);
    struct started extends = {.hold = acquired(lock)};
    answer_each(far, BEAT, "403 Forbidden", NOT_PERMITTED);
    proxy_plan(near, PROXY_HOLD_REQUEST, BEAT, NULL, 0);
    pthread_t thread = thread_start(extend, &extends);
    eventually(proxy_done(near));
    proxy_plan(near, PROXY_CUT_REQUEST, CREATE, NULL, 0);
    assert_status(dlock_release(acquired(other), NULL), OK);
    assert_true(proxy_done(near) && member_of(client) == 1);
    proxy_let_go(near);
    thread_wait(thread);
    assert_int_equal(extends.status, DLOCK_REFUSED);
    assert_int_equal(member_of(client), 1);
    assert_int_equal(moves_of(client), 1);
    answer_each(second, BEAT, "403 Forbidden", NOT_PERMITTED);
    assert_status(dlock_extend(extends.hold), REFUSED);
    assert_int_equal(member_of(client), 0);
    assert_int_equal(moves_of(client), 2);
    assert_int_equal(failures_of(client), 0);
    nothing_more(far);
    nothing_more(second);
    assert_status(dlock_extend(extends.hold), OK);
    assert_status(dlock_release(extends.hold, NULL), OK);
    dlock_close(other);
    leave(client, lock);
    proxy_free(near);
    proxy_free(far);
    proxy_free(second);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_descriptor_at_first),
        cmocka_unit_test(no_descriptor_for_watches),
        cmocka_unit_test(too_many_watches),
        cmocka_unit_test(a_watch_is_silent),
        cmocka_unit_test(there_are_no_watches),
        cmocka_unit_test(a_look_is_refused),
        cmocka_unit_test(many_holds_are_read),
        cmocka_unit_test(a_member_is_silent),
        cmocka_unit_test(closed_in_its_time),
        cmocka_unit_test(closed_after_a_release_that_hung),
        cmocka_unit_test(a_member_of_another_cluster),
        cmocka_unit_test(it_does_not_know_the_lease),
        cmocka_unit_test(a_watch_of_another_cluster),
        cmocka_unit_test(another_cluster_takes_its_place),
        cmocka_unit_test(full_after_a_create),
        cmocka_unit_test(full_before_a_create),
        cmocka_unit_test(full_while_a_hold_is_extended),
        cmocka_unit_test(full_while_a_nested_one_waits),
        cmocka_unit_test(a_member_refuses_late),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("etcd_starved", tests, set_up, tear_down);
}
