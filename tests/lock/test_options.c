/* SPDX-License-Identifier: Apache-2.0
 *
 * Options, and structs that are shorter or longer than this library's.
 */
#include "calls.h"

static void numbers_out_of_range(void **state)
{
    const struct {
        struct dlock_options options;
        const char *says;
    } bad[] = {
        {{.connect_timeout_ms = -1}, "connect_timeout_ms is -1; it must be 1 to 60000"},
        {{.connect_timeout_ms = 60001}, "connect_timeout_ms is 60001"},
        {{.command_timeout_ms = -5}, "command_timeout_ms is -5"},
        {{.command_timeout_ms = 60001}, "command_timeout_ms is 60001"},
        {{.ttl_ms = 99}, "ttl_ms is 99; it must be 100 to 86400000, or 0 for 30000"},
        {{.ttl_ms = 86400001}, "ttl_ms is 86400001"},
        {{.ttl_ms = INT64_MIN}, "ttl_ms is -9223372036854775808"},
        {{.ttl_ms = INT64_MAX}, "ttl_ms is 9223372036854775807"},
        {{.retry_ms = -1}, "retry_ms is -1"},
        {{.retry_ms = 60001}, "retry_ms is 60001"},
        {{.connections_max = 10001}, "connections_max"},
        {{.connections_max = SIZE_MAX},
         "connections_max is 18446744073709551615; it must be 1 to 10000, or 0 for 64"},
        {{.contenders = (size_t)INT64_MAX + 2}, "contenders is 9223372036854775809"},
        {{.connections_max = SIZE_MAX, .ttl_ms = 1}, "ttl_ms"},
        {{.server_count = 1}, "servers is NULL"},
        {{.servers = (const char *const[1]){"redis://h"}},
         "server_count is 0, but servers is given; set server_count to the number of URLs"},
        {{.server_count = 17, .servers = (const char *const[17]){"redis://h"}}, "17 servers"},
        {{.server_count = SIZE_MAX, .servers = (const char *const[1]){"redis://h"}}, "servers"},
        {{.server_count = 2, .servers = (const char *const[2]){"redis://h"}}, "URL is missing"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        dlock_client *client = (dlock_client *)&client;
        struct dlock_options options = bad[i].options;
        options.size = sizeof options;
        assert_status(dlock_client_open(&options, &client), INVALID);
        assert_null(client);
        assert_says(dlock_error(), bad[i].says);
    }
    dlock_client *client;
    assert_status(dlock_client_open(&(struct dlock_options){.ttl_ms = 500}, &client), INVALID);
    assert_says(dlock_error(), "options.size is 0");
}

static void numbers_in_range(void **state)
{
    static const struct dlock_options good[] = {
        {.connect_timeout_ms = 1, .command_timeout_ms = 1, .ttl_ms = 100, .retry_ms = 1},
        {.connect_timeout_ms = 60000, .command_timeout_ms = 60000, .ttl_ms = 86400000},
        {.retry_ms = 60000, .connections_max = 10000},
        {.connections_max = 1},
    };
    (void)state;
    dlock_client *client;
    assert_status(dlock_client_open(NULL, &client), OK);
    dlock_client_close(client);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct dlock_options options = good[i];
        options.size = sizeof options;
        assert_status(dlock_client_open(&options, &client), OK);
        dlock_client_close(client);
    }
    dlock_client_close(NULL);
}

/* A caller that was built with an older, shorter struct: what it does not know is not looked at. */
static void a_shorter_struct(void **state)
{
    (void)state;
    struct dlock_options options = {.size = offsetof(struct dlock_options, ttl_ms), .ttl_ms = -1};
    dlock_client *client;
    assert_status(dlock_client_open(&options, &client), OK);
    dlock_client_close(client);
    options.size = sizeof options;
    assert_status(dlock_client_open(&options, &client), INVALID);

    client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, "local", "lock:a");
    dlock_hold *hold;
    struct dlock_want want = {.size = offsetof(struct dlock_want, owner_id), .owner_id = 77};
    assert_status(dlock_acquire(lock, &want, &hold), OK);
    assert_null(strstr(dlock_owner(hold), ":x77"));
    assert_status(dlock_release(hold, NULL), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

/* A caller that was built with a newer, longer struct: what this library does not know must be
 * zero. */
static void a_longer_struct(void **state)
{
    (void)state;
    struct {
        struct dlock_options known;
        unsigned char newer[8];
    } options = {.known.size = sizeof options};
    dlock_client *client = (dlock_client *)&client;
    assert_status(dlock_client_open(&options.known, &client), OK);
    dlock_client_close(client);
    options.newer[7] = 1;
    assert_status(dlock_client_open(&options.known, &client), INVALID);
    assert_null(client);
    assert_says(dlock_error(), "of struct dlock_options is set, and libdlock " DLOCK_VERSION);
    options.known.size = sizeof options - 1;
    assert_status(dlock_client_open(&options.known, &client), OK);

    struct {
        struct dlock_want known;
        unsigned char newer[8];
    } want = {.known.size = sizeof want};
    dlock *lock = NULL;
    struct dlock_options plain = {.size = sizeof plain, .allow_flawed = true};
    dlock_client_close(client);
    assert_status(dlock_client_open(&plain, &client), OK);
    lock = lock_of(client, "local", "lock:a");
    dlock_hold *hold;
    assert_status(dlock_acquire(lock, &want.known, &hold), OK);
    assert_status(dlock_release(hold, NULL), OK);
    want.newer[0] = 1;
    assert_status(dlock_acquire(lock, &want.known, &hold), INVALID);
    assert_says(dlock_error(), "of struct dlock_want is set");
    assert_null(hold);
    const size_t never_set[] = {0, 1, sizeof(size_t) - 1, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof never_set / sizeof never_set[0]; i++) {
        want.known.size = never_set[i];
        assert_status(dlock_acquire(lock, &want.known, &hold), INVALID);
        assert_says(dlock_error(), "set it to sizeof(struct dlock_want)");
    }
    dlock_close(lock);
    dlock_client_close(client);
}

/* Whatever its size, a struct that is filled in keeps its size and what lies beyond. */
#define FILLED_IN(type, call)                                                                      \
    do {                                                                                           \
        for (size_t size = sizeof(size_t); size <= sizeof(struct type) + 8; size++) {              \
            union {                                                                                \
                struct type known;                                                                 \
                unsigned char bytes[sizeof(struct type) + 8];                                      \
            } mine;                                                                                \
            memset(&mine, 0xa5, sizeof mine);                                                      \
            mine.known.size = size;                                                                \
            call(&mine.known);                                                                     \
            assert_int_equal(mine.known.size, size);                                               \
            size_t known = size < sizeof(struct type) ? size : sizeof(struct type);                \
            for (size_t i = known; i < sizeof mine; i++)                                           \
                assert_int_equal(mine.bytes[i], 0xa5);                                             \
        }                                                                                          \
    } while (0)

static void a_struct_to_fill_in(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, "local", "lock:a");
    dlock_batch *batch = dlock_batch_new();
    assert_status(dlock_batch_add(batch, 1, (const char *const[]){"PING"}, NULL), OK);
#define STATS(stats) dlock_client_stats(client, stats)
#define HOLDER(holder) assert_status(dlock_inspect(lock, holder), UNSUPPORTED)
#define REPLY(reply) assert_status(dlock_batch_reply(batch, 0, reply), OK)
    FILLED_IN(dlock_stats, STATS);
    FILLED_IN(dlock_holder, HOLDER);
    FILLED_IN(dlock_reply, REPLY);
    dlock_client_stats(client, &(struct dlock_stats){.size = 0});
    assert_status(dlock_inspect(lock, &(struct dlock_holder){.size = 0}), INVALID);
    assert_says(dlock_error(), "sizeof(struct dlock_holder)");
    dlock_batch_free(batch);
    dlock_close(lock);
    dlock_client_close(client);
}

static void the_version_at_run_time(void **state)
{
    (void)state;
    assert_string_equal(dlock_version(), DLOCK_VERSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range), cmocka_unit_test(numbers_in_range),
        cmocka_unit_test(a_shorter_struct),     cmocka_unit_test(a_longer_struct),
        cmocka_unit_test(a_struct_to_fill_in),  cmocka_unit_test(the_version_at_run_time),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
