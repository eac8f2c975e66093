/* SPDX-License-Identifier: Apache-2.0
 *
 * What servers do: let in or refuse, restart, forget scripts, drop connections, hang.
 */
#include "calls.h"
#include "must.h"
#include "record.h"
#include "server.h"
#include "waiter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK "lock:{server}"

static struct server *server;

static const char *const keyed[] = {
    "setnx",       "setnx_expire",   "setnx_multi",   "set_nx_ex",
    "owner_check", "owner_lua",      "reentrant_tls", "reentrant_getset",
    "reentrant",   "watchdog_timer", "watchdog",      "blpop_wake",
    "notify",      "fair",           "rw_counter",    "read_write"};
#define KEYED (sizeof keyed / sizeof keyed[0])

static dlock_client *new_client(void)
{
    return client_of(server_url(server), (struct dlock_options){0});
}

static void works(dlock *lock)
{
    dlock_hold *hold = acquired(lock);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
}

/* ---- Logging in ------------------------------------------------------------------------------ */

/* One try of that URL; what it says is checked for the password too. */
static void login_gives(const char *format, dlock_status expected, const char *says)
{
    char url[160];
    snprintf(url, sizeof url, format, server_port(server));
    dlock_client *client = client_of(url, (struct dlock_options){0});
    dlock *lock = lock_of(client, "setnx", LOCK);
    dlock_hold *hold;
    dlock_status status = tried(lock, &hold);
    if (status != expected)
        failed("%s gave %s: %s", url, dlock_status_name(status), dlock_error());
    if (status == DLOCK_OK)
        assert_status(dlock_release(hold, NULL), OK);
    else
        assert_says(dlock_error(), says);
    assert_null(strstr(dlock_error(), "geheim"));
    dlock_close(lock);
    dlock_client_close(client);
}

static void passwords_and_users(void **state)
{
    (void)state;
    server_text(server, "ACL SETUSER alice on >geheim2 ~lock:* +@all");
    server_text(server, "CONFIG SET requirepass %s", "geheim @1");
    login_gives("redis://:geheim%%20%%401@127.0.0.1:%d", DLOCK_OK, "");
    login_gives("redis://default:geheim%%20%%401@127.0.0.1:%d/0", DLOCK_OK, "");
    login_gives("redis://alice:geheim2@127.0.0.1:%d", DLOCK_OK, "");
    login_gives("redis://:geheim@127.0.0.1:%d", DLOCK_REFUSED, "the login was refused: WRONGPASS");
    login_gives("redis://alice:geheim@127.0.0.1:%d", DLOCK_REFUSED, "WRONGPASS");
    login_gives("redis://bob:geheim2@127.0.0.1:%d", DLOCK_REFUSED, "WRONGPASS");
    login_gives("redis://127.0.0.1:%d", DLOCK_REFUSED, "NOAUTH");
    login_gives("redis://127.0.0.1:%d/1", DLOCK_REFUSED, "NOAUTH");
    server_text(server, "ACL SETUSER alice resetkeys ~other:*");
    login_gives("redis://alice:geheim2@127.0.0.1:%d", DLOCK_REFUSED, "NOPERM");
    server_text(server, "CONFIG SET requirepass %s", "");
    server_integer(server, "ACL DELUSER alice");
    login_gives("redis://:geheim@127.0.0.1:%d", DLOCK_REFUSED, "AUTH");
}

static void databases(void **state)
{
    (void)state;
    char url[80];
    snprintf(url, sizeof url, "%s/3", server_url(server));
    dlock_client *client = client_of(url, (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    server_text(server, "SELECT 3");
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
    server_text(server, "SELECT 0");
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    login_gives("redis://127.0.0.1:%d/16", DLOCK_REFUSED, "DB index is out of range");
}

static void unix_sockets(void **state)
{
    (void)state;
    char url[160];
    snprintf(url, sizeof url, "unix:%s?db=2", server_socket(server));
    dlock_client *client = client_of(url, (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    works(lock);
    dlock_close(lock);
    dlock_client_close(client);
    client = client_of("unix:/tmp/no/such.sock", (struct dlock_options){0});
    lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold;
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "unix:/tmp/no/such.sock?db=0: No such file");
    dlock_close(lock);
    dlock_client_close(client);
}

/* ---- Not there ------------------------------------------------------------------------------- */

static void unreachable(const char *url, const char *says)
{
    dlock_client *client = client_of(url, (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 500};
    struct dlock_holder holder = {.size = sizeof holder};
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), says);
    assert_status(dlock_acquire(lock, &want, &hold), UNREACHABLE);
    assert_says(dlock_error(), says);
    assert_true(stats_of(client).attempts >= 2);
    assert_int_equal(stats_of(client).commands, 0);
    assert_status(dlock_inspect(lock, &holder), UNREACHABLE);
    dlock_close(lock);
    dlock_client_close(client);
}

static void nobody_listens(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", NOBODYS_PORT);
    unreachable(url, "Connection refused");
    unreachable("redis://no-such-host.invalid", "its host name was not found");
}

/* It accepts and never answers: the login says so, and nothing else is sent. */
static void nobody_answers(void **state)
{
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    char url[64];
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
    dlock_client *client = client_of(url, (struct dlock_options){.connect_timeout_ms = 50});
    dlock *lock = lock_of(client, "watchdog", LOCK);
    dlock_hold *hold;
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "connecting took too long");
    assert_int_equal(stats_of(client).commands, 0);
    dlock_close(lock);
    dlock_client_close(client);
    close(listener);
}

static void it_comes_later(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    struct waiter waiter = {.lock = lock_of(client, NULL, LOCK), .want = {.wait_ms = 60000}};
    server_kill(server);
    waiter_start(&waiter);
    eventually(stats_of(client).attempts >= 3);
    server_restart(server, NULL);
    assert_status(waiter_end(&waiter), OK);
    assert_status(dlock_release(waiter.hold, NULL), OK);
    dlock_close(waiter.lock);
    dlock_client_close(client);
}

/* ---- Refusals -------------------------------------------------------------------------------- */

static void the_key_is_something_else(void **state)
{
    static const char *const hashes[] = {"reentrant", "reentrant_getset", "watchdog_timer",
                                         "watchdog",  "blpop_wake",       "notify",
                                         "fair",      "read_write"};
    (void)state;
    dlock_client *client = new_client();
    dlock_hold *hold;
    server_integer(server, "RPUSH " LOCK " x");
    for (size_t i = 0; i < sizeof hashes / sizeof hashes[0]; i++) {
        dlock *lock = lock_of(client, hashes[i], LOCK);
        struct dlock_want want = {.size = sizeof want, .wait_ms = 60000};
        uint64_t attempts = stats_of(client).attempts;
        assert_status(dlock_acquire(lock, &want, &hold), WRONG_TYPE);
        assert_says(dlock_error(), dlock_rung_of(lock)->flawed ? "WRONGTYPE" : "holds a list");
        assert_int_equal(stats_of(client).attempts, attempts + 1);
        dlock_close(lock);
    }
    dlock *lock = lock_of(client, "setnx", LOCK);
    assert_status(tried(lock, &hold), BUSY);
    dlock_close(lock);
    server_integer(server, "DEL " LOCK);
    /* and when it becomes so while it is held */
    lock = lock_of(client, "watchdog", LOCK);
    hold = acquired(lock);
    server_text(server, "SET " LOCK " x");
    assert_status(dlock_release(hold, NULL), WRONG_TYPE);
    server_integer(server, "DEL " LOCK);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Refused for good: one attempt, whatever the limit. */
static void refused_at_once(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, NULL, LOCK);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000};
    dlock_hold *hold;
    server_text(server, "ACL SETUSER default -@scripting");
    assert_status(dlock_acquire(lock, &want, &hold), REFUSED);
    assert_says(dlock_error(), "NOPERM");
    assert_int_equal(stats_of(client).attempts, 1);
    server_text(server, "ACL SETUSER default +@all");
    works(lock);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Refused for a while: one try gets REFUSED, a longer wait tries until the server is well again. */
struct ailment {
    struct record *trace;
    dlock_client *client;
    struct waiter waiter;
};

static void ails(struct ailment *a, const char *rung, const char *error)
{
    dlock_hold *hold;
    *a = (struct ailment){.trace = record_new()};
    a->client = client_of(server_url(server), (struct dlock_options){
                                                  .on_trace = record_trace,
                                                  .on_trace_arg = a->trace,
                                              });
    a->waiter = (struct waiter){.lock = lock_of(a->client, rung, LOCK),
                                .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
    assert_status(tried(a->waiter.lock, &hold), REFUSED);
    assert_says(dlock_error(), error);
    waiter_start(&a->waiter);
    eventually(record_count(a->trace, error) >= 3);
    assert_false(atomic_load(&a->waiter.over));
}

static void is_well(struct ailment *a)
{
    assert_status(waiter_end(&a->waiter), OK);
    assert_status(dlock_release(a->waiter.hold, NULL), OK);
    dlock_close(a->waiter.lock);
    dlock_client_close(a->client);
    record_free(a->trace);
}

static void read_only(void **state)
{
    (void)state;
    struct ailment a;
    server_text(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    ails(&a, "owner_lua", "READONLY");
    server_text(server, "REPLICAOF NO ONE");
    is_well(&a);
}

/* Another call of the client was told first: in the pause after it the others say the same. */
static void read_only_in_the_pause(void **state)
{
    enum { TRIES = 20 };
    (void)state;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 200};
    dlock_client *client = new_client();
    dlock *held = lock_of(client, NULL, LOCK), *lock = lock_of(client, NULL, LOCK "2");
    dlock_hold *hold = acquired(held), *none;
    server_text(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    for (int i = 0; i < TRIES; i++) {
        assert_status(tried(lock, &none), REFUSED);
        assert_says(dlock_error(), "READONLY");
    }
    assert_status(dlock_acquire(lock, &want, &none), REFUSED);
    assert_says(dlock_error(), "READONLY");
    assert_status(dlock_extend(hold), REFUSED);
    assert_status(dlock_release(hold, NULL), REFUSED);
    server_text(server, "REPLICAOF NO ONE");
    eventually(server_integer(server, "EXISTS " LOCK) == 0); /* in the background */
    dlock_close(held);
    dlock_close(lock);
    dlock_client_close(client);
}

static void master_down(void **state)
{
    (void)state;
    struct ailment a;
    server_text(server, "CONFIG SET replica-serve-stale-data no");
    server_text(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    ails(&a, "watchdog", "MASTERDOWN");
    server_text(server, "REPLICAOF NO ONE");
    is_well(&a);
    server_text(server, "CONFIG SET replica-serve-stale-data yes");
}

static void memory_is_short(void **state)
{
    (void)state;
    struct ailment a;
    server_text(server, "CONFIG SET maxmemory 1");
    ails(&a, "watchdog", "OOM");
    server_text(server, "CONFIG SET maxmemory 0");
    is_well(&a);
}

static void replicas_are_missing(void **state)
{
    (void)state;
    struct ailment a;
    server_text(server, "CONFIG SET min-replicas-to-write 1");
    ails(&a, "watchdog", "NOREPLICAS");
    server_text(server, "CONFIG SET min-replicas-to-write 0");
    is_well(&a);
}

/* A folder stands where the file should be. */
static void the_disk_fails(void **state)
{
    (void)state;
    struct ailment a;
    char path[200], inside[240];
    snprintf(path, sizeof path, "%s/dump.rdb", server_folder(server));
    snprintf(inside, sizeof inside, "%s/inside", path);
    unlink(path);
    assert_int_equal(mkdir(path, 0700) + mkdir(inside, 0700), 0);
    server_text(server, "CONFIG SET save %s", "3600 1");
    server_text(server, "BGSAVE");
    eventually(strstr(server_text(server, "INFO persistence"), "rdb_last_bgsave_status:err") !=
               NULL);
    ails(&a, "owner_lua", "MISCONF");
    server_text(server, "CONFIG SET save %s", "");
    is_well(&a);
    assert_int_equal(rmdir(inside) + rmdir(path), 0);
}

static void busy_with_a_script(void **state)
{
    (void)state;
    struct ailment a;
    server_text(server, "CONFIG SET busy-reply-threshold 1");
    redisContext *other = redisConnect("127.0.0.1", server_port(server));
    int done = 0;
    redisAppendCommand(other, "EVAL %s 0", "while true do end");
    while (done == 0)
        assert_int_equal(redisBufferWrite(other, &done), REDIS_OK);
    eventually(server_ask(server, "PING")->type == REDIS_REPLY_ERROR);
    ails(&a, "setnx", "BUSY");
    server_text(server, "SCRIPT KILL");
    is_well(&a);
    redisFree(other);
    server_text(server, "CONFIG SET busy-reply-threshold 5000");
}

static void loading(void **state)
{
    static const char *const slowly[] = {"--key-load-delay", "1000",
                                         "--loading-process-events-interval-bytes", "1024", NULL};
    (void)state;
    struct ailment a;
    server_text(server, "DEBUG POPULATE 60000");
    server_text(server, "SAVE");
    server_restart_unready(server, slowly);
    ails(&a, "owner_check", "LOADING");
    server_text(server, "CONFIG SET key-load-delay 0");
    is_well(&a);
    server_text(server, "FLUSHALL");
    server_text(server, "SAVE");
    server_restart(server, NULL);
}

static void cluster_down(void **state)
{
    static const char *const cluster[] = {"--cluster-enabled", "yes", NULL};
    (void)state;
    struct ailment a;
    struct server *before = server;
    server = server_start(cluster);
    ails(&a, "setnx", "CLUSTERDOWN");
    server_text(server, "CLUSTER ADDSLOTSRANGE 0 16383");
    is_well(&a);
    server_free(server);
    server = before;
}

/* A release is refused too; the hold is gone all the same and frees itself. */
static void a_release_is_refused(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "owner_lua", LOCK);
    dlock_hold *hold = acquired(lock);
    server_text(server, "REPLICAOF 127.0.0.1 %d", NOBODYS_PORT);
    assert_status(dlock_release(hold, NULL), REFUSED);
    assert_says(dlock_error(), "READONLY");
    server_text(server, "REPLICAOF NO ONE");
    server_integer(server, "DEL " LOCK);
    dlock_close(lock);
    dlock_client_close(client);
}

/* ---- Forgetting and dropping ----------------------------------------------------------------- */

static void scripts_are_loaded_again(void **state)
{
    static const char *const scripted[] = {"owner_lua",      "reentrant_tls", "reentrant",
                                           "watchdog_timer", "watchdog",      "blpop_wake",
                                           "notify",         "fair",          "read_write"};
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < sizeof scripted / sizeof scripted[0]; i++) {
        dlock *lock = lock_of(client, scripted[i], LOCK);
        struct dlock_holder holder = {.size = sizeof holder};
        server_text(server, "SCRIPT FLUSH");
        dlock_hold *hold = acquired(lock);
        server_text(server, "SCRIPT FLUSH");
        uint64_t loaded = stats_of(client).scripts_loaded;
        assert_status(dlock_inspect(lock, &holder), OK);
        assert_true(holder.held);
        assert_status(dlock_inspect(lock, &holder), OK);
        assert_int_equal(stats_of(client).scripts_loaded, loaded + 1);
        server_text(server, "SCRIPT FLUSH");
        assert_status(dlock_release(hold, NULL), OK);
        assert_int_equal(stats_of(client).scripts_loaded, loaded + 2);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void restarted_between_calls(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        dlock *lock = lock_of(client, keyed[i], LOCK);
        works(lock);
        server_restart(server, NULL);
        uint64_t connects = stats_of(client).connects;
        dlock_hold *hold;
        assert_status(tried(lock, &hold), OK);
        assert_int_equal(stats_of(client).connects, connects + 1);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

/* It comes back empty: whoever held it finds out, and frees nobody else's. */
static void restarted_during_a_hold(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock_client *other = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        dlock *lock = lock_of(client, keyed[i], LOCK);
        dlock_hold *hold = acquired(lock);
        server_restart(server, NULL);
        assert_status(dlock_release(hold, NULL), LOST);
        dlock_close(lock);
    }
    static const char *const sound[] = {"owner_lua", "reentrant", "watchdog"};
    for (size_t i = 0; i < 3; i++) {
        dlock *lock = lock_of(client, sound[i], LOCK);
        dlock *theirs = lock_of(other, sound[i], LOCK);
        dlock_hold *hold = acquired(lock);
        server_restart(server, NULL);
        dlock_hold *new_one = acquired(theirs);
        assert_status(dlock_release(hold, NULL), LOST);
        assert_int_equal(server_integer(server, "EXISTS " LOCK), 1);
        assert_status(dlock_release(new_one, NULL), OK);
        dlock_close(lock);
        dlock_close(theirs);
    }
    dlock_client_close(client);
    dlock_client_close(other);
}

static void released_while_it_is_gone(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        dlock *lock = lock_of(client, keyed[i], LOCK);
        dlock_hold *hold = acquired(lock);
        server_kill(server);
        assert_status(dlock_release(hold, NULL), UNREACHABLE);
        if (strstr(dlock_error(), "the server closed the connection") == NULL) /* just made */
            assert_says(dlock_error(), "Connection re");                       /* fused, or set */
        server_restart(server, NULL);
        /* and what the rung keeps in the process knows that the hold has ended */
        uint64_t commands = stats_of(client).commands;
        works(lock);
        assert_true(stats_of(client).commands >= commands + 2);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void connections_are_killed(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    for (size_t i = 0; i < KEYED; i++) {
        dlock *lock = lock_of(client, keyed[i], LOCK);
        works(lock);
        assert_true(server_integer(server, "CLIENT KILL TYPE normal") >= 1);
        dlock_hold *hold;
        assert_status(tried(lock, &hold), OK);
        assert_true(server_integer(server, "CLIENT KILL TYPE normal") >= 1);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static int start(void **state)
{
    /* DEBUG POPULATE fills it, DEBUG is off by default. */
    static const char *const args[] = {"--enable-debug-command", "yes", NULL};
    (void)state;
    server = server_start(args);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_free(server);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loading), /* first: it needs the server as it was started */
        cmocka_unit_test(passwords_and_users),
        cmocka_unit_test(databases),
        cmocka_unit_test(unix_sockets),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(nobody_answers),
        cmocka_unit_test(it_comes_later),
        cmocka_unit_test(the_key_is_something_else),
        cmocka_unit_test(refused_at_once),
        cmocka_unit_test(read_only),
        cmocka_unit_test(read_only_in_the_pause),
        cmocka_unit_test(master_down),
        cmocka_unit_test(memory_is_short),
        cmocka_unit_test(replicas_are_missing),
        cmocka_unit_test(the_disk_fails),
        cmocka_unit_test(busy_with_a_script),
        cmocka_unit_test(cluster_down),
        cmocka_unit_test(a_release_is_refused),
        cmocka_unit_test(scripts_are_loaded_again),
        cmocka_unit_test(restarted_between_calls),
        cmocka_unit_test(restarted_during_a_hold),
        cmocka_unit_test(released_while_it_is_gone),
        cmocka_unit_test(connections_are_killed),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("server", tests, start, stop);
}
