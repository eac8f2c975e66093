/* SPDX-License-Identifier: Apache-2.0
 *
 * After a lost reply: the broken connection is ended at its server, and at no other.
 */
#include "calls.h"
#include "clock.h"
#include "must.h"
#include "own_server.h"
#include "proxy.h"
#include "redis.h"

#include <stdio.h>
#include <string.h>

#define KEY "key:{doubt}"
#define FEW_MS 100

/* Connected through a wire that can be cut. */
struct stage {
    struct proxy *proxy;
    struct server where;
    struct redis_config config;
    struct redis *redis;
};

/* login: "" or "user:password@". */
static void stage_set(struct stage *stage, const char *login, int64_t command_timeout_ms)
{
    char url[128];
    server_text(server, "FLUSHALL");
    *stage = (struct stage){.proxy = proxy_start(server)};
    stage->config = (struct redis_config){.servers = &stage->where,
                                          .server_count = 1,
                                          .connect_timeout_ms = PATIENCE_MS,
                                          .command_timeout_ms = command_timeout_ms};
    snprintf(url, sizeof url, "redis://%s%s", login, strstr(proxy_url(stage->proxy), "127"));
    assert_status(url_parse(url, &stage->where.url), OK);
    reach_init(&stage->where, SERVER_AT_URL, &stage->config.outages);
    stage->redis = redis_new(&stage->config);
    assert_non_null(stage->redis);
}

static void stage_clear(struct stage *stage)
{
    redis_free(stage->redis);
    reach_free(&stage->where);
    url_free(&stage->where.url);
    proxy_free(stage->proxy);
}

static dlock_status ask(struct stage *stage, const char *command, const char *key)
{
    assert_status(redis_ready(stage->redis, INT64_MAX, -1), OK);
    redis_begin(stage->redis);
    redis_append(stage->redis, 0, 2, (const char *const[]){command, key}, NULL);
    return redis_gather(stage->redis, INT64_MAX, -1);
}

/* An INCR of the key whose reply is lost in that way. */
static void lose(struct stage *stage, enum proxy_act act)
{
    assert_status(ask(stage, "EXISTS", KEY), OK); /* connected before the plan */
    proxy_plan(stage->proxy, act, "INCR", NULL, 0);
    assert_status(ask(stage, "INCR", KEY), UNKNOWN);
    assert_true(proxy_done(stage->proxy));
}

static bool kill_broken_connection(struct stage *stage, int64_t within_ms)
{
    int64_t deadline_ns = mono_deadline_ns(within_ms);
    struct connection_id broken;
    assert_true(redis_broken_connection(stage->redis, 0, &broken));
    return redis_ready(stage->redis, deadline_ns, -1) == DLOCK_OK &&
           redis_kill_broken(stage->redis, &broken, deadline_ns, -1) == KILL_DONE;
}

static long long exists(void)
{
    return server_integer(server, "EXISTS " KEY);
}

/* ---- The doubt is ended ---------------------------------------------------------------------- */

static const enum proxy_act late[] = {PROXY_DELAY_REQUEST, PROXY_HOLD_REQUEST};

/* What the others are measured by: a request that was given up comes late, and is carried out. */
static void a_late_request_is_carried_out(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, "", FEW_MS);
        lose(&stage, late[i]);
        proxy_let_go(stage.proxy);
        assert_int_equal(exists(), 1);
        stage_clear(&stage);
    }
}

static void a_late_request_never_comes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        char sentence[512];
        stage_set(&stage, "", FEW_MS);
        lose(&stage, late[i]);
        snprintf(sentence, sizeof sentence, "%s", dlock_error());
        stage.config.command_timeout_ms = PATIENCE_MS;
        assert_true(kill_broken_connection(&stage, PATIENCE_MS));
        assert_string_equal(dlock_error(), sentence);
        assert_int_equal(proxy_requests(stage.proxy, "KILL"), 1);
        proxy_let_go(stage.proxy);
        assert_int_equal(exists(), 0);
        assert_status(ask(&stage, "INCR", KEY), OK);
        assert_int_equal(redis_reply(stage.redis, 0, 0)->integer, 1);
        stage_clear(&stage);
    }
}

static void a_request_that_was_carried_out(void **state)
{
    static const enum proxy_act acts[] = {PROXY_CUT_REPLY, PROXY_MUTE};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        stage_set(&stage, "", FEW_MS);
        lose(&stage, acts[i]);
        stage.config.command_timeout_ms = PATIENCE_MS;
        assert_true(kill_broken_connection(&stage, PATIENCE_MS));
        assert_int_equal(exists(), 1);
        assert_int_equal(proxy_requests(stage.proxy, "KILL"), 1);
        stage_clear(&stage);
    }
}

/* The new connection was made before anybody asked. */
static void connected_again_before(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "", PATIENCE_MS);
    lose(&stage, PROXY_DELAY_REQUEST);
    assert_status(redis_ready(stage.redis, INT64_MAX, -1), OK);
    assert_true(kill_broken_connection(&stage, PATIENCE_MS));
    proxy_let_go(stage.proxy);
    assert_int_equal(exists(), 0);
    stage_clear(&stage);
}

/* The first attempt's own reply is lost: the doubt is still about the first connection. */
static void the_kill_is_lost_too(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "", PATIENCE_MS);
    lose(&stage, PROXY_DELAY_REQUEST);
    proxy_plan(stage.proxy, PROXY_CUT_REQUEST, "KILL", NULL, 0);
    assert_false(kill_broken_connection(&stage, PATIENCE_MS));
    assert_true(kill_broken_connection(&stage, PATIENCE_MS));
    proxy_let_go(stage.proxy);
    assert_int_equal(exists(), 0);
    stage_clear(&stage);
}

/* ---- It stays -------------------------------------------------------------------------------- */

static void nobody_answers_in_time(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "", PATIENCE_MS);
    lose(&stage, PROXY_DELAY_REQUEST);
    server_pause(server);
    assert_false(kill_broken_connection(&stage, FEW_MS));
    server_resume(server);
    assert_true(kill_broken_connection(&stage, PATIENCE_MS));
    stage_clear(&stage);
}

static redisContext *connection(long long *id)
{
    redisContext *context = redisConnect("127.0.0.1", server_port(server));
    must(context != NULL && context->err == 0);
    redisReply *reply = redisCommand(context, "CLIENT ID");
    must(reply != NULL && reply->type == REDIS_REPLY_INTEGER);
    *id = reply->integer;
    freeReplyObject(reply);
    return context;
}

/* The server came back: numbers begin again, and somebody else has this one. */
static void another_process(void **state)
{
    (void)state;
    struct stage stage;
    long long id;
    for (int i = 0; i < 20; i++)
        redisFree(connection(&id));
    stage_set(&stage, "", PATIENCE_MS);
    assert_status(ask(&stage, "CLIENT", "ID"), OK);
    long long ours = redis_reply(stage.redis, 0, 0)->integer;
    lose(&stage, PROXY_CUT_REQUEST);
    server_restart(server, NULL);
    redisContext *innocent = NULL;
    for (id = 0; id < ours;) {
        redisFree(innocent);
        innocent = connection(&id);
    }
    assert_int_equal(id, ours);
    assert_false(kill_broken_connection(&stage, PATIENCE_MS));
    redisReply *reply = redisCommand(innocent, "PING");
    assert_non_null(reply);
    freeReplyObject(reply);
    redisFree(innocent);
    assert_int_equal(proxy_requests(stage.proxy, "KILL"), 0);
    stage_clear(&stage);
}

/* The login is none the worse, and what is refused is not asked for again. */
static void refused(void **state)
{
    static const char *const rights[] = {"-client|id", "-info", "-client|kill"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct stage stage;
        server_text(server, "ACL SETUSER app on >pass ~* +@all %s", rights[i]);
        stage_set(&stage, "app:pass@", PATIENCE_MS);
        lose(&stage, PROXY_CUT_REPLY);
        assert_false(kill_broken_connection(&stage, PATIENCE_MS));
        assert_false(kill_broken_connection(&stage, PATIENCE_MS));
        assert_int_equal(proxy_requests(stage.proxy, "KILL"), i == 2);
        redis_disconnect(stage.redis);
        lose(&stage, PROXY_CUT_REPLY);
        assert_false(kill_broken_connection(&stage, PATIENCE_MS));
        assert_int_equal(proxy_requests(stage.proxy, "KILL"), i == 2);
        if (i < 2)
            assert_int_equal(proxy_requests(stage.proxy, "INFO"), 1);
        stage_clear(&stage);
        server_integer(server, "ACL DELUSER app");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_request_is_carried_out),
        cmocka_unit_test(a_late_request_never_comes),
        cmocka_unit_test(a_request_that_was_carried_out),
        cmocka_unit_test(connected_again_before),
        cmocka_unit_test(the_kill_is_lost_too),
        cmocka_unit_test(nobody_answers_in_time),
        cmocka_unit_test(another_process),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests_name("broken_connection", tests, start_server, stop_server);
}
