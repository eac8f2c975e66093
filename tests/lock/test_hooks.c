/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library shows of itself: what each rung sends, its named points, who holds a lock, its
 * counts, and the batch's replies.
 */
#include "calls.h"
#include "must.h"
#include "own_server.h"
#include "record.h"
#include "scripts.h"
#include "waiter.h"

#include <inttypes.h>
#include <stdio.h>

#define LOCK "lock:{hooks}"

struct stage {
    struct record *trace;
    struct record *points;
    dlock_client *client;
    dlock *lock;
};

static void stage_set(struct stage *stage, const char *rung)
{
    server_text(server, "FLUSHALL");
    stage->trace = record_new();
    stage->points = record_new();
    stage->client = client_of(server_url(server), (struct dlock_options){
                                                      .on_trace = record_trace,
                                                      .on_trace_arg = stage->trace,
                                                      .on_point = record_point,
                                                      .on_point_arg = stage->points,
                                                  });
    stage->lock = lock_of(stage->client, rung, LOCK);
}

static void stage_clear(struct stage *stage)
{
    dlock_close(stage->lock);
    dlock_client_close(stage->client);
    record_free(stage->trace);
    record_free(stage->points);
}

/* ---- What is sent, and the points ------------------------------------------------------------ */

#define LINES_MAX 6
#define FAIRS_KEYS " dlock:queue:" LOCK " dlock:token:" LOCK " dlock:grant:" LOCK
#define READ_WRITES_KEYS                                                                           \
    " dlock:holds:" LOCK " dlock:readers:" LOCK " dlock:writers:" LOCK " dlock:invited:" LOCK      \
    " dlock:token:" LOCK " dlock:free:" LOCK

/* $O the owner, $C its client, $I the hold's id, $T a token, $A $R the scripts that acquire and
 * release, $F that of fair, $W that of read_write; $D the one that deletes if it is the owner's. */
static const struct {
    const char *rung;
    const char *sent[LINES_MAX];
    const char *points[LINES_MAX];
} sending[] = {
    {"none", {0}, {0}},
    {"local", {0}, {0}},
    {"setnx",
     {"SETNX " LOCK " 1 -> (integer) 1", "DEL " LOCK " -> (integer) 1"},
     {"setnx.acquired", "setnx.before_release"}},
    {"setnx_expire",
     {"SETNX " LOCK " 1 -> (integer) 1", "PEXPIRE " LOCK " 30000 -> (integer) 1",
      "DEL " LOCK " -> (integer) 1"},
     {"setnx_expire.between_setnx_and_expire", "setnx_expire.acquired",
      "setnx_expire.before_release"}},
    {"setnx_multi",
     {"MULTI -> OK", "SETNX " LOCK " 1 -> QUEUED", "PEXPIRE " LOCK " 30000 -> QUEUED",
      "EXEC -> [(integer) 1, (integer) 1]", "DEL " LOCK " -> (integer) 1"},
     {"setnx_multi.acquired", "setnx_multi.before_release"}},
    {"set_nx_ex",
     {"SET " LOCK " 1 NX PX 30000 -> OK", "DEL " LOCK " -> (integer) 1"},
     {"set_nx_ex.acquired", "set_nx_ex.before_release"}},
    {"owner_check",
     {"SET " LOCK " $I NX PX 30000 -> OK", "GET " LOCK " -> \"$I\"", "DEL " LOCK " -> (integer) 1"},
     {"owner_check.acquired", "owner_check.before_release", "owner_check.between_get_and_del"}},
    {"owner_lua",
     {"SET " LOCK " $I NX PX 30000 -> OK", "EVALSHA $D 1 " LOCK " $I -> (integer) 1"},
     {"owner_lua.acquired", "owner_lua.before_release"}},
    {"reentrant_tls",
     {"SET " LOCK " $I NX PX 30000 -> OK", "EVALSHA $D 1 " LOCK " $I -> (integer) 1"},
     {"reentrant_tls.acquired", "reentrant_tls.before_release"}},
    {"reentrant_getset",
     {"GETSET " LOCK " $O -> (nil)", "PEXPIRE " LOCK " 30000 -> (integer) 1",
      "EVALSHA $D 1 " LOCK " $O -> (integer) 1"},
     {"reentrant_getset.acquired", "reentrant_getset.before_release"}},
    {"reentrant",
     {"EVALSHA $A 1 " LOCK " $O 30000 1 -> (nil)", "EVALSHA $R 1 " LOCK " $O 1 -> (integer) 0"},
     {"reentrant.acquired", "reentrant.before_release"}},
    {"watchdog_timer",
     {"EVALSHA $A 1 " LOCK " $O 30000 1 -> (nil)", "EVALSHA $R 1 " LOCK " $O 1 -> (integer) 0"},
     {"watchdog_timer.acquired", "watchdog_timer.before_release"}},
    {"watchdog",
     {"EVALSHA $A 1 " LOCK " $O 30000 1 -> (nil)", "EVALSHA $R 1 " LOCK " $O 1 -> (integer) 0"},
     {"watchdog.acquired", "watchdog.before_release"}},
    {"blpop_wake",
     {"EVALSHA $A 1 " LOCK " $O 30000 1 -> (nil)",
      "EVALSHA $B 2 " LOCK " " LOCK ":signals $O -> (integer) 0"},
     {"blpop_wake.acquired", "blpop_wake.before_release"}},
    {"notify",
     {"EVALSHA $N 2 " LOCK " dlock:token:" LOCK
      " $O 30000 1 86400000 -> [(integer) 1, (integer) $T]",
      "EVALSHA $M 2 " LOCK " redisson_lock__channel:" LOCK " $O 1 -> (integer) 0"},
     {"notify.acquired", "notify.before_release"}},
    {"fair",
     {"EVALSHA $F 4 " LOCK FAIRS_KEYS
      " acquire $C 3000 200 0 0 2 -> [(integer) 1, (integer) $T, (integer) 0]",
      "EVALSHA $F 4 " LOCK FAIRS_KEYS
      " release $C 3000 200 $T 0 2 $T -> [(integer) 1, (integer) 0, (integer) 0]"},
     {"fair.acquired", "fair.before_release"}},
    {"rw_counter",
     {"SET " LOCK " WRITE NX -> OK", "GET " LOCK ":read_count -> (nil)",
      "DEL " LOCK " -> (integer) 1"},
     {"rw_counter.between_say_and_look", "rw_counter.acquired", "rw_counter.before_release"}},
    {"read_write",
     {"EVALSHA $W 7 " LOCK READ_WRITES_KEYS " acquire $O w2 30000 alone 200 -> (integer) $T",
      "EVALSHA $W 7 " LOCK READ_WRITES_KEYS " release $O w2 30000 alone 200 -> (integer) 1"},
     {"read_write.acquired", "read_write.before_release"}},
};

/* What of a hold is in its commands. */
struct known {
    char owner[80], id[120], client[37];
};

static void know(struct known *known, const dlock_hold *hold)
{
    snprintf(known->owner, sizeof known->owner, "%s", dlock_owner(hold));
    snprintf(known->id, sizeof known->id, "%s#%" PRIu64, known->owner, dlock_acquisition(hold));
    snprintf(known->client, sizeof known->client, "%.36s", known->owner);
}

static const char *piece_of(const struct known *known, char letter)
{
    switch (letter) {
    case 'O':
        return known->owner;
    case 'I':
        return known->id;
    case 'C':
        return known->client;
    case 'T':
        return "$T"; /* tokens are hidden */
    case 'A':
        return lua_reentrant_acquire.sha1;
    case 'R':
        return lua_reentrant_release.sha1;
    case 'F':
        return lua_fair.sha1;
    case 'B':
        return lua_blpop_wake_release.sha1;
    case 'N':
        return lua_notify_acquire.sha1;
    case 'M':
        return lua_notify_release.sha1;
    case 'W':
        return lua_read_write.sha1;
    default:
        return lua_delete_if_owner.sha1;
    }
}

static void fill_in(const char *from, const struct known *known, char *to, size_t size)
{
    size_t used = 0;
    for (; *from != '\0'; from++) {
        const char *piece = NULL;
        if (*from == '$')
            piece = piece_of(known, *++from);
        used += (size_t)(piece != NULL ? snprintf(to + used, size - used, "%s", piece)
                                       : snprintf(to + used, size - used, "%c", *from));
    }
}

/* Tokens are microseconds since 1970: 16 digits. */
static void hide_tokens(char *line)
{
    for (char *at = line; *at != '\0'; at++) {
        size_t digits = strspn(at, "0123456789");
        if (digits == 16 && (at == line || at[-1] == ' ')) {
            memcpy(at, "$T", 2);
            memmove(at + 2, at + digits, strlen(at + digits) + 1);
        }
    }
}

static void what_each_rung_sends_and_passes(void **state)
{
    (void)state;
    size_t count;
    single_rungs(&count);
    assert_int_equal(count, sizeof sending / sizeof sending[0]);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct known known;
        char line[512], expected[512];
        stage_set(&stage, sending[i].rung);
        dlock_release(acquired(stage.lock), NULL); /* the scripts are loaded now */
        record_clear(stage.trace);
        record_clear(stage.points);
        dlock_hold *hold = acquired(stage.lock);
        know(&known, hold);
        assert_status(dlock_release(hold, NULL), OK);
        size_t lines = 0;
        for (; lines < LINES_MAX && sending[i].sent[lines] != NULL; lines++) {
            fill_in(sending[i].sent[lines], &known, expected, sizeof expected);
            record_line(stage.trace, "", lines, line, sizeof line);
            hide_tokens(line);
            assert_string_equal(line, expected);
        }
        assert_int_equal(record_count(stage.trace, ""), lines);
        size_t points = 0;
        for (; points < LINES_MAX && sending[i].points[points] != NULL; points++) {
            record_line(stage.points, "", points, line, sizeof line);
            assert_string_equal(line, sending[i].points[points]);
        }
        assert_int_equal(record_count(stage.points, ""), points);
        assert_int_equal(stats_of(stage.client).attempts, 2);
        stage_clear(&stage);
    }
}

/* A refused try passes no point. */
static void no_point_without_the_lock(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *none;
    stage_set(&stage, "owner_check");
    server_text(server, "SET " LOCK " another");
    assert_status(tried(stage.lock, &none), BUSY);
    assert_int_equal(record_count(stage.points, ""), 0);
    assert_int_equal(record_count(stage.trace, "NX PX 30000 -> (nil)"), 1);
    stage_clear(&stage);
}

/* Odd bytes are quoted, long arguments cut, errors shown; the URL without its password. */
static void keep_server(void *arg, const struct dlock_trace *trace)
{
    record_add(arg, "%s: %s -> %s", trace->server, trace->sent, trace->reply);
}

static void the_text_of_a_trace(void **state)
{
    (void)state;
    char url[96], expected[512], long_one[101];
    server_text(server, "FLUSHALL");
    server_text(server, "CONFIG SET requirepass geheim");
    snprintf(url, sizeof url, "redis://:geheim@127.0.0.1:%d/0", server_port(server));
    struct record *trace = record_new();
    dlock_client *client =
        client_of(url, (struct dlock_options){.on_trace = keep_server, .on_trace_arg = trace});
    dlock *lock = lock_of(client, "none", LOCK);
    dlock_batch *batch = dlock_batch_new();
    struct dlock_want want = {.size = sizeof want, .reads = batch};
    dlock_hold *hold;
    memset(long_one, 'x', 100);
    long_one[100] = '\0';
    dlock_batch_add(batch, 3, (const char *const[]){"SET", "a b\"\\\n\x01", ""}, NULL);
    dlock_batch_add(batch, 2, (const char *const[]){"GET", long_one}, NULL);
    dlock_batch_add(batch, 1, (const char *const[]){"NOSUCH"}, NULL);
    dlock_batch_add(batch, 3, (const char *const[]){"MGET", "a b\"\\\n\x01", "none"}, NULL);
    assert_status(dlock_acquire(lock, &want, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    char cut[128];
    snprintf(cut, sizeof cut, "GET \"%.80s...\" -> (nil)", long_one);
    const char *const lines[] = {
        "SET \"a b\\\"\\\\\\n\\x01\" \"\" -> OK",
        cut,
        "NOSUCH -> (error) ERR unknown command 'NOSUCH', with args beginning with: ",
        "MGET \"a b\\\"\\\\\\n\\x01\" none -> [\"\", (nil)]",
    };
    for (size_t i = 0; i < 4; i++) {
        char line[512];
        record_line(trace, "", i, line, sizeof line);
        snprintf(expected, sizeof expected, "redis://127.0.0.1:%d/0: %s", server_port(server),
                 lines[i]);
        assert_string_equal(line, expected);
    }
    assert_int_equal(record_count(trace, "geheim"), 0);
    assert_int_equal(record_count(trace, "AUTH"), 0);
    server_text(server, "CONFIG SET requirepass %s", "");
    dlock_batch_free(batch);
    dlock_close(lock);
    dlock_client_close(client);
    record_free(trace);
}

/* ---- Replies of a batch ---------------------------------------------------------------------- */

static void every_kind_of_reply(void **state)
{
    (void)state;
    struct stage stage;
    stage_set(&stage, "setnx");
    dlock_batch *batch = dlock_batch_new();
    struct dlock_want want = {.size = sizeof want, .reads = batch};
    dlock_hold *hold;
    dlock_hold *none;
    dlock_batch_add(batch, 3, (const char *const[]){"SET", "k", "a\0b"}, (size_t[]){3, 1, 3});
    dlock_batch_add(batch, 2, (const char *const[]){"GET", "k"}, NULL);
    dlock_batch_add(batch, 2, (const char *const[]){"GET", "nothing"}, NULL);
    dlock_batch_add(batch, 2, (const char *const[]){"STRLEN", "k"}, NULL);
    dlock_batch_add(batch, 2, (const char *const[]){"LLEN", "k"}, NULL);
    dlock_batch_add(batch, 2, (const char *const[]){"KEYS", "k"}, NULL);
    assert_status(dlock_acquire(stage.lock, &want, &hold), OK);
    assert_int_equal(reply_of(batch, 0).kind, DLOCK_REPLY_TEXT);
    assert_string_equal(reply_of(batch, 0).text, "OK");
    assert_int_equal(reply_of(batch, 1).kind, DLOCK_REPLY_TEXT);
    assert_int_equal(reply_of(batch, 1).text_size, 3);
    assert_memory_equal(reply_of(batch, 1).text, "a\0b", 4);
    assert_int_equal(reply_of(batch, 2).kind, DLOCK_REPLY_NIL);
    assert_int_equal(reply_of(batch, 3).kind, DLOCK_REPLY_INTEGER);
    assert_int_equal(reply_of(batch, 3).integer, 3);
    assert_int_equal(reply_of(batch, 4).kind, DLOCK_REPLY_ERROR);
    assert_says(reply_of(batch, 4).text, "WRONGTYPE");
    assert_int_equal(reply_of(batch, 5).kind, DLOCK_REPLY_OTHER);
    assert_string_equal(reply_of(batch, 5).text, "");

    /* The same batch again, on a server that is gone: no reply of before is left. */
    server_kill(server);
    assert_status(dlock_acquire(stage.lock, &want, &none), UNREACHABLE);
    assert_int_equal(reply_of(batch, 1).kind, DLOCK_REPLY_NONE);
    assert_status(dlock_release(hold, batch), UNREACHABLE);
    assert_int_equal(reply_of(batch, 1).kind, DLOCK_REPLY_NONE);
    server_restart(server, NULL);

    /* A caller that knows a shorter struct gets no more than that. */
    struct dlock_reply reply = {.size = offsetof(struct dlock_reply, text), .text_size = 77};
    assert_status(dlock_batch_reply(batch, 1, &reply), OK);
    assert_int_equal(reply.text_size, 77);
    dlock_batch_free(batch);
    stage_clear(&stage);
}

/* ---- Who holds it ---------------------------------------------------------------------------- */

static void inspected(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        struct stage stage;
        struct dlock_holder holder = {.size = sizeof holder};
        stage_set(&stage, rungs[i].name);
        if (strcmp(rungs[i].name, "none") == 0 || strcmp(rungs[i].name, "local") == 0) {
            assert_status(dlock_inspect(stage.lock, &holder), UNSUPPORTED);
            assert_says(dlock_error(), rungs[i].name);
            stage_clear(&stage);
            continue;
        }
        assert_status(dlock_inspect(stage.lock, &holder), OK);
        assert_false(holder.held);
        assert_string_equal(holder.owner, "");
        dlock_hold *hold = acquired(stage.lock);
        assert_status(dlock_inspect(stage.lock, &holder), OK);
        assert_true(holder.held);
        bool named = rungs[i].reentrant || strncmp(rungs[i].name, "owner", 5) == 0;
        if (strcmp(rungs[i].name, "fair") == 0) /* the client has it */
            assert_true(strlen(holder.owner) == 36 &&
                        strncmp(holder.owner, dlock_owner(hold), 36) == 0);
        else if (named)
            assert_memory_equal(holder.owner, dlock_owner(hold), strlen(dlock_owner(hold)));
        else
            assert_string_equal(holder.owner,
                                strcmp(rungs[i].name, "rw_counter") == 0 ? "WRITE" : "1");
        if (rungs[i].expires)
            assert_true(holder.ttl_ms > 0 && holder.ttl_ms <= 30000);
        else
            assert_int_equal(holder.ttl_ms, -1);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(dlock_inspect(stage.lock, &holder), OK);
        assert_false(holder.held);
        stage_clear(&stage);
    }
}

/* A caller that knows a shorter struct gets no more than that. */
static void inspected_into_a_shorter_struct(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_holder shorter = {.size = offsetof(struct dlock_holder, ttl_ms), .ttl_ms = 77};
    stage_set(&stage, "watchdog");
    dlock_hold *hold = acquired(stage.lock);
    assert_status(dlock_inspect(stage.lock, &shorter), OK);
    assert_true(shorter.held);
    assert_string_equal(shorter.owner, dlock_owner(hold));
    assert_int_equal(shorter.ttl_ms, 77);
    shorter = (struct dlock_holder){.size = offsetof(struct dlock_holder, owner), .owner = "?"};
    assert_status(dlock_break(stage.lock, &shorter), OK);
    assert_true(shorter.held);
    assert_string_equal(shorter.owner, "?");
    assert_int_equal(shorter.size, offsetof(struct dlock_holder, owner));
    assert_status(dlock_release(hold, NULL), LOST);
    stage_clear(&stage);
}

static void inspected_what_is_no_lock(void **state)
{
    (void)state;
    struct stage stage;
    struct dlock_holder holder = {.size = sizeof holder};
    char long_owner[300];
    stage_set(&stage, "owner_lua");
    server_integer(server, "RPUSH " LOCK " x");
    assert_status(dlock_inspect(stage.lock, &holder), WRONG_TYPE);
    assert_says(dlock_error(), "'" LOCK "' holds a list");
    memset(long_owner, 'o', sizeof long_owner - 1);
    long_owner[sizeof long_owner - 1] = '\0';
    server_text(server, "SET " LOCK " %s", long_owner);
    assert_status(dlock_inspect(stage.lock, &holder), OK);
    assert_int_equal(strlen(holder.owner), sizeof holder.owner - 1);
    holder.size = 0;
    assert_status(dlock_inspect(stage.lock, &holder), INVALID);
    assert_says(dlock_error(), "holder.size");
    holder.size = sizeof holder;
    server_kill(server);
    assert_status(dlock_inspect(stage.lock, &holder), UNREACHABLE);
    server_restart(server, NULL);
    server_text(server, "CONFIG SET maxmemory 1");
    eventually(dlock_inspect(stage.lock, &holder) == DLOCK_OK); /* it reads only; after a pause */
    server_text(server, "CONFIG SET maxmemory 0");
    stage_clear(&stage);
}

/* ---- Counts ---------------------------------------------------------------------------------- */

static void counts(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *none;
    stage_set(&stage, "owner_lua");
    server_text(server, "SCRIPT FLUSH");
    for (int i = 0; i < 3; i++)
        assert_status(dlock_release(acquired(stage.lock), NULL), OK);
    dlock_hold *hold = acquired(stage.lock);
    assert_status(tried(stage.lock, &none), BUSY);
    server_integer(server, "DEL " LOCK);
    assert_status(dlock_release(hold, NULL), LOST);
    struct dlock_stats stats = stats_of(stage.client);
    assert_int_equal(stats.acquired, 4);
    assert_int_equal(stats.attempts, 5);
    assert_int_equal(stats.released, 3);
    assert_int_equal(stats.scripts_loaded, 2); /* the release's, and the one that asks who has it */
    assert_int_equal(stats.commands, 5 + 4 + 1 + 2);
    assert_int_equal(stats.commands, record_count(stage.trace, ""));
    assert_int_equal(stats.connects, 1);
    assert_int_equal(stats.contended, 1);
    assert_int_equal(stats.renewals + stats.renewals_failed + stats.unknown, 0);
    struct dlock_stats shorter = {.size = offsetof(struct dlock_stats, released), .released = 77};
    dlock_client_stats(stage.client, &shorter);
    assert_int_equal(shorter.acquired, 4);
    assert_int_equal(shorter.released, 77);
    stage_clear(&stage);
}

/* Counted once an acquire, however often it tried; a lock that is free counts nothing. */
static void contended(void **state)
{
    (void)state;
    const char *const rungs[] = {"local", "setnx", "watchdog"};
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        dlock_hold *none;
        stage_set(&stage, rungs[i]);
        for (int n = 0; n < 3; n++)
            assert_status(dlock_release(acquired(stage.lock), NULL), OK);
        assert_int_equal(stats_of(stage.client).contended, 0);
        dlock_hold *hold = acquired(stage.lock);
        struct waiter waiter = {.lock = stage.lock,
                                .want = {.size = sizeof waiter.want, .wait_ms = 60000}};
        waiter_start(&waiter);
        eventually(stats_of(stage.client).contended > 0);
        if (strcmp(rungs[i], "local") != 0) /* whose waiter is woken: no further try */
            eventually(stats_of(stage.client).attempts >= 8);
        assert_status(dlock_release(hold, NULL), OK);
        assert_status(waiter_end(&waiter), OK);
        assert_int_equal(stats_of(stage.client).contended, 1);
        hold = waiter.hold;
        dlock *other = lock_of(stage.client, rungs[i], LOCK);
        struct dlock_want foreign = {.size = sizeof foreign, .owner_id = 77};
        assert_status(dlock_acquire(other, &foreign, &none), BUSY);
        assert_int_equal(stats_of(stage.client).contended, 2);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_close(other);
        stage_clear(&stage);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_each_rung_sends_and_passes),
        cmocka_unit_test(no_point_without_the_lock),
        cmocka_unit_test(the_text_of_a_trace),
        cmocka_unit_test(every_kind_of_reply),
        cmocka_unit_test(inspected),
        cmocka_unit_test(inspected_into_a_shorter_struct),
        cmocka_unit_test(inspected_what_is_no_lock),
        cmocka_unit_test(counts),
        cmocka_unit_test(contended),
    };
    return cmocka_run_group_tests_name("hooks", tests, start_server, stop_server);
}
