/* SPDX-License-Identifier: Apache-2.0
 *
 * A large foreign value at a lock's key: no script walks it on the server, and none returns it.
 */
#include "calls.h"
#include "own_server.h"
#include <stdlib.h>

#define LOCK "lock:{large}"

/* More than the library reads of one reply (1 MiB). */
static const char *const large[] = {
    "redis.call('SET', KEYS[1], ARGV[1])",
    "redis.call('HSET', KEYS[1], ARGV[1], '1')",
    "redis.call('HSET', KEYS[1], 'owner', ARGV[1])",
    "redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', '1')",
    "redis.call('ZADD', KEYS[1], '9e15', ARGV[1]) redis.call('PEXPIRE', KEYS[1], 600000)",
    "redis.call('RPUSH', KEYS[1], ARGV[1])",
};

/* Of many small parts. */
static const char *const many[] = {
    "for i = 1, 50000 do redis.call('HSET', KEYS[1], 'field' .. i, '1') end",
    "for i = 1, 50000 do redis.call('ZADD', KEYS[1], i, 'member' .. i) end",
};

/* Sets the key anew. Scripts that ran before leave no garbage. */
static void set(const char *script, size_t size)
{
    char *value = calloc(1, size + 1);
    assert_non_null(value);
    memset(value, 'x', size);
    server_text(server, "FLUSHALL");
    server_text(server, "EVAL %s 1 " LOCK " %s", script, value);
    server_text(server, "SCRIPT FLUSH SYNC");
    free(value);
}

static bool is_asked(const struct dlock_rung *rung)
{
    return !rung->flawed && strcmp(rung->name, "none") != 0 && strcmp(rung->name, "local") != 0;
}

/* All calls that ask for the holder. Each gets an answer, whatever the key holds. */
static void use(dlock *lock)
{
    struct dlock_holder holder = {.size = sizeof holder};
    dlock_hold *hold;
    dlock_status status = tried(lock, &hold);
    assert_true(status == DLOCK_BUSY || status == DLOCK_WRONG_TYPE);
    assert_int_equal(dlock_inspect(lock, &holder),
                     status == DLOCK_BUSY ? DLOCK_OK : DLOCK_WRONG_TYPE);
    status = dlock_break(lock, NULL);
    assert_true(status == DLOCK_OK || status == DLOCK_WRONG_TYPE);
}

static void each_rung(const char *script, size_t size, void (*after)(void))
{
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        if (!is_asked(&rungs[i]))
            continue;
        dlock_client *client = client_of(server_url(server), (struct dlock_options){0});
        dlock *lock = lock_of(client, rungs[i].name, LOCK);
        set(script, size);
        use(lock);
        assert_int_equal(stats_of(client).connections_lost, 0);
        if (after != NULL)
            after();
        dlock_close(lock);
        dlock_client_close(client);
    }
}

static void nobody_returns_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof large / sizeof large[0]; i++)
        each_rung(large[i], 3 << 20, NULL);
}

/* What a script reads is in its memory at first. */
static void assert_little_was_read(void)
{
    static const char name[] = "\nused_memory_lua:";
    const char *at = strstr(server_text(server, "INFO memory"), name);
    assert_non_null(at);
    assert_true(strtoll(at + strlen(name), NULL, 10) < 1 << 20);
}

static void nobody_walks_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof many / sizeof many[0]; i++)
        each_rung(many[i], 1, assert_little_was_read);
}

/* What the library's own holders left behind is removed, however many there were. */
static void many_expired_readers(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "read_write", LOCK);
    dlock_hold *hold;
    server_text(server, "FLUSHALL");
    server_text(server, "EVAL %s 2 " LOCK " dlock:holds:" LOCK,
                "for i = 1, 250 do redis.call('ZADD', KEYS[1], i, i) "
                "redis.call('HSET', KEYS[2], i, ' r' .. i .. ' ') end");
    assert_status(tried(lock, &hold), OK);
    assert_int_equal(server_integer(server, "ZCARD " LOCK), 1);
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

/* As much of it as fits is quoted. */
static void it_is_cut(void **state)
{
    (void)state;
    dlock_client *client = new_client();
    dlock *lock = lock_of(client, "owner_lua", LOCK);
    set(large[0], 3 << 20);
    assert_int_equal(strlen(holder_of(lock).owner), sizeof holder_of(lock).owner - 1);
    dlock_close(lock);
    dlock_client_close(client);
}

/* A reply that rides with an acquire is too large. It is lost with the connection, and the lock is
 * acquired all the same, whether the server knows the rung's script or not. */
static void too_large_a_reply_rides(void **state)
{
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = single_rungs(&count);
    for (size_t i = 0; i < 2 * count; i++) {
        const struct dlock_rung *rung = &rungs[i / 2];
        if (rung->flawed)
            continue;
        dlock_client *client = new_client();
        dlock *lock = lock_of(client, rung->name, LOCK);
        dlock_batch *reads = dlock_batch_new();
        set("redis.call('SET', 'value', ARGV[1])", 3 << 20);
        if (i % 2 == 1)
            assert_status(dlock_release(acquired(lock), NULL), OK);
        assert_status(dlock_batch_add(reads, 2, (const char *const[]){"GET", "value"}, NULL), OK);
        struct dlock_want want = {.size = sizeof want, .reads = reads};
        dlock_hold *hold;
        assert_status(dlock_acquire(lock, &want, &hold), OK);
        assert_int_equal(reply_of(reads, 0).kind, DLOCK_REPLY_NONE);
        assert_int_equal(stats_of(client).connections_lost, 1);
        assert_status(dlock_release(hold, NULL), OK);
        dlock_batch_free(reads);
        dlock_close(lock);
        dlock_client_close(client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_returns_it),       cmocka_unit_test(nobody_walks_it),
        cmocka_unit_test(many_expired_readers),    cmocka_unit_test(it_is_cut),
        cmocka_unit_test(too_large_a_reply_rides),
    };
    return cmocka_run_group_tests_name("large_values", tests, start_server, stop_server);
}
