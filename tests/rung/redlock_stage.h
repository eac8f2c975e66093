/* SPDX-License-Identifier: Apache-2.0
 *
 * Five servers for the tests of `redlock`, a proxy before each one if a test asks for it, and a
 * client of all or of the first three.
 */
#ifndef TESTS_REDLOCK_STAGE_H
#define TESTS_REDLOCK_STAGE_H

#include "background.h"
#include "calls.h"
#include "child.h"
#include "must.h"
#include "proxy.h"
#include "record.h"
#include "redis_engine.h"
#include "server.h"
#include "waiter.h"

#include <string.h>

#define LOCK "lock:{redlock}"
#define OTHER "lock:{other}"
#define SERVERS 5
#define LATE 4 /* the server that the tests delay */

extern const struct rung_ops rung_redlock;

static struct server *servers[SERVERS];
static struct proxy *proxies[SERVERS];

static inline dlock_client *client_of_urls(const char *const *urls, size_t count,
                                           struct dlock_options options)
{
    dlock_client *client;
    options.size = sizeof options;
    options.servers = urls;
    options.server_count = count;
    if (options.ttl_ms == 0)
        options.ttl_ms = 10 * PATIENCE_MS; /* no key disappears because it expires */
    if (options.connect_timeout_ms == 0)
        options.connect_timeout_ms = PATIENCE_MS;
    if (options.command_timeout_ms == 0)
        options.command_timeout_ms = PATIENCE_MS;
    assert_status(dlock_client_open(&options, &client), OK);
    return client;
}

static inline dlock_client *client_of_first(size_t count, struct dlock_options options)
{
    const char *urls[SERVERS];
    for (size_t i = 0; i < count; i++)
        urls[i] = server_url(servers[i]);
    return client_of_urls(urls, count, options);
}

static inline dlock *redlock_of(dlock_client *client)
{
    dlock *lock;
    assert_status(dlock_open_ops(client, &rung_redlock, LOCK, &lock), OK);
    return lock;
}

static inline void end(dlock_client *client, dlock *lock)
{
    dlock_close(lock);
    dlock_client_close(client);
}

static inline bool exists_on(size_t server)
{
    return server_integer(servers[server], "EXISTS " LOCK) == 1;
}

/* On how many of the servers the key is. */
static inline size_t exist(void)
{
    size_t count = 0;
    for (size_t i = 0; i < SERVERS; i++)
        count += exists_on(i);
    return count;
}

/* Renews the hold until so many servers count. */
static inline void counted_by(dlock_hold *hold, int count)
{
    const int64_t until_ms = clock_ms() + PATIENCE_MS;
    dlock_status status;
    uint32_t counted;
    bool reached;
    do {
        status = dlock_extend(hold);
        counted = hold->servers & 0xffff;
        reached = status == DLOCK_OK && __builtin_popcount(counted) == count;
        short_pause();
    } while (!reached && clock_ms() < until_ms);
    if (!reached)
        print_error("dlock_extend: %d, %s; counted %x, set again %x\n", status, dlock_error(),
                    counted, hold->quorum->again);
    must(reached);
}

/* A hold that all servers had: so the next request goes to each of them at once, and none of them
 * has anything of an earlier one to do. */
static inline dlock *connected(dlock_client *client)
{
    dlock *lock = redlock_of(client);
    for (size_t i = 0; i < SERVERS; i++) /* a release by the client before may have been cut off */
        server_integer(servers[i], "DEL " LOCK);
    dlock_hold *hold = acquired(lock);
    counted_by(hold, (int)redis_of(client)->config.server_count);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
    return lock;
}

static inline struct timekeeper *timekeeper_of(const dlock_hold *hold)
{
    return &hold->lock->client->timekeeper;
}

/* As a call of dlock_extend does: until end_round, the timekeeper does not renew the hold. */
static inline void begin_round_of(dlock_hold *hold)
{
    assert_true(timekeeper_begin_round(timekeeper_of(hold), hold, mono_deadline_ns(PATIENCE_MS)));
}

/* They become due at the same time, and the end of a round of `waker` wakes the timekeeper. */
static inline void are_due(dlock_hold *const *due, size_t count, dlock_hold *waker)
{
    struct timekeeper *timekeeper = timekeeper_of(waker);
    begin_round_of(waker);
    pthread_mutex_lock(&timekeeper->mutex);
    for (size_t i = 0; i < count; i++)
        if (due[i] != NULL)
            heap_put(&timekeeper->waiting, &due[i]->turn, 1);
    waker->in_round = false;
    pthread_mutex_unlock(&timekeeper->mutex);
    timekeeper_end_round(timekeeper, waker);
}

/* How many of the server's connections have sent a script last. */
static inline size_t sent_scripts(size_t server)
{
    const char *at = server_text(servers[server], "CLIENT LIST");
    size_t count = 0;
    while ((at = strstr(at, " cmd=eval ")) != NULL) {
        at++;
        count++;
    }
    return count;
}

/* The timekeeper of a client of so many servers, with one connection in its pool, has renewed a
 * hold on each. So the next renewal goes to all, on its own connection. Before the client connects,
 * no_scripts_were_sent must be true, and no other client connects meanwhile. */
static inline void timekeeper_reaches_all(dlock *lock, size_t count)
{
    const int64_t until_ns = mono_deadline_ns(PATIENCE_MS);
    dlock_hold *hold = acquired(lock);
    for (size_t reached = 0; reached < count;) {
        must(mono_ns() < until_ns);
        const size_t before = stats_of(lock->client).renewals;
        counted_by(hold, (int)count); /* a script of the pool's, too */
        are_due(&hold, 1, hold);
        eventually(stats_of(lock->client).renewals > before);
        for (reached = 0; reached < count && sent_scripts(reached) == 2;)
            reached++;
    }
    assert_status(dlock_release(hold, NULL), OK);
    eventually(exist() == 0);
}

static inline bool no_scripts_were_sent(void)
{
    for (size_t i = 0; i < SERVERS; i++)
        if (sent_scripts(i) > 0)
            return false;
    return true;
}

static inline void flush_all(void)
{
    for (size_t i = 0; i < SERVERS; i++)
        server_text(servers[i], "FLUSHALL");
}

/* No request is given up before its answer, unless the options limit it. */
static inline dlock_client *client_behind_proxies(size_t count, struct dlock_options options)
{
    const char *urls[SERVERS];
    if (options.command_timeout_ms == 0)
        options.command_timeout_ms = PATIENCE_MS;
    for (size_t i = 0; i < count; i++) {
        proxies[i] = proxy_start(servers[i]);
        urls[i] = proxy_url(proxies[i]);
    }
    return client_of_urls(urls, count, options);
}

static inline void end_behind_proxies(dlock_client *client, dlock *lock)
{
    end(client, lock);
    for (int i = 0; i < SERVERS; i++) {
        if (proxies[i] != NULL)
            proxy_free(proxies[i]);
        proxies[i] = NULL;
    }
}

static inline dlock_batch *batch_of(const char *command, const char *key)
{
    dlock_batch *batch = dlock_batch_new();
    assert_status(dlock_batch_add(batch, 2, (const char *const[]){command, key}, NULL), OK);
    return batch;
}

/* Another call, which keeps the connection that was the client's first. */
struct other_call {
    dlock *lock;
    dlock_batch *reads; /* the first server must answer them */
    struct waiter waiter;
};

static inline void other_call_start(struct other_call *call, dlock_client *client)
{
    assert_status(dlock_open_ops(client, &rung_redlock, OTHER, &call->lock), OK);
    call->reads = batch_of("GET", "stock");
    call->waiter =
        (struct waiter){.lock = call->lock, .want = {.wait_ms = PATIENCE_MS, .reads = call->reads}};
    proxy_plan(proxies[0], PROXY_HOLD_REQUEST, "other", NULL, 0);
    waiter_start(&call->waiter);
    eventually(proxy_done(proxies[0]));
}

/* The call ends, with a hold. */
static inline void other_call_end(struct other_call *call)
{
    proxy_let_go(proxies[0]);
    assert_status(waiter_end(&call->waiter), OK);
}

static inline void other_call_free(struct other_call *call)
{
    dlock_batch_free(call->reads);
    dlock_close(call->lock);
}

static inline int servers_start(void **state)
{
    (void)state;
    for (int i = 0; i < SERVERS; i++)
        servers[i] = server_start(NULL);
    return 0;
}

static inline int servers_stop(void **state)
{
    (void)state;
    for (int i = 0; i < SERVERS; i++)
        server_free(servers[i]);
    return 0;
}

#endif
