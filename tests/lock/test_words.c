/* SPDX-License-Identifier: Apache-2.0
 *
 * What needs no server: statuses, options, URLs, the ladder's table, batches, limits of the system.
 */
#include "calls.h"
#include "child.h"
#include "must.h"
#include "status.h"
#include "url.h"

#include <ctype.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- Statuses -------------------------------------------------------------------------------- */

static void statuses(void **state)
{
    static const struct {
        dlock_status status;
        const char *name;
        bool definite;
    } all[] = {
        {DLOCK_OK, "OK", true},
        {DLOCK_BUSY, "BUSY", true},
        {DLOCK_TIMED_OUT, "TIMED_OUT", true},
        {DLOCK_CANCELLED, "CANCELLED", true},
        {DLOCK_LOST, "LOST", true},
        {DLOCK_UNKNOWN, "UNKNOWN", false},
        {DLOCK_UNREACHABLE, "UNREACHABLE", true},
        {DLOCK_REFUSED, "REFUSED", true},
        {DLOCK_WRONG_TYPE, "WRONG_TYPE", true},
        {DLOCK_FLAWED, "FLAWED", true},
        {DLOCK_INVALID, "INVALID", true},
        {DLOCK_UNSUPPORTED, "UNSUPPORTED", true},
        {DLOCK_UPGRADE, "UPGRADE", true},
        {DLOCK_LIMIT, "LIMIT", true},
        {DLOCK_NO_MEMORY, "NO_MEMORY", true},
        {DLOCK_FORKED, "FORKED", true},
    };
    (void)state;
    assert_int_equal(DLOCK_OK, 0);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(all[i].status, i);
        assert_string_equal(dlock_status_name(all[i].status), all[i].name);
        assert_int_equal(dlock_status_definite(all[i].status), all[i].definite);
        assert_true(strlen(dlock_status_text(all[i].status)) >= 4);
    }
    const int none[] = {-1, sizeof all / sizeof all[0], 1000000};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_string_equal(dlock_status_name((dlock_status)none[i]), "?");
        assert_string_equal(dlock_status_text((dlock_status)none[i]), "no such status");
        assert_false(dlock_status_definite((dlock_status)none[i]));
    }
}

static void *its_own_error(void *arg)
{
    dlock_client *client;
    must(strcmp(dlock_error(), "") == 0);
    must(dlock_client_open(
             &(struct dlock_options){.size = sizeof(struct dlock_options), .ttl_ms = 1}, &client) ==
         DLOCK_INVALID);
    must(strstr(dlock_error(), "ttl_ms") != NULL);
    return arg;
}

static void an_error_belongs_to_its_thread(void **state)
{
    (void)state;
    char before[512];
    snprintf(before, sizeof before, "%s", dlock_error());
    thread_wait(thread_start(its_own_error, NULL));
    assert_string_equal(dlock_error(), before);
}

/* ---- Options --------------------------------------------------------------------------------- */

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

/* Opens, and asks no server whether it is there. */
static void nothing_is_contacted(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, NULL, "lock:a");
    assert_int_equal(stats_of(client).connects, 0);
    assert_int_equal(stats_of(client).commands, 0);
    dlock_close(lock);
    dlock_client_close(client);
}

/* ---- URLs ------------------------------------------------------------------------------------ */

static void same(const char *got, const char *expected)
{
    if (expected == NULL)
        assert_null(got);
    else
        assert_string_equal(got, expected);
}

/* As many bytes as sun_path holds. */
#define PATH_107                                                                                   \
    "/0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890" \
    "123456789012345"

static void good_urls(void **state)
{
    static const struct {
        const char *text, *host, *port, *path, *user, *password, *db, *shown;
    } good[] = {
        {"redis://h", "h", "6379", 0, 0, 0, 0, "redis://h:6379/0"},
        {"redis://h/", "h", "6379", 0, 0, 0, 0, "redis://h:6379/0"},
        {"redis://10.0.0.1:1/2", "10.0.0.1", "1", 0, 0, 0, "2", "redis://10.0.0.1:1/2"},
        {"redis://h:65535/99999", "h", "65535", 0, 0, 0, "99999", "redis://h:65535/99999"},
        {"redis://h/007", "h", "6379", 0, 0, 0, "7", "redis://h:6379/7"},
        {"redis://h/00", "h", "6379", 0, 0, 0, "0", "redis://h:6379/0"},
        {"redis://:pw@h", "h", "6379", 0, 0, "pw", 0, "redis://h:6379/0"},
        {"redis://u:pw@h:7", "h", "7", 0, "u", "pw", 0, "redis://h:7/0"},
        {"redis://u:a:b@h", "h", "6379", 0, "u", "a:b", 0, "redis://h:6379/0"},
        {"redis://u:a@b@h", "h", "6379", 0, "u", "a@b", 0, "redis://h:6379/0"},
        {"redis://u:@h", "h", "6379", 0, "u", "", 0, "redis://h:6379/0"},
        {"redis://a%40b:p%3A%2f%25@h", "h", "6379", 0, "a@b", "p:/%", 0, "redis://h:6379/0"},
        {"redis://[::1]", "::1", "6379", 0, 0, 0, 0, "redis://[::1]:6379/0"},
        {"redis://u:p@[fe80::1%25lo]:8/3", "fe80::1%lo", "8", 0, "u", "p", "3",
         "redis://[fe80::1%lo]:8/3"},
        {"unix:/run/r.sock", 0, 0, "/run/r.sock", 0, 0, 0, "unix:/run/r.sock?db=0"},
        {"unix:///run/r.sock", 0, 0, "/run/r.sock", 0, 0, 0, "unix:/run/r.sock?db=0"},
        {"unix:/run/a:b@c", 0, 0, "/run/a:b@c", 0, 0, 0, "unix:/run/a:b@c?db=0"},
        {"unix:/run/%3f?db=3", 0, 0, "/run/?", 0, 0, "3", "unix:/run/??db=3"},
        {"unix:" PATH_107, 0, 0, PATH_107, 0, 0, 0, "unix:" PATH_107 "?db=0"},
        {"unix:r.sock", 0, 0, "r.sock", 0, 0, 0, "unix:r.sock?db=0"},
        {"unix::pw@/r", 0, 0, "/r", 0, "pw", 0, "unix:/r?db=0"},
        {"unix://u:pw@/r?db=1", 0, 0, "/r", "u", "pw", "1", "unix:/r?db=1"},
        {"unix:u:p/w@/r", 0, 0, "/r", "u", "p/w", 0, "unix:/r?db=0"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct url url;
        assert_status(url_parse(good[i].text, &url), OK);
        same(url.host, good[i].host);
        same(url.port, good[i].port);
        same(url.path, good[i].path);
        same(url.user, good[i].user);
        same(url.password, good[i].password);
        same(url.db, good[i].db);
        same(url.shown, good[i].shown);
        url_free(&url);
    }
}

#define SECRET "s3cr3t"

static const char *const bad_ones[] = {
    "",
    "h",
    "h:6379",
    "redis",
    "redis:",
    "redis:h",
    "redis://",
    "redis:///0",
    "redis://:6379",
    "redis://@h",
    "redis://user@h",
    "redis://h:",
    "redis://h:0",
    "redis://h:-1",
    "redis://h:65536",
    "redis://h:6379x",
    "redis://h:123456789012345678901234567890",
    "redis://h/x",
    "redis://h/-1",
    "redis://h/1/2",
    "redis://h/1?db=2",
    "redis://h/100000",
    "redis://[::1",
    "redis://[]",
    "redis://[::1]x",
    "redis://%",
    "redis://%4",
    "redis://%4g",
    "redis://%00",
    "rediss://h",
    "http://h",
    "unix",
    "unix:",
    "unix://",
    "unix:?db=1",
    "unix:/r?db=",
    "unix:/r?db=x",
    "unix:/r?x=1",
    "unix:/r%zz",
    "unix:user@/r",
    "unix:" PATH_107 "7",
    /* What was meant for a password is never told. */
    "redis://:" SECRET,
    "redis://user:" SECRET,
    "redis://user:" SECRET "/0",
    "redis://:" SECRET "@",
    "redis://:" SECRET "@:1",
    "redis://:" SECRET "%zz@h",
    "redis://u:" SECRET "%00@h",
    "redis://u:" SECRET "@h:port",
    "redis://u:" SECRET "/@h",
    "redis://u:" SECRET "@h/x",
    "rediss://u:" SECRET "@h",
    "rediss://u:" SECRET,
    "u:" SECRET "@h",
    "unix:u:" SECRET,
    "unix:u:" SECRET "@",
    "unix:u:" SECRET "?db=1",
};

static void bad_urls(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_ones / sizeof bad_ones[0]; i++) {
        struct url url;
        dlock_status status = url_parse(bad_ones[i], &url);
        if (status != DLOCK_INVALID)
            failed("'%s' was taken for a server's URL", bad_ones[i]);
        assert_says(dlock_error(), "give redis://[[user]:password@]host[:port][/db] or unix:");
        if (strstr(dlock_error(), SECRET) != NULL)
            failed("'%s' tells the password: %s", bad_ones[i], dlock_error());
        url_free(&url);
    }
    struct url url;
    assert_status(url_parse(NULL, &url), INVALID);
}

static void urls_that_say_what_would_be_right(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        {"redis://127.0.0.1?db=2",
         "'redis://127.0.0.1?db=2' has a '?': the database follows a '/', as in "
         "redis://host:6379/2; give redis://"},
        {"redis://[::1]?db=2", "as in redis://host:6379/2"},
        {"redis://h:1?db=2", "as in redis://host:6379/2"},
        {"redis://h/1?db=2", "as in redis://host:6379/2"},
        {"redis://:" SECRET "@h?db=2", "'...@h?db=2' has a '?'"},
        {"redis://:p?q@h:0", "'...@h:0' has a port that is not a number from 1 to 65535"},
        {"redis://h:65536", "'redis://h:...' has a port that is not a number from 1 to 65535"},
        {"redis://h:abc/1", "has a port that is not a number"},
        {"redis://h:6379 ", "has a port that is not a number"},
        {"redis://h:6379#1", "has a port that is not a number"},
        {"redis://h/-1", "'redis://h/-1' has a database that is not a number from 0 to 99999"},
        {"redis://h:6379/x", "'redis://h:...' has a database that is not a number"},
        {"redis://u:" SECRET "@h/100000", "'...@h/100000' has a database that is not a number"},
        {"redis://u:" SECRET "/@h", "'...@h' has a '/' in its login; write it as %2F"},
        {"redis://user@h", "'...@h' has an '@', but no ':' before the password"},
        {"redis://:1", "has no host"},
        {"redis://[::1", "has a '[' without a ']'"},
        {"redis://[::1]x", "after its ']'"},
        {"redis://%zz", "'redis://%zz' has a '%' that is not followed by two hex digits"},
        {"unix:/r%00", "'unix:/r%00' has a '%' that is not followed by two hex digits"},
        {"unix:" PATH_107 "7", "7' has a path that is not of 1 to 107 bytes"},
        {"unix:?db=1", "has a path that is not of 1 to 107 bytes"},
        {"unix:/a?b", "'unix:/a?b' has a '?' that is not the one of '?db=N'"},
        {"unix:/a?db=x", "with N from 0 to 99999; write another as %3F"},
        {"unix:u:" SECRET "?@/r", "'...@/r' has a '?' that is not the one of '?db=N'"},
        {"unix:u:" SECRET, "'unix:u:...' has a ':' without an '@'"},
        {"http://h", "'http://h' begins neither with redis:// nor with unix:"},
        {"rediss://h:6379", "'rediss://h:...' needs TLS, which libdlock does not support: run a "
                            "local TLS proxy such as stunnel; give redis://"},
        {"rediss://:" SECRET "@h?", "needs TLS"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct url url;
        assert_status(url_parse(bad[i].text, &url), INVALID);
        assert_says(dlock_error(), bad[i].says);
        assert_null(strstr(dlock_error(), SECRET));
    }
    struct url url;
    assert_status(url_parse("redis://:p?q@h", &url), OK);
    assert_string_equal(url.password, "p?q");
    url_free(&url);
}

/* Pieces of URLs in any order: never anything but a URL or a refusal, and no word of what stands
 * where a password stands. */
static void garbage_urls(void **state)
{
    static const char *const pieces[] = {"redis://", "unix:", "//", "/",    ":",   "@",    "%",
                                         "%41",      "%00",   "[",  "]",    "::1", "h",    "127.1",
                                         "6379",     "65536", "?",  "?db=", "7",   "\xff", " "};
    static const char *const starts[] = {"redis://", "unix:", "unix://"};
    (void)state;
    unsigned seed = 20240501;
    for (int i = 0; i < 60000; i++) {
        char text[512];
        bool with_secret = i % 2 == 0;
        int used = 0;
        if (with_secret)
            used = snprintf(text, sizeof text, "%s%s:" SECRET, starts[(unsigned)rand_r(&seed) % 3],
                            rand_r(&seed) % 2 == 0 ? "user" : "");
        for (int left = rand_r(&seed) % 12; left > 0; left--)
            used += snprintf(text + used, sizeof text - (size_t)used, "%s",
                             pieces[(unsigned)rand_r(&seed) % (sizeof pieces / sizeof pieces[0])]);
        text[used] = '\0';
        struct url url;
        dlock_status status = url_parse(text, &url);
        if (status != DLOCK_OK && status != DLOCK_INVALID)
            failed("seed 20240501, %d: '%s' gave %s", i, text, dlock_status_name(status));
        const char *said = status == DLOCK_OK ? url.shown : dlock_error();
        if (with_secret && strstr(said, SECRET) != NULL)
            failed("seed 20240501, %d: '%s' tells the password: %s", i, text, said);
        url_free(&url);
    }
}

/* ---- The ladder ------------------------------------------------------------------------------ */

static void the_ladder(void **state)
{
    static const struct {
        const char *name;
        bool flawed, expires, renewed, reentrant;
    } expected[] = {
        {"none", true, false, false, false},
        {"local", true, false, false, false},
        {"setnx", true, false, false, false},
        {"setnx_expire", true, true, false, false},
        {"setnx_multi", true, true, false, false},
        {"set_nx_ex", true, true, false, false},
        {"owner_check", true, true, false, false},
        {"owner_lua", false, true, false, false},
        {"reentrant_tls", true, true, false, true},
        {"reentrant_getset", true, true, false, true},
        {"reentrant", false, true, false, true},
        {"watchdog_timer", true, true, false, true}, /* `renewed`: by the timekeeper, which tells */
        {"watchdog", false, true, true, true},
        {"blpop_wake", true, true, true, true},
        {"notify", false, true, true, true},
        {"fair", false, true, true, true},
        {"rw_counter", true, false, false, false},
        {"read_write", false, true, true, true},
    };
    (void)state;
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    assert_int_equal(count, sizeof expected / sizeof expected[0]);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(rungs[i].name, expected[i].name);
        assert_int_equal(rungs[i].flawed, expected[i].flawed);
        assert_int_equal(rungs[i].expires, expected[i].expires);
        assert_int_equal(rungs[i].renewed, expected[i].renewed);
        assert_int_equal(rungs[i].reentrant, expected[i].reentrant);
        assert_true(strlen(rungs[i].adds) > 0 && strlen(rungs[i].flaw) > 0);
        assert_ptr_equal(dlock_rung_find(rungs[i].name), &rungs[i]);
    }
    assert_string_equal(dlock_rung_find(NULL)->name, "watchdog");
    assert_null(dlock_rung_find(""));
    assert_null(dlock_rung_find("Watchdog"));
}

static void no_such_rung_lists_those_there_are(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = (dlock *)&lock;
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    assert_status(dlock_open(client, "redlock", "lock:a", &lock), INVALID);
    assert_null(lock);
    assert_says(dlock_error(), "there is no rung 'redlock'; there are owner_lua, reentrant, ");
    const char *teaching = strstr(dlock_error(), " and, flawed, kept for teaching: none, local, ");
    assert_non_null(teaching);
    for (size_t i = 0; i < count; i++) {
        char name[64], list[SENTENCE_MAX];
        snprintf(name, sizeof name, " %s,", rungs[i].name);
        snprintf(list, sizeof list, "%.*s,", (int)(teaching - dlock_error()), dlock_error());
        if (rungs[i].flawed)
            snprintf(list, sizeof list, "%s,", teaching);
        assert_says(list, name);
    }
    dlock_client_close(client);
}

static void flawed_rungs_must_be_asked_for(void **state)
{
    (void)state;
    dlock_client *client;
    assert_status(dlock_client_open(NULL, &client), OK);
    size_t count;
    const struct dlock_rung *rungs = dlock_rungs(&count);
    for (size_t i = 0; i < count; i++) {
        dlock *lock;
        dlock_status status = dlock_open(client, rungs[i].name, "lock:a", &lock);
        assert_int_equal(status, rungs[i].flawed ? DLOCK_FLAWED : DLOCK_OK);
        if (status == DLOCK_FLAWED) {
            assert_null(lock);
            assert_says(dlock_error(), rungs[i].flaw);
            assert_says(dlock_error(), "allow_flawed");
        }
        dlock_close(lock);
    }
    dlock_client_close(client);
}

static void names_have_1_to_512_bytes(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    char name[DLOCK_NAME_MAX + 2];
    dlock *lock;
    assert_int_equal(DLOCK_NAME_MAX, 512);
    memset(name, 'n', sizeof name);
    name[513] = '\0';
    assert_status(dlock_open(client, NULL, name, &lock), INVALID);
    assert_says(dlock_error(), "1 to 512 bytes; this one has 513");
    assert_status(dlock_open(client, NULL, "", &lock), INVALID);
    assert_says(dlock_error(), "1 to 512 bytes; this one has 0");
    assert_status(dlock_open(client, NULL, NULL, &lock), INVALID);
    assert_says(dlock_error(), "dlock_open(): name is NULL");
    assert_null(lock);
    name[512] = '\0';
    assert_status(dlock_open(client, NULL, name, &lock), OK);
    assert_string_equal(dlock_name(lock), name);
    assert_string_equal(dlock_rung_of(lock)->name, "watchdog");
    dlock_close(lock);
    dlock_close(NULL);
    memset(name, '{', 512); /* a name this long leaves room for what is wrong with it */
    assert_status(dlock_open(client, "fair", name, &lock), INVALID);
    assert_says(dlock_error(), "'{{{{{{{{");
    assert_says(dlock_error(), "...{{{{");
    assert_says(dlock_error(), "{' has a brace but no hash tag");
    assert_says(dlock_error(), "or no brace, is right");
    dlock_client_close(client);
}

static void one_server_for_these_rungs(void **state)
{
    (void)state;
    const char *const two[] = {"redis://127.0.0.1:1", "redis://127.0.0.1:2"};
    struct dlock_options options = {
        .size = sizeof options, .servers = two, .server_count = 2, .allow_flawed = true};
    dlock_client *client;
    dlock *lock;
    assert_status(dlock_client_open(&options, &client), OK);
    assert_status(dlock_open(client, "watchdog", "lock:a", &lock), INVALID);
    assert_says(dlock_error(), "'watchdog' works with one server; the client has 2");
    assert_status(dlock_open(client, "local", "lock:a", &lock), OK);
    dlock_close(lock);
    dlock_client_close(client);
}

static void a_client_has_a_uuid(void **state)
{
    (void)state;
    dlock_client *clients[2];
    for (int i = 0; i < 2; i++) {
        assert_status(dlock_client_open(NULL, &clients[i]), OK);
        const char *id = dlock_client_id(clients[i]);
        assert_int_equal(strlen(id), 36);
        for (size_t at = 0; at < 36; at++) {
            bool dash = at == 8 || at == 13 || at == 18 || at == 23;
            assert_true(dash ? id[at] == '-'
                             : isxdigit((unsigned char)id[at]) && !isupper((unsigned char)id[at]));
        }
        assert_int_equal(id[14], '4');
        assert_non_null(strchr("89ab", id[19]));
    }
    assert_string_not_equal(dlock_client_id(clients[0]), dlock_client_id(clients[1]));
    dlock_client_close(clients[0]);
    dlock_client_close(clients[1]);
}

/* ---- Batches --------------------------------------------------------------------------------- */

static void batches(void **state)
{
    (void)state;
    dlock_batch *batch = dlock_batch_new();
    const char *const command[] = {"PING"};
    struct dlock_reply reply = {.size = sizeof reply};
    assert_non_null(batch);
    assert_status(dlock_batch_add(batch, 0, command, NULL), INVALID);
    assert_status(dlock_batch_add(batch, -1, command, NULL), INVALID);
    assert_status(dlock_batch_reply(batch, 0, &reply), INVALID);
    assert_says(dlock_error(), "holds 0 commands");
    for (int i = 0; i < DLOCK_BATCH_MAX; i++)
        assert_status(dlock_batch_add(batch, 1, command, NULL), OK);
    assert_status(dlock_batch_add(batch, 1, command, NULL), LIMIT);
    assert_says(dlock_error(), "at most 64");
    dlock_batch_clear(batch);
    const char *const set[] = {"SET", "a", "b"};
    const size_t sizes[] = {(512U << 20) + 1, SIZE_MAX};
    for (int i = 0; i < 2; i++) {
        assert_status(dlock_batch_add(batch, 3, set, (size_t[]){3, 1, sizes[i]}), INVALID);
        assert_says(dlock_error(), i == 0 ? "argv[2] has 536870913 bytes; at most 536870912"
                                          : "argv[2] has 18446744073709551615 bytes");
    }
    assert_status(dlock_batch_add(batch, (1 << 20) + 1, set, NULL), INVALID);
    assert_says(dlock_error(), "argc is 1048577; it must be 1 to 1048576");
    for (int i = 0; i < DLOCK_BATCH_MAX; i++)
        assert_status(dlock_batch_add(batch, 1, command, NULL), OK);
    assert_status(dlock_batch_reply(batch, 63, &reply), OK);
    assert_int_equal(reply.kind, DLOCK_REPLY_NONE);
    assert_string_equal(reply.text, "");
    assert_status(dlock_batch_reply(batch, 64, &reply), INVALID);
    assert_status(dlock_batch_reply(batch, 63, &(struct dlock_reply){.size = 0}), INVALID);
    assert_says(dlock_error(), "sizeof(struct dlock_reply)");
    dlock_batch_clear(batch);
    assert_status(dlock_batch_reply(batch, 0, &reply), INVALID);
    assert_status(
        dlock_batch_add(batch, 2, (const char *const[]){"GET", "a\0b"}, (const size_t[]){3, 3}),
        OK);
    dlock_batch_free(batch);
    dlock_batch_free(NULL);
}

/* Redis knows no locales: in Turkish "i" and "I" are two letters. */
static void commands_in_turkish(void **state)
{
    static const char *const words[] = {"MULTI", "multi", "Wait", "client", "unsubscribe", "quit"};
    (void)state;
    char folder[] = "/tmp/ladder-locale-XXXXXX", make[200];
    assert_non_null(mkdtemp(folder));
    snprintf(make, sizeof make, "localedef -i tr_TR -f UTF-8 %s/tr_TR.UTF-8 2>&1", folder);
    bool made = system(make) == 0;
    setenv("LOCPATH", folder, 1);
    made = made && setlocale(LC_ALL, "tr_TR.UTF-8") != NULL;
    dlock_batch *batch = dlock_batch_new();
    dlock_status statuses[6];
    for (size_t i = 0; i < 6; i++)
        statuses[i] = dlock_batch_add(batch, 1, &words[i], NULL);
    dlock_batch_free(batch);
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    snprintf(make, sizeof make, "rm -r %s", folder);
    assert_int_equal(system(make), 0);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(statuses[i], DLOCK_INVALID);
    if (!made)
        skip_because("localedef makes no Turkish locale here");
}

/* ---- Wrong calls ----------------------------------------------------------------------------- */

static void never_done(void *arg, dlock_status status, dlock_hold *hold)
{
    (void)arg, (void)status, (void)hold;
    failed("done was called");
}

static void a_mode_that_is_none(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    static const char *const rungs[] = {"watchdog", "read_write"};
    for (size_t i = 0; i < sizeof rungs / sizeof rungs[0]; i++) {
        dlock *lock = lock_of(client, rungs[i], "lock:a");
        dlock_hold *hold;
        struct dlock_want want = {.size = sizeof want, .mode = (enum dlock_mode)7};
        assert_status(dlock_acquire(lock, &want, &hold), INVALID);
        assert_says(dlock_error(),
                    "want.mode is 7; it must be DLOCK_EXCLUSIVE (0) or DLOCK_SHARED (1)");
        assert_status(dlock_acquire_start(lock, &want, never_done, NULL), INVALID);
        want.mode = DLOCK_SHARED;
        assert_int_equal(dlock_acquire(lock, &want, &hold),
                         i == 0 ? DLOCK_UNSUPPORTED : DLOCK_UNREACHABLE);
        dlock_close(lock);
    }
    dlock_client_close(client);
}

#define assert_null_is_named(call, text)                                                           \
    do {                                                                                           \
        assert_status(call, INVALID);                                                              \
        assert_string_equal(dlock_error(), text);                                                  \
    } while (0)

/* Where a status is answered. */
static void null_is_refused(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, "watchdog", "lock:a");
    dlock *no_lock = (dlock *)&no_lock;
    dlock_hold *hold = (dlock_hold *)&hold;
    dlock_batch *batch = dlock_batch_new();
    struct dlock_holder holder = {.size = sizeof holder};
    struct dlock_reply reply = {.size = sizeof reply};
    const char *const argv[] = {"GET", NULL};
    assert_null_is_named(dlock_client_open(NULL, NULL), "dlock_client_open(): client is NULL");
    assert_null_is_named(dlock_open(NULL, NULL, "a", &no_lock), "dlock_open(): client is NULL");
    assert_null(no_lock);
    assert_null_is_named(dlock_open(client, NULL, "a", NULL), "dlock_open(): lock is NULL");
    assert_null_is_named(dlock_inspect(NULL, &holder), "dlock_inspect(): lock is NULL");
    assert_null_is_named(dlock_inspect(lock, NULL), "dlock_inspect(): holder is NULL");
    assert_null_is_named(dlock_break(NULL, &holder), "dlock_break(): lock is NULL");
    assert_null_is_named(dlock_acquire(NULL, NULL, &hold), "dlock_acquire(): lock is NULL");
    assert_null(hold);
    assert_null_is_named(dlock_acquire(lock, NULL, NULL), "dlock_acquire(): hold is NULL");
    assert_null_is_named(dlock_acquire_start(NULL, NULL, never_done, NULL),
                         "dlock_acquire_start(): lock is NULL");
    assert_null_is_named(dlock_acquire_start(lock, NULL, NULL, NULL),
                         "dlock_acquire_start(): done is NULL");
    assert_null_is_named(dlock_extend(NULL), "dlock_extend(): hold is NULL");
    assert_null_is_named(dlock_release(NULL, NULL), "dlock_release(): hold is NULL");
    assert_null_is_named(dlock_release(NULL, batch), "dlock_release(): hold is NULL");
    assert_null_is_named(dlock_batch_add(NULL, 1, argv, NULL), "dlock_batch_add(): batch is NULL");
    assert_null_is_named(dlock_batch_add(batch, 1, NULL, NULL), "dlock_batch_add(): argv is NULL");
    assert_null_is_named(dlock_batch_add(batch, 2, argv, NULL), "argv[1] is NULL, and argc is 2");
    assert_status(dlock_batch_add(batch, 1, argv, NULL), OK);
    assert_null_is_named(dlock_batch_reply(NULL, 0, &reply), "dlock_batch_reply(): batch is NULL");
    assert_null_is_named(dlock_batch_reply(batch, 0, NULL), "dlock_batch_reply(): reply is NULL");
    assert_int_equal(stats_of(client).attempts, 0);
    dlock_batch_free(batch);
    dlock_close(lock);
    dlock_client_close(client);
}

/* Where none is. */
static void null_is_harmless(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_close(NULL);
    dlock_close(NULL);
    dlock_cancel_free(NULL);
    dlock_cancel_now(NULL);
    dlock_batch_clear(NULL);
    dlock_batch_free(NULL);
    dlock_client_stats(NULL, &stats);
    dlock_client_stats(client, NULL);
    assert_int_equal(stats.attempts, 0);
    assert_non_null(dlock_rungs(NULL));
    assert_string_equal(dlock_client_id(NULL), "");
    assert_string_equal(dlock_name(NULL), "");
    assert_null(dlock_rung_of(NULL));
    assert_int_equal(dlock_fd(NULL), -1);
    assert_int_equal(dlock_process(NULL), 0);
    assert_false(dlock_valid(NULL));
    assert_int_equal(dlock_remaining_ms(NULL), 0);
    assert_int_equal(dlock_lost_fd(NULL), -1);
    assert_string_equal(dlock_error(), "dlock_lost_fd(): hold is NULL");
    assert_string_equal(dlock_owner(NULL), "");
    assert_int_equal(dlock_acquisition(NULL), 0);
    assert_int_equal(dlock_token(NULL), 0);
    dlock_client_close(client);
}

/* ---- Limits of the system -------------------------------------------------------------------- */

static void no_descriptor_is_left(void **state)
{
    (void)state;
    dlock_client *client = client_of("redis://127.0.0.1:1", (struct dlock_options){0});
    dlock *lock = lock_of(client, "watchdog", "lock:a");
    dlock_client *none;
    dlock_hold *hold;
    struct rlimit before, now;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0);
    close(next);
    getrlimit(RLIMIT_NOFILE, &before);
    now = before;
    now.rlim_cur = (rlim_t)next;
    setrlimit(RLIMIT_NOFILE, &now);
    dlock_status opened = dlock_client_open(NULL, &none);
    dlock_cancel *cancel = dlock_cancel_new();
    char why[SENTENCE_MAX];
    snprintf(why, sizeof why, "%s", dlock_error());
    dlock_status had = dlock_acquire(lock, NULL, &hold);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(opened, DLOCK_NO_MEMORY);
    assert_null(none);
    assert_null(cancel);
    assert_string_equal(why, "a cancel needs a descriptor: Too many open files");
    assert_int_equal(had, DLOCK_UNREACHABLE);
    assert_says(dlock_error(), "Too many open files");
    dlock_cancel_free(NULL);
    dlock_close(lock);
    dlock_client_close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses),
        cmocka_unit_test(an_error_belongs_to_its_thread),
        cmocka_unit_test(numbers_out_of_range),
        cmocka_unit_test(numbers_in_range),
        cmocka_unit_test(a_shorter_struct),
        cmocka_unit_test(a_longer_struct),
        cmocka_unit_test(a_struct_to_fill_in),
        cmocka_unit_test(the_version_at_run_time),
        cmocka_unit_test(nothing_is_contacted),
        cmocka_unit_test(good_urls),
        cmocka_unit_test(bad_urls),
        cmocka_unit_test(urls_that_say_what_would_be_right),
        cmocka_unit_test(garbage_urls),
        cmocka_unit_test(the_ladder),
        cmocka_unit_test(no_such_rung_lists_those_there_are),
        cmocka_unit_test(flawed_rungs_must_be_asked_for),
        cmocka_unit_test(names_have_1_to_512_bytes),
        cmocka_unit_test(one_server_for_these_rungs),
        cmocka_unit_test(a_client_has_a_uuid),
        cmocka_unit_test(batches),
        cmocka_unit_test(commands_in_turkish),
        cmocka_unit_test(a_mode_that_is_none),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(null_is_harmless),
        cmocka_unit_test(no_descriptor_is_left),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
