/* SPDX-License-Identifier: Apache-2.0
 *
 * What can come between two steps of the engine for ZooKeeper: a new connection, another session, a
 * login, a look-up. Functions of its client library are wrapped, so that it comes there.
 */
#include "cleanups.h"
#include "must.h"
#include "record.h"
#include "server.h"
#include "started.h"
#include "zk_session.h"
#include "zookeeper_stage.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <time.h>

#define IDENTITY_AT "/dlock/identity"

static struct proxy *proxy;

static int begin(void **state)
{
    set_up(state);
    proxy = proxy_to(zookeeper);
    return 0;
}

static int end(void **state)
{
    proxy_free(proxy);
    return tear_down(state);
}

static dlock_client *client_near(void)
{
    return client_behind(proxy, (struct dlock_options){0});
}

/* ---- A new connection between two requests that were sent together --------------------------- */

/* The first: a request for a path that ends so. It is cut, and with it the connection; the one that
 * follows goes by the next connection. */
static struct tear {
    const char *first; /* NULL: none is wanted */
    const char *text;  /* of the path's, as the proxy finds it */
    enum proxy_act act;
    bool is_sent;       /* the first one is, and not the second */
    size_t connections; /* that the client had made before */
} tear;
static int syncs;

static void tear_at(const char *first, const char *text, enum proxy_act act)
{
    tear = (struct tear){.first = first, .text = text, .act = act};
}

static bool has_torn(void)
{
    return tear.first == NULL && !tear.is_sent && proxy_done(proxy);
}

static void comes_first(const char *path)
{
    size_t size = tear.first != NULL ? strlen(tear.first) : 0;
    if (size == 0 || strlen(path) < size || strcmp(path + strlen(path) - size, tear.first) != 0)
        return;
    tear.first = NULL;
    tear.is_sent = true;
    tear.connections = proxy_connections(proxy);
    proxy_plan(proxy, tear.act, tear.text, NULL, 0);
}

/* Once the client connects again it has forgotten what the former connection carried. */
static void comes_second(void)
{
    if (!tear.is_sent)
        return;
    tear.is_sent = false;
    eventually(proxy_done(proxy) && proxy_connections(proxy) > tear.connections);
}

#define WRAPPED(type, name, ...)                                                                   \
    type __real_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__);                                                               \
    type __wrap_##name(__VA_ARGS__)

/* So many times a create finds the identity, and an operator deletes it at once. */
static _Atomic int identities_found;

WRAPPED(int, zoo_acreate, zhandle_t *handle, const char *path, const char *value, int size,
        const struct ACL_vector *access, int mode, string_completion_t then, const void *data)
{
    if (strcmp(path, IDENTITY_AT) == 0 && atomic_load(&identities_found) > 0) {
        atomic_fetch_sub(&identities_found, 1);
        return ZOK;
    }
    if (mode == ZOO_CONTAINER)
        comes_second();
    else
        comes_first(path);
    return __real_zoo_acreate(handle, path, value, size, access, mode, then, data);
}

static _Atomic int creates; /* of places in a queue */

WRAPPED(int, zoo_acreate2, zhandle_t *handle, const char *path, const char *value, int size,
        const struct ACL_vector *access, int mode, string_stat_completion_t then, const void *data)
{
    atomic_fetch_add(&creates, 1);
    comes_first(path);
    return __real_zoo_acreate2(handle, path, value, size, access, mode, then, data);
}

WRAPPED(int, zoo_async, zhandle_t *handle, const char *path, string_completion_t then,
        const void *data)
{
    syncs++;
    comes_first(path);
    return __real_zoo_async(handle, path, then, data);
}

/* It ends before the next read, as at its servers' own time. NULL: none. */
static zhandle_t *_Atomic ends_before_read;

WRAPPED(int, zoo_aget, zhandle_t *handle, const char *path, int watch, data_completion_t then,
        const void *data)
{
    zhandle_t *earlier = atomic_exchange(&ends_before_read, NULL);
    if (earlier != NULL)
        must(zookeeper_close(earlier) == ZOK);
    comes_second();
    return __real_zoo_aget(handle, path, watch, then, data);
}

WRAPPED(int, zoo_aget_children, zhandle_t *handle, const char *path, int watch,
        strings_completion_t then, const void *data)
{
    comes_second();
    return __real_zoo_aget_children(handle, path, watch, then, data);
}

/* What is listed does not tell what became of the create: it is no refusal, and no second node is
 * made. */
static void a_create_is_torn_from_its_list(enum proxy_act act)
{
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock); /* now there are a connection and a queue */
    assert_status(dlock_release(hold, NULL), OK);
    tear_at("-", QUEUE, act);
    hold = acquired(lock);
    assert_true(has_torn());
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
}

static void a_create_is_lost_before_its_list(void **state)
{
    (void)state;
    a_create_is_torn_from_its_list(PROXY_CUT_REQUEST);
}

static void a_create_is_answered_to_nobody_before_its_list(void **state)
{
    (void)state;
    a_create_is_torn_from_its_list(PROXY_CUT_REPLY);
}

/* Without it the list may be older than what was asked for. */
static void a_sync_is_lost_before_its_list(void **state)
{
    (void)state;
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    assert_true(is_free(lock));
    syncs = 0;
    tear_at(QUEUE, QUEUE, PROXY_CUT_REQUEST);
    assert_true(is_free(lock));
    assert_true(has_torn());
    assert_int_equal(syncs, 2);
    leave(client, lock);
}

/* The nodes above the queue are missing, and then the queue. */
static void a_path_is_lost_before_its_queue(void **state)
{
    (void)state;
    dlock_client *client = client_with(proxy, "", "/fresh", (struct dlock_options){0});
    dlock *lock = lock_at(client);
    tear_at("/fresh/locks", "/fresh/locks", PROXY_CUT_REQUEST);
    dlock_hold *hold = acquired(lock);
    assert_true(has_torn());
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static void an_identity_is_lost_before_it_is_read(void **state)
{
    (void)state;
    dlock_client *client = client_with(proxy, "", "/nameless", (struct dlock_options){0});
    dlock *lock = lock_at(client);
    tear_at("/nameless/identity", "/nameless/identity", PROXY_CUT_REQUEST);
    dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true});
    assert_true(has_torn());
    assert_true(strlen(dlock_identity(hold)) > 0);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* A create that its client gave up is delivered when the lock was released long ago: the server has
 * closed that connection, because the session has another one. */
static void a_create_is_late(void **state)
{
    (void)state;
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    proxy_plan(proxy, PROXY_DELAY_REQUEST, QUEUE, NULL, 0);
    hold = acquired(lock);
    assert_true(proxy_done(proxy));
    assert_status(dlock_release(hold, NULL), OK);
    proxy_let_go(proxy);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* ---- An answer that is none ------------------------------------------------------------------ */

/* The header of a reply to another request. */
static void plan_reply(int32_t xid, int32_t error, const char *text)
{
    const uint32_t words[] = {htonl(16), htonl((uint32_t)xid), 0, 0, htonl((uint32_t)error)};
    proxy_plan(proxy, PROXY_REPLACE_REPLY, text, words, sizeof words);
}

/* ZooKeeper's client closes the connection, and the outcome is as open as after a lost reply. */
static void a_reply_is_to_another_request(void **state)
{
    (void)state;
    char name[48];
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    snprintf(name, sizeof name, "%s:", dlock_client_id(client)); /* of its places */
    plan_reply(7, 0, name);
    hold = acquired(lock);
    assert_true(proxy_done(proxy));
    plan_reply(7, 0, name);
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(proxy_done(proxy));
    assert_true(is_free(lock));
    leave(client, lock);
}

/* ---- An acquire that ends in front of everybody ---------------------------------------------- */

static void is_over(int rc, const struct Stat *stat, const void *data)
{
    (void)stat;
    atomic_store((_Atomic int *)(uintptr_t)data, rc == ZOK ? 1 : -1);
}

static void is_done(int rc, const void *data)
{
    is_over(rc, NULL, data);
}

static void set_identity(const char *value)
{
    _Atomic int over = 0;
    zhandle_t *handle = zookeeper_here(NULL);
    assert_int_equal(
        zoo_aset(handle, IDENTITY_AT, value, (int)strlen(value), -1, is_over, (void *)&over), ZOK);
    eventually(atomic_load(&over) != 0);
    assert_int_equal(atomic_load(&over), 1);
    assert_int_equal(zookeeper_close(handle), ZOK);
}

/* Its node is there already: it does not stay until the session's time has passed twice. */
static void who_is_refused_leaves(void **state)
{
    (void)state;
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock_client *other = client_near();
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = wanted(others, (struct dlock_want){.identity = true});
    assert_status(dlock_release(hold, NULL), OK);
    set_identity("");
    struct dlock_want want = {.size = sizeof want, .wait_ms = PATIENCE_MS, .identity = true};
    assert_status(dlock_acquire(lock, &want, &hold), REFUSED);
    assert_says(dlock_error(), "its value is not one of this library");
    hold = acquired(others);
    assert_status(dlock_release(hold, NULL), OK);
    set_identity("0123");
    leave(other, others);
    leave(client, lock);
}

static void delete_identity(void)
{
    zhandle_t *handle = zookeeper_here(NULL);
    assert_int_equal(zoo_delete(handle, IDENTITY_AT, -1), ZOK);
    assert_int_equal(zookeeper_close(handle), ZOK);
}

static dlock_hold *identified(dlock *lock, uint64_t owner)
{
    return wanted(lock, (struct dlock_want){.identity = true, .owner_id = owner});
}

/* Before a copy of the data is used. All clients have the same new one from then on. */
static void an_operator_deletes_the_identity(void **state)
{
    (void)state;
    char former[64], next[64];
    dlock_client *client = client_near(), *other = client_near();
    dlock *kept = lock_named(client, "kept while it is deleted");
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *outer = identified(kept, 7), *hold = identified(others, 0);
    snprintf(former, sizeof former, "%s", dlock_identity(hold));
    assert_string_equal(dlock_identity(outer), former);
    assert_status(dlock_release(hold, NULL), OK);
    delete_identity();
    hold = identified(lock, 0);
    snprintf(next, sizeof next, "%s", dlock_identity(hold));
    assert_string_not_equal(next, former);
    assert_status(dlock_release(hold, NULL), OK);
    hold = identified(others, 0);
    assert_string_equal(dlock_identity(hold), next);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_hold *nested = identified(kept, 7); /* of the token that was granted before */
    assert_string_equal(dlock_identity(nested), former);
    assert_status(dlock_release(nested, NULL), OK);
    assert_status(dlock_release(outer, NULL), OK);
    dlock_close(kept);
    leave(other, others);
    leave(client, lock);
}

/* The servers may have been restored from a copy since, which no watch tells. */
static void a_new_connection_reads_the_identity(void **state)
{
    (void)state;
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    dlock_hold *hold = identified(lock, 0);
    assert_status(dlock_release(hold, NULL), OK);
    struct session *session = session_of(client);
    pthread_mutex_lock(&session->mutex);
    strcpy(session->identity.text, "of the former servers");
    pthread_mutex_unlock(&session->mutex);
    proxy_plan(proxy, PROXY_CUT_REQUEST, QUEUE, NULL, 0);
    hold = identified(lock, 0);
    assert_true(proxy_done(proxy));
    assert_string_not_equal(dlock_identity(hold), "of the former servers");
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static bool knows_identity(dlock_client *client)
{
    struct session *session = session_of(client);
    pthread_mutex_lock(&session->mutex);
    bool knows = session->identity.text[0] != '\0';
    session_unlock(session);
    return knows;
}

/* It is made again, and not for ever: a node that nobody may create is none, either. */
static void an_identity_is_deleted_before_it_is_read(void **state)
{
    enum { ENOUGH = 100, ATTEMPTS = 3 };
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    struct dlock_want want = {.size = sizeof want, .identity = true};
    assert_status(dlock_release(identified(lock, 0), NULL), OK);
    delete_identity();
    eventually(!knows_identity(client));
    atomic_store(&identities_found, ENOUGH);
    assert_status(dlock_acquire(lock, &want, &none), REFUSED);
    assert_int_equal(atomic_load(&identities_found), ENOUGH - ATTEMPTS);
    atomic_store(&identities_found, 1);
    dlock_hold *hold = identified(lock, 0);
    assert_int_equal(atomic_load(&identities_found), 0);
    assert_string_not_equal(dlock_identity(hold), "");
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static _Atomic int deletes, writes;

/* The answer to the next delete comes between two attempts of what asked for it: too late for the
 * first one, and before the second. */
static struct {
    _Atomic enum { LATE_NONE, LATE_WANTED, LATE_SENT, LATE_DUE, LATE_OVER } state;
    void_completion_t then;
} late_delete;

static void is_deleted_late(int rc, const void *data)
{
    eventually(atomic_load(&late_delete.state) == LATE_DUE);
    late_delete.then(rc, data);
    atomic_store(&late_delete.state, LATE_OVER);
}

WRAPPED(int64_t, queued_pause_ms, struct dlock_client *client)
{
    int sent = LATE_SENT;
    if (atomic_compare_exchange_strong(&late_delete.state, &sent, LATE_DUE))
        eventually(atomic_load(&late_delete.state) == LATE_OVER);
    return __real_queued_pause_ms(client);
}

WRAPPED(int, zoo_adelete, zhandle_t *handle, const char *path, int version, void_completion_t then,
        const void *data)
{
    atomic_fetch_add(&deletes, 1);
    bool is_of_node = strcmp(strrchr(path, '/'), "/-") != 0; /* else a list comes behind it */
    if (is_of_node && atomic_load(&late_delete.state) == LATE_WANTED) {
        late_delete.then = then;
        then = is_deleted_late;
        atomic_store(&late_delete.state, LATE_SENT);
    }
    return __real_zoo_adelete(handle, path, version, then, data);
}

WRAPPED(int, zoo_aset, zhandle_t *handle, const char *path, const char *value, int size,
        int version, stat_completion_t then, const void *data)
{
    atomic_fetch_add(&writes, 1);
    return __real_zoo_aset(handle, path, value, size, version, then, data);
}

static void allow(const char *path, int32_t what)
{
    _Atomic int over = 0;
    struct ACL acl = {.perms = what, .id = ZOO_ANYONE_ID_UNSAFE};
    struct ACL_vector access = {.count = 1, .data = &acl};
    zhandle_t *handle = zookeeper_here(NULL);
    assert_int_equal(zoo_aset_acl(handle, path, -1, &access, is_done, (void *)&over), ZOK);
    eventually(atomic_load(&over) != 0);
    assert_int_equal(atomic_load(&over), 1);
    assert_int_equal(zookeeper_close(handle), ZOK);
}

/* Its session lives on, and it cannot delete its node: it does not ask for that all the time. */
static void who_may_not_leave_asks_seldom(void **state)
{
    (void)state;
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_named(client, "kept");
    dlock_hold *hold = acquired(lock);
    allow("/dlock/locks/kept", ZOO_PERM_ALL & ~ZOO_PERM_DELETE);
    atomic_store(&deletes, 0);
    assert_status(dlock_release(hold, NULL), REFUSED);
    assert_says(dlock_error(), "not authenticated");
    eventually(atomic_load(&deletes) >= 2);
    atomic_store(&deletes, 0);
    atomic_store(&writes, 0);
    eventually(atomic_load(&writes) >= 12); /* of the session's node: two sessions' time */
    assert_true(atomic_load(&deletes) < 12);
    allow("/dlock/locks/kept", ZOO_PERM_ALL);
    eventually(is_free(lock));
    leave(client, lock);
}

/* ---- A node of an earlier session ------------------------------------------------------------ */

/* The client finds it by its owner's name, and it ends before the client reads whose it is. Then
 * the client looks for its own one: another one would be behind that. */
static void an_earlier_one_ends_before_it_is_read(void **state)
{
    (void)state;
    dlock_hold *hold;
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), next_owner(lock));
    lose_reply(proxy, client);
    atomic_store(&ends_before_read, earlier);
    assert_status(tried(lock, &hold), OK);
    assert_true(proxy_done(proxy));
    assert_null(atomic_load(&ends_before_read));
    assert_status(dlock_release(hold, NULL), OK);
    assert_true(is_free(lock));
    leave(client, lock);
}

/* A client that leaves has deleted it, and is told too late. It still has a node of its own. */
static void an_earlier_one_is_deleted_late(void **state)
{
    (void)state;
    struct started once = {0};
    dlock_client *client = client_behind(
        proxy, (struct dlock_options){.connect_timeout_ms = 1000, .command_timeout_ms = 500});
    dlock_client *other = client_near();
    dlock *lock = lock_at(client), *others = lock_at(other);
    int number = next_owner(lock);
    dlock_hold *theirs = acquired(others);
    zhandle_t *earlier = earlier_session(dlock_client_id(client), number);
    lose_reply(proxy, client);
    atomic_store(&late_delete.state, LATE_WANTED);
    start(lock, waiting(500), &once);
    started_answered(&once);
    assert_int_not_equal(once.status, DLOCK_OK);
    assert_true(proxy_done(proxy));
    eventually(atomic_load(&late_delete.state) == LATE_OVER);
    eventually(kept_in_the_background(client) == 0);
    assert_status(dlock_release(theirs, NULL), OK);
    assert_status(tried(others, &theirs), OK); /* nothing of the other client is before it */
    assert_status(dlock_release(theirs, NULL), OK);
    atomic_store(&late_delete.state, LATE_NONE);
    assert_int_equal(zookeeper_close(earlier), ZOK);
    leave(client, lock);
    leave(other, others);
}

/* ---- Sessions -------------------------------------------------------------------------------- */

/* What was sent has waited for the whole command_timeout_ms: no more is sent behind it, as without
 * a connection. A server that goes on has little to do. */
static void nothing_is_sent_to_a_server_that_hangs(void **state)
{
    (void)state;
    dlock_hold *hold;
    dlock_client *client = client_at(
        url_here(), (struct dlock_options){.ttl_ms = 10 * PATIENCE_MS, .command_timeout_ms = 500});
    dlock *lock = lock_at(client);
    struct dlock_want want = {.size = sizeof want, .call_max_ms = 20};
    assert_status(dlock_release(acquired(lock), NULL), OK);
    zookeeper_pause(zookeeper);
    assert_status(dlock_acquire(lock, &want, &hold), UNREACHABLE); /* it has only looked */
    assert_says(dlock_error(), "did not answer in time");
    eventually(dlock_acquire(lock, &want, &hold) == DLOCK_UNREACHABLE &&
               strstr(dlock_error(), "has not answered what had to be asked first") != NULL);
    atomic_store(&creates, 0);
    for (int i = 0; i < 20; i++)
        assert_status(dlock_acquire(lock, &want, &hold), UNREACHABLE);
    assert_int_equal(atomic_load(&creates), 0);
    zookeeper_resume(zookeeper);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static _Atomic int inits;
static dlock_client *_Atomic late; /* its first request is sent before zookeeper_init2 returns */

WRAPPED(zhandle_t *, zookeeper_init2, const char *hosts, watcher_fn watch, int ms,
        const clientid_t *id, void *context, int flags, log_callback_fn log)
{
    atomic_fetch_add(&inits, 1);
    zhandle_t *handle = __real_zookeeper_init2(hosts, watch, ms, id, context, flags, log);
    const dlock_client *client = late;
    if (client != NULL)
        eventually(stats_of(client).commands > 0);
    return handle;
}

/* Nodes are for the user alone, so the server must know the user before the first create. */
static void a_login_comes_before_all_requests(void **state)
{
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_with(proxy, "ann:secret@", "/ann", (struct dlock_options){0});
    dlock_client *other = client_with(proxy, "", "/ann", (struct dlock_options){0});
    late = client;
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(lock);
    late = NULL;
    assert_status(tried(others, &none), REFUSED);
    assert_says(dlock_error(), "not authenticated");
    assert_status(dlock_release(hold, NULL), OK);
    leave(other, others);
    leave(client, lock);
}

static _Atomic bool lacks_memory;

WRAPPED(int, zoo_add_auth, zhandle_t *handle, const char *scheme, const char *login, int size,
        void_completion_t then, const void *data)
{
    if (atomic_exchange(&lacks_memory, false))
        return ZSYSTEMERROR;
    return __real_zoo_add_auth(handle, scheme, login, size, then, data);
}

/* The connection lives, and nothing more is told of it. So another session is opened. */
static void a_login_is_not_sent(void **state)
{
    (void)state;
    dlock_client *client = client_with(proxy, "ann:secret@", "/ann", (struct dlock_options){0});
    dlock *lock = lock_at(client);
    atomic_store(&inits, 0);
    atomic_store(&lacks_memory, true);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(atomic_load(&inits), 2);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static _Atomic int threads_left = INT32_MAX;

WRAPPED(bool, dlock_private_thread_begin, pthread_t *thread, void *(*run)(void *), void *arg)
{
    if (atomic_fetch_sub(&threads_left, 1) > 0)
        return __real_dlock_private_thread_begin(thread, run, arg);
    atomic_store(&threads_left, 0);
    return false;
}

/* ZooKeeper's client would end the process. */
static void no_thread_is_left(void **state)
{
    (void)state;
    dlock_hold *hold;
    dlock_client *client = client_behind(proxy, (struct dlock_options){.connect_timeout_ms = 100});
    dlock *lock = lock_at(client);
    atomic_store(&inits, 0);
    atomic_store(&threads_left, 3); /* the engine's two, and one */
    assert_status(tried(lock, &hold), UNREACHABLE);
    assert_int_equal(atomic_load(&inits), 0);
    atomic_store(&threads_left, INT32_MAX);
    eventually(tried(lock, &hold) == DLOCK_OK);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static bool says_that_it_was_refused(dlock *lock)
{
    dlock_hold *hold;
    plan_reply(-4, ZAUTHFAILED, "ann:secret");
    return tried(lock, &hold) != DLOCK_OK && strstr(dlock_error(), "the login was refused") != NULL;
}

/* Then it is tried again, but not at once. */
static void a_login_is_refused(void **state)
{
    (void)state;
    dlock_client *client =
        client_with(proxy, "ann:secret@", "/ann",
                    (struct dlock_options){.connect_timeout_ms = 100, .command_timeout_ms = 100});
    dlock *lock = lock_at(client);
    eventually(says_that_it_was_refused(lock));
    dlock_hold *hold;
    proxy_plan(proxy, PROXY_CUT_REQUEST, "nobody says so", NULL, 0);
    eventually(tried(lock, &hold) == DLOCK_OK);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

/* A session is given up: that waits until its handle is connected again, and so does not. */
static _Atomic enum { NOT_ASKED, ASKED_FOR, GIVEN_UP } gives_up;

WRAPPED(const clientid_t *, zoo_client_id, zhandle_t *handle)
{
    if (atomic_load(&gives_up) == ASKED_FOR) {
        atomic_store(&gives_up, GIVEN_UP);
        eventually(zoo_state(handle) == ZOO_CONNECTED_STATE ||
                   zoo_state(handle) == ZOO_EXPIRED_SESSION_STATE);
    }
    return __real_zoo_client_id(handle);
}

/* Its holds were reported lost. So nothing is asked for in it, although it lives again. */
static void a_session_that_is_given_up_connects(void **state)
{
    (void)state;
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    atomic_store(&gives_up, ASKED_FOR);
    zookeeper_pause(zookeeper);
    eventually(atomic_load(&gives_up) == GIVEN_UP);
    zookeeper_restart(zookeeper); /* sessions have their whole time again */
    assert_status(dlock_release(hold, NULL), LOST);
    hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(stats_of(client).connects, 2);
    leave(client, lock);
}

/* The thread of a client that keeps the time is slow: it was woken, and others take the mutex
 * before it does. */
static pthread_t slow_thread;
static _Atomic enum { NOT_SLOW, SLOW, WOKEN_SLOWLY } slow;

static void come_late(pthread_mutex_t *mutex)
{
    if (atomic_load(&slow) == NOT_SLOW || !pthread_equal(pthread_self(), slow_thread))
        return;
    pthread_mutex_unlock(mutex);
    atomic_store(&slow, WOKEN_SLOWLY);
    while (atomic_load(&slow) != NOT_SLOW) /* the test says what it waits for in vain */
        short_pause();
    pthread_mutex_lock(mutex);
}

WRAPPED(int, pthread_cond_wait, pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    int rc = __real_pthread_cond_wait(cond, mutex);
    come_late(mutex);
    return rc;
}

WRAPPED(int, pthread_cond_timedwait, pthread_cond_t *cond, pthread_mutex_t *mutex,
        const struct timespec *until)
{
    int rc = __real_pthread_cond_timedwait(cond, mutex, until);
    come_late(mutex);
    return rc;
}

/* Whether the client's handle is there only to end a session that was given up. */
static bool ends_session(dlock_client *client)
{
    struct zk_session *zk = zk_of(session_of(client));
    pthread_mutex_lock(&zk->base.mutex);
    bool ends = zk->ending && zk->handle != NULL;
    pthread_mutex_unlock(&zk->base.mutex);
    return ends;
}

/* The thread that opens sessions hears that this is connected, although the one that keeps the time
 * has been woken before, and has not looked yet. */
static void a_session_that_was_given_up_is_ended(void **state)
{
    (void)state;
    struct started next = {0};
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 1000});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    zookeeper_pause(zookeeper);
    eventually(ends_session(client));
    slow_thread = zk_of(session_of(client))->threads[0];
    atomic_store(&slow, SLOW);
    start(lock, waiting(2 * PATIENCE_MS), &next);
    eventually(atomic_load(&slow) == WOKEN_SLOWLY);
    zookeeper_resume(zookeeper);
    eventually(!ends_session(client));
    atomic_store(&slow, NOT_SLOW);
    started_answered(&next);
    assert_int_equal(next.status, DLOCK_OK);
    assert_status(dlock_release(next.hold, NULL), OK);
    leave(client, lock);
}

/* Small enough to work with: ZooKeeper's client sends all watches anew in one request. */
static void its_watches_are_too_many(void **state)
{
    (void)state;
    enum { WAITERS = 60 };
    _Atomic int over = 0;
    struct zookeeper *small = zookeeper_start_with("-Djute.maxbuffer=2048");
    struct proxy *link = proxy_to(small);
    dlock_client *client =
        client_behind(link, (struct dlock_options){.ttl_ms = 3000, .contenders = WAITERS});
    dlock_client *other = client_at(zookeeper_url(small), (struct dlock_options){0});
    dlock *lock = lock_at(client), *others = lock_at(other);
    dlock_hold *hold = acquired(others);
    struct started *crowd = crowd_new(WAITERS, true, &over);
    for (size_t i = 0; i < WAITERS; i++)
        start(lock, waiting(PATIENCE_MS), &crowd[i]);
    eventually(stats_of(client).contended == WAITERS);
    proxy_plan(link, PROXY_CUT_REQUEST, "/dlock/clients/", NULL, 0);
    eventually(proxy_done(link));
    assert_status(dlock_release(hold, NULL), OK);
    eventually(atomic_load(&over) == WAITERS);
    crowd_answered(crowd, WAITERS, DLOCK_OK);
    free(crowd);
    leave(other, others);
    leave(client, lock);
    proxy_free(link);
    zookeeper_free(small);
}

/* ---- The clock ------------------------------------------------------------------------------- */

static _Atomic int64_t boottime_jumps_s, boottime_reads;

WRAPPED(int, clock_gettime, clockid_t clock, struct timespec *time)
{
    int result = __real_clock_gettime(clock, time);
    if (clock == CLOCK_BOOTTIME)
        time->tv_sec += atomic_load(&boottime_jumps_s);
    atomic_fetch_add(&boottime_reads, clock == CLOCK_BOOTTIME);
    return result;
}

/* The client was idle for longer than its session's time. What proves that it lives is a write a
 * tick after the first one: the next one would be due a sixth of the session's time later. */
static void the_first_proof_after_a_pause(void **state)
{
    (void)state;
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    atomic_store(&boottime_jumps_s, PATIENCE_MS / 50);
    lock = lock_at(client);
    hold = wanted(lock, (struct dlock_want){.wait_ms = PATIENCE_MS});
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    atomic_store(&boottime_jumps_s, 0);
}

/* All are in flight, and none is late. None of them looks at each of the others for that. */
static void an_acquire_does_not_look_at_all_others(void **state)
{
    enum { MANY = 200 };
    (void)state;
    char name[16];
    _Atomic int over = 0;
    dlock *locks[MANY];
    dlock_client *client =
        client_at(url_here(), (struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock *lock = lock_at(client);
    struct started *crowd = crowd_new(MANY, true, &over);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "%d", i);
        locks[i] = lock_named(client, name);
    }
    zookeeper_pause(zookeeper);
    atomic_store(&creates, 0);
    int64_t reads = atomic_load(&boottime_reads);
    for (int i = 0; i < MANY; i++)
        start(locks[i], waiting(PATIENCE_MS), &crowd[i]);
    eventually(atomic_load(&creates) == MANY);
    reads = atomic_load(&boottime_reads) - reads;
    zookeeper_resume(zookeeper);
    assert_in_range(reads, MANY, MANY * MANY / 4);
    eventually(atomic_load(&over) == MANY);
    crowd_answered(crowd, MANY, DLOCK_OK);
    free(crowd);
    for (int i = 0; i < MANY; i++)
        dlock_close(locks[i]);
    leave(client, lock);
}

/* No lock was open for long, and nothing was asked. The session is not given up for that when its
 * connection is lost before the first answer. */
static void a_connection_is_lost_after_a_pause(void **state)
{
    (void)state;
    dlock_client *client = client_behind(proxy, (struct dlock_options){.ttl_ms = 10 * PATIENCE_MS});
    dlock *lock = lock_at(client);
    assert_status(dlock_release(acquired(lock), NULL), OK);
    dlock_close(lock);
    uint64_t connects = stats_of(client).connects;
    proxy_cut(proxy, "");
    eventually(stats_of(client).connects == connects + 1);
    atomic_store(&boottime_jumps_s, PATIENCE_MS / 50);
    atomic_store(&inits, 0);
    proxy_plan(proxy, PROXY_CUT_REQUEST, "/dlock/clients/", NULL, 0);
    lock = lock_at(client);
    eventually(proxy_done(proxy));
    dlock_hold *hold = acquired(lock);
    assert_int_equal(atomic_load(&inits), 0);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
    atomic_store(&boottime_jumps_s, 0);
}

/* ---- Names ----------------------------------------------------------------------------------- */

static _Atomic int lookups;

/* Of ZooKeeper's client library: this one comes before the C library's. All hosts are this one. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **found)
{
    atomic_fetch_add(&lookups, 1);
    if (strchr(host, '[') != NULL)
        return EAI_NONAME;
    struct sockaddr_in *address = calloc(1, sizeof *address);
    struct addrinfo *one = calloc(1, sizeof *one);
    must(address != NULL && one != NULL);
    *address = (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)atoi(port)),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    *one = (struct addrinfo){.ai_family = AF_INET,
                             .ai_socktype = hints->ai_socktype,
                             .ai_protocol = hints->ai_protocol,
                             .ai_addrlen = sizeof *address,
                             .ai_addr = (struct sockaddr *)address};
    *found = one;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    free(found->ai_addr);
    free(found);
}

static bool nobody_is_looked_up(dlock *lock)
{
    int before = atomic_load(&lookups);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    return atomic_load(&lookups) == before;
}

/* A name server that is slow must not end a session that is connected. */
static void a_session_that_lives_looks_up_no_host(void **state)
{
    (void)state;
    dlock_client *client = client_near();
    dlock *lock = lock_at(client);
    eventually(nobody_is_looked_up(lock));
    for (int i = 0; i < 5; i++)
        assert_true(nobody_is_looked_up(lock));
    leave(client, lock);
}

/* The brackets are the URL's, and not the address's. */
static void an_address_in_brackets(void **state)
{
    (void)state;
    char url[64];
    snprintf(url, sizeof url, "zk://[::1]%s?tick_ms=%d", strrchr(zookeeper_hosts(zookeeper), ':'),
             ZOOKEEPER_TICK_MS);
    dlock_client *client = client_at(url, (struct dlock_options){0});
    dlock *lock = lock_at(client);
    dlock_hold *hold = acquired(lock);
    assert_status(dlock_release(hold, NULL), OK);
    leave(client, lock);
}

static _Atomic bool in_latin_1;

WRAPPED(const unsigned short **, __ctype_b_loc, void)
{
    static _Thread_local unsigned short table[384];
    static _Thread_local const unsigned short *from;
    const unsigned short **real = __real___ctype_b_loc();
    if (!in_latin_1)
        return real;
    memcpy(table, *real - 128, sizeof table);
    for (int c = 0xc0; c <= 0xff; c++)
        table[128 + c] = table[128 + 'a'];
    from = table + 128;
    return &from;
}

/* A letter in one locale is none in another: that must not make two locks of one. */
static void a_name_is_the_same_in_each_locale(void **state)
{
    (void)state;
    dlock_hold *none;
    dlock_client *client = client_near(), *other = client_near();
    dlock *lock = lock_named(client, "caf\xe9");
    in_latin_1 = true;
    dlock *others = lock_named(other, "caf\xe9");
    in_latin_1 = false;
    dlock_hold *hold = acquired(lock);
    assert_status(tried(others, &none), BUSY);
    assert_status(dlock_release(hold, NULL), OK);
    leave(other, others);
    leave(client, lock);
}

/* One argument: only the tests whose name it matches. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_create_is_lost_before_its_list),
        cmocka_unit_test(a_create_is_answered_to_nobody_before_its_list),
        cmocka_unit_test(a_sync_is_lost_before_its_list),
        cmocka_unit_test(a_path_is_lost_before_its_queue),
        cmocka_unit_test(an_identity_is_lost_before_it_is_read),
        cmocka_unit_test(a_create_is_late),
        cmocka_unit_test(a_reply_is_to_another_request),
        cmocka_unit_test(an_earlier_one_ends_before_it_is_read),
        cmocka_unit_test(an_earlier_one_is_deleted_late),
        cmocka_unit_test(who_is_refused_leaves),
        cmocka_unit_test(an_operator_deletes_the_identity),
        cmocka_unit_test(an_identity_is_deleted_before_it_is_read),
        cmocka_unit_test(a_new_connection_reads_the_identity),
        cmocka_unit_test(who_may_not_leave_asks_seldom),
        cmocka_unit_test(nothing_is_sent_to_a_server_that_hangs),
        cmocka_unit_test(a_login_comes_before_all_requests),
        cmocka_unit_test(a_login_is_refused),
        cmocka_unit_test(a_login_is_not_sent),
        cmocka_unit_test(no_thread_is_left),
        cmocka_unit_test(a_session_that_is_given_up_connects),
        cmocka_unit_test(a_session_that_was_given_up_is_ended),
        cmocka_unit_test(its_watches_are_too_many),
        cmocka_unit_test(the_first_proof_after_a_pause),
        cmocka_unit_test(a_connection_is_lost_after_a_pause),
        cmocka_unit_test(an_acquire_does_not_look_at_all_others),
        cmocka_unit_test(a_session_that_lives_looks_up_no_host),
        cmocka_unit_test(an_address_in_brackets),
        cmocka_unit_test(a_name_is_the_same_in_each_locale),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("zookeeper_between", tests, begin, end);
}
