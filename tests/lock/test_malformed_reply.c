/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that are no reply, or not the one that is awaited: the call ends, with a status.
 */
#include "calls.h"
#include "must.h"
#include "recorded_stage.h"

#include <stdlib.h>

struct bytes {
    const char *bytes;
    size_t size;
};
#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }

static const struct bytes garbage[] = {
    BYTES("\r\n"),
    BYTES("\0"),
    BYTES("\xff\xff\xff\xff"),
    BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"),
    BYTES("+"),
    BYTES("+\r\n"),
    BYTES("+OK\r\n+OK\r\n"),
    BYTES("-\r\n"),
    BYTES("-ERR\r\n"),
    BYTES("-NOSCRIPT \r\n"),
    BYTES("-BUSY\r\n"),
    BYTES(":\r\n"),
    BYTES(":1x\r\n"),
    BYTES(":-1\r\n"),
    BYTES(":9223372036854775807\r\n"),
    BYTES(":99999999999999999999999999\r\n"),
    BYTES("$-1\r\n"),
    BYTES("$-2\r\n"),
    BYTES("$0\r\n\r\n"),
    BYTES("$3\r\nabc"),
    BYTES("$3\r\nabcde"),
    BYTES("$1000000000000\r\nabc\r\n"),
    BYTES("$99999999999999999999999\r\n"),
    BYTES("*-1\r\n"),
    BYTES("*0\r\n"),
    BYTES("*-9\r\n"),
    BYTES("*1\r\n"),
    BYTES("*1\r\n$1\r\n"),
    BYTES("*3\r\n:1\r\n:2\r\n:3\r\n"),
    BYTES("*3\r\n$-1\r\n*0\r\n:3\r\n"),
    BYTES("*3\r\n$6\r\nstring\r\n$-1\r\n:3\r\n"),
    BYTES("*3\r\n-ERR\r\n-ERR\r\n-ERR\r\n"),
    BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"),
    BYTES("*4294967297\r\n:1\r\n"),
    BYTES("*4611686018427387904\r\n:1\r\n"),
    BYTES("%1\r\n+a\r\n+b\r\n"),
    BYTES(">2\r\n+a\r\n+b\r\n"),
    BYTES("#t\r\n"),
    BYTES("_\r\n"),
};

static const char *const all_keyed[] = {
    "setnx",       "setnx_expire",   "setnx_multi",   "set_nx_ex",
    "owner_check", "owner_lua",      "reentrant_tls", "reentrant_getset",
    "reentrant",   "watchdog_timer", "watchdog",      "blpop_wake",
    "notify",      "fair",           "rw_counter",    "read_write"};

/* Whatever comes instead of the first reply of a call: the call ends, with a status. */
static void survive(struct stage *stage, const struct bytes *bytes, int call)
{
    dlock_hold *hold = NULL;
    struct dlock_holder holder = {.size = sizeof holder};
    if (call == 1)
        hold = acquired(stage->lock);
    else
        /* connected: the next reply is the call's */
        eventually(dlock_inspect(stage->lock, &holder) == DLOCK_OK);
    proxy_plan(stage->proxy, PROXY_REPLACE_REPLY, "", bytes->bytes, bytes->size);
    dlock_status status;
    if (call == 0)
        status = tried(stage->lock, &hold);
    else
        status = call == 1 ? dlock_release(hold, NULL) : dlock_inspect(stage->lock, &holder);
    assert_string_not_equal(dlock_status_name(status), "?");
    if (call == 0 && status == DLOCK_OK)
        dlock_release(hold, NULL);
    server_text(server, "FLUSHALL");
}

static void garbage_instead_of_a_reply(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all_keyed / sizeof all_keyed[0]; i++) {
        struct stage stage;
        stage_set_warm(&stage, all_keyed[i], (struct dlock_options){0});
        dlock_close(stage.lock);
        dlock_client_close(stage.client);
        /* Many of these are the beginning of something: not waited for any longer than this. */
        stage.client = client_of(proxy_url(stage.proxy), (struct dlock_options){
                                                             .command_timeout_ms = 10,
                                                             .on_trace = record_trace,
                                                             .on_trace_arg = stage.trace,
                                                         });
        stage.lock = lock_of(stage.client, all_keyed[i], LOCK);
        for (size_t j = 0; j < sizeof garbage / sizeof garbage[0]; j++)
            survive(&stage, &garbage[j], 0);
        stage_clear(&stage);
    }
}

/* A busy machine may not even get that far within the time-out. */
static bool has_met_it(const struct stage *stage, dlock *lock, dlock_hold **hold,
                       dlock_status *status)
{
    *status = tried(lock, hold);
    return proxy_done(stage->proxy);
}

static void garbage_instead_of_the_login(void **state)
{
    (void)state;
    struct stage stage;
    stage_set_warm(&stage, "watchdog", (struct dlock_options){0});
    for (size_t j = 0; j < sizeof garbage / sizeof garbage[0]; j++) {
        dlock_client *client =
            client_of(proxy_url(stage.proxy), (struct dlock_options){.connect_timeout_ms = 200});
        dlock *lock = lock_of(client, "watchdog", LOCK);
        dlock_hold *hold;
        proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "INFO", garbage[j].bytes, garbage[j].size);
        dlock_status status;
        eventually(has_met_it(&stage, lock, &hold, &status));
        assert_true(status == DLOCK_OK || status == DLOCK_UNREACHABLE);
        if (status == DLOCK_OK)
            assert_status(dlock_release(hold, NULL), OK);
        dlock_close(lock);
        dlock_client_close(client);
    }
    stage_clear(&stage);
}

static void garbage_instead_of_other_replies(void **state)
{
    (void)state;
    struct stage stage;
    for (int call = 1; call <= 2; call++) {
        stage_set_warm(&stage, "watchdog", (struct dlock_options){.command_timeout_ms = 200});
        for (size_t j = 0; j < sizeof garbage / sizeof garbage[0]; j++)
            survive(&stage, &garbage[j], call);
        /* the wire is whole again and so is the client */
        dlock_hold *hold = acquired(stage.lock);
        assert_status(dlock_release(hold, NULL), OK);
        stage_clear(&stage);
    }
}

static void random_bytes_instead_of_a_reply(void **state)
{
    static const char alphabet[] = "+-:$*0123456789\r\n\r\n\r\nOKabc\xff";
    (void)state;
    struct stage stage;
    unsigned seed = 20240502;
    stage_set_warm(&stage, "owner_lua", (struct dlock_options){.command_timeout_ms = 10});
    for (int i = 0; i < 150; i++) {
        char text[48];
        size_t size = 1 + (unsigned)rand_r(&seed) % sizeof text;
        for (size_t at = 0; at < size; at++)
            text[at] = alphabet[(unsigned)rand_r(&seed) % (sizeof alphabet - 1)];
        survive(&stage, &(struct bytes){text, size}, 0);
    }
    stage_clear(&stage);
}

/* An acquire that is answered so ends at once, long before its time-out. */
static void is_refused(const struct bytes *reply, const char *says)
{
    struct stage stage;
    dlock_hold *hold;
    stage_set_warm(&stage, "setnx", (struct dlock_options){.command_timeout_ms = 60000});
    proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "SETNX", reply->bytes, reply->size);
    assert_status(tried(stage.lock, &hold), UNKNOWN);
    assert_says(dlock_error(), says);
    stage_clear(&stage);
}

/* A reply that begins so, and is made longer than any may be, by one text again and again. */
static void grows_too_large(const char *begin, const char *more)
{
    const size_t size = 3 << 20, length = strlen(more);
    char *bytes = malloc(size);
    must(bytes != NULL);
    size_t at = strlen(begin);
    memcpy(bytes, begin, at);
    for (; at + length <= size; at += length)
        memcpy(bytes + at, more, length);
    is_refused(&(struct bytes){bytes, at}, "larger than 1 MiB");
    free(bytes);
}

static void a_reply_without_end(void **state)
{
    (void)state;
    grows_too_large("$900000000\r\n", "x");
}

/* Of an array the elements that have come count, too. */
static void an_array_without_end(void **state)
{
    (void)state;
    grows_too_large("*300000\r\n", "$4\r\nabcd\r\n");
}

/* No room is made for elements that cannot come: going through it would take a minute. */
static void an_array_of_too_many(void **state)
{
    static const struct bytes many = BYTES("*2147483647\r\n:1\r\n");
    (void)state;
    is_refused(&many, "not Redis's protocol");
}

/* A second reply that nobody asked for is not taken for the next command's. */
static void one_reply_too_many(void **state)
{
    (void)state;
    struct stage stage;
    dlock_hold *hold;
    struct bytes two = BYTES("+OK\r\n:0\r\n");
    stage_set_warm(&stage, "owner_lua", (struct dlock_options){0});
    proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "SET", two.bytes, two.size);
    assert_status(tried(stage.lock, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    assert_int_equal(exists(), 0);
    stage_clear(&stage);
}

/* What comes instead is no answer to the command, or one answer too many, as if the replies of the
 * connection had shifted: it is not believed, on another connection the same is asked again. */
static void replies_that_have_shifted(void **state)
{
    static const char *const rungs[][2] = {{"owner_lua", "SET"},    {"reentrant", "EVALSHA"},
                                           {"watchdog", "EVALSHA"}, {"notify", "EVALSHA"},
                                           {"fair", "EVALSHA"},     {"read_write", "EVALSHA"}};
    static const struct bytes shifted[] = {
        BYTES("*3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n"),
        BYTES("*2\r\n$1\r\n1\r\n:1\r\n"),
        BYTES("$1\r\nx\r\n"),
        BYTES("+QUEUED\r\n"),
        BYTES("*0\r\n"),
        BYTES("$-1\r\n:1\r\n"),
        BYTES(":1\r\n:1\r\n"),
    };
    (void)state;
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        struct stage stage;
        stage_set_warm(&stage, rungs[i][0], (struct dlock_options){0});
        dlock_client *other = client_of(server_url(server), (struct dlock_options){0});
        dlock *theirs = lock_of(other, rungs[i][0], LOCK);
        for (size_t j = 0; j < sizeof shifted / sizeof shifted[0]; j++) {
            dlock_hold *hold, *their_hold = acquired(theirs);
            uint64_t connects = stats_of(stage.client).connects;
            proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, rungs[i][1], shifted[j].bytes,
                       shifted[j].size);
            assert_status(tried(stage.lock, &hold), BUSY);
            assert_true(proxy_done(stage.proxy));
            assert_int_equal(stats_of(stage.client).connects, connects + 1);
            assert_status(dlock_release(their_hold, NULL), OK);

            hold = acquired(stage.lock);
            connects = stats_of(stage.client).connects;
            proxy_plan(stage.proxy, PROXY_REPLACE_REPLY, "EVALSHA", shifted[j].bytes,
                       shifted[j].size);
            assert_status(dlock_release(hold, NULL), OK);
            assert_int_equal(stats_of(stage.client).connects, connects + 1);
            server_text(server, "FLUSHALL");
        }
        dlock_close(theirs);
        dlock_client_close(other);
        stage_clear(&stage);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_instead_of_a_reply),
        cmocka_unit_test(garbage_instead_of_the_login),
        cmocka_unit_test(garbage_instead_of_other_replies),
        cmocka_unit_test(random_bytes_instead_of_a_reply),
        cmocka_unit_test(a_reply_without_end),
        cmocka_unit_test(an_array_without_end),
        cmocka_unit_test(an_array_of_too_many),
        cmocka_unit_test(one_reply_too_many),
        cmocka_unit_test(replies_that_have_shifted),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("malformed_reply", tests, start_server, stop_server);
}
