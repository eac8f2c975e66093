/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: a token that grows with every acquisition, over all processes.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "redis_rung.h"
#include "test_scripts.h"
#include "validate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK "lock:{token}"

/* ---- The rung -------------------------------------------------------------------------------- */

struct keys {
    char token[DLOCK_NAME_MAX + 16];
};

static struct keys keys_of(const struct dlock_hold *hold)
{
    struct keys keys;
    snprintf(keys.token, sizeof keys.token, "%s:token", hold->key);
    return keys;
}

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct keys keys = keys_of(hold);
    struct answer token =
        EVAL(env, &lua_token_acquire, "2", hold->key, keys.token, hold->id, hold->ttl);
    if (token.status != DLOCK_OK)
        return token.status;
    if (token.kind == DLOCK_REPLY_NIL)
        return DLOCK_BUSY;
    hold->token = (uint64_t)token.integer;
    return DLOCK_OK;
}

static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer del = EVAL(env, &lua_guarded_release, "1", hold->key, hold->id);
    if (del.status != DLOCK_OK)
        return del.status;
    return del.kind == DLOCK_REPLY_NIL ? DLOCK_LOST : DLOCK_OK;
}

/* While the lock is this hold's, nobody else has drawn a token. */
static dlock_status resolve(struct rung_env *env, struct dlock_hold *hold)
{
    struct answer owner = CALL(env, "GET", hold->key);
    if (owner.status != DLOCK_OK)
        return owner.status;
    if (strcmp(owner.text, hold->id) != 0)
        return DLOCK_BUSY;
    struct keys keys = keys_of(hold);
    struct answer token = CALL(env, "GET", keys.token);
    if (token.status == DLOCK_OK)
        hold->token = strtoull(token.text, NULL, 10);
    return token.status;
}

static const struct rung_ops token_rung = {
    .name = "token",
    .traits = TRAIT_EXPIRES | TRAIT_TOKEN,
    .try_acquire = try_acquire,
    .release = release,
    .resolve = resolve,
};

/* ---- The tests ------------------------------------------------------------------------------- */

static void oracle(void **state)
{
    (void)state;
    const char *servers[] = {server_url(server), NULL};
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &token_rung,
        .servers = servers,
        .expected = HOLDS,
        .processes = 3,
        .threads = 3,
        .rounds = 12,
        .riding = true,
    }));
    /* Not one was given out in vain, so the newest is the number of sections. */
    assert_string_equal(server_text(server, "GET %s:token", ORACLE_LOCK), "108");
}

static void known_again_after_a_lost_reply(void **state)
{
    (void)state;
    struct proxy *proxy = proxy_start(server);
    dlock_client *client = client_of(proxy_url(proxy), (struct dlock_options){0});
    dlock *lock;
    assert_status(dlock_open_ops(client, &token_rung, LOCK, &lock), OK);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(dlock_token(hold), 1);
    assert_status(dlock_release(hold, NULL), OK);
    proxy_plan(proxy, PROXY_CUT_REPLY, "EVALSHA", NULL, 0);
    assert_status(tried(lock, &hold), OK);
    assert_true(proxy_done(proxy));
    assert_int_equal(dlock_token(hold), 2);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
    proxy_free(proxy);
}

/* A rung that sends its acquire itself: the identity is asked for before it, on its own. */
static void knows_its_server(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
    dlock_batch *reads = dlock_batch_new();
    struct dlock_reply reply = {.size = sizeof reply};
    dlock *lock;
    assert_status(dlock_open_ops(client, &token_rung, LOCK, &lock), OK);
    assert_status(dlock_batch_add(reads, 2, (const char *const[]){"ECHO", "mine"}, NULL), OK);
    dlock_hold *hold = wanted(lock, (struct dlock_want){.identity = true, .reads = reads});
    assert_string_equal(dlock_identity(hold), server_text(server, "GET dlock:identity"));
    assert_status(dlock_batch_reply(reads, 0, &reply), OK);
    assert_string_equal(reply.text, "mine");
    assert_status(dlock_release(hold, NULL), OK);
    server_text(server, "SET dlock:identity %0100d", 7);        /* no value of the library's */
    hold = wanted(lock, (struct dlock_want){.identity = true}); /* it is acquired all the same */
    assert_string_equal(dlock_identity(hold), "");
    assert_status(dlock_release(hold, NULL), OK);
    server_integer(server, "DEL dlock:identity");
    server_integer(server, "LPUSH dlock:identity x");
    const struct dlock_want want = {.size = sizeof want, .identity = true};
    assert_status(dlock_acquire(lock, &want, &hold), WRONG_TYPE);
    assert_non_null(strstr(dlock_error(), "dlock:identity holds no string"));
    dlock_batch_free(reads);
    dlock_close(lock);
    dlock_client_close(client);
}

static void the_ladder_has_none(void **state)
{
    (void)state;
    dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, LOCK);
    dlock_hold *hold = acquired(lock);
    assert_int_equal(dlock_token(hold), 0);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle),
        cmocka_unit_test(known_again_after_a_lost_reply),
        cmocka_unit_test(knows_its_server),
        cmocka_unit_test(the_ladder_has_none),
    };
    return cmocka_run_group_tests_name("token", tests, start_server, stop_server);
}
