/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: the lock is handed on by a list. Waiters queue in Redis; the releaser makes the first of
 * them the owner and wakes it alone, by an element of a list that only this one blocks on.
 */
#include "calls.h"
#include "must.h"
#include "proxy.h"
#include "rung.h"
#include "server.h"
#include "validate.h"
#include "waiter.h"

#include <stdio.h>

#define AGAIN_MS 600000
#define LOCK "lock:{queue}"
#define QUEUE LOCK ":queue"
#define CLIENTS 3

extern const struct script lua_queue_acquire;
extern const struct script lua_queue_leave;

/* ---- The rung -------------------------------------------------------------------------------- */

struct keys {
    char queue[DLOCK_NAME_MAX + 16];
};

static struct keys keys_of(const struct dlock_hold *hold)
{
    struct keys keys;
    snprintf(keys.queue, sizeof keys.queue, "%s:queue", hold->key);
    return keys;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    struct keys keys = keys_of(hold);
    struct answer had =
        EVAL(env, &lua_queue_acquire, "2", hold->key, keys.queue, hold->id, hold->ttl);
    if (had.status != DLOCK_OK)
        return had.status;
    if (had.integer == 1)
        return DLOCK_OK;
    busy->kind = WAIT_LIST;
    busy->again_ms = AGAIN_MS;
    int size = snprintf(busy->source, sizeof busy->source, "%s:wake:%s", hold->key, hold->id);
    must(size < (int)sizeof busy->source);
    return DLOCK_BUSY;
}

static dlock_status leave(struct rung_env *env, struct dlock_hold *hold)
{
    struct keys keys = keys_of(hold);
    struct answer left =
        EVAL(env, &lua_queue_leave, "2", hold->key, keys.queue, hold->id, hold->ttl);
    if (left.status != DLOCK_OK)
        return left.status;
    return left.integer == 1 ? DLOCK_OK : DLOCK_LOST;
}

static void give_up(struct rung_env *env, struct dlock_hold *hold)
{
    leave(env, hold);
}

static const struct rung_ops queue = {
    .name = "queue",
    .traits = TRAIT_EXPIRES,
    .contend = CONTEND_ONE_PER_CLIENT,
    .try_acquire = try_acquire,
    .release = leave,
    .give_up = give_up,
};

/* ---- The tests ------------------------------------------------------------------------------- */

static struct server *server;

struct member {
    dlock_client *client;
    dlock *lock;
    struct waiter waiter;
};

static void join_under(struct member *member, const char *url, const char *name)
{
    *member = (struct member){.client = client_of(url, (struct dlock_options){0})};
    assert_status(dlock_open_ops(member->client, &queue, name, &member->lock), OK);
    member->waiter = (struct waiter){.lock = member->lock, .want = {.wait_ms = DLOCK_WAIT_FOREVER}};
}

static void join(struct member *member, const char *url)
{
    join_under(member, url, LOCK);
}

static void part(struct member *member)
{
    dlock_close(member->lock);
    dlock_client_close(member->client);
}

static uint64_t attempts(const struct member *member)
{
    return stats_of(member->client).attempts;
}

/* Waits in the queue, blocked on its list. */
static void line_up(struct member *member, long long place)
{
    waiter_start(&member->waiter);
    eventually(server_integer(server, "LLEN " QUEUE) == place && attempts(member) == 2);
}

static void oracle(void **state)
{
    (void)state;
    const char *servers[] = {server_url(server), NULL};
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &queue,
        .servers = servers,
        .expected = HOLDS,
        .processes = 3,
        .threads = 3,
        .rounds = 12,
        .riding = true,
    }));
    assert_int_equal(server_integer(server, "LLEN %s:queue", ORACLE_LOCK), 0);
}

static void handed_on_in_order_and_only_the_next_is_woken(void **state)
{
    (void)state;
    struct member holder;
    struct member members[CLIENTS];
    join(&holder, server_url(server));
    dlock_hold *hold = acquired(holder.lock);
    for (int i = 0; i < CLIENTS; i++) {
        join(&members[i], server_url(server));
        line_up(&members[i], i + 1);
    }
    for (int i = 0; i < CLIENTS; i++) {
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&members[i].waiter), OK);
        hold = members[i].waiter.hold;
        assert_int_equal(attempts(&members[i]), 3);
        for (int behind = i + 1; behind < CLIENTS; behind++)
            assert_int_equal(attempts(&members[behind]), 2);
    }
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    for (int i = 0; i < CLIENTS; i++)
        part(&members[i]);
    part(&holder);
}

/* The longest name leaves room for a list of the hold's own. */
static void a_name_of_512_bytes(void **state)
{
    (void)state;
    char name[DLOCK_NAME_MAX + 1];
    struct member holder, next;
    memset(name, 'n', sizeof name);
    name[DLOCK_NAME_MAX] = '\0';
    join_under(&holder, server_url(server), name);
    join_under(&next, server_url(server), name);
    dlock_hold *hold = acquired(holder.lock);
    waiter_start(&next.waiter);
    eventually(attempts(&next) == 2);
    assert_status(dlock_release(hold, NULL), OK);
    assert_status(waiter_end(&next.waiter), OK);
    assert_status(dlock_release(next.waiter.hold, NULL), OK);
    part(&next);
    part(&holder);
}

static void who_leaves_leaves_the_queue(void **state)
{
    (void)state;
    struct member holder, other;
    join(&holder, server_url(server));
    join(&other, server_url(server));
    dlock_hold *hold = acquired(holder.lock);
    dlock_hold *none;
    assert_status(tried(other.lock, &none), BUSY);
    assert_int_equal(server_integer(server, "LLEN " QUEUE), 0);
    struct dlock_want want = {.size = sizeof want, .wait_ms = 50};
    assert_status(dlock_acquire(other.lock, &want, &none), TIMED_OUT);
    assert_int_equal(server_integer(server, "LLEN " QUEUE), 0);
    assert_status(dlock_release(hold, NULL), OK);
    part(&other);
    part(&holder);
}

/* The lock is handed to one that is about to leave and has not heard of it: it hands it on. */
static void who_was_given_the_lock_and_leaves_hands_it_on(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member holder, deaf, next;
    join(&holder, server_url(server));
    join(&deaf, proxy_url(proxy));
    join(&next, server_url(server));
    dlock_hold *hold = acquired(holder.lock);
    deaf.waiter.want.cancel = dlock_cancel_new();
    proxy_plan(proxy, PROXY_HOLD_REPLY, "BLPOP", NULL, 0);
    line_up(&deaf, 1);
    line_up(&next, 2);
    assert_status(dlock_release(hold, NULL), OK);
    eventually(proxy_done(proxy));
    assert_false(atomic_load(&deaf.waiter.over));
    dlock_cancel_now(deaf.waiter.want.cancel);
    assert_status(waiter_end(&deaf.waiter), CANCELLED);
    assert_status(waiter_end(&next.waiter), OK);
    assert_status(dlock_release(next.waiter.hold, NULL), OK);
    assert_int_equal(server_integer(server, "EXISTS " LOCK), 0);
    dlock_cancel_free(deaf.waiter.want.cancel);
    part(&next);
    part(&deaf);
    part(&holder);
    proxy_free(proxy);
}

/* The try that queued it lost its reply: whoever leaves then leaves the queue as well. */
static void who_does_not_know_leaves_too(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    struct member holder, other;
    join(&holder, server_url(server));
    join(&other, proxy_url(proxy));
    dlock_hold *hold = acquired(holder.lock);
    dlock_hold *none;
    proxy_plan(proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
    assert_status(tried(other.lock, &none), UNKNOWN);
    assert_true(proxy_done(proxy));
    assert_int_equal(server_integer(server, "LLEN " QUEUE), 0);
    assert_status(dlock_release(hold, NULL), OK);
    part(&other);
    part(&holder);
    proxy_free(proxy);
}

static int start(void **state)
{
    (void)state;
    server = server_start(NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_free(server);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle),
        cmocka_unit_test(handed_on_in_order_and_only_the_next_is_woken),
        cmocka_unit_test(a_name_of_512_bytes),
        cmocka_unit_test(who_leaves_leaves_the_queue),
        cmocka_unit_test(who_was_given_the_lock_and_leaves_hands_it_on),
        cmocka_unit_test(who_does_not_know_leaves_too),
    };
    return cmocka_run_group_tests_name("queue", tests, start, stop);
}
