/* SPDX-License-Identifier: Apache-2.0
 *
 * An etcd server that all tests of one program share, and clients of it.
 */
#ifndef TESTS_ETCD_STAGE_H
#define TESTS_ETCD_STAGE_H

#include "calls.h"
#include "proxy.h"
#include "dlock_etcd.h"
#include "etcd_engine.h"
#include "etcd_server.h"

#include <stdlib.h>
#include <string.h>

#define RUNG "etcd"
#define ENGINE dlock_etcd()
#define LOCK "lock:{a/b}"
#define QUEUE "/dlock/locks/lock:{a%2Fb}"
#define KEY_SIZE 256
/* Parts of requests. */
#define CREATE "\"create_revision\":\"0\""
#define DELETE "/v3/kv/deleterange"

static struct etcd_server *etcd;

static inline int set_up(void **state)
{
    (void)state;
    etcd = etcd_server_start(NULL);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    etcd_server_free(etcd);
    return 0;
}

static inline const char *url_here(void)
{
    return etcd_server_url(etcd);
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

static inline int proxy_port(const struct proxy *proxy)
{
    return atoi(strrchr(proxy_url(proxy), ':') + 1);
}

static inline dlock_client *client_behind(const struct proxy *proxy, struct dlock_options options)
{
    char url[64];
    snprintf(url, sizeof url, "etcd://127.0.0.1:%d", proxy_port(proxy));
    return client_at(url, options);
}

static inline dlock *lock_at(dlock_client *client)
{
    dlock *lock;
    assert_status(dlock_open(client, NULL, LOCK, &lock), OK);
    return lock;
}

static inline void leave(dlock_client *client, dlock *lock)
{
    dlock_close(lock);
    dlock_client_close(client);
}

/* How many keys are in the lock's queue. */
static inline int places_at(void)
{
    const char *said = etcd_server_ask(etcd, "/v3/kv/range",
                                       "{\"key\":\"%s\",\"range_end\":\"%s\",\"count_only\":true}",
                                       base64(QUEUE "/"), base64(QUEUE "0"));
    const char *count = strstr(said, "\"count\":\"");
    return count != NULL ? atoi(count + strlen("\"count\":\"")) : 0;
}

static inline bool is_free(dlock *lock)
{
    struct dlock_holder holder = {.size = sizeof holder};
    assert_status(dlock_inspect(lock, &holder), OK);
    return !holder.held;
}

static inline uint64_t revision_in(const char *said)
{
    const char *revision = strstr(said, "\"revision\":\"");
    assert_non_null(revision);
    return strtoull(revision + strlen("\"revision\":\""), NULL, 10);
}

/* The name of the owner's key in the queue, in base64. "": it has none. */
static inline void key_of(const char *owner, char key[KEY_SIZE])
{
    char value[160];
    const char *said =
        etcd_server_ask(etcd, "/v3/kv/range", "{\"key\":\"%s\",\"range_end\":\"%s\"}",
                        base64(QUEUE "/"), base64(QUEUE "0"));
    snprintf(value, sizeof value, "\"value\":\"%s\"", base64(owner));
    const char *end = strstr(said, value), *from = end;
    while (from != NULL && from > said && strncmp(from, "\"key\":\"", 7) != 0)
        from--;
    if (from == NULL || sscanf(from, "\"key\":\"%255[^\"]", key) != 1)
        key[0] = '\0';
}

/* By hand. */
static inline void delete_key_of(const char *owner)
{
    char key[KEY_SIZE];
    key_of(owner, key);
    etcd_server_ask(etcd, "/v3/kv/deleterange", "{\"key\":\"%s\"}", key);
}

static inline uint64_t revision_now(void)
{
    return revision_in(
        etcd_server_ask(etcd, "/v3/kv/range", "{\"key\":\"%s\"}", base64("/nobody")));
}

/* Deletes all keys of the queue by hand. The revision of that. */
static inline uint64_t empty_queue(void)
{
    return revision_in(etcd_server_ask(etcd, "/v3/kv/deleterange",
                                       "{\"key\":\"%s\",\"range_end\":\"%s\"}", base64(QUEUE "/"),
                                       base64(QUEUE "0")));
}

static inline void revoke_lease(uint64_t lease)
{
    etcd_server_ask(etcd, "/v3/lease/revoke", "{\"ID\":\"%llu\"}", (unsigned long long)lease);
}

/* A server where the user `ann` may only read and write below the path. */
static inline void allow(struct etcd_server *server)
{
    etcd_server_ask(server, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"r\"}");
    etcd_server_ask(server, "/v3/auth/role/add", "{\"name\":\"root\"}");
    etcd_server_ask(server, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    etcd_server_ask(server, "/v3/auth/user/add", "{\"name\":\"ann\",\"password\":\"p@ss\"}");
    etcd_server_ask(server, "/v3/auth/role/add", "{\"name\":\"locker\"}");
    etcd_server_ask(server, "/v3/auth/role/grant",
                    "{\"name\":\"locker\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"%s\","
                    "\"range_end\":\"%s\"}}",
                    base64("/dlock/"), base64("/dlock0"));
    etcd_server_ask(server, "/v3/auth/user/grant", "{\"user\":\"ann\",\"role\":\"locker\"}");
    etcd_server_ask(server, "/v3/auth/enable", "{}");
}

/* Another answer to the next request that contains the text. */
static inline void answer(struct proxy *proxy, const char *text, const char *status,
                          const char *body)
{
    char bytes[512];
    int size = snprintf(bytes, sizeof bytes, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
                        strlen(body), body);
    proxy_plan(proxy, PROXY_REPLACE_REPLY, text, bytes, (size_t)size);
}

static inline void answer_bad_token(struct proxy *proxy, const char *text)
{
    answer(proxy, text, "401 Unauthorized",
           "{\"code\":16,\"message\":\"etcdserver: invalid auth token\"}");
}

/* The user that `allow` makes. */
static inline dlock_client *ann_behind(const struct proxy *proxy, struct dlock_options options)
{
    char url[64];
    snprintf(url, sizeof url, "etcd://ann:p%%40ss@127.0.0.1:%d", proxy_port(proxy));
    return client_at(url, options);
}

#endif
