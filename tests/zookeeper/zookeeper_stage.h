/* SPDX-License-Identifier: Apache-2.0
 *
 * A ZooKeeper server that all tests of one program share, and clients of it.
 */
#ifndef TESTS_ZOOKEEPER_STAGE_H
#define TESTS_ZOOKEEPER_STAGE_H

#include "calls.h"
#include "must.h"
#include "proxy.h"
#include "dlock_zookeeper.h"
#include "zookeeper_engine.h"
#include "zookeeper_server.h"

#include <stdlib.h>
#include <string.h>

#define RUNG "zookeeper"
#define ENGINE dlock_zookeeper()
#define LOCK "lock:{a/b}"
#define QUEUE "/dlock/locks/lock:{a%2Fb}"

static struct zookeeper *zookeeper;

static inline int set_up(void **state)
{
    (void)state;
    zookeeper = zookeeper_start();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    zookeeper_free(zookeeper);
    return 0;
}

static inline const char *url_here(void)
{
    return zookeeper_url(zookeeper);
}

static inline dlock_client *client_at(const char *url, struct dlock_options options)
{
    if (options.ttl_ms == 0)
        options.ttl_ms = 30000;
    options.engine = ENGINE;
    return client_of(url, options);
}

static inline dlock_client *client_here(struct dlock_options options)
{
    return client_at(url_here(), options);
}

static inline struct proxy *proxy_to(const struct zookeeper *server)
{
    return proxy_start_to(atoi(strrchr(zookeeper_hosts(server), ':') + 1));
}

/* login: "" or "user:password@"; path: "" or "/path". */
static inline dlock_client *client_with(const struct proxy *proxy, const char *login,
                                        const char *path, struct dlock_options options)
{
    char url[128];
    snprintf(url, sizeof url, "zk://%s127.0.0.1%s%s?tick_ms=%d", login,
             strrchr(proxy_url(proxy), ':'), path, ZOOKEEPER_TICK_MS);
    return client_at(url, options);
}

static inline dlock_client *client_behind(const struct proxy *proxy, struct dlock_options options)
{
    return client_with(proxy, "", "", options);
}

static inline dlock *lock_named(dlock_client *client, const char *name)
{
    dlock *lock;
    assert_status(dlock_open(client, NULL, name, &lock), OK);
    return lock;
}

static inline dlock *lock_at(dlock_client *client)
{
    return lock_named(client, LOCK);
}

static inline void leave(dlock_client *client, dlock *lock)
{
    dlock_close(lock);
    dlock_client_close(client);
}

static inline bool is_free(dlock *lock)
{
    struct dlock_holder holder = {.size = sizeof holder};
    assert_status(dlock_inspect(lock, &holder), OK);
    return !holder.held;
}

/* The reply to the next request about one of the client's places is lost. */
static inline void lose_reply(struct proxy *proxy, dlock_client *client)
{
    char place[48];
    snprintf(place, sizeof place, "%s:", dlock_client_id(client));
    proxy_plan(proxy, PROXY_CUT_REPLY, place, NULL, 0);
}

/* ---- Sessions of the test's own -------------------------------------------------------------- */

static inline void note_connected(zhandle_t *handle, int type, int state, const char *path,
                                  void *context)
{
    (void)handle, (void)type, (void)path;
    if (state == ZOO_CONNECTED_STATE)
        atomic_store((_Atomic bool *)context, true);
}

/* id: of a session to take over; NULL: a new one. It is connected. */
static inline zhandle_t *zookeeper_here(const clientid_t *id)
{
    static _Atomic bool connected; /* the handle outlives this call */
    atomic_store(&connected, false);
    zhandle_t *handle = zookeeper_init(zookeeper_hosts(zookeeper), note_connected, 2 * PATIENCE_MS,
                                       id, &connected, 0);
    assert_non_null(handle);
    eventually(atomic_load(&connected));
    return handle;
}

/* The number of the owner that acquires next. */
static inline int next_owner(dlock *lock)
{
    dlock_hold *hold = acquired(lock);
    int number = atoi(strrchr(dlock_owner(hold), ':') + 1);
    assert_status(dlock_release(hold, NULL), OK);
    return number + 1;
}

/* Another session makes a node of that owner, as the client's own earlier session did. The servers
 * still keep that one if the client gave it up when it had no connection. */
static inline zhandle_t *earlier_session(const char *client_id, int number)
{
    char path[128];
    zhandle_t *handle = zookeeper_here(NULL);
    snprintf(path, sizeof path, "%s/%s:%d-", QUEUE, client_id, number);
    assert_int_equal(
        zoo_create(handle, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL_SEQUENTIAL, NULL, 0),
        ZOK);
    return handle;
}

#endif
