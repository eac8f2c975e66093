/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: the library's core with an engine that is not Redis', on a real ZooKeeper.
 */
#include "cleanups.h"
#include "child.h"
#include "must.h"
#include "record.h"
#include "server.h"
#include "started.h"
#include "validate.h"
#include "zookeeper_stage.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static dlock_client *client_here(struct dlock_options options)
{
    return client_at(zookeeper_url(zookeeper), options);
}

/* ---- The oracle, and the calls --------------------------------------------------------------- */

static void under_the_oracle(void **state)
{
    (void)state;
    const char *servers[] = {zookeeper_url(zookeeper), NULL};
    assert_true(oracle_agrees(&(struct oracle){.rung = "zookeeper",
                                               .engine = dlock_zookeeper(),
                                               .servers = servers,
                                               .expected = HOLDS,
                                               .processes = 3,
                                               .threads = 4,
                                               .rounds = 15}));
}

static void started_calls(void **state)
{
    (void)state;
    _Atomic int over = 0;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    struct started *crowd = crowd_new(100, true, &over);
    for (size_t i = 0; i < 100; i++)
        start(lock, waiting(60000), &crowd[i]);
    eventually(atomic_load(&over) == 100);
    crowd_answered(crowd, 100, DLOCK_OK);
    free(crowd);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* They are told in time, and leave the queue. */
static void in_vain_and_cancelled(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock), *none = NULL;
    dlock_cancel *cancel = dlock_cancel_new();
    struct started in_vain = {0}, cancelled = {0}, once_only = {0}, released = {0};
    start(lock, waiting(100), &in_vain);
    start(lock, (struct dlock_want){.wait_ms = -1, .cancel = cancel}, &cancelled);
    start(lock, (struct dlock_want){0}, &once_only);
    assert_status(tried(lock, &none), BUSY);
    dlock_cancel_now(cancel);
    started_answered(&in_vain);
    started_answered(&cancelled);
    started_answered(&once_only);
    assert_int_equal(in_vain.status, DLOCK_TIMED_OUT);
    assert_int_equal(cancelled.status, DLOCK_CANCELLED);
    assert_int_equal(once_only.status, DLOCK_BUSY);
    start_release(hold, NULL, &released);
    started_answered(&released);
    assert_int_equal(released.status, DLOCK_OK);
    eventually(kept_in_the_background(client) == 0);
    assert_true(is_free(lock));
    dlock_cancel_free(cancel);
    leave(client, lock);
}

/* The token is ZooKeeper's own number of the change that made the node. */
static void tokens_grow(void **state)
{
    (void)state;
    uint64_t last = 0;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    for (int i = 0; i < 3; i++) {
        dlock_hold *hold = acquired(lock);
        assert_true(dlock_token(hold) > last);
        last = dlock_token(hold);
        assert_status(dlock_extend(hold), OK);
        assert_status(dlock_release(hold, NULL), OK);
    }
    leave(client, lock);
}

/* ---- Sentences ------------------------------------------------------------------------------- */

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    dlock_client *client;
    dlock *lock;
    dlock_hold *hold;
    const char *servers[] = {"zookeeper://h:2181", zookeeper_url(zookeeper)};
    struct dlock_options options = {
        .size = sizeof options, .engine = dlock_zookeeper(), .servers = servers, .server_count = 1};
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "servers[0] does not begin with zk://");
    servers[0] = "zk:127.0.0.1";
    options.server_count = 1;
    assert_status(dlock_client_open(&options, &client), INVALID);
    assert_says(dlock_error(), "servers[0] does not begin with zk://");

    client = client_here((struct dlock_options){.ttl_ms = 2000});
    assert_status(dlock_open(client, "watchdog", LOCK, &lock), INVALID);
    assert_string_equal(dlock_error(),
                        "rung 'watchdog' is not one of ZooKeeper; there 'zookeeper' is "
                        "right");
    assert_status(dlock_open(client, "etcd", LOCK, &lock), INVALID);
    assert_says(dlock_error(), "rung 'etcd' is not one of ZooKeeper; there 'zookeeper' is right");
    lock = lock_at(client);
    assert_string_equal(dlock_rung_of(lock)->adds, dlock_rung_find("zookeeper")->adds);
    struct dlock_want want = {.size = sizeof want, .ttl_ms = 60000};
    assert_status(dlock_acquire(lock, &want, &hold), INVALID);
    assert_says(dlock_error(), "want.ttl_ms is 60000, but all holds of a client live as long as "
                               "its session, 2000 ms");
    want = (struct dlock_want){.size = sizeof want, .reads = dlock_batch_new()};
    assert_status(dlock_acquire(lock, &want, &hold), UNSUPPORTED);
    dlock_batch_free(want.reads);
    leave(client, lock);

    char nobody[48];
    snprintf(nobody, sizeof nobody, "zk://127.0.0.1:%d", NOBODYS_PORT);
    client = client_at(nobody, (struct dlock_options){.connect_timeout_ms = 50});
    lock = lock_at(client);
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_says(dlock_error(), "zk://127.0.0.1:1 could not be connected to");
    leave(client, lock);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

/* A process that holds until it hears that its hold is lost. */
struct holder {
    const char *url;
    int64_t ttl_ms;
    clientid_t session;
    _Atomic bool holds;
};

static int hold(void *arg)
{
    struct holder *holder = arg;
    const char *servers[] = {holder->url};
    struct record *record = record_new();
    struct dlock_options options = {.size = sizeof options,
                                    .engine = dlock_zookeeper(),
                                    .servers = servers,
                                    .server_count = 1,
                                    .ttl_ms = holder->ttl_ms,
                                    .on_event = record_event,
                                    .on_event_arg = record};
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS};
    dlock_client *client;
    dlock *lock;
    dlock_hold *mine;
    must(dlock_client_open(&options, &client) == DLOCK_OK);
    must(dlock_open(client, NULL, LOCK, &lock) == DLOCK_OK);
    must(dlock_acquire(lock, NULL, &mine) == DLOCK_OK);
    holder->session = zookeeper_session(client);
    atomic_store(&holder->holds, true);
    eventually(record_count(record, "LOST #1") == 1);
    must(!dlock_valid(mine));
    must(dlock_release(mine, NULL) == DLOCK_LOST);
    must(dlock_acquire(lock, &want, &mine) == DLOCK_OK); /* in another session */
    must(dlock_release(mine, NULL) == DLOCK_OK);
    dlock_close(lock);
    dlock_client_close(client);
    record_free(record);
    return 0;
}

static pid_t holder_start(struct holder **made, int64_t ttl_ms)
{
    struct holder *holder =
        mmap(NULL, sizeof *holder, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(holder != MAP_FAILED);
    holder->url = zookeeper_url(zookeeper);
    holder->ttl_ms = ttl_ms;
    pid_t pid = child_start(hold, holder);
    eventually(atomic_load(&holder->holds));
    *made = holder;
    return pid;
}

static void stop_process(pid_t pid)
{
    int status = 0;
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
}

/* Another has the lock once the session is over, not before. */
static void its_holder_dies(void **state)
{
    (void)state;
    struct holder *holder;
    pid_t pid = holder_start(&holder, 1000);
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *none;
    assert_status(tried(lock, &none), BUSY);
    assert_says(dlock_error(), "held by '");
    long_pause(1500); /* the session lives as long as its process */
    assert_status(tried(lock, &none), BUSY);
    struct started next = {0};
    start(lock, waiting(60000), &next);
    kill(pid, SIGKILL);
    assert_int_equal(child_wait(pid), 128 + SIGKILL);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
    munmap(holder, sizeof *holder);
}

/* The process sleeps until another has the lock, and is told when it wakes. */
static void its_holder_is_frozen(void **state)
{
    (void)state;
    struct holder *holder;
    pid_t pid = holder_start(&holder, 500);
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    stop_process(pid);
    dlock_hold *next = acquired(lock);
    kill(pid, SIGCONT);
    assert_status(dlock_release(next, NULL), OK);
    assert_int_equal(child_wait(pid), 0);
    leave(client, lock);
    munmap(holder, sizeof *holder);
}

/* Another handle takes the session over, and closes it: its holder is told although its time is not
 * over. The process sleeps meanwhile, or it would take its session back. */
static void its_session_ends(void **state)
{
    (void)state;
    struct holder *holder;
    pid_t pid = holder_start(&holder, 2 * PATIENCE_MS);
    stop_process(pid);
    zhandle_t *other = zookeeper_here(&holder->session);
    assert_int_equal(zookeeper_close(other), ZOK);
    kill(pid, SIGCONT);
    assert_int_equal(child_wait(pid), 0);
    munmap(holder, sizeof *holder);
}

/* A hold outlives its time to live as long as its node can be written to. */
static void holds_are_given_time(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    long_pause(2500);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* The server is frozen, and nobody says that the session has expired: the client counts itself. */
static void its_server_hangs(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client = client_here(
        (struct dlock_options){.ttl_ms = 1000, .on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    zookeeper_pause(zookeeper);
    eventually(record_count(record, "it could not be renewed in time") == 1);
    assert_false(dlock_valid(hold));
    zookeeper_resume(zookeeper);
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

/* The session outlives the server's process, and so does the hold. */
static void its_server_restarts(void **state)
{
    (void)state;
    struct record *record = record_new();
    dlock_client *client =
        client_here((struct dlock_options){.on_event = record_event, .on_event_arg = record});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    zookeeper_restart(zookeeper);
    eventually(record_count(record, "SERVER_BACK") == 1);
    assert_int_equal(record_count(record, "SERVER_GONE"), 1);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    record_free(record);
}

static dlock_hold *identified(dlock *lock, char identity[96])
{
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .identity = true};
    dlock_hold *hold;
    assert_status(dlock_acquire(lock, &want, &hold), OK);
    snprintf(identity, 96, "%s", dlock_identity(hold));
    return hold;
}

/* The server refuses the client, which has seen more than it has, and says nothing of its session.
 * The same client makes the identity anew. */
static void its_server_loses_its_data(void **state)
{
    (void)state;
    char before[96], after[96], others[96];
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock_client *other;
    dlock *lock = lock_at(client), *others_lock;
    dlock_hold *hold = identified(lock, before);
    zookeeper_forget(zookeeper);
    other = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock_hold *next = identified(lock, after);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_status(dlock_release(next, NULL), OK);
    others_lock = lock_at(other);
    hold = identified(others_lock, others);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(strlen(before) > 0);
    assert_string_not_equal(after, before);
    assert_string_equal(after, others);
    leave(other, others_lock);
    leave(client, lock);
}

/* ---- Ends without a release ------------------------------------------------------------------ */

/* The session lives on, and the node has to go all the same. */
static void nobody_releases(void **state)
{
    (void)state;
    dlock_client *client = client_here((struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_abandon(hold), OK);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .hold_max_ms = 200};
    dlock_hold *brief;
    assert_status(dlock_acquire(lock, &want, &brief), OK);
    hold = acquired(lock);
    assert_false(dlock_valid(brief));
    assert_status(dlock_release(brief, NULL), LOST);
    assert_true(dlock_valid(hold));
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static void it_is_broken(void **state)
{
    (void)state;
    struct record *record = record_new();
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_client *client = client_here(
        (struct dlock_options){.ttl_ms = 1000, .on_event = record_event, .on_event_arg = record});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_break(others, &holder), OK);
    assert_string_equal(holder.owner, dlock_owner(hold));
    eventually(record_count(record, "the lock no longer belongs to this owner") == 1);
    assert_status(dlock_release(hold, NULL), LOST);
    assert_true(is_free(others));
    leave(client, lock);
    leave(other, others);
    record_free(record);
}

/* ---- Lost replies ---------------------------------------------------------------------------- */

/* The node that a lost reply told of is found again: there is no second one in the way. */
static void a_reply_is_lost(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock); /* now there is a connection, and a queue */
    assert_status(dlock_release(hold, NULL), OK);
    lose_reply(proxy, client);
    hold = acquired(lock);
    assert_true(proxy_done(proxy));
    lose_reply(proxy, client);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(proxy);
}

/* Its node holds nothing: it ends at another time. */
static void an_earlier_session_lives(void **state)
{
    (void)state;
    struct dlock_want want = {.size = sizeof want};
    dlock_hold *hold;
    dlock_client *client = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), next_owner(lock));
    assert_status(dlock_acquire(lock, &want, &hold), BUSY);
    assert_int_equal(zookeeper_close(earlier), ZOK);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* Nor does it if the client looks for its node by the owner's name. */
static void an_earlier_one_is_found(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), next_owner(lock));
    lose_reply(proxy, client);
    dlock_hold *hold = acquired(lock);
    assert_true(proxy_done(proxy));
    assert_int_equal(zookeeper_close(earlier), ZOK);
    assert_status(dlock_release(hold, NULL), OK); /* LOST, if it was the other one */
    assert_true(is_free(lock));
    leave(client, lock);
    proxy_free(proxy);
}

/* Nor does its own node stay when the client leaves the queue. */
static void an_earlier_one_is_found_in_vain(void **state)
{
    (void)state;
    dlock_hold *none;
    struct proxy *proxy = proxy_to(zookeeper);
    dlock_client *client = client_behind(proxy, (struct dlock_options){0});
    dlock_client *other = client_here((struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    int number = next_owner(lock);
    dlock_hold *theirs = acquired(others);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), number);
    lose_reply(proxy, client);
    assert_status(tried(lock, &none), BUSY);
    assert_true(proxy_done(proxy));
    eventually(kept_in_the_background(client) == 0);
    assert_int_equal(zookeeper_close(earlier), ZOK);
    assert_status(dlock_release(theirs, NULL), OK);
    theirs = acquired(others); /* nothing of the other client is before it */
    assert_status(dlock_release(theirs, NULL), OK);
    leave(client, lock);
    leave(other, others);
    proxy_free(proxy);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_the_oracle), /* it forks, so it comes first */
        cmocka_unit_test(its_holder_dies),  /* likewise */
        cmocka_unit_test(its_holder_is_frozen),
        cmocka_unit_test(its_session_ends),
        cmocka_unit_test(started_calls),
        cmocka_unit_test(in_vain_and_cancelled),
        cmocka_unit_test(tokens_grow),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(holds_are_given_time),
        cmocka_unit_test(its_server_hangs),
        cmocka_unit_test(its_server_restarts),
        cmocka_unit_test(its_server_loses_its_data),
        cmocka_unit_test(nobody_releases),
        cmocka_unit_test(it_is_broken),
        cmocka_unit_test(a_reply_is_lost),
        cmocka_unit_test(an_earlier_session_lives),
        cmocka_unit_test(an_earlier_one_is_found),
        cmocka_unit_test(an_earlier_one_is_found_in_vain),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("zookeeper", tests, set_up, tear_down);
}
