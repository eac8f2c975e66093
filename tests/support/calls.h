/* SPDX-License-Identifier: Apache-2.0
 *
 * Wrappers around the library's calls, one line each in a test. If a call has another status than
 * expected, the test fails, and prints the library's error.
 */
#ifndef TESTS_CALLS_H
#define TESTS_CALLS_H

#include "dlock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

/* The library has a function fail(), so cmocka's macro of that name is not used. */
#undef fail
#define failed(...)                                                                                \
    do {                                                                                           \
        print_error(__VA_ARGS__);                                                                  \
        print_error("\n");                                                                         \
        _fail(__FILE__, __LINE__);                                                                 \
    } while (0)

#define assert_status(call, expected)                                                              \
    do {                                                                                           \
        dlock_status got_status = (call);                                                          \
        if (got_status != DLOCK_##expected)                                                        \
            failed("%s answered %s, not " #expected "; %s", #call, dlock_status_name(got_status),  \
                   dlock_error());                                                                 \
    } while (0)

/* Skips the test, because the machine lacks what it needs. scripts/test lists the skipped tests. */
#define skip_because(...)                                                                          \
    do {                                                                                           \
        printf("SKIPPED: %s: ", __func__);                                                         \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        fflush(stdout);                                                                            \
        skip();                                                                                    \
    } while (0)

/* Asserts that the text contains the part. */
#define assert_says(text, part)                                                                    \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL)                                                        \
            failed("'%s' does not say '%s'", (text), (part));                                      \
    } while (0)

/* Opens a client of one server with these options. Flawed rungs are allowed, and the default
 * time-outs are long enough for a busy machine. */
static inline dlock_status client_open(const char *url, struct dlock_options options,
                                       dlock_client **client)
{
    options.size = sizeof options;
    options.servers = &url;
    options.server_count = 1;
    options.allow_flawed = true;
    if (options.connect_timeout_ms == 0)
        options.connect_timeout_ms = 10000;
    if (options.command_timeout_ms == 0)
        options.command_timeout_ms = 10000;
    return dlock_client_open(&options, client);
}

/* Whether a client without an engine of another package has that rung. */
static inline bool is_of_redis(const struct dlock_rung *rung)
{
    return strcmp(rung->engine, "redis") == 0 || strcmp(rung->engine, "none") == 0;
}

/* The rungs of the ladder that work with one server, in its order. Tests whose stage has one server
 * take these; tests/rung/test_redlock*.c are about the others. */
static inline const struct dlock_rung *single_rungs(size_t *count)
{
    static struct dlock_rung single[64];
    size_t all;
    const struct dlock_rung *rungs = dlock_rungs(&all);
    *count = 0;
    for (size_t i = 0; i < all && *count < sizeof single / sizeof single[0]; i++)
        if (!rungs[i].quorum && is_of_redis(&rungs[i]))
            single[(*count)++] = rungs[i];
    return single;
}

static inline dlock_client *client_of(const char *url, struct dlock_options options)
{
    dlock_client *client;
    assert_status(client_open(url, options, &client), OK);
    return client;
}

static inline dlock *lock_of(dlock_client *client, const char *rung, const char *name)
{
    dlock *lock;
    assert_status(dlock_open(client, rung, name, &lock), OK);
    return lock;
}

/* Acquires, with a wait that is long enough for a busy machine. */
static inline dlock_hold *wanted(dlock *lock, struct dlock_want want)
{
    dlock_hold *hold;
    want.size = sizeof want;
    want.wait_ms = 60000;
    assert_status(dlock_acquire(lock, &want, &hold), OK);
    assert_non_null(hold);
    return hold;
}

static inline dlock_hold *acquired(dlock *lock)
{
    return wanted(lock, (struct dlock_want){0});
}

/* Acquires in that mode. NULL if the rung does not have it. */
static inline dlock_hold *acquired_as(dlock *lock, enum dlock_mode mode)
{
    dlock_hold *hold;
    struct dlock_want want = {.size = sizeof want, .wait_ms = 60000, .mode = mode};
    dlock_status status = dlock_acquire(lock, &want, &hold);
    if (status != DLOCK_UNSUPPORTED)
        assert_status(status, OK);
    return hold;
}

/* Acquires on behalf of that owner. */
static inline dlock_hold *acquired_by(dlock *lock, uint64_t owner_id)
{
    return wanted(lock, (struct dlock_want){.owner_id = owner_id});
}

/* Makes one attempt. */
static inline dlock_status tried(dlock *lock, dlock_hold **hold)
{
    return dlock_acquire(lock, NULL, hold);
}

static inline dlock_status tried_by(dlock *lock, uint64_t owner_id, dlock_hold **hold)
{
    struct dlock_want want = {.size = sizeof want, .owner_id = owner_id};
    return dlock_acquire(lock, &want, hold);
}

static inline struct dlock_holder holder_of(dlock *lock)
{
    struct dlock_holder holder = {.size = sizeof holder};
    assert_status(dlock_inspect(lock, &holder), OK);
    return holder;
}

static inline struct dlock_reply reply_of(const dlock_batch *batch, size_t index)
{
    struct dlock_reply reply = {.size = sizeof reply};
    assert_status(dlock_batch_reply(batch, index, &reply), OK);
    return reply;
}

static inline struct dlock_stats stats_of(const dlock_client *client)
{
    struct dlock_stats stats = {.size = sizeof stats};
    dlock_client_stats(client, &stats);
    return stats;
}

#endif
