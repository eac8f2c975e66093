/* SPDX-License-Identifier: Apache-2.0
 *
 * A seam: commands that ride with the acquire and with the release, in one write and for one round
 * trip, on a rung of the ladder; and on a rung of our own whose release carries them inside its
 * script, so that they are done only while the hold is still the owner.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "redis_rung.h"
#include "sends.h"
#include "test_scripts.h"
#include "validate.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCK "lock:{riding}"
#define ARGS_MAX 28

/* ---- The rung -------------------------------------------------------------------------------- */

static dlock_status try_acquire(struct rung_env *env, struct dlock_hold *hold, struct busy *busy)
{
    (void)busy;
    struct answer set = CALL(env, "SET", hold->key, hold->id, "NX", "PX", hold->ttl);
    if (set.status != DLOCK_OK)
        return set.status;
    return set.kind == DLOCK_REPLY_NIL ? DLOCK_BUSY : DLOCK_OK;
}

/* The commands of `last` become the script's arguments, and their replies its reply. */
static dlock_status release(struct rung_env *env, struct dlock_hold *hold)
{
    struct dlock_batch *last = env->last;
    const char *argv[ARGS_MAX + 4] = {"1", hold->key, hold->id};
    char counts[DLOCK_BATCH_MAX][12];
    int argc = 3;
    for (size_t i = 0; last != NULL && i < last->count; i++) {
        const struct batch_command *command = &last->commands[i];
        if (argc + 1 + command->argc > ARGS_MAX)
            return fail(DLOCK_LIMIT, "too many arguments ride");
        snprintf(counts[i], sizeof counts[i], "%d", command->argc);
        argv[argc++] = counts[i];
        for (int j = 0; j < command->argc; j++)
            argv[argc++] = command->argv[j];
    }
    env->last = NULL;
    struct answer done = rung_eval(env, &lua_guarded_release, argv);
    if (done.status != DLOCK_OK)
        return done.status;
    if (done.kind == DLOCK_REPLY_NIL)
        return DLOCK_LOST;
    for (size_t i = 0; last != NULL && i < last->count && i < done.reply->elements; i++)
        batch_keep(&last->commands[i], done.reply->element[i]);
    return DLOCK_OK;
}

static const struct rung_ops guarded = {
    .name = "guarded",
    .traits = TRAIT_EXPIRES,
    .try_acquire = try_acquire,
    .release = release,
};

/* ---- The tests ------------------------------------------------------------------------------- */

/* A client whose connection is made and whose scripts are loaded, so that what is counted is the
 * lock's own traffic. */
struct stage {
    struct record *trace;
    dlock_client *client;
    dlock *lock;
    dlock_batch *reads;
    dlock_batch *last;
    struct dlock_want want;
};

static void count_from_here(struct stage *stage)
{
    record_clear(stage->trace);
    atomic_store(&sends, 0);
}

static void stage_set(struct stage *stage, const char *rung)
{
    server_text(server, "FLUSHALL");
    server_text(server, "SET stock 7");
    stage->trace = record_new();
    stage->client = client_of(server_url(server), (struct dlock_options){
                                                      .on_trace = record_trace,
                                                      .on_trace_arg = stage->trace,
                                                  });
    if (rung != NULL)
        stage->lock = lock_of(stage->client, rung, LOCK);
    else
        assert_status(dlock_open_ops(stage->client, &guarded, LOCK, &stage->lock), OK);
    stage->reads = dlock_batch_new();
    stage->last = dlock_batch_new();
    assert_status(dlock_batch_add(stage->reads, 2, (const char *const[]){"GET", "stock"}, NULL),
                  OK);
    assert_status(dlock_batch_add(stage->reads, 2, (const char *const[]){"GET", "nothing"}, NULL),
                  OK);
    assert_status(dlock_batch_add(stage->last, 3, (const char *const[]){"SET", "stock", "6"}, NULL),
                  OK);
    assert_status(dlock_batch_add(stage->last, 2, (const char *const[]){"INCR", "sold"}, NULL), OK);
    stage->want =
        (struct dlock_want){.size = sizeof stage->want, .wait_ms = 60000, .reads = stage->reads};
    dlock_hold *hold = acquired(stage->lock);
    assert_status(dlock_release(hold, NULL), OK);
    count_from_here(stage);
}

static void stage_clear(struct stage *stage)
{
    dlock_batch_free(stage->reads);
    dlock_batch_free(stage->last);
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->trace);
}

static void oracle(void **state)
{
    (void)state;
    const char *servers[] = {server_url(server), NULL};
    assert_true(oracle_agrees(&(struct oracle){
        .ops = &guarded,
        .servers = servers,
        .expected = HOLDS,
        .processes = 2,
        .threads = 4,
        .rounds = 15,
        .riding = true,
    }));
}

/* Every rung that sends: the reads are behind the first command of the acquire (of rw_counter the
 * second, which its own test shows), the writes ahead of the first one of the release, each in one
 * write to the socket. */
static void in_one_write(void **state)
{
    static const struct {
        const char *rung;
        const char *acquire; /* the first command of each */
        const char *release;
        int acquire_sends;
        int release_sends;
    } rungs[] = {
        {"setnx", "SETNX", "DEL", 1, 1},
        {"setnx_expire", "SETNX", "DEL", 2, 1},
        {"set_nx_ex", "SET " LOCK, "DEL", 1, 1},
        {"reentrant_getset", "GETSET", "EVALSHA", 2, 1},
        {"owner_check", "SET " LOCK, "GET " LOCK, 1, 2},
        {"owner_lua", "SET " LOCK, "EVALSHA", 1, 1},
        {"reentrant_tls", "SET " LOCK, "EVALSHA", 1, 1},
        {"reentrant", "EVALSHA", "EVALSHA", 1, 1},
        {"watchdog_timer", "EVALSHA", "EVALSHA", 1, 1},
        {"watchdog", "EVALSHA", "EVALSHA", 1, 1},
        {"blpop_wake", "EVALSHA", "EVALSHA", 1, 1},
        {"notify", "EVALSHA", "EVALSHA", 1, 1},
        {"fair", "EVALSHA", "EVALSHA", 1, 1},
        {"read_write", "EVALSHA", "EVALSHA", 1, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        dlock_hold *hold;
        stage_set(&stage, rungs[i].rung);
        assert_status(dlock_acquire(stage.lock, &stage.want, &hold), OK);
        assert_int_equal(atomic_load(&sends), rungs[i].acquire_sends);
        assert_int_equal(record_count(stage.trace, ""), 2 + rungs[i].acquire_sends);
        assert_int_equal(record_position(stage.trace, rungs[i].acquire), 0);
        assert_int_equal(record_position(stage.trace, "GET stock -> \"7\""), 1);
        assert_int_equal(record_position(stage.trace, "GET nothing -> (nil)"), 2);
        assert_string_equal(reply_of(stage.reads, 0).text, "7");
        assert_int_equal(reply_of(stage.reads, 1).kind, DLOCK_REPLY_NIL);

        count_from_here(&stage);
        assert_status(dlock_release(hold, stage.last), OK);
        assert_int_equal(atomic_load(&sends), rungs[i].release_sends);
        assert_int_equal(record_count(stage.trace, ""), 2 + rungs[i].release_sends);
        assert_int_equal(record_position(stage.trace, "SET stock 6 -> OK"), 0);
        assert_int_equal(record_position(stage.trace, "INCR sold -> (integer) 1"), 1);
        assert_int_equal(record_position(stage.trace, rungs[i].release), 2);
        assert_int_equal(reply_of(stage.last, 1).integer, 1);
        stage_clear(&stage);
    }
}

/* The server forgot the scripts: what rides with the acquire is read behind the grant all the same,
 * and what rides with the release is written once. */
static void once_also_when_scripts_are_gone(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, "watchdog");
    uint64_t loaded = stats_of(stage.client).scripts_loaded;
    server_text(server, "SCRIPT FLUSH");
    assert_status(dlock_acquire(stage.lock, &stage.want, &hold), OK);
    assert_int_equal(record_count(stage.trace, "NOSCRIPT"), 1);
    assert_true(record_count(stage.trace, "GET stock") == 2);
    assert_string_equal(reply_of(stage.reads, 0).text, "7");
    server_text(server, "SCRIPT FLUSH");
    assert_status(dlock_release(hold, stage.last), OK);
    assert_int_equal(record_count(stage.trace, "NOSCRIPT"), 2);
    assert_int_equal(record_count(stage.trace, "INCR sold"), 1);
    assert_string_equal(server_text(server, "GET sold"), "1");
    assert_int_equal(stats_of(stage.client).scripts_loaded, loaded + 2);
    stage_clear(&stage);
}

/* A transaction is one write; the reads stand behind it, where they are not queued. */
static void behind_a_transaction(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, "setnx_multi");
    assert_status(dlock_acquire(stage.lock, &stage.want, &hold), OK);
    assert_int_equal(atomic_load(&sends), 1);
    assert_int_equal(record_position(stage.trace, "EXEC"), 3);
    assert_int_equal(record_position(stage.trace, "GET stock -> \"7\""), 4);
    assert_string_equal(reply_of(stage.reads, 0).text, "7");
    assert_status(dlock_release(hold, stage.last), OK);
    assert_string_equal(server_text(server, "GET stock"), "6");
    stage_clear(&stage);
}

/* On a rung that sends nothing the batch goes alone, behind the grant and ahead of the release. */
static void alone_where_nothing_is_sent(void **state)
{
    static const char *const rungs[] = {"none", "local"};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct stage stage;
        dlock_hold *hold;
        stage_set(&stage, rungs[i]);
        assert_status(dlock_acquire(stage.lock, &stage.want, &hold), OK);
        assert_string_equal(reply_of(stage.reads, 0).text, "7");
        assert_status(dlock_release(hold, stage.last), OK);
        assert_string_equal(server_text(server, "GET stock"), "6");
        assert_int_equal(atomic_load(&sends), 3); /* with the login */
        stage_clear(&stage);
    }
}

/* One write, one command: the guarded writes are inside the release's script. */
static void guarded_writes_are_one_command(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, NULL);
    assert_status(dlock_acquire(stage.lock, &stage.want, &hold), OK);
    count_from_here(&stage);
    assert_status(dlock_release(hold, stage.last), OK);
    assert_int_equal(atomic_load(&sends), 1);
    assert_int_equal(record_count(stage.trace, ""), 1);
    assert_string_equal(server_text(server, "GET stock"), "6");
    assert_int_equal(reply_of(stage.last, 0).kind, DLOCK_REPLY_TEXT);
    assert_string_equal(reply_of(stage.last, 0).text, "OK");
    assert_int_equal(reply_of(stage.last, 1).integer, 1);
    stage_clear(&stage);
}

/* What is not answered exactly once, or changes the connection, or waits; by whatever name. */
static void what_cannot_ride(void **state)
{
    static const char *const refused[][4] = {
        {"UNSUBSCRIBE", "a", "b"},
        {"punsubscribe", "a"},
        {"SUnsubscribe", "a"},
        {"SUBSCRIBE", "a"},
        {"PSUBSCRIBE", "a"},
        {"SSUBSCRIBE", "a"},
        {"MONITOR"},
        {"SYNC"},
        {"PSYNC", "?", "-1"},
        {"REPLCONF", "ACK", "0"},
        {"WAIT", "1", "0"},
        {"WAITAOF", "0", "0", "0"},
        {"SHUTDOWN"},
        {"DEBUG", "SLEEP", "1"},
        {"SCRIPT", "debug", "YES"},
        {"XREAD", "BLOCK", "0"},
        {"xreadgroup", "block"},
        {"ASKING"},
        {"CLIENT", "REPLY", "OFF"},
        {"MULTI"},
        {"SELECT", "1"},
        {"BLPOP", "a", "0"},
        {"BLMOVE"},
        {"RESET"},
    };
    (void)state;
    dlock_batch *batch = dlock_batch_new();
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        int argc = 0;
        while (argc < 4 && refused[i][argc] != NULL)
            argc++;
        assert_status(dlock_batch_add(batch, argc, refused[i], NULL), INVALID);
        assert_says(dlock_error(), refused[i][0]);
        assert_says(dlock_error(), "cannot be sent in a batch");
    }
    assert_status(dlock_batch_add(batch, 2, (const char *const[]){"SCRIPT", "EXISTS"}, NULL), OK);
    assert_status(dlock_batch_add(batch, 2, (const char *const[]){"GET", "WAIT"}, NULL), OK);
    assert_status(dlock_batch_add(batch, 2, (const char *const[]){"XREAD", "COUNT"}, NULL), OK);
    dlock_batch_free(batch);
}

static void guarded_writes_are_refused_after_the_loss(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    stage_set(&stage, NULL);
    assert_status(dlock_acquire(stage.lock, &stage.want, &hold), OK);
    server_text(server, "SET " LOCK " another");
    assert_status(dlock_release(hold, stage.last), LOST);
    assert_string_equal(server_text(server, "GET stock"), "7");
    assert_string_equal(server_text(server, "GET " LOCK), "another");
    assert_int_equal(reply_of(stage.last, 0).kind, DLOCK_REPLY_NONE);
    stage_clear(&stage);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(oracle),
        cmocka_unit_test(in_one_write),
        cmocka_unit_test(once_also_when_scripts_are_gone),
        cmocka_unit_test(behind_a_transaction),
        cmocka_unit_test(alone_where_nothing_is_sent),
        cmocka_unit_test(what_cannot_ride),
        cmocka_unit_test(guarded_writes_are_one_command),
        cmocka_unit_test(guarded_writes_are_refused_after_the_loss),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("riding", tests, start_server, stop_server);
}
