/* SPDX-License-Identifier: Apache-2.0
 *
 * Servers that are away, hang, moved or refuse: waiters are told, no server is hammered, and all
 * works again once it is back. Host names ending in ".test" are found by this file.
 */
#include "calls.h"
#include "redis_engine.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "record.h"
#include "started.h"
#include "waiter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOCK "lock:{outage}"
#define CROWD 2000
#define CROWD_MS 2000
#define CONNECTS_PER_S 50

/* A client whose events are recorded. */
struct stage {
    struct record *events;
    struct record *trace;
    dlock_client *client;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung, const char *url,
                      struct dlock_options options)
{
    server_text(server, "FLUSHALL");
    *stage = (struct stage){.events = record_new(), .trace = record_new()};
    options.on_event = record_event;
    options.on_event_arg = stage->events;
    options.on_trace = record_trace;
    options.on_trace_arg = stage->trace;
    stage->client = client_of(url, options);
    stage->lock = lock_of(stage->client, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->events);
    record_free(stage->trace);
}

static void works(struct stage *stage)
{
    assert_status(dlock_release(acquired(stage->lock), NULL), OK);
}

static dlock_status within(dlock *lock, int64_t wait_ms)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = wait_ms};
    dlock_status status = dlock_acquire(lock, &want, &hold);
    if (status == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    return status;
}

static void nobodys_url(char url[64])
{
    snprintf(url, 64, "redis://127.0.0.1:%d", NOBODYS_PORT);
}

/* ---- Nobody is hammered ---------------------------------------------------------------------- */

/* How many connects a client may have tried since then; as many more as it has connections. */
static uint64_t allowed(int64_t since_ms, uint64_t connections)
{
    return (uint64_t)(clock_ms() - since_ms) * CONNECTS_PER_S / 1000 + connections;
}

static _Atomic size_t answers[DLOCK_FORKED + 1];

static void count_answer(void *arg, dlock_status status, dlock_hold *hold)
{
    (void)arg, (void)hold;
    atomic_fetch_add(&answers[status], 1);
}

/* Half of them at one lock, the others at a lock each. */
static void a_crowd_at_a_closed_port(void **state)
{
    static const char *const rungs[] = {"watchdog", "notify", "fair"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct stage stage;
        char url[64];
        static dlock *locks[CROWD];
        struct dlock_want want = {.size = sizeof want, .wait_ms = CROWD_MS};
        nobodys_url(url);
        stage_set(&stage, rungs[i], url, (struct dlock_options){0});
        memset(answers, 0, sizeof answers);
        int64_t since_ms = clock_ms();
        for (int j = 0; j < CROWD; j++) {
            char name[48];
            snprintf(name, sizeof name, LOCK "%d", j % 2 == 0 ? 0 : j);
            locks[j] = lock_of(stage.client, rungs[i], name);
            assert_status(dlock_acquire_start(locks[j], &want, count_answer, NULL), OK);
        }
        eventually(atomic_load(&answers[DLOCK_UNREACHABLE]) == CROWD);
        assert_true(stats_of(stage.client).connects_failed >= 2);
        assert_true(stats_of(stage.client).connects_failed <= allowed(since_ms, 4));
        assert_int_equal(record_count(stage.events, "SERVER_GONE"), 1);
        for (int j = 0; j < CROWD; j++)
            dlock_close(locks[j]);
        stage_clear(&stage);
    }
}

/* It takes the requests of the first, and answers nobody: nobody was kept waiting by the others. */
static void a_crowd_at_a_server_that_hangs(void **state)
{
    (void)state;
    struct stage stage;
    static dlock *locks[CROWD];
    struct dlock_want want = {.size = sizeof want, .wait_ms = 300};
    stage_set(&stage, "owner_lua", server_url(server), (struct dlock_options){0});
    works(&stage);
    memset(answers, 0, sizeof answers);
    server_pause(server);
    for (int j = 0; j < CROWD; j++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%d", j);
        locks[j] = lock_of(stage.client, "owner_lua", name);
        assert_status(dlock_acquire_start(locks[j], &want, count_answer, NULL), OK);
    }
    eventually(atomic_load(&answers[DLOCK_UNREACHABLE]) + atomic_load(&answers[DLOCK_TIMED_OUT]) ==
               CROWD);
    server_resume(server);
    assert_true(atomic_load(&answers[DLOCK_TIMED_OUT]) <= 2); /* requests may be carried out */
    for (int j = 0; j < CROWD; j++)
        dlock_close(locks[j]);
    stage_clear(&stage);
}

/* In the pause after a failure it is answered as the latest attempt was. */
static void many_single_tries(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    char url[64];
    nobodys_url(url);
    stage_set(&stage, "watchdog", url, (struct dlock_options){0});
    int64_t since_ms = clock_ms();
    for (int i = 0; i < 1000; i++) {
        assert_status(tried(stage.lock, &hold), UNREACHABLE);
        assert_says(dlock_error(), "Connection refused");
    }
    assert_true(stats_of(stage.client).connects_failed >= 1);
    assert_true(stats_of(stage.client).connects_failed <= allowed(since_ms, 6));
    stage_clear(&stage);
}

static void a_crowd_at_a_read_only_server(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_want want = {.size = sizeof want, .wait_ms = CROWD_MS};
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    server_text(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    memset(answers, 0, sizeof answers);
    int64_t since_ms = clock_ms();
    for (int j = 0; j < CROWD; j++)
        assert_status(dlock_acquire_start(stage.lock, &want, count_answer, NULL), OK);
    eventually(atomic_load(&answers[DLOCK_UNREACHABLE]) + atomic_load(&answers[DLOCK_REFUSED]) ==
               CROWD);
    server_text(server, "REPLICAOF NO ONE");
    assert_true(stats_of(stage.client).connects >= 3);
    assert_true(stats_of(stage.client).connects <= allowed(since_ms, 6));
    assert_true(record_count(stage.trace, "READONLY") <= allowed(since_ms, 6));
    assert_int_equal(record_count(stage.events, "SERVER_REFUSES"), 1);
    works(&stage);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    stage_clear(&stage);
}

/* Each of its 16 contenders tries less and less often. That is counted while all wait: once one has
 * ended, the next contends in its place, and often at first. */
static void a_crowd_at_a_full_server(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_want want = {.size = sizeof want, .wait_ms = CROWD_MS};
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    server_text(server, "CONFIG SET maxmemory 1");
    memset(answers, 0, sizeof answers);
    int64_t since_ms = clock_ms();
    for (int j = 0; j < CROWD; j++)
        assert_status(dlock_acquire_start(stage.lock, &want, count_answer, NULL), OK);
    size_t tries = 0;
    int64_t took_ms = 0;
    for (bool all_wait = true; all_wait; short_pause()) {
        size_t tries_now = record_count(stage.trace, "OOM");
        int64_t now_ms = clock_ms();
        all_wait = atomic_load(&answers[DLOCK_REFUSED]) == 0;
        if (all_wait) {
            tries = tries_now;
            took_ms = now_ms - since_ms;
        }
    }
    eventually(atomic_load(&answers[DLOCK_REFUSED]) == CROWD);
    server_text(server, "CONFIG SET maxmemory 0");
    /* at first 5 tries each, then one in 150 ms at most */
    assert_true(tries <= 16 * (6 + (size_t)took_ms / 150));
    assert_true(record_count(stage.trace, "OOM") >= 16);
    works(&stage);
    stage_clear(&stage);
}

/* An address that takes no more connections: the first packet of each is dropped. */
struct hole {
    int listener;
    int port;
    int fillers[8];
};

static void hole_make(struct hole *hole)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    hole->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(hole->listener, (struct sockaddr *)&address, size) == 0);
    must(listen(hole->listener, 0) == 0);
    must(getsockname(hole->listener, (struct sockaddr *)&address, &size) == 0);
    hole->port = ntohs(address.sin_port);
    for (int i = 0; i < 8; i++) {
        hole->fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        connect(hole->fillers[i], (struct sockaddr *)&address, sizeof address);
    }
}

static void hole_free(struct hole *hole)
{
    for (int i = 0; i < 8; i++)
        close(hole->fillers[i]);
    close(hole->listener);
}

static void crowd_end(struct waiter *waiters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        assert_int_not_equal(waiter_end(&waiters[i]), DLOCK_OK);
        dlock_close(waiters[i].lock);
    }
}

static void crowd_begin(struct stage *stage, const char *rung, int64_t wait_ms,
                        struct waiter *waiters, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%zu", i);
        waiters[i] = (struct waiter){.lock = lock_of(stage->client, rung, name),
                                     .want = {.wait_ms = wait_ms}};
        waiter_start(&waiters[i]);
    }
}

/* Every login works, and no command is answered. */
static void a_crowd_at_a_server_that_only_lets_in(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiters[32];
    stage_set(&stage, "watchdog", server_url(server),
              (struct dlock_options){.command_timeout_ms = 50});
    server_text(server, "CLIENT PAUSE 600000 WRITE");
    int64_t since_ms = clock_ms();
    crowd_begin(&stage, "watchdog", CROWD_MS, waiters, 32);
    crowd_end(waiters, 32);
    struct dlock_stats stats = stats_of(stage.client);
    uint64_t most = allowed(since_ms, 4);
    server_text(server, "CLIENT UNPAUSE");
    assert_true(stats.connects >= 2);
    assert_true(stats.connects <= most);
    assert_int_equal(stats.connections_lost, 1);
    assert_int_equal(stats.connections_back, 0);
    eventually(within(stage.lock, CROWD_MS) == DLOCK_OK);
    assert_true(stats_of(stage.client).connections_back >= 1);
    stage_clear(&stage);
}

/* Of a server that never answered one connection at a time finds that out. */
static void a_crowd_at_a_black_hole(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    struct waiter waiters[64];
    char url[64];
    hole_make(&hole);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", hole.port);
    stage_set(&stage, "watchdog", url, (struct dlock_options){.connect_timeout_ms = 200});
    int64_t since_ms = clock_ms();
    crowd_begin(&stage, "watchdog", 500, waiters, 64);
    crowd_end(waiters, 64);
    assert_true(stats_of(stage.client).connects_failed >= 2);
    assert_true(stats_of(stage.client).connects_failed <= allowed(since_ms, 4));
    assert_int_equal(record_count(stage.events, "SERVER"), 1);
    stage_clear(&stage);
    hole_free(&hole);
}

static size_t count_in(const char *text, const char *part)
{
    size_t count = 0;
    for (; (text = strstr(text, part)) != NULL; text++)
        count++;
    return count;
}

/* All connections break in use, and the server is well: nobody's single try fails for it. */
static void all_connections_break_at_once(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiters[8];
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    works(&stage);
    server_text(server, "CLIENT PAUSE 600000 WRITE");
    crowd_begin(&stage, "watchdog", 0, waiters, 8);
    eventually(count_in(server_text(server, "CLIENT LIST"), "cmd=evalsha") == 8);
    server_integer(server, "CLIENT KILL TYPE normal");
    server_text(server, "CLIENT UNPAUSE");
    for (size_t i = 0; i < 8; i++) {
        assert_status(waiter_end(&waiters[i]), OK);
        assert_status(dlock_release(waiters[i].hold, NULL), OK);
        dlock_close(waiters[i].lock);
    }
    assert_int_equal(stats_of(stage.client).connects_failed, 0);
    stage_clear(&stage);
}

/* ---- It is told ------------------------------------------------------------------------------ */

static void lost_and_back(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    works(&stage);
    assert_int_equal(record_count(stage.events, "SERVER"), 0);
    server_kill(server);
    for (int i = 0; i < 20; i++)
        assert_status(tried(stage.lock, &hold), UNREACHABLE);
    eventually(record_count(stage.events, "SERVER_GONE") == 1);
    server_restart(server, NULL);
    works(&stage);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    assert_int_equal(record_count(stage.events, "SERVER_GONE"), 1);
    char line[256];
    record_line(stage.events, "SERVER_GONE", 0, line, sizeof line);
    assert_says(line, server_url(server));
    assert_says(line, "Connection refused");
    assert_int_equal(stats_of(stage.client).connections_lost, 1);
    assert_int_equal(stats_of(stage.client).connections_back, 1);
    assert_int_equal(stats_of(stage.client).connections_refused, 0);
    stage_clear(&stage);
}

/* A renewal's answer is none that can come: its connection is dropped, which is told of; and
 * everything goes on. */
static void a_renewal_that_is_not_understood(void **state)
{
    (void)state;
    static const char answer[] = "+QUEUED\r\n";
    struct stage stage;
    struct proxy *proxy = proxy_start(server);
    stage_set(&stage, "watchdog", proxy_url(proxy), (struct dlock_options){.ttl_ms = 3000});
    struct waiter other = {.lock = lock_of(stage.client, "watchdog", LOCK "2"),
                           .want = {.wait_ms = PATIENCE_MS}};
    dlock_hold *hold = acquired(stage.lock);
    proxy_plan(proxy, PROXY_REPLACE_REPLY, LOCK, answer, sizeof answer - 1);
    eventually(proxy_done(proxy));
    waiter_start(&other);
    assert_status(waiter_end(&other), OK);
    eventually(record_count(stage.events, "SERVER_GONE") == 1);
    eventually(stats_of(stage.client).renewals > 0);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(other.hold, NULL), OK);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(other.lock);
    stage_clear(&stage);
    proxy_free(proxy);
}

static void a_refused_login(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    char url[80];
    snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
    stage_set(&stage, "watchdog", url, (struct dlock_options){0});
    for (int i = 0; i < 20; i++) {
        assert_status(tried(stage.lock, &hold), REFUSED);
        assert_says(dlock_error(), "WRONGPASS");
    }
    eventually(record_count(stage.events, "SERVER_REFUSES") == 1);
    server_text(server, "ACL SETUSER app on >pass ~* +@all");
    eventually(tried(stage.lock, &hold) == DLOCK_OK);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    assert_int_equal(stats_of(stage.client).connections_refused, 1);
    assert_int_equal(stats_of(stage.client).connections_lost, 0);
    stage_clear(&stage);
    server_integer(server, "ACL DELUSER app");
}

static void too_many_clients(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    server_text(server, "CONFIG SET maxclients 1"); /* the test's own */
    assert_status(tried(stage.lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "max number of clients");
    server_text(server, "CONFIG SET maxclients 1000");
    works(&stage);
    stage_clear(&stage);
}

/* Also where the client may not ask for its connection's number, and nothing else is said at the
 * login. */
static void too_many_clients_for_one_that_may_little(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiter = {.want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    server_text(server, "ACL SETUSER default -client|id");
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){0});
    works(&stage);
    server_text(server, "CONFIG SET maxclients 1"); /* the test's own */
    server_integer(server, "CLIENT KILL TYPE normal");
    dlock_hold *hold;
    assert_status(tried(stage.lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "max number of clients");
    uint64_t attempts = stats_of(stage.client).attempts;
    waiter.lock = stage.lock;
    waiter_start(&waiter);
    eventually(stats_of(stage.client).attempts >= attempts + 3 || atomic_load(&waiter.over));
    assert_false(atomic_load(&waiter.over));
    server_text(server, "CONFIG SET maxclients 1000");
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    stage_clear(&stage);
    server_text(server, "ACL SETUSER default +client|id");
}

/* The client's own connection is well, and no other is let in: waiters that would be told poll. It
 * is seldom asked for one more connection meanwhile. */
static void no_room_for_who_listens(void **state)
{
    enum { LOCKS = 100 };
    (void)state;
    struct stage stage;
    dlock_client *holder = client_of(server_url(server), (struct dlock_options){0});
    dlock *theirs[LOCKS], *ours[LOCKS];
    dlock_hold *holds[LOCKS];
    _Atomic int over = 0;
    struct started *crowd = crowd_new(LOCKS, true, &over);
    stage_set(&stage, "notify", server_url(server), (struct dlock_options){.connections_max = 1});
    works(&stage);
    for (int i = 0; i < LOCKS; i++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%d", i);
        theirs[i] = lock_of(holder, "notify", name);
        ours[i] = lock_of(stage.client, "notify", name);
        holds[i] = acquired(theirs[i]);
    }
    server_text(server, "CONFIG SET maxclients 1"); /* no more than there are */
    for (int i = 0; i < LOCKS; i++)
        start(ours[i], waiting(DLOCK_WAIT_FOREVER), &crowd[i]);
    eventually(stats_of(stage.client).attempts > 10 * LOCKS);
    assert_true(stats_of(stage.client).connects_failed <= LOCKS);
    server_text(server, "CONFIG SET maxclients 1000");
    for (int i = 0; i < LOCKS; i++)
        assert_status(dlock_release(holds[i], NULL), OK);
    eventually(atomic_load(&over) == LOCKS);
    crowd_answered(crowd, LOCKS, DLOCK_OK);
    free(crowd);
    for (int i = 0; i < LOCKS; i++) {
        dlock_close(theirs[i]);
        dlock_close(ours[i]);
    }
    dlock_client_close(holder);
    stage_clear(&stage);
}

/* A server that answered during the wait makes it a time-out. */
static void busy_before_the_outage(void **state)
{
    (void)state;
    struct stage stage;
    struct stage other;
    stage_set(&stage, "watchdog", server_url(server), (struct dlock_options){.retry_ms = 1000});
    stage_set(&other, "watchdog", server_url(server), (struct dlock_options){0});
    dlock_hold *hold = acquired(other.lock);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = 2000}};
    waiter_start(&waiter);
    eventually(stats_of(stage.client).contended == 1);
    server_kill(server);
    assert_status(waiter_end(&waiter), TIMED_OUT);
    assert_says(waiter.error, "Connection refused");
    server_restart(server, NULL);
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
    stage_clear(&other);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static struct {
    pthread_mutex_t mutex; /* protects what is below */
    int ports[4];          /* where "<any>.test" is found: 127.0.0.1, 0 ends the list */
    bool hangs;
    int calls;
    int under_way;
    int most;
} names = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found);

static bool name_hangs(void)
{
    pthread_mutex_lock(&names.mutex);
    bool hangs = names.hangs;
    pthread_mutex_unlock(&names.mutex);
    return hangs;
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **found)
{
    size_t size = host != NULL ? strlen(host) : 0;
    if (size < 5 || strcmp(host + size - 5, ".test") != 0 ||
        (hints->ai_flags & AI_NUMERICHOST) != 0)
        return __real_getaddrinfo(host, port, hints, found);
    pthread_mutex_lock(&names.mutex);
    names.calls++;
    if (++names.under_way > names.most)
        names.most = names.under_way;
    pthread_mutex_unlock(&names.mutex);
    eventually(!name_hangs());
    pthread_mutex_lock(&names.mutex);
    names.under_way--;
    struct addrinfo **next = found;
    *found = NULL;
    for (int i = 0; names.ports[i] != 0; i++) {
        char text[16];
        snprintf(text, sizeof text, "%d", names.ports[i]);
        must(__real_getaddrinfo("127.0.0.1", text, hints, next) == 0);
        next = &(*next)->ai_next;
    }
    pthread_mutex_unlock(&names.mutex);
    return *found != NULL ? 0 : EAI_NONAME;
}

static void name_is(bool hangs, int first, int second)
{
    pthread_mutex_lock(&names.mutex);
    names.hangs = hangs;
    names.ports[0] = first;
    names.ports[1] = second;
    names.calls = names.most = 0;
    pthread_mutex_unlock(&names.mutex);
}

static int name_calls(void)
{
    pthread_mutex_lock(&names.mutex);
    int calls = names.calls;
    pthread_mutex_unlock(&names.mutex);
    return calls;
}

static void the_first_address_swallows_all(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    dlock_hold *hold;
    hole_make(&hole);
    name_is(false, hole.port, server_port(server));
    stage_set(&stage, "watchdog", "redis://redis.test",
              (struct dlock_options){.connect_timeout_ms = 2000});
    for (int i = 0; i < 3; i++) { /* each connects anew */
        assert_status(tried(stage.lock, &hold), OK);
        assert_status(dlock_release(hold, NULL), OK);
        server_integer(server, "CLIENT KILL TYPE normal");
    }
    assert_int_equal(stats_of(stage.client).connects_failed, 0);
    stage_clear(&stage);
    hole_free(&hole);
}

/* Not even a call whose limit ends while the first address is tried is stuck with it. */
static void the_next_attempt_begins_at_the_next_address(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    hole_make(&hole);
    name_is(false, hole.port, server_port(server));
    stage_set(&stage, "watchdog", "redis://redis.test",
              (struct dlock_options){.connect_timeout_ms = 400});
    eventually(within(stage.lock, 20) == DLOCK_OK);
    stage_clear(&stage);
    hole_free(&hole);
}

/* The master is a replica now, and its name leads to another. */
static void the_name_moves(void **state)
{
    (void)state;
    struct stage stage;
    struct server *other = server_start(NULL);
    name_is(false, server_port(server), 0);
    stage_set(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    works(&stage);
    server_text(server, "REPLICAOF 127.0.0.1 %d", server_port(other));
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    eventually(record_count(stage.trace, "READONLY") >= 2);
    name_is(false, server_port(other), 0);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(server_integer(other, "EXISTS " LOCK), 1);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    server_text(server, "REPLICAOF NO ONE");
    server_free(other);
    stage_clear(&stage);
}

/* One of its addresses is of a replica: the other is tried next. */
static void one_address_is_of_a_replica(void **state)
{
    (void)state;
    struct stage stage;
    struct server *replica = server_start(NULL);
    server_text(replica, "REPLICAOF 127.0.0.1 %d", server_port(server));
    name_is(false, server_port(replica), server_port(server));
    stage_set(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    works(&stage);
    assert_int_equal(record_count(stage.trace, "READONLY"), 1);
    server_free(replica);
    stage_clear(&stage);
}

/* One look-up at a time is left behind, whatever the number of calls; then all is well again. */
static void a_resolver_that_hangs(void **state)
{
    (void)state;
    struct stage stage;
    struct waiter waiters[4];
    name_is(true, server_port(server), 0);
    stage_set(&stage, "watchdog", "redis://redis.test",
              (struct dlock_options){.connect_timeout_ms = 60000});
    for (int i = 0; i < 4; i++) {
        char name[48];
        snprintf(name, sizeof name, LOCK "%d", i);
        waiters[i] = (struct waiter){.lock = lock_of(stage.client, "watchdog", name),
                                     .want = {.wait_ms = 30}};
        waiter_start(&waiters[i]);
    }
    for (int i = 0; i < 4; i++) {
        assert_status(waiter_end(&waiters[i]), UNREACHABLE);
        dlock_close(waiters[i].lock);
    }
    assert_int_equal(name_calls(), 1);
    struct waiter patient = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&patient);
    eventually(stats_of(stage.client).attempts >= 5);
    name_is(false, server_port(server), 0);
    assert_status(waiter_end(&patient), OK);
    assert_status(dlock_release(patient.hold, NULL), OK);
    stage_clear(&stage);
}

/* The look-up went on when nobody waited for it, and the time to connect is over long since. */
static void found_while_nobody_looked(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    name_is(true, server_port(server), 0);
    stage_set(&stage, "watchdog", "redis://redis.test",
              (struct dlock_options){.connect_timeout_ms = 500});
    assert_status(within(stage.lock, 20), UNREACHABLE);
    int64_t over_ms = clock_ms() + 600;
    name_is(false, server_port(server), 0);
    eventually(clock_ms() > over_ms);
    assert_status(tried(stage.lock, &hold), OK);
    assert_int_equal(stats_of(stage.client).connects_failed, 0);
    assert_status(dlock_release(hold, NULL), OK);
    stage_clear(&stage);
}

/* Also when it never comes back while the client lives. */
static void closed_while_the_resolver_hangs(void **state)
{
    (void)state;
    struct stage stage;
    name_is(true, server_port(server), 0);
    stage_set(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    assert_status(within(stage.lock, 20), UNREACHABLE);
    stage_clear(&stage);
    name_is(false, server_port(server), 0);
}

/* A resolver that fails or hangs takes nothing away from a client that knew the way. */
static void the_resolver_is_down(void **state)
{
    (void)state;
    for (int hangs = 0; hangs < 2; hangs++) {
        struct stage stage;
        name_is(false, server_port(server), 0);
        stage_set(&stage, "watchdog", "redis://redis.test",
                  (struct dlock_options){.connect_timeout_ms = 2000});
        works(&stage);
        name_is(hangs != 0, 0, 0);
        server_integer(server, "CLIENT KILL TYPE normal");
        works(&stage);
        assert_int_equal(name_calls(), 1);
        name_is(false, 0, 0);
        stage_clear(&stage);
    }
}

static void a_name_nobody_knows(void **state)
{
    (void)state;
    struct stage stage;
    name_is(false, 0, 0);
    stage_set(&stage, "watchdog", "redis://redis.test", (struct dlock_options){0});
    dlock_hold *hold;
    assert_status(tried(stage.lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "its host name was not found");
    name_is(false, server_port(server), 0);
    works(&stage);
    stage_clear(&stage);
}

/* Every packet is lost: the call ends with its own limit. */
static void a_black_hole(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    char url[64];
    hole_make(&hole);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", hole.port);
    stage_set(&stage, "watchdog", url, (struct dlock_options){.connect_timeout_ms = 60000});
    assert_status(within(stage.lock, 30), UNREACHABLE);
    assert_says(dlock_error(), "connecting took too long");
    stage_clear(&stage);
    hole_free(&hole);
}

/* Another connection is up: the next call takes that one. */
static void one_connection_is_slow(void **state)
{
    (void)state;
    struct stage stage;
    struct hole hole;
    struct gate *gate = gate_new("watchdog.acquired");
    hole_make(&hole);
    name_is(false, server_port(server), 0);
    stage_set(&stage, "watchdog", "redis://redis.test",
              (struct dlock_options){
                  .connect_timeout_ms = 2000, .on_point = gate_point, .on_point_arg = gate});
    dlock *slow = lock_of(stage.client, "watchdog", LOCK "2");
    struct waiter parked = {.lock = stage.lock, .want = {.wait_ms = 60000}};
    struct waiter stuck = {.lock = slow, .want = {.wait_ms = 500}};
    waiter_start(&parked);
    eventually(gate_arrived(gate) == 1);
    name_is(false, hole.port, 0);
    waiter_start(&stuck);
    eventually(name_calls() == 1);
    gate_open(gate);
    assert_status(waiter_end(&parked), OK);
    assert_int_not_equal(waiter_end(&stuck), DLOCK_OK);
    assert_says(stuck.error, "connecting took too long");
    assert_status(dlock_release(parked.hold, NULL), OK);
    dlock_close(slow);
    stage_clear(&stage);
    gate_free(gate);
    hole_free(&hole);
}

/* ---- Several servers ------------------------------------------------------------------------- */

static dlock_status ask_all(struct redis *redis)
{
    redis_begin(redis);
    for (size_t i = 0; i < 3; i++)
        redis_append(redis, i, 1, (const char *const[]){"PING"}, NULL);
    return redis_gather(redis, INT64_MAX, -1);
}

/* Two of three are enough; the third is late, and comes on the connection that was begun first. */
static void one_of_three_is_late(void **state)
{
    (void)state;
    struct server *late = server_start(NULL);
    struct server three[3] = {0};
    struct redis_config config = {.servers = three,
                                  .server_count = 3,
                                  .connect_timeout_ms = PATIENCE_MS,
                                  .command_timeout_ms = PATIENCE_MS};
    for (int i = 0; i < 3; i++) {
        assert_status(url_parse(server_url(i == 1 ? late : server), &three[i].url), OK);
        reach_init(&three[i], &config.outages);
    }
    struct redis *redis = redis_new(&config);
    server_pause(late);
    assert_status(redis_ready(redis, INT64_MAX, -1), OK);
    assert_status(ask_all(redis), UNREACHABLE);
    assert_says(dlock_error(), "not connected yet");
    assert_status(redis_status(redis, 0), OK);
    assert_null(redis_reply(redis, 1, 0));
    assert_status(redis_status(redis, 2), OK);
    server_resume(late);
    eventually(redis_ready(redis, INT64_MAX, -1) == DLOCK_OK && ask_all(redis) == DLOCK_OK);
    assert_int_equal(config.connects, 3);
    redis_free(redis);
    for (int i = 0; i < 3; i++) {
        reach_free(&three[i]);
        url_free(&three[i].url);
    }
    server_free(late);
}

/* ---- Wake-ups -------------------------------------------------------------------------------- */

static long long info_number(const char *section, const char *field)
{
    const char *at = strstr(server_text(server, "INFO %s", section), field);
    must(at != NULL);
    return atoll(at + strlen(field));
}

/* Of the one connection whose line says so. */
static long long id_of(const char *says)
{
    const char *text = server_text(server, "CLIENT LIST");
    const char *at = strstr(text, says);
    must(at != NULL);
    while (at > text && at[-1] != '\n')
        at--;
    return atoll(at + strlen("id="));
}

static const struct {
    const char *rung;
    const char *right;
    const char *refused;
    const char *says;
} listening[] = {
    {"notify", "&*", "resetchannels", "PUBLISH is refused"},
    {"notify", "+subscribe", "-subscribe", "NOPERM"},
    {"notify", "+publish", "-publish", "PUBLISH is refused"},
    {"read_write", "+publish", "-publish", "PUBLISH is refused"},
    {"fair", "+blpop", "-blpop", "NOPERM"},
};

/* Told once, polled around, asked for again seldom; and heard once it is allowed. */
static void listening_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof listening / sizeof listening[0]; i++) {
        struct stage stage;
        struct stage other;
        char url[80];
        server_text(server, "ACL SETUSER app on >pass ~* &* +@all %s", listening[i].refused);
        snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
        stage_set(&stage, listening[i].rung, url, (struct dlock_options){0});
        stage_set(&other, listening[i].rung, server_url(server), (struct dlock_options){0});
        dlock_hold *hold = acquired(other.lock);
        struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        waiter_start(&waiter);
        eventually(record_count(stage.events, "SERVER_REFUSES") == 1);
        char line[256];
        record_line(stage.events, "SERVER_REFUSES", 0, line, sizeof line);
        assert_says(line, listening[i].says);
        eventually(stats_of(stage.client).attempts >= 20);
        assert_int_equal(record_count(stage.events, "SERVER"), 1);
        assert_int_equal(stats_of(stage.client).connections_refused, 1);
        assert_true(stats_of(stage.client).connects <= 4);
        assert_true(server_ask(server, "ACL LOG")->elements <= 2); /* equal lines are one */
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK); /* all the same */

        server_text(server, "ACL SETUSER app %s", listening[i].right);
        struct waiter later = {.lock = other.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        waiter_start(&later);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        assert_status(waiter_end(&later), OK);
        waiter_start(&waiter);
        eventually(record_count(stage.events, "SERVER_BACK") == 1 ||
                   info_number("clients", "blocked_clients:") == 1);
        assert_status(dlock_release(later.hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
        stage_clear(&other);
        server_integer(server, "ACL DELUSER app");
        server_text(server, "ACL LOG RESET");
    }
}

/* No descriptor is left, or no memory, to watch the connection for wake-ups. */
static _Atomic(const char *) lacking;

int __real_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int what, int fd, struct epoll_event *event)
{
    const char *what_lacks = atomic_load(&lacking);
    if (what != EPOLL_CTL_ADD || what_lacks == NULL || strcmp(what_lacks, "memory") != 0)
        return __real_epoll_ctl(epoll, what, fd, event);
    errno = ENOMEM;
    return -1;
}

int __real_fcntl64(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...);
int __wrap_fcntl64(int fd, int what, ...)
{
    const char *what_lacks = atomic_load(&lacking);
    va_list arguments;
    va_start(arguments, what);
    int argument = va_arg(arguments, int);
    va_end(arguments);
    if (what != F_DUPFD_CLOEXEC || what_lacks == NULL || strcmp(what_lacks, "descriptors") != 0)
        return __real_fcntl64(fd, what, argument);
    errno = EMFILE;
    return -1;
}

/* Its waiter knows that it is deaf, and looks often; it hears once there is room again. */
static void listening_lacks(void **state)
{
    static const char *const things[] = {"memory", "descriptors"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage, other;
        struct dlock_options options = {.grant_ms = 60000, .ttl_ms = 60000};
        stage_set(&stage, "fair", server_url(server), options);
        stage_set(&other, "fair", server_url(server), options);
        dlock_hold *hold = acquired(other.lock);
        struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
        atomic_store(&lacking, things[i]);
        waiter_start(&waiter);
        eventually(stats_of(stage.client).attempts >= 5);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_int_equal(stats_of(stage.client).unheard, 0);

        atomic_store(&lacking, NULL);
        hold = waiter.hold;
        waiter.lock = other.lock;
        waiter_start(&waiter);
        eventually(info_number("clients", "blocked_clients:") == 1);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        hold = waiter.hold;
        waiter.lock = stage.lock;
        waiter_start(&waiter);
        eventually(info_number("clients", "blocked_clients:") == 2);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_status(dlock_release(waiter.hold, NULL), OK);
        stage_clear(&stage);
        stage_clear(&other);
    }
}

/* What is refused still is told once more when the server was lost in between; and it is back only
 * when nothing is refused any more, whichever was told of. */
static void listening_stays_refused(void **state)
{
    (void)state;
    struct stage stage, other;
    char url[80];
    server_text(server, "ACL SETUSER app on >pass ~* &* +@all -subscribe -blpop");
    snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
    stage_set(&stage, "notify", url, (struct dlock_options){0});
    stage_set(&other, "notify", server_url(server), (struct dlock_options){0});
    dlock *locks[2] = {lock_of(stage.client, "fair", LOCK "2"),
                       lock_of(other.client, "fair", LOCK "2")};
    dlock_hold *holds[2] = {acquired(other.lock), acquired(locks[1])};
    struct waiter waiters[2] = {
        {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}},
        {.lock = locks[0], .want = {.wait_ms = DLOCK_WAIT_FOREVER}},
    };
    waiter_start(&waiters[0]);
    waiter_start(&waiters[1]);
    eventually(server_ask(server, "ACL LOG")->elements == 2);
    eventually(record_count(stage.events, "SERVER_REFUSES") == 1);
    server_integer(server, "CLIENT KILL USER app");
    eventually(record_count(stage.events, "SERVER_GONE") >= 1);
    eventually(record_count(stage.events, "SERVER_REFUSES") >= 2);
    server_text(server, "ACL SETUSER app +subscribe");
    eventually(server_ask(server, "PUBSUB CHANNELS *lock__channel*")->elements == 1);
    server_text(server, "ACL SETUSER app +blpop");
    eventually(info_number("clients", "blocked_clients:") == 1);
    assert_int_equal(record_count(stage.events, "SERVER_BACK"), 0);
    assert_status(dlock_release(holds[1], NULL), OK);
    assert_status(waiter_end(&waiters[1]), OK);
    eventually(record_count(stage.events, "SERVER_BACK") == 1);
    assert_int_equal(record_count(stage.events, "SERVER_REFUSES"),
                     record_count(stage.events, "SERVER_GONE") + 1);
    assert_status(dlock_release(holds[0], NULL), OK);
    assert_status(waiter_end(&waiters[0]), OK);
    for (size_t i = 0; i < 2; i++)
        assert_status(dlock_release(waiters[i].hold, NULL), OK);
    for (size_t i = 0; i < 2; i++)
        dlock_close(locks[i]);
    stage_clear(&stage);
    stage_clear(&other);
    server_integer(server, "ACL DELUSER app");
    server_text(server, "ACL LOG RESET");
}

/* An operator ends the wait for wake-ups; the client goes on with the same list. */
static void listening_is_unblocked(void **state)
{
    (void)state;
    struct stage stage, other;
    struct dlock_options options = {.ttl_ms = 600000, .grant_ms = 60000};
    stage_set(&stage, "fair", server_url(server), options);
    stage_set(&other, "fair", server_url(server), options);
    dlock_hold *hold = acquired(other.lock);
    struct waiter waiter = {.lock = stage.lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    waiter_start(&waiter);
    for (int i = 0; i < 2; i++) {
        eventually(info_number("clients", "blocked_clients:") == 1);
        assert_int_equal(server_integer(server, "CLIENT UNBLOCK %lld", id_of("cmd=blpop")), 1);
    }
    eventually(record_count(stage.trace, "BLPOP dlock:wake:") == 2);
    assert_int_equal(record_count(stage.trace, "BLPOP \"\""), 0);
    eventually(info_number("clients", "blocked_clients:") == 1);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&waiter), OK);
    assert_int_equal(stats_of(stage.client).unheard, 0);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    stage_clear(&stage);
    stage_clear(&other);
}

/* The connection for wake-ups came up when the lock that it was for had gone. */
static void the_first_to_listen_has_gone(void **state)
{
    (void)state;
    struct stage stage;
    struct busy busy = {.kind = WAIT_LIST, .source = "dlock:wake:outage"};
    stage_set(&stage, "fair", server_url(server), (struct dlock_options){0});
    dlock *second = lock_of(stage.client, "fair", LOCK "2");
    struct loop *loop = &stage.client->loop;
    pthread_mutex_lock(&loop->mutex);
    assert_false(subscriber_listen(stage.lock, &busy, INT64_MAX, -1));
    subscriber_forget(stage.lock);
    redis_lock_of(stage.lock)->source = (struct source){.lock = stage.lock};
    pthread_mutex_unlock(&loop->mutex);
    eventually(info_number("clients", "connected_clients:") >= 2);
    for (bool idle = false; !idle;) { /* until the loop has seen it */
        pthread_mutex_lock(&loop->mutex);
        idle = redis_of(stage.client)->lists.state == SUBSCRIBER_WATCHED;
        pthread_mutex_unlock(&loop->mutex);
        short_pause();
    }
    pthread_mutex_lock(&loop->mutex);
    subscriber_listen(second, &busy, INT64_MAX, -1);
    pthread_mutex_unlock(&loop->mutex);
    eventually(info_number("clients", "blocked_clients:") == 1);
    dlock_close(second);
    stage_clear(&stage);
}

static enum source_state source_state(dlock *lock)
{
    struct loop *loop = &lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    enum source_state is = redis_lock_of(lock)->source.state;
    pthread_mutex_unlock(&loop->mutex);
    return is;
}

static uint64_t wakes(dlock *lock)
{
    struct loop *loop = &lock->client->loop;
    pthread_mutex_lock(&loop->mutex);
    uint64_t is = lock->line.wakes;
    pthread_mutex_unlock(&loop->mutex);
    return is;
}

/* All of them in one go, locks of that client. */
static void listen_to(dlock_client *client, size_t count, const char *const *channels,
                      dlock **locks)
{
    struct loop *loop = &client->loop;
    for (size_t i = 0; i < count; i++) {
        char name[] = LOCK "0";
        name[strlen(LOCK)] += (char)i;
        locks[i] = lock_of(client, "notify", name);
    }
    pthread_mutex_lock(&loop->mutex);
    for (size_t i = 0; i < count; i++) {
        struct busy busy = {.kind = WAIT_CHANNEL};
        strcpy(busy.source, channels[i]);
        subscriber_listen(locks[i], &busy, INT64_MAX, -1);
    }
    pthread_mutex_unlock(&loop->mutex);
}

/* An error does not say which request it answers: the order does. */
static void some_channels_are_refused(void **state)
{
    static const char *const channels[] = {"yes0", "no1", "yes2", "no3", "no4", "yes5"};
    (void)state;
    struct stage stage;
    dlock *locks[6];
    char url[80];
    server_text(server, "ACL SETUSER app on >pass ~* +@all resetchannels &yes*");
    snprintf(url, sizeof url, "redis://app:pass@%s", strstr(server_url(server), "127"));
    stage_set(&stage, "notify", url, (struct dlock_options){0});
    listen_to(stage.client, 6, channels, locks);
    for (size_t i = 0; i < 6; i++)
        eventually(source_state(locks[i]) ==
                   (channels[i][0] == 'y' ? SOURCE_HEARD : SOURCE_REFUSED));
    assert_int_equal(record_count(stage.events, "SERVER_BACK"), 0);
    for (size_t i = 0; i < 6; i++)
        dlock_close(locks[i]);
    stage_clear(&stage);
    server_integer(server, "ACL DELUSER app");
    server_text(server, "ACL LOG RESET");
}

static int64_t listeners(const char *channel)
{
    return server_ask(server, "PUBSUB NUMSUB %s", channel)->element[1]->integer;
}

/* A message is for each of them, for no other lock, and comes until the last of them is closed. */
static void locks_that_share_a_channel(void **state)
{
    static const char *const channels[] = {"both", "one", "both"};
    (void)state;
    struct stage stage;
    dlock *locks[3];
    uint64_t before[3];
    stage_set(&stage, "notify", server_url(server), (struct dlock_options){0});
    listen_to(stage.client, 3, channels, locks);
    for (size_t i = 0; i < 3; i++) {
        eventually(source_state(locks[i]) == SOURCE_HEARD);
        before[i] = wakes(locks[i]);
    }
    assert_int_equal(server_integer(server, "PUBLISH both 0"), 1);
    eventually(wakes(locks[0]) == before[0] + 1 && wakes(locks[2]) == before[2] + 1);
    assert_int_equal(wakes(locks[1]), before[1]);
    dlock_close(locks[0]);
    dlock_close(locks[1]);
    eventually(listeners("one") == 0); /* what was sent before has come, too */
    assert_int_equal(server_integer(server, "PUBLISH both 0"), 1);
    eventually(wakes(locks[2]) == before[2] + 2);
    dlock_close(locks[2]);
    eventually(listeners("both") == 0);
    stage_clear(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crowd_at_a_closed_port),
        cmocka_unit_test(a_crowd_at_a_server_that_hangs),
        cmocka_unit_test(many_single_tries),
        cmocka_unit_test(a_crowd_at_a_read_only_server),
        cmocka_unit_test(a_crowd_at_a_full_server),
        cmocka_unit_test(a_crowd_at_a_server_that_only_lets_in),
        cmocka_unit_test(a_crowd_at_a_black_hole),
        cmocka_unit_test(all_connections_break_at_once),
        cmocka_unit_test(lost_and_back),
        cmocka_unit_test(a_renewal_that_is_not_understood),
        cmocka_unit_test(a_refused_login),
        cmocka_unit_test(too_many_clients),
        cmocka_unit_test(too_many_clients_for_one_that_may_little),
        cmocka_unit_test(no_room_for_who_listens),
        cmocka_unit_test(busy_before_the_outage),
        cmocka_unit_test(the_first_address_swallows_all),
        cmocka_unit_test(the_next_attempt_begins_at_the_next_address),
        cmocka_unit_test(the_name_moves),
        cmocka_unit_test(one_address_is_of_a_replica),
        cmocka_unit_test(a_resolver_that_hangs),
        cmocka_unit_test(found_while_nobody_looked),
        cmocka_unit_test(closed_while_the_resolver_hangs),
        cmocka_unit_test(the_resolver_is_down),
        cmocka_unit_test(a_name_nobody_knows),
        cmocka_unit_test(a_black_hole),
        cmocka_unit_test(one_connection_is_slow),
        cmocka_unit_test(one_of_three_is_late),
        cmocka_unit_test(listening_is_refused),
        cmocka_unit_test(listening_lacks),
        cmocka_unit_test(listening_stays_refused),
        cmocka_unit_test(listening_is_unblocked),
        cmocka_unit_test(the_first_to_listen_has_gone),
        cmocka_unit_test(some_channels_are_refused),
        cmocka_unit_test(locks_that_share_a_channel),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("outage", tests, start_server, stop_server);
}
